"""Is a family of laws closed under ReLU layers? A checker with a search for counterexamples.

A family can make random members and say what a layer does to one of them: `step` gives the image as a member of the
family, or a reason why the image is in no way a member. `is_invariant` tries members and layers until one leads out.

Why Gaussians fail. One unit `h ~ N(m, s^2)` becomes relu(h): an atom of mass `p = Φ(-m/s)` at 0 and a continuous part
above. A Gaussian on the line is continuous or a point, so none is near: the cdf of relu(h) jumps by p, and every
Gaussian's cdf is at least `min(p/2, 1 - p)` away somewhere. Mixtures fail too: a mixture with no mass below 0 has no
component that is a proper Gaussian, so it is k points, and the continuous part is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy import special

from reluscope._check import FloatArray, describe, integer, seeded
from reluscope.errors import InputError, InputTypeError
from reluscope.inputs import Gaussian, GaussianMixture, Law, Particles
from reluscope.invariance.clamped import Clamped, Distribution
from reluscope.invariance.coded import Coded, unit_base
from reluscope.invariance.finite import push
from reluscope.network import Network

_CDF_AGREEMENT = 1e-12
_GRID = 801
_LARGEST = 10_000
_CLEAR = 0.01
"""A counterexample with at least this gap ends the search; smaller ones are kept while a clearer one is looked for."""


@dataclass(frozen=True)
class Counterexample:
    """A member and a layer whose image is not in the family, why, and how far the nearest known member is.

    `gap` is a Kolmogorov distance of one unit's law: for Gaussians a proved lower bound over the whole family, for
    mixtures that of the best member a fit could find (0 would mean none was needed).

    Attributes
    ----------
    member : Law, Clamped or Coded
    weight, bias : arrays
    unit : int
    reason : str
    gap : float
    """

    member: Any
    weight: FloatArray
    bias: FloatArray
    unit: int
    reason: str
    gap: float


@dataclass(frozen=True)
class Invariance:
    """The verdict: `holds` after `tried` pairs of a member and a layer, or a counterexample. As a bool, `holds`.

    `seed` repeats the search as `rng=`.

    Attributes
    ----------
    family : str
    holds : bool
    tried : int
    counterexample : Counterexample or None
    seed : int or None
    """

    family: str
    holds: bool
    tried: int
    counterexample: Counterexample | None
    seed: int | None

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        if self.counterexample is None:
            return f"{self.family}: closed in all {self.tried} cases tried"
        return f"{self.family}: not invariant; {self.counterexample.reason} (gap {self.counterexample.gap:.3g})"


class Family(Protocol):
    """What `is_invariant` asks of a family."""

    @property
    def name(self) -> str:
        """What the family is called."""

    @property
    def n(self) -> int:
        """Number of variables of its members."""

    def member(self, rng: np.random.Generator) -> Any:
        """A random member, a law on R^n."""

    def step(self, member: Any, W: FloatArray, b: FloatArray) -> Any:
        """The member that is the law of `relu(W x + b)`, or a `Counterexample`."""


def is_invariant(
    family: Family, layers: Sequence[Any] | Network | None = None, *, trials: int = 20, rng: Any = None
) -> Invariance:
    """Whether ReLU layers map a family of laws into itself; a counterexample if one turns up.

    Parameters
    ----------
    family : Family
        Such as `Gaussians(2)`, `Mixtures(2, k=3)`, `FiniteSupport(2)`, `WidthOne()` or `CodedFamily(2)`.
    layers : list of (W, b), Network or None
        Applied one after the other to each member: given layers, the hidden layers of a network, or random ones.
    trials : int
        Random members to try.
    rng : None, int, SeedSequence or Generator

    Returns
    -------
    Invariance

    Raises
    ------
    InputError
        If the layers do not fit the family, or their units are not ReLU.

    Notes
    -----
    A counterexample settles the question. Without one the answer says how many cases were tried; each image was
    checked against the layer applied directly.

    Examples
    --------
    >>> bool(is_invariant(FiniteSupport(2), rng=0)), bool(is_invariant(Gaussians(2), rng=0))
    (True, False)
    """
    rng, seed = seeded(rng)
    if isinstance(family, type) or not all(hasattr(family, word) for word in ("name", "n", "member", "step")):
        raise InputTypeError(f"family must be a family of laws such as Gaussians(2), got {describe(family)}")
    given = _layers(layers)
    if given is not None and given[0][0].shape[1] != family.n:
        raise InputError(
            f"the first layer must have {family.n} inputs, the family's dimension, got {given[0][0].shape[1]}"
        )
    tried = 0
    worst: Counterexample | None = None
    for _ in range(integer(trials, "trials", low=1)):
        member = family.member(rng)
        for W, b in given if given is not None else _random_layers(family.n, rng):
            image = family.step(member, W, b)
            tried += 1
            if isinstance(image, Counterexample):
                if worst is None or not image.gap <= worst.gap:
                    worst = image
                break
            member = image
        if worst is not None and not worst.gap <= _CLEAR:
            break
    return Invariance(family.name, worst is None, tried, worst, seed)


@dataclass(frozen=True)
class Gaussians:
    """All Gaussian laws on R^n, singular ones included.

    Parameters
    ----------
    n : int
        Inputs.
    """

    n: int = 2

    def __post_init__(self) -> None:
        integer(self.n, "n", low=1, high=_LARGEST)

    @property
    def name(self) -> str:
        """What the family is called."""
        return f"Gaussians on R^{self.n}"

    def member(self, rng: np.random.Generator) -> Gaussian:
        """A random mean and covariance.

        Parameters
        ----------
        rng : Generator

        Returns
        -------
        Gaussian
        """
        root = rng.normal(size=(self.n, self.n))
        return Gaussian(rng.normal(size=self.n), root @ root.T)

    def step(self, member: Gaussian, W: FloatArray, b: FloatArray) -> Any:
        """The image if no unit bends it (a Gaussian that is a point, or on one side of 0 for sure), else the reason.

        Parameters
        ----------
        member : Gaussian
        W, b : arrays
            The layer.

        Returns
        -------
        Gaussian or Counterexample
        """
        mean, cov = W @ member.mean + b, W @ member.cov @ W.T
        sd = np.sqrt(np.maximum(np.diagonal(cov), 0.0))
        if not (sd > 0).any():
            return Gaussian(np.maximum(mean, 0.0), np.zeros(len(mean)))
        p = special.ndtr(-mean / np.where(sd > 0, sd, 1.0))
        gap = np.where(sd > 0, np.minimum(p / 2, 1 - p), -1.0)
        unit = int(np.argmax(gap))
        reason = f"unit {unit} becomes an atom of mass {p[unit]:.4g} at 0 and a continuous part; no Gaussian has both"
        return Counterexample(member, W, b, unit, reason, float(gap[unit]))


@dataclass(frozen=True)
class Mixtures:
    """All mixtures of at most k Gaussians on R^n, singular ones (points) included.

    Parameters
    ----------
    n, k : int
        Inputs, and the most components.
    """

    n: int = 2
    k: int = 3

    def __post_init__(self) -> None:
        integer(self.n, "n", low=1, high=_LARGEST)
        integer(self.k, "k", low=1, high=_LARGEST)

    @property
    def name(self) -> str:
        """What the family is called."""
        return f"mixtures of {self.k} Gaussians on R^{self.n}"

    def member(self, rng: np.random.Generator) -> GaussianMixture:
        """Random weights, means and covariances.

        Parameters
        ----------
        rng : Generator

        Returns
        -------
        GaussianMixture
        """
        parts = [Gaussians(self.n).member(rng) for _ in range(self.k)]
        return GaussianMixture(rng.dirichlet(np.ones(self.k)), parts)

    def step(self, member: GaussianMixture, W: FloatArray, b: FloatArray) -> Any:
        """A counterexample as soon as one component of one unit is spread around 0.

        Parameters
        ----------
        member : GaussianMixture
        W, b : arrays
            The layer.

        Returns
        -------
        GaussianMixture or Counterexample
        """
        best: Counterexample | None = None
        for unit in range(len(b)):
            parts = [
                (w, float(W[unit] @ g.mean + b[unit]), float(W[unit] @ g.cov @ W[unit])) for w, g in member.components
            ]
            spread = [(w, m, v**0.5) for w, m, v in parts if v > 0]
            if not spread:
                continue
            gap = _best_mixture_gap(parts, self.k)
            if best is None or gap > best.gap:
                reason = (
                    f"unit {unit} has no mass below 0 but a continuous part above: "
                    f"Gaussians without mass below 0 are points, and {self.k} of them have no continuous part"
                )
                best = Counterexample(member, W, b, unit, reason, gap)
        if best is not None:
            return best
        points = [np.maximum(W @ g.mean + b, 0.0) for _, g in member.components]
        return GaussianMixture([w for w, _ in member.components], [Gaussian(x, np.zeros(len(b))) for x in points])


@dataclass(frozen=True)
class FiniteSupport:
    """All laws with finitely many points on R^n.

    Parameters
    ----------
    n : int
        Inputs.
    points : int
        How many a random member has.
    """

    n: int = 2
    points: int = 8

    def __post_init__(self) -> None:
        integer(self.n, "n", low=1, high=_LARGEST)
        integer(self.points, "points", low=1, high=_LARGEST)

    @property
    def name(self) -> str:
        """What the family is called."""
        return f"laws of finite support on R^{self.n}"

    def member(self, rng: np.random.Generator) -> Particles:
        """Random points and weights.

        Parameters
        ----------
        rng : Generator

        Returns
        -------
        Particles
        """
        return Particles(rng.normal(size=(self.points, self.n)), rng.dirichlet(np.ones(self.points)))

    def step(self, member: Particles, W: FloatArray, b: FloatArray) -> Any:
        """The moved points, checked against the layer itself.

        Parameters
        ----------
        member : Particles
        W, b : arrays
            The layer.

        Returns
        -------
        Particles
        """
        image = push(member, Network([(W, b, "relu")]))
        direct = member.weights @ np.maximum(member.points @ W.T + b, 0.0)
        if np.abs(image.mean - direct).max() > 1e-9 * (1 + np.abs(direct).max()) or len(image) > len(member):
            raise AssertionError("push of particles disagrees with the layer")
        return image


@dataclass(frozen=True)
class WidthOne:
    """Clamped affine images of a base law on the line; layers of width one only.

    Parameters
    ----------
    base : Law or Distribution, optional
        By default N(0, 1).
    """

    base: Law | Distribution | None = None

    def __post_init__(self) -> None:
        if self.base is not None:
            Clamped(self.base)

    @property
    def name(self) -> str:
        """What the family is called."""
        return "clamped affine images of a base law on R"

    @property
    def n(self) -> int:
        """One variable."""
        return 1

    def member(self, rng: np.random.Generator) -> Clamped:
        """Random slope, shift and ends.

        Parameters
        ----------
        rng : Generator

        Returns
        -------
        Clamped
        """
        base = Gaussian([0.0], 1.0) if self.base is None else self.base
        lo = float(rng.normal()) - 1.0
        return Clamped(base, float(rng.normal()), float(rng.normal()), lo, lo + float(rng.exponential(3.0)))

    def step(self, member: Clamped, W: FloatArray, b: FloatArray) -> Any:
        """The image with its four new parameters, its cdf checked against that of the member.

        Parameters
        ----------
        member : Clamped
        W, b : arrays
            The layer.

        Returns
        -------
        Clamped or Counterexample
        """
        if W.shape != (1, 1):
            reason = f"a layer of {W.shape[0]} units makes a law on R^{W.shape[0]}: closed for layers of width one only"
            return Counterexample(member, W, b, 0, reason, float("nan"))
        w, c = float(W[0, 0]), float(b[0])
        image = member.push(w, c)
        span = 2 + abs(c) + abs(w) * 5
        t = np.linspace(-0.1 * span, span, 301)
        if np.abs(image.cdf(t) - _direct_cdf(member, w, c, t)).max() > _CDF_AGREEMENT:
            raise AssertionError("push of a clamped law disagrees with the layer")
        return image


@dataclass(frozen=True)
class CodedFamily:
    """Laws whose parameter spells the layers; any width, but not locally Lipschitz.

    Parameters
    ----------
    n : int
        Inputs.
    """

    n: int = 2

    def __post_init__(self) -> None:
        integer(self.n, "n", low=1, high=_LARGEST)

    @property
    def name(self) -> str:
        """What the family is called."""
        return f"laws coded in the digits of one number, base uniform on [0, 1]^{self.n}"

    def member(self, rng: np.random.Generator) -> Coded:
        """The base law after one random layer.

        Parameters
        ----------
        rng : Generator

        Returns
        -------
        Coded
        """
        return Coded.start(unit_base(self.n)).push(rng.normal(size=(self.n, self.n)), rng.normal(size=self.n))

    def step(self, member: Coded, W: FloatArray, b: FloatArray) -> Any:
        """The longer code, decoded again and compared with the layer at one input, in rational arithmetic.

        Parameters
        ----------
        member : Coded
        W, b : arrays
            The layer.

        Returns
        -------
        Coded
        """
        from fractions import Fraction

        image = member.push(W, b)
        x = [Fraction(k + 1, k + 3) for k in range(self.n)]
        z = member.exact(x)
        direct = tuple(
            max(sum((Fraction(w) * v for w, v in zip(row, z, strict=True)), Fraction(c)), Fraction(0))
            for row, c in zip(W.tolist(), b.tolist(), strict=True)
        )
        if image.exact(x) != direct:
            raise AssertionError("the code of a law disagrees with the layer")
        return image


def _layers(layers: Any) -> list[tuple[FloatArray, FloatArray]] | None:
    if layers is None:
        return None
    if isinstance(layers, Network):
        if not all(part.units.is_relu for part in layers.hidden):
            raise InputError("layers must have ReLU units")
        return [(part.dense(), part.bias) for part in layers.hidden]
    try:
        net = Network([(W, b, "relu") for W, b in layers])
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"layers must be a list of pairs (W, b) or a Network, got {describe(layers)}") from error
    return [(part.dense(), part.bias) for part in net.hidden]


def _random_layers(n: int, rng: np.random.Generator) -> list[tuple[FloatArray, FloatArray]]:
    return [(rng.normal(size=(n, n)), rng.normal(size=n)) for _ in range(3)]


def _direct_cdf(member: Clamped, w: float, c: float, t: FloatArray) -> FloatArray:
    """`P(relu(w y + c) <= t)` from the cdf of y alone: the set {w y + c <= t} is a half-line."""
    if w == 0:
        inside = np.where(c <= t, 1.0, 0.0)
    elif w > 0:
        inside = member.cdf((t - c) / w)
    else:
        at = (t - c) / w
        # P(y >= at) = 1 - P(y < at): the base is continuous, so only the ends of the clamp carry mass.
        mass = np.zeros_like(at)
        for value, p in member.atoms:
            mass = np.where(at == value, p, mass)
        inside = 1.0 - member.cdf(at) + mass
    return np.where(t < 0, 0.0, inside)


def _best_mixture_gap(parts: list[tuple[float, float, float]], k: int) -> float:
    """Kolmogorov distance of relu(h), h a mixture on the line, to the best mixture of k parts that EM finds.

    One of the k parts may be the point 0, the others are fitted to the part above 0 on a grid of its quantiles.
    """
    sds = [(w, m, v**0.5) for w, m, v in parts]

    def cdf(t: FloatArray) -> FloatArray:
        total = np.zeros_like(t)
        for w, m, s in sds:
            total += w * (special.ndtr((t - m) / s) if s > 0 else (m <= t))
        return np.where(t < 0, 0.0, total)

    top = max(m + 8 * s for _, m, s in sds)
    if top <= 0:
        return 0.0
    t = np.linspace(0.0, top, _GRID)
    F = cdf(t)
    atom = float(F[0])
    grid = 0.5 * (t[1:] + t[:-1])
    mass = np.diff(F)
    wide = np.concatenate([np.linspace(-0.2 * top, -1e-12, 200), t])
    truth = cdf(wide)
    best = np.inf
    for point in (0, 1) if k > 1 else (0,):
        fitted = np.zeros_like(wide)
        if point:
            weights, means, spreads = _em(grid, mass, k - 1)
            fitted += atom * (wide >= 0)
        else:
            weights, means, spreads = _em(np.append(grid, 0.0), np.append(mass, atom), k)
        for w, m, s in zip(weights, means, spreads, strict=True):
            fitted += w * special.ndtr((wide - m) / s)
        best = min(best, float(np.abs(fitted - truth).max()))
    return best


def _em(x: FloatArray, mass: FloatArray, k: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weights (summing to the total mass), means and standard deviations of k Gaussians fitted to weighted points."""
    total = float(mass.sum())
    if total <= 0:
        return np.zeros(k), np.zeros(k), np.ones(k)
    p = mass / total
    level = np.cumsum(p)
    means = (
        np.interp((np.arange(k) + 0.5) / k, level, x) if np.all(np.diff(x) > 0) else np.linspace(x.min(), x.max(), k)
    )
    spreads = np.full(k, max(float(np.sqrt(p @ (x - p @ x) ** 2)) / k, 1e-6))
    weights = np.full(k, 1.0 / k)
    for _ in range(60):
        density = weights * np.exp(-0.5 * ((x[:, None] - means) / spreads) ** 2) / spreads + 1e-300
        share = density / density.sum(axis=1, keepdims=True) * p[:, None]
        weights = share.sum(axis=0)
        means = (share * x[:, None]).sum(axis=0) / np.maximum(weights, 1e-300)
        spreads = np.sqrt(
            (share * (x[:, None] - means) ** 2).sum(axis=0) / np.maximum(weights, 1e-300)
        ) + 1e-9 * np.ptp(x)
    return total * weights, means, spreads
