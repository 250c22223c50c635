"""Measurements of common claims about data loading, on the user's machine.

Each experiment is one file: `SUMMARY`, `options`, which adds its arguments, and `run`,
which returns a `Result`. ``infeed experiment`` calls `command`. `measuring`, `images`,
`tfrecord` and `machines` are shared by several experiments.
"""
