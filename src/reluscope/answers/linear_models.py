"""The distribution over linear models (Proposition 1 of the paper): how likely is each activation pattern?

Under a random input the pattern `z` of a network is a discrete random variable, and with it the linear
model `y = C_z x + d_z` that the network applies:

    P(z) = sum_k a_k P(u_k in region_k(z)),

the region of z in the coordinates in which the network sees component k of the law. The covariance of the hidden units
is never inverted, so more units than inputs and dead units are no special case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray, choice, generator, integer, real, seeded
from reluscope._text import html_table, in_dimensions, table
from reluscope.answer import Answer, Answers, status_of
from reluscope.answers._output_regions import merged, summed_by_group
from reluscope.answers.orthant import ORTHANT_METHODS, orthant_masses
from reluscope.budget import parse_budget
from reluscope.errors import InputError
from reluscope.inputs import Component, Law, standard
from reluscope.intervals import DEFAULT_LEVEL
from reluscope.network import Network, Pattern, check_network, pattern_rows
from reluscope.schema import Schema, input_labels, models_in_units, output_labels
from reluscope.threads import clean_interrupt
from reluscope.workers import with_jobs

METHODS = ("auto", "enumeration", "lines", *ORTHANT_METHODS)

_SHOWN = 10

_MOST_DIMENSIONS = 8
_MOST_CELLS = "1000 regions, 2s"
"""Beyond these, "auto" goes over to lines."""


@dataclass(frozen=True, eq=False, repr=False)
class LinearModelTable:
    """Rows of a distribution over linear models, most probable first; see `LinearModels.top`.

    Attributes
    ----------
    mass : Answers
        Shape (k,).
    pattern : (k, units) array
    C, d : (k, outputs, inputs) and (k, outputs) arrays
        The linear models `y = C x + d` in the original input.
    remainder : float
        Upper bound on the mass of all other patterns together.
    schema : Schema or None
        What inputs and outputs mean; the printed table speaks in it.
    """

    mass: Answers
    pattern: Pattern
    C: FloatArray
    d: FloatArray
    remainder: float
    schema: Schema | None = None

    def __len__(self) -> int:
        return len(self.mass)

    def to_dict(self) -> dict[str, Any]:
        """Columns by name: mass, lower, upper, pattern (a string of piece indices), C<o>_<i> and d<o>."""
        columns: dict[str, Any] = {
            "mass": self.mass.value,
            "lower": self.mass.lower,
            "upper": self.mass.upper,
            "pattern": pattern_text(self.pattern),
        }
        for o in range(self.C.shape[1]):
            columns |= {f"C{o}_{i}": self.C[:, o, i] for i in range(self.C.shape[2])}
            columns[f"d{o}"] = self.d[:, o]
        return columns

    def to_pandas(self) -> Any:
        """The columns of `to_dict` as a pandas DataFrame."""
        from reluscope._extras import require

        return require("pandas", "pandas").DataFrame(self.to_dict())

    def _rows(self) -> list[dict[str, Any]]:
        return [
            {
                "mass": mass.value,
                "lower": mass.lower,
                "upper": mass.upper,
                "pattern": _short(text),
                "linear model": _formula(self.schema, C, d),
            }
            for mass, text, C, d in zip(self.mass, pattern_text(self.pattern[:_SHOWN]), self.C, self.d, strict=False)
        ]

    def _rest(self) -> list[str]:
        more = [f"... {len(self) - _SHOWN:,} more rows"] if len(self) > _SHOWN else []
        return [*more, f"all others together: at most {self.remainder:.3g} ({self.mass.guarantee})"]

    def __repr__(self) -> str:
        return "\n".join([table(self._rows()), *self._rest()])

    def _repr_html_(self) -> str:
        rows = self._rows()
        columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
        return f"{html_table(columns, _SHOWN)}<small>{'<br>'.join(map(escape, self._rest()))}</small>"


@dataclass(frozen=True, eq=False)
class DistinctLinearModels:
    """Linear models that differ, heaviest first; see `LinearModels.distinct_linear_models`.

    Attributes
    ----------
    group : (n,) array
        The linear model of each pattern.
    first : (models,) array
        Index of each linear model's most probable pattern.
    mass : Answers
        Shape (models,).
    """

    group: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    mass: Answers

    def __len__(self) -> int:
        return len(self.mass)


@dataclass(frozen=True, eq=False)
class ExpectedLinearModel:
    """`E C` (outputs, inputs) and `E d` (outputs,): the mean linear model, `x -> E[C] x + E[d]`.

    Attributes
    ----------
    C : Answers
        Shape (outputs, inputs).
    d : Answers
        Shape (outputs,).
    """

    C: Answers
    d: Answers


@dataclass(frozen=True, eq=False, repr=False)
class LinearModels:
    """What `linear_models` returns: the distribution over the patterns of `network`, most probable first.

    Attributes
    ----------
    network : Network
    law : Law
    pattern : (n, units) array
    masses : Answers
        The probabilities, shape (n,). Their guarantee is "exact" (every pattern, masses up to rounding), "sound" (a
        budget ended the search; the brackets hold), "confidence" (each bracket holds with probability `level`), or
        "approximation" (no bracket: the paper's formula or a simplification of it).
    remainder : float
        Upper bound on the mass that is not listed (0 when the enumeration is complete).
    stopped : str or None
        Why the search ended early.
    independent : bool
        Whether the errors of estimated masses are independent, so that they add in squares (else they just add).
    unit_marginals : Answers or None
        Marginals that were estimated on their own, where there are such.
    """

    network: Network
    law: Law
    pattern: Pattern
    masses: Answers
    remainder: float
    stopped: str | None = None
    independent: bool = True
    unit_marginals: Answers | None = None

    def __len__(self) -> int:
        return len(self.masses)

    @property
    def guarantee(self) -> str:
        """What holds for the masses."""
        return self.masses.guarantee

    @property
    def method(self) -> str:
        """How the masses were computed."""
        return self.masses.method

    @property
    def seed(self) -> int | None:
        """The `rng=` that repeats the answer; None where nothing was drawn or a Generator was given."""
        return self.masses.seed

    # -- single patterns -----------------------------------------------------------------------------------------

    def top(self, k: int = 10) -> LinearModelTable:
        """The k most probable patterns with their linear models, and a bound on the mass of all the others.

        Parameters
        ----------
        k : int

        Returns
        -------
        LinearModelTable
        """
        k = min(integer(k, "k", low=1), len(self))
        C, d = self._maps if k == len(self) else self.network.output_maps(self.pattern[:k])
        others = self._bounds(self.masses[k:])[1] + self.remainder
        listed = 1.0 - self._bounds(self.masses[:k])[0]
        remainder = min(others, max(listed, 0.0)) if k < len(self) else self.remainder
        return LinearModelTable(self.masses[:k], self.pattern[:k], C[:k], d[:k], remainder, self.network.schema)

    def mass(self, pattern: npt.ArrayLike) -> Answer:
        """The probability of one pattern (units,); between 0 and `remainder` when it is not listed.

        Parameters
        ----------
        pattern : (units,)

        Returns
        -------
        Answer

        Raises
        ------
        InputError
            If it is not one pattern of this network.
        """
        key = self.network.key(pattern)
        if not isinstance(key, bytes):
            raise InputError(f"pattern must be one pattern of shape ({self.network.n_units},), got {np.shape(pattern)}")
        i = self._index.get(key)
        if i is not None:
            found: Answer = self.masses[i]
            return found
        note = "this pattern has no interior" if self.remainder == 0 else "not among the patterns found"
        return Answer(0.0, 0.0, self.remainder, **self._facts, note=note)

    def sample(self, n: int, rng: Any = None) -> Pattern:
        """`n` independent patterns, shape (n, units), in proportion to the masses listed.

        Parameters
        ----------
        n : int
        rng : optional
            None, an int, a SeedSequence or a Generator.

        Returns
        -------
        (n, units) array
        """
        n = integer(n, "n", low=0, high=10**9)
        rows = generator(rng).choice(len(self), size=n, p=self.masses.value / self.masses.value.sum())
        return self.pattern[rows]

    # -- the whole distribution ----------------------------------------------------------------------------------

    @property
    def C(self) -> FloatArray:
        """Matrix of each pattern's linear model in the original input, (n, outputs, inputs)."""
        return self._maps[0]

    @property
    def d(self) -> FloatArray:
        """Intercepts of each pattern's linear model, (n, outputs)."""
        return self._maps[1]

    @property
    def support_size(self) -> int:
        """Number of patterns whose mass is not zero (or below the smallest float)."""
        return int((self.masses.value > 0).sum())

    @cached_property
    def entropy(self) -> Answer:
        """`-sum p log2 p` in bits, with a bracket.

        Unlisted mass R can be spread over at most `N = prod(pieces)` patterns: it adds between 0 and R log2(N / R).
        For estimates the errors of the masses are independent, and the bracket is their root sum of squares.
        """
        p = self.masses.value[self.masses.value > 0]
        value = abs(float((p * np.log2(p)).sum()))
        if self._in_squares and self.remainder == 0:
            half = 0.5 * self.masses.width[self.masses.value > 0]
            error = float(np.sqrt((((np.log2(p) + 1 / np.log(2)) * half) ** 2).sum()))
            low, high = value - error, value + error
        elif self.guarantee == "approximation":
            low, high = 0.0, self._most_bits
        else:
            low, high = self._entropy_bounds()
        high = min(high, self._most_bits) if self._most_bits > 0 else max(high, value)
        return Answer(value, max(min(low, value), 0.0), max(high, value), **self._facts)

    @cached_property
    def marginals(self) -> Answers:
        """Probability of each piece of each unit, (units, most pieces): equation (21), but exact in every layer.

        For a ReLU unit column 1 is the probability that it is on. Pieces that a unit does not have are 0.
        """
        if self.unit_marginals is not None:
            return self.unit_marginals
        most = int(self.network.pieces.max(initial=1))
        shape = (self.network.n_units, most)
        value, lower, upper, half2 = (np.zeros(shape) for _ in range(4))
        for piece in range(most):
            here = (self.pattern == piece).T
            value[:, piece] = here @ self.masses.value
            lower[:, piece] = here @ self.masses.lower
            upper[:, piece] = here @ self.masses.upper + self.remainder * (self.network.pieces > piece)
            half2[:, piece] = here @ (0.5 * self.masses.width) ** 2
        if self._in_squares and self.remainder == 0:
            lower, upper = value - np.sqrt(half2), value + np.sqrt(half2)
        rounding = 4 * EPS * len(self)
        value = np.minimum(value, 1.0)
        lower = np.clip(lower - rounding * value, 0.0, value)
        upper = np.maximum(np.minimum(upper + rounding * value, 1.0), value)
        return Answers(value, lower, upper, **self._facts)

    @cached_property
    def expected_linear_model(self) -> ExpectedLinearModel:
        """`E[C]` and `E[d]`, the mass-weighted linear model, in the original input."""
        half = 0.5 * self.masses.width + EPS * self.masses.value

        def mean(maps: FloatArray) -> Answers:
            value = np.tensordot(self.masses.value, maps, 1)
            if self._in_squares:
                error = np.sqrt(np.tensordot(half**2, maps**2, 1))
            else:
                error = np.tensordot(half, np.abs(maps), 1)
            if self.remainder > 0 or self.guarantee == "approximation":
                error = np.full_like(value, np.inf)  # nothing is known about the linear models that are not listed
            return Answers(value, value - error, value + error, **self._facts)

        return ExpectedLinearModel(mean(self.C), mean(self.d))

    def distinct_linear_models(self, agreement: float = 1e-9) -> DistinctLinearModels:
        """Which patterns share one linear model, and the masses of the linear models.

        Two linear models are the same when every entry agrees within `agreement` of the larger model's largest
        entry, or within rounding of the largest model of all.

        Parameters
        ----------
        agreement : float
            Relative; see above.

        Returns
        -------
        DistinctLinearModels
        """
        agreement = real(agreement, "agreement", low=0.0, high=1.0)
        n = len(self)
        flat = np.concatenate([self.C.reshape(n, -1), self.d.reshape(n, -1)], axis=1)
        label = _equal_rows(flat, agreement)
        _, first, group = np.unique(label, return_index=True, return_inverse=True)
        parts = self.masses.value, self.masses.lower, self.masses.upper
        mass, lower, upper = (summed_by_group(group, m, len(first)) for m in parts)
        if self._in_squares:
            half = np.sqrt(summed_by_group(group, (0.5 * self.masses.width) ** 2, len(first)))
            lower, upper = np.maximum(mass - half, 0.0), mass + half
        upper = np.minimum(upper + self.remainder, 1.0)
        order = np.argsort(-mass, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return DistinctLinearModels(
            place[group].astype(np.int64),
            first[order].astype(np.int64),
            Answers(mass[order], lower[order], upper[order], **self._facts),
        )

    # -- out -----------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Columns by name for all patterns; see `LinearModelTable.to_dict`."""
        return self.top(len(self)).to_dict()

    def to_pandas(self) -> Any:
        """The columns of `to_dict` as a pandas DataFrame."""
        return self.top(len(self)).to_pandas()

    def __repr__(self) -> str:
        level = self.masses.level
        kind = self.guarantee if level is None else f"{self.guarantee} {100 * level:g} % each"
        head = f"LinearModels({len(self):,} patterns of {self.network!r}, {kind}: {self.method}"
        if self.stopped:
            head += f", {self.stopped}: in the order found (rs.probable finds the heaviest first)"
        bits = self.entropy
        said = f"{bits.value:.4g}" if bits.width < 1e-3 else f"in [{bits.lower:.4g}, {bits.upper:.4g}]"
        return f"{head}; entropy {said} bits, mass not listed at most {self.remainder:.3g})"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>{self.top(10)._repr_html_() if len(self) else ''}"

    # -- inside --------------------------------------------------------------------------------------------------

    @property
    def _in_squares(self) -> bool:
        return self.guarantee == "confidence" and self.independent

    @cached_property
    def _maps(self) -> tuple[FloatArray, FloatArray]:
        return self.network.output_maps(self.pattern)

    @cached_property
    def _index(self) -> dict[bytes, int]:
        return {key: i for i, key in enumerate(self.network.key(self.pattern).tolist())}

    @cached_property
    def _most_bits(self) -> float:
        """log2 of the number of conceivable patterns."""
        return float(np.log2(self.network.pieces.astype(float)).sum())

    @property
    def _facts(self) -> dict[str, Any]:
        """What every number derived from the masses says about itself."""
        return {name: getattr(self.masses, name) for name in ("guarantee", "level", "method", "seed")}

    def _bounds(self, some: Answers) -> tuple[float, float]:
        """Bracket of the sum of some masses."""
        if self._in_squares:
            half = float(np.sqrt(((0.5 * some.width) ** 2).sum()))
            return max(float(some.value.sum()) - half, 0.0), min(float(some.value.sum()) + half, 1.0)
        return float(some.lower.sum()), min(float(some.upper.sum()), 1.0)

    def _entropy_bounds(self) -> tuple[float, float]:
        low, high = self.masses.lower, np.minimum(self.masses.upper, 1.0)
        ends = np.stack([_bits(low), _bits(high)])
        peak = np.exp(-1.0)
        top = np.where((low <= peak) & (high >= peak), _bits(np.array(peak)), ends.max(axis=0))
        slack = 4 * EPS * len(self) * float(top.sum() + 1.0)
        extra = 0.0
        if self.remainder > 0:
            r = self.remainder
            extra = r * (self._most_bits - np.log2(r))
        return float(ends.min(axis=0).sum()) - slack, float(top.sum()) + slack + extra


def _bits(p: FloatArray) -> FloatArray:
    """-p log2 p, 0 at 0."""
    return np.asarray(-p * np.log2(np.where(p > 0, p, 1.0)))


def pattern_text(pattern: Pattern) -> list[str]:
    """Patterns as strings, one character per unit (digits, then letters for units with more than ten pieces)."""
    if pattern.size and pattern.max() > 35:
        return [" ".join(map(str, row)) for row in pattern.tolist()]
    digits = np.array(list("0123456789abcdefghijklmnopqrstuvwxyz"))
    return ["".join(row) for row in digits[pattern].tolist()]


def _short(text: str, width: int = 40) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _formula(schema: Schema | None, C: FloatArray, d: FloatArray) -> str:
    """The first output's linear model, its three largest coefficients, in the names and units of the schema, if any."""
    C, d = models_in_units(schema, C, d)
    names, result = input_labels(schema, C.shape[1]), output_labels(schema, len(C))[0].name
    largest = sorted(i for i in np.argsort(-np.abs(C[0]), kind="stable")[:3].tolist() if C[0, i] != 0)
    terms = [f"{C[0, i]:+.3g} {names[i].name}" for i in largest]
    more = " ..." if (C[0] != 0).sum() > 3 else ""
    first = " ".join([*terms, f"{d[0]:+.3g}"]) + more
    return f"{result} = {first}"


def _equal_rows(rows: FloatArray, agreement: float) -> npt.NDArray[np.int64]:
    """A label per row; equal rows (see `distinct_linear_models`) share one.

    Rows are sorted by one random projection: equal rows have nearly equal projections, so only runs are compared.
    """
    n = len(rows)
    size = np.abs(rows).max(axis=1, initial=0.0)
    floor = 64 * EPS * float(size.max(initial=0.0))
    direction = np.random.default_rng(20260102).normal(size=rows.shape[1])
    projection = rows @ direction
    order = np.argsort(projection, kind="stable")
    reach = 2.0 * float(np.abs(direction).sum())
    pair = np.maximum(size[order][1:], size[order][:-1])
    run = np.concatenate([[0], np.cumsum(np.diff(projection[order]) > reach * (agreement * pair + floor))])
    label = np.arange(n, dtype=np.int64)
    starts = np.flatnonzero(np.concatenate([[True], np.diff(run) > 0]))
    stops = np.concatenate([starts[1:], [n]])
    for begin, end in zip(starts[stops - starts > 1], stops[stops - starts > 1], strict=True):
        open_ = np.sort(order[begin:end])
        while len(open_):
            head = open_[0]
            gap = np.abs(rows[open_] - rows[head]).max(axis=1, initial=0.0)
            same = gap <= agreement * np.maximum(size[open_], size[head]) + floor
            label[open_[same]] = head
            open_ = open_[~same]
    return label


@clean_interrupt()
@with_jobs
def linear_models(
    net: Network,
    law: Law,
    *,
    patterns: npt.ArrayLike | None = None,
    rank: int = 2,
    method: str = "auto",
    relative: float = 1e-3,
    level: float = DEFAULT_LEVEL,
    budget: Any = None,
    jobs: Any = None,
    rng: Any = None,
    progress: Any = None,
) -> LinearModels:
    """The distribution over the linear models (activation patterns) of `net` under `law`.

    Parameters
    ----------
    net : Network
    law : Law
        The distribution of the inputs.
    patterns : (n, units) array, optional
        For "orthant", "diagonal" and "lowrank": the patterns; by default those that enumeration finds.
    rank : int
        Number of factors of "lowrank".
    method : {"auto", "enumeration", "lines", "orthant", "diagonal", "lowrank"}
        See Notes.
    relative : float
        Half-width of estimated masses, relative to the mass.
    level : float
        Confidence level of each estimated mass.
    budget : optional
        A time or a number of regions.
    jobs : int, optional
        Workers that share the enumeration, -1 for all cores; the same answer for any number of them.
    rng : optional
        None, an int, a SeedSequence or a Generator.
    progress : optional
        Where to report progress.

    Returns
    -------
    LinearModels

    Raises
    ------
    InputError
        If an argument does not fit the network, or the formula does not fit the law.

    Notes
    -----
    - "enumeration": all regions and their masses, component by component, merged by pattern. Exact for Gaussian laws
      that the network sees in up to three directions, for uniform laws in up to six inputs and for particles; above,
      quasi-Monte Carlo masses. A budget that ends the search leaves brackets and a `remainder`.
    - "lines": masses of the patterns on random lines, for as long as the budget says (one second by default), with
      replicate intervals; `remainder` is an exact binomial bound from fresh draws.
    - "auto": "enumeration" where that is exact, for up to 1000 regions, and for a budget of regions; else "lines".
    - "orthant", "diagonal", "lowrank": formula (11) of the paper and its approximations (see `orthant_masses`), to be
      compared with the truth.

    Patterns are vectors of piece indices; a tie (measure zero) belongs to the piece below.

    Examples
    --------
    >>> from reluscope import Gaussian, Network, linear_models
    >>> net = Network([([[1.0], [1.0]], [0.0, -1.0]), ([[1.0, 1.0]], None)])
    >>> found = linear_models(net, Gaussian([0.0]))
    >>> found.pattern.tolist(), found.masses.value.round(4).tolist()
    ([[0, 0], [1, 0], [1, 1]], [0.5, 0.3413, 0.1587])
    >>> found.C[:, 0, 0].tolist()
    [0.0, 1.0, 2.0]
    """
    check_network(net)
    choice(method, "method", METHODS)
    integer(rank, "rank", low=1)
    real(relative, "relative", low=0.0, high=1.0, open_=True)
    real(level, "level", low=0.0, high=1.0, open_=True)
    rng, seed = seeded(rng)
    if patterns is not None and method not in ORTHANT_METHODS:
        raise InputError('patterns is for method="orthant", "diagonal" or "lowrank"; the others find them')
    counted = np.isfinite(parse_budget(budget).regions)  # a number of regions asks for them
    if method in ORTHANT_METHODS:
        out = _by_formula(net, law, method, patterns, rank, budget, rng)
    elif method == "lines" or (method == "auto" and not counted):
        components = standard(law, net)
        if method == "lines" or _too_many(components):
            out = _by_lines(net, law, components, level, budget, rng)
        else:
            out = _by_enumeration(net, law, relative, level, budget, progress, rng)
    else:
        out = _by_enumeration(net, law, relative, level, budget, progress, rng)
    drawn = out.guarantee in ("confidence", "approximation")
    return replace(out, masses=replace(out.masses, seed=seed)) if drawn else out


def _too_many(components: Sequence[Component]) -> bool:
    """Whether there are more regions than masses by quasi-Monte Carlo should be worked out for without being asked."""
    from reluscope.cells.regions import uninterrupted
    from reluscope.measure.exactness import is_exact
    from reluscope.measure.regions import standard_domain

    for component in components:
        if not is_exact(component):
            if component.r > _MOST_DIMENSIONS:
                return True
            domain = standard_domain(component)
            # Compiles what is needed, so that the clock of the next search sees only the search.
            uninterrupted(component.network, **domain, budget="1 regions", progress=None)
            found = uninterrupted(component.network, **domain, budget=_MOST_CELLS, progress=None)
            if not found.complete:
                return True
    return False


def _by_lines(
    net: Network, law: Law, components: tuple[Component, ...], level: float, budget: Any, rng: np.random.Generator
) -> LinearModels:
    from reluscope.answers._by_lines import line_patterns, seconds_of

    found = line_patterns(net, law, seconds_of(budget), level, rng, components)
    return LinearModels(
        net, law, found.pattern, found.mass, found.remainder, independent=False, unit_marginals=found.marginals
    )


def _by_enumeration(
    net: Network, law: Law, relative: float, level: float, budget: Any, progress: Any, rng: np.random.Generator
) -> LinearModels:
    from reluscope.inputs import own_pattern
    from reluscope.measure.regions import enumerate_law, scaled

    found = enumerate_law(net, law, relative=relative, level=level, budget=budget, progress=progress, rng=rng)
    pattern, places = merged([own_pattern(net, e.regions.pattern) for e in found], net)
    n = len(pattern)
    value, lower, upper, remainder, misses = np.zeros(n), np.zeros(n), np.zeros(n), 0.0, np.zeros(n)
    for e, place in zip(found, places, strict=True):
        own = scaled(e.masses, e.component.weight)
        here = [np.bincount(place, m, minlength=n) for m in (own.value, own.lower, own.upper)]
        value, lower, upper = value + here[0], lower + here[1], upper + here[2]
        if e.masses.level is not None:
            misses += np.bincount(place, minlength=n) * (1.0 - e.masses.level)
        if not e.complete:
            # What this component has left may be a pattern that is only listed for another one.
            left = e.component.weight * max(0.0, 1.0 - float(e.masses.lower.sum()))
            absent = np.bincount(place, minlength=n) == 0
            upper = upper + left * absent
            remainder += left
    upper = np.minimum(upper + 4 * EPS * upper, 1.0)
    stopped = next((e.stopped for e in found if e.stopped), None)
    estimated = any(e.masses.guarantee == "confidence" for e in found)
    guarantee = "confidence" if estimated else ("exact" if stopped is None else "sound")
    joint = max(0.0, 1.0 - float(misses.max(initial=0.0))) if estimated else None
    order = np.argsort(-value, kind="stable")
    count = sum(len(e.regions) for e in found)
    method = f"enumeration of {count:,} regions in {in_dimensions(e.component.r for e in found)}"
    masses = Answers(
        value[order], lower[order], upper[order], guarantee, joint, method, stopped or "", status=status_of(stopped)
    )
    return LinearModels(net, law, pattern[order], masses, min(remainder, 1.0), stopped)


def _by_formula(
    net: Network,
    law: Law,
    method: str,
    patterns: npt.ArrayLike | None,
    rank: int,
    budget: Any,
    rng: np.random.Generator,
) -> LinearModels:
    if patterns is None:
        rows = _by_enumeration(net, law, 0.5, 0.999, budget, None, rng).pattern
    else:
        given = np.atleast_2d(pattern_rows(net, patterns))
        rows = merged([given], net)[0]
    value = orthant_masses(net, law, rows, method, rank=rank, rng=rng)
    order = np.argsort(-value, kind="stable")
    n = len(rows)
    text = {"orthant": "formula (11) by scipy", "diagonal": "diagonal covariance", "lowrank": f"{rank} factors"}
    masses = Answers(value[order], np.zeros(n), np.ones(n), "approximation", method=text[method])
    return LinearModels(net, law, rows[order], masses, 1.0)
