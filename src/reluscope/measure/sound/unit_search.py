"""Which radius to search at, for one component of a law: the schedule around `units.Tree`.

A small radius is paid for by its tails, a large one makes the relaxation loose. The best radius is where both are about
as large; splitting units moves it outwards. So: look at the root at several radii, then grow a tree at the next larger
radius as long as that pays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from reluscope.measure.sound.relu_form import ReluForm
from reluscope.measure.sound.units import Tree
from reluscope.threads import OutOfTimeError

_RADII = (3.5, 4.5, 5.5, 6.5, 8.0, 10.0, 13.0, 17.0, 22.0, 28.0, 36.0)
_FIRST = 5.5

_STEP = 0.45
"""How much further out the next radius is."""

_FIRST_NODES = 64
"""Nodes of the first try at a radius. Work is counted, not timed, so that the same work gives the same answer."""

_AHEAD = 16
"""How many times its present nodes a tree is thought to grow when trees are compared."""

_PATIENCE = 2048
"""Nodes before which a bound that rises is no reason to stop."""

_KEEP = 6
"""Trees kept at a time."""


@dataclass(eq=False)
class Grown:
    """A tree, and what its open share and its bound were when it had half as many nodes."""

    tree: Tree
    before: tuple[int, float, float] | None = None

    @property
    def finished(self) -> bool:
        """Whether more nodes would hardly lower its bound."""
        # New tails may cost more than they bring; early on, bounds rise before they fall.
        stalled = self.before is not None and self.before[0] >= _PATIENCE and self.tree.upper >= self.before[2]
        return stalled or not self.tree.heap or self.tree.open + self.tree.settled <= 0.1 * self.tree.paid

    @property
    def outlook(self) -> float:
        """The bound to expect after some growth, if the open share goes on falling as it did."""
        tree = self.tree
        if self.finished:
            return tree.upper
        fall = 2.0
        if self.before is not None and tree.open > 0:
            fall = np.log(self.before[1] / tree.open) / np.log((tree.nodes + 1) / (self.before[0] + 1))
            fall = min(max(fall, 0.0), 4.0)
        return 1.2 * tree.paid + tree.settled + tree.open * _AHEAD**-fall

    def grow(self, spent: Callable[[], bool]) -> None:
        """About as many nodes again."""
        tree = self.tree
        goal = max(2 * tree.nodes, _FIRST_NODES)
        self.before = (tree.nodes, tree.open, tree.upper) if tree.nodes else None
        tree.grow(lambda: tree.nodes >= goal or spent(), 0.1 * tree.paid)


@dataclass(eq=False)
class ComponentSearch:
    """One component: the best bounds of the event's probability under it, and the trees that are growing."""

    weight: float
    form: ReluForm
    gaussian: bool
    upper: float = 1.0
    lower: float = 0.0
    at: float = 0.0
    grown: list[Grown] = field(default_factory=list)
    roots: int = 0
    scanned: bool = False
    exhausted: bool = False

    @property
    def nodes(self) -> int:
        """Nodes looked at, roots included."""
        return self.roots + sum(g.tree.nodes for g in self.grown)

    def scan(self, spent: Callable[[], bool]) -> None:
        """The roots at growing radii, until the relaxation collapses; at smaller ones if it does so at once."""
        self.scanned = True
        middle = _RADII.index(_FIRST)
        for radius in _RADII[middle:]:
            tree = self._try(radius)
            if tree.open + tree.settled > 0.1 or tree.upper > 1e3 * self.upper or spent():
                break
        if self.at in (0.0, _FIRST):
            for radius in _RADII[:middle][::-1]:
                if spent() or self._try(radius).upper > 3 * self.upper:
                    break
        self.grown = [Grown(self._try(self.at or _RADII[0]))]

    def _try(self, radius: float) -> Tree:
        tree = Tree(self.form, radius, self.gaussian)
        self.roots += 1
        self.lower = max(self.lower, tree.lower)
        self._take(tree)
        return tree

    def _take(self, tree: Tree) -> None:
        if tree.upper < self.upper:
            self.upper, self.at = tree.upper, tree.radius

    def work(self, spent: Callable[[], bool]) -> None:
        """Grow the tree with the best outlook; look one radius further where the outermost one is it."""
        last = self.grown[-1]
        best = min(self.grown, key=lambda g: g.outlook)
        if best is last and (best.finished or best.tree.nodes >= 4 * _FIRST_NODES):
            radius = last.tree.radius + _STEP
            if radius <= _RADII[-1]:
                self.grown.append(Grown(self._try(radius)))
                best = self.grown[-1]
        if best.finished:  # the others are worth it only if they can still fall below
            open_ = [g for g in self.grown if not g.finished and 1.2 * g.tree.paid < self.upper]
            if not open_ and last.tree.radius + _STEP <= _RADII[-1]:
                self.grown.append(Grown(self._try(last.tree.radius + _STEP)))
                open_ = self.grown[-1:]
            open_ = [g for g in open_ if not g.finished] or [g for g in self.grown if g.tree.heap]
            if not open_:
                self.exhausted = True
                return
            best = min(open_, key=lambda g: g.outlook)
        try:
            best.grow(spent)
        except OutOfTimeError:  # the tree is whole, unlike after other exceptions
            self._take(best.tree)
            raise
        self._take(best.tree)
        if len(self.grown) > _KEEP:
            worst = max(self.grown[:-1], key=lambda g: g.outlook)
            self.roots += worst.tree.nodes
            self.grown.remove(worst)
