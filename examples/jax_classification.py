"""Trains a small network on photographs in class folders, with nothing but JAX.

Made-up data to try it with, and the run:

    infeed sample classification photos/train --classes 4
    infeed sample classification photos/val --classes 4 --count 200 --seed 1
    python examples/jax_classification.py --data photos
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp

import infeed
import infeed.jax
from infeed import sources
from infeed import transforms as T

SIDE = 64


def pipeline(folder: Path, *transforms: T.Transform) -> infeed.Pipeline:
    """Bytes are what is copied to the device; it makes floats of them itself."""
    return (
        infeed.Pipeline(sources.Folder(folder))
        .shuffle(seed=0)
        .decode()
        .transform(*transforms)
    )


def parameters(classes: int) -> list[dict[str, jax.Array]]:
    """Three convolutions, each with a scale and a bias, and a last layer."""
    keys = jax.random.split(jax.random.key(0), 4)
    layers = []
    sizes = ((3, 3, 3, 16), (3, 3, 16, 32), (3, 3, 32, 64), (64, classes))
    for key, shape in zip(keys, sizes, strict=True):
        fan_in = jnp.prod(jnp.array(shape[:-1]))
        weight = jax.random.normal(key, shape) * jnp.sqrt(2 / fan_in)
        one, zero = jnp.ones(shape[-1]), jnp.zeros(shape[-1])
        layers.append({"weight": weight, "scale": one, "bias": zero})
    return layers


def scores(layers, images):
    """A number for each class; images are uint8 [N, H, W, 3]."""
    x = images / 127.5 - 1
    for layer in layers[:-1]:
        x = jax.lax.conv_general_dilated(
            x,
            layer["weight"],
            (2, 2),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        # Each image by itself, so that there is no state in addition to the parameters.
        mean = x.mean((1, 2, 3), keepdims=True)
        deviation = x.std((1, 2, 3), keepdims=True)
        x = (x - mean) / (deviation + 1e-3) * layer["scale"] + layer["bias"]
        x = jax.nn.relu(x)
    return x.mean((1, 2)) @ layers[-1]["weight"] + layers[-1]["bias"]


def loss(layers, images, labels):
    """Cross entropy."""
    guesses = jax.nn.log_softmax(scores(layers, images))
    return -jnp.take_along_axis(guesses, labels[:, None], 1).mean()


@jax.jit
def step(layers, velocity, images, labels):
    """One step of gradient descent with momentum."""
    value, gradient = jax.value_and_grad(loss)(layers, images, labels)
    velocity = jax.tree.map(lambda v, g: 0.9 * v - 0.02 * g, velocity, gradient)
    layers = jax.tree.map(jnp.add, layers, velocity)
    return layers, velocity, value


@jax.jit
def hits(layers, images, labels):
    """How many images are guessed right."""
    return (scores(layers, images).argmax(1) == labels).sum()


def main() -> None:
    """Trains, and says how well and how much of the time it waited for data."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default="photos", help="has train and val")
    parser.add_argument("--epochs", type=int, default=8)
    arguments = parser.parse_args()

    folder = arguments.data / "train"
    layers = parameters(classes=sum(entry.is_dir() for entry in folder.iterdir()))
    velocity = jax.tree.map(jnp.zeros_like, layers)
    crops = T.RandomResizedCrop(SIDE, scale=(0.5, 1.0)), T.RandomHorizontalFlip()
    loader = infeed.jax.Loader(pipeline(folder, *crops).batch(32, drop_last=True))
    for epoch in range(arguments.epochs):
        values = []
        for batch in loader:
            layers, velocity, value = step(
                layers, velocity, batch["image"], batch["label"]
            )
            values.append(value)
        print(f"epoch {epoch}: loss {jnp.stack(values).mean():.3f}", flush=True)
    stats = loader.loader.stats()
    print(f"waited for data: {stats['wait_s'] / stats['elapsed_s']:.1%} of the time")

    whole = pipeline(arguments.data / "val", T.Resize((SIDE, SIDE))).batch(50)
    right = sum(
        hits(layers, batch["image"], batch["label"])
        for batch in infeed.jax.Loader(whole)
    )
    count = sum(1 for _ in (arguments.data / "val").rglob("*.jpg"))
    print(f"accuracy: {right / count:.3f}")


if __name__ == "__main__":
    main()
