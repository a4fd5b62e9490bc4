"""Images for the published experiments: MNIST and its kin from a folder or from OpenML, digits for quick runs."""

from __future__ import annotations

import gzip
import os
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope._extras import require
from reluscope._files import open_regular
from reluscope.errors import InputError
from reluscope.limits import DEFAULT_LIMITS
from reluscope.network import Network

SETS = {"mnist": "mnist_784", "fashion_mnist": "Fashion-MNIST"}
"""Folder and OpenML name of each set."""

_LARGEST_FILE = 1 << 26


@dataclass(frozen=True, eq=False)
class Images:
    """Images as rows of numbers between 0 and 1, with labels 0 to 9; the training part first."""

    name: str
    train: FloatArray
    train_label: npt.NDArray[np.int64]
    test: FloatArray
    test_label: npt.NDArray[np.int64]


def images(name: str) -> Images:
    """One of `SETS`.

    From the folder named by the environment variable RELUSCOPE_DATA, which holds `<set>/train-images-idx3-ubyte.gz` and
    the three files that go with it; else by scikit-learn from OpenML, which keeps a copy.
    """
    folder = os.environ.get("RELUSCOPE_DATA")
    if folder:
        return _from_folder(Path(folder) / name, name)
    require("sklearn", "sklearn")
    from sklearn.datasets import fetch_openml

    try:
        X, y = fetch_openml(SETS[name], version=1, as_frame=False, return_X_y=True)
    except OSError as error:
        raise InputError(
            f"{name} could not be fetched from OpenML ({error}); set RELUSCOPE_DATA to a folder with "
            f"{name}/train-images-idx3-ubyte.gz and the other three files, or run it with quick=True"
        ) from error
    X, label = np.asarray(X, float) / 255.0, np.asarray(y).astype(np.int64)
    return Images(name, X[:60_000], label[:60_000], X[60_000:], label[60_000:])


def digits() -> Images:
    """The 1,797 digits of 8 x 8 pixels that come with scikit-learn, every third one for testing."""
    require("sklearn", "sklearn")
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    X, label = X / 16.0, y.astype(np.int64)
    test = np.arange(len(X)) % 3 == 0
    return Images("digits", X[~test], label[~test], X[test], label[test])


def classifier(
    data: Images, widths: tuple[int, ...], seed: int, *, epochs: int = 10, batch: int = 128
) -> tuple[Network, float]:
    """A ReLU network trained by scikit-learn (Adam, step 1e-3) as the paper does, and its accuracy on the test part."""
    require("sklearn", "sklearn")
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    from reluscope.formats import load
    from reluscope.threads import blas_threads

    model: Any = MLPClassifier(widths, learning_rate_init=1e-3, batch_size=batch, max_iter=epochs, random_state=seed)
    with warnings.catch_warnings(), blas_threads(max(widths)):
        warnings.simplefilter("ignore", ConvergenceWarning)  # so many epochs are the recipe
        model.fit(data.train, data.train_label)
    net = load(model)
    right = net(data.test).argmax(axis=1) == data.test_label
    return net, float(right.mean())


def _from_folder(folder: Path, name: str) -> Images:
    parts: list[Any] = []
    for part in ("train", "t10k"):
        pixels = _idx(folder / f"{part}-images-idx3-ubyte.gz", 3)
        parts += [pixels.reshape(len(pixels), -1) / 255.0, _idx(folder / f"{part}-labels-idx1-ubyte.gz", 1)]
    X, y, test, test_label = parts
    return Images(name, X, y.astype(np.int64), test, test_label.astype(np.int64))


def _idx(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    """An array in the idx format: two zero bytes, type 8 (bytes), number of axes, their lengths, the bytes."""
    try:
        with open_regular(path, DEFAULT_LIMITS) as (packed, _), gzip.GzipFile(fileobj=packed) as file:
            raw = file.read(_LARGEST_FILE + 1)
    except (InputError, EOFError, zlib.error) as error:
        raise InputError(f"{path} could not be read: {error}; RELUSCOPE_DATA should name the data folder") from error
    head = 4 + 4 * dimensions
    shape = tuple(int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions))
    if raw[:4] != bytes([0, 0, 8, dimensions]) or len(raw) != head + int(np.prod(shape)):
        raise InputError(f"{path} is not an idx file of bytes with {dimensions} axes")
    return np.frombuffer(raw, np.uint8, offset=head).reshape(shape)
