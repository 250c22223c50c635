"""infeed.ray.pack on a cluster of several nodes; one is killed during the run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from buckets import bucket
from installed import framework_test, needed
from running import run

import infeed
from infeed import sources
from infeed import transforms as T

needed("ray")
pytestmark = framework_test

# A cluster in processes of this machine. After the first shards, a node with tasks is
# killed; in another case, the call itself is stopped.
CLUSTER = """
import json, os, sys, threading, time
from pathlib import Path

os.environ["RAY_DEDUP_LOGS"] = "0"
import ray
from ray.cluster_utils import Cluster
import infeed, infeed.ray
from infeed import sources
from infeed import transforms as T

photos, out, how = sys.argv[1:]
size = dict(object_store_memory=100_000_000, num_cpus=1)
cluster = Cluster(initialize_head=True, head_node_args=size | {"num_cpus": 0})
nodes = [cluster.add_node(**size) for _ in range(3 if how == "killed" else 2)]
cluster.wait_for_nodes()
ray.init(address=cluster.address, log_to_driver=False)
made = infeed.Pipeline(sources.Folder(photos)).decode()
made = made.transform(T.CenterCrop(24)).batch(4)
bar, killed = [], []

def reported(at):
    bar.append(at.done)
    shards = at.done - at.reused > 0
    if how == "stopped":
        return not shards
    if how == "killed" and shards and not killed:
        killed.append(nodes[0])
        cluster.remove_node(nodes[0], allow_graceful=False)

try:
    packed = infeed.ray.pack(
        made, out, to="webdataset", resize_short=64, shard_size=20_000,
        progress=reported,
    )
except infeed.InterruptedPackError as error:
    print(json.dumps(dict(stopped=str(error))))
else:
    loaded = [batch["label"].tolist() for batch in infeed.Pipeline.load(out)]
    print(json.dumps(dict(
        records=packed.records, reused=packed.reused, killed=len(killed), bar=bar,
        labels=sum(loaded, []), path=str(packed.path),
    )))
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


def on_cluster(*arguments: object) -> dict:
    # Ray takes a while to start, and to report a lost node.
    return json.loads(run(CLUSTER, *arguments, timeout_s=400).splitlines()[-1])


def test_a_cluster_that_loses_a_node_writes_the_bytes_of_one_process(
    classification, one, tmp_path
):
    found = on_cluster(classification.path, tmp_path / "out", "killed")

    assert found["killed"] == 1
    assert (found["records"], found["reused"]) == (30, 0)
    assert files(tmp_path / "out") == files(one)
    assert found["labels"] == sorted(found["labels"])
    assert found["bar"] == sorted(found["bar"])
    assert found["bar"][-1] == 30


def test_a_stopped_call_is_continued_by_another_cluster(classification, one, tmp_path):
    stopped = on_cluster(classification.path, tmp_path / "out", "stopped")
    assert "continues from there" in stopped["stopped"]

    found = on_cluster(classification.path, tmp_path / "out", "whole")

    assert 0 < found["reused"] < 30
    assert files(tmp_path / "out") == files(one)


def test_a_cluster_that_loses_a_node_packs_into_a_bucket_the_bytes_of_a_folder(
    classification, one
):
    with bucket() as there:
        ended = run(
            CLUSTER,
            classification.path,
            "s3://packed/photos",
            "killed",
            timeout_s=400,
            **there.variables,
        )
        found = json.loads(ended.splitlines()[-1])

        assert found["killed"] == 1
        assert (found["records"], found["reused"]) == (30, 0)
        assert there.below("packed/photos/") == files(one)
        assert found["labels"] == sorted(found["labels"])
        assert found["path"] == "s3://packed/photos"


def test_data_in_memory_raises_before_ray_starts(tmp_path):
    script = (
        "import sys, infeed, infeed.ray, ray\n"
        "from infeed import sources\n"
        "made = infeed.Pipeline(sources.Memory(x=[1, 2]))\n"
        "for wrong in (dict(), dict(cpus=0), dict(jobs=0), dict(to='folder')):\n"
        "    try: infeed.ray.pack(made, sys.argv[1], **wrong)\n"
        "    except infeed.ConfigError as error: print(error)\n"
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
