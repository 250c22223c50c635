"""Feeders on a Ray cluster: batches do not depend on the feeder, or on failures."""

import json
import os
import pickle
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from requirements import framework_test, require
from running import environment, run

require("ray")
pytestmark = framework_test

SCRIPT = Path(__file__).parent / "feed_by_ray.py"

# The promise is five seconds on a machine that does nothing else.
PAUSE_S = 30


@pytest.fixture(scope="module")
def on_cluster(classification):
    """Reports of the trainers on one cluster, one per scenario."""
    seed = int(os.environ.get("INFEED_SEED", time.time_ns() % 10**6))
    print(f"INFEED_SEED={seed}")
    ended = subprocess.run(
        [sys.executable, SCRIPT, classification.path, str(seed)],
        capture_output=True,
        text=True,
        timeout=500,
        env=environment(RAY_DEDUP_LOGS="0"),
    )
    print(ended.stderr[-4000:])
    assert ended.returncode == 0, f"seed {seed}"
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def local(classification):
    """Returns steps of a run without feeders, for one rank."""
    import feed_by_ray

    made = feed_by_ray.pipeline(classification.path)

    def run_locally(steps, rank=0, world_size=1, function=None):
        wanted = made if function is None else made.python(function)
        trainer = feed_by_ray.Trainer(wanted, 1, rank=rank, world_size=world_size)
        while len(trainer.found) < steps:
            trainer.step()
        trainer.loader.close()
        return [list(step) for step in trainer.found]

    return run_locally


def same(report, local, **of):
    """Whether a run delivered the same records and bytes as without feeders."""
    return report["in_time"] and report["found"] == local(len(report["found"]), **of)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_run_that_loses_nodes_delivers_the_local_runs_order_and_bits(
    on_cluster, local, count
):
    report = on_cluster[f"killed {count}"]

    assert same(report, local)
    assert report["seen"], report["feeders"]
    assert sum(feeder["lost"] > 0 for feeder in report["feeders"]) == count
    assert report["pause_s"] < PAUSE_S
    print(f"{count} nodes killed: the longest wait was {report['pause_s']:.2f} s")


def test_a_restarted_feeder_is_found_at_its_new_address(on_cluster, local):
    report = on_cluster["restarted"]

    assert same(report, local)
    (feeder,) = report["feeders"]
    assert feeder["connected"]
    assert feeder["lost"] == 1


def test_feeders_serve_several_pipelines_and_drop_unused_ones(on_cluster, local):
    report = on_cluster["several"]

    assert same(report, local)
    assert report["feeders"][0]["lost"] == 0, "the pipeline that was fed all the time"
    for is_in_time, seed, served in [*report["passed"], report["again"]]:
        assert is_in_time
        assert {3, seed} <= set(served)
    counts = [len(served) for _, _, served in report["passed"]]
    assert counts == [2, 3, 4, 5, 6, 7, 8, 8, 8, 8]
    # The last trainer uses one of them.
    assert len(report["dropped"]) == 3


def test_two_ranks_share_feeders_that_another_process_began(on_cluster, local):
    reports = on_cluster["ranks"]

    hosts = [[feeder["host"] for feeder in report["feeders"]] for report in reports]
    assert hosts[0] == hosts[1]
    for rank, report in enumerate(reports):
        assert same(report, local, rank=rank, world_size=2)


def test_a_restarted_trainer_finds_its_feeders_running(on_cluster, local):
    first, second = on_cluster["resumed"]

    both = first["found"] + second["found"]
    assert both == local(len(both))
    assert first["in_time"]
    assert second["in_time"]
    (before,), (after,) = first["feeders"], second["feeders"]
    assert (before["host"], before["node"]) == (after["host"], after["node"])


def test_feeders_without_room_are_one_warning_and_the_run_continues(on_cluster, local):
    report = on_cluster["unplaceable"]

    assert same(report, local)
    (line,) = report["reported"]
    what = (
        "2 feeders of 1 CPU, 1 spot each were requested, "
        "and the cluster has room for 1: "
    )
    there = (
        r"the cluster's 4 nodes have 3 CPUs \(\d free\), 1 spot \(\d free\); "
        "the run continues"
    )
    assert re.match(what + there, line), line


def test_a_feeder_with_other_data_is_reported_with_its_node(on_cluster, local):
    report = on_cluster["refused"]

    assert same(report, local)
    (feeder,) = report["feeders"]
    assert feeder["batches"] == 0
    assert f"{feeder['host']} (node {feeder['node'][:12]})" in report["reported"][0]
    assert "3 at the trainer, 4 at the feeder" in report["reported"][0]


def test_a_feeder_without_the_data_is_reported_with_its_error(on_cluster, local):
    report = on_cluster["without data"]

    assert same(report, local)
    assert report["reported"][0].startswith("feeder 0 of 1: cannot open /missing")


@pytest.fixture
def noise_function(monkeypatch):
    """A function that the cluster's processes do not find by themselves."""
    import feed_by_ray

    monkeypatch.syspath_prepend(feed_by_ray.SENT)
    import feeder_steps

    return feeder_steps.add_noise


def test_a_function_whose_module_ray_sends_along_runs_on_feeders(
    on_cluster, local, noise_function
):
    report = on_cluster["function"]

    assert same(report, local, function=noise_function)
    (feeder,) = report["feeders"]
    assert feeder["batches"] > 1
    assert feeder["declined"] == 0


def test_a_function_that_a_feeder_cannot_import_is_reported_and_the_run_continues(
    on_cluster, local, noise_function
):
    report = on_cluster["function not there"]

    assert same(report, local, function=noise_function)
    (feeder,) = report["feeders"]
    assert feeder["batches"] == 0
    reported = "feeder 0 of 1: python: cannot import feeder_steps:add_noise (No module"
    assert report["reported"][0].startswith(reported)


def test_the_last_loader_ends_its_feeders_and_their_watch(on_cluster, local):
    report = on_cluster["closed"]

    assert same(report, local)
    assert report["kept"] == 2, "another loader needs them"
    assert report["left"] == []
    assert report["again"], "they were started again"
    assert report["threads"] == []


def test_a_run_whose_feeders_are_ended_on_purpose_continues_without(on_cluster, local):
    report = on_cluster["ended"]

    assert same(report, local)
    # The end of the connection is reported, and nothing from Ray.
    assert not [text for text in report["reported"] if text.startswith("feeder 0")]


def test_opening_does_not_wait_for_ray(on_cluster):
    opened = [on_cluster[name]["opened_s"] for name in ("unplaceable", "closed")]

    assert max(opened) < PAUSE_S, opened


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num": 0}, "num must be an integer of at least 1"),
        ({"num": 1, "cpus": 0}, "cpus must be a number over 0"),
        ({"num": 1, "cpus": "many"}, "cpus must be a number"),
        ({"num": 1, "name": ""}, "name must be a text"),
        ({"num": 1, "local": "never"}, "local must be"),
        ({"num": 1, "memory": "lots"}, "memory must be a size"),
        ({"num": 1, "resources": {"spot": 0}}, r"resources\['spot'\] must be"),
    ],
)
def test_invalid_arguments_raise(wrong, message):
    import infeed.ray

    with pytest.raises(infeed.errors.ConfigError, match=message):
        infeed.ray.Feeders(**wrong)


def test_feeders_that_are_not_started_cannot_be_sent_to_processes():
    import infeed.ray

    with pytest.raises(infeed.errors.ConfigError, match="only started feeders"):
        pickle.dumps(infeed.ray.Feeders(2))
    named = pickle.loads(pickle.dumps(infeed.ray.Feeders(2, cpus=3, name="some")))
    assert repr(named) == "Feeders(2, cpus=3, name='some', local='help')"


def test_pipelines_that_feeders_cannot_run_raise_before_ray_starts(classification):
    script = (
        "import sys, infeed, infeed.ray, ray\n"
        "from infeed import sources\n"
        "feeders = infeed.ray.Feeders(2)\n"
        "held = infeed.Pipeline(sources.Memory(x=[1, 2]))\n"
        "photos = infeed.Pipeline(sources.Folder(sys.argv[1])).decode()\n"
        "for wrong in (held, photos.python(lambda sample: sample)):\n"
        "    try: wrong.open(workers=feeders)\n"
        "    except infeed.errors.ConfigError as error: print(error)\n"
        "print(ray.is_initialized())\n"
    )

    memory, function, initialized = run(script, classification.path).splitlines()

    assert "memory of this process" in memory
    assert "__main__:<lambda> cannot run on feeders" in function
    assert initialized == "False"
