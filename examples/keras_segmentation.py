"""Trains a small network to tell twelve classes of street scenes apart, pixel by pixel.

Made-up data of CamVid's form to try it with, and the run:

    infeed sample segmentation streets
    KERAS_BACKEND=tensorflow python examples/keras_segmentation.py --data streets

CamVid itself: folders `images` and `masks` of equal names, and `class_dict.csv`.
"""

import argparse
import time
from pathlib import Path

import keras
from keras import layers

import infeed
import infeed.keras
from infeed import sources
from infeed import transforms as T

SIDE, BATCH = 512, 3


def training(folder: Path) -> infeed.Pipeline:
    """Image and mask cut at the same place; colours become one channel a class."""
    return (
        infeed.Pipeline(sources.Pairs(image=folder / "images", mask=folder / "masks"))
        .shuffle(seed=0)
        .decode()
        .transform(
            T.Crop(SIDE, SIDE, at="top_left"),
            T.ToFloat("image"),
            T.OneHot("mask", palette=folder / "class_dict.csv"),
        )
        .batch(BATCH, drop_last=True)
    )


def network(classes: int) -> keras.Model:
    """Works at an eighth of the size, and looks wider from layer to layer."""
    image = keras.Input((SIDE, SIDE, 3))
    x = layers.AveragePooling2D(2)(image)
    for filters in (16, 32):
        x = layers.Conv2D(filters, 3, strides=2, padding="same", use_bias=False)(x)
        x = layers.BatchNormalization()(x)
        x = layers.ReLU()(x)
    for dilation in (1, 2, 4):
        y = layers.Conv2D(32, 3, padding="same", dilation_rate=dilation)(x)
        x = layers.Add()([x, layers.ReLU()(y)])
    x = layers.Conv2D(classes, 1)(x)
    x = layers.UpSampling2D(8, interpolation="bilinear")(x)
    return keras.Model(image, layers.Softmax()(x))


class Clock(keras.callbacks.Callback):
    """The time that epochs take, from the first to the last."""

    def on_train_begin(self, logs=None):
        """Starts it."""
        self.began = time.perf_counter()

    def on_train_end(self, logs=None):
        """Stops it."""
        self.seconds = time.perf_counter() - self.began


def main() -> None:
    """Trains, and says how well and how much of the time it waited for data."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default="streets")
    parser.add_argument("--epochs", type=int, default=4)
    arguments = parser.parse_args()

    keras.utils.set_random_seed(0)
    palette = (arguments.data / "class_dict.csv").read_text().splitlines()
    model = network(classes=len(palette) - 1)
    model.compile(
        keras.optimizers.Adam(1e-2),
        loss="categorical_crossentropy",
        metrics=["accuracy"],
    )
    data = infeed.keras.Dataset(training(arguments.data))
    clock = Clock()
    history = model.fit(data, epochs=arguments.epochs, verbose=2, callbacks=[clock])

    waited = data.loader.stats()["wait_s"]
    print(f"waited for data: {waited / clock.seconds:.1%} of the time")
    print(f"pixel accuracy: {history.history['accuracy'][-1]:.3f}")


if __name__ == "__main__":
    main()
