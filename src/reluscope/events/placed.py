"""An event as rows on the outputs of one network, and pieces of a law on which its boxes no longer matter.

Rows that read inputs are served by carrying those linear forms of the input through the network on identity units:
the outputs are then `(y, forms x)` and every row is a row on outputs. Identity units cut no cells. Boxes of cases that
can be folded into the law (a uniform law, independent Gaussian inputs) are folded: the law is restricted, which is
cheaper than carrying the inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import FloatArray
from reluscope.activations import Units, identity
from reluscope.errors import InputError
from reluscope.events.record import Event, FunctionCase
from reluscope.formats.vnnlib import Case
from reluscope.network import Layer, Network

_MOST_PIECES = 64
"""Boxes of an event that are folded into the law one by one; more are carried as rows."""


@dataclass(frozen=True, eq=False)
class CaseRows:
    """`G z + F f <= g` on the carried outputs z and the features f; `strict` rows hold with `<`."""

    G: FloatArray
    F: FloatArray
    g: FloatArray
    strict: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Question:
    """An event about the outputs of `network`: those of `net`, then linear forms of the input.

    `units` are the places of the units of `net` in a pattern of `network`. A case without rows holds everywhere.
    """

    net: Network
    event: Event
    network: Network
    units: npt.NDArray[np.intp]
    cases: tuple[CaseRows, ...]

    def features(self, pattern: Any) -> FloatArray:
        """Features on the cells of patterns of `network`, shape (n, features)."""
        return self.event.feature_values(self.net, pattern[:, self.units])


def support_sides(law: Any) -> tuple[FloatArray, FloatArray]:
    """The smallest and largest value of each input, infinite for Gaussians with spread."""
    from reluscope.inputs import Gaussian, GaussianMixture, Particles, Truncated, Uniform

    if isinstance(law, Uniform):
        return law.lower, law.upper
    if isinstance(law, Particles):
        return law.points.min(axis=0), law.points.max(axis=0)
    if isinstance(law, Truncated):
        still = law.gaussian.sd == 0
        mean = law.gaussian.mean
        return np.where(still, mean, law.lower), np.where(still, mean, law.upper)
    assert isinstance(law, (Gaussian, GaussianMixture))
    parts: list[Any] = [g for w, g in law.components if w > 0]
    lower = np.min([np.where(g.sd > 0, -np.inf, g.mean) for g in parts], axis=0)
    return lower, np.max([np.where(g.sd > 0, np.inf, g.mean) for g in parts], axis=0)


def question(net: Network, law: Any, event: Event) -> Question:
    """The event on the outputs of `net`, with the inputs it reads carried along.

    Sides of boxes that the law never crosses are left out, and so are cases that it never meets.
    """
    low, high = support_sides(law)
    forms: dict[bytes, int] = {}
    rows: list[FloatArray] = []

    def carried(row: FloatArray) -> int:
        key = row.tobytes()
        if key not in forms:
            forms[key] = len(rows)
            rows.append(row)
        return forms[key]

    drafts = []
    for c in event.cases:
        case = c.case
        if (case.lower > high).any() or (case.upper < low).any():
            continue
        kept = _open_rows(c, low, high)
        if kept is None:
            continue
        c, case = kept, kept.case
        below, above = np.flatnonzero(case.lower > low), np.flatnonzero(case.upper < high)
        own = [(int(i), -1.0, -float(case.lower[i])) for i in below]
        own += [(int(i), 1.0, float(case.upper[i])) for i in above]
        drafts.append((c, own))
    m = net.n_outputs
    unit = np.eye(net.n_inputs) if any(own for _, own in drafts) else np.zeros((0, 0))
    made = []
    for c, own in drafts:
        case, k = c.case, len(c.case.g)
        entries = [(k + at, carried(unit[i]), sign) for at, (i, sign, _) in enumerate(own)]
        entries += [(at, carried(np.array(case.A[at])), 1.0) for at in np.flatnonzero(case.reads_inputs).tolist()]
        made.append((c, own, entries))
    cases = []
    for c, own, entries in made:
        case, k = c.case, len(c.case.g)
        G, F = np.zeros((k + len(own), m + len(rows))), np.zeros((k + len(own), len(event.features)))
        G[:k, :m], F[:k] = case.G, c.F
        for at, column, sign in entries:
            G[at, m + column] = sign
        g = np.concatenate([case.g, [bound for _, _, bound in own]])
        cases.append(CaseRows(G, F, g, np.concatenate([case.strict, np.zeros(len(own), bool)])))
    network, units = _carrying(net, np.array(rows)) if rows else (net, np.arange(net.n_units))
    return Question(net, event, network, units, tuple(cases))


def _open_rows(c: FunctionCase, low: FloatArray, high: FloatArray) -> FunctionCase | None:
    """The case without rows on inputs alone that hold all over [low, high]; None when one fails all over it."""
    case = c.case
    alone = case.reads_inputs & ~case.reads_outputs & ~c.F.any(axis=1)
    keep = np.ones(len(case.g), bool)
    for k in np.flatnonzero(alone):
        at = np.flatnonzero(case.A[k])
        a = case.A[k, at]
        most = float((a * np.where(a > 0, high[at], low[at])).sum())
        least = float((a * np.where(a > 0, low[at], high[at])).sum())
        # Sums of several terms are rounded: only a clear margin decides.
        slack = 0.0 if len(at) == 1 else 1e-12 * (abs(case.g[k]) + float(np.abs(a).sum()))
        if least - slack > case.g[k] or (case.strict[k] and len(at) == 1 and least == case.g[k] == most):
            return None
        keep[k] = not (most + slack < case.g[k] or (not case.strict[k] and len(at) == 1 and most == case.g[k]))
    if keep.all():
        return c
    rows = Case(case.lower, case.upper, np.array(case.A[keep]), case.G[keep], case.g[keep], case.strict[keep])
    return FunctionCase(rows, c.F[keep])


def _carrying(net: Network, forms: FloatArray) -> tuple[Network, npt.NDArray[np.intp]]:
    """The network with outputs `(net(x), forms x)`, and where its own units are in the pattern."""
    k = len(forms)
    carry = Units.uniform(identity(), k)
    layers: list[Layer] = []
    for at, layer in enumerate(net.layers):
        weight: Any
        if at == 0:
            joined = [layer.weight, forms]
            weight = sparse.vstack(joined, format="csr") if sparse.issparse(layer.weight) else np.concatenate(joined)
        elif sparse.issparse(layer.weight):
            weight = sparse.block_diag([layer.weight, np.eye(k)], format="csr")
        else:
            weight = np.zeros((layer.width + k, layer.n_inputs + k))
            weight[: layer.width, : layer.n_inputs] = layer.weight
            weight[layer.width :, layer.n_inputs :] = np.eye(k)
        layers.append(Layer(weight, np.concatenate([layer.bias, np.zeros(k)]), Units.concatenate([layer.units, carry])))
    network = Network(
        [(a.weight, a.bias) if a is layers[-1] else (a.weight, a.bias, a.units) for a in layers], name=net.name
    )
    own = [network.offsets[i] + np.arange(layer.width) for i, layer in enumerate(net.hidden)]
    return network, np.concatenate([*own, np.zeros(0, np.intp)]).astype(np.intp)


# -- boxes folded into the law -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Piece:
    """A share of a law: its mass with a bracket, the law given that share, and what is left of the event there."""

    mass: float
    lower: float
    upper: float
    law: Any
    event: Event


def pieces(law: Any, event: Event) -> tuple[Piece, ...]:
    """The event as disjoint pieces: `P(event) = sum of mass * P(event of the piece | law of the piece)`.

    One piece per box when the law can be restricted to boxes and the boxes do not overlap, else one piece in all.
    """
    whole = (Piece(1.0, 1.0, 1.0, law, event),)
    low, high = support_sides(law)
    groups: dict[tuple[bytes, bytes], list[FunctionCase]] = {}
    for c in event.cases:
        lower, upper = np.maximum(c.case.lower, low), np.minimum(c.case.upper, high)
        if (lower > upper).any():
            continue
        groups.setdefault((lower.tobytes(), upper.tobytes()), []).append(c)
    if not groups or len(groups) > _MOST_PIECES:
        return whole
    boxes = [(np.frombuffer(a), np.frombuffer(b)) for a, b in groups]
    if all((a <= low).all() and (b >= high).all() for a, b in boxes) or not _disjoint(boxes, low < high):
        return whole
    out = []
    for (a, b), cases in zip(boxes, groups.values(), strict=True):
        if ((a == b) & (low < high)).any():
            continue  # a face of the box: no mass
        found = _restricted(law, a, b)
        if found is None:
            return whole
        given, log_mass, blur = found
        mass = float(np.exp(log_mass))
        free = np.full(event.n_inputs, -np.inf), np.full(event.n_inputs, np.inf)
        inner = tuple(
            FunctionCase(Case(*free, c.case.A, c.case.G, c.case.g, c.case.strict), c.F)
            for c in map(_without_sides, cases)
        )
        left = Event(event.text, event.n_inputs, event.n_outputs, inner, event.features)
        out.append(Piece(mass, mass * (1 - blur), min(mass * (1 + blur), 1.0), given, left))
    return tuple(out)


def _without_sides(c: FunctionCase) -> FunctionCase:
    """The case without strict rows that only say again that one input is inside the box."""
    case = c.case
    if not case.strict.any():
        return c
    reads = case.reads_inputs
    alone = case.strict & reads & ~case.reads_outputs & ~c.F.any(axis=1)
    for k in np.flatnonzero(alone):
        at = np.flatnonzero(case.A[k])
        if len(at) != 1:
            alone[k] = False
            continue
        a, i = case.A[k, at[0]], at[0]
        alone[k] = case.g[k] / a == (case.upper[i] if a > 0 else case.lower[i])
    keep = ~alone
    return FunctionCase(
        Case(case.lower, case.upper, np.array(case.A[keep]), case.G[keep], case.g[keep], case.strict[keep]), c.F[keep]
    )


def _disjoint(boxes: list[tuple[FloatArray, FloatArray]], moving: npt.NDArray[np.bool_]) -> bool:
    """Whether no two boxes share more than a face in the inputs that have spread."""
    lower, upper = np.array([a for a, _ in boxes]), np.array([b for _, b in boxes])
    for i in range(len(boxes)):
        apart = ((upper[i] <= lower[i + 1 :]) | (lower[i] >= upper[i + 1 :])) & moving
        apart |= (upper[i] < lower[i + 1 :]) | (lower[i] > upper[i + 1 :])
        if not apart.any(axis=1).all():
            return False
    return True


def _restricted(law: Any, lower: FloatArray, upper: FloatArray) -> tuple[Any, float, float] | None:
    """The law given the box, the logarithm of the box's mass, and its relative rounding; None if not closed form."""
    from reluscope.inputs import Gaussian, Truncated, Uniform

    blur = 1e-13 * (1 + len(lower))
    if isinstance(law, Uniform):
        own = law.upper - law.lower
        share = (upper - lower)[own > 0] / own[own > 0]
        return Uniform(lower, upper), float(np.log(share).sum()), blur
    if isinstance(law, (Gaussian, Truncated)):
        base = law if isinstance(law, Gaussian) else law.gaussian
        if not base.factor.diagonal:
            return None
        try:
            given = Truncated(base, lower, upper)
        except InputError:  # less mass than can be conditioned on
            return None
        before = law.log_mass if isinstance(law, Truncated) else 0.0
        return given, given.log_mass - before, 10 * blur
    return None
