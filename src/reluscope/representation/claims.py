"""Published statements about one layer as checks: each says what was printed, what holds, and what was measured.

`check_claims` runs them all. A claim that is false as printed fails its check and stays here by name, so that nobody
takes it for a fact again; the corrected form is what the rest of the package uses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from reluscope._check import FloatArray, generator
from reluscope._lazy import late
from reluscope.network import Network
from reluscope.representation._prefix import recession
from reluscope.representation.distortion import distortion, expected_distortion, relu_distance_factor, simulate
from reluscope.representation.metrics import angles, stable_rank
from reluscope.representation.rays import boundedness_bounds

SIGMAS = 6.0
"""A printed number holds when the drawn one is within this many standard errors: a false alarm in 5e8."""


@dataclass(frozen=True)
class Claim:
    """One statement: where it stands, the printed and the right form, printed and measured numbers, and the verdict."""

    name: str
    printed: str
    right: str
    printed_value: float
    measured: float
    error: float
    right_value: float
    holds: bool

    @property
    def right_holds(self) -> bool:
        """Whether the corrected number agrees with the measurement."""
        return abs(self.measured - self.right_value) <= SIGMAS * self.error + 1e-12

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, fit for JSON."""
        return {**vars(self), "right_holds": self.right_holds}


def check_claims(*, n: int = 5, draws: int = 200_000, rng: Any = None) -> list[Claim]:
    """All claims, measured with `draws` draws in dimension n."""
    rng = generator(rng)
    M = rng.normal(size=(n, n))
    return [
        relu_halves_squared_length(n, draws, rng),
        layer_halves_squared_length(M, draws, rng),
        relu_quarters_squared_distance(n, draws, rng),
        layer_quarters_squared_distance(M, draws, rng),
        gaussian_linear_distance(n, draws, rng),
        gaussian_relu_distance(n, draws, rng),
        he_halves_squared_distance(n, draws, rng),
        random_layer_adds_the_angle_term(draws, rng),
        image_of_a_ray_is_a_ray(),
        ray_space_by_the_layer_before(),
        condition_makes_angles_shrink(n, draws, rng),
        condition_makes_angles_shrink(n, draws, rng, acute=True),
        squared_cosines_decide_angles(n, draws, rng),
        depth_makes_images_bounded(),
        stable_rank_is_centred(n, draws, rng),
    ]


def relu_halves_squared_length(n: int, draws: int, rng: np.random.Generator) -> Claim:
    """Lemma 4.3.9: the mean of `|relu x|^2` on the unit sphere is 1/2. True."""
    found = simulate(np.eye(n), draws, rng=rng)
    return _number("Lemma 4.3.9", "mean |relu x|^2 = 1/2", "the same", 0.5, 0.5, found.magnitude, found.magnitude_error)


def layer_halves_squared_length(M: FloatArray, draws: int, rng: np.random.Generator) -> Claim:
    """Prop. 4.3.10: the mean of `|relu M x|^2` is `|M|_F^2 / (2n)`. True."""
    found = simulate(M, draws, rng=rng)
    value = float((M**2).sum()) / (2 * M.shape[1])
    return _number(
        "Prop. 4.3.10",
        "mean |relu Mx|^2 = |M|_F^2/(2n)",
        "the same",
        value,
        value,
        found.magnitude,
        found.magnitude_error,
    )


def relu_quarters_squared_distance(n: int, draws: int, rng: np.random.Generator) -> Claim:
    """Lemma 4.3.11: mean squared distance falls to 1/4. False for n > 1."""
    found = simulate(np.eye(n), draws, rng=rng)
    return _number(
        "Lemma 4.3.11",
        "factor 1/4",
        "1/2 - n μ_n²",
        0.25,
        relu_distance_factor(n),
        found.distance,
        found.distance_error,
    )


def layer_quarters_squared_distance(M: FloatArray, draws: int, rng: np.random.Generator) -> Claim:
    """Prop. 4.3.12: factor `|M|_F^2 / (4n)`. False for n > 1."""
    found = simulate(M, draws, rng=rng)
    printed = float((M**2).sum()) / (4 * M.shape[1])
    return _number(
        "Prop. 4.3.12",
        "factor |M|_F²/(4n)",
        "|M|_F² (1/(2n) - μ_n²)",
        printed,
        distortion(M).distance,
        found.distance,
        found.distance_error,
    )


def gaussian_linear_distance(n: int, draws: int, rng: np.random.Generator) -> Claim:
    """Prop. 4.3.17, second line: `n σ²/4` for the linear layer. False: `n σ²` (σ = 1 here)."""
    value, error = _over_matrices(n, draws, rng, 1.0, relu=False)
    right = expected_distortion(n, variance=1.0).linear_distance
    return _number("Prop. 4.3.17 (linear)", "n σ²/4", "n σ²", n / 4, right, value, error)


def gaussian_relu_distance(n: int, draws: int, rng: np.random.Generator) -> Claim:
    """Prop. 4.3.17, first line: `n σ²` with ReLU. False: `n² σ² (1/(2n) - μ_n²)` (σ = 1 here)."""
    value, error = _over_matrices(n, draws, rng, 1.0, relu=True)
    right = expected_distortion(n, variance=1.0).distance
    return _number("Prop. 4.3.17 (ReLU)", "n σ²", "n² σ² (1/(2n) - μ_n²)", float(n), right, value, error)


def he_halves_squared_distance(n: int, draws: int, rng: np.random.Generator) -> Claim:
    """Rem. 4.3.18: He initialisation halves the mean squared distance. False for n > 1."""
    value, error = _over_matrices(n, draws, rng, 2.0 / n, relu=True)
    return _number("Rem. 4.3.18", "factor 1/2", "1 - 2n μ_n²", 0.5, expected_distortion(n).distance, value, error)


def random_layer_adds_the_angle_term(draws: int, rng: np.random.Generator) -> Claim:
    """Prop. 2.3.7, proof: squared distance after a He layer is `½|x-y|² + |x||y|ψ`. False: the sign is minus.

    With the angle θ between x and y, `ψ = (sin θ - θ cos θ) / π`, for a layer that keeps half the squared length.
    """
    x, y = np.array([1.0, 0.0]), np.array([math.cos(2.0), math.sin(2.0)])
    w = rng.normal(size=(draws, 2))
    values = (np.maximum(w @ x, 0) - np.maximum(w @ y, 0)) ** 2
    half = 0.5 * float((x - y) @ (x - y))
    psi = (math.sin(2.0) - 2.0 * math.cos(2.0)) / math.pi
    error = float(values.std(ddof=1)) / math.sqrt(draws)
    return _number(
        "Prop. 2.3.7 (proof)",
        "½|x-y|² + |x||y|ψ",
        "½|x-y|² - |x||y|ψ",
        half + psi,
        half - psi,
        float(values.mean()),
        error,
    )


def image_of_a_ray_is_a_ray() -> Claim:
    """Lemma 4.3.6 (1): a layer maps a ray to a ray with slope F*(v). False near the base point: relu(-1 + t) bends.

    Measured: the slope of the image over the first unit of the ray; the right value is that of the far part, 1.
    """
    first, far = (max(-1.0 + t + 1, 0.0) - max(-1.0 + t, 0.0) for t in (0.0, 5.0))
    return Claim(
        "Lemma 4.3.6 (1)", "the image of a ray is a ray", "eventually a ray", first, far, 0.0, 1.0, first == far
    )


def ray_space_by_the_layer_before() -> Claim:
    """Lemma 4.3.6 (2): `Ray_(k) = F^{(k-1)*}(Ray_(k-1))`. False: the layer is k.

    In a 1-1-1 network with weights 2 and 3 the slope at layer 2 is 6; layer 1's map would give 2 * 2 = 4.
    """
    net = Network([([[2.0]], [1.0]), ([[3.0]], [1.0]), ([[1.0]], [0.0])])
    slope = float(recession(net, 2)([1.0])[0])
    printed = 2.0 * float(recession(net, 1)([1.0])[0])
    return Claim("Lemma 4.3.6 (2)", "F^{(k-1)*}", "F^{k*}", printed, slope, 0.0, 6.0, printed == slope)


def condition_makes_angles_shrink(n: int, draws: int, rng: np.random.Generator, acute: bool = False) -> Claim:
    """Lemma 4.3.7: condition (4.1) implies that the angle shrinks. Measured: share of cases that violate it.

    False as printed (from n = 3 on, a fifth to a quarter of the random cases that satisfy (4.1) violate it); true
    when also `a . b >= 0` (`acute`).
    """
    a, b = _pairs(max(n, 3), draws, rng)
    flat_a, flat_b = a.copy(), b.copy()
    flat_a[:, -1] = flat_b[:, -1] = 0.0
    last_a, last_b = np.abs(a[:, -1]), np.abs(b[:, -1])
    product = a[:, -1] * b[:, -1]
    satisfied = product / (last_a + last_b + last_a * last_b) >= (flat_a * flat_b).sum(axis=1)
    if acute:
        satisfied &= (a * b).sum(axis=1) >= 0
    grown = angles(a, b) > angles(flat_a, flat_b) + 1e-9
    share = float(grown[satisfied].mean())
    name = "Lemma 4.3.7 with a.b >= 0" if acute else "Lemma 4.3.7"
    right = "none violate" if acute else "violated where a.b < 0"
    error = math.sqrt(share * (1 - share) / max(int(satisfied.sum()), 1))
    if acute:
        return Claim(name, "(4.1) implies a smaller angle", right, 0.0, share, error, 0.0, share == 0.0)
    expected = violated_share(max(n, 3))
    return Claim(name, "(4.1) implies a smaller angle", right, 0.0, share, error, expected, share == 0.0)


def violated_share(n: int) -> float:
    """The share of the cases that satisfy (4.1) in which the angle grows, by quadrature; no pair is drawn.

    With last coordinates s and t, `q = s t`, `Q = sqrt((1 + s^2)(1 + t^2))` and c the cosine of the rest, (4.1) says
    `c <= q / (|s| + |t| + |q|)` and the angle grows if and only if `c > q / (Q - 1)`. Both can hold only for q < 0,
    where `a . b = c + q < 0`. The law of c is a beta law, those of s and t are normal.
    """
    betainc, ndtri = late("scipy.special", "betainc", "ndtri")

    def cdf(c: FloatArray) -> FloatArray:
        return np.asarray(betainc((n - 2) / 2, (n - 2) / 2, (1 + np.clip(c, -1.0, 1.0)) / 2))

    s, t = np.meshgrid(*[ndtri((np.arange(2000) + 0.5) / 2000)] * 2)
    q, Q = s * t, np.sqrt((1 + s**2) * (1 + t**2))
    top = cdf(q / (np.abs(s) + np.abs(t) + np.abs(q)))
    both = np.where(q < 0, top - cdf(q / (Q - 1)), 0.0)
    return float(both.mean() / top.mean())


def squared_cosines_decide_angles(n: int, draws: int, rng: np.random.Generator) -> Claim:
    """Rem. 4.3.8: the comparison of squared cosines is an "if and only if" for angles. False when signs differ.

    Measured: share of random pairs for which squared cosines and angles disagree. With q and Q as in `violated_share`
    they disagree if and only if `c < -q / (1 + Q)`, and c and q are symmetric: that is 1/2, in every dimension.
    """
    a, b = _pairs(max(n, 3), draws, rng)
    flat_a, flat_b = a.copy(), b.copy()
    flat_a[:, -1] = flat_b[:, -1] = 0.0
    cos = (a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    flat_cos = (flat_a * flat_b).sum(axis=1)
    disagree = (cos**2 >= flat_cos**2) != (cos >= flat_cos)
    share = float(disagree.mean())
    error = math.sqrt(share * (1 - share) / draws)
    words = "only where both cosines are >= 0"
    return Claim("Rem. 4.3.8", "if and only if", words, 0.0, share, error, 0.5, share == 0.0)


def depth_makes_images_bounded() -> Claim:
    """Theorem 5, last sentence: the image is bounded with probability tending to 1 as depth grows. Not in general.

    With widths 2, 3, 4, ... Theorem 4 keeps the probability of an *unbounded* image above
    `prod_{i>=2} (1 - 2^-i) = 0.5776` for every depth. Measured: that bound at depth 60.
    """
    widths = (2, *range(2, 62))
    kept = boundedness_bounds(widths).unbounded[-1]
    return Claim(
        "Theorem 5 (limit)",
        "P(bounded) tends to 1",
        "needs sum 2^-(n_{i-1} n_i) = inf",
        0.0,
        kept,
        1e-9,
        0.5775761901732048,
        kept < 1e-6,
    )


def stable_rank_is_centred(n: int, draws: int, rng: np.random.Generator) -> Claim:
    """4.5.2: the stable rank is printed without centring and read as if centred. They differ: the mean dominates.

    For relu of standard normals in R^n the centred one is n, the uncentred one `n π / (n + π - 1)`.
    """
    Z = np.maximum(rng.normal(size=(draws, n)), 0.0)
    plain, centred = stable_rank(Z, centred=False), stable_rank(Z)
    error = 3 * n / math.sqrt(draws)
    return _number(
        "4.5.2 stable rank",
        "uncentred, read as centred",
        "both, named",
        centred,
        n * math.pi / (n + math.pi - 1),
        plain,
        error,
    )


def _number(
    name: str, printed: str, right: str, printed_value: float, right_value: float, measured: float, error: float
) -> Claim:
    holds = abs(measured - printed_value) <= SIGMAS * error
    return Claim(name, printed, right, printed_value, measured, error, right_value, holds)


def _over_matrices(n: int, draws: int, rng: np.random.Generator, variance: float, *, relu: bool) -> tuple[float, float]:
    """Mean squared distance factor over fresh Gaussian matrices and fresh pairs on the sphere, with standard error."""
    count = max(draws // 10, 1000)
    x, y = rng.normal(size=(2, count, n))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    M = math.sqrt(variance) * rng.normal(size=(count, n, n))
    hx, hy = np.einsum("kij,kj->ki", M, x), np.einsum("kij,kj->ki", M, y)
    if relu:
        hx, hy = np.maximum(hx, 0.0), np.maximum(hy, 0.0)
    values = ((hx - hy) ** 2).sum(axis=1) / 2
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(count))


def _pairs(n: int, draws: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Pairs of vectors whose first n - 1 coordinates have length 1; the last one is standard normal."""
    pair = rng.normal(size=(2, draws, n))
    pair[:, :, :-1] /= np.linalg.norm(pair[:, :, :-1], axis=2, keepdims=True)
    return pair[0], pair[1]
