"""A data set against Gaussian noise: for each row, a proved bound of the probability that the decision changes.

Three passes, each with proofs of its own: every row at the sigmas asked for, then the largest sigma of every row, both
by linear relaxations alone (`measure/sound/noise.py`); then, with the budget that is left, units are split for rows
that are undecided, the nearest first.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, choice, describe, real, real_array
from reluscope._columns import check_rows, columns_of
from reluscope._text import count
from reluscope.activations import Units, identity, relu
from reluscope.answer import Answers, Status, Stop, status_of
from reluscope.answers._certificates import Certificates
from reluscope.budget import Budget, parse_budget
from reluscope.cells.bounds import box_preactivations
from reluscope.errors import InputError
from reluscope.measure.sound import Noise
from reluscope.network import Network
from reluscope.progress import Report, meter
from reluscope.schema import assumed
from reluscope.threads import OutOfTimeError, blas_threads, clean_interrupt, deadline
from reluscope.workers import alone, jobs_at_hand, run, with_jobs

Decisions = npt.NDArray[np.int64]

_LEAST, _MOST = 1.5, 36.0
"""Radii of relaxations, in standard deviations: below, the tails are everything; above, they are nothing."""

_FINE = 1.03
"""Factor up to which the best radius is sought."""

_CLOSE = 1.01
"""Factor up to which the largest sigma is sought."""

_TRIES = 16
_SHARE = 0.35
"""First guess: a relaxation holds up to this share of the distance to the linear model's boundary."""

_DRAWS = 256


_FIRST, _BLOCK = 4, 8
"""Rows that teach the others where to begin, and rows that learn from one another."""


@clean_interrupt()
@with_jobs
def certify(
    net: Network,
    X: Any,
    sigma: Any,
    *,
    probability: float = 1e-6,
    labels: Any = None,
    decision: str | None = None,
    scale: Any = None,
    box: float | None = 4.5,
    budget: Any = None,
    jobs: Any = None,
    progress: Any = None,
) -> Certificates:
    """How much Gaussian noise the decisions of a network on a data set bear, proved row by row.

    Parameters
    ----------
    net : Network
    X : array_like, shape (n, inputs)
        The rows of data; one row may come as a vector.
    sigma : float or sequence of float
        Standard deviation of the noise, or several of them: independent `N(0, sigma^2)` is added to each input.
    probability : float
        A row is certified where its decision is proved to change with at most this probability; below 1/2.
    labels : sequence of int, optional
        The right decisions: rows that the network gets wrong count as not certified.
    decision : {"largest", "smallest"}, optional
        Which of several outputs decides. Without it the rule of the network's schema is used, else the largest
        output, and the result says that this is assumed.
    scale : array_like, shape (inputs,), optional
        Noise that differs between inputs: input i gets the standard deviation `sigma * scale[i]`. 0: no noise there.
    box : float or None
        Also try plain linear bounds (CROWN) on boxes of this many standard deviations, for comparison; None: do not.
    budget : optional
        A time, such as "60s". Rows are first bounded without splitting; what is left of the budget goes to splitting
        units for rows that are undecided at the sigmas asked for. None: no splitting.
    jobs : int, optional
        Workers that share the rows, -1 for all cores; the same answer for any number of them.
    progress : optional
        None, "auto" or a function `f(done, text)`.

    Returns
    -------
    Certificates
        Per row the decision, a bracket of the probability of a change at each sigma, the largest sigma proved.

    Raises
    ------
    InputError
        If an argument does not fit the network or is out of range.

    Notes
    -----
    The decision is the index of the largest or smallest output (the first of equal ones), or for a single output
    whether it is above the schema's cut-off, 0 without one. Upper bounds are sound: they hold for the real-valued
    network with the stored weights, rounding included. They are not tight: a row without a certificate may well be
    robust.

    `largest` is found by bisection. Each step is a proof of its own, and one that holds for all smaller sigmas as well:
    the half-spaces it is made of only move away. (The probability itself need not grow with sigma.) `change` is
    proved at each sigma alone, and there splitting may certify a row beyond its `largest`.

    When the budget ends early, rows not yet looked at have the bracket [0, 1] and `largest` 0.

    Cost: about fifteen relaxations per row with one sigma, five more for each further one; half a CPU second per row
    for 784-256-256-10.

    Examples
    --------
    >>> from reluscope import Network, certify
    >>> net = Network([([[1.0, -1.0]], None)])  # y = x0 - x1: positive at (1, 0)
    >>> found = certify(net, [[1.0, 0.0]], [0.1, 0.2])
    >>> found.certified.tolist()
    [[True, False]]
    >>> round(float(found.largest[0]), 2)  # Phi(-4.753) = 1e-6, and 1 / sqrt(2) / 4.753 = 0.149
    0.15
    """
    if not isinstance(net, Network):
        raise InputError(f"net must be a Network, got {describe(net)}")
    rows = _rows(X, net)
    levels = _levels(sigma)
    wanted = real(probability, "probability", low=0.0, high=0.5, open_=True)
    spread = _spread(scale, net.n_inputs)
    sides = None if box is None else real(box, "box", low=0.0)
    limit = parse_budget(budget)
    rule = _rule(net, decision)
    decided = rule.decide(net, rows)
    check_rows(X, labels, "labels")
    correct = None if labels is None else _labels(labels, len(rows), max(net.n_outputs, 2)) == decided
    with meter(progress, "certify") as report, blas_threads(max(net.widths)):
        work = _Work(net, rows, levels, wanted, spread, rule, decided, sides, limit, report)
        note = work.run(split=budget is not None)
    upper = work.upper
    status = status_of(note)
    change = Answers(
        0.5 * (work.lower + upper), work.lower, upper, "sound", method="linear bounds, splitting units",
        note=note or "", evaluations=work.count, seconds=limit.elapsed(), status=status,
    )  # fmt: skip
    assumption = assumed(net.schema, net.n_outputs, decision, 'decision="smallest"')
    found = Certificates(wanted, levels, decided, correct, change, work.largest, assumption=assumption)
    if sides is None or not work.boxed:
        return found
    mass = math.erf(sides / math.sqrt(2.0)) ** int((spread > 0).sum())
    return replace(found, box=sides, box_largest=work.boxes, box_mass=mass)


# -- arguments -----------------------------------------------------------------------------------------------------


def _rows(X: Any, net: Network) -> FloatArray:
    if columns_of(X) is not None and net.schema is not None and net.schema.columns:
        return net.schema.encode(X)
    rows = np.atleast_2d(real_array(X, "X", ndim=(1, 2)))
    if rows.shape[1] != net.n_inputs or not len(rows):
        raise InputError(f"X must have shape (rows, {net.n_inputs}), one column per input, got {describe(X)}")
    return rows


def _levels(sigma: Any) -> FloatArray:
    levels = np.unique(np.atleast_1d(real_array(sigma, "sigma", ndim=(0, 1))))
    if not len(levels) or levels[0] <= 0:
        raise InputError(
            f"sigma must be positive, a number or a list of numbers, got {describe(sigma)}; scale= sets inputs apart"
        )
    return levels


def _spread(scale: Any, n: int) -> FloatArray:
    if scale is None:
        return np.ones(n)
    spread = real_array(scale, "scale", ndim=1)
    if len(spread) != n or (spread < 0).any() or not spread.any():
        raise InputError(
            f"scale must be {count(n, 'number')}, one per input, none negative and not all 0, got {describe(scale)}"
        )
    return spread


def _labels(labels: Any, n: int, classes: int) -> Decisions:
    given = real_array(labels, "labels", ndim=1)
    if len(given) != n or (given != np.round(given)).any() or (given < 0).any() or (given >= classes).any():
        raise InputError(f"labels must be {n} whole numbers between 0 and {classes - 1}, got {describe(labels)}")
    return given.astype(np.int64)


class _Rule(NamedTuple):
    """How outputs become a decision: the largest or smallest of several, or one above its cut-off."""

    smallest: bool
    cutoff: float

    def decide(self, net: Network, X: FloatArray) -> Decisions:
        y = net(X)
        bad = np.flatnonzero(~np.isfinite(y).all(axis=1))
        if len(bad):
            raise InputError(f"X must have finite outputs; row {bad[0]} overflows")
        if net.n_outputs == 1:
            return np.asarray(y[:, 0] > self.cutoff, dtype=np.int64)
        return np.asarray(y.argmin(axis=1) if self.smallest else y.argmax(axis=1), dtype=np.int64)


def _rule(net: Network, decision: str | None) -> _Rule:
    """As asked for, as the schema says, else the largest output."""
    if decision is not None:
        choice(decision, "decision", ("largest", "smallest"))
        if net.n_outputs == 1:
            raise InputError("decision is for several outputs; one output decides by the cut-off of its schema, or 0")
        return _Rule(decision == "smallest", 0.0)
    limit = None if net.schema is None else net.schema.threshold()
    if limit is not None and not math.isfinite(limit):
        raise InputError("cutoff is beyond every value of the output: the decision never changes")
    return _Rule(net.schema is not None and net.schema.rule == "smallest", limit or 0.0)


# -- the work ------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Work:
    """What has been proved so far; every step leaves it valid."""

    net: Network
    X: FloatArray
    sigma: FloatArray
    wanted: float
    scale: FloatArray
    rule: _Rule
    decision: Decisions
    box: float | None
    limit: Budget
    report: Report

    def __post_init__(self) -> None:
        n, k = len(self.X), len(self.sigma)
        self.upper, self.lower = np.ones((n, k)), np.zeros((n, k))
        self.radius = np.full((n, k), _LEAST)
        self.largest, self.boxes = np.zeros(n), np.zeros(n)
        self.noise = Noise(self.net, self.scale, *self.rule)
        self.count = 0
        self.looked = 0
        self.boxed = False
        self._margins: dict[int, Network] = {}
        self.ratio = _SHARE  # of the linear distance, at which relaxations collapse; learnt from row to row
        self.tail_radius = 0.0  # whose tails cost about half of what is wanted

    def run(self, *, split: bool) -> str | None:
        """All passes; why it ended early, or None."""
        rows = range(len(self.X))
        try:
            with deadline(lambda: self.limit.spent() is not None):
                for done in self._rows("_table"):
                    self.looked = done
                    self.report(done, f"row {done:,} of {len(rows):,}")
                for done in self._rows("_largest"):
                    self.report(done, f"largest sigma of row {done:,} of {len(rows):,}")
                if self.box is not None:
                    for _ in self._rows("_box"):
                        pass
                    self.boxed = True
                if split:
                    self._split()
        except OutOfTimeError:
            spent = self.limit.spent(self.count)
            assert spent is not None
            some = f" after {self.looked:,} of {count(len(rows), 'row')}" if self.looked < len(rows) else ""
            return Stop(f"{spent}{some}", spent.status)
        except KeyboardInterrupt:
            return Stop("interrupted; what was proved so far", Status.INTERRUPTED)
        return None

    def _rows(self, work: str) -> Iterator[int]:
        """`self.work(i)` for every row; after each, how many are done.

        The first rows teach where to begin. Then blocks of rows go their ways, each learning for itself, so that
        several workers may take them.
        """
        n, jobs = len(self.X), jobs_at_hand()
        for i in range(min(_FIRST, n)):
            getattr(self, work)(i)
            yield i + 1
        blocks = [range(i, min(i + _BLOCK, n)) for i in range(_FIRST, n, _BLOCK)]
        learnt = self.ratio, self.tail_radius
        if alone(jobs):
            for block in blocks:
                self.ratio, self.tail_radius = learnt
                for i in block:
                    getattr(self, work)(i)
                    yield i + 1
            self.ratio, self.tail_radius = learnt
            return
        cap = self.limit.regions - self.count
        bare = copy.copy(self)
        bare.report = _silent
        for block, found in zip(
            blocks, run(_of_block, blocks, shared=(bare, work, learnt, cap), jobs=jobs), strict=True
        ):
            if (
                found is None or self.count + found.relaxations > self.limit.regions
            ):  # here the count of relaxations ends
                self.ratio, self.tail_radius = learnt
                for i in block:
                    getattr(self, work)(i)
                    yield i + 1
                continue
            here = slice(block.start, block.stop)
            for name, rows in found.rows.items():
                getattr(self, name)[here] = rows
            self.count += found.relaxations
            yield block.stop
        self.ratio, self.tail_radius = learnt

    def _check(self) -> None:
        if self.limit.spent(self.count) is not None:
            raise OutOfTimeError

    def _linear_distance(self, i: int) -> float:
        """Sigmas (times this, one standard deviation) to the boundary of the decision, were the network linear."""
        placed = self.noise.rows(int(self.decision[i]))
        y, J = self.net(self.X[i]), self.net.jacobian(self.X[i])
        margin, slope = placed.G @ y - placed.g, np.linalg.norm(placed.G @ J * self.scale, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            away = float(np.nanmin(np.where(slope > 0, margin / slope, np.inf)))
        return away if 0 < away < np.inf else 6.0 * float(self.sigma[-1])

    def _root(self, i: int, t: float, radius: float) -> Any:
        self._check()
        self.count += 1
        return self.noise.root(self.X[i], t, int(self.decision[i]), radius)

    def _table(self, i: int) -> None:
        """Bounds at every sigma asked for: the radius at which tails and event are about as large."""
        away = self._linear_distance(i)
        reach = self.ratio * away
        for k in range(len(self.sigma) - 1, -1, -1):
            t = float(self.sigma[k])
            at = self._best(i, k, t, reach / t)
            if at > _LEAST:
                reach = at * t
        self.ratio = float(np.clip(0.5 * (self.ratio + reach / away), 0.02, 1.0))
        # A bound below 1/2 holds for all smaller sigmas.
        holds = np.where(self.upper[i] < 0.5, self.upper[i], 1.0)
        self.upper[i] = np.minimum(self.upper[i], np.minimum.accumulate(holds[::-1])[::-1])
        proved = self.sigma[self.upper[i] <= self.wanted]
        self.largest[i] = proved[-1] if len(proved) else 0.0

    def _best(self, i: int, k: int, t: float, start: float) -> float:
        below, above = 0.0, np.inf  # radii at which the tails, or the event, are larger
        radius = float(np.clip(start, _LEAST, _MOST))
        for _ in range(_TRIES):
            root = self._root(i, t, radius)
            if root.upper < self.upper[i, k]:
                self.upper[i, k], self.radius[i, k] = root.upper, radius
            self.lower[i, k] = max(self.lower[i, k], root.lower)
            if root.paid == 0.0:
                break  # no unit is relaxed: the radius does not matter
            if root.open <= root.paid:
                below = radius
            else:
                above = radius
            if above <= _FINE * below or below >= _MOST or above <= _LEAST:
                break
            if above == np.inf:
                radius = min(1.15 * below, _MOST)
            elif below == 0.0:
                radius = max(above / 1.15, _LEAST)
            else:
                radius = 0.5 * (below + above)
        return below or radius

    def _largest(self, i: int) -> None:
        """The largest sigma at which one relaxation proves what is wanted."""
        if not self.tail_radius:
            units = max(int((self.net.pieces - 1).sum()), 1)
            self.tail_radius = math.sqrt(2.0 * math.log(2.0 * units / self.wanted))

        def holds(t: float) -> bool:
            for _ in range(3):
                root = self._root(i, t, self.tail_radius)
                # Tails fall like exp(-radius^2 / 2): towards half of what is wanted, the rest is for the event.
                if root.paid > 0.0 and not 0.2 < root.paid / self.wanted < 0.8:
                    square = self.tail_radius**2 + 2.0 * math.log(root.paid / (0.5 * self.wanted))
                    self.tail_radius = float(np.clip(math.sqrt(max(square, 0.0)), _LEAST, _MOST))
                if root.upper <= self.wanted:
                    self.largest[i] = max(self.largest[i], t)
                    return True
                if root.paid <= 0.8 * self.wanted:
                    break
            return False

        known = float(self.largest[i])
        reach = [r * s for r, s, u in zip(self.radius[i], self.sigma, self.upper[i], strict=True) if u < 0.5]
        start = (reach[-1] if reach else self.ratio * self._linear_distance(i)) / self.tail_radius
        self._bisect(holds, max(start, 1.02 * known), known, 1.04, _CLOSE)
        small = self.sigma <= self.largest[i]
        self.upper[i, small] = np.minimum(self.upper[i, small], self.wanted)

    def _bisect(self, holds: Callable[[float], bool], t: float, low: float, step: float, close: float) -> None:
        """Ask for larger sigmas while they hold, smaller ones while they do not, then in between, from t on."""
        high, far = math.inf, 1e12
        for _ in range(_TRIES):
            if holds(t):
                low = max(low, t)
            else:
                high = min(high, t)
            if high <= close * low or not self.sigma[0] / far < t < self.sigma[-1] * far:
                return
            if low == 0.0 or high == math.inf:
                t = t * step if high == math.inf else t / step
                step = min(step * step, 8.0)
            else:
                t = math.sqrt(low * high)

    # -- boxes -----------------------------------------------------------------------------------------------------

    def _box(self, i: int) -> None:
        """The largest sigma whose box is proved to keep the decision."""
        margins = self._margin_network(int(self.decision[i]))
        half = float(self.box or 0.0) * self.scale

        def holds(t: float) -> bool:
            self._check()
            kept = bool((box_preactivations(margins, self.X[i] - t * half, self.X[i] + t * half)[-1].lower > 0).all())
            if kept:
                self.boxes[i] = max(self.boxes[i], t)
            return kept

        # The first rows, and those of this row's own block.
        block = max(i - (i - _FIRST) % _BLOCK, 0) if i >= _FIRST else 0
        before = np.concatenate([self.boxes[: min(_FIRST, i)], self.boxes[max(block, _FIRST) : i]])
        seen = before[before > 0]
        self._bisect(holds, float(np.median(seen)) if len(seen) else 0.2 * float(self.sigma[0]), 0.0, 1.3, 1.02)

    def _margin_network(self, decision: int) -> Network:
        """The network with a last hidden layer of margins, all of them positive where the decision is kept."""
        if decision not in self._margins:
            last, placed = self.net.layers[-1], self.noise.rows(decision)
            G = placed.G
            layers: list[Any] = [(a.weight, a.bias, a.units) for a in self.net.hidden]
            layers.append((last.weight, last.bias, Units.uniform(identity(), last.width)))
            layers.append((G, -placed.g, Units.uniform(relu(), len(G))))
            self._margins[decision] = Network([*layers, (np.ones((1, len(G))), None)])
        return self._margins[decision]

    # -- splitting -------------------------------------------------------------------------------------------------

    def _split(self) -> None:
        """Split units for what is undecided: what is nearest to a proof first, what draws speak against last."""
        open_ = np.argwhere((self.upper > self.wanted) & (self.lower <= self.wanted))
        order = sorted(open_.tolist(), key=lambda pair: (self._drawn(*pair), self.upper[tuple(pair)], pair))
        for done, (i, k) in enumerate(order):
            self._check()
            own = self._part(1.0 / (len(order) - done))
            search = self.noise.search(self.X[i], float(self.sigma[k]), int(self.decision[i]))
            before = self.count

            def spent(own: Budget = own, search: Any = search, before: int = before) -> bool:
                self.count = before + search.nodes
                return search.upper <= self.wanted or own.spent(self.count) is not None

            try:
                search.scan(spent)
                while not spent() and not search.exhausted:
                    search.work(spent)
            finally:  # its bounds hold at any moment
                self.upper[i, k] = min(self.upper[i, k], self.noise.whole(search.upper))
                self.lower[i, k] = max(self.lower[i, k], search.lower)
            self.report(done + 1, f"{done + 1:,} of {len(order):,} undecided rows")
        if (self.upper > self.wanted).any():
            self._check()

    def _part(self, share: float) -> Budget:
        """This share of the seconds and of the relaxations that are left."""
        own = self.limit.part(share) if math.isfinite(self.limit.seconds) else self.limit
        return replace(own, regions=self.count + share * (self.limit.regions - self.count))

    def _drawn(self, i: int, k: int) -> bool:
        """Whether a few draws of the noise change the decision: a hint where proofs are not to be expected."""
        draws = np.random.default_rng(0).standard_normal((_DRAWS, self.net.n_inputs))
        X = self.X[i] + self.sigma[k] * self.scale * draws
        return bool((self.rule.decide(self.net, X) != self.decision[i]).any())


class _Found(NamedTuple):
    """What a worker has found about a block of rows, and how many relaxations that took."""

    rows: dict[str, npt.NDArray[Any]]
    relaxations: int


def _silent(done: int, text: str) -> None:
    """Workers report nothing: who shares their work out does."""


_RESULTS = ("upper", "lower", "radius", "largest", "boxes")


def _of_block(block: range, whole: Any, work: str, learnt: tuple[float, float], cap: float) -> _Found | None:
    """What a worker does; None where the count of relaxations ends inside of the block."""
    own = copy.copy(whole)
    for name in _RESULTS:
        setattr(own, name, getattr(whole, name).copy())
    own.ratio, own.tail_radius = learnt
    own.count, own.limit = 0, replace(whole.limit, regions=cap)
    try:
        for i in block:
            getattr(own, work)(i)
    except OutOfTimeError:
        if own.count >= cap:
            return None
        raise
    here = slice(block.start, block.stop)
    return _Found({name: getattr(own, name)[here] for name in _RESULTS}, own.count)
