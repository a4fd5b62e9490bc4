"""How likely a network's linear model, or its decision, changes when some inputs are re-drawn, flipped or disturbed.

With `x = (a, s)`, `s` the named inputs, a partner `x' = (a, s')` has `s'` drawn from the law of s given a,
independently of s. The question is `P(f_x != f_x')`, where `f_x` is the linear model at x. Both copies
together are one network of the pair, so the answer is a sum over the cells of that network. Or `s'` is drawn from the
marginal of s, or is each other level of a category.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import EPS, FloatArray, choice, describe, integer, real, real_array, seeded
from reluscope._text import percent, percent_ends
from reluscope.activations import Units
from reluscope.answer import Answer
from reluscope.answers._named import Chosen, chosen, law_of, level_codes, level_of, listed
from reluscope.answers._patterns import ENUMERATION_BUDGET, at_least_one, checked, enumerated_patterns, share, summed
from reluscope.budget import parse_budget
from reluscope.errors import InputError
from reluscope.intervals import DEFAULT_LEVEL
from reluscope.measure.exactness import MOST_VOLUME_DIMENSIONS, all_exact
from reluscope.network import Network, Pattern
from reluscope.schema import assumed
from reluscope.threads import blas_threads, clean_interrupt
from reluscope.workers import jobs_at_hand, run, with_jobs

if TYPE_CHECKING:
    from reluscope.inputs import Factor, Gaussian, Law
    from reluscope.schema import Schema

Index = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
_Pairs = Callable[[int, np.random.Generator], tuple[FloatArray, FloatArray]]

_DRAW_NUMBERS = 1 << 21
"""Numbers in one batch of pairs."""
_MOST_PAIR_COLUMNS = 512
"""Pairs with more independent variables than this are not tried by enumeration."""
_MOST_ROW_PAIRS = 4_000_000
"""Rows times values: more pairs than this are drawn, not counted."""
_HOW = {
    "given": "re-drawn given the others",
    "marginal": "re-drawn from the marginal",
    "flipped": "flipped to every other level",
}
_ATOM = 1e-5
"""Atoms that are less likely are the ends of marginals: nothing is said about them."""
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
        The inputs that were re-drawn.
    how : str
    seed : int or None
        The `rng=` that repeats the answer; None where nothing was drawn or a Generator was given.
    name : str
        What was re-drawn, by name.
    rows : int or None
        How many rows of data the answer is about; None if it is about a law.
    to_level : dict
        For flips: the share of all rows that change when they are flipped to this level (rows that have it stay).
    assumption : str
        What is assumed about the decision, where nobody has said which output decides.
    """

    pattern: Answer
    linear_model: Answer
    decision: Answer | None
    features: tuple[int, ...]
    how: str
    seed: int | None = None
    name: str = ""
    rows: int | None = None
    to_level: dict[Any, Answer] = field(default_factory=dict)
    assumption: str = ""

    @property
    def probability(self) -> Answer:
        """What was asked for: `decision` if it was, else `linear_model`."""
        return self.linear_model if self.decision is None else self.decision

    def __float__(self) -> float:
        return float(self.probability)

    @property
    def sentence(self) -> str:
        """The answer in words."""
        what = "linear model" if self.decision is None else "decision"
        name = self.name or listed(self.features)
        p = self.probability
        if self.rows is None:
            return f"P({what} changes) = {p}, {name} {self.how}"
        found = percent(p.value)
        if p.guarantee == "confidence":
            found += f" ({' to '.join(percent_ends(float(p.lower), float(p.upper)))})"
        return f"{found} of {self.rows:,} rows change their {what} when {name} is {self.how}"

    def __repr__(self) -> str:
        return f"Change({'; '.join(filter(None, [self.sentence, self.assumption]))})"

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, fit for JSON."""
        return {
            "pattern": self.pattern.to_dict(),
            "linear_model": self.linear_model.to_dict(),
            "decision": None if self.decision is None else self.decision.to_dict(),
            "features": list(self.features),
            "how": self.how,
            "seed": self.seed,
            "name": self.name,
            "rows": self.rows,
            "to_level": {str(k): v.to_dict() for k, v in self.to_level.items()},
        }


class _Pair(NamedTuple):
    """Part of the law of the pair: `x = A v + c`, `x' = B v + c` with v from `law`, in `weight` of the cases."""

    weight: float
    law: Law
    A: FloatArray
    B: FloatArray
    c: FloatArray


@clean_interrupt()
@with_jobs
def change(
    net: Network,
    law: Law,
    features: str | Sequence[int | str] | None = None,
    *,
    how: str | None = None,
    decision: bool | None = None,
    noise: Any = None,
    draws: int = 50_000,
    method: str = "auto",
    level: float = DEFAULT_LEVEL,
    budget: Any = None,
    jobs: Any = None,
    rng: Any = None,
) -> Change:
    """Probability that the linear model (or the decision) changes when the inputs `features` are re-drawn.

    Parameters
    ----------
    net : Network
    law : Law, or rows of data
        The distribution of the inputs. For a table (or particles) the answer is about its rows.
    features : str or sequence of int or str, optional
        What to re-draw: the name of a column (all inputs of a category together) or group of the schema, or indices of
        inputs; None (all) only with `noise`.
    how : {"given", "marginal", "flipped"}, optional
        "given": from its law given the other inputs. "marginal": from its own law, whatever the others. "flipped": each
        other level of a category. Unless given: "flipped" for categories of rows, else "given".
    decision : bool, optional
        Whether to ask for the decision as well: by the rule of the schema, else the index of the largest output (the
        first one, in a tie), or the sign `y > 0` of a single output. Unless given: yes if the network has such a rule.
        Where none says which of several outputs decides, the result says what is assumed.
    noise : float, array or Law, optional
        Add noise to the named inputs instead: a standard deviation, one per named input, or a law of that many inputs.
    draws : int
        Pairs of "draws"; fewer where the budget does not allow so many (each answer's `method` says how many).
    method : {"auto", "enumeration", "draws"}
        "auto": enumeration where it is possible and completes, else draws. Particles are counted exactly in any case.
    level : float
        Confidence level of estimates.
    budget : optional
        A time or a number of regions. Where both ways may be taken, half of the time is for the enumeration (30 s and
        200,000 regions if not given).
    jobs : int, optional
        Workers that share the work, -1 for all cores; without a time, the answer is the same for any number of them.
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
    that agree in all other inputs (refused where none do). The inputs of a copula are re-drawn given the normal scores
    of the others: the same as given their values, except at atoms, where the score tells more; `how` says so.

    For rows, "marginal" puts every value that occurs, with its frequency, in the place of each row's own, and "flipped"
    asks whether any other level changes the row; `to_level` has the levels one by one. Both are counted, and exact
    about the rows.

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
    found = _change(net, law, features, how, decision, noise, draws, method, level, budget, rng)
    words = "" if found.decision is None else assumed(net.schema, net.n_outputs, None, 'rule="smallest" in the schema')
    if found.decision is None or not words:
        return found
    words = words.removesuffix(".")
    told = replace(found.decision, note="; ".join(filter(None, [found.decision.note, words])))
    return replace(found, decision=told, assumption=words)


def _change(
    net: Network,
    law: Law,
    features: str | Sequence[int | str] | None,
    how: str | None,
    decision: bool | None,
    noise: Any,
    draws: int,
    method: str,
    level: float,
    budget: Any,
    rng: Any,
) -> Change:
    law = law_of(net, law)
    components = checked(net, law)
    way = choice(method, "method", ("auto", "enumeration", "draws"))
    count = integer(draws, "draws", low=1)
    level = real(level, "level", low=0.0, high=1.0, open_=True)
    limit, (gen, seed) = parse_budget(budget), seeded(rng)
    if decision is not None and not isinstance(decision, (bool, np.bool_)):
        raise InputError(f"decision must be True or False, got {describe(decision)}")
    if decision is None:
        decision = net.schema is not None and bool(net.schema.rule)
    if features is None and noise is None:
        raise InputError("features must name what to re-draw, such as 'SEX' or [0, 3]; None is for noise on all inputs")
    asked = chosen(net, features)
    named, schema = asked.inputs, net.schema
    net = net.deciding() if decision else net
    e = None if noise is None else _noise(noise, len(named))
    kind = _how(how, asked, law, e)
    others = _condition_words(law, named) if len(named) < net.n_inputs else ""
    text = "with noise added" if e is not None else f"re-drawn{others}" if kind == "given" else _HOW[kind]
    name = asked.name if asked.columns and features is not None else ""
    if e is None and law.atoms is not None:
        points, weights = law.atoms
        if kind == "given":
            return _among_particles(net, points, weights, named, bool(decision), text, name)
        rows = _Rows(net, points, weights, named, bool(decision))
        if kind == "flipped":
            return rows.flipped(*_levels(schema, asked), asked.name)
        return rows.marginal(asked.name, count, level, gen, seed)
    if e is None and kind != "given":
        if way == "enumeration":
            raise InputError(f"how={kind!r} is answered by draws; leave method out")
        if kind == "flipped":
            return _flipped_draws(net, law, schema, asked, bool(decision), count, level, gen, seed)
        redrawn = _counted(net, _from_marginal(law, named), bool(decision), count, level, gen)
        return Change(*redrawn, tuple(named.tolist()), text, seed, name)
    if way != "draws":
        must = way == "enumeration"
        within = None if budget is None else limit.part(0.8 if must else 0.5)
        if e is None and len(named) == net.n_inputs and all_exact(components):
            found = _independent(net, law, bool(decision), within, must)
        else:
            pairs = _exact_pairs(law, named, e) if max(c.r for c in components) <= MOST_VOLUME_DIMENSIONS else None
            found = None if pairs is None else _enumerated(net, pairs, bool(decision), within, must)
        if found is not None:
            return Change(*found, tuple(named.tolist()), text, None, name)
        if must:
            raise InputError(
                "method='enumeration' needs pairs (x, x') that the network sees in at most 3 dimensions, and no "
                "conditional mixture; use method='draws'"
            )
    sampler = _redrawn(law, named) if e is None else _disturbed(law, named, e)
    other = np.random.default_rng(0)

    def pilot(n: int) -> None:
        # Not by workers: few draws would tell of the way to them.
        _changed(sampler(n, other), net, bool(decision))

    count = limit.afford(pilot, count)
    counted = _counted(net, sampler, bool(decision), count, level, gen)
    return Change(*counted, tuple(named.tolist()), text, seed, name)


# -- arguments ---------------------------------------------------------------------------------------------------


def _how(how: Any, asked: Chosen, law: Law, noise: Any) -> str:
    """Where the new values come from."""
    if how is None:
        return "flipped" if noise is None and law.atoms is not None and asked.categories else "given"
    if noise is not None:
        raise InputError("how says where re-drawn inputs come from; leave it out with noise")
    return choice(how, "how", tuple(_HOW))


def _condition_words(law: Law, named: Index) -> str:
    """What the named inputs are re-drawn given: at an atom of a copula the normal score, which knows more."""
    from reluscope.inputs import Copula

    if isinstance(law, Copula):
        for i in np.setdiff1d(np.arange(law.n), named).tolist():
            at = law.marginals[i].atoms[0]
            if len(at) and float((law.cdf(at, i) - law.cdf(at, i, strict=True)).max()) > _ATOM:
                return " given the normal scores of the others"
    return " given the others"


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
        here, there = _halves(net, at_least_one(found).pattern)
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
    hidden = at_least_one(found).pattern[:, : net.n_units]
    states = [_labels(hidden), _labels_of_models(net, hidden)]
    if decision:
        states.append(_winner(net, found.pattern, 0, 1))
    answers = []
    for state in states:
        value, low, high = (np.bincount(state, a) for a in (found.mass.value, found.mass.lower, found.mass.upper))
        rest = found.missing
        slack = len(value) * EPS
        most = float((high**2).sum()) + rest * (2 * float(high.max()) + rest) + slack
        differ = min(max(1.0 - float((value**2).sum()), 0.0), 1.0)
        bracket = max(0.0, 1.0 - most), min(1.0, 1.0 - float((low**2).sum()) + slack)
        answers.append(Answer(differ, *bracket, found.mass.guarantee, method=found.mass.method, note=found.mass.note))
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
    pairs = (sampler(min(size, draws - begin), rng) for begin in range(0, draws, size))
    with blas_threads(max(net.widths)):
        for differs in run(_changed, pairs, jobs=jobs_at_hand(), shared=(net, decision)):
            hits += differs.sum(axis=1)
    answers = [share(int(h), draws, level, f"{draws:,} pairs of draws") for h in hits]
    return answers[0], answers[1], answers[2] if decision else None


def _changed(pair: tuple[FloatArray, FloatArray], net: Network, decision: bool) -> Mask:
    """(3, rows): pattern, linear model and (if asked for) decision differ between the rows of two arrays."""
    here, one = _traced(net, pair[0])
    there, two = _traced(net, pair[1])
    decided = _decided(one) != _decided(two) if decision else np.zeros(len(one), dtype=bool)
    return np.stack([*_differences(net, here, there), decided])


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
    if law.pushed is not None:
        return _redrawn_scores(law, named)
    if len(law.gaussians) == 1:
        law = law.gaussians[0][1]
        if not law.independent_inputs:
            return _redrawn_gaussian(law.gaussians[0][1], named)
    elif law.gaussians:
        return _redrawn_mixture(law, named)
    if law.independent_inputs:

        def fresh(n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
            X, other = law.sample(n, rng), law.sample(n, rng)
            partner = X.copy()
            partner[:, named] = other[:, named]
            return X, partner

        return fresh
    if law.is_mixture and all(part.independent_inputs for _, part in law.components):
        return _redrawn_independent(law, named)
    raise InputError(
        "law must be Gaussian, a mixture, uniform, particles, or truncated with independent inputs (also in a "
        "mixture): the named inputs of a correlated truncated law cannot be re-drawn given the others"
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


def _redrawn_scores(law: Law, named: Index) -> _Pairs:
    """The partners of the scores that the law is a function of."""
    from reluscope.inputs import Copula

    if not isinstance(law, Copula):
        raise InputError(f"{describe(law)} cannot be re-drawn given some of its inputs; use how='marginal'")
    scores = _redrawn(law.scores, named)

    def pairs(n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        here, there = scores(n, rng)
        X, partner = law.push(here), law.push(there)
        stay = np.setdiff1d(np.arange(law.n), named)
        partner[:, stay] = X[:, stay]
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
    # Inputs without spread in any component, such as categories, have the values of the component.
    still = np.array([g.sd[others] == 0 for g in gaussians]).all(axis=0)
    held, moving = others[still], others[~still]
    parts: list[Gaussian] = []
    if len(moving):
        from reluscope.inputs import loading_factor

        small: dict[int, Factor] = {}
        for g in gaussians:
            if id(g.factor) not in small:
                small[id(g.factor)] = loading_factor(g.factor.rows(moving))
            parts.append(Gaussian.of_factor(g.mean[moving], small[id(g.factor)]))
        if any(f.log_det == -np.inf for f in small.values()):
            raise InputError(
                "law: the inputs that stay have no density in some component of the mixture (zero variance, or inputs "
                "that determine one another), so the component cannot be inferred from them; drop those inputs first"
            )
    log_weights = np.log([w for w, _ in law.gaussians])
    values, group = np.unique(np.array([g.mean[held] + 0.0 for g in gaussians]), axis=0, return_inverse=True)
    group = np.ravel(group)
    place = {row.tobytes(): k for k, row in enumerate(values)}

    def pairs(n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        X = law.sample(n, rng)
        which = np.empty(n, np.intp)
        of = np.array([place[row.tobytes()] for row in X[:, held] + 0.0]) if len(values) > 1 else np.zeros(n, np.intp)
        for k in np.unique(of):
            rows, mine = np.flatnonzero(of == k), np.flatnonzero(group == k)
            scores = np.broadcast_to(log_weights[mine], (len(rows), len(mine)))
            if parts:
                scores = scores + np.stack([parts[i].log_density(X[np.ix_(rows, moving)]) for i in mine], axis=1)
            which[rows] = mine[(scores + rng.gumbel(size=scores.shape)).argmax(axis=1)]
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


def _redrawn_independent(law: Law, named: Index) -> _Pairs:
    """As `_redrawn_mixture`, for components with independent inputs: given the component, the others say nothing."""
    parts = [(w, part) for w, part in law.components if w > 0]
    stay = np.setdiff1d(np.arange(law.n), named)
    log_weights = np.log([w for w, _ in parts])
    given = [_marginal(part, stay) for _, part in parts] if len(stay) else []

    def pairs(n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        X = law.sample(n, rng)
        scores = np.broadcast_to(log_weights, (n, len(parts)))
        if given:
            scores = scores + np.stack([part.log_density(X[:, stay]) for part in given], axis=1)
        which = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
        partner = X.copy()
        for i in np.unique(which).tolist():
            rows = np.flatnonzero(which == i)
            partner[np.ix_(rows, named)] = parts[i][1].sample(len(rows), rng)[:, named]
        return X, partner

    return pairs


def _marginal(law: Law, inputs: Index) -> Law:
    """The law of some inputs of a law with independent inputs."""
    from reluscope.inputs import Gaussian, Truncated, Uniform

    lower, upper = (side[inputs] for side in law.support())
    base = law.unrestricted
    if not base.gaussians:
        return Uniform(lower, upper)
    gaussian = Gaussian(base.mean[inputs], base.variance[inputs])
    if (gaussian.variance == 0).any():
        raise InputError(
            "law: the inputs that stay have no density in some component of the mixture (zero variance), so the "
            "component cannot be inferred from them; drop those inputs first"
        )
    return Truncated(gaussian, lower, upper)


def _from_marginal(law: Law, named: Index) -> _Pairs:
    """Draws of x, and of a partner whose named inputs come from another draw."""

    def pairs(n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        X = law.sample(n, rng)
        partner = X.copy()
        partner[:, named] = law.sample(n, rng)[:, named]
        return X, partner

    return pairs


def _levels(schema: Schema | None, asked: Chosen) -> tuple[list[tuple[Any, ...]], FloatArray]:
    """The levels that a category can be flipped to, and their codes."""
    if schema is None:
        raise InputError(f"{asked.name} cannot be flipped: net has no schema that says which inputs are a category")
    levels, codes = level_codes(schema, asked, "use how='marginal' or 'given'")
    if len(codes) < 2:
        raise InputError(f"{asked.name} has one level, so there is nothing to flip it to")
    return levels, codes


def _flipped_draws(
    net: Network,
    law: Law,
    schema: Schema | None,
    asked: Chosen,
    decision: bool,
    draws: int,
    level: float,
    gen: np.random.Generator,
    seed: int | None,
) -> Change:
    """Every other level of a category, for draws from a law: shares with the binomial interval."""
    levels, codes = _levels(schema, asked)
    rows = _Rows(net, law.sample(draws, gen), np.full(draws, 1.0 / draws), asked.inputs, decision)
    found = rows.flipped(levels, codes, asked.name)

    def counted(answer: Answer) -> Answer:
        return share(round(answer.value * draws), draws, level, f"{draws:,} draws, flipped")

    decided = None if found.decision is None else counted(found.decision)
    each = {key: counted(value) for key, value in found.to_level.items()}
    both = counted(found.pattern), counted(found.linear_model)
    return Change(*both, decided, found.features, found.how, seed, asked.name, None, each)


def _disturbed(law: Law, named: Index, e: Law) -> _Pairs:
    def pairs(n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        X = law.sample(n, rng)
        partner = X.copy()
        partner[:, named] += e.sample(n, rng)
        return X, partner

    return pairs


# -- particles ---------------------------------------------------------------------------------------------------


def _among_particles(
    net: Network, points: FloatArray, weights: FloatArray, named: Index, decision: bool, text: str, name: str = ""
) -> Change:
    """Pairs of particles that agree in all other inputs: `sum over groups of W - sum_state (W_state)^2 / W`."""
    others = np.setdiff1d(np.arange(net.n_inputs), named)
    group = _labels(points[:, others])
    # A particle without another one beside it has nothing to be compared with: its 0 would say nothing.
    several = np.bincount(group, minlength=int(group.max()) + 1) > 1
    paired = int(several[group].sum())
    if not paired and len(points) > 1:
        raise InputError(
            f"no two of the {len(points):,} rows agree in all other inputs, so nothing is known of "
            f"{name or listed(named.tolist())} given the others; use how='marginal' or how='flipped', or a law "
            "fitted to the rows"
        )
    note = (
        ""
        if paired == len(points)
        else f"only {paired:,} of {len(points):,} rows agree with another in all other inputs"
    )
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
                value,
                max(0.0, value - slack),
                min(1.0, value + slack),
                "exact",
                method=f"{len(points):,} particles",
                note=note,
            )
        )
    return Change(answers[0], answers[1], answers[2] if decision else None, tuple(named.tolist()), text, None, name)


class _Rows:
    """Rows of data, and what changes when some of their inputs take other values."""

    def __init__(self, net: Network, points: FloatArray, weights: FloatArray, named: Index, decision: bool) -> None:
        self.net, self.points, self.weights, self.named, self.decision = net, points, weights, named, decision
        self.size = max(64, _DRAW_NUMBERS // max(net.widths))

    def changed(self, rows: FloatArray, values: FloatArray) -> npt.NDArray[np.bool_]:
        """(3, rows): pattern, linear model and decision differ when the named inputs become `values`."""
        partner = rows.copy()
        partner[:, self.named] = values
        return _changed((rows, partner), self.net, self.decision)

    def flipped(self, levels: list[tuple[Any, ...]], codes: FloatArray, name: str) -> Change:
        """Every other level, for every row."""
        own = level_of(codes, self.points[:, self.named], name)
        some, each = np.zeros(3), np.zeros((len(codes), 3))

        def of(part: slice) -> tuple[FloatArray, FloatArray]:
            rows, weight = self.points[part], self.weights[part]
            any_, mine = np.zeros((3, len(rows)), dtype=bool), np.zeros((len(codes), 3))
            for k, code in enumerate(codes):
                at = np.flatnonzero(own[part] != k)
                if len(at):
                    differs = self.changed(rows[at], code)
                    any_[:, at] |= differs
                    mine[k] = differs @ weight[at]
            return any_ @ weight, mine

        with blas_threads(max(self.net.widths)):
            for any_, mine in run(of, _slices(len(self.points), self.size), jobs=jobs_at_hand()):
                some += any_
                each += mine
        last = 2 if self.decision else 1
        shown = {key[0] if len(key) == 1 else key: self.answer(each[k, last]) for k, key in enumerate(levels)}
        return self.change(some, _HOW["flipped"], name, shown)

    def marginal(self, name: str, draws: int, level: float, gen: np.random.Generator, seed: int | None) -> Change:
        """Every value that occurs, with its frequency, for every row; pairs are drawn where there are too many."""
        values, place = np.unique(self.points[:, self.named], axis=0, return_inverse=True)
        share_of = np.bincount(place.reshape(-1), self.weights)
        if len(values) * len(self.points) > _MOST_ROW_PAIRS:

            def pairs(n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
                X = self.points[rng.choice(len(self.points), n, p=self.weights)]
                partner = X.copy()
                partner[:, self.named] = values[rng.choice(len(values), n, p=share_of / share_of.sum())]
                return X, partner

            found = _counted(self.net, pairs, self.decision, draws, level, gen)
            return Change(*found, tuple(self.named.tolist()), _HOW["marginal"], seed, name, len(self.points))

        def of(part: slice) -> FloatArray:
            each = (
                share_of[k] * (self.changed(self.points[part], value) @ self.weights[part])
                for k, value in enumerate(values)
            )
            return sum(each, np.zeros(3))

        total = np.zeros(3)
        with blas_threads(max(self.net.widths)):
            for mine in run(of, _slices(len(self.points), self.size), jobs=jobs_at_hand()):
                total += mine
        return self.change(total, _HOW["marginal"], name)

    def answer(self, value: float) -> Answer:
        slack = 8 * len(self.points) * EPS
        value = min(max(float(value), 0.0), 1.0)
        low, high = max(0.0, value - slack), min(1.0, value + slack)
        return Answer(value, low, high, "exact", method=f"{len(self.points):,} rows, counted")

    def change(self, total: FloatArray, how: str, name: str, levels: dict[Any, Answer] | None = None) -> Change:
        found = [self.answer(v) for v in total.tolist()]
        decision = found[2] if self.decision else None
        index = tuple(self.named.tolist())
        return Change(found[0], found[1], decision, index, how, None, name, len(self.points), levels or {})


def _slices(n: int, size: int) -> Iterator[slice]:
    return (slice(i, min(i + size, n)) for i in range(0, n, size))


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
