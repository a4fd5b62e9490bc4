"""The one traversal: layer by layer, split each cell by the hyperplanes that cross it.

Cells are worked on in batches. A geometry cuts a batch by units of one layer (compiled code); one matrix product gives
the next layer's affine maps on all children at once; the children wait in batches again. Nothing is visited twice: the
cost is linear in the number of cells over all layers. What can be chosen:

- the `CutPlan`: in which order, and how many at a time, the units of a layer cut;
- the frontier: `Stack` goes depth first, so memory is bounded by depth times batch size however many regions there
  are; `BestFirst` takes the cells of highest priority first;
- a screen, asked before every cut: which cells to drop, which to give out as they are, which to go on with;
- when to stop.

Rounding. Next to every affine map travels the probable error `e` of the pre-activations on its cell,

    e'^2 = (W o W) (s^2 e^2 + eps^2 z^2) + eps^2 b^2,

with `z` the largest activation on the cell. A unit whose value at a vertex is within `16 e` of a break point counts as
being on it. Thus coincident hyperplanes (duplicate units, zero biases, integer weights) cut once, and true slivers
stay, however thin, as long as double precision can tell them from a coincidence.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import EPS, FloatArray
from reluscope.activations import Units
from reluscope.cells.balance import check_range
from reluscope.cells.doubt import Cut, Doubts, inexact_slopes, least_slopes
from reluscope.cells.split import Geometry, Index, Split
from reluscope.cells.wide import FirstLayer, Listed, is_wide
from reluscope.network import Layer, Network, Pattern
from reluscope.threads import OutOfTimeError, blas_threads, deadline
from reluscope.workers import Unfolding, alone, more_wanted, on_cluster, unfold

BATCH_NUMBERS = 1 << 20
"""Numbers in the affine maps of one batch of cells, at most: a balance between the cache and Python's share of the
time, which workers in threads cannot divide."""
_PARTS, _FINER = 4, 4
"""Batches that the children of one cut make where they can, for workers to share; each this much smaller at most."""

MOST_CHILDREN = 1 << 17
"""Children that one split by units of the first layer may make."""
_FIRST_CHILDREN = 1 << 10
"""Children of the very first split where a cell takes long: enough for workers to share."""
_MOST_NUMBERS = 1 << 23
"""Numbers in the half-spaces of the children of one split: 64 MB. More cells than that wait for the next one."""
_AT_A_TIME = {0: 1 << 16, 1: 1 << 16, 2: 1 << 16, 3: 512, 4: 256, 5: 192, 6: 32}
"""Cells that a whole layer cuts together, by dimension (6 and more): a cut should take some hundredths of a second, so
that several workers end at the same time."""
_MANY_PARTS = 1024
"""Children that a cell of half-spaces is expected to have."""
_TOGETHER = 1 << 12
"""Cells that short lists of units make at a time, about."""
_HALF_SPACES = 6
"""From this dimension on cells are half-spaces, `dimension` numbers each."""

PROBABLE_ERRORS = 16.0
"""A unit switches inside a cell when it does so by more than this many probable rounding errors."""

_GROUPS = {1: 64, 2: 32, 3: 12}
_SMALL_GROUP = 6
"""Units that cut together between two screens, by dimension: n cut a cell into about `n^dimension` parts."""


_CACHED = 1 << 20
"""Weights of a layer that a cache holds (8 MB): from cell to cell they are gone through unit by unit; more by BLAS."""
_FEW_ON = 0.75
"""Up to this share of the units of a layer, those that are on somewhere in a batch are picked out of it."""


class Batch(NamedTuple):
    """Cells that the layers before `layer` have cut, and the first units of that layer in the plan's order.

    `maps` (n, dimension + 1, units) are the layer's pre-activations (the outputs after the last hidden layer) as affine
    functions, `y = maps[i, :-1].T x + maps[i, -1]`, and `error2` (n, units) their squared probable errors. `pattern`
    has the pieces of the layers before, `piece` and `top` the pieces and the scales of those units of this layer that
    have cut. `root[i]` is the starting cell.
    """

    plan: CutPlan
    layer: int
    cells: Geometry
    maps: FloatArray
    error2: FloatArray
    pattern: Pattern
    root: Index
    piece: Pattern
    top: FloatArray

    @property
    def final(self) -> bool:
        """Whether all layers have cut: the network is affine on every cell."""
        return self.layer == self.plan.depth

    def take(self, index: npt.NDArray[np.integer]) -> Batch:
        """The cells at `index` (increasing)."""
        if len(index) == len(self.root):
            return self
        return Batch._make([self.plan, self.layer, self.cells.take(index), *(array[index] for array in self[3:])])

    def part(self, start: int, stop: int) -> Batch:
        """Cells `start:stop`, as views."""
        return Batch._make(
            [self.plan, self.layer, self.cells.part(start, stop), *(array[start:stop] for array in self[3:])]
        )

    @classmethod
    def of_rows(cls, rows: Sequence[tuple[Batch, int]]) -> Batch:
        """Single cells of several batches of one plan and layer, as one batch."""
        first, i = rows[0]
        if len(rows) == 1:
            one = (array[i : i + 1] for array in first[3:])
            return cls._make([first.plan, first.layer, first.cells.part(i, i + 1), *one])
        cells = type(first.cells).join([b.cells.part(i, i + 1) for b, i in rows])
        columns = zip(*([array[i] for array in b[3:]] for b, i in rows), strict=True)
        return cls._make([first.plan, first.layer, cells, *map(np.stack, columns)])


class Waiting(NamedTuple):
    """Children of a batch; what is known of them is made from their parents' when their turn comes."""

    before: Batch
    cells: Geometry
    parent: Index
    piece: Pattern

    def ready(self) -> Batch:
        """The children; advanced to the next layer where all units of their layer have cut."""
        before, parent = self.before, self.parent
        if self.piece.shape[1] == before.maps.shape[2]:
            return before.plan.advance(self)
        if self.cells is before.cells:  # nothing has cut
            return before
        return before._replace(
            cells=self.cells,
            maps=before.maps[parent],
            error2=before.error2[parent],
            pattern=before.pattern[parent],
            root=before.root[parent],
            piece=self.piece,
            top=before.top[parent],
        )


@dataclass(frozen=True, eq=False)
class CutPlan:
    """How one network cuts: batches of `size` cells, and `group(layer, first, cells)` units at a time.

    `order[layer]` lists the units of a layer in the order in which they cut (None: as they are numbered). Facets are
    labelled by the position in that order. With `output_errors` the errors of the outputs are computed too. `doubts`
    (for units in their own order, and starting cells in the network's input space) counts what rounding could hide.
    At most `at_once` cells are cut together. Final cells come in batches of `last`, by default of `size` too.
    """

    net: Network
    size: int
    order: tuple[Index | None, ...]
    group: Callable[[int, int, int], int]
    output_errors: bool = False
    doubts: Doubts | None = None
    at_once: int = 1 << 16
    last: int | None = None

    def __post_init__(self) -> None:
        check_range(self.net)

    def but(self, **changes: Any) -> CutPlan:
        """This plan with some fields changed; the network is not checked again."""
        other = copy(self)
        for name, value in changes.items():
            object.__setattr__(other, name, value)
        return other

    @cached_property
    def depth(self) -> int:
        """Hidden layers."""
        return len(self.net.hidden)

    @cached_property
    def labels(self) -> list[int]:
        """The label of the first facet of each hidden layer."""
        return first_labels(self.net)

    @cached_property
    def least_slopes(self) -> list[FloatArray]:
        """Which slopes are surely exact enough, for unbounded cells: see `reluscope.cells.doubt`."""
        return least_slopes(self.net)

    @classmethod
    def plain(cls, net: Network, dimension: int, size: int | None = None) -> CutPlan:
        """All units of a layer at once, except that a wide first layer takes turns."""
        hidden = net.hidden

        def group(layer: int, first: int, cells: int) -> int:
            width, steps = hidden[layer].units.breaks.shape
            # All units of the first layer may cross a starting cell: in groups, so that each cut ends soon.
            if layer > 0:
                return width - first
            most = _FIRST_CHILDREN if first == 0 and 2 < dimension < _HALF_SPACES else MOST_CHILDREN
            return _group(dimension, width - first, steps, cells, width, most)

        at_once = _AT_A_TIME[min(dimension, _HALF_SPACES)]
        order = (None,) * len(hidden)
        if size is not None:
            return cls(net, size, order, group, at_once=at_once)
        last = min(1 << 16, max(64, BATCH_NUMBERS // ((dimension + 2) * net.n_outputs)))
        return cls(net, batch_size(net, dimension), order, group, at_once=at_once, last=last)

    @classmethod
    def whole_layers(cls, net: Network, size: int) -> CutPlan:
        """All units of every layer at once: children are cells of whole layers."""
        return cls(net, size, (None,) * len(net.hidden), lambda layer, first, cells: net.hidden[layer].width - first)

    @classmethod
    def by_influence(cls, net: Network, dimension: int) -> CutPlan:
        """The most influential units first, few at a time, so that cells can be screened in between.

        The cells of one layer's arrangement are too many to make at once in three dimensions and more.
        """
        order: list[Index] = []
        cutting: list[int] = []
        for here, following in itertools.pairwise(net.layers):
            with np.errstate(over="ignore", invalid="ignore"):  # an order only: any will do
                weight = np.asarray(abs(following.weight).sum(axis=0)).ravel() * np.sqrt(
                    np.asarray((here.weight * here.weight).sum(axis=1)).ravel()
                )
            bent = here.units.pieces > 1  # the others cut nothing, and come along with the last group
            order.append(np.lexsort((-weight, ~bent)))
            cutting.append(int(bent.sum()))
        most = _GROUPS.get(dimension, _SMALL_GROUP)

        def group(layer: int, first: int, cells: int) -> int:
            return most if cutting[layer] - first > most else len(order[layer]) - first

        return cls(net, batch_size(net, dimension), tuple(order), group, output_errors=True)

    def start(self, cells: Geometry, maps: FloatArray | None = None) -> list[Waiting]:
        """The starting cells in batches, last first; `maps` are the first layer's pre-activations on them."""
        first = self.net.layers[0]
        if maps is None:
            maps = np.concatenate([first.dense().T, first.bias[None]])[None]
        n = len(cells)
        maps = np.array(np.broadcast_to(maps, (n, *maps.shape[1:])), order="C")
        none = np.zeros((n, 0), np.uint8)
        error2 = (EPS * EPS) * squared_scale(cells, maps)
        whole = Batch(self, 0, cells, maps, error2, none, np.arange(n), none, np.zeros((n, 0)))
        return self._waiting(whole, cells, np.arange(n), none)

    def share(self, batch: Batch) -> int:
        """How many cells of a batch to cut together: `at_once`, and their children fit into little memory."""
        n, d = min(len(batch.root), self.at_once), batch.cells.dimension
        if d < _HALF_SPACES or n == 1:
            return n
        numbers = d * (batch.pattern.shape[1] + batch.maps.shape[2])  # rows of a child, at most
        return max(1, min(n, _MOST_NUMBERS // (numbers * _MANY_PARTS)))

    def cut(self, batch: Batch) -> list[Waiting]:
        """Split a batch by the next units of its layer; the children come in batches, last first."""
        from reluscope.cells._advance import tolerances

        layer, begin = batch.layer, batch.piece.shape[1]
        breaks = self.net.layers[layer].units.breaks
        end = begin + self.group(layer, begin, len(batch.cells))
        order = self.order[layer]
        units = slice(begin, end) if order is None else order[begin:end]
        label = self.labels[layer] + begin * breaks.shape[1]
        maps = np.ascontiguousarray(batch.maps[:, :, units])
        tolerance = tolerances(np.ascontiguousarray(batch.error2[:, units]), PROBABLE_ERRORS)
        found = batch.cells.split(maps, tolerance, breaks[units], label)
        piece, top = found.piece, found.top
        if self.doubts is not None:
            cut = Cut(layer, self.labels, batch.pattern, batch.piece)
            if layer and found.near is not None and getattr(batch.cells, "is_open", False):
                least = self.least_slopes[layer][begin:end]
                found.near[inexact_slopes(self.net, cut, np.arange(begin, end), maps, least)] = 2
            self.doubts.look(cut, np.arange(begin, end), maps, tolerance, found)
        if begin:
            piece = np.concatenate([batch.piece[found.parent], piece], axis=1)
            top = np.concatenate([batch.top, top], axis=1)
        return self._waiting(batch._replace(top=top), found.cells, found.parent, piece)

    def _waiting(self, before: Batch, cells: Geometry, parent: Index, piece: Pattern) -> list[Waiting]:
        n = len(parent)
        size = max(self.size // _FINER, min(self.size, -(-n // _PARTS)))
        if self.last is not None and before.layer + 1 == self.depth and piece.shape[1] == before.maps.shape[2]:
            size = self.last
        if 0 < n <= size:
            return [Waiting(before, cells, parent, piece)]
        return [
            Waiting(before, cells.part(i, min(i + size, n)), parent[i : i + size], piece[i : i + size])
            for i in reversed(range(0, n, size))
        ]

    def advance(self, waiting: Waiting) -> Batch:
        """Affine maps, probable errors and patterns of the children, for the units of the following layer."""
        before, cells, parent, piece = waiting
        layer, top, order = before.layer, before.top, self.order[before.layer]
        if order is not None:
            back = np.argsort(order)
            piece, top = np.ascontiguousarray(piece[:, back]), np.ascontiguousarray(top[:, back])
        errors = self.output_errors or layer + 1 < self.depth
        known = before.maps, before.error2, top, parent, piece
        new = _through(self.net, layer, known, before.pattern, before.root, errors)
        n = len(parent)
        return Batch(self, layer + 1, cells, *new, np.zeros((n, 0), np.uint8), np.zeros((n, 0)))


# -- in which order ------------------------------------------------------------------------------------------------


class Frontier(Protocol):
    """The cells that wait to be cut, and which of them come next."""

    def push(self, waiting: list[Waiting]) -> None:
        """Take in the children of the batch that was popped last."""
        ...

    def pop(self) -> Batch:
        """The next cells."""
        ...

    def back(self, batch: Batch) -> None:
        """The batch that was popped last waits again: there was no time to cut it."""
        ...

    def __len__(self) -> int: ...


class Stack:
    """Depth first."""

    def __init__(self, waiting: list[Waiting]) -> None:
        self.waiting = waiting

    def push(self, waiting: list[Waiting]) -> None:
        """Take in the children of the batch that was popped last."""
        self.waiting += waiting

    def pop(self) -> Batch:
        """The batch that came last."""
        return self.waiting.pop().ready()

    def back(self, batch: Batch) -> None:
        """The batch that was popped last waits again: there was no time to cut it."""
        self.waiting.append(_as_waiting(batch))

    def __len__(self) -> int:
        return len(self.waiting)


Known = TypeVar("Known")


class Entry(NamedTuple, Generic[Known]):
    """One cell of a best-first frontier; `known` is what the priority was made from, for its whole batch.

    `key` is the plan's `id` and the pattern so far.
    """

    batch: Batch
    row: int
    known: Known
    key: tuple[int, bytes]


class BestFirst(Generic[Known]):
    """Cells of highest priority first, up to `together` at a time; final cells come alone, once they lead.

    `priority(batch)` gives one number for each cell (those with 0 are dropped) and a record to keep with them. It must
    not rise from a cell to its parts. Batches of several plans may wait together.
    """

    def __init__(self, priority: Callable[[Batch], tuple[FloatArray, Known]], together: int) -> None:
        self.priority, self.together = priority, together
        self.heap: list[tuple[float, int, Entry[Known]]] = []
        self.open: dict[tuple[int, bytes], Entry[Known]] = {}
        self.parents: list[Entry[Known]] = []
        """The entries of the batch that was popped last."""
        self._serial = itertools.count()
        self._next: list[list[tuple[float, Entry[Known]]]] = []
        self._popped: list[tuple[float, Entry[Known]]] = []

    def push(self, waiting: list[Waiting]) -> None:
        """Take in the children of the batch that was popped last."""
        for children in waiting:
            batch = children.ready()
            worth, known = self.priority(batch)
            plan, width, patterns = id(batch.plan), batch.pattern.shape[1], batch.pattern.tobytes()
            for row, value in enumerate(worth.tolist()):
                if value > 0:
                    key = plan, patterns[row * width : (row + 1) * width]
                    self.open[key] = entry = Entry(batch, row, known, key)
                    heapq.heappush(self.heap, (-value, next(self._serial), entry))

    def pop(self) -> Batch:
        """The cells of highest priority that one cut can take together, or one final cell."""
        if not self._next:
            self._next = self._leading()
        self._popped = self._next.pop(0)
        return self.remove([entry for _, entry in self._popped])

    def back(self, batch: Batch) -> None:
        """The batch that was popped last waits again: there was no time to cut it."""
        for worth, entry in self._popped:
            self.open[entry.key] = entry
            heapq.heappush(self.heap, (-worth, next(self._serial), entry))

    def remove(self, entries: list[Entry[Known]]) -> Batch:
        """These cells (of one plan and layer) as a batch; they no longer wait."""
        for entry in entries:
            del self.open[entry.key]
        self.parents = entries
        return Batch.of_rows([(e.batch, e.row) for e in entries])

    def highest(self) -> dict[int, float]:
        """The highest priority of the waiting cells of each plan, by the plan's `id`."""
        out: dict[int, float] = {}
        for group in self._next:
            for worth, entry in group:
                out[entry.key[0]] = max(worth, out.get(entry.key[0], 0.0))
        for cost, _, entry in self.heap:
            if -cost > out.get(entry.key[0], 0.0) and self.open.get(entry.key) is entry:
                out[entry.key[0]] = -cost
        return out

    def _leader(self) -> tuple[float, Entry[Known]] | None:
        while self.heap and self.open.get(self.heap[0][2].key) is not self.heap[0][2]:
            heapq.heappop(self.heap)
        return (-self.heap[0][0], self.heap[0][2]) if self.heap else None

    def _leading(self) -> list[list[tuple[float, Entry[Known]]]]:
        groups: dict[tuple[int, int], list[tuple[float, Entry[Known]]]] = {}
        for _ in range(self.together):
            leader = self._leader()
            if leader is None or (groups and leader[1].batch.final):
                break
            heapq.heappop(self.heap)
            batch = leader[1].batch
            if batch.final:
                return [[leader]]
            groups.setdefault((id(batch.plan), batch.layer), []).append(leader)
        return list(groups.values())

    def __len__(self) -> int:
        return len(self.open)


# -- the walk ------------------------------------------------------------------------------------------------------

Screen = Callable[[Batch], tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]
"""Which cells of a batch to give out as they are, and which to go on with; the others are dropped."""


def traverse(
    frontier: Frontier,
    *,
    screen: Screen | None = None,
    stop: Callable[[int], bool] | None = None,
    seen: Callable[[int], None] | None = None,
    jobs: int = 1,
    keep: bool = True,
) -> Iterator[Batch]:
    """Cut until nothing waits; gives out final cells, and cells that the screen settled before (`final` tells which).

    `stop(visited)` is asked before every batch with the number of cells looked at so far. What then still waits stays
    in the frontier. `seen` hears how many cells each batch has. A stack may be worked on by several workers (`jobs`),
    with the same batches in the same order; the screen is then asked by several at once. Without `keep` they need not
    leave what still waits in the frontier.
    """
    if isinstance(frontier, Stack) and not alone(jobs):
        yield from _shared(frontier, screen, stop, seen, jobs, keep)
        return
    visited = 0
    while len(frontier):
        if stop is not None and stop(visited):
            return
        batch = frontier.pop()
        visited += len(batch.root)
        if seen is not None:
            seen(len(batch.root))
        if screen is not None:
            settled, left = screen(batch)
            if len(settled):
                yield batch.take(settled)
            if not len(left):
                continue
            batch = batch.take(left)
        if batch.final:
            yield batch
            continue
        if isinstance(frontier, Stack) and (some := batch.plan.share(batch)) < len(batch.root):
            frontier.back(batch.part(some, len(batch.root)))
            visited -= len(batch.root) - some
            batch = batch.part(0, some)
        try:
            with deadline(None if stop is None else partial(stop, visited)):
                children = batch.plan.cut(batch)
        except OutOfTimeError:
            frontier.back(batch)
            return
        frontier.push(children)


def _shared(
    frontier: Stack,
    screen: Screen | None,
    stop: Callable[[int], bool] | None,
    seen: Callable[[int], None] | None,
    jobs: int,
    keep: bool,
) -> Iterator[Batch]:
    """`traverse` of a stack by several workers."""
    if not frontier.waiting:
        return
    plan = frontier.waiting[0].before.plan
    stack = [_Node(_with(one, _NO_PLAN), 0, (k, 0)) for k, one in enumerate(frontier.waiting)]
    walk = _together(_Tree(plan, screen=screen), stack, stop, jobs, keep)
    try:
        for event in walk:
            if seen is not None:
                seen(event.cells)
            for batch in event.out:
                yield batch._replace(plan=plan)
    finally:
        walk.close()
        frontier.waiting[:] = [_with(cast("Waiting", node.item), plan) for node in stack]


_AT_ONCE = 0.05
_AT_ONCE_FAR = 0.5
"""Seconds that a worker walks before it says what it has found and what is left; on a cluster."""

_AT_LEAST = 0.002
"""Seconds that it walks even if others have nothing to do."""


Path = tuple[int, ...]
"""Where a batch stands in the tree of one search, two numbers for each cut above it and two for itself: its place
among the parts of that cut, and how many of its first cells were taken by others before."""


class _Node(NamedTuple):
    """A batch that waits, so many cuts below the first one, or cells that units of a wide first layer are to cut."""

    item: Waiting | Listed | list[Listed]
    depth: int
    path: Path


class _Event(NamedTuple):
    """A batch was popped: how many cells it had, what it gave out, and (if asked for) what it was before."""

    cells: int
    out: list[Batch]
    path: Path
    node: _Node | None
    looks: list[tuple[Any, ...]]
    """What is to be asked of the plan's `doubts`: in order, so that they say the same for any number of workers."""


class _Tree(NamedTuple):
    """What all batches of a search are cut by; `first` where the first layer is wide."""

    plan: CutPlan
    first: FirstLayer | None = None
    screen: Screen | None = None

    def opened(self, node: _Node) -> tuple[int, list[Batch], list[_Node]]:
        """How many cells a node has, what it gives out, and the nodes that wait in its place, last first."""
        item, depth, path = node
        if isinstance(item, list):
            n, out, parts = self._of_short_lists(item)
            return n, out, _numbered(parts, depth, path)
        if isinstance(item, Listed):
            assert self.first is not None
            return 0, [], _numbered(_by_length(self.first.cut(item, self.plan.doubts), self.plan.size), depth, path)
        batch = _with(item, self.plan).ready()
        n, out = len(batch.root), list[Batch]()
        if self.screen is not None:
            settled, left = self.screen(batch)
            if len(settled):
                out.append(batch.take(settled)._replace(plan=_NO_PLAN))
            batch = batch.take(left)
        if not len(batch.root):
            return n, out, []
        if batch.final:
            return n, [*out, batch._replace(plan=_NO_PLAN)], []
        some, size = self.plan.share(batch), len(batch.root)
        waiting = list[_Node]()
        if some < size:  # the rest in parts of this size, so that several workers can take them
            for begin in reversed(range(some, size, some)):
                rest = _with(_as_waiting(batch.part(begin, min(begin + some, size))), _NO_PLAN)
                waiting.append(_Node(rest, depth + 1, (*path[:-1], path[-1] + begin)))
            n -= size - some
            batch = batch.part(0, some)
        children = [_with(child, _NO_PLAN) for child in self.plan.cut(batch)]
        return n, out, waiting + _numbered(children, depth, path)

    def is_last(self, node: _Node) -> bool:
        """Whether the cells of a node are given out as they are: next to no work."""
        item = node.item
        if self.screen is not None or not isinstance(item, Waiting):
            return False
        return item.before.layer + 1 == self.plan.depth and item.piece.shape[1] == item.before.maps.shape[2]

    def _of_short_lists(self, cells: list[Listed]) -> tuple[int, list[Batch], list[Waiting]]:
        assert self.first is not None
        found = self.first.finish(cells[::-1], self.plan.doubts)  # last first, as all that waits
        n, size = len(found.pattern), self.plan.size
        none, root = np.zeros((n, 0), np.uint8), np.zeros(n, np.int64)
        made = Batch(_NO_PLAN, 1, found.cells, found.maps, found.error2, found.pattern, root, none, np.zeros((n, 0)))
        if self.plan.depth == 1:
            return n, [made], []
        parts = (made.part(i, min(i + size, n)) for i in reversed(range(0, n, size)))
        return n, [], [_as_waiting(part) for part in parts]


def _by_length(cells: list[Listed], size: int) -> list[Listed | list[Listed]]:
    """The same cells in their order; neighbours with short lists in groups that make about a batch."""
    out: list[Listed | list[Listed]] = []
    most, expected = min(size, _TOGETHER), 0
    for cell in cells:
        if not cell.short:
            out.append(cell)
            continue
        more = cell.expected
        if out and isinstance(out[-1], list) and expected + more <= most:
            out[-1].append(cell)
            expected += more
        else:
            out.append([cell])
            expected = more
    return out


def _numbered(items: Sequence[Waiting | Listed | list[Listed]], depth: int, path: Path) -> list[_Node]:
    return [_Node(item, depth + 1, (*path, k, 0)) for k, item in enumerate(items)]


class _Later:
    """In the place of `Doubts` in a worker: keeps what there is to ask."""

    def __init__(self) -> None:
        self.looks: list[tuple[Any, ...]] = []

    def look(self, batch: Cut, units: Index, maps: FloatArray, tolerance: FloatArray, found: Split[Geometry]) -> None:
        """See `Doubts.look`, which has nothing to do for most batches."""
        if found.near is not None and found.near.any():
            self.looks.append((batch, units, maps, tolerance, found))


def _some(
    node: _Node, tree: _Tree, seconds: float, keep: bool, doubtful: bool, alone: bool
) -> tuple[list[_Event], list[_Node]]:
    """What a worker does: walk the tree below a batch for a while; what happened, and what waits then, in order.

    The first cut of a tree is passed on at once: until then all others wait; so is the rest as soon as others have
    nothing to do. Cells that nothing cuts any more stay.
    """
    begun = time.monotonic()
    until = begun + (0.0 if alone and node.depth == 0 else seconds)
    stack, events = [node], list[_Event]()
    later = _Later()
    tree = tree._replace(plan=tree.plan.but(doubts=cast("Doubts", later) if doubtful else None))
    while stack and (not events or tree.is_last(stack[-1]) or time.monotonic() < until):
        node = stack.pop()
        n, out, waiting = tree.opened(node)
        stack += waiting
        if len(stack) > 1 and more_wanted():
            until = min(until, begun + _AT_LEAST)
        looks, later.looks = later.looks, []
        events.append(_Event(n, out, node.path, node if keep else None, looks))
    return events, stack[::-1]


_NO_PLAN = cast("CutPlan", None)
"""In the place of the plan while a batch travels: the plan travels once."""


def _with(waiting: Waiting, plan: CutPlan) -> Waiting:
    return waiting._replace(before=waiting.before._replace(plan=plan))


def _together(
    tree: _Tree,
    stack: list[_Node],
    stop: Callable[[int], bool] | None,
    jobs: int,
    keep: bool,
) -> Generator[_Event, None, None]:
    """The walk by several workers, each below a batch of its own; the order is that of one.

    When it ends early, `stack` has what still waits, if that is to be kept.
    """
    doubts = tree.plan.doubts
    visited = 0
    walk: Unfolding[_Event, _Node] = unfold(
        _some,
        stack[::-1],
        jobs=jobs,
        shared=(
            tree._replace(plan=tree.plan.but(doubts=None)),
            _AT_ONCE_FAR if on_cluster() else _AT_ONCE,
            keep,
            doubts is not None,
            len(stack) == 1,
        ),
        over=None if stop is None else lambda: stop(visited),
    )
    refused: list[_Event] = []
    try:
        if stop is not None and stop(visited):
            return
        for event in walk:
            if stop is not None and stop(visited):
                refused = [event]
                return
            visited += event.cells
            for look in event.looks:
                assert doubts is not None
                doubts.look(*look)
            yield event
    except OutOfTimeError:
        return
    finally:
        stack[:] = reversed(_before([*refused, *walk.left])) if keep else []


def _in_order(tree: _Tree, stack: list[_Node], stop: Callable[[int], bool] | None) -> Generator[_Event, None, None]:
    """The walk in the thread of the caller."""
    visited = 0
    while stack and not (stop is not None and stop(visited)):
        node = stack.pop()
        try:
            with deadline(None if stop is None else partial(stop, visited + 1)):
                n, out, waiting = tree.opened(node)
        except OutOfTimeError:
            return
        visited += n
        stack += waiting
        yield _Event(n, out, node.path, None, [])


def _before(left: list[_Event | _Node]) -> list[_Node]:
    """The batches that waited before those of `left`, in order, were worked on ahead of their time.

    What comes of a batch follows it, deeper down: only what is not below another one counts.
    """
    out: list[_Node] = []
    for item in left:
        node = item.node if isinstance(item, _Event) else item
        if node is not None and (not out or node.depth <= out[-1].depth):
            out.append(node)
    return out


def _as_waiting(batch: Batch) -> Waiting:
    return Waiting(batch, batch.cells, np.arange(len(batch.root)), batch.piece)


class Trail:
    """How far a search has come: `path` leads to the batch that was given out last, everything before it is done.

    With a path to begin with, the search goes on after it: the batches on the way are cut once more, no others.
    `last` then has the cells that were given out there, for the caller to compare.
    """

    def __init__(self, path: Path = ()) -> None:
        self.path, self.last = tuple(path), list[Batch]()


def subdivide(
    net: Network,
    cells: Geometry,
    start: FloatArray | None = None,
    *,
    batch: int | None = None,
    stop: Callable[[int], bool] | None = None,
    doubts: Doubts | None = None,
    jobs: int = 1,
    trail: Trail | None = None,
) -> Generator[Batch, None, None]:
    """All cells on which `net` is affine inside the starting cells, in batches.

    `cells` is a geometry (see `reluscope.cells.split`). `start` gives the first layer's pre-activations on the starting
    cells, shape (n, dimension + 1, units) or (1, ...); by default the cells live in the network's input space.
    `stop` is asked as by `traverse`, and `jobs` workers share the work. `doubts` counts what rounding could hide
    (without `start` only). `trail` is kept up to date, and says where to go on.
    """
    plan = CutPlan.plain(net, cells.dimension, batch)
    trail = trail or Trail()
    with blas_threads(max(net.widths[1:])):
        starting = plan.start(cells, start)
        waiting: Sequence[Waiting | Listed | list[Listed]] = [_with(one, _NO_PLAN) for one in starting]
        first = None
        if is_wide(net, cells):
            plan = plan.but(size=batch or max(128, BATCH_NUMBERS // ((cells.dimension + 2) * max(net.widths[2:]))))
            whole = starting[0].before
            first = FirstLayer(
                net,
                whole.maps[0],
                whole.error2[0],
                tolerance=PROBABLE_ERRORS * np.sqrt(whole.error2[0]),
                errors=plan.output_errors or plan.depth > 1,
            )
            waiting = _by_length([first.root(cells)], plan.size)
        tree = _Tree(plan, first)
        stack = _after(tree, _numbered(waiting, -1, ()), trail)
        tree = tree._replace(plan=plan.but(doubts=doubts if start is None else None))
        # A single wide layer is cut in steps too short for workers to share.
        one = alone(jobs) or (first is not None and plan.depth == 1)
        walk = _in_order(tree, stack, stop) if one else _together(tree, stack, stop, jobs, keep=False)
        for event in walk:
            for out in event.out:
                trail.path = event.path
                yield out._replace(plan=plan)


def _after(tree: _Tree, stack: list[_Node], trail: Trail) -> list[_Node]:
    """What waits after the batch that a trail leads to; its ancestors are cut once more. `ValueError` if it is lost."""
    kept, parts = list[_Node](), stack
    for end in range(2, len(trail.path) + 2, 2):
        place, offset = trail.path[end - 2 : end]
        if not 0 <= place < len(parts) or offset < 0:
            raise ValueError("the trail leads nowhere")
        kept += parts[:place]
        node = parts[place]
        if offset:
            if not isinstance(node.item, Waiting):
                raise ValueError("the trail leads nowhere")
            batch = _with(node.item, tree.plan).ready()
            rest = _as_waiting(batch.take(np.arange(offset, len(batch.root))))
            node = _Node(_with(rest, _NO_PLAN), node.depth, trail.path[:end])
        _, trail.last, waiting = tree.opened(node)
        others = [other for other in waiting if len(other.path) == end]  # the cells of the same batch that come later
        kept += others
        parts = waiting[len(others) :]
    if trail.path and not trail.last:  # it must lead to cells that were given out
        raise ValueError("the trail leads nowhere")
    return kept + parts


# -- small things --------------------------------------------------------------------------------------------------


def batch_size(net: Network, dimension: int) -> int:
    """How many cells make a batch; where a cell takes long, few enough for several workers to have some."""
    most = 1 << 16 if dimension < 3 else 512 if dimension < 6 else 256
    return min(most, max(64, BATCH_NUMBERS // ((dimension + 2) * max(net.widths[1:]))))


def _group(dimension: int, units: int, steps: int, cells: int, rows: int, most: int = MOST_CHILDREN) -> int:
    """How many units may take their turn: n hyperplanes cut a cell into at most `sum of C(n, i), i <= dimension`."""
    count = min(units, 8)
    if dimension >= _HALF_SPACES:
        most = min(most, _MOST_NUMBERS // (dimension * rows))
        count = min(count, max(1, int(math.log2(max(most // cells, 2))) // max(steps, 1)))
    while count < units:
        pieces = sum(math.comb((count + 1) * steps, i) for i in range(min(dimension, (count + 1) * steps) + 1))
        if cells * pieces > most:
            break
        count += 1
    return count


def next_maps(
    net: Network,
    layer: int,
    maps: FloatArray,
    error2: FloatArray,
    top: FloatArray,
    parent: Index,
    piece: Pattern,
    errors: bool = True,
) -> tuple[FloatArray, FloatArray]:
    """Affine maps of the layer after `layer` and their squared errors (n, units), or (n, 0) without `errors`.

    Child i has the pieces `piece[i]` and the maps, errors and scales `top` of cell `parent[i]`.
    """
    n = len(maps)
    nothing = np.zeros((n, 0), np.uint8), np.zeros(n, np.int64)
    return _through(net, layer, (maps, error2, top, parent, piece), *nothing, errors)[:2]


def _through(
    net: Network,
    layer: int,
    known: tuple[FloatArray, FloatArray, FloatArray, Index, Pattern],
    pattern: Pattern,
    root: Index,
    errors: bool,
) -> tuple[FloatArray, FloatArray, Pattern, Index]:
    """What `next_maps` gives, and the patterns and roots of the children.

    One call of a kernel where it can be: after each of them threads wait for the interpreter, which takes longer than
    to copy a pattern.
    """
    from reluscope.cells._advance import longer, through_relus

    units, following = net.layers[layer].units, net.layers[layer + 1]
    weight: Any = following.weight
    parent, piece = known[3:]
    if units.is_relu and not sparse.issparse(weight) and weight.size <= _CACHED:
        maps, error2, *whose = through_relus(*known, following.by_unit, following.bias, errors, pattern, root)
        return maps, error2 if errors else np.zeros((len(parent), 0)), *whose
    maps, error2 = _one_by_one(units, following, *known, errors)
    return maps, error2, *longer(pattern, root, parent, piece)


def _one_by_one(
    units: Units,
    following: Layer,
    maps: FloatArray,
    error2: FloatArray,
    top: FloatArray,
    parent: Index,
    piece: Pattern,
    errors: bool,
) -> tuple[FloatArray, FloatArray]:
    from reluscope.cells._advance import after_layer, after_relus

    weight: Any = following.weight
    squares: Any = following.squares if errors else None
    if units.is_relu:
        on = np.flatnonzero(np.bitwise_or.reduce(piece))
        if len(on) < _FEW_ON * piece.shape[1]:
            # Neighbours share most of their pattern: units that are off on all of them have no part in the product.
            weight = weight[:, on] if sparse.issparse(weight) else np.take(weight, on, axis=1)
            squares = weight * weight if errors else None
        else:
            on = np.arange(piece.shape[1])
        maps, error2 = after_relus(maps, error2, top, parent, piece, on, errors)
    else:
        maps, error2 = after_layer(maps, error2, top, parent, piece, units.slopes, units.intercepts, errors)
    n, rows, m = maps.shape
    new = _times(maps.reshape(n * rows, m), weight).reshape(n, rows, following.width)
    new[:, -1, :] += following.bias
    if not errors:
        return new, np.zeros((n, 0))
    error2 = _times(error2, squares)
    error2 += (EPS * EPS) * following.bias**2
    return new, error2


def _times(rows: FloatArray, weight: Any) -> FloatArray:
    if sparse.issparse(weight):
        return np.ascontiguousarray((weight @ rows.T).T)
    return rows @ weight.T


def squared_scale(cells: Geometry, maps: FloatArray) -> FloatArray:
    """Sum of squares of the terms of each first-layer pre-activation, at the far corner of each starting cell."""
    reach = cells.reach()
    with np.errstate(over="ignore"):
        return np.einsum("nd,ndm->nm", reach**2, maps[:, :-1] ** 2) + maps[:, -1] ** 2


def first_labels(net: Network) -> list[int]:
    """The label of the first facet of each hidden layer: labels number (layer, unit, break point)."""
    sizes = [layer.width * layer.units.breaks.shape[1] for layer in net.hidden]
    return [int(n) for n in np.concatenate([[0], np.cumsum(sizes)])]
