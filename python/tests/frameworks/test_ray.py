"""infeed.ray.pack on clusters of several nodes, one of which is killed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from buckets import bucket
from requirements import framework_test, require
from running import run

import infeed
from infeed import sources
from infeed import transforms as T

require("ray")
pytestmark = framework_test

# Packs several times on one cluster in processes of this machine. After its first
# shards, a call can be stopped or lose a node that has tasks.
CLUSTER = """
import json, os, sys
os.environ["RAY_DEDUP_LOGS"] = "0"
import ray
from ray.cluster_utils import Cluster
import infeed, infeed.ray
from infeed import sources
from infeed import transforms as T

photos, *calls = sys.argv[1:]
size = dict(object_store_memory=100_000_000, num_cpus=1)
cluster = Cluster(initialize_head=True, head_node_args=size | {"num_cpus": 0})
nodes = [cluster.add_node(**size) for _ in range(3)]
cluster.wait_for_nodes()
ray.init(address=cluster.address, log_to_driver=False)
made = infeed.Pipeline(sources.Folder(photos)).decode()
made = made.transform(T.CenterCrop(24)).batch(4)

def pack(how, out):
    bar, killed = [], []

    def report_progress(at):
        bar.append(at.done)
        shards = at.done - at.reused > 0
        if how == "stopped":
            return not shards
        if how == "killed" and shards and not killed:
            killed.append(nodes.pop())
            cluster.remove_node(killed[0], allow_graceful=False)

    try:
        packed = infeed.ray.pack(
            made, out, to="webdataset", resize_short=64, shard_size=20_000,
            progress=report_progress,
        )
    except infeed.errors.InterruptedPackError as error:
        return dict(stopped=str(error))
    loaded = [batch["label"].tolist() for batch in infeed.Pipeline.load(out)]
    return dict(
        records=packed.records, reused=packed.reused, killed=len(killed), bar=bar,
        labels=sum(loaded, []), path=str(packed.path),
    )

# In one line, because Ray prints others in between.
print(json.dumps([pack(*call.split("=", 1)) for call in calls]))
ray.shutdown()
cluster.shutdown()
"""


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture
def one(classification, tmp_path) -> Path:
    """The dataset that one process writes."""
    made = infeed.Pipeline(sources.Folder(classification.path)).decode()
    made = made.transform(T.CenterCrop(24)).batch(4)
    out = tmp_path / "one"
    infeed.pack(made, out, to="webdataset", resize_short=64, shard_size=20_000)
    return out


@pytest.fixture
def on_cluster(classification):
    """Makes calls of `infeed.ray.pack` on a new cluster and returns their results."""

    def calls(*calls: str, **variables: str) -> list[dict]:
        # Ray takes a while to start, and to report a lost node.
        arguments = (classification.path, *calls)
        printed = run(CLUSTER, *arguments, timeout_s=400, **variables)
        return json.loads(printed.splitlines()[-1])

    return calls


def check_lost(found: dict) -> None:
    """Checks the result of a call that lost a node."""
    assert found["killed"] == 1
    assert (found["records"], found["reused"]) == (30, 0)
    assert found["labels"] == sorted(found["labels"])
    assert found["bar"] == sorted(found["bar"])
    assert found["bar"][-1] == 30


def test_stopped_calls_and_lost_nodes_change_no_byte(on_cluster, one, tmp_path):
    out = tmp_path / "out"
    with bucket() as there:
        stopped, continued, lost = on_cluster(
            f"stopped={out}",
            f"whole={out}",
            "killed=s3://packed/photos",
            **there.variables,
        )

        assert there.below("packed/photos/") == files(one)
    assert "continues from there" in stopped["stopped"]
    assert 0 < continued["reused"] < 30
    assert files(out) == files(one)
    check_lost(lost)
    assert lost["path"] == "s3://packed/photos"


@pytest.mark.long
def test_a_call_that_loses_a_node_writes_the_folder_of_one_process(
    on_cluster, one, tmp_path
):
    (lost,) = on_cluster(f"killed={tmp_path / 'out'}")

    check_lost(lost)
    assert files(tmp_path / "out") == files(one)


@pytest.mark.long
def test_a_stopped_call_is_continued_by_another_cluster(on_cluster, one, tmp_path):
    out = tmp_path / "out"
    (stopped,) = on_cluster(f"stopped={out}")
    assert "continues from there" in stopped["stopped"]

    (continued,) = on_cluster(f"whole={out}")

    assert 0 < continued["reused"] < 30
    assert files(out) == files(one)


def test_data_in_memory_raises_before_ray_starts(tmp_path):
    script = (
        "import sys, infeed, infeed.ray, ray\n"
        "from infeed import sources\n"
        "made = infeed.Pipeline(sources.Memory(x=[1, 2]))\n"
        "for wrong in (dict(), dict(cpus=0), dict(jobs=0), dict(to='folder')):\n"
        "    try: infeed.ray.pack(made, sys.argv[1], **wrong)\n"
        "    except infeed.errors.ConfigError as error: print(error)\n"
        "print(ray.is_initialized())\n"
    )

    reported = run(script, tmp_path / "out").splitlines()

    assert "memory of this process" in reported[0]
    assert "cpus must be" in reported[1]
    assert "jobs must be" in reported[2]
    assert reported[-1] == "False"


def test_without_ray_one_line_names_the_package_to_install(tmp_path):
    # Makes imports of Ray fail.
    script = "import sys\nsys.modules['ray'] = None\nimport infeed\nimport infeed.ray\n"
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )

    assert "ImportError: infeed.ray needs Ray" in ended.stderr.splitlines()[-1]
    assert "pip install 'infeed[ray]'" in ended.stderr
