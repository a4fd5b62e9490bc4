"""Random checks of geometry and of what is said about regions: lists, volumes, bounds, distances, nearest changes.

References are evaluations of the network itself at points of a box or of a law: every point lies in a region whose
linear model gives its outputs, no point may pass a bound, shares of draws must agree with masses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import reluscope as rs
from campaign.problems import network
from campaign.references import DRAWS, asked, doubt

POINTS = 4_000
STYLES = ("integer", "decimal", "random", "degenerate", "integer", "random", "scaled", "tiny", "extreme")


def _scene(rng: np.random.Generator, most_inputs: int) -> tuple[Any, Any, Any, Any, float]:
    """A network, a box, points of it, the outputs there, and how much rounding may change them."""
    n = int(rng.integers(1, most_inputs + 1))
    net = network(rng, str(rng.choice(STYLES)), n)
    lower, upper = -rng.integers(1, 4, n).astype(float), rng.integers(1, 4, n).astype(float)
    X = rng.uniform(lower, upper, (POINTS, n))
    with np.errstate(over="ignore", invalid="ignore"):
        Y = net(X)
    return net, (lower, upper), X, Y, 1e-9 * (1.0 + float(np.abs(Y).max()))


def _listed(rng: np.random.Generator, counts: Counter[str]) -> Iterator[str]:
    """Regions: volumes, linear models, the complex's Euler number, a line through them."""
    net, box, X, Y, small = _scene(rng, 3)
    whole = float(np.prod(box[1] - box[0]))
    found = asked(counts, lambda: rs.regions(net, box))
    if found is None or not found.complete:
        return
    volume = found.volume
    if abs(float(volume.sum()) - whole) > 1e-9 * whole:
        yield f"{net!r} on {box}: volumes sum to {volume.sum()!r}, the box has {whole}"
    if len(np.unique(found.pattern, axis=0)) != len(found):
        yield f"{net!r} on {box}: a pattern is listed twice"
    at = found.find(X)
    X, Y, at = X[at >= 0], Y[at >= 0], at[at >= 0]
    away = np.abs(np.einsum("noi,ni->no", found.C[at], X) + found.d[at] - Y).max(initial=0.0)
    if away > small:
        yield f"{net!r} on {box}: linear models are off by {away}"
    share, mass = np.bincount(at, minlength=len(found)) / POINTS, volume / whole
    off = [
        i for i, (s, m) in enumerate(zip(share.tolist(), mass.tolist(), strict=True)) if abs(s - m) > doubt(m, POINTS)
    ]
    if off:
        yield f"{net!r} on {box}: shares {share[off]} of points in volumes {mass[off]}"
    faces = asked(counts, lambda: rs.polyhedral_complex(net, box))
    if faces is not None and faces.euler != 1:
        yield f"{net!r} on {box}: Euler number {faces.euler}"
    if len(X) > 1:
        line = rs.along(net, X[0], X[1])
        t = rng.random(50)
        away = np.abs(line.at(t, 0) - net(X[0] + t[:, None] * (X[1] - X[0]))).max()
        if away > small:
            yield f"{net!r} from {X[0]} to {X[1]}: off by {away}"


def _bounded(rng: np.random.Generator, counts: Counter[str]) -> Iterator[str]:
    """Largest slopes and norms, sets of values, units that never switch: no point may pass them."""
    net, box, X, Y, small = _scene(rng, 3)
    steep = asked(counts, lambda: rs.lipschitz(net, box))
    if steep is None:
        return
    i, j = rng.integers(POINTS, size=(2, POINTS))
    apart = np.linalg.norm(X[i] - X[j], axis=1)
    i, j, apart = i[apart > 1e-6], j[apart > 1e-6], apart[apart > 1e-6]
    slope = float(((np.linalg.norm(Y[i] - Y[j], axis=1) - 1e-5 * small) / apart).max())  # less what rounding adds
    local = float(np.linalg.norm(net.jacobian(X), ord=2, axis=(1, 2)).max())
    if steep.upper < max(slope, local) * (1 - 1e-9) - 1e-300:
        yield f"{net!r} on {box}: Lipschitz constant {steep!r}, slopes {slope} and {local}"
    r = float(rng.integers(1, 4))
    Z = rng.normal(size=X.shape)
    Z *= (r * rng.random(POINTS) ** (1 / net.n_inputs) / np.linalg.norm(Z, axis=1))[:, None]
    for name, call, values in (
        (f"on {box}", lambda: rs.sup_norm(net, box), Y),
        (f"in a ball of {r}", lambda: rs.sup_norm(net, radius=r), net(Z)),
    ):  # fmt: skip
        top, most = asked(counts, call), float(np.linalg.norm(values, axis=1).max())
        if top is not None and top.upper < most * (1 - 1e-12) - 1e-5 * small:
            yield f"{net!r} {name}: largest norm {top!r}, seen {most}"
    images = asked(counts, lambda: rs.reachable(net, box)) if net.n_inputs < 3 else None
    if images is not None:
        last = images[-1]
        if (last.lower > Y.min(axis=0) + small).any() or (last.upper < Y.max(axis=0) - small).any():
            yield f"{net!r} on {box}: values reach beyond [{last.lower}, {last.upper}]"
        if not np.all(last.contains(Y[:200])):
            yield f"{net!r} on {box}: a value is in no image"
    state = rs.layers(net, X[:50], box=box, rng=0).stability
    on = net.pattern(X) > 0
    for k, units in enumerate(state.state):
        here = on[:, net.offsets[k] : net.offsets[k + 1]]
        if here[:, units == -1].any() or not here[:, units == 1].all():
            yield f"{net!r} on {box}: a unit of layer {k} is not always {units}"


def _distances(rng: np.random.Generator, counts: Counter[str]) -> Iterator[str]:
    """Two networks: distances in all norms, whether they are one function."""
    net, box, X, Y, small = _scene(rng, 3)
    other = network(rng, str(rng.choice(STYLES)), net.n_inputs)
    if other.n_outputs != net.n_outputs:
        other = net.select_outputs([0] * net.n_outputs)
    with np.errstate(over="ignore", invalid="ignore"):
        gap = np.abs(Y - other(X))
    if not gap.max() < 1e100:
        return
    whole = float(np.prod(box[1] - box[0]))
    for p in (1, 2, np.inf):
        for norm, size in (("p", np.linalg.norm(gap, ord=p, axis=1)), ("euclidean", np.linalg.norm(gap, axis=1))):
            found = asked(counts, lambda p=p, norm=norm: rs.distance(net, other, box, p, norm=norm))
            if found is None:
                continue
            if p == np.inf:
                wrong = found.upper < size.max() * (1 - 1e-12)
            else:
                mean, error = (
                    (size**p).mean(),
                    6 * (size**p).std() / np.sqrt(POINTS) + small + 20 / POINTS * (size**p).max(),
                )
                wrong = not found.lower**p - whole * error <= whole * mean <= found.upper**p + whole * error
            if wrong:
                yield f"{net!r} and {other!r} on {box}: L{p} distance ({norm}) {found!r}, at points {size.max()}"
    same = asked(counts, lambda: rs.equivalent(net, other, box))
    if same is not None and same.equal and gap.max() > 1e-9:
        yield f"{net!r} and {other!r} on {box} are equivalent, and differ by {gap.max()}"
    same = asked(counts, lambda: rs.equivalent(net, net, box))
    if same is not None and same.equal is False:
        yield f"{net!r} on {box} is not equivalent to itself"


def _changed(rng: np.random.Generator, counts: Counter[str]) -> Iterator[str]:
    """Inputs drawn again, the most probable patterns, slopes, two laws: shares of draws."""
    net, _, _, _, _ = _scene(rng, 4)
    n = net.n_inputs
    law = rs.Gaussian(np.zeros(n)) if rng.random() < 0.5 else rs.Uniform(np.full(n, -2.0), np.full(n, 1.5))
    X, again = (law.sample(DRAWS, int(rng.integers(2**31))) for _ in range(2))
    one = int(rng.integers(n))
    moved = X.copy()
    moved[:, one] = again[:, one]
    pattern = net.pattern(X)
    share = float((pattern != net.pattern(moved)).any(axis=1).mean())
    found = asked(counts, lambda: rs.change(net, law, [one], decision=False, rng=1, level=1 - 1e-9))
    if found is not None:
        a = found.pattern
        if not a.lower - doubt(share, DRAWS) <= share <= a.upper + doubt(share, DRAWS):
            yield f"{net!r} under {law!r}, input {one} drawn again: {a!r}, draws {share}"
    likely = asked(counts, lambda: rs.probable(net, law, mass=0.9, rng=1, level=1 - 1e-9))
    if likely is not None:
        keys, seen = np.unique(net.key(pattern), return_counts=True)
        shares = dict(zip(keys.tolist(), (seen / DRAWS).tolist(), strict=True))
        for key, low, high in zip(
            net.key(likely.pattern).tolist(), likely.mass.lower.tolist(), likely.mass.upper.tolist(), strict=True
        ):
            share = shares.get(key, 0.0)
            if not low - doubt(share, DRAWS) <= share <= high + doubt(share, DRAWS):
                yield f"{net!r} under {law!r}: a pattern has [{low}, {high}], draws {share}"
    with np.errstate(over="ignore", invalid="ignore"):
        J = net.jacobian(X)
    if not np.abs(J).max() < 1e100:
        return
    slopes = np.linalg.norm(J, ord=2, axis=(1, 2))
    t = float(np.median(slopes))
    low, high = float((slopes < t * (1 - 1e-9) - 1e-300).mean()), float((slopes <= t * (1 + 1e-9) + 1e-300).mean())
    spread = asked(counts, lambda: rs.spectrum(net, law, rng=1, level=1 - 1e-9))
    if spread is not None:
        a = spread.cdf(t)
        if a.lower - doubt(high, DRAWS) > high or a.upper + doubt(low, DRAWS) < low:
            yield f"{net!r} under {law!r}: slopes up to {t!r} {a!r}, draws [{low}, {high}]"


def _nearest(rng: np.random.Generator, counts: Counter[str]) -> Iterator[str]:
    """Nearest changes of a decision: they change it, and no point nearer than their bound does."""
    net, _, _, _, _ = _scene(rng, 4)
    X = rng.normal(size=(2, net.n_inputs))
    cut = float(np.round(np.quantile(net(rng.normal(size=(400, net.n_inputs)))[:, 0], 0.7), 2))
    alone = net.n_outputs == 1

    def decided(Z: Any) -> Any:
        y = net(Z)
        return (y[:, 0] > cut).astype(int) if alone else y.argmax(axis=1)

    options = {"cutoff": cut} if alone else {}
    found = asked(counts, lambda: rs.counterfactuals(net, X, norm="l1", budget="1s", **options))
    if found is None:
        return
    scale = np.array(list(found.scale.values()))
    for x, (first, *_) in zip(X, found.by_row, strict=True):
        own = decided(x[None])[0]
        if first.x is not None and decided(first.x[None])[0] == own:
            yield f"{net!r} at {x}: {first!r} leaves the decision as it is"
        Z = np.concatenate([x + s * rng.normal(size=(POINTS, len(x))) * scale for s in (0.03, 0.3, 1.0, 3.0)])
        away = (np.abs(Z - x) / scale).sum(axis=1)[decided(Z) != own]
        # Values on the limit up to rounding are on either side of it.
        if len(away) and away.min() < first.lower * (1 - 1e-6) - 1e-9:
            yield f"{net!r} at {x}: {first!r}, a point at {away.min()} has another decision"


GEOMETRY: dict[str, Callable[[np.random.Generator, Counter[str]], Iterator[str]]] = {
    "regions": _listed,
    "bounds": _bounded,
    "distances": _distances,
    "changes": _changed,
    "nearest": _nearest,
}
