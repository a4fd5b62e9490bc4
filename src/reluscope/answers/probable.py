"""The most probable activation patterns, with a certificate of what was not found.

Two methods. *Search*: best-first over prefixes of patterns. The cell of a prefix (all pieces of the first layers) holds
the cells of everything that continues it, so its mass bounds theirs; the prefix with the largest mass is continued
first, and a full pattern that comes to the front is the most probable one left. *Draws*: patterns that occur among
draws, judged by a second, independent set of draws.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray, choice, generator, integer, real
from reluscope.answer import Answer
from reluscope.answers.support import checked, draw_patterns, enumerable, share
from reluscope.budget import Budget, parse_budget
from reluscope.errors import InputError
from reluscope.intervals import dkw
from reluscope.measure.regions import Masses
from reluscope.network import Network, Pattern
from reluscope.parallel import blas_threads
from reluscope.progress import Report, meter

if TYPE_CHECKING:
    from reluscope.inputs import Law
    from reluscope.inputs._standard import Component

_AT_ONCE = 64
"""Prefixes that are continued together."""
_COARSE = 0.1
"""Relative accuracy of quasi-Monte Carlo masses of prefixes; those of listed patterns are refined afterwards."""
_MOST_SEARCH_DIMENSIONS = 6
_MOST_POLYTOPES = 300
_MOST_POLYTOPE_DIMENSIONS = 40


@dataclass(frozen=True, eq=False, repr=False)
class Probable:
    """Patterns (n, units), most probable first, with their masses and what is left.

    `found` is the probability of all listed patterns together, `left` that of all others, and `next` bounds the mass of
    any single pattern that is not listed: [0, upper]. `ranked` leading patterns are certainly the most probable ones,
    in some order. `reached` says whether the target was reached, otherwise `stopped` says why not. With guarantee
    "confidence" each number's interval holds on its own at the stated level.
    """

    network: Network
    pattern: Pattern
    mass: Masses
    found: Answer
    left: Answer
    next: Answer
    stopped: str | None
    method: str

    def __len__(self) -> int:
        return len(self.pattern)

    def __iter__(self) -> Iterator[tuple[Pattern, Answer]]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> tuple[Pattern, Answer]:
        i = integer(i, "i", low=-len(self), high=len(self) - 1) % len(self)
        m = self.mass
        answer = Answer(float(m.value[i]), float(m.lower[i]), float(m.upper[i]), m.guarantee, m.level, self.method)
        return self.pattern[i], answer

    @property
    def reached(self) -> bool:
        """Whether the mass or the number that was asked for has been found (at the stated guarantee)."""
        return self.stopped is None

    @property
    def ranked(self) -> int:
        """How many leading patterns are certainly at least as probable as everything after them.

        With guarantee "confidence": if all intervals hold, each of which does so at the stated level only by itself.
        """
        after = np.append(np.maximum.accumulate(self.mass.upper[::-1])[::-1][1:], 0.0)
        sure = np.minimum.accumulate(self.mass.lower) >= np.maximum(after, self.next.upper)
        return int(np.flatnonzero(sure)[-1]) + 1 if sure.any() else 0

    def to_dict(self) -> dict[str, Any]:
        """Patterns as text with their masses, and the certificate."""
        return {
            "pattern": ["".join(map(str, row)) for row in self.pattern.tolist()],
            "mass": self.mass.value.tolist(),
            "mass_lower": self.mass.lower.tolist(),
            "mass_upper": self.mass.upper.tolist(),
            "guarantee": self.mass.guarantee,
            "found": self.found.to_dict(),
            "left": self.left.to_dict(),
            "next": self.next.to_dict(),
            "stopped": self.stopped,
            "method": self.method,
        }

    def __repr__(self) -> str:
        state = "" if self.reached else f", {self.stopped}"
        return (
            f"Probable({len(self):,} patterns, mass {self.found}, any other at most {self.next.upper:.3g}, "
            f"{self.method}{state})"
        )


def probable(
    net: Network,
    law: Law,
    *,
    mass: float | None = None,
    k: int | None = None,
    method: str = "auto",
    draws: int = 200_000,
    relative: float = 1e-2,
    confidence: float = 0.999,
    budget: Any = "30s",
    rng: Any = None,
    progress: Any = None,
) -> Probable:
    """The most probable patterns: the fewest found to hold probability `mass`, or the `k` most probable ones.

    Give one of `mass` (0 to 1; 0.99 when neither is given) and `k`.

    "search" (the default for laws the network sees in up to three dimensions, six for uniform laws): best-first over
    prefixes with `P(pattern) <= P(prefix)`, the joint probability of all pieces chosen so far, not a marginal. Masses
    are exact there, so the certificate is too: patterns come out in order, `left` is what the open prefixes hold,
    `next` the mass of the heaviest. In a mixture each component is searched and a pattern's masses are added up. In
    four to six dimensions prefix masses are quasi-Monte Carlo and slow; the risk `1 - confidence` is shared by all.

    "draws" (the default otherwise, so above three dimensions): candidates from `draws` inputs, judged by as many
    independent ones. The certificate holds at `confidence` whatever the network, but is only as sharp as the draws:
    nothing below about 20 / draws can be told from 0. `found` has an exact binomial interval for a given `k`, and a
    uniform one (Dvoretzky-Kiefer-Wolfowitz) when their number is chosen to reach `mass`. `next` holds for all patterns
    at once, seen or not: at most `1/p` patterns have mass p or more, so one of them shows up at most c times in n draws
    with probability at most `P(Bin(n, p) <= c) / p`. Masses of the leading patterns are computed as those of polytopes,
    to `relative` accuracy, as far as the budget goes (up to 300, in up to 40 dimensions); the others are counted.

    When the budget ends, or the draws cannot show the target, the best so far is returned and `stopped` says so.

    >>> from reluscope import Gaussian
    >>> net = Network([([[1.0], [1.0]], [0.0, -1.0]), ([[1.0, 1.0]], None)])
    >>> found = probable(net, Gaussian([0.0]), k=2)
    >>> found.pattern.tolist(), found.mass.value.round(4).tolist()
    ([[0, 0], [1, 0]], [0.5, 0.3413])
    """
    components = checked(net, law)
    if mass is not None and k is not None:
        raise InputError("give either mass or k, not both")
    wanted = 0.99 if mass is None and k is None else mass
    target = None if wanted is None else real(wanted, "mass", low=0.0, high=1.0)
    count = None if k is None else integer(k, "k", low=1)
    how = choice(method, "method", ("auto", "search", "draws"))
    samples = integer(draws, "draws", low=10)
    accuracy = real(relative, "relative", low=0.0, high=1.0, open_=True)
    level = real(confidence, "confidence", low=0.0, high=1.0, open_=True)
    limit, gen = parse_budget(budget), generator(rng)
    if how == "search" and max((c.r for c in components if c.kind != "point"), default=0) > _MOST_SEARCH_DIMENSIONS:
        raise InputError(
            f"method='search' is for laws seen in at most {_MOST_SEARCH_DIMENSIONS} dimensions, got "
            f"{max(c.r for c in components)}; use method='draws'"
        )
    if components[0].kind == "point":
        return _of_particles(net, law, target, count)
    if how == "search" or (how == "auto" and enumerable(components)):
        with meter(progress, "patterns") as report:
            return _Search(net, components, target, count, accuracy, level, limit, gen, report).run()
    return _from_draws(net, law, components, target, count, samples, accuracy, level, limit, gen)


# -- particles ---------------------------------------------------------------------------------------------------


def _of_particles(net: Network, law: Law, target: float | None, count: int | None) -> Probable:
    from reluscope.answers.support import enumerated_patterns

    found = enumerated_patterns(net, law, None)
    order = np.argsort(-found.value, kind="stable")
    value = found.value[order]
    sums = np.cumsum(value)
    n = min(count, len(order)) if count else int(np.searchsorted(sums, (target or 0.0) - 1e-12)) + 1
    n = min(n, len(order))
    chosen = order[:n]
    masses = Masses(found.value[chosen], found.lower[chosen], found.upper[chosen], "exact")
    rest = max(0.0, 1.0 - float(sums[n - 1])) if n < len(order) else 0.0
    nothing = float(value[n]) if n < len(order) else 0.0
    return Probable(
        net,
        found.pattern[chosen],
        masses,
        _exact(float(sums[n - 1]), 8 * len(order) * EPS),
        _exact(rest, 8 * len(order) * EPS),
        Answer(nothing, 0.0, nothing, "exact"),
        "fewer patterns than asked for" if count and n < count else None,
        "count of particles",
    )


def _exact(value: float, error: float) -> Answer:
    value = min(max(value, 0.0), 1.0)
    return Answer(value, max(0.0, value - error), min(1.0, value + error), "exact")


# -- search ------------------------------------------------------------------------------------------------------


class _Prefixes(NamedTuple):
    """Cells of one component after `layer` layers: maps of the next layer's units, errors, patterns, masses."""

    layer: int
    cells: Any
    maps: FloatArray
    error2: FloatArray
    pattern: Pattern
    masses: Masses


class _Open(NamedTuple):
    """A prefix that waits to be continued (or a pattern, when it is complete)."""

    component: int
    batch: _Prefixes
    row: int


class _Search:
    """Best-first search; one heap for all components, ordered by the upper bound on the weighted mass."""

    def __init__(
        self,
        net: Network,
        components: tuple[Component, ...],
        target: float | None,
        count: int | None,
        relative: float,
        confidence: float,
        budget: Budget,
        rng: np.random.Generator,
        report: Report,
    ) -> None:
        self.net, self.components = net, components
        self.target, self.count = target, count
        self.relative, self.confidence, self.budget, self.rng = relative, confidence, budget, rng
        self.report = report
        self.exact = enumerable(components)
        self.rounds = 0
        self.cells = 0
        self.sure = 0.0
        self.defect = 0.0
        self.depth = len(net.hidden)
        self.serial = itertools.count()
        self.heap: list[tuple[float, int, _Open]] = []
        self.waiting: list[dict[bytes, _Open]] = [{} for _ in components]
        self.known: dict[bytes, dict[int, tuple[float, float, float]]] = {}
        self.patterns: dict[bytes, Pattern] = {}

    def run(self) -> Probable:
        stopped = None
        with blas_threads(max(self.net.widths)):
            for index, component in enumerate(self.components):
                self._push(index, self._root(component))
            while self.heap:
                stopped = self.budget.spent(self.cells)
                if stopped or self._satisfied():
                    break
                self._continue(self._take())
                self.report(len(self.known), f"{len(self.known):,} patterns, {self.sure:.6g} found")
            if len(self.components) > 1:
                self._complete_masses()
        return self._result(stopped)

    # -- the frontier --------------------------------------------------------------------------------------------

    def _root(self, component: Component) -> _Prefixes:
        from reluscope.cells.domain import box_bounds, half_spaces, starting_cell
        from reluscope.cells.subdivide import squared_scale
        from reluscope.measure.regions import standard_domain

        domain = standard_domain(component)
        n = component.network.n_inputs
        box = box_bounds(domain["box"], n)
        rows = half_spaces(domain["polytope"], n) if "polytope" in domain else None
        cell = starting_cell(n, box=box, polytope=rows)
        first = component.network.layers[0]
        maps = np.concatenate([first.dense().T, first.bias[None]])[None]
        error2 = EPS * EPS * squared_scale(cell, maps)
        whole = Masses(np.ones(1), np.ones(1), np.ones(1), "exact")
        return _Prefixes(0, cell, maps, error2, np.zeros((1, 0), np.uint8), whole)

    def _push(self, component: int, batch: _Prefixes) -> None:
        weight = self.components[component].weight
        upper = weight * batch.masses.upper
        for row in np.flatnonzero(upper > 0):
            entry = _Open(component, batch, int(row))
            heapq.heappush(self.heap, (-float(upper[row]), next(self.serial), entry))
            self.waiting[component][batch.pattern[row].tobytes()] = entry

    def _take(self) -> list[_Open]:
        """The heaviest open prefixes, up to the first complete pattern; complete patterns at the front are kept."""
        taken: list[_Open] = []
        while self.heap and len(taken) < _AT_ONCE:
            _, _, entry = self.heap[0]
            if not self._is_open(entry):
                heapq.heappop(self.heap)
                continue
            if entry.batch.layer == self.depth:
                if taken:
                    break
                heapq.heappop(self.heap)
                self._keep(entry)
                if self._satisfied():
                    break
                continue
            heapq.heappop(self.heap)
            taken.append(entry)
        return taken

    def _is_open(self, entry: _Open) -> bool:
        return self.waiting[entry.component].get(entry.batch.pattern[entry.row].tobytes()) is entry

    def _keep(self, entry: _Open) -> None:
        """A complete pattern of one component joins the list."""
        key = entry.batch.pattern[entry.row].tobytes()
        del self.waiting[entry.component][key]
        weight, m = self.components[entry.component].weight, entry.batch.masses
        row = entry.row
        self.patterns.setdefault(key, entry.batch.pattern[row])
        numbers = weight * float(m.value[row]), weight * float(m.lower[row]), weight * float(m.upper[row])
        self.known.setdefault(key, {})[entry.component] = numbers
        self.sure += numbers[1]

    def _continue(self, entries: list[_Open]) -> None:
        """Split the cells of prefixes by their next layer; the parts become open."""
        groups: dict[tuple[int, int], list[_Open]] = {}
        for entry in entries:
            groups.setdefault((entry.component, entry.batch.layer), []).append(entry)
        for (component, layer), group in groups.items():
            for entry in group:
                del self.waiting[component][entry.batch.pattern[entry.row].tobytes()]
            kind = type(group[0].batch.cells)
            cells = kind.join([e.batch.cells.part(e.row, e.row + 1) for e in group])
            maps, error2, pattern = (
                np.stack([getattr(e.batch, name)[e.row] for e in group]) for name in ("maps", "error2", "pattern")
            )
            inside, error = self._split(component, layer, cells, maps, error2, pattern)
            if self.exact:
                whole = sum(float(e.batch.masses.value[e.row]) for e in group)
                error += sum(float((e.batch.masses.upper - e.batch.masses.lower)[e.row]) for e in group)
                # The parts of a cell hold its mass. If they do not, the answer is widened by what is amiss.
                if abs(whole - inside) > error + 1e-9:
                    self.defect += self.components[component].weight * abs(whole - inside)

    def _split(
        self, index: int, layer: int, cells: Any, maps: FloatArray, error2: FloatArray, pattern: Pattern
    ) -> tuple[float, float]:
        """Continue a batch of prefixes; the mass of all parts and a bound on its error."""
        from reluscope.cells.subdivide import Batch, advance, children

        net = self.components[index].network
        at = Batch(maps, error2, np.zeros((0, 0)), pattern, np.zeros(len(cells), dtype=np.int64))
        inside, error = 0.0, 0.0
        for pending in children(net, layer, cells, at, 1 << 14):
            last = layer + 1 == self.depth
            made = advance(net.layers[layer], net.layers[layer + 1], pending, last)
            masses = self._masses(index, layer + 1, pending.cells, made.pattern, made.maps)
            self.cells += len(made.pattern)
            kept = made.error2 if not last else np.zeros((len(made.pattern), 0))
            self._push(index, _Prefixes(layer + 1, pending.cells, made.maps, kept, made.pattern, masses))
            inside += float(masses.value.sum())
            error += float((masses.upper - masses.lower).sum())
        return inside, error

    def _masses(self, index: int, layer: int, cells: Any, pattern: Pattern, maps: FloatArray) -> Masses:
        from reluscope.cells.domain import box_bounds, half_spaces
        from reluscope.cells.regions import Domain, Regions
        from reluscope.measure.regions import component_masses, standard_domain

        component = self.components[index]
        net = component.network
        following = net.layers[layer]
        short = Network([*net.layers[:layer], (following.weight, following.bias)])
        domain = standard_domain(component)
        rows = half_spaces(domain["polytope"], net.n_inputs) if "polytope" in domain else None
        found = Regions(short, Domain(box_bounds(domain["box"], net.n_inputs), rows), cells, pattern, maps)
        # Round j of the search may spend 6 / (pi j)^2 of the risk: the shares of all rounds sum to 1.
        self.rounds += 1
        risk = (1.0 - self.confidence) * 6.0 / (np.pi * self.rounds) ** 2 / max(1, len(pattern))
        options: dict[str, Any] = {"relative": _COARSE, "confidence": 1.0 - risk, "rng": self.rng}
        return component_masses(component, found, self.budget, lambda done, text: None, options)

    # -- when to stop --------------------------------------------------------------------------------------------

    def _satisfied(self) -> bool:
        if self.target is not None:
            return self.sure >= self.target
        assert self.count is not None
        if len(self.known) < self.count:
            return False
        if self.exact and len(self.components) == 1:
            return True  # patterns came in order
        lows = sorted((sum(part[1] for part in known.values()) for known in self.known.values()), reverse=True)
        return lows[self.count - 1] >= self._bound_on_others()

    def _bound_on_others(self) -> float:
        """No pattern outside the list has more than the heaviest open prefixes of all components together."""
        while self.heap and not self._is_open(self.heap[0][2]):
            heapq.heappop(self.heap)
        if len(self.components) == 1:
            return -self.heap[0][0] if self.heap else 0.0
        heaviest = [0.0] * len(self.components)
        for cost, _, entry in self.heap:
            if -cost > heaviest[entry.component] and self._is_open(entry):
                heaviest[entry.component] = -cost
        return float(sum(heaviest))

    # -- mixtures ------------------------------------------------------------------------------------------------

    def _prefix_of(self, index: int, key: bytes) -> _Open | None:
        """The open prefix of a pattern in one component, if there is one."""
        waiting = self.waiting[index]
        for end in self.net.offsets[::-1]:
            entry = waiting.get(key[: int(end)])
            if entry is not None and len(entry.batch.pattern[entry.row]) == int(end):
                return entry
        return None

    def _complete_masses(self) -> None:
        """Continue the prefixes of listed patterns in the other components until their masses there are known."""
        while not (self.budget.elapsed() > 2 * self.budget.seconds):
            work: dict[int, _Open] = {}
            for key in list(self.known):
                for index in range(len(self.components)):
                    entry = None if index in self.known[key] else self._prefix_of(index, key)
                    if entry is None:
                        continue
                    if entry.batch.layer == self.depth:
                        self._keep(entry)
                    else:
                        work[id(entry)] = entry
            if not work:
                return
            self._continue(list(work.values())[: 4 * _AT_ONCE])

    # -- the result ----------------------------------------------------------------------------------------------

    def _result(self, stopped: str | None) -> Probable:
        keys = list(self.known)
        numbers = np.zeros((len(keys), 3))
        for i, key in enumerate(keys):
            numbers[i] = np.sum(list(self.known[key].values()), axis=0)
            for index in range(len(self.components)):
                entry = None if index in self.known[key] else self._prefix_of(index, key)
                if entry is not None:
                    share_ = self.components[index].weight * float(entry.batch.masses.upper[entry.row])
                    numbers[i, 2] += share_
        order = np.argsort(-numbers[:, 0], kind="stable")
        if stopped is None and not self._satisfied():
            stopped = "fewer patterns than asked for" if self.count else None
        bound = self._bound_on_others()
        size = self.count
        if self.target is not None:
            size = int(np.searchsorted(np.cumsum(numbers[order, 1]), self.target - 4 * EPS)) + 1
        bound = max(bound, float(numbers[order[size:], 2].max(initial=0.0)))
        order = order[:size]
        shape = (len(order), self.net.n_units)
        rows = np.array([self.patterns[keys[i]] for i in order], dtype=np.uint8).reshape(shape)
        value, low, high = numbers[order].T
        kind, level = ("exact", None) if self.exact else ("confidence", self.confidence)
        if self.exact and (self.defect > 0 or bool((high - low > 1e-6 * value + 1e-12).any())):
            kind = "sound"
        low, high = np.maximum(low - self.defect, 0.0), np.minimum(high + self.defect, 1.0)
        slack = (len(value) + 1) * EPS
        sure, most = max(0.0, float(low.sum()) - slack), min(1.0, float(high.sum()) + slack)
        found = Answer(min(float(value.sum()), 1.0), sure, most, kind, level)
        left = Answer(1.0 - found.value, 1.0 - found.upper, 1.0 - found.lower, kind, level)
        nothing = Answer(bound, 0.0, min(bound + self.defect, max(left.upper, bound)), kind, level)
        masses = Masses(value, low, high, kind, level)
        if not self.exact:
            masses = _refined(masses, self.components, rows, self.relative, self.confidence, self.budget, self.rng)
        return Probable(self.net, rows, masses, found, left, nothing, stopped, f"search, {self.cells:,} cells")


# -- draws -------------------------------------------------------------------------------------------------------


def _from_draws(
    net: Network,
    law: Law,
    components: tuple[Component, ...],
    target: float | None,
    count: int | None,
    draws: int,
    relative: float,
    confidence: float,
    budget: Budget,
    rng: np.random.Generator,
) -> Probable:
    candidates, seen = _tally(net, draw_patterns(net, law, components, draws, rng))
    order = np.argsort(-seen, kind="stable")
    candidates = candidates[order]
    judged, hits = _tally(net, draw_patterns(net, law, components, draws, rng))
    listed = {key: i for i, key in enumerate(net.key(candidates).tolist())}
    rank = np.array([listed.get(key, len(candidates)) for key in net.key(judged).tolist()])
    again = np.bincount(rank, hits, minlength=len(candidates) + 1)
    stopped = None
    if count is not None:
        size = min(count, len(candidates))
        inside = int(again[:size].sum())
        found = share(inside, draws, confidence)
        if size < count:
            stopped = f"only {size:,} patterns in {draws:,} draws"
    else:
        assert target is not None
        covered = np.cumsum(again[:-1]) / draws
        half = dkw(draws, confidence)
        enough = np.flatnonzero(covered - half >= target)
        size = int(enough[0]) + 1 if len(enough) else len(candidates)
        value = float(covered[size - 1])
        found = Answer(value, max(0.0, value - half), min(1.0, value + half), "confidence", confidence)
        if not len(enough):
            stopped = f"{draws:,} draws do not show a mass of {target:g}; more draws may"
    chosen = candidates[:size]
    each = [share(int(h), draws, confidence) for h in again[:size]]
    columns = [np.array([getattr(a, name) for a in each]) for name in ("value", "lower", "upper")]
    masses = Masses(columns[0], columns[1], columns[2], "confidence", confidence)
    masses = _refined(masses, components, chosen, relative, confidence, budget, rng)
    most = int(max(hits[rank >= size].max(initial=0), 0))
    # Half of the risk each for this bound and for the upper end of what is left, of which the smaller counts.
    bound = most_mass_with(most, draws, 0.5 * (1.0 - confidence))
    order = np.argsort(-masses.value, kind="stable")
    masses = Masses(masses.value[order], masses.lower[order], masses.upper[order], masses.guarantee, masses.level)
    left = Answer(1.0 - found.value, 1.0 - found.upper, 1.0 - found.lower, "confidence", confidence)
    nothing = Answer(most / draws, 0.0, min(bound, left.upper), "confidence", confidence)
    return Probable(
        net, chosen[order], masses, found, left, nothing, stopped, f"{draws:,} draws, judged by as many others"
    )


def _tally(net: Network, batches: Iterator[Pattern]) -> tuple[Pattern, npt.NDArray[np.int64]]:
    """Distinct patterns and how often they occur."""
    rows: list[Pattern] = []
    counts: list[npt.NDArray[np.int64]] = []
    for batch in batches:
        _, first, number = np.unique(net.key(batch), return_index=True, return_counts=True)
        rows.append(batch[first])
        counts.append(number.astype(np.int64))
    pattern = np.concatenate(rows)
    _, first, inverse = np.unique(net.key(pattern), return_index=True, return_inverse=True)
    return pattern[first], np.bincount(inverse, np.concatenate(counts)).astype(np.int64)


def most_mass_with(hits: int, draws: int, risk: float) -> float:
    """A mass that no pattern with at most `hits` draws exceeds, for all patterns and all `hits` at once.

    At most `1/p` patterns have mass p or more, and each shows up at most c times in n draws with probability at most
    `P(Bin(n, p) <= c)`. So the mass is the p where `P(Bin(n, p) <= c) / p` falls to `risk / ((c+1)(c+2))`; these shares
    sum to `risk` over c = 0, 1, 2, ...
    """
    from scipy.optimize import brentq
    from scipy.special import bdtr

    allowed = np.log(risk / ((hits + 1.0) * (hits + 2.0)))

    def excess(p: float) -> float:
        return float(np.log(max(bdtr(hits, draws, p), 1e-300)) - np.log(p) - allowed)

    if hits >= draws or excess(1.0 - 1e-12) > 0:
        return 1.0
    low = max(hits / draws, 1e-15)
    if excess(low) <= 0:
        return low
    return float(brentq(excess, low, 1.0 - 1e-12, xtol=1e-12, rtol=1e-9)) * (1 + 1e-9)


def _refined(
    counted: Masses,
    components: tuple[Component, ...],
    chosen: Pattern,
    relative: float,
    confidence: float,
    budget: Budget,
    rng: np.random.Generator,
) -> Masses:
    """Masses of the leading patterns computed as those of polytopes where that is cheap; the others as they were."""
    if any(c.kind != "gaussian" or c.r > _MOST_POLYTOPE_DIMENSIONS for c in components):
        return counted
    from reluscope.measure.regions import gaussian_mass

    value, low, high = counted.value.copy(), counted.lower.copy(), counted.upper.copy()
    each = 1.0 - (1.0 - confidence) / len(components)
    for i in range(min(len(chosen), _MOST_POLYTOPES // len(components))):
        if budget.spent():
            break
        parts = []
        for c in components:
            rows = c.network.polytope(chosen[i])
            parts.append(gaussian_mass(rows.A, rows.b, relative, each, rng).scaled(c.weight))
        both = Masses.added(parts)
        value[i], low[i], high[i] = float(both.value[0]), float(both.lower[0]), float(both.upper[0])
    return Masses(value, low, high, counted.guarantee, counted.level)
