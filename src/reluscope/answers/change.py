"""How likely a network's linear model, or its decision, changes when some inputs are re-drawn or disturbed.

With `x = (a, s)`, `s` the named inputs, a partner `x' = (a, s')` has `s'` drawn from the law of s given a,
independently of s. The question is `P(f_x != f_x')`, where `f_x` is the linear model at x. Both copies
together are one network of the pair, so the answer is a sum over the cells of that network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import EPS, FloatArray, choice, describe, integer, real, real_array, seeded
from reluscope.activations import Units
from reluscope.answer import Answer
from reluscope.answers._patterns import ENUMERATION_BUDGET, checked, enumerated_patterns, share, summed
from reluscope.budget import parse_budget
from reluscope.errors import InputError
from reluscope.intervals import DEFAULT_LEVEL
from reluscope.measure.exactness import MOST_VOLUME_DIMENSIONS, all_exact
from reluscope.network import Network, Pattern
from reluscope.parallel import blas_threads

if TYPE_CHECKING:
    from reluscope.inputs import Factor, Gaussian, Law

Index = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
_Pairs = Callable[[int, np.random.Generator], tuple[FloatArray, FloatArray]]

_DRAW_NUMBERS = 1 << 21
"""Numbers in one batch of pairs."""
_MOST_PAIR_COLUMNS = 512
"""Pairs with more independent variables than this are not tried by enumeration."""
_SAME = 1e-9
"""Two linear models whose values at a random point agree to this relative accuracy are the same."""
_RANK = 1e-12


@dataclass(frozen=True, eq=False, repr=False)
class Change:
    """What `change` returns: probabilities that something differs between an input and its partner.

    Attributes
    ----------
    pattern : Answer
        The activation patterns differ.
    linear_model : Answer
        The linear models differ (never more than the patterns: a unit that reaches no output may flip without effect).
    decision : Answer or None
        The decisions differ, if asked for.
    features : tuple of int
    how : str
    seed : int or None
        The `rng=` that repeats the answer; None where nothing was drawn or a Generator was given.
    """

    pattern: Answer
    linear_model: Answer
    decision: Answer | None
    features: tuple[int, ...]
    how: str
    seed: int | None = None

    @property
    def probability(self) -> Answer:
        """What was asked for: `decision` if it was, else `linear_model`."""
        return self.linear_model if self.decision is None else self.decision

    def __float__(self) -> float:
        return float(self.probability)

    def __repr__(self) -> str:
        what = "linear model" if self.decision is None else "decision"
        return f"Change(P({what} changes) = {self.probability}, inputs {list(self.features)[:8]} {self.how})"

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, fit for JSON."""
        return {
            "pattern": self.pattern.to_dict(),
            "linear_model": self.linear_model.to_dict(),
            "decision": None if self.decision is None else self.decision.to_dict(),
            "features": list(self.features),
            "how": self.how,
            "seed": self.seed,
        }


class _Pair(NamedTuple):
    """Part of the law of the pair: `x = A v + c`, `x' = B v + c` with v from `law`, in `weight` of the cases."""

    weight: float
    law: Law
    A: FloatArray
    B: FloatArray
    c: FloatArray


def change(
    net: Network,
    law: Law,
    features: Sequence[int] | None = None,
    *,
    decision: bool = False,
    noise: Any = None,
    draws: int = 50_000,
    method: str = "auto",
    level: float = DEFAULT_LEVEL,
    budget: Any = None,
    rng: Any = None,
) -> Change:
    """Probability that the linear model (or the decision) changes when the inputs `features` are re-drawn.

    Parameters
    ----------
    net : Network
    law : Law
        The distribution of the inputs.
    features : sequence of int, optional
        The inputs to re-draw; None (all) only with `noise`.
    decision : bool
        Whether to ask for the decision as well: the index of the largest output (the first one, in a tie), or the sign
        `y > 0` of a single output.
    noise : float, array or Law, optional
        Add noise to the named inputs instead: a standard deviation, one per named input, or a law of that many inputs.
    draws : int
        Pairs of "draws".
    method : {"auto", "enumeration", "draws"}
        "auto": enumeration where it is possible and completes, else draws. Particles are counted exactly in any case.
    level : float
        Confidence level of estimates.
    budget : optional
        For the enumeration: a time or a number of regions (30 s and 200,000 regions if not given).
    rng : optional
        None, an int, a SeedSequence or a Generator.

    Returns
    -------
    Change

    Raises
    ------
    InputError
        If an argument does not fit the network, or "enumeration" is asked for where it is not possible.

    Notes
    -----
    `P(f(a, s) != f(a, s'))` with s, s' two independent draws of the named inputs given the others: conditional
    Gaussian for a Gaussian, the exact conditional mixture for a mixture (the component is drawn anew too), a fresh
    draw where inputs are independent (uniform laws, truncated ones without correlation), and for particles among those
    that agree in all other inputs.

    "enumeration": the network of the pair is cut into regions with exact masses; possible where it sees at most three
    dimensions in all (one re-drawn input of two, say; six for uniform laws) and not for a mixture's conditional. When
    the budget ends first, answers are sound brackets. "draws": pairs of draws with the exact binomial interval.

    Examples
    --------
    >>> from reluscope import Gaussian, Network, change
    >>> net = Network([([[1.0]], [0.0]), ([[1.0]], None)])
    >>> change(net, Gaussian([0.0]), [0]).linear_model.value  # on and off with probability 1/2 each
    0.5
    """
    components = checked(net, law)
    how = choice(method, "method", ("auto", "enumeration", "draws"))
    count = integer(draws, "draws", low=1)
    level = real(level, "level", low=0.0, high=1.0, open_=True)
    gen, seed = seeded(rng)
    if not isinstance(decision, (bool, np.bool_)):
        raise InputError(f"decision must be True or False, got {describe(decision)}")
    if features is None and noise is None:
        raise InputError("features must name the inputs to re-draw, such as [0, 3]; None is for noise on all inputs")
    named = _features(features, net.n_inputs)
    e = None if noise is None else _noise(noise, len(named))
    others = " given the others" if len(named) < net.n_inputs else ""
    text = f"re-drawn{others}" if e is None else "with noise added"
    if e is None and law.atoms is not None:
        points, weights = law.atoms
        return _among_particles(net, points, weights, named, bool(decision), text)
    if how != "draws":
        must = how == "enumeration"
        if e is None and len(named) == net.n_inputs and all_exact(components):
            found = _independent(net, law, bool(decision), budget, must)
        else:
            pairs = _exact_pairs(law, named, e) if max(c.r for c in components) <= MOST_VOLUME_DIMENSIONS else None
            found = None if pairs is None else _enumerated(net, pairs, bool(decision), budget, must)
        if found is not None:
            return Change(*found, tuple(named.tolist()), text)
        if how == "enumeration":
            raise InputError(
                "method='enumeration' needs pairs (x, x') that the network sees in at most 3 dimensions, and no "
                "conditional mixture; use method='draws'"
            )
    sampler = _redrawn(law, named) if e is None else _disturbed(law, named, e)
    return Change(*_counted(net, sampler, bool(decision), count, level, gen), tuple(named.tolist()), text, seed)


# -- arguments ---------------------------------------------------------------------------------------------------


def _features(features: Any, n: int) -> Index:
    if features is None:
        return np.arange(n)
    if isinstance(features, (str, bytes)) or not np.iterable(features):
        raise InputError(f"features must be a list of input indices, got {describe(features)}")
    named = [integer(f, "features", low=0, high=n - 1) for f in features]
    if not named or len(set(named)) != len(named):
        raise InputError(f"features must name at least one input, each once, got {named}")
    return np.sort(np.array(named, dtype=np.intp))


def _noise(noise: Any, n: int) -> Law:
    from reluscope.inputs import Gaussian, Law

    if isinstance(noise, Law):
        if noise.n != n:
            raise InputError(f"noise must be a law of {n} inputs, one per named input, got one of {noise.n}")
        return noise
    sd = real_array(noise, "noise", ndim=(0, 1))
    if (sd.ndim and len(sd) != n) or (sd < 0).any():
        raise InputError(
            f"noise must be a standard deviation, {n} of them (one per named input, none negative) or a law, "
            f"got {describe(noise)}"
        )
    return Gaussian(np.zeros(n), np.broadcast_to(sd**2, (n,)))


# -- pairs of cells ----------------------------------------------------------------------------------------------


def _exact_pairs(law: Law, named: Index, e: Law | None) -> list[_Pair] | None:
    """The law of the pair in a form that can be enumerated, or None."""
    from reluscope.inputs import Gaussian, Truncated, Uniform

    n, m = law.n, len(named)
    parts = law.gaussians
    if parts:
        if e is None:
            if len(parts) > 1:
                return None
            g = parts[0][1]
            L = g.factor.rows(np.arange(n))
            if L.shape[1] > _MOST_PAIR_COLUMNS:
                return None
            P = _given(g.factor, named).projector()
            both = np.eye(L.shape[1])
            A, B = np.concatenate([L, 0 * L], axis=1), np.concatenate([L @ P, L @ (both - P)], axis=1)
            return [_Pair(1.0, Gaussian(np.zeros(2 * L.shape[1])), A, B, g.mean)]
        if len(e.gaussians) != 1:
            return None
        out = []
        factor = e.gaussians[0][1].factor
        N = np.zeros((n, factor.k))
        N[named] = factor.rows(np.arange(m))
        shift = np.zeros(n)
        shift[named] = e.mean
        for w, g in parts:
            L = g.factor.rows(np.arange(n))
            if L.shape[1] + N.shape[1] > _MOST_PAIR_COLUMNS:
                return None
            # The mean of the noise is one more column, driven by a variable without spread.
            A = np.concatenate([L, 0 * N, np.zeros((n, 1))], axis=1)
            B = np.concatenate([L, N, shift[:, None]], axis=1)
            mean = np.append(np.zeros(A.shape[1] - 1), 1.0)
            spread = np.append(np.ones(A.shape[1] - 1), 0.0)
            out.append(_Pair(float(w), Gaussian(mean, spread), A, B, g.mean))
        return out
    if e is not None or not law.independent_inputs or n + m > _MOST_PAIR_COLUMNS:
        return None
    A, B = np.eye(n, n + m), np.eye(n, n + m)
    B[named, named] = 0.0
    B[named, n + np.arange(m)] = 1.0
    index = np.concatenate([np.arange(n), named])
    lower, upper = (side[index] for side in law.support())
    base = law.unrestricted
    if base is law:
        return [_Pair(1.0, Uniform(lower, upper), A, B, np.zeros(n))]
    twice = Truncated(Gaussian(base.mean[index], base.variance[index]), lower, upper)
    return [_Pair(1.0, twice, A, B, np.zeros(n))]


def _enumerated(
    net: Network, pairs: list[_Pair], decision: bool, budget: Any, must: bool
) -> tuple[Answer, Answer, Answer | None] | None:
    """Pattern, linear model and decision change by enumeration; None if not exact or (unless it `must`) incomplete."""
    limit = parse_budget(budget, ENUMERATION_BUDGET)
    networks = [_pair_network(net, pair, decision) for pair in pairs]
    if not all(all_exact(checked(both, pair.law)) for both, pair in zip(networks, pairs, strict=True)):
        return None
    rows = []
    for both, pair in zip(networks, pairs, strict=True):
        found = enumerated_patterns(both, pair.law, limit)
        if found.stopped and not must:
            return None
        here, there = _halves(net, found.pattern)
        masks = [*_differences(net, here, there)]
        if decision:
            masks.append(_winner(net, found.pattern, 0) != _winner(net, found.pattern, 1))
        rows.append([summed(found, mask) for mask in masks])
    answers = [_mixed([pair.weight for pair in pairs], list(column)) for column in zip(*rows, strict=True)]
    return answers[0], answers[1], answers[2] if decision else None


def _independent(
    net: Network, law: Law, decision: bool, budget: Any, must: bool
) -> tuple[Answer, Answer, Answer | None] | None:
    """All inputs re-drawn: two independent draws differ with probability `1 - sum over states of P(state)^2`."""
    found = enumerated_patterns(_compared(net, 1) if decision else net, law, budget)
    if found.stopped and not must:
        return None
    hidden = found.pattern[:, : net.n_units]
    states = [_labels(hidden), _labels_of_models(net, hidden)]
    if decision:
        states.append(_winner(net, found.pattern, 0, 1))
    answers = []
    for state in states:
        value, low, high = (np.bincount(state, a) for a in (found.value, found.lower, found.upper))
        rest = found.missing
        slack = len(value) * EPS
        most = float((high**2).sum()) + rest * (2 * float(high.max()) + rest) + slack
        differ = min(max(1.0 - float((value**2).sum()), 0.0), 1.0)
        bracket = max(0.0, 1.0 - most), min(1.0, 1.0 - float((low**2).sum()) + slack)
        kind, how = "sound" if found.stopped else "exact", f"enumeration, {len(found.value):,} patterns"
        answers.append(Answer(differ, *bracket, kind, method=how, note=found.stopped or ""))
    return answers[0], answers[1], answers[2] if decision else None


def _pair_network(net: Network, pair: _Pair, decision: bool) -> Network:
    """`v -> (net(A v + c), net(B v + c))`; with a last hidden layer of comparisons when the decision matters."""
    first = net.layers[0]
    W = np.concatenate([np.asarray(first.weight @ pair.A), np.asarray(first.weight @ pair.B)])
    b = np.tile(np.asarray(first.weight @ pair.c) + first.bias, 2)
    layers: list[Any] = [(W, b, Units.concatenate([first.units, first.units]))]
    for layer in net.layers[1:]:
        weight = sparse.block_diag([layer.weight, layer.weight], format="csr")
        layers.append((weight, np.tile(layer.bias, 2), Units.concatenate([layer.units, layer.units])))
    return _compared(Network(layers), 2) if decision else Network(layers)


def _compared(net: Network, copies: int) -> Network:
    """The network with a hidden layer that compares the outputs of each copy in place of its outputs."""
    D = _comparisons(net.n_outputs // copies)
    compare = np.kron(np.eye(copies), D)
    last = net.layers[-1]
    layer = (compare @ last.dense(), compare @ last.bias, "relu")
    return Network([*net.hidden, layer, (np.zeros((1, len(compare))), None)])


def _comparisons(outputs: int) -> FloatArray:
    """Rows `y_j - y_i`, i < j: positive where j beats i, so that the first of equals wins. `y` itself if alone."""
    if outputs == 1:
        return np.ones((1, 1))
    i, j = np.triu_indices(outputs, 1)
    D = np.zeros((len(i), outputs))
    D[np.arange(len(i)), j] = 1.0
    D[np.arange(len(i)), i] = -1.0
    return D


def _halves(net: Network, pattern: Pattern) -> tuple[Pattern, Pattern]:
    """The patterns of the two copies, from patterns of the pair's network."""
    here, there = [], []
    for layer, start in zip(net.hidden, net.offsets, strict=False):
        here.append(pattern[:, 2 * start : 2 * start + layer.width])
        there.append(pattern[:, 2 * start + layer.width : 2 * (start + layer.width)])
    if not here:
        return pattern[:, :0], pattern[:, :0]
    return np.concatenate(here, axis=1), np.concatenate(there, axis=1)


def _winner(net: Network, pattern: Pattern, copy: int, copies: int = 2) -> npt.NDArray[np.int64]:
    """The decision of one copy, from the comparison units of `_compared`."""
    outputs = net.n_outputs
    size = len(_comparisons(outputs))
    start = copies * net.n_units + copy * size
    beaten = pattern[:, start : start + size].astype(np.int64)
    if outputs == 1:
        return beaten[:, 0]
    i, j = np.triu_indices(outputs, 1)
    wins = np.zeros((len(pattern), outputs), dtype=np.int64)
    for row in range(size):
        wins[:, j[row]] += beaten[:, row]
        wins[:, i[row]] += 1 - beaten[:, row]
    return wins.argmax(axis=1)


def _mixed(weights: list[float], parts: list[Answer]) -> Answer:
    """`sum_k w_k P_k`, brackets added."""
    if len(parts) == 1:
        return parts[0]
    value, low, high = (float(sum(w * getattr(p, k) for w, p in zip(weights, parts, strict=True))) for k in _ENDS)
    kind = "sound" if any(p.guarantee == "sound" for p in parts) else "exact"
    slack = len(parts) * EPS
    note = next((p.note for p in parts if p.note), "")
    how = f"enumeration, {len(parts)} components"
    return Answer(value, max(0.0, low - slack), min(1.0, high + slack), kind, method=how, note=note)


_ENDS = ("value", "lower", "upper")


# -- comparing ---------------------------------------------------------------------------------------------------


def _differences(net: Network, here: Pattern, there: Pattern) -> tuple[Mask, Mask]:
    """Where the patterns differ, and where the linear models do."""
    pattern = (here != there).any(axis=1)
    model = np.zeros(len(here), dtype=bool)
    rows = np.flatnonzero(pattern)
    if len(rows):
        # Two different linear models differ at almost every point: compare their values at one random point.
        point = np.random.default_rng(20260101).normal(size=net.n_inputs)
        one, two = _values_at(net, here[rows], point), _values_at(net, there[rows], point)
        size = np.maximum(np.abs(one), np.abs(two)).max(axis=1, initial=0.0)
        model[rows] = np.abs(one - two).max(axis=1, initial=0.0) > _SAME * size
    return pattern, model


def _values_at(net: Network, pattern: Pattern, point: FloatArray) -> FloatArray:
    """Values at one point of the linear models of many patterns (not of the network: pieces are given)."""
    h = np.broadcast_to(net.layers[0].affine(point[None]), (len(pattern), net.layers[0].width))
    for i, layer in enumerate(net.layers[1:]):
        slope, intercept = net.hidden[i].units.on(pattern[:, net.offsets[i] : net.offsets[i + 1]])
        h = layer.affine(slope * h + intercept)
    return np.asarray(h)


def _traced(net: Network, X: FloatArray) -> tuple[Pattern, FloatArray]:
    """Patterns and outputs from one forward pass."""
    *hidden, y = net.preactivations(X)
    pieces = [layer.units.pattern(h) for layer, h in zip(net.hidden, hidden, strict=True)]
    return np.concatenate([np.zeros((len(X), 0), np.uint8), *pieces], axis=1), y


def _decided(y: FloatArray) -> npt.NDArray[np.intp]:
    return (y[:, 0] > 0).astype(np.intp) if y.shape[1] == 1 else y.argmax(axis=1)


# -- draws -------------------------------------------------------------------------------------------------------


def _counted(
    net: Network, sampler: _Pairs, decision: bool, draws: int, level: float, rng: np.random.Generator
) -> tuple[Answer, Answer, Answer | None]:
    hits = np.zeros(3, dtype=np.int64)
    size = max(64, _DRAW_NUMBERS // max(net.widths))
    with blas_threads(max(net.widths)):
        for begin in range(0, draws, size):
            X, partner = sampler(min(size, draws - begin), rng)
            here, one = _traced(net, X)
            there, two = _traced(net, partner)
            pattern, model = _differences(net, here, there)
            hits[:2] += int(pattern.sum()), int(model.sum())
            if decision:
                hits[2] += int((_decided(one) != _decided(two)).sum())
    answers = [share(int(h), draws, level, f"{draws:,} pairs of draws") for h in hits]
    return answers[0], answers[1], answers[2] if decision else None


class _Given(NamedTuple):
    """What the other inputs `a = L_a u` tell about u: an orthonormal basis of the directions they see, `u` from `a`."""

    others: Index
    basis: FloatArray
    inverse: FloatArray

    def projector(self) -> FloatArray:
        return self.basis @ self.basis.T


def _given(factor: Factor, named: Index) -> _Given:
    others = np.setdiff1d(np.arange(factor.n), named)
    rows = factor.rows(others)
    spread = np.where(factor.spread[others] > 0, factor.spread[others], 1.0)
    if not len(others):
        return _Given(others, np.zeros((factor.k, 0)), np.zeros((factor.k, 0)))
    U, s, Vt = np.linalg.svd(rows / spread[:, None], full_matrices=False)
    r = int((s > _RANK * max(s[0], np.finfo(float).tiny)).sum())
    return _Given(others, Vt[:r].T, (Vt[:r].T / s[:r]) @ U[:, :r].T / spread)


def _redrawn(law: Law, named: Index) -> _Pairs:
    """Draws of x and of its partner with the named inputs drawn anew given the others."""
    if len(law.gaussians) == 1:
        return _redrawn_gaussian(law.gaussians[0][1], named)
    if law.gaussians:
        return _redrawn_mixture(law, named)
    if law.independent_inputs:

        def fresh(n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
            X, other = law.sample(n, rng), law.sample(n, rng)
            partner = X.copy()
            partner[:, named] = other[:, named]
            return X, partner

        return fresh
    raise InputError(
        "law must be Gaussian, a mixture, uniform, particles, or truncated with independent inputs: the named inputs "
        "of a correlated truncated law cannot be re-drawn given the others"
    )


def _redrawn_gaussian(law: Gaussian, named: Index) -> _Pairs:
    given = _given(law.factor, named)

    def pairs(n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        u, v = rng.standard_normal((n, law.factor.k)), rng.standard_normal((n, law.factor.k))
        v += ((u - v) @ given.basis) @ given.basis.T
        X, partner = law.factor.push(u) + law.mean, law.factor.push(v) + law.mean
        partner[:, given.others] = X[:, given.others]
        return X, partner

    return pairs


def _redrawn_mixture(law: Law, named: Index) -> _Pairs:
    """The conditional mixture: the component's posterior given the other inputs, then its conditional Gaussian."""
    from reluscope.inputs import Gaussian

    gaussians = [g for _, g in law.gaussians]
    conditional: dict[int, _Given] = {}
    for g in gaussians:
        if id(g.factor) not in conditional:
            conditional[id(g.factor)] = _given(g.factor, named)
    others = conditional[id(gaussians[0].factor)].others
    parts: list[Gaussian] = []
    if len(others):
        from reluscope.inputs import loading_factor

        small: dict[int, Factor] = {}
        for g in gaussians:
            if id(g.factor) not in small:
                small[id(g.factor)] = loading_factor(g.factor.rows(others))
            parts.append(Gaussian.of_factor(g.mean[others], small[id(g.factor)]))
        if any(p.factor.log_det == -np.inf for p in parts):
            raise InputError(
                "law: the inputs that stay have no density in some component of the mixture (zero variance, or inputs "
                "that determine one another), so the component cannot be inferred from them; drop those inputs first"
            )
    log_weights = np.log([w for w, _ in law.gaussians])

    def pairs(n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        X = law.sample(n, rng)
        if parts:
            scores = np.stack([p.log_density(X[:, others]) for p in parts], axis=1) + log_weights
        else:
            scores = np.broadcast_to(log_weights, (n, len(gaussians)))
        which = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
        partner = X.copy()
        for i in np.unique(which):
            rows = np.flatnonzero(which == i)
            mean, factor = gaussians[i].mean, gaussians[i].factor
            given = conditional[id(factor)]
            v = rng.standard_normal((len(rows), factor.k))
            v -= (v @ given.basis) @ given.basis.T
            v += (X[np.ix_(rows, others)] - mean[others]) @ given.inverse.T
            drawn = factor.push(v) + mean
            partner[np.ix_(rows, named)] = drawn[:, named]
        return X, partner

    return pairs


def _disturbed(law: Law, named: Index, e: Law) -> _Pairs:
    def pairs(n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        X = law.sample(n, rng)
        partner = X.copy()
        partner[:, named] += e.sample(n, rng)
        return X, partner

    return pairs


# -- particles ---------------------------------------------------------------------------------------------------


def _among_particles(
    net: Network, points: FloatArray, weights: FloatArray, named: Index, decision: bool, text: str
) -> Change:
    """Pairs of particles that agree in all other inputs: `sum over groups of W - sum_state (W_state)^2 / W`."""
    others = np.setdiff1d(np.arange(net.n_inputs), named)
    group = _labels(points[:, others])
    pattern = net.pattern(points)
    states = [_labels(pattern), _labels_of_models(net, pattern)]
    if decision:
        states.append(_decided(net(points)))
    answers = []
    for state in states:
        both = _labels(np.column_stack([group, state]))
        total = np.bincount(group, weights)
        _, first = np.unique(both, return_index=True)
        held = np.bincount(both, weights)
        same = float((held**2 / total[group[first]]).sum())
        value = min(max(1.0 - same, 0.0), 1.0)
        slack = 8 * len(points) * EPS
        answers.append(
            Answer(
                value, max(0.0, value - slack), min(1.0, value + slack), "exact", method=f"{len(points):,} particles"
            )
        )
    return Change(answers[0], answers[1], answers[2] if decision else None, tuple(named.tolist()), text)


def _labels(rows: npt.NDArray[Any]) -> Index:
    """A number per distinct row."""
    if rows.shape[1] == 0:
        return np.zeros(len(rows), dtype=np.intp)
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)


def _labels_of_models(net: Network, pattern: Pattern) -> Index:
    """A number per distinct linear model, compared at one random point."""
    first, inverse = np.unique(pattern, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    point = np.random.default_rng(20260101).normal(size=net.n_inputs)
    values = _values_at(net, first, point)
    label = np.arange(len(first))
    order = np.lexsort(values.T[::-1])
    for one, two in _neighbours(order):
        size = max(np.abs(values[one]).max(initial=0.0), np.abs(values[two]).max(initial=0.0))
        if np.abs(values[one] - values[two]).max(initial=0.0) <= _SAME * size:
            label[two] = label[one]
    return label[inverse]


def _neighbours(order: Index) -> Iterator[tuple[int, int]]:
    return zip(order[:-1].tolist(), order[1:].tolist(), strict=True)
