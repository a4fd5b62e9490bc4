"""The most probable patterns by search: best-first over prefixes, with the one traversal of `cells`.

The cell of a prefix (all pieces of the first layers) holds the cells of everything that continues it, so its mass
bounds theirs; the prefix with the largest mass is continued first, and a full pattern that comes to the front is the
most probable one left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from reluscope._check import EPS, FloatArray
from reluscope.answer import Answer, Answers
from reluscope.answers._probable_draws import refined
from reluscope.answers._probable_record import Probable
from reluscope.budget import Budget
from reluscope.cells.subdivide import Batch, BestFirst, CutPlan, Entry, Waiting, traverse
from reluscope.measure.exactness import all_exact
from reluscope.network import Network, Pattern
from reluscope.progress import Report
from reluscope.threads import blas_threads

if TYPE_CHECKING:
    from reluscope.cells.regions import Domain
    from reluscope.cells.split import Geometry
    from reluscope.inputs import Component

_AT_ONCE = 64
"""Prefixes that are continued together."""
_COARSE = 0.1
"""Relative accuracy of quasi-Monte Carlo masses of prefixes; those of listed patterns are refined afterwards."""
_MOST_IN_BATCH = 1 << 14
"""Children that are measured together."""

_Open: TypeAlias = Entry[Answers]
"""A prefix that waits to be continued (or a pattern, when it is complete), with the masses of its batch."""


class Search:
    """Best-first search; one frontier for all components, ordered by the upper bound on the weighted mass."""

    def __init__(
        self,
        net: Network,
        components: tuple[Component, ...],
        target: float | None,
        count: int | None,
        relative: float,
        level: float,
        budget: Budget,
        rng: np.random.Generator,
        report: Report,
    ) -> None:
        self.net, self.components = net, components
        self.target, self.count = target, count
        self.relative, self.level, self.budget, self.rng = relative, level, budget, rng
        self.report = report
        self.exact = all_exact(components)
        self.rounds = 0
        self.cells = 0
        self.sure = 0.0
        self.defect = 0.0
        self.stopped: str | None = None
        self.domains = [_domain(c) for c in components]
        self.plans = [CutPlan.whole_layers(c.network, _MOST_IN_BATCH) for c in components]
        self.number = {id(plan): i for i, plan in enumerate(self.plans)}
        self.frontier = _Frontier(self)
        self.known: dict[bytes, dict[int, tuple[float, float, float]]] = {}
        self.patterns: dict[bytes, Pattern] = {}

    def run(self) -> Probable:
        with blas_threads(max(self.net.widths)):
            for (_, cell), plan in zip(self.domains, self.plans, strict=True):
                self.frontier.push(plan.start(cell))
            for batch in traverse(self.frontier, stop=self._ends):
                self._keep(self.frontier.parents[0], batch)
            if len(self.components) > 1:
                self._complete_masses()
        return self._result(self.stopped)

    def _ends(self, visited: int) -> bool:
        self.stopped = self.budget.spent(self.cells)
        return self.stopped is not None or self._satisfied()

    def _keep(self, entry: _Open, batch: Batch) -> None:
        """A complete pattern of one component joins the list."""
        index, key = self.number[id(batch.plan)], batch.pattern[0].tobytes()
        weight, m, row = self.components[index].weight, entry.known, entry.row
        self.patterns.setdefault(key, batch.pattern[0])
        numbers = weight * float(m.value[row]), weight * float(m.lower[row]), weight * float(m.upper[row])
        self.known.setdefault(key, {})[index] = numbers
        self.sure += numbers[1]

    # -- masses of prefixes --------------------------------------------------------------------------------------

    def measure(self, batch: Batch) -> tuple[FloatArray, Answers]:
        """The upper bounds of the masses of a batch of prefixes, weighted, and the masses given the component."""
        index = self.number[id(batch.plan)]
        component = self.components[index]
        if batch.layer == 0:
            masses = Answers(np.ones(1), np.ones(1), np.ones(1), "exact")
        else:
            self.cells += len(batch.pattern)
            masses = self._masses(index, batch)
        return component.weight * masses.upper, masses

    def check(self, parents: list[_Open], inside: float, error: float) -> None:
        """The parts of a cell hold its mass. If they do not, the answer is widened by what is amiss."""
        if not self.exact:
            return
        whole = sum(float(e.known.value[e.row]) for e in parents)
        error += sum(float((e.known.upper - e.known.lower)[e.row]) for e in parents)
        if abs(whole - inside) > error + 1e-9:
            self.defect += self.components[self.number[id(parents[0].batch.plan)]].weight * abs(whole - inside)

    def _masses(self, index: int, batch: Batch) -> Answers:
        from reluscope.cells.regions import Regions
        from reluscope.measure.regions import component_masses

        component = self.components[index]
        net = component.network
        following = net.layers[batch.layer]
        short = Network([*net.layers[: batch.layer], (following.weight, following.bias)])
        found = Regions(short, self.domains[index][0], batch.cells, batch.pattern, batch.maps)
        # Round j of the search may spend 6 / (pi j)^2 of the risk: the shares of all rounds sum to 1.
        self.rounds += 1
        risk = (1.0 - self.level) * 6.0 / (np.pi * self.rounds) ** 2 / max(1, len(batch.pattern))
        options: dict[str, Any] = {"relative": _COARSE, "level": 1.0 - risk, "rng": self.rng}
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
        return float(sum(self.frontier.highest().values()))

    # -- mixtures ------------------------------------------------------------------------------------------------

    def _prefix_of(self, index: int, key: bytes) -> _Open | None:
        """The open prefix of a pattern in one component, if there is one."""
        plan = id(self.plans[index])
        prefixes = (self.frontier.open.get((plan, key[: int(end)])) for end in self.net.offsets[::-1])
        return next((entry for entry in prefixes if entry is not None), None)

    def _complete_masses(self) -> None:
        """Continue the prefixes of listed patterns in the other components until their masses there are known."""
        while not (self.budget.elapsed() > 2 * self.budget.seconds):
            work: dict[int, _Open] = {}
            for key in list(self.known):
                for index in range(len(self.components)):
                    entry = None if index in self.known[key] else self._prefix_of(index, key)
                    if entry is None:
                        continue
                    if entry.batch.final:
                        self._keep(entry, self.frontier.remove([entry]))
                    else:
                        work[id(entry)] = entry
            if not work:
                return
            groups: dict[tuple[int, int], list[_Open]] = {}
            for entry in list(work.values())[: 4 * _AT_ONCE]:
                groups.setdefault((id(entry.batch.plan), entry.batch.layer), []).append(entry)
            for group in groups.values():
                batch = self.frontier.remove(group)
                self.frontier.push(batch.plan.cut(batch))

    # -- the result ----------------------------------------------------------------------------------------------

    def _result(self, stopped: str | None) -> Probable:
        keys = list(self.known)
        numbers = np.zeros((len(keys), 3))
        for i, key in enumerate(keys):
            numbers[i] = np.sum(list(self.known[key].values()), axis=0)
            for index in range(len(self.components)):
                entry = None if index in self.known[key] else self._prefix_of(index, key)
                if entry is not None:
                    numbers[i, 2] += self.components[index].weight * float(entry.known.upper[entry.row])
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
        kind, level = ("exact", None) if self.exact else ("confidence", self.level)
        if self.exact and (self.defect > 0 or bool((high - low > 1e-6 * value + 1e-12).any())):
            kind = "sound"
        low, high = np.maximum(low - self.defect, 0.0), np.minimum(high + self.defect, 1.0)
        slack = (len(value) + 1) * EPS
        sure, most = max(0.0, float(low.sum()) - slack), min(1.0, float(high.sum()) + slack)
        found = Answer(min(float(value.sum()), 1.0), sure, most, kind, level)
        left = Answer(1.0 - found.value, 1.0 - found.upper, 1.0 - found.lower, kind, level)
        nothing = Answer(bound, 0.0, min(bound + self.defect, max(left.upper, bound)), kind, level)
        masses = Answers(value, low, high, kind, level)
        if not self.exact:
            masses = refined(masses, self.components, rows, self.relative, self.level, self.budget, self.rng)
        return Probable(self.net, rows, masses, found, left, nothing, stopped, f"search, {self.cells:,} cells")


class _Frontier(BestFirst[Answers]):
    """The open prefixes, heaviest first; what the parts of a cell hold is checked against the cell."""

    def __init__(self, search: Search) -> None:
        super().__init__(self._measured, _AT_ONCE)
        self.search = search
        self.inside = self.error = 0.0

    def push(self, waiting: list[Waiting]) -> None:
        self.inside = self.error = 0.0
        super().push(waiting)
        if self.parents:
            self.search.check(self.parents, self.inside, self.error)
        known = len(self.search.known)
        self.search.report(known, f"{known:,} patterns, {self.search.sure:.6g} found")

    def _measured(self, batch: Batch) -> tuple[FloatArray, Answers]:
        worth, masses = self.search.measure(batch)
        self.inside += float(masses.value.sum())
        self.error += float((masses.upper - masses.lower).sum())
        return worth, masses


def _domain(component: Component) -> tuple[Domain, Geometry]:
    """Where a component lives, and the starting cell of its search."""
    from reluscope.cells.domain import box_bounds, half_spaces, starting_cell
    from reluscope.cells.regions import Domain
    from reluscope.measure.regions import standard_domain

    where, n = standard_domain(component), component.network.n_inputs
    rows = half_spaces(where["polytope"], n) if "polytope" in where else None
    box = box_bounds(where["box"], n)
    return Domain(box, rows), starting_cell(n, box=box, polytope=rows)
