"""infeed.torch among processes of torch.distributed, with gloo."""

import json
from itertools import chain

import pytest
from requirements import framework_test, require
from running import run

import infeed
from infeed import sources

require("torch")
pytestmark = framework_test

# Each rank takes two steps, saves, takes the rest of its epoch and the next; a new
# loader continues from the checkpoint.
SCRIPT = """
import json, os, sys
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import infeed, infeed.torch
from infeed import sources

folder, world = sys.argv[1], int(sys.argv[2])

def make_loader():
    source = sources.Memory(x=list(range(48)))
    return infeed.torch.Loader(infeed.Pipeline(source).shuffle(seed=5).batch(8))

def main(rank):
    # Before the group exists: the rank is determined later.
    loader = make_loader()
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world
    )
    batches = iter(loader)
    seen = [next(batches)["x"].tolist() for _ in range(2)]
    dcp.save({"loader": loader}, checkpoint_id=f"{folder}/checkpoint")
    for rest in (batches, loader):
        seen += [batch["x"].tolist() for batch in rest]

    again = make_loader()
    dcp.load({"loader": again}, checkpoint_id=f"{folder}/checkpoint")
    resumed = [batch["x"].tolist() for batch in again]
    resumed += [batch["x"].tolist() for batch in again]

    gathered = [None] * world
    dist.all_gather_object(gathered, (seen, resumed, again.state_dict()))
    if rank == 0:
        print(json.dumps(gathered))
    dist.barrier()
    dist.destroy_process_group()
"""

# Calls `main` in a process for each rank, before PyTorch has any thread.
FORKS = """
children = []
for rank in range(world):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            main(rank)
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    children.append(child)
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""

# The first rank compares samples; all ranks decide alike.
COMPARISON = """
import json, os, sys
import torch.distributed as dist
from infeed.adopting.equivalence import Equivalence
from infeed.trainers.loader import Report, samples_differ

folder, world = sys.argv[1], int(sys.argv[2])

def main(rank):
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world
    )
    answers = []
    for problems in ((), ("values differ",)):
        proof = Equivalence(1, False, 0.0, 0.0, problems, ())
        answers.append(samples_differ(Report(proof) if rank == 0 else None))
    gathered = [None] * world
    dist.all_gather_object(gathered, answers)
    if rank == 0:
        print(json.dumps(gathered))
    dist.barrier()
    dist.destroy_process_group()

"""


def together(ranks) -> list[list[int]]:
    """Returns the global batches, from the batches of each rank."""
    return [list(chain(*parts)) for parts in zip(*ranks, strict=True)]


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_see_each_record_once_an_epoch_and_resume_from_a_checkpoint(
    tmp_path, world
):
    source = sources.Memory(x=list(range(48)))
    pipeline = infeed.Pipeline(source).shuffle(seed=5).batch(8)
    whole = [batch["x"].tolist() for _ in range(2) for batch in pipeline]

    ranks = json.loads(run(SCRIPT + FORKS, tmp_path, world, OMP_NUM_THREADS="1"))

    assert together(rank[0] for rank in ranks) == whole
    assert sorted(chain(*whole[:6])) == list(range(48))
    assert together(rank[1] for rank in ranks) == whole[2:]
    states = [rank[2] for rank in ranks]
    assert all(state == states[0] for state in states)

    # Another number of ranks continues with the same global batches.
    again = pipeline.open(rank=0, world_size=1)
    again.load_state_dict(states[0] | {"epoch": 0, "position": 16})
    assert [batch["x"].tolist() for batch in again] == whole[2:6]


def test_all_ranks_follow_the_comparison_of_the_first(tmp_path):
    answers = json.loads(run(COMPARISON + FORKS, tmp_path, 2, OMP_NUM_THREADS="1"))

    assert answers == [[False, True]] * 2
