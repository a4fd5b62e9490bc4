"""Counterfactuals: the nearest change of some features that changes the decision, proved nearest or with a bound.

"Had the limit been 50,000 higher, the decision would have been another one." Distance is a weighted sum over the
features that change (L1: few of them change) or the largest of them (Linf), each in its own unit of distance. The
search is a branch and bound with sound bounds (`_moves`): what it calls nearest is nearest, and an ended budget gives
the best so far with a proved lower bound on every other one.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count as tickets
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, choice, describe, integer, real, real_array, several
from reluscope._columns import columns_of, few
from reluscope._tables import Tabular
from reluscope._text import table as text_table
from reluscope.answer import Status
from reluscope.answers._moves import Goal, Moves, Nearest, Search
from reluscope.budget import Budget, parse_budget
from reluscope.errors import InputError
from reluscope.network import Network, check_network
from reluscope.progress import meter
from reluscope.schema import Column, Schema
from reluscope.threads import blas_threads, clean_interrupt

NORMS = ("l1", "linf")
_FIRST_PASS = 0.35
"""Share of a fair share of the time that each row gets at first; what is left goes to the rows that need it."""
_HINTS = 24
"""Rows of the data, nearest first, that the search may start from."""
_CLEAR = 1e-9
"""A decision counts as changed when it is clear by this share of the numbers in it: rounding cannot undo it."""
_MOST_FROZEN = 200
"""Sets of features that are kept as they are while other counterfactuals are looked for."""
_NO_OTHER = "no further way was found that leaves as it is, for every earlier one, some feature which that one changes"
"""Why there are fewer counterfactuals than were asked for."""


@dataclass(frozen=True, eq=False)
class Counterfactual:
    """A change of one row that changes its decision.

    Attributes
    ----------
    row : int
        Which row of those asked about.
    rank : int
        1 for the nearest.
    x : (inputs,) array or None
        The changed row in the network's numbers; None if there is none.
    changes : dict of str to (object, object)
        By column: the value it has, and the value it would need.
    distance : float
        From the row, in units of distance; inf if there is none.
    lower : float
        No such change is nearer than this: proved. inf where it is proved that there is none at all.
    proved : bool
        Whether `distance` is least, up to the share `relative` that was asked for; or that there is none.
    decision, wanted : object
        The class the row has, and the class after the change (None: any other, and none was met).
    before, after : float
        The output that decides (the probability of the last class, where it is one), before and after the change; nan
        for several outputs.
    status : Status
    note : str
    """

    row: int
    rank: int
    x: FloatArray | None
    changes: dict[str, tuple[Any, Any]]
    distance: float
    lower: float
    proved: bool
    decision: Any
    wanted: Any
    before: float
    after: float
    status: Status
    note: str

    def __bool__(self) -> bool:
        return self.x is not None

    def words(self) -> str:
        """The change in words.

        Returns
        -------
        str
        """
        if self.x is None:
            if self.proved:
                return f"no change within the bounds gives another decision than {self.decision} (proved)"
            return f"no change was found; there is none within a distance of {self.lower:.4g}"
        parts = [f"{name} {_figure(old)} -> {_figure(new)}" for name, (old, new) in self.changes.items()]
        least = "nearest" if self.proved else f"best so far, none nearer than {self.lower:.4g}"
        return f"{self.wanted} if {', '.join(parts)} (distance {self.distance:.4g}, {least})"

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, fit for JSON."""
        return {
            "row": self.row,
            "rank": self.rank,
            "decision": _plain(self.decision),
            "wanted": _plain(self.wanted),
            "distance": self.distance if self.x is not None else None,
            "lower": self.lower if np.isfinite(self.lower) else None,
            "proved": self.proved,
            "before": self.before,
            "after": self.after,
            "changes": {n: [_plain(a), _plain(b)] for n, (a, b) in self.changes.items()},
            "status": str(self.status),
            "note": self.note,
        }

    def __repr__(self) -> str:
        return f"Counterfactual(row {self.row}: {self.words()})"


@dataclass(frozen=True, eq=False, repr=False)
class Counterfactuals(Tabular):
    """The counterfactuals of some rows: a table with a line for each; `[i]` are those of row i, nearest first.

    Attributes
    ----------
    by_row : tuple of tuple of Counterfactual
    scale : dict of str to float
        What one unit of distance is, by column that may change: so much of the column's own unit, or the change of a
        level of a category.
    bounds : dict of str to (float, float)
        Between what each number that may change was looked for.
    steps : dict of str to float
        In what steps; 0 for any value.
    norm : str
        "l1" or "linf".
    relative : float
        Up to what share of the distance a counterfactual counts as nearest.
    status : Status
        BUDGET if some were not proved nearest.
    """

    by_row: tuple[tuple[Counterfactual, ...], ...]
    scale: dict[str, float]
    bounds: dict[str, tuple[float, float]]
    steps: dict[str, float]
    norm: str
    relative: float
    status: Status

    def __len__(self) -> int:
        return len(self.by_row)

    def __getitem__(self, row: int) -> tuple[Counterfactual, ...]:
        return self.by_row[integer(row, "row", low=-len(self), high=len(self) - 1)]

    @property
    def proved(self) -> int:
        """How many rows have a first counterfactual that is proved nearest, or a proof that there is none."""
        return sum(found[0].proved for found in self.by_row)

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per counterfactual."""
        out = []
        for c in (c for found in self.by_row for c in found):
            fields = c.to_dict()
            fields["changes"] = ", ".join(f"{n} {_figure(a)} -> {_figure(b)}" for n, (a, b) in c.changes.items())
            out.append(fields)
        return out

    def to_dict(self) -> dict[str, Any]:
        """The table by columns, fit for JSON."""
        rows = self.rows()
        return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}

    def __repr__(self) -> str:
        shown = ("row", "rank", "decision", "wanted", "distance", "lower", "proved", "changes")
        rows = self.rows()
        lines = [
            f"counterfactuals of {len(self):,} rows ({self.norm} distance): {self.proved:,} proved nearest",
            text_table(rows[:20], shown),
        ]
        lines += [f"{len(rows) - 20:,} more (to_pandas())"] if len(rows) > 20 else []
        limits = [
            f"{name} {low:.6g} to {high:.6g}" + (f" in steps of {self.steps[name]:g}" if self.steps[name] else "")
            for name, (low, high) in self.bounds.items()
        ]
        more = f" and {len(limits) - 6:,} more" if len(limits) > 6 else ""
        lines += [f"looked for within {', '.join(limits[:6])}{more} (bounds=, steps=)"] if limits else []
        short = [found[-1] for found in self.by_row if found[-1].x is not None and found[-1].note.startswith(_NO_OTHER)]
        lines += [f"{len(short):,} rows have fewer than asked for: {short[0].note}"] if short else []
        return "\n".join(lines)


@clean_interrupt()
def counterfactuals(
    net: Network,
    X: Any,
    *,
    target: Any = None,
    cutoff: float | None = None,
    change: Any = None,
    bounds: Mapping[str, Any] | None = None,
    direction: Mapping[str, str] | None = None,
    steps: Mapping[str, float] | None = None,
    scale: Any = None,
    norm: str = "l1",
    count: int = 1,
    data: Any = None,
    relative: float = 1e-4,
    budget: Any = None,
    progress: Any = None,
) -> Counterfactuals:
    """The nearest changes of rows that change their decision, each proved nearest.

    Parameters
    ----------
    net : Network
        Its schema has the decision rule (one output without a schema: above 0; several: the largest), and which columns
        are whole numbers or categories.
    X : (n, inputs), (inputs,) or a table
        Rows; tables in the units of their columns.
    target : optional
        The class to reach; by default any other than the row has.
    cutoff : float, optional
        In the place of the schema's, on the scale of the output: a probability for PD models.
    change : sequence of str or int, optional
        Columns that may change; by default all that are not constant.
    bounds : mapping, optional
        By column: `(low, high)` in its unit, or the levels that a category may take. By default what was seen in
        training, or in `data`, where that is known; `(-inf, inf)` lifts that.
    direction : mapping, optional
        By column: "up" or "down".
    steps : mapping, optional
        By column: the change is a multiple of this; 0 for any change. By default 1 for columns of whole numbers, which
        the schema names, or all of whose values in `data` and `X` are whole.
    scale : mapping or sequence, optional
        By column: what one unit of distance is; a category counts `1 / scale` if its level changes. By default the
        standard deviation in `data`, else the width of the range seen in training, else 1.
    norm : {"l1", "linf"}
        Sum of the features' distances, or the largest.
    count : int
        Counterfactuals per row. Each further one is another way to the goal, not a variant: for every earlier one it
        leaves some feature as it is that the earlier one changes. There may be fewer such ways; the `note` of the last
        one then says so.
    data : (m, inputs) or a table, optional
        Rows that the search may start from; they also give `scale` and `bounds`.
    relative : float
        A counterfactual counts as nearest when no other is nearer by this share.
    budget : str or float, optional
        Time for all rows together (None: "2 s" for each).
    progress : optional
        None (silent), "auto", or a function of (done, text).

    Returns
    -------
    Counterfactuals

    Raises
    ------
    InputError
        If a name, bound or class does not fit the network, or a row has a fractional value in a whole-number column.

    Notes
    -----
    Lower bounds are sound: they come from linear bounds of the network over all changes within a distance, and from
    linear programs whose multipliers are checked, with rounding taken off; the goal is relaxed by 1e-9 of its numbers
    in proofs, and every counterfactual is clear of the cut-off by as much. Cost grows with the number of units that can
    switch within the distance.

    Examples
    --------
    >>> import reluscope as rs
    >>> net = rs.Network([([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0]), ([[1.0, 2.0]], [-4.0])])  # above 0 is class 1
    >>> found = rs.counterfactuals(net, [[1.0, 1.0]], scale=[1.0, 1.0])
    >>> {name: (old, round(new, 6)) for name, (old, new) in found[0][0].changes.items()}, found[0][0].proved
    ({'x1': (1.0, 1.5)}, True)
    """
    check_network(net)
    norm = choice(norm, "norm", NORMS)
    count = integer(count, "count", low=1, high=50)
    relative = real(relative, "relative", low=1e-9, high=0.5)
    schema = _schema(net, cutoff)
    net = net.with_schema(schema)
    rows = _rows(net, X, "X")
    known = None if data is None else _rows(net, data, "data")
    features = _features(schema, rows, known, change, bounds, direction, steps, scale)
    labels = schema.classes or tuple(range(max(2, net.n_outputs)))
    outputs = net(rows)
    decisions = schema.decide(outputs)
    wanted = None if target is None else _class(schema, labels, target)
    limit = parse_budget(budget, f"{2 * len(rows)} s")
    hints = None if known is None else (known, schema.decide(net(known)))
    found: list[list[Counterfactual]] = [[] for _ in rows]
    values = schema.values(outputs)
    finder = _Finder(net, schema, features, labels, norm == "linf", relative, hints)
    with meter(progress, "counterfactuals") as report, blas_threads(max(net.widths)):
        share = limit.seconds / max(len(rows), 1)
        again: list[int] = []
        for i in range(len(rows)):
            first = Budget(min(_FIRST_PASS * share, max(limit.seconds - limit.elapsed(), 1e-3)), limit.regions)
            found[i] = finder.row(i, rows[i], int(decisions[i]), wanted, count, first)
            if any(not c.proved for c in found[i]) and np.isfinite(limit.seconds):
                again.append(i)
            report(i + 1, f"{i + 1:,} of {len(rows):,} rows")
        # Those that are nearest to a proof first, each with twice its share: so most rows are proved in the time.
        again.sort(key=lambda i: -found[i][0].lower / found[i][0].distance if found[i] else 0.0)
        for k, i in enumerate(again):
            left = limit.seconds - limit.elapsed()
            if left <= 0:
                break
            part = Budget(min(left, 2 * left / (len(again) - k)), limit.regions)
            more = finder.row(i, rows[i], int(decisions[i]), wanted, count, part)
            found[i] = _better(found[i], more)
            report(len(rows), f"{k + 1:,} of {len(again):,} rows again")
    single = values.shape[1] == 1
    named = []
    for i, mine in enumerate(found):
        for c in mine:
            object.__setattr__(c, "before", float(values[i, 0]) if single else float("nan"))
            if c.x is not None and single:
                object.__setattr__(c, "after", float(schema.values(net(c.x[None]))[0, 0]))
        named.append(tuple(mine))
    status = Status.DONE if all(c.proved for mine in found for c in mine) else Status.BUDGET
    numbers = [f for f in features if f.column.kind != "category"]
    return Counterfactuals(
        tuple(named),
        {f.column.name: f.scale for f in features},
        {f.column.name: (f.low, f.high) for f in numbers},
        {f.column.name: f.step for f in numbers},
        norm,
        relative,
        status,
    )


@dataclass(frozen=True, eq=False)
class _Feature:
    """A column that may change: where it stands, its steps and bounds in its own unit, its unit of distance."""

    column: Column
    place: slice
    low: float
    high: float
    step: float
    """0 for continuous."""
    scale: float
    up: bool
    down: bool
    levels: tuple[int, ...]


class _Finder:
    def __init__(
        self,
        net: Network,
        schema: Schema,
        features: list[_Feature],
        labels: tuple[Any, ...],
        largest: bool,
        relative: float,
        hints: tuple[FloatArray, npt.NDArray[np.intp]] | None,
    ) -> None:
        self.net, self.schema, self.features, self.labels = net, schema, features, labels
        self.largest, self.relative, self.hints = largest, relative, hints

    def row(
        self, i: int, x: FloatArray, decision: int, wanted: int | None, count: int, budget: Budget
    ) -> list[Counterfactual]:
        """The counterfactuals of one row, nearest first."""
        if wanted == decision:
            return [
                Counterfactual(
                    i, 1, x, {}, 0.0, 0.0, True, self.labels[decision], self.labels[decision], np.nan, np.nan,
                    Status.DONE, "the row is decided like this already",
                )
            ]  # fmt: skip
        moves = self._moves(x, i)
        goals = [k for k in range(len(self.labels)) if k != decision] if wanted is None else [wanted]
        out: list[Counterfactual] = []
        # Best first over sets of features that stay as they are: see `count`.
        queue: list[tuple[float, int, tuple[int, ...], Nearest, int]] = []
        ticket = tickets()
        seen: set[tuple[int, ...]] = set()

        def push(frozen: tuple[int, ...], share: float) -> None:
            if frozen in seen or len(seen) >= _MOST_FROZEN:
                return
            seen.add(frozen)
            best, goal = self._solve(moves.frozen(frozen), goals, budget.part(share))
            heapq.heappush(queue, (best.distance, next(ticket), frozen, best, goal))

        push((), 1.0 if count == 1 else 0.5)
        used: list[set[int]] = []
        while queue and len(out) < count:
            _, _, frozen, best, goal = heapq.heappop(queue)
            left = moves.frozen(frozen)
            changed = set() if best.t is None else set(left.feature[best.t > 0].tolist())
            again = next((s for s in used if s <= changed), None)
            if again is None or best.t is None:
                # Every other set of frozen features must not be nearer than this one is proved to be.
                others = min((item[3].lower for item in queue), default=np.inf)
                if best.t is None and out:
                    break
                c = self._record(i, len(out) + 1, x, left, best, min(best.lower, others), decision, wanted, goal)
                out.append(c)
                if best.t is None:
                    break
                used.append(changed)
                again = changed
            if len(out) < count:
                for f in sorted(again):
                    push(tuple(sorted({*frozen, f})), 1.0 / (2.0 * max(1, (count - len(out)) * len(again))))
        if out and out[-1].x is not None and len(out) < count:
            object.__setattr__(out[-1], "note", "; ".join(t for t in (_NO_OTHER, out[-1].note) if t))
        return out

    def _solve(self, moves: Moves, goals: list[int], budget: Budget) -> tuple[Nearest, int]:
        """The nearest over several classes to reach."""
        best: Nearest | None = None
        at = goals[0]
        lower, nodes, exhausted, stop, tie = np.inf, 0, True, None, False
        for k, goal in enumerate(goals):
            search = Search(self.net, moves, self._goal(goal))
            part = budget.part(1.0 / (len(goals) - k))
            most = np.inf if best is None else best.distance
            found = search.run(part, relative=self.relative, hints=self._starts(moves, goal), most=most)
            nodes += found.nodes
            lower = min(lower, found.lower)
            exhausted, stop, tie = exhausted and found.exhausted, stop or found.stop, tie or found.tie
            if best is None or found.distance < best.distance:
                best, at = found, goal
        assert best is not None
        lower = min(lower, best.distance) if best.t is not None else lower
        return Nearest(best.t, best.distance, lower, nodes, exhausted, stop, tie), at

    def _goal(self, k: int) -> Goal:
        schema, net = self.schema, self.net
        limit = schema.threshold()
        if limit is not None or net.n_outputs == 1:
            sign = -1.0 if k == 1 else 1.0
            G, g = np.array([[sign]]), np.array([sign * (limit or 0.0)])
        else:
            sign = -1.0 if schema.rule == "smallest" else 1.0
            others = [j for j in range(net.n_outputs) if j != k]
            G = np.zeros((len(others), net.n_outputs))
            G[np.arange(len(others)), others], G[:, k] = sign, -sign
            g = np.zeros(len(others))

        def reached(y: FloatArray) -> npt.NDArray[np.bool_]:
            size = _CLEAR * (np.abs(y) @ np.abs(G).T + np.abs(g))
            return np.asarray((y @ G.T < g - size).all(axis=1))  # strictly: outputs that are all 0 leave a tie

        return Goal(G, g, reached, self.labels[k])

    def _moves(self, x: FloatArray, row: int) -> Moves:
        effect, cost, most, feature, whole, pick = [], [], [], [], [], []
        for number, f in enumerate(self.features):
            here = x[f.place]
            if f.column.kind == "category":
                codes = np.array(f.column.codes)
                at = np.flatnonzero((codes == here).all(axis=1))
                if not len(at):
                    raise InputError(
                        f"X: row {row} has no level of {f.column.name!r}: its inputs are {here.tolist()[:8]}"
                    )
                for level in f.levels:
                    if (codes[level] == here).all():
                        continue
                    e = np.zeros(len(x))
                    e[f.place] = codes[level] - here
                    effect.append(e)
                    cost.append(1.0 / f.scale)
                    most.append(1.0)
                    feature.append(number)
                    whole.append(True)
                    pick.append(True)
                continue
            value = float(f.column.decode(here[None])[0])
            if f.column.kind == "integer":
                if abs(value - round(value)) > 1e-6 * max(1.0, abs(value)):
                    raise InputError(
                        f"X: row {row} has {value:.6g} in {f.column.name!r}, which takes whole numbers; give a row "
                        "that can occur, or a schema in which the column is continuous"
                    )
                value = float(round(value))
            unit = f.step or 1.0
            for allowed, sign, room in ((f.up, 1.0, f.high - value), (f.down, -1.0, value - f.low)):
                if not allowed or not room > 0:
                    continue
                n = room / unit
                n = float(np.floor(n + 1e-9)) if f.step else n
                if not n > 0:
                    continue
                e = np.zeros(len(x))
                e[f.place] = sign * unit * f.column.scale
                effect.append(e)
                cost.append(unit / f.scale)
                most.append(n)
                feature.append(number)
                whole.append(bool(f.step))
                pick.append(False)
        return Moves(
            x, np.array(effect).reshape(-1, len(x)), np.array(cost), np.array(most), np.array(feature, dtype=np.int64),
            np.array(whole, dtype=bool), np.array(pick, dtype=bool), self.largest,
        )  # fmt: skip

    def _starts(self, moves: Moves, goal: int) -> FloatArray | None:
        """Rows of the data on the other side, as moves: of the nearest ones, as far as they may be reached."""
        if self.hints is None or not len(moves):
            return None
        rows, decided = self.hints
        rows = rows[decided == goal]
        if not len(rows):
            return None
        D = rows - moves.start
        size = np.einsum("kj,kj->k", moves.effect, moves.effect)
        T = np.maximum(D @ moves.effect.T / size, 0.0)
        if moves.choice.any():  # a level is reached or not
            there = np.zeros((len(D), int(moves.choice.sum())))
            for c, k in enumerate(np.flatnonzero(moves.choice).tolist()):
                inside = np.flatnonzero(moves.effect[k])
                there[:, c] = (D[:, inside] == moves.effect[k, inside]).all(axis=1)
            T[:, moves.choice] = there
        T = np.minimum(T, moves.most)
        order = np.argsort(moves.distance(T), kind="stable")[:_HINTS]
        return np.asarray(T[order])

    def _record(
        self, i: int, rank: int, x: FloatArray, moves: Moves, best: Nearest, lower: float, decision: int,
        wanted: int | None, goal: int,
    ) -> Counterfactual:  # fmt: skip
        own = self.labels[decision]
        status = Status.DONE if best.exhausted else Status.BUDGET
        note = "" if best.stop is None else str(best.stop)
        there = None if best.t is None else moves.inputs(best.t[None])[0]
        if there is not None and not self._goal(goal).reached(self.net(there[None]))[0]:
            # In a batch of other rows it did: a place that one rounding error of an input decides about.
            note = f"the nearest found, at a distance of {best.distance:.4g}, does not outlast rounding"
            return Counterfactual(
                i, rank, None, {}, np.inf, min(lower, best.distance), False, own, self.labels[goal], np.nan, np.nan,
                Status.UNDECIDED, note,
            )  # fmt: skip
        if best.t is None or there is None:
            proved = best.exhausted and not np.isfinite(lower)
            label = None if wanted is None else self.labels[wanted]
            if best.tie:
                note = f"a tie from a distance of {lower:.4g} on: no change was met that passes the limit clearly"
            elif best.exhausted and not proved:
                note = f"columns without bounds: nothing within a distance of {lower:.4g}"
            return Counterfactual(i, rank, None, {}, np.inf, lower, proved, own, label, np.nan, np.nan, status, note)
        changes = {}
        for number in sorted(set(moves.feature[best.t > 0].tolist())):
            f = self.features[number]
            old, new = (f.column.decode(z[f.place][None])[0] for z in (x, there))
            if f.column.kind != "category" and f.step:
                old, new = _tidy(float(old), f.step), _tidy(float(new), f.step)
            changes[f.column.name] = (_plain(old), _plain(new))
        proved = lower >= best.distance * (1 - self.relative) - 1e-12
        status = Status.DONE if proved else Status.BUDGET
        return Counterfactual(
            i, rank, there, changes, best.distance, min(lower, best.distance), proved, own, self.labels[goal],
            np.nan, np.nan, status, "" if proved else note,
        )  # fmt: skip


def _better(old: list[Counterfactual], new: list[Counterfactual]) -> list[Counterfactual]:
    """Of two searches for one row the one that got further; bounds of the first rank hold for both."""
    first = max(old[0].lower, new[0].lower)
    keep = new if (new[0].distance, -len(new)) <= (old[0].distance, -len(old)) else old
    object.__setattr__(keep[0], "lower", min(first, keep[0].distance) if keep[0].x is not None else first)
    return keep


def _schema(net: Network, cutoff: float | None) -> Schema:
    """The network's schema, with columns and a decision rule where it has none."""
    schema = net.schema or Schema()
    changes: dict[str, Any] = {}
    if not schema.columns:
        changes["columns"] = tuple(Column(f"x{i}") for i in range(net.n_inputs))
    if not schema.outputs:
        changes["outputs"] = tuple(f"y{i}" for i in range(net.n_outputs))
    schema = schema.with_names(**changes) if changes else schema
    if cutoff is None:
        return schema
    if schema.rule != "above":
        raise InputError(f"cutoff is for a decision by one output, but the rule here is {schema.rule!r}; leave it out")
    return schema.with_names(cutoff=real(cutoff, "cutoff"))


def _rows(net: Network, X: Any, name: str) -> FloatArray:
    schema = net.schema
    assert schema is not None
    if columns_of(X) is not None:
        return schema.encode(X, name=name, quiet=True)
    raw = real_array(X, name)
    if raw.shape == (net.n_inputs,):
        raw = raw[None]
    if raw.ndim != 2 or raw.shape[1] != net.n_inputs or not len(raw):
        raise InputError(f"{name} must be rows of {net.n_inputs} numbers, or a table, got {describe(X)}")
    return raw


def _class(schema: Schema, labels: tuple[Any, ...], target: Any) -> int:
    """The number of a class by its label."""
    if not isinstance(target, (str, bool, int, float, np.generic)):
        raise InputError(f"target must be one of the classes {few(labels)}, got {describe(target)}")
    try:
        at = replace(schema, classes=labels).class_index(target)
    except InputError:
        at = -1
    if at < 0:
        raise InputError(f"target must be one of the classes {few(labels)}, got {describe(target)}")
    return at


def _features(
    schema: Schema,
    rows: FloatArray,
    data: FloatArray | None,
    change: Any,
    bounds: Any,
    direction: Any,
    steps: Any,
    scale: Any,
) -> list[_Feature]:
    names = schema.names
    if change is None:
        chosen = [c.name for c in schema.columns if c.kind != "constant"]
    else:
        listed = (change,) if isinstance(change, (str, int)) else several(change, "change", "columns")
        chosen = [m for c in listed for m in _named(schema, c, "change")]
    if not chosen:
        raise InputError("change must name at least one column that may change")
    limits, ways = _by_name(schema, bounds, "bounds"), _by_name(schema, direction, "direction")
    multiples = _by_name(schema, steps, "steps")
    for what, listing in (("bounds", limits), ("direction", ways), ("steps", multiples)):
        strangers = [n for n in listing if n not in chosen]
        if strangers:
            raise InputError(f"{what} speaks of {few(strangers)}, which may not change; name it in change too")
    if scale is None or isinstance(scale, Mapping):
        units = _by_name(schema, scale, "scale")
    else:
        listed = several(scale, "scale", "numbers, one per column")
        if len(listed) != len(names):
            raise InputError(f"scale must have a number for each of the {len(names)} columns, got {len(listed)}")
        units = dict(zip(names, listed, strict=True))
    out = []
    for c in (schema.column(n) for n in names if n in chosen):
        place = schema.place(c.name)
        values = None if data is None or c.kind == "category" else c.decode(data[:, place])
        given = units.get(c.name)
        size = _unit(c, values) if given is None else real(given, f"scale of {c.name}", low=0.0, open_=True)
        levels: tuple[int, ...] = ()
        low, high = c.support
        if c.kind == "category":
            levels = _levels(c, limits.get(c.name))
        elif c.name in limits:
            pair = real_array(limits[c.name], f"bounds of {c.name}", finite=False)
            if pair.shape != (2,) or not pair[0] <= pair[1]:
                raise InputError(f"bounds of {c.name} must be (low, high), got {describe(limits[c.name])}")
            low, high = pair.tolist()
        else:
            if c.seen is not None:
                low, high = max(low, c.seen[0]), min(high, c.seen[1])
            elif values is not None:
                low, high = max(low, float(values.min())), min(high, float(values.max()))
        way = choice(ways.get(c.name, "both"), f"direction of {c.name}", ("both", "up", "down"))
        if c.kind == "category" and (c.name in ways or c.name in multiples):
            raise InputError(f"{c.name} is a category: it has no direction or steps; bounds has the levels it may take")
        whole = values is not None and _whole(values) and _whole(c.decode(rows[:, place]))
        step = 1.0 if c.kind == "integer" or whole else 0.0
        if c.name in multiples:
            step = real(multiples[c.name], f"steps of {c.name}", low=0.0)
        out.append(_Feature(c, place, low, high, step, size, way != "down", way != "up", levels))
    return out


def _whole(values: FloatArray) -> bool:
    """Whether all are whole numbers, up to the dust of scaling."""
    return bool((np.abs(values - np.round(values)) <= 1e-9 * np.maximum(1.0, np.abs(values))).all())


def _named(schema: Schema, name: Any, what: str) -> tuple[str, ...]:
    if isinstance(name, (int, np.integer)) and not isinstance(name, bool):
        return (schema.names[integer(name, what, low=0, high=len(schema.names) - 1)],)
    if not isinstance(name, str):
        raise InputError(f"{what} must name columns, got {describe(name)}")
    try:
        return schema.members(name)
    except InputError as error:
        raise InputError(f"{what}: {error}") from None


def _by_name(schema: Schema, given: Any, what: str) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError(f"{what} must be a mapping of columns, got {describe(given)}")
    return {m: value for name, value in given.items() for m in _named(schema, name, what)}


def _unit(c: Column, values: Any) -> float:
    """One unit of distance of a column, where none is given."""
    if c.kind == "category":
        return 1.0
    spread = float(np.std(values)) if values is not None else 0.0
    if not spread > 0 and c.moments is not None:
        spread = c.moments[1]
    if not spread > 0 and c.seen is not None:
        spread = c.seen[1] - c.seen[0]
    return spread if spread > 0 and np.isfinite(spread) else 1.0


def _levels(c: Column, given: Any) -> tuple[int, ...]:
    if given is None:
        return tuple(k for k, level in enumerate(c.levels) if level is not None)
    places = [c.level_index(v) for v in several(given, f"bounds of {c.name}", "levels")]
    if not places or min(places) < 0:
        raise InputError(f"bounds of {c.name} must be some of its levels {few(c.levels)}, got {describe(given)}")
    return tuple(places)


def _tidy(value: float, step: float) -> float:
    """A value on the grid of whole numbers, without the dust of scaling."""
    near = round(value)
    return float(near) if step == int(step) and abs(value - near) < 1e-6 * max(1.0, abs(value)) else value


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _figure(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, (float, np.floating)) else str(value)
