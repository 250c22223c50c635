"""What the field's folklore rests on, run again on the user's machine.

One file an experiment: `SUMMARY`, `options` adds its arguments, `run` gives a `Result`.
`command` is what ``infeed experiment`` calls. `measuring`, `images`, `tfrecord` and
`machines` hold what several of them need.
"""
