"""The law of the singular values of a network's Jacobian.

The Jacobian `J(x) = dy/dx` is constant on each region, so its singular values `s_1 >= s_2 >= ...` are discrete random
variables: one vector of values per activation pattern, with the pattern's probability. `s_1` is the local Lipschitz
constant of the network in the Euclidean norm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope import intervals
from reluscope._check import FloatArray, choice, describe, integer, real, real_array, seeded
from reluscope._text import count
from reluscope.answer import Answer, Answers
from reluscope.answers._patterns import (
    EnumeratedPatterns,
    at_least_one,
    checked,
    draw_patterns,
    enumerated_patterns,
    patterns_here,
    share,
)
from reluscope.budget import parse_budget
from reluscope.errors import InputError
from reluscope.intervals import DEFAULT_LEVEL
from reluscope.measure.exactness import all_exact
from reluscope.network import Network, Pattern
from reluscope.threads import blas_threads, clean_interrupt, look
from reluscope.workers import with_jobs

if TYPE_CHECKING:
    from reluscope.answers.support import Support
    from reluscope.inputs import Component, Law

_JACOBIAN_NUMBERS = 1 << 22
"""Numbers in one batch of Jacobians: 32 MB."""
_LARGEST_SVD = 3000
"""Weights whose smaller side is beyond this get a cheap bound on their norm instead of their singular values."""
_ROUNDING = 1e-12
"""Singular values are known to this share of the largest."""


class Histogram(NamedTuple):
    """Probability of `edges[i] <= s < edges[i + 1]` (the last bin includes its upper edge), with brackets.

    Attributes
    ----------
    edges : (bins + 1,) array
    mass : Answers
        Shape (bins,).
    """

    edges: FloatArray
    mass: Answers


@dataclass(frozen=True, eq=False)
class Modal:
    """The most probable pattern: its probability, the Jacobian there (outputs, inputs) and its singular values.

    From draws it is the most frequent pattern; `mass.note` says so when the draws cannot tell which one is ahead.

    Attributes
    ----------
    pattern : (units,) array
    mass : Answer
    jacobian : (outputs, inputs) array
    singular : (ranks,) array
    """

    pattern: Pattern
    mass: Answer
    jacobian: FloatArray
    singular: FloatArray


@dataclass(frozen=True, eq=False)
class ExpectedJacobian:
    """`E J(x)` (outputs, inputs), its singular values, and `error`: a bound on the spectral distance from the truth.

    By Weyl's inequality every singular value is within `error` of the true one. These are the singular values *of the
    mean*, not the means of the singular values.

    Attributes
    ----------
    jacobian : (outputs, inputs) array
    singular : (ranks,) array
    error : float
    guarantee : str
    level : float or None
    """

    jacobian: FloatArray
    singular: FloatArray
    error: float
    guarantee: str
    level: float | None


@dataclass(frozen=True, eq=False, repr=False)
class Spectrum:
    """What `spectrum` returns: the distribution of the singular values. `rank` counts from 0, the largest.

    Attributes
    ----------
    network : Network
    singular : (n, min(outputs, inputs)) array
        The values on n patterns.
    weight : (n,) array
        Their probabilities: masses for an enumeration, shares of the draws otherwise.
    bound : (ranks,) array
        Values that no input can exceed.
    expected : ExpectedJacobian
    modal : Modal
    method : str
    level : float
    draws : int
    stopped : str or None
    seed : int or None
        The `rng=` that repeats the answer; None where nothing was drawn or a Generator was given.
    """

    network: Network
    singular: FloatArray
    weight: FloatArray
    bound: FloatArray
    expected: ExpectedJacobian
    modal: Modal
    method: str
    level: float
    draws: int
    stopped: str | None
    _found: EnumeratedPatterns | None
    seed: int | None = None

    @property
    def ranks(self) -> int:
        """Number of singular values, `min(outputs, inputs)`."""
        return int(self.singular.shape[1])

    # -- one singular value --------------------------------------------------------------------------------------

    def cdf(self, t: float, rank: int = 0) -> Answer:
        """`P(s_rank <= t)`.

        Parameters
        ----------
        t : float
        rank : int
            Which singular value, 0 for the largest.

        Returns
        -------
        Answer
        """
        column, level = self._column(rank), real(t, "t")
        return self._probability(column <= level, np.abs(column - level) <= self._slack)

    def tail(self, t: float, rank: int = 0) -> Answer:
        """`P(s_rank > t)`; for rank 0 the probability that the local Lipschitz constant exceeds t.

        Parameters
        ----------
        t : float
        rank : int
            Which singular value, 0 for the largest.

        Returns
        -------
        Answer
        """
        column, level = self._column(rank), real(t, "t")
        return self._probability(column > level, np.abs(column - level) <= self._slack)

    def band(self, rank: int = 0) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """The whole cdf: steps at `t` (n,), values just after them, and a lower and upper band.

        From draws the band holds for all t at once with probability `level` (Dvoretzky-Kiefer-Wolfowitz-Massart,
        half-width `sqrt(log(2 / (1 - level)) / (2 draws))`); by enumeration it is the sum of the mass brackets.

        Parameters
        ----------
        rank : int
            Which singular value, 0 for the largest.

        Returns
        -------
        t, value, lower, upper : (n,) arrays
        """
        column = self._column(rank)
        order = np.argsort(column, kind="stable")
        t, last = np.unique(column[order], return_index=True)
        ends = np.append(last[1:], len(order)) - 1
        value = np.cumsum(self.weight[order])[ends]
        if self._found is None:
            half = intervals.dkw(self.draws, self.level)
            return t, value, np.maximum(value - half, 0.0), np.minimum(value + half, 1.0)
        low = np.cumsum(self._found.mass.lower[order])[ends]
        high = np.cumsum(self._found.mass.upper[order])[ends] + self._found.missing
        return t, value, low, np.minimum(high, 1.0)

    def quantile(self, q: float, rank: int = 0) -> Answer:
        """The smallest t with `P(s_rank <= t) >= q`.

        From draws the interval is between two order statistics, chosen by the binomial law: it holds whatever the
        law of `s_rank`, atoms included.

        Parameters
        ----------
        q : float
            Strictly between 0 and 1.
        rank : int
            Which singular value, 0 for the largest.

        Returns
        -------
        Answer
        """
        level = real(q, "q", low=0.0, high=1.0, open_=True)
        column = self._column(rank)
        if self._found is None:
            return self._drawn_quantile(column, level, rank)
        t, value, low, high = self.band(rank)
        top = float(self.bound[rank])
        at = float(t[min(int(np.searchsorted(value, level)), len(t) - 1)])
        first, last = int(np.searchsorted(high, level)), int(np.searchsorted(low, level))
        lower = 0.0 if self._found.missing >= level else float(t[min(first, len(t) - 1)])
        upper = float(t[last]) if last < len(t) else (top if self._found.stopped else float(t[-1]))
        slack = self._slack
        return self._answer(at, max(0.0, lower - slack), upper + slack)

    def mean(self, rank: int = 0) -> Answer:
        """`E s_rank`.

        From draws the interval is the empirical Bernstein bound of Maurer and Pontil with the range `[0, bound]`; it
        holds for any law and any number of draws, and is wide when the bound is far from what occurs.

        Parameters
        ----------
        rank : int
            Which singular value, 0 for the largest.

        Returns
        -------
        Answer
        """
        column = self._column(rank)
        top = float(self.bound[rank])
        value = float(self.weight @ column)
        if self._found is None:
            variance = float(self.weight @ (column - value) ** 2) * self.draws / (self.draws - 1)
            half = float(intervals.bernstein(variance, self.draws, 1.0 - self.level, top))
            return self._answer(value, max(0.0, value - half), min(top, value + half))
        low = float(self._found.mass.lower @ column)
        high = float(self._found.mass.upper @ column) + self._found.missing * top
        slack = self._slack
        return self._answer(value, max(0.0, low - slack), high + slack)

    def histogram(self, rank: int = 0, bins: Any = 20) -> Histogram:
        """Probabilities of bins: `bins` of equal width over the values seen, or given edges (increasing).

        From draws every bin has its own exact binomial interval.

        Parameters
        ----------
        rank : int
            Which singular value, 0 for the largest.
        bins : int or increasing edges

        Returns
        -------
        Histogram
        """
        column = self._column(rank)
        if np.isscalar(bins) or real_array(bins, "bins", finite=False).ndim == 0:
            edges = np.histogram_bin_edges(column, integer(bins, "bins", low=1, high=10**6))
        else:
            edges = real_array(bins, "bins", finite=False)
            if edges.ndim != 1 or len(edges) < 2 or not (np.diff(edges) > 0).all() or not np.isfinite(edges).all():
                raise InputError(f"bins must be a number of bins or increasing, finite edges, got {describe(bins)}")
        place = np.searchsorted(edges, column, side="right") - 1
        place[column == edges[-1]] = len(edges) - 2
        near = np.abs(column[:, None] - edges) <= self._slack if self._found is not None else None
        if near is not None and np.ndim(bins) == 0:
            near[:, [0, -1]] = False  # the outer edges were taken from the values themselves
        inside = [
            self._probability(place == i, _neither(len(place)) if near is None else near[:, i] | near[:, i + 1])
            for i in range(len(edges) - 1)
        ]
        value, lower, upper = (np.array([getattr(a, k) for a in inside]) for k in ("value", "lower", "upper"))
        first = inside[0]
        return Histogram(edges, Answers(value, lower, upper, first.guarantee, first.level, self.method, seed=self.seed))

    # -- out -----------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Means and quantiles of every rank, the two special Jacobians' singular values, and how they were found."""
        rows = [
            {
                "rank": rank,
                "mean": self.mean(rank).to_dict(),
                "median": self.quantile(0.5, rank).to_dict(),
                "q99": self.quantile(0.99, rank).to_dict(),
                "bound": float(self.bound[rank]),
                "of_expected_jacobian": float(self.expected.singular[rank]),
                "at_modal_pattern": float(self.modal.singular[rank]),
            }
            for rank in range(self.ranks)
        ]
        return {
            "method": self.method,
            "draws": self.draws,
            "seed": self.seed,
            "patterns": len(self.weight),
            "ranks": rows,
        }

    def __repr__(self) -> str:
        how = "enumeration" if self._found is not None else f"{self.draws:,} draws"
        return f"Spectrum({count(self.ranks, 'singular value')} on {count(len(self.weight), 'pattern')}, {how})"

    # -- inside --------------------------------------------------------------------------------------------------

    def _column(self, rank: int) -> FloatArray:
        return self.singular[:, integer(rank, "rank", low=0, high=self.ranks - 1)]

    @cached_property
    def _slack(self) -> float:
        """How far a singular value may be off by rounding."""
        return _ROUNDING * float(self.singular.max(initial=0.0))

    def _answer(self, value: float, lower: float, upper: float) -> Answer:
        lower, upper = min(lower, value), max(upper, value)
        if self._found is None:
            return Answer(value, lower, upper, "confidence", self.level, self.method)
        kind = "sound" if self.stopped else "exact"
        return Answer(value, lower, upper, kind, method=self.method, note=self.stopped or "")

    def _probability(self, holds: npt.NDArray[np.bool_], unsure: npt.NDArray[np.bool_]) -> Answer:
        """Probability of the patterns where `holds`; values `unsure` within rounding widen an exact bracket."""
        if self._found is None:
            hits = round(float(self.weight[holds].sum()) * self.draws)
            return share(hits, self.draws, self.level, self.method)
        value = float(self.weight[holds].sum())
        low = float(self._found.mass.lower[holds & ~unsure].sum())
        high = float(self._found.mass.upper[holds | unsure].sum()) + self._found.missing
        return self._answer(min(value, 1.0), low, min(high, 1.0))

    def _drawn_quantile(self, column: FloatArray, q: float, rank: int) -> Answer:
        order = np.argsort(column, kind="stable")
        reached = np.cumsum(np.rint(self.weight[order] * self.draws))

        def statistic(k: int) -> float:
            """The k-th smallest draw, k from 1."""
            return float(column[order[min(int(np.searchsorted(reached, k)), len(order) - 1)]])

        low, high = intervals.order_statistics(q, self.draws, self.level)
        lower = statistic(low) if low >= 1 else 0.0
        upper = statistic(high) if high <= self.draws else float(self.bound[rank])
        return self._answer(statistic(max(1, int(np.ceil(q * self.draws)))), lower, upper)


@clean_interrupt()
@with_jobs
def spectrum(
    net: Network,
    law: Law,
    *,
    draws: int = 10_000,
    within: Support | None = None,
    method: str = "auto",
    level: float = DEFAULT_LEVEL,
    budget: Any = None,
    jobs: Any = None,
    rng: Any = None,
    progress: Any = None,
) -> Spectrum:
    """The distribution of the singular values of the Jacobian `dy/dx` (in the original inputs) for `x` from `law`.

    Parameters
    ----------
    net : Network
    law : Law
        The distribution of the inputs.
    draws : int
        Random inputs of "draws"; fewer where the budget does not allow so many (`method` says how many).
    within : Support, optional
        A set of patterns from `support` (Algorithm 1 of the paper): the distribution given that the pattern is in it.
        `within.mass()` says how probable that is.
    method : {"auto", "enumeration", "draws"}
        "auto": enumeration where it is possible and completes, else draws.
    level : float
        Confidence level of estimates.
    budget : optional
        A time or a number of regions. Where both ways may be taken, half of the time is for the enumeration (30 s and
        200,000 regions if not given).
    jobs : int, optional
        Workers that share the enumeration, -1 for all cores; the same answer for any number of them.
    rng : optional
        None, an int, a SeedSequence or a Generator.
    progress : optional
        Where to report progress.

    Returns
    -------
    Spectrum

    Raises
    ------
    InputError
        If "enumeration" is asked for where masses are not exact, if `within` is of another network, or if it holds no
        mass or fewer than 20 of the draws.

    Notes
    -----
    `P(s_k <= t) = sum over patterns of P(pattern) [s_k(J of the pattern) <= t]`.

    "enumeration": every pattern with its exact mass; for laws the network sees in up to three dimensions (six for
    uniform laws, any for particles). When the budget ends first, answers are sound brackets. "draws": the patterns of
    `draws` inputs, each different one decomposed once; intervals are finite-sample at `level` (exact binomial for
    probabilities, order statistics for quantiles, empirical Bernstein for means).

    The source paper (section 5.3) calls two Jacobians by one name: here `expected` is `E J(x)`, the mean over patterns,
    and `modal` is the Jacobian at the most probable pattern.

    Cost per different pattern: one backward pass of `outputs` rows, one QR and one small SVD. When the network has more
    inputs than first-layer units the inputs are first rotated to as many coordinates as units, which changes no
    singular value. A 784-512-512-10 network with 10,000 draws takes a good 10 seconds.

    Examples
    --------
    >>> from reluscope import Gaussian, Network, spectrum
    >>> net = Network([([[1.0], [1.0]], [0.0, -1.0]), ([[1.0, 1.0]], None)])
    >>> found = spectrum(net, Gaussian([0.0]))
    >>> round(found.tail(1.5).value, 6), found.tail(1.5).guarantee
    (0.158655, 'exact')
    """
    components = checked(net, law)
    how = choice(method, "method", ("auto", "enumeration", "draws"))
    _check_within(within, net)
    count = integer(draws, "draws", low=20)
    level = real(level, "level", low=0.0, high=1.0, open_=True)
    limit, (gen, seed) = parse_budget(budget), seeded(rng)
    if how == "enumeration" and not all_exact(components):
        raise InputError(
            f"method='enumeration' needs a law seen in at most 3 dimensions, got {max(c.r for c in components)}; "
            "use method='draws'"
        )
    narrow, turn = narrowed(net)
    bound, frobenius = _bounds(narrow)
    if how == "enumeration" or (how == "auto" and all_exact(components)):
        search = None if budget is None else limit.part(0.5 if how == "auto" else 0.8)
        found = enumerated_patterns(net, law, search, progress)
        if how == "enumeration" or not found.stopped:
            found = at_least_one(found)
            if within is not None:
                found = _given(found, within)
            return _enumerated(net, narrow, turn, found, bound, frobenius, level)
    count = limit.afford(_pilot(net, law, components, narrow), count, 0.8, least=20)
    return replace(_drawn(net, law, narrow, turn, count, level, gen, bound, frobenius, within), seed=seed)


def _check_within(within: Any, net: Network) -> None:
    from reluscope.answers.support import Support

    if within is None:
        return
    if not isinstance(within, Support):
        raise InputError(f"within must be what support(net, law, ...) returns, got {describe(within)}")
    if within.network is not net:
        raise InputError("within must be a set of patterns of this network, got one of another; call support again")


def _given(found: EnumeratedPatterns, within: Support) -> EnumeratedPatterns:
    """The patterns of a set, with masses given the set; what was not enumerated may be in it too."""
    keep = within.contains(found.pattern)
    some = found.mass[keep]
    low, high = float(some.lower.sum()), float(some.upper.sum()) + found.missing
    if not low > 0.0:
        raise InputError("within holds no mass that was found under this law; raise its threshold or its cap")
    value = some.value / float(some.value.sum())
    lower, upper = np.minimum(some.lower / high, value), np.maximum(np.minimum(some.upper / low, 1.0), value)
    mass = replace(some, value=value, lower=lower, upper=upper)
    return EnumeratedPatterns(found.pattern[keep], mass, min(found.missing / low, 1.0), found.stopped)


def _pilot(net: Network, law: Law, components: tuple[Component, ...], narrow: Network) -> Callable[[int], object]:
    """What n draws take: nearly every one has a pattern of its own, on large networks."""
    rng = np.random.default_rng(0)

    def work(n: int) -> None:
        pattern = np.concatenate(list(patterns_here(net, law, components, n, rng)))
        _, first = np.unique(net.key(pattern), return_index=True)
        decomposed(narrow, pattern[first], np.full(len(first), 1.0 / len(first)), None)

    return work


def _enumerated(
    net: Network,
    narrow: Network,
    turn: FloatArray | None,
    found: EnumeratedPatterns,
    bound: FloatArray,
    frobenius: float,
    level: float,
) -> Spectrum:
    singular, mean, _ = decomposed(narrow, found.pattern, found.mass.value, None)
    jacobian = mean if turn is None else mean @ turn.T
    size = float(np.linalg.norm(singular, axis=1).max(initial=0.0))
    loose = float(np.maximum(found.mass.upper - found.mass.value, found.mass.value - found.mass.lower).sum())
    error = loose * size + found.missing * frobenius + _ROUNDING * size
    kind = "sound" if found.stopped else "exact"
    expected = ExpectedJacobian(jacobian, singular_values(mean[None])[0], error, kind, None)
    top = int(np.argmax(found.mass.value))
    sure = found.mass.lower[top] >= max(float(np.delete(found.mass.upper, top).max(initial=0.0)), found.missing)
    note = "" if sure else "another pattern may be as probable"
    value, low, high = (float(a[top]) for a in (found.mass.value, found.mass.lower, found.mass.upper))
    mass = Answer(value, low, high, kind, note=note)
    modal = Modal(found.pattern[top], mass, net.output_maps(found.pattern[top])[0][0], singular[top])
    text = f"enumeration, {len(singular):,} patterns"
    return Spectrum(net, singular, found.mass.value, bound, expected, modal, text, level, 0, found.stopped, found)


def _drawn(
    net: Network,
    law: Law,
    narrow: Network,
    turn: FloatArray | None,
    draws: int,
    level: float,
    rng: np.random.Generator,
    bound: FloatArray,
    frobenius: float,
    within: Support | None,
) -> Spectrum:
    components = checked(net, law)
    met = np.concatenate(list(draw_patterns(net, law, components, draws, rng)))
    text = f"{draws:,} draws"
    if within is not None:
        met = met[within.contains(met)]  # what is left is drawn from the law given the set
        if len(met) < 20:
            raise InputError(
                f"within holds {len(met)} of {draws:,} draws, 20 are needed; raise draws, its threshold or its cap"
            )
        text, draws = f"{len(met):,} of {draws:,} draws in the set", len(met)
    # The pilot's mean Jacobian is the centre from which the others are measured: what is left to bound is their spread.
    pilot = max(1, draws // 10)
    order = rng.permutation(draws)  # draws come component by component: the first tenth of them are not like the others
    met = met[order]
    _, first, inverse = np.unique(net.key(met), return_index=True, return_inverse=True)
    pattern = met[first]
    early = np.bincount(inverse[:pilot], minlength=len(first)) / pilot
    late = np.bincount(inverse[pilot:], minlength=len(first)) / (draws - pilot)
    used = early > 0
    _, centre, _ = decomposed(narrow, pattern[used], early[used], None)
    singular, mean, squares = decomposed(narrow, pattern, late, centre)
    n, risk = draws - pilot, 1.0 - level
    # Half of the risk goes to the second moment of the distance from the centre, half to Pinelis' bound for the mean.
    moment = float(late @ squares)
    spread = float(late @ (squares - moment) ** 2) * n / max(n - 1, 1)
    moment = min(moment + float(intervals.bernstein(spread, n, risk / 2, 4 * frobenius**2)), 4 * frobenius**2)
    log = np.log(4.0 / risk)
    error = min(float(4 * frobenius * log / n + np.sqrt(2 * moment * log / n)), 2 * frobenius)
    jacobian = mean if turn is None else mean @ turn.T
    expected = ExpectedJacobian(jacobian, singular_values(mean[None])[0], error, "confidence", level)
    counts = np.bincount(inverse, minlength=len(first))
    return Spectrum(
        net,
        singular,
        counts / draws,
        bound,
        expected,
        _most_frequent(net, pattern, counts, singular, draws, level),
        f"{text}, {len(first):,} patterns",
        level,
        draws,
        None,
        None,
    )


def _most_frequent(
    net: Network, pattern: Pattern, counts: npt.NDArray[np.intp], singular: FloatArray, draws: int, level: float
) -> Modal:
    top = int(np.argmax(counts))
    mass = share(int(counts[top]), draws, level)
    rival = int(np.delete(counts, top).max(initial=0))
    if share(rival, draws, level).upper > mass.lower:
        note = f"most frequent with {counts[top]} of {draws} draws, the next has {rival}: not told apart"
        mass = Answer(mass.value, mass.lower, mass.upper, mass.guarantee, mass.level, mass.method, note)
    return Modal(pattern[top], mass, net.output_maps(pattern[top])[0][0], singular[top])


def narrowed(net: Network) -> tuple[Network, FloatArray | None]:
    """A network whose Jacobians have the same singular values, with at most as many inputs as first-layer units.

    With `W_1^T = Q R` the Jacobian `G W_1 = (G R^T) Q^T` has the singular values of `G R^T`. Also Q, or None.
    """
    first = net.layers[0]
    if first.n_inputs <= first.width:
        return net, None
    with blas_threads(max(net.widths)):
        Q, R = np.linalg.qr(first.dense().T)
    return Network([(R.T, first.bias, first.units), *net.layers[1:]]), np.asarray(Q)


def decomposed(
    net: Network, pattern: Pattern, weight: FloatArray, centre: FloatArray | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Singular values (n, ranks), the weighted mean Jacobian, and squared Frobenius distances from `centre`."""
    ranks = min(net.n_outputs, net.n_inputs)
    singular = np.empty((len(pattern), ranks))
    squares = np.zeros(len(pattern))
    mean = np.zeros((net.n_outputs, net.n_inputs))
    size = max(1, _JACOBIAN_NUMBERS // (net.n_outputs * net.n_inputs))
    with blas_threads(max(net.widths)):
        for begin in range(0, len(pattern), size):
            look()
            part = slice(begin, begin + size)
            J, _ = net.output_maps(pattern[part])
            singular[part] = singular_values(J)
            mean += np.tensordot(weight[part], J, axes=1)
            if centre is not None:
                squares[part] = ((J - centre) ** 2).sum(axis=(1, 2))
    return singular, mean, squares


def singular_values(J: FloatArray) -> FloatArray:
    """Singular values of each matrix (n, outputs, inputs), largest first; long matrices through a QR."""
    rows, columns = J.shape[1:]
    if columns > 2 * rows:
        J = np.asarray(np.linalg.qr(J.transpose(0, 2, 1), mode="r"))
    elif rows > 2 * columns:
        J = np.asarray(np.linalg.qr(J, mode="r"))
    return np.asarray(np.linalg.svd(J, compute_uv=False))


def _bounds(net: Network) -> tuple[FloatArray, float]:
    """What no Jacobian can exceed: each singular value, and the Frobenius norm.

    `s_k(A B) <= s_k(A) |B|`, so `s_k(J) <= min over layers of s_k(W_l) * product of the other layers' norms`, times
    the steepest slopes.
    """
    ranks = min(net.n_outputs, net.n_inputs)
    steep = float(np.prod([np.abs(layer.units.slopes).max(initial=0.0) for layer in net.hidden]))
    values = [_weight_values(layer.weight, ranks) for layer in net.layers]
    norms = np.array([v[0] for v in values])
    frobenius = [float(sparse.linalg.norm(w) if sparse.issparse(w) else np.linalg.norm(w)) for w in _weights(net)]
    others = np.array([np.prod(np.delete(norms, i)) for i in range(len(norms))])
    per_rank = np.min([others[i] * v for i, v in enumerate(values)], axis=0)
    slack = 1.0 + _ROUNDING
    return steep * per_rank * slack, steep * float((others * np.array(frobenius)).min()) * slack


def _weights(net: Network) -> list[Any]:
    return [layer.weight for layer in net.layers]


def _weight_values(weight: Any, ranks: int) -> FloatArray:
    """Upper bounds on the `ranks` largest singular values of a weight."""
    if min(weight.shape) > _LARGEST_SVD:
        size = abs(weight)
        norm = float(np.sqrt(np.asarray(size.sum(axis=0)).max() * np.asarray(size.sum(axis=1)).max()))
        return np.full(ranks, norm)
    values = np.linalg.svd(weight.toarray() if sparse.issparse(weight) else weight, compute_uv=False)
    return np.pad(values, (0, max(0, ranks - len(values))))[:ranks]


def _neither(n: int) -> npt.NDArray[np.bool_]:
    return np.zeros(n, dtype=bool)
