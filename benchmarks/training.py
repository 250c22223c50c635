#!/usr/bin/env python3
"""Trains one recipe with its own DataLoader and with the pipeline that replaces it.

The recipes are torchvision's for classification, detection and segmentation, with
small networks on the CPU, for a fixed number of steps. Both loaders run with every
seed, in turn. The table has the score over the seeds, steps per second, and the share
of the time that the loop waited. Needs torch and torchvision:

    python training.py classification /tmp/photos --seeds 5 --steps 300
    python training.py detection /tmp/scenes --size 128 --batch 16 --steps 500
    python training.py segmentation /tmp/masks --size 96 --batch 16 --steps 200

The folder is made if it does not exist: photographs by `infeed sample classification`,
and scenes of circles, rectangles and triangles by this program.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import torch

import infeed
import infeed.torch
from training_recipes import RECIPES, Recipe

LOADERS = ("DataLoader", "infeed")
# 97.5 % quantiles of Student's t distribution with 1, 2, ... degrees of freedom.
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20)


@dataclass(frozen=True)
class Run:
    """One training.

    Attributes:
        score: The recipe's measure on the images that are held out, 0 to 1.
        steps_per_s: Steps per second after the first batch.
        waited: Share of that time in which the loop waited for a batch.
        losses: For each epoch, the seconds from the beginning of the training to its
            end, and its mean loss. Empty if they were not recorded.
    """

    score: float
    steps_per_s: float
    waited: float
    losses: Sequence[tuple[float, float]] = field(default=(), repr=False)


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", choices=RECIPES)
    parser.add_argument("folder", type=Path, help="folder of the images")
    parser.add_argument("--count", type=int, default=1500, help="images to generate")
    parser.add_argument("--classes", type=int, default=10, help="of photographs")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=64, help="side of an image in px")
    parser.add_argument("--workers", type=int, default=2, help="of the DataLoader")
    parser.add_argument("--infeed", default="infeed", help="the command")
    parser.add_argument("--threads", type=int, default=1, help="of the network")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    recipe = RECIPES[options.recipe](options)
    adopted = infeed.adopt(recipe.loader, seconds=None)
    print(f"proof: {adopted.equivalence}", flush=True)
    runs: dict[str, list[Run]] = {name: [] for name in LOADERS}
    for seed in range(options.seeds):
        # The order changes from seed to seed, so that neither is always first.
        for name in LOADERS if seed % 2 else LOADERS[::-1]:
            torch.manual_seed(seed)
            if name == "infeed":
                loader: Any = infeed.torch.Loader(
                    adopted.pipeline.shuffle(seed=seed), adopted.batch_type
                )
            else:
                loader = RECIPES[options.recipe](options).loader
            run = train(recipe, loader, options.steps)
            runs[name].append(run)
            print(f"seed {seed}, {name}: {run}", flush=True)
            if name == "infeed":
                loader.close()
    print(table(runs, recipe.measure))
    return 0


def train(recipe: Recipe, loader: Iterable[Any], steps: int) -> Run:
    """Trains a new network for a number of steps."""
    model = recipe.network().train()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.rate, total_steps=steps
    )
    batches = endless(loader)
    begun, waited_s = 0.0, 0.0
    for step in range(steps):
        requested_at = time.perf_counter()
        batch = next(batches)
        if step:
            waited_s += time.perf_counter() - requested_at
        else:
            begun = time.perf_counter()
        loss = recipe.loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    spent_s = time.perf_counter() - begun
    batches.close()
    model.eval()
    with torch.no_grad():
        score = recipe.score(model, recipe.held_out)
    return Run(score, steps / spent_s, waited_s / spent_s)


def endless(loader: Iterable[Any]) -> Iterator[Any]:
    """Yields batches of epoch after epoch."""
    while True:
        yield from loader


def table(runs: dict[str, list[Run]], measure: str) -> str:
    """Returns the table in Markdown, and the differences of runs with equal seeds.

    The score has its mean, its standard deviation, and the standard error of the mean.
    """
    lines = [
        f"| loader | {measure} | standard error | steps/s | waiting |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, of_loader in runs.items():
        scores = [run.score for run in of_loader]
        rates = [run.steps_per_s for run in of_loader]
        waits = [run.waited for run in of_loader]
        spread = stdev(scores) if len(scores) > 1 else 0.0
        lines.append(
            f"| {name} | {mean(scores):.1%} ± {spread:.1%} | "
            f"{spread / len(scores) ** 0.5:.1%} | {mean(rates):.1f} "
            f"[{min(rates):.1f}-{max(rates):.1f}] | {mean(waits):.0%} |"
        )
    pairs = list(zip(*runs.values(), strict=True))
    apart = [ours.score - theirs.score for theirs, ours in pairs]
    ratios = [ours.steps_per_s / theirs.steps_per_s for theirs, ours in pairs]
    lines += ["", f"Ratio of steps/s in turns next to each other: {spread_of(ratios)}"]
    if 1 < len(apart) <= len(STUDENT) + 1:
        error = stdev(apart) / len(apart) ** 0.5
        half = STUDENT[len(apart) - 2] * error
        lines.append(
            f"Difference of {measure}, infeed - DataLoader: {mean(apart):+.1%} with a "
            f"standard error of {error:.1%}, and a 95 % interval from "
            f"{mean(apart) - half:+.1%} to {mean(apart) + half:+.1%}"
        )
    if all(run.losses for pair in pairs for run in pair):
        times = [times_to_same_loss(*pair) for pair in pairs]
        shown = ", ".join(f"{a:.0f} s and {b:.0f} s" for a, b in times)
        lines += [
            f"Time to the same loss, DataLoader and infeed: {shown}",
            f"Ratio of these times: {spread_of([a / b for a, b in times])}",
        ]
    return "\n".join(lines)


def spread_of(ratios: Sequence[float]) -> str:
    """Returns the median, the lowest and the highest ratio."""
    return f"{median(ratios):.2f} [{min(ratios):.2f}-{max(ratios):.2f}]"


def times_to_same_loss(*runs: Run) -> list[float]:
    """Returns the seconds of each run to the lowest loss that all of them reach."""
    target = max(min(loss for _, loss in run.losses) for run in runs)
    return [next(at for at, loss in run.losses if loss <= target) for run in runs]


if __name__ == "__main__":
    sys.exit(main())
