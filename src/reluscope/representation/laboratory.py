"""A laboratory of random networks: what depth, width, inputs and biases do to a cloud, over many draws.

Weights are independent N(0, 2 / inputs of the layer) (He), biases N(0, bias^2). Every trial has its own child of the
seed, so a row of the table does not depend on which other rows were asked for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reluscope._check import FloatArray, choice, generator, integer, real, seeded
from reluscope._tables import Tabular
from reluscope._text import table
from reluscope.errors import InputError
from reluscope.network import Network
from reluscope.progress import meter
from reluscope.representation.layers import Layers, layers
from reluscope.representation.rays import boundedness

INPUTS = ("normal", "sphere", "uniform")

_WIDEST = 20_000
"""Units in a layer of a growing network, at most."""

COLLAPSED = 1.1
"""A layer whose cloud has a centred stable rank below this is as good as a line."""


def random_network(widths: Sequence[int], *, bias: float = 0.0, rng: Any = None) -> Network:
    """A ReLU network of these widths with He weights and biases N(0, bias^2); the last width is the output's."""
    sizes = [integer(w, f"widths[{i}]", low=1) for i, w in enumerate(widths)]
    if len(sizes) < 2:
        raise InputError(f"widths must hold at least the inputs and the outputs, got {list(widths)}")
    spread = real(bias, "bias", low=0.0)
    draw = generator(rng)
    return Network(
        [
            (draw.normal(size=(m, n)) * math.sqrt(2 / n), spread * draw.normal(size=m))
            for n, m in itertools.pairwise(sizes)
        ]
    )


def random_cloud(
    kind: str, points: int, n: int, *, mean: float = 0.0, scale: float = 1.0, rng: Any = None
) -> FloatArray:
    """`mean + scale x` for `points` draws of x in R^n: standard normal, uniform on the unit sphere or on [-1, 1]^n."""
    choice(kind, "kind", INPUTS)
    draw, shape = generator(rng), (integer(points, "points", low=1), integer(n, "n", low=1))
    if kind == "uniform":
        X = draw.uniform(-1.0, 1.0, shape)
    else:
        X = draw.normal(size=shape)
        if kind == "sphere":
            X /= np.linalg.norm(X, axis=1, keepdims=True)
    return real(mean, "mean") + real(scale, "scale") * X


@dataclass(frozen=True)
class Trial:
    """One random network: how it was made, and its last hidden layer (`all_*`: over all hidden layers).

    `polarised` is the share of units within 0.05 of activity 0 or 1, `stable_on` and `stable_off` the shares of units
    that never switch on the cloud, `collapse` the first hidden layer, from 0, whose centred stable rank is below 1.1
    (None: never). Layer k has `round(width * growth^k)` units, k from 0 for the first hidden layer.
    """

    depth: int
    width: int
    inputs: str
    bias: float
    growth: float
    seed: int
    polarised: float
    all_polarised: float
    stable_on: float
    stable_off: float
    stable_rank: float
    stable_rank_uncentred: float
    participation_ratio: float
    nonzero_eigenvalues: int
    angle: float
    mean_norm: float
    distance_factor: float
    collapse: int | None


@dataclass(frozen=True)
class Sweep(Tabular):
    """The trials of a sweep, as a table; `seed` repeats them."""

    trials: tuple[Trial, ...]
    seed: int | None = None

    def __len__(self) -> int:
        return len(self.trials)

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns by name."""
        return {name: [getattr(t, name) for t in self.trials] for name in Trial.__dataclass_fields__}

    def means(self, *by: str) -> list[dict[str, Any]]:
        """Means over all trials that agree in the columns `by`; `collapse` is the median, None counting as infinite."""
        for name in by:
            choice(name, "by", ("depth", "width", "inputs", "bias", "growth", "seed"))
        groups: dict[tuple[Any, ...], list[Trial]] = {}
        for trial in self.trials:
            groups.setdefault(tuple(getattr(trial, name) for name in by), []).append(trial)
        rows = []
        for key, members in groups.items():
            row: dict[str, Any] = dict(zip(by, key, strict=True)) | {"trials": len(members)}
            for name in _MEASURED:
                row[name] = float(np.mean([getattr(t, name) for t in members]))
            layer = float(np.median([math.inf if t.collapse is None else t.collapse for t in members]))
            row["collapse"] = None if math.isinf(layer) else layer
            rows.append(row)
        return rows

    def __str__(self) -> str:
        return table(self.means("depth", "width"))

    def __repr__(self) -> str:
        return f"Sweep({len(self.trials)} random networks)"


_MEASURED = tuple(Trial.__dataclass_fields__)[6:-1]


def sweep(
    *,
    depths: Sequence[int] = (3, 12, 64),
    widths: Sequence[int] = (15, 30, 60, 100),
    inputs: Sequence[str] = INPUTS,
    biases: Sequence[float] = (0.0, 0.1),
    growths: Sequence[float] = (1.0,),
    seeds: int = 2,
    points: int = 1000,
    rng: Any = None,
    progress: Any = None,
) -> Sweep:
    """Random networks with as many inputs as first-layer units, for every depth, width, input, bias, growth and seed.

    A growth of 1.02 makes each layer 2 % wider than the one before (`layer_widths`); 1 keeps the width. Cost: about
    half a second for 64 layers of 100 units and 1,000 points.
    """
    draws, root_seed = seeded(rng)
    root = int(draws.integers(2**31))
    cases = list(itertools.product(depths, widths, inputs, biases, growths, range(integer(seeds, "seeds", low=1))))
    trials = []
    with meter(progress, "random networks") as report:
        for done, (depth, width, kind, bias, growth, seed) in enumerate(cases):
            sizes = layer_widths(width, depth, growth)
            code: tuple[int, ...] = (depth, width, INPUTS.index(choice(kind, "inputs", INPUTS)), int(1e6 * bias), seed)
            code += () if growth == 1 else (int(1e6 * growth),)
            draw = np.random.default_rng(np.random.SeedSequence(root, spawn_key=code))
            net = random_network([width, *sizes, 1], bias=bias, rng=draw)
            found = measure(net, random_cloud(kind, points, width, rng=draw))
            trials.append(_trial(found, depth, width, kind, bias, growth, seed))
            report(done + 1, f"{done + 1} of {len(cases)}")
    return Sweep(tuple(trials), root_seed)


def layer_widths(first: int, depth: int, growth: float = 1.0) -> list[int]:
    """Widths of `depth` hidden layers: `first`, and from layer to layer `growth` times as many, rounded."""
    start, factor = integer(first, "width", low=1), real(growth, "growth", low=0.0, open_=True)
    sizes = [max(1, round(start * factor**k)) for k in range(integer(depth, "depth", low=1))]
    if max(sizes) > _WIDEST:
        raise InputError(f"growth {growth} makes a layer of {max(sizes):,} units, more than {_WIDEST:,}: lower it")
    return sizes


def measure(net: Network, X: FloatArray, **options: Any) -> Layers:
    """`layers` with what a sweep needs: no Jacobians, few directions and pairs."""
    return layers(net, X, **({"jacobians": 0, "directions": 16, "pairs": 500, "cloud": 200, "rng": 0} | options))


def bounded_shares(widths: Sequence[int], count: int, *, bias: float = 1.0, rng: Any = None) -> FloatArray:
    """Share of `count` random networks whose image is bounded after each hidden layer, decided exactly.

    `widths` are n_0, n_1, ..., n_d; all of n_1 ... n_d are hidden layers. Cost: a few milliseconds per network.
    """
    draw = generator(rng)
    total = np.zeros(len(widths) - 1)
    for _ in range(integer(count, "count", low=1)):
        total += boundedness(random_network([*widths, 1], bias=bias, rng=draw))
    return total / count


def _trial(found: Layers, depth: int, width: int, kind: str, bias: float, growth: float, seed: int) -> Trial:
    last = found.rows[-2]
    units = last.units
    every = np.concatenate([a for a in found.activity if a is not None])
    ranks = found["stable_rank"][1:-1]
    below = np.flatnonzero(ranks < COLLAPSED)
    return Trial(
        depth,
        width,
        kind,
        bias,
        growth,
        seed,
        last.polarised or 0.0,
        float(((every <= 0.05) | (every >= 0.95)).mean()),
        (last.always_on or 0) / units,
        (last.always_off or 0) / units,
        last.stable_rank,
        last.stable_rank_uncentred,
        last.participation_ratio,
        last.nonzero_eigenvalues,
        math.nan if last.angle_mean is None else last.angle_mean,
        last.mean_norm,
        math.nan if last.distance_factor is None else last.distance_factor,
        int(below[0]) if len(below) else None,
    )
