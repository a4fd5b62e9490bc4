"""Categories as laws on points, and products of independent laws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product as combinations
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, any_array, choice, describe, real, real_array, several, text
from reluscope.errors import InputError
from reluscope.inputs._copula import Copula
from reluscope.inputs._factor import loading_factor
from reluscope.inputs._gaussian import Gaussian
from reluscope.inputs._law import VERSION, Box, Conditional, Index, Law, check_law, frozen, weight_vector
from reluscope.inputs._marginal import Marginal
from reluscope.inputs._mixed import mixture_of
from reluscope.inputs._simple import Particles, Uniform
from reluscope.inputs._truncated import Truncated

Level = str | float

MOST_COMPONENTS = 100_000
"""Combinations of components that a product may have."""


@final
@dataclass(frozen=True, eq=False, init=False, repr=False)
class Categorical(Law):
    """One category: a one-hot block of inputs, or one input with a code for each level.

    Parameters
    ----------
    levels : sequence of str or float
        Different ones; numbers for codes.
    probabilities : array_like, shape (levels,)
        They must sum to 1 (within 1e-9, then they are normalised).
    encoding : {"onehot", "codes"}
        One input per level that is 1 for it and 0 for the others, or one input that is the level itself.
    name : str, optional
        Of the category; inputs of a one-hot block are then named `name_level`.

    Raises
    ------
    InputError
        If levels repeat, are no numbers where codes are asked for, or the probabilities are none.

    Examples
    --------
    >>> law = Categorical(["male", "female"], [0.4, 0.6], name="SEX")
    >>> law.names, law.mean.tolist()
    (('SEX_male', 'SEX_female'), [0.4, 0.6])
    """

    kind: ClassVar[str] = "categorical"

    levels: tuple[Level, ...]
    probabilities: FloatArray
    encoding: str
    name: str | None

    def __init__(
        self,
        levels: Sequence[Level],
        probabilities: npt.ArrayLike,
        *,
        encoding: str = "onehot",
        name: str | None = None,
    ) -> None:
        if isinstance(levels, str) or not isinstance(levels, (list, tuple, np.ndarray)) or not len(levels):
            raise InputError(f"levels must be a list of texts or numbers, got {describe(levels)}")
        said = tuple(v.item() if isinstance(v, np.generic) else v for v in levels)
        if not all(isinstance(v, (str, int, float)) for v in said):
            raise InputError(f"levels must be texts or numbers, got {describe(levels)}")
        if len(set(map(str, said))) < len(said):
            raise InputError(f"levels must differ from one another, got {describe(levels)}")
        if choice(encoding, "encoding", ("onehot", "codes")) == "codes":
            real_array(list(said), "levels (encoding='codes' needs numbers)", ndim=1)
        object.__setattr__(self, "levels", said)
        object.__setattr__(self, "probabilities", weight_vector(probabilities, "probabilities", len(said)))
        object.__setattr__(self, "encoding", encoding)
        object.__setattr__(self, "name", None if name is None else text(name, "name"))

    @classmethod
    def fit(
        cls,
        column: Any,
        *,
        levels: Sequence[Level] | None = None,
        smoothing: float = 0.0,
        encoding: str = "onehot",
        name: str | None = None,
    ) -> Categorical:
        """Shares of the levels in a column.

        Parameters
        ----------
        column : sequence
            A level per row.
        levels : sequence, optional
            The levels and their order; by default those that occur, sorted.
        smoothing : float
            Rows added to each level.
        encoding, name
            As for the class.

        Returns
        -------
        Categorical

        Raises
        ------
        InputError
            If a level never occurs (and nothing is added to it), or the column holds other levels or missing values.
        """
        who = "column" if name is None else text(name, "name")
        raw = any_array(column, who, "a list of levels, one per row")
        if raw.ndim != 1 or not len(raw):
            raise InputError(f"{who} must be a list of levels, one per row, got {describe(column)}")
        values = raw.tolist()
        missing = [v is None or (isinstance(v, float) and v != v) for v in values]
        if any(missing):
            bad = missing.index(True)
            raise InputError(f"{who} has a missing value in row {bad}; drop such rows, or name a level for them")
        found, counts = np.unique(raw.astype(str) if raw.dtype.kind in "OUT" else raw, return_counts=True)
        seen = dict(zip(map(str, found.tolist()), counts.tolist(), strict=True))
        said = list(found.tolist() if levels is None else several(levels, "levels", "levels"))
        extra = real(smoothing, "smoothing", low=0.0)
        unknown = sorted(set(seen) - {str(v) for v in said})
        if unknown:
            raise InputError(
                f"{who} holds the level {unknown[0]!r}, which is not among levels {describe(said)}; add it"
            )
        amount = np.array([seen.get(str(v), 0) + extra for v in said], dtype=np.float64)
        if (amount == 0).any():
            never = said[int(np.argmin(amount))]
            raise InputError(
                f"{who}: the level {never!r} never occurs in the {len(raw):,} rows; leave it out of levels, or give it "
                "a share with smoothing=1"
            )
        return cls(said, amount / amount.sum(), encoding=encoding, name=name)

    @cached_property
    def _particles(self) -> Particles:
        points = np.eye(len(self.levels)) if self.encoding == "onehot" else np.array(self.levels, float)[:, None]
        return Particles(points, self.probabilities)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the inputs, if the category has one."""
        if self.name is None:
            return None
        return tuple(f"{self.name}_{v}" for v in self.levels) if self.encoding == "onehot" else (self.name,)

    @property
    def n(self) -> int:
        """Number of inputs."""
        return self._particles.n

    @property
    def mean(self) -> FloatArray:
        """E x, shape (n,)."""
        return self._particles.mean

    @property
    def variance(self) -> FloatArray:
        """Variances, shape (n,)."""
        return self._particles.variance

    @property
    def cov(self) -> FloatArray:
        """The covariance matrix, shape (n, n)."""
        return self._particles.cov

    @property
    def atoms(self) -> tuple[FloatArray, FloatArray]:
        """The points of the levels and their probabilities."""
        return self._particles.atoms

    def support(self) -> Box:
        """The box around the levels of positive probability."""
        return self._particles.support()

    def far_box(self) -> Box:
        """The same box."""
        return self._particles.support()

    def _given(self, lower: FloatArray, upper: FloatArray) -> Law:
        return self._particles._given(lower, upper)

    def _at(self, index: Index, values: FloatArray) -> Conditional:
        return self._particles._at(index, values)

    def _keep(self, index: Index) -> Law:
        return self._particles._keep(index)

    def _affine(self, s: FloatArray, t: FloatArray) -> Law:
        return self._particles._affine(s, t)

    def _cdf(self, t: FloatArray, i: int, strict: bool) -> FloatArray:
        return self._particles._cdf(t, i, strict)

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        return self._particles._sample(n, rng)

    def _log_density(self, x: FloatArray) -> FloatArray:
        return self._particles._log_density(x)

    def to_dict(self) -> dict[str, Any]:
        """`{"law": "categorical", "version": 1, "levels": ..., "probabilities": ..., "encoding": ..., "name": ...}`."""
        return {
            "law": self.kind,
            "version": VERSION,
            "levels": list(self.levels),
            "probabilities": self.probabilities.tolist(),
            "encoding": self.encoding,
            "name": self.name,
        }

    def __repr__(self) -> str:
        called = f"{self.name}, " if self.name else ""
        return f"Categorical({called}{len(self.levels)} levels, {self.encoding})"


# -- products ----------------------------------------------------------------------------------------------------------


def product(*laws: Law) -> Law:
    """The law of independent blocks of inputs, one after the other.

    Parameters
    ----------
    *laws : Law
        Each over its own inputs.

    Returns
    -------
    Law
        Of the simplest class that holds it: points times points are `Particles`, Gaussians a `Gaussian`. Categories and
        mixtures give a mixture with one component per combination, in which a category has no spread.

    Raises
    ------
    InputError
        If a box (`Uniform`) meets a law with a Gaussian's spread: give its inputs as marginals of a `Copula` instead.

    Examples
    --------
    >>> product(Categorical(["a", "b"], [0.3, 0.7]), Gaussian([0.0, 1.0]))
    GaussianMixture(2 components, 4 inputs, one shared covariance)
    """
    if not laws:
        raise InputError("laws must be input laws, at least one, got none")
    for law in laws:
        check_law(law, name="laws")
    pieces = [_pieces(law) for law in laws]
    count = int(np.prod([float(len(p)) for p in pieces]))
    if count > MOST_COMPONENTS:
        raise InputError(f"the product has {count:,} combinations of components, more than {MOST_COMPONENTS:,}")
    weights, joined = [], []
    for combination in combinations(*pieces):
        weights.append(float(np.prod([w for w, _ in combination])))
        joined.append(_joined([part for _, part in combination]))
    total = np.array(weights)
    total = total / total.sum()
    if len(joined) == 1:
        only = joined[0]
        return Particles(only[None]) if isinstance(only, np.ndarray) else only
    bare = np.array([isinstance(part, np.ndarray) for part in joined])
    points = [part for part in joined if isinstance(part, np.ndarray)]
    if bare.all():
        return Particles(np.array(points), total)
    parts = [part for part in joined if isinstance(part, Law)]
    if not points:
        return mixture_of(total, parts)
    share = float(total[bare].sum())  # all points together are one component
    return mixture_of(np.append(total[~bare], share), [*parts, Particles(np.array(points), total[bare] / share)])


_Piece = FloatArray | Law


def _pieces(law: Law) -> list[tuple[float, _Piece]]:
    """A law as weighted points, Gaussians (possibly given a box), boxes, or functions of these."""
    if law.atoms is not None:
        points, weights = law.atoms
        return [(float(w), x) for w, x in zip(weights, points, strict=True) if w > 0]
    if law.is_mixture:
        return [(w * v, p) for w, part in law.components if w > 0 for v, p in _pieces(part)]
    return list(law._blocks())


def _joined(parts: list[_Piece]) -> FloatArray | Law:
    if all(isinstance(p, np.ndarray) for p in parts):
        return np.concatenate([p for p in parts if isinstance(p, np.ndarray)])
    if any(isinstance(p, Uniform) for p in parts):
        if not all(isinstance(p, (Uniform, np.ndarray)) for p in parts):
            raise InputError(
                "a Uniform law has no product with a law that has a Gaussian's spread; give its inputs as marginals of "
                "a Copula, such as scipy.stats.uniform(0, 1)"
            )
        sides = [
            (p, p) if isinstance(p, np.ndarray) else (p.lower, p.upper)
            for p in parts
            if not isinstance(p, Law) or isinstance(p, Uniform)
        ]
        return Uniform(np.concatenate([a for a, _ in sides]), np.concatenate([b for _, b in sides]))
    scores = [p.scores if isinstance(p, Copula) else p for p in parts]
    base = _block([s for s in scores if isinstance(s, (np.ndarray, Gaussian, Truncated))])
    if not any(isinstance(p, Copula) for p in parts):
        return base
    plain = Marginal([0.0], [0.0], below=1.0, above=1.0)
    sizes = [(p, len(p) if isinstance(p, np.ndarray) else p.n) for p in parts]
    marginals = [m for p, n in sizes for m in (p.marginals if isinstance(p, Copula) else [plain] * n)]
    return Copula.of_scores(base, marginals)


def _block(parts: Sequence[FloatArray | Gaussian | Truncated]) -> Gaussian | Truncated:
    """Points, Gaussians and truncated ones side by side."""
    gaussians = [
        Gaussian(p, 0.0) if isinstance(p, np.ndarray) else p.gaussian if isinstance(p, Truncated) else p for p in parts
    ]
    mean = np.concatenate([g.mean for g in gaussians])
    if all(g.factor.diagonal for g in gaussians):
        whole = Gaussian(mean, np.concatenate([g.variance for g in gaussians]))
    else:
        V = np.zeros((len(mean), sum(g.factor.k for g in gaussians)))
        row = column = 0
        for g in gaussians:
            V[row : row + g.n, column : column + g.factor.k] = g.factor.rows(np.arange(g.n))
            row, column = row + g.n, column + g.factor.k
        triangular = all(g.factor.triangular or g.factor.diagonal for g in gaussians) and bool(np.diag(V).all())
        whole = Gaussian.of_factor(frozen(mean), loading_factor(V, triangular=triangular and V.shape[0] == V.shape[1]))
    if not any(isinstance(p, Truncated) for p in parts):
        return whole
    n = [len(p) if isinstance(p, np.ndarray) else p.n for p in parts]
    lower = [p.lower if isinstance(p, Truncated) else np.full(k, -np.inf) for p, k in zip(parts, n, strict=True)]
    upper = [p.upper if isinstance(p, Truncated) else np.full(k, np.inf) for p, k in zip(parts, n, strict=True)]
    return Truncated(whole, np.concatenate(lower), np.concatenate(upper))
