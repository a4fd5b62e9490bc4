"""Random problems: a network, a law and an event, each as the library takes it and as the reference reads it.

Everything follows from one number, the seed. Networks are small (the reference works in fractions) and unpleasant on
purpose: whole-number and decimal weights, dead, duplicate and opposite units, layers scaled by powers of ten, extreme
scales, all activations, skips. Laws have atoms, zero variances, far boxes and tails. Events are strict or not, tie,
sit on atoms and on the values of dead regions, speak of units and of the Jacobian, and nest.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

import reluscope as rs
from campaign.truth import Axis, Share, Vector
from reluscope import activations

STYLES = ("integer", "decimal", "random", "degenerate", "scaled", "tiny", "extreme")
LAWS = ("gaussian", "line", "uniform", "truncated", "particles", "mixture", "many")


@dataclass(frozen=True, eq=False)
class Problem:
    """One problem. `shares` is None where the reference is a long draw."""

    seed: int
    style: str
    kind: str
    net: rs.Network
    law: Any
    shares: tuple[Share, ...] | None
    formula: Any
    text: str

    def __repr__(self) -> str:
        return f"problem {self.seed} ({self.style}, {self.kind}, {self.net!r}, {self.law!r}): {self.text}"


def problem(seed: int) -> Problem:
    """The problem with this number."""
    rng = np.random.default_rng([seed, 17])
    style = str(rng.choice(STYLES, p=[0.22, 0.16, 0.14, 0.18, 0.12, 0.06, 0.12]))
    kind = str(rng.choice(LAWS, p=[0.2, 0.08, 0.2, 0.14, 0.13, 0.17, 0.08]))
    n = int(rng.choice([1, 2, 3], p=[0.45, 0.4, 0.15])) if kind != "many" else int(rng.integers(3, 5))
    net = network(rng, style, n)
    law, shares = _law(rng, kind, n, style)
    formula = _formula(rng, net, shares, law)
    return Problem(seed, style, kind, net, law, shares, formula, text_of(formula))


# -- networks --------------------------------------------------------------------------------------------------------


def network(rng: np.random.Generator, style: str, n: int) -> rs.Network:
    depth = int(rng.choice([1, 2, 3], p=[0.45, 0.4, 0.15]))
    widths = [
        n,
        *(int(w) for w in rng.integers(1, 5 if depth < 3 else 4, depth)),
        int(rng.choice([1, 2, 3], p=[0.5, 0.3, 0.2])),
    ]
    layers: list[Any] = []
    skip = rng.random() < 0.15
    for inn, out in itertools.pairwise(widths):
        W, b = _weights(rng, style, out, inn)
        layers.append([W, b])
    for k, layer in enumerate(layers[:-1]):
        kinds = [_activation(rng, style) for _ in range(len(layer[1]))] if rng.random() < 0.25 else None
        each = kinds or [_activation(rng, style)] * len(layer[1])
        if skip:  # one unit carries a value past the layer
            each = [*each[:-1], activations.identity()]
        layers[k] = (*layer, each)
    layers[-1] = tuple(layers[-1])
    return rs.Network(layers)


def _weights(rng: np.random.Generator, style: str, out: int, inn: int) -> tuple[Any, Any]:
    if style in ("integer", "degenerate"):
        W, b = rng.integers(-2, 3, (out, inn)).astype(float), rng.integers(-2, 3, out).astype(float)
    elif style == "decimal":
        W, b = rng.integers(-12, 13, (out, inn)) / 10, rng.integers(-12, 13, out) / 10
    else:
        W, b = rng.normal(size=(out, inn)), 0.5 * rng.normal(size=out)
    if style == "degenerate":
        for i in range(1, out):
            what = rng.integers(5)
            if what == 0:
                W[i], b[i] = W[0], b[0]
            elif what == 1:
                W[i], b[i] = -W[0], -b[0]
            elif what == 2:
                W[i] = 0.0
            elif what == 3:
                W[i] = W[0]
    power = {"scaled": 6, "tiny": 0, "extreme": 0}.get(style)
    if style == "scaled":
        scale = 10.0 ** rng.integers(-power, power + 1, out)
        W, b = W * scale[:, None], b * scale
        if rng.random() < 0.5:
            W = W * 10.0 ** rng.integers(-3, 4, inn)
    elif style == "tiny":
        scale = 10.0 ** rng.integers(-12, -3)
        W, b = W * scale, b * scale * 10.0 ** rng.integers(-4, 5)
    elif style == "extreme":
        scale = 10.0 ** float(rng.choice([-160, -100, -40, 40, 100, 160]))
        W = W * scale
        b = b * (scale if rng.random() < 0.7 else 1.0)
    return W, b


def _activation(rng: np.random.Generator, style: str) -> Any:
    makers = [
        activations.relu, activations.relu, activations.relu, activations.relu,
        lambda: activations.leaky_relu(0.25), lambda: activations.leaky_relu(0.1), activations.relu6,
        activations.hardtanh, activations.hard_sigmoid, activations.absolute,
        lambda: activations.piecewise([-1.0, 0.5, 1.0], [0.0, 1.0, -0.5, 2.0]), activations.identity,
    ]  # fmt: skip
    return makers[int(rng.integers(len(makers)))]()


# -- laws ------------------------------------------------------------------------------------------------------------


def _fraction(value: Any) -> Vector:
    return tuple(Fraction(float(v)) for v in value)


def _unit(i: int, n: int, size: Fraction = Fraction(1)) -> Vector:
    return tuple(size if j == i else Fraction(0) for j in range(n))


def _mean(rng: np.random.Generator, n: int) -> Any:
    kind = rng.integers(4)
    if kind == 0:
        return np.zeros(n)
    if kind == 1:
        return rng.integers(-2, 3, n).astype(float)
    if kind == 2:
        return rng.integers(-20, 21, n) / 10
    return rng.normal(size=n) * (1.0 if rng.random() < 0.9 else 1e3)


def _sd(rng: np.random.Generator, n: int, free: int) -> Any:
    """Standard deviations whose squares are floats, zero for all but `free` inputs."""
    sd = rng.choice([0.25, 0.5, 1.0, 2.0, 1.5, 0.75, 3.0, 2.0**-10], n)
    sd[rng.permutation(n)[free:]] = 0.0
    return sd


def _gaussian(rng: np.random.Generator, n: int, free: int) -> tuple[Any, Share]:
    mean, sd = _mean(rng, n), _sd(rng, n, free)
    axes = np.flatnonzero(sd)
    share = Share(
        Fraction(1),
        _fraction(mean),
        tuple(_unit(i, n, Fraction(float(sd[i]))) for i in axes),
        (Axis("normal"),) * len(axes),
    )
    return rs.Gaussian(mean, sd**2), share


def _line(rng: np.random.Generator, n: int) -> tuple[Any, Share]:
    mean, along = _mean(rng, n), rng.integers(-3, 4, n) / 2
    along[0] = along[0] or 1.0
    return rs.Gaussian(mean, factor=along[:, None]), Share(
        Fraction(1), _fraction(mean), (_fraction(along),), (Axis("normal"),)
    )


def _law(rng: np.random.Generator, kind: str, n: int, style: str) -> tuple[Any, tuple[Share, ...] | None]:
    free = int(rng.choice([1, 2], p=[0.6, 0.4])) if n > 1 else 1
    if kind == "gaussian":
        law, share = _gaussian(rng, n, 0 if rng.random() < 0.05 else free)
        return law, (share,)
    if kind == "line":
        law, share = _line(rng, n)
        return law, (share,)
    if kind == "uniform":
        return _uniform(rng, n, free, style)
    if kind == "truncated":
        return _truncated(rng, n, free)
    if kind == "particles":
        m = int(rng.integers(1, 9))
        points = rng.integers(-2, 3, (m, n)).astype(float) if rng.random() < 0.6 else rng.integers(-20, 21, (m, n)) / 10
        weights = rng.integers(1, 9, m).astype(float)
        weights[0] += 64 - weights.sum()
        weights /= 64
        law = rs.Particles(points, weights)
        return law, tuple(Share(Fraction(float(w)), _fraction(p)) for w, p in zip(law.weights, points, strict=True))
    if kind == "mixture":
        m = int(rng.integers(2, 4))
        weights = np.array([0.25, 0.75]) if m == 2 else np.array([0.5, 0.125, 0.375])
        parts, shares = [], []
        for w in weights:
            what = rng.random()
            if what < 0.35:
                part, share = _gaussian(rng, n, 0)
            elif what < 0.5:
                part, share = _line(rng, n)
            else:
                part, share = _gaussian(rng, n, free)
            parts.append(part)
            shares.append(share._replace(weight=Fraction(float(w))))
        return rs.GaussianMixture(weights, parts), tuple(shares)
    mean = _mean(rng, n)
    A = rng.normal(size=(n, n))
    choices = [
        lambda: rs.Gaussian(mean, A @ A.T + 0.1 * np.eye(n)),
        lambda: rs.Gaussian(mean, rng.random(n) + 0.1),
        lambda: rs.Uniform(mean - 1 - rng.random(n), mean + 1 + rng.random(n)),
        lambda: rs.Truncated(rs.Gaussian(mean, rng.random(n) + 0.1), mean - rng.random(n), mean + 1 + rng.random(n)),
        lambda: rs.GaussianMixture([0.5, 0.5], [rs.Gaussian(mean), rs.Gaussian(mean + 1, factor=A[:, :2])]),
    ]
    return choices[int(rng.integers(len(choices)))](), None


def _uniform(rng: np.random.Generator, n: int, free: int, style: str) -> tuple[Any, tuple[Share, ...]]:
    low = _mean(rng, n)
    width = rng.choice([0.5, 1.0, 2.0, 3.0, 0.3, 10.0], n)
    if rng.random() < 0.15:  # far and narrow, or very wide
        low, width = low * 1e6, width * 10.0 ** rng.integers(-6, 7, n)
    if style == "extreme" and rng.random() < 0.3:
        size = 10.0 ** float(rng.choice([-150, -60, 60, 120]))
        low, width = low * size, width * size
    width[rng.permutation(n)[free:]] = 0.0
    law = rs.Uniform(low, low + width)
    high = law.upper
    axes = np.flatnonzero(high > low)
    share = Share(
        Fraction(1),
        tuple(Fraction(0) if high[i] > low[i] else Fraction(float(low[i])) for i in range(n)),
        tuple(_unit(i, n) for i in axes),
        tuple(Axis("uniform", Fraction(float(low[i])), Fraction(float(high[i]))) for i in axes),
    )
    return law, (share,)


def _truncated(rng: np.random.Generator, n: int, free: int) -> tuple[Any, tuple[Share, ...]]:
    mean, sd = _mean(rng, n), _sd(rng, n, free)
    start = rng.choice([-1.0, -2.0, 0.0, 0.5, 3.0, -8.0, 6.0], n)
    length = rng.choice([0.5, 1.0, 2.0, 4.0, np.inf], n)
    low, high = mean + sd * start, np.where(sd > 0, mean + sd * start + np.maximum(sd, 0.1) * length, mean)
    low = np.where((rng.random(n) < 0.2) & (start < 1) & (sd > 0), -np.inf, low)
    law = rs.Truncated(rs.Gaussian(mean, sd**2), low, high)
    axes = np.flatnonzero(sd)

    def side(value: float, i: int) -> Fraction | None:
        return None if np.isinf(value) else (Fraction(float(value)) - Fraction(float(mean[i]))) / Fraction(float(sd[i]))

    share = Share(
        Fraction(1),
        _fraction(mean),
        tuple(_unit(i, n, Fraction(float(sd[i]))) for i in axes),
        tuple(Axis("normal", side(low[i], i), side(high[i], i)) for i in axes),
    )
    return law, (share,)


# -- events ----------------------------------------------------------------------------------------------------------


def _formula(rng: np.random.Generator, net: rs.Network, shares: Any, law: Any, depth: int = 0) -> Any:
    what = rng.random()
    if depth < 2 and what < (0.45 if depth == 0 else 0.25):
        parts = [_formula(rng, net, shares, law, depth + 1) for _ in range(int(rng.integers(2, 4)))]
        joined = (str(rng.choice(["and", "or"])), parts)
        return ("not", joined) if rng.random() < 0.2 else joined
    if what > 0.93 and depth < 2:
        return ("not", _formula(rng, net, shares, law, depth + 1))
    return _atom(rng, net, shares, law)


def _op(rng: np.random.Generator) -> str:
    return str(rng.choice(["<", "<=", ">", ">=", "==", "!="], p=[0.23, 0.23, 0.23, 0.23, 0.05, 0.03]))


def _somewhere(rng: np.random.Generator, law: Any, shares: Any) -> Any:
    """An input worth asking about: an atom, a mean, a corner, or a draw."""
    if shares is not None and rng.random() < 0.5:
        share = shares[int(rng.integers(len(shares)))]
        x = list(share.base)
        for direction, axis in zip(share.directions, share.axes, strict=True):
            ends = [v for v in (axis.low, axis.high) if v is not None] or [Fraction(0)]
            t = ends[int(rng.integers(len(ends)))]
            x = [a + t * b for a, b in zip(x, direction, strict=True)]
        return np.array([float(v) for v in x])
    return law.sample(1, rng)[0]


def _atom(rng: np.random.Generator, net: rs.Network, shares: Any, law: Any) -> Any:
    what = rng.random()
    n, m = net.n_inputs, net.n_outputs
    x = _somewhere(rng, law, shares)
    with np.errstate(all="ignore"):
        y = net(x)
    if what < 0.28:
        i = int(rng.integers(n))
        return ("row", {("x", i): 1.0}, _op(rng), float(x[i]) if rng.random() < 0.7 else float(rng.integers(-2, 3)))
    if what < 0.62 or (what < 0.7 and m == 1):
        j = int(rng.integers(m))
        pick = rng.random()
        limit = float(y[j]) if pick < 0.5 else 0.0 if pick < 0.8 else float(np.round(y[j], 1))
        return ("row", {("y", j): 1.0}, _op(rng), limit if np.isfinite(limit) else 0.0)
    if what < 0.7:
        if rng.random() < 0.5:
            return ("arg", str(rng.choice(["argmax", "argmin"])), int(rng.integers(m)))
        return ("row", {("y", 0): 1.0, ("y", 1): -1.0}, _op(rng), 0.0)
    if what < 0.78:
        form = {("x", i): float(rng.integers(1, 4)) * rng.choice([-1, 1]) for i in range(n)}
        if rng.random() < 0.4:
            form["y", 0] = 1.0
        form = {k: float(v) for k, v in form.items()}
        if len(form) == 1:
            form = dict.fromkeys(form, 1.0)
        value = float(sum(a * (x if v == "x" else y)[i] for (v, i), a in form.items()))
        return ("row", form, _op(rng), value if np.isfinite(value) and rng.random() < 0.7 else 1.0)
    if what < 0.86:
        layer = int(rng.integers(len(net.hidden)))
        unit = int(rng.integers(net.hidden[layer].width))
        pieces = int(net.hidden[layer].units.pieces[unit])
        return ("unit", layer, unit, str(rng.choice(["==", "!=", ">", "<="])), int(rng.integers(pieces)))
    if what < 0.92:
        i, j = int(rng.integers(n)), int(rng.integers(m))
        with np.errstate(all="ignore"):
            J = float(net.jacobian(x)[j, i])
        return ("J", j, i, _op(rng), J if np.isfinite(J) and rng.random() < 0.4 else 0.0)
    if what < 0.96:
        return (
            "abs",
            [{("y", 0): 1.0}],
            str(rng.choice(["<", "<=", ">", ">="])),
            abs(float(y[0])) if np.isfinite(y[0]) else 1.0,
        )
    forms = [{("y", j): 1.0} for j in range(m)] + [{("x", 0): 1.0}]
    return (str(rng.choice(["max", "min"])), forms, str(rng.choice(["<", "<=", ">", ">="])), float(x[0]))


def _sum(form: dict[tuple[str, int], float]) -> str:
    terms = [f"{'' if a == 1 else '- ' if a == -1 else f'{a!r} * '}{v}[{i}]" for (v, i), a in form.items()]
    return " + ".join(terms).replace("+ - ", "- ").replace("+ -", "- ")


def text_of(formula: Any) -> str:
    """The formula in the library's language."""
    kind = formula[0]
    if kind in ("and", "or"):
        return f" {kind} ".join(f"({text_of(part)})" for part in formula[1])
    if kind == "not":
        return f"not ({text_of(formula[1])})"
    if kind == "row":
        return f"{_sum(formula[1])} {formula[2]} {formula[3]!r}"
    if kind == "J":
        return f"J[{formula[1]},{formula[2]}] {formula[3]} {formula[4]!r}"
    if kind == "unit":
        return f"unit[{formula[1]},{formula[2]}] {formula[3]} {formula[4]}"
    if kind == "arg":
        return f"{formula[1]} == {formula[2]}"
    inner = ", ".join(_sum(form) for form in formula[1])
    return f"{kind}({inner}) {formula[2]} {formula[3]!r}"


def linear(formula: Any) -> bool:
    """Whether the event is on inputs and outputs only."""
    if formula[0] in ("and", "or"):
        return all(linear(part) for part in formula[1])
    if formula[0] == "not":
        return linear(formula[1])
    return formula[0] not in ("J", "unit")


def nudged(formula: Any, by: float) -> Any:
    """The formula with every limit moved by a share of itself."""
    if formula[0] in ("and", "or"):
        return formula[0], [nudged(part, by) for part in formula[1]]
    if formula[0] == "not":
        return "not", nudged(formula[1], by)
    if formula[0] in ("arg", "unit"):
        return formula
    return (*formula[:-1], formula[-1] + by * (abs(formula[-1]) or 1.0))


# -- the same problem in other words ---------------------------------------------------------------------------------


def reordered(p: Problem, rng: np.random.Generator) -> rs.Network:
    """Hidden units in another order and, where activations allow it, scaled by powers of two."""
    layers = [[layer.dense().copy(), layer.bias.copy(), layer.units] for layer in p.net.layers]
    for here, following in itertools.pairwise(layers):
        order = rng.permutation(len(here[1]))
        here[0], here[1], here[2] = here[0][order], here[1][order], here[2][order]
        following[0] = following[0][:, order]
        for i in range(len(order)):
            act = here[2].kinds[here[2].kind[i]]
            if not any(act.breaks) and not any(act.intercepts):
                s = 2.0 ** int(rng.integers(-20, 21))
                here[0][i] *= s
                here[1][i] *= s
                following[0][:, i] /= s
    return rs.Network([(W, b) if k == len(layers) - 1 else (W, b, u) for k, (W, b, u) in enumerate(layers)])
