"""A small network that learns to tell two classes in the plane, a few epochs at a time.

Each data set is a law: a mixture of Gaussians for each class, from which the rows are drawn. So the probability that
the network errs on new rows is known exactly at every moment.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reluscope._check import choice, describe, integer, real
from reluscope.errors import InputError
from reluscope.inputs import GaussianMixture
from reluscope.network import Network
from reluscope.playground.session import Opened

SETS = ("moons", "circles", "xor", "spiral", "blobs")
MOST_LAYERS, MOST_UNITS, MOST_EPOCHS = 4, 16, 200
_ROWS = 400
_MOST_TRAINERS = 4
_MOST_STEPS = 3
_BATCH = 32


def class_laws(name: str, noise: float) -> tuple[GaussianMixture, GaussianMixture]:
    """The laws of the two classes of a data set."""
    t = (np.arange(6) + 0.5) / 6
    if name == "moons":
        a = np.stack([np.cos(np.pi * t), np.sin(np.pi * t)], axis=1)
        centres = [a, np.array([1.0, 0.5]) - a]
    elif name == "circles":
        full = 2 * np.pi * np.arange(8) / 8
        ring = np.stack([np.cos(full), np.sin(full)], axis=1)
        centres = [1.2 * ring, 0.4 * ring[::2]]
    elif name == "xor":
        centres = [np.array([[-1.0, -1.0], [1.0, 1.0]]), np.array([[-1.0, 1.0], [1.0, -1.0]])]
    elif name == "spiral":
        turn = 0.5 + 4.2 * (np.arange(9) + 0.5) / 9
        arm = 0.35 * turn[:, None] * np.stack([np.cos(turn), np.sin(turn)], axis=1)
        centres = [arm, -arm]
    else:
        centres = [np.array([[-0.8, -0.4]]), np.array([[0.8, 0.4]])]
    made = []
    for c in centres:
        k = len(c)
        made.append(GaussianMixture.from_arrays(np.full(k, 1 / k), c, np.tile(noise**2 * np.eye(2), (k, 1, 1))))
    return made[0], made[1]


@dataclass
class Trainer:
    """A data set, a network and how far it has learned."""

    name: str
    hidden: tuple[int, ...]
    rate: float
    noise: float
    seed: int
    key: str = field(default_factory=lambda: secrets.token_hex(6))
    epoch: int = 0
    network: Network | None = None

    def __post_init__(self) -> None:
        self.laws = class_laws(self.name, self.noise)
        parts = [(0.5 * float(w), g) for law in self.laws for w, g in law.gaussians]
        self.law = GaussianMixture([w for w, _ in parts], [g for _, g in parts])
        draws = [law.sample(_ROWS // 2, rng=self.seed + i) for i, law in enumerate(self.laws)]
        self.X = np.concatenate(draws)
        self.code = np.repeat([0, 1], _ROWS // 2)

    def forward(self, epochs: int) -> None:
        """Learn for some epochs; the first call draws the weights, and stays there if `epochs` is 0."""
        from reluscope.local_models._data import Response
        from reluscope.local_models.training import Recipe, train

        response = Response("binary", code=self.code, classes=(0, 1))
        step = max(epochs, 1)
        recipe = Recipe(
            self.hidden, rate=self.rate if epochs else 1e-12, epochs=step, batch=_BATCH, validation_fraction=0.0,
            patience=step, standardise=False,
        )  # fmt: skip
        done = train(self.X, response, recipe, start=self.network, rng=self.seed + self.epoch)
        self.network = done.network
        self.epoch += epochs

    def opened(self) -> Opened:
        """The network as it is now, under a key of its own."""
        net = self.network
        assert net is not None
        layers = ", ".join(f"({layer.dense().tolist()!r}, {layer.bias.tolist()!r})" for layer in net.layers)
        parts = [(float(w), g) for w, g in self.law.gaussians]
        means = [np.asarray(g.mean).tolist() for _, g in parts]
        code = (
            f"net = rs.Network([{layers}])\nmeans = {means!r}\n"
            f"law = rs.GaussianMixture({[w for w, _ in parts]!r}, [rs.Gaussian(m, {self.noise**2!r}) for m in means])"
        )
        shape = "-".join(map(str, net.widths))
        about = f"{shape} network on {_ROWS} rows of {self.name}; the law is the one the rows are drawn from"
        return Opened(
            f"train-{self.key}-{self.epoch}", net, f"training: {self.name}", about, code, self.law, ("y[0] > 0",),
            self.X, "training rows", self.code,
        )  # fmt: skip

    def state(self) -> dict[str, Any]:
        """Where the learning stands: loss and error on the rows, and the exact error under the law."""
        from reluscope.answers.probability import probability

        net = self.network
        assert net is not None
        y = net(self.X)[:, 0]
        sign = np.where(self.code == 1, 1.0, -1.0)
        loss = float(np.logaddexp(0.0, -sign * y).mean())
        wrong = [
            probability(net, law, text, budget="2s", rng=0)
            for law, text in zip(self.laws, ("y[0] > 0", "y[0] <= 0"), strict=True)
        ]
        low, high, value = (0.5 * (getattr(wrong[0], k) + getattr(wrong[1], k)) for k in ("lower", "upper", "value"))
        kinds = [w.guarantee for w in wrong]
        return {
            "trainer": self.key, "epoch": self.epoch, "loss": loss,
            "wrong": float(np.mean((y > 0) != (self.code == 1))),
            "error": {"value": float(value), "lower": float(low), "upper": float(high),
                      "guarantee": "exact" if set(kinds) == {"exact"} else "confidence",
                      "level": None if set(kinds) == {"exact"} else 0.98},
        }  # fmt: skip


class Trainers:
    """The last few trainers and the networks they have made."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Trainer] = OrderedDict()
        self._made: OrderedDict[str, Opened] = OrderedDict()

    def go(self, data: dict[str, Any]) -> tuple[Trainer, Opened]:
        """Begin anew with `settings`, or go on with a `trainer`, for `epochs`."""
        epochs = integer(data.get("epochs", 0), "epochs", low=0, high=MOST_EPOCHS)
        if data.get("trainer"):
            if data["trainer"] not in self._known:
                raise InputError("this training is no longer there; start it again")
            trainer = self._known[data["trainer"]]
            self._known.move_to_end(trainer.key)
        else:
            trainer = _trainer(data.get("settings"))
            self._known[trainer.key] = trainer
            while len(self._known) > _MOST_TRAINERS:
                self._known.popitem(last=False)
        trainer.forward(epochs)
        opened = trainer.opened()
        self._made[opened.key] = opened
        while len(self._made) > _MOST_STEPS * _MOST_TRAINERS:
            self._made.popitem(last=False)
        return trainer, opened

    def find(self, key: str) -> Opened | None:
        """A network by its key, while it is among the last ones."""
        return self._made.get(key)


def _trainer(given: Any) -> Trainer:
    if not isinstance(given, dict):
        raise InputError(f"settings must be an object, got {describe(given)}")
    hidden = given.get("hidden", [8, 8])
    if not isinstance(hidden, list) or not 1 <= len(hidden) <= MOST_LAYERS:
        raise InputError(f"hidden must list 1 to {MOST_LAYERS} widths, got {describe(hidden)}")
    return Trainer(
        choice(given.get("data", "moons"), "data", SETS),
        tuple(integer(h, "hidden", low=1, high=MOST_UNITS) for h in hidden),
        real(given.get("rate", 0.01), "rate", low=1e-6, high=1.0),
        real(given.get("noise", 0.15), "noise", low=0.01, high=1.0),
        integer(given.get("seed", 0), "seed", low=0, high=1_000_000),
    )
