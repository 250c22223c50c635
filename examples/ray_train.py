"""Trains a small network with Ray Train, whose workers are fed by other nodes.

Made-up data to try it with, and the run, on this machine alone or with RAY_ADDRESS on a
cluster whose nodes all see the folders; it needs pip install "infeed[ray]" "ray[train]"
torch. The same command again goes on where the last one stopped:

    infeed sample classification photos/train --classes 4
    infeed sample classification photos/val --classes 4 --count 200 --seed 1
    python examples/ray_train.py --data photos --cpus 4
"""

import argparse
import tempfile
from pathlib import Path

import ray
import ray.train
import torch
from ray.train.torch import TorchTrainer, prepare_model
from torch import nn
from torch.nn.functional import cross_entropy

import infeed
import infeed.ray
import infeed.torch
from infeed import sources
from infeed import transforms as T

SIDE = 64
STATE = "state.pt"


def training(folder: Path, batch: int) -> infeed.Pipeline:
    """Random crops, mirrored or not, in another order each epoch."""
    return (
        infeed.Pipeline(sources.Folder(folder))
        .shuffle(seed=0)
        .decode()
        .transform(
            T.RandomResizedCrop(SIDE, scale=(0.5, 1.0)),
            T.RandomHorizontalFlip(),
            T.Normalize(mean=T.IMAGENET_MEAN, std=T.IMAGENET_STD),
            layout="CHW",
        )
        .batch(batch, drop_last=True)  # over all workers together
    )


def validation(folder: Path) -> infeed.Pipeline:
    """Whole images, each once."""
    return (
        infeed.Pipeline(sources.Folder(folder))
        .decode()
        .transform(
            T.Resize((SIDE, SIDE)),
            T.Normalize(mean=T.IMAGENET_MEAN, std=T.IMAGENET_STD),
            layout="CHW",
        )
        .batch(50)
    )


def network(classes: int) -> nn.Module:
    """Three convolutions and a mean over what is left of the image."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 16), (16, 32), (32, 64)):
        layers += [
            nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        ]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes)
    )


@torch.no_grad()
def accuracy(model: nn.Module, batches) -> float:
    """The share of images whose class is guessed."""
    model.eval()
    hits = [model(images).argmax(1) == labels for images, labels in batches]
    return torch.cat(hits).float().mean().item()


def train(config: dict) -> None:
    """Trains one rank, from the last checkpoint on."""
    rank = ray.train.get_context().get_world_rank()
    torch.manual_seed(0)
    model = prepare_model(network(config["classes"]))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    # The rank is that of torch.distributed. Feeders make its part of each batch, and
    # this worker's cores what feeders have not made in time.
    loader = infeed.torch.Loader(
        training(config["data"] / "train", config["batch"]),
        "tuple",
        workers=config["feeders"],
    )
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            saved = torch.load(Path(folder, STATE))
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        # In the middle of an epoch, maybe; the next loop delivers the rest of it.
        loader.load_state_dict(saved["loader"])
        at = saved["loader"]["position"]
        print(f"rank {rank} goes on in epoch {loader.epoch} after {at} samples")

    def state() -> dict:
        return {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "loader": loader.state_dict(),  # a few hundred bytes
        }

    for epoch in range(loader.epoch, config["epochs"]):
        model.train()
        for step, (images, labels) in enumerate(loader, start=1):
            optimizer.zero_grad()
            loss = cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            if step % config["every"] == 0:
                report(rank, {"epoch": epoch, "loss": loss.item()}, state())

    last, stats = state(), loader.loader.stats()
    metrics = {
        "waited": stats["wait_s"] / stats["elapsed_s"],
        "fed": sum(feeder["batches"] for feeder in stats["feeders"]),
        "batches": stats["batches"],
    }
    loader.close()
    if rank == 0:
        whole = validation(config["data"] / "val")
        held_out = infeed.torch.Loader(whole, "tuple", rank=0, world_size=1)
        metrics["accuracy"] = accuracy(model.module, held_out)
    report(rank, metrics, last)


def report(rank: int, metrics: dict, state: dict) -> None:
    """Reports to Ray. One rank saves the state, which is the same on all ranks."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if rank == 0:
            torch.save(state, Path(folder, STATE))
            checkpoint = ray.train.Checkpoint.from_directory(folder)
        ray.train.report(metrics, checkpoint=checkpoint)


def main() -> None:
    """Trains, and says how well and how much of the time it waited for data."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default="photos", help="has train and val")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=32, help="over all workers")
    parser.add_argument("--every", type=int, default=5, help="steps to a checkpoint")
    parser.add_argument("--workers", type=int, default=2, help="that train")
    parser.add_argument("--feeders", type=int, default=2, help="of one CPU each")
    parser.add_argument("--runs", type=Path, default="runs", help="for checkpoints")
    parser.add_argument("--cpus", type=int, help="that this machine pretends to have")
    arguments = parser.parse_args()

    ray.init(num_cpus=arguments.cpus)
    folder = arguments.data.resolve()
    config = {
        "data": folder,
        "classes": sum(entry.is_dir() for entry in (folder / "train").iterdir()),
        "epochs": arguments.epochs,
        "batch": arguments.batch,
        "every": arguments.every,
    }
    # Started here, so that they outlive a worker that Ray Train restarts.
    with infeed.ray.Feeders(arguments.feeders) as feeders:
        trainer = TorchTrainer(
            train,
            train_loop_config=config | {"feeders": feeders},
            scaling_config=ray.train.ScalingConfig(num_workers=arguments.workers),
            run_config=ray.train.RunConfig(
                name="photos",
                storage_path=str(arguments.runs.resolve()),
                failure_config=ray.train.FailureConfig(max_failures=3),
            ),
        )
        metrics = trainer.fit().metrics
    print(f"made by feeders: {metrics['fed']} of {metrics['batches']} batches")
    print(f"waited for data: {metrics['waited']:.1%} of the time")
    print(f"accuracy: {metrics['accuracy']:.3f}")


if __name__ == "__main__":
    main()
