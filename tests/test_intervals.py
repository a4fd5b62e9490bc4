"""Intervals: closed forms, scipy's numbers, and coverage computed by summing over every outcome."""

import math

import numpy as np
import pytest
import scipy.stats

from reluscope import intervals

SIDES = ("both", "lower", "upper")


def test_binomial_is_scipys_exact_interval():
    for hits, n, level in [(0, 10, 0.9), (3, 10, 0.99), (10, 10, 0.95), (1, 1, 0.99), (123, 4567, 0.999)]:
        test = scipy.stats.binomtest(hits, n)
        assert intervals.binomial(hits, n, level) == pytest.approx(tuple(test.proportion_ci(level, "exact")), rel=1e-9)
    for side, alternative in (("upper", "less"), ("lower", "greater")):
        ends = scipy.stats.binomtest(4, 50, alternative=alternative).proportion_ci(0.95, "exact")
        assert intervals.binomial(4, 50, 0.95, side=side) == pytest.approx(tuple(ends), rel=1e-9)


def test_binomial_closed_forms_without_hits_or_misses():
    n, level = 200, 0.97
    assert intervals.binomial(0, n, level) == pytest.approx((0.0, 1 - ((1 - level) / 2) ** (1 / n)), rel=1e-9)
    assert intervals.binomial(n, n, level) == pytest.approx((((1 - level) / 2) ** (1 / n), 1.0), rel=1e-9)
    assert intervals.binomial(0, n, level, side="upper")[1] == pytest.approx(1 - (1 - level) ** (1 / n), rel=1e-9)
    assert (
        intervals.binomial(7, n, level, side="upper")[0] == 0.0
        and intervals.binomial(7, n, level, side="lower")[1] == 1.0
    )


@pytest.mark.parametrize("side", SIDES)
def test_binomial_covers_at_every_probability(side):
    """Summed over all outcomes: never below the level; and never above it by much where draws are many."""
    for n in (1, 2, 7, 40, 400):
        hits = np.arange(n + 1)
        for level in (0.8, 0.99):
            lower, upper = intervals.binomial(hits, n, level, side=side)
            for p in (0.0, 1e-5, 0.01, 0.3, 0.5, 0.9, 1.0):
                covered = scipy.stats.binom.pmf(hits, n, p)[(lower <= p) & (p <= upper)].sum()
                assert covered >= level - 1e-12
                if n == 400 and p in (0.3, 0.5):
                    assert covered <= 1 - (1 - level) / 2


def test_binomial_of_arrays_is_that_of_each():
    hits, draws = np.array([[0, 3], [10, 5]]), np.array([10, 20])
    for side in SIDES:
        lower, upper = intervals.binomial(hits, draws, 0.95, side=side)
        assert lower.shape == upper.shape == (2, 2)
        for i in range(2):
            for j in range(2):
                one = intervals.binomial(int(hits[i, j]), int(draws[j]), 0.95, side=side)
                assert all(isinstance(v, float) for v in one) and one == (lower[i, j], upper[i, j])


def test_what_no_draw_showed():
    for n in (10, 1000):
        q = intervals.unseen(n, 0.99)
        assert (1 - min(q, 1.0)) ** n <= 0.005
        assert q == pytest.approx(math.log(200.0) / n)
        assert intervals.binomial(0, n, 0.99)[1] <= q


@pytest.mark.parametrize("q", [0.01, 0.5, 0.9])
def test_order_statistics_enclose_the_quantile(q):
    """For a continuous law X_(k) <= quantile is `Bin(n, q) >= k`: the coverage is a difference of two cdfs."""
    for n in (5, 100, 3000):
        low, high = intervals.order_statistics(q, n, 0.95)
        covered = scipy.stats.binom.cdf(high - 1, n, q) - (scipy.stats.binom.cdf(low - 1, n, q) if low >= 1 else 0.0)
        assert covered >= 0.95
        assert 0 <= low <= high <= n + 1


def test_dkw_band_is_wider_than_the_exact_one_and_close_to_it():
    """scipy knows the exact law of the largest distance."""
    for n in (10, 1000):
        half = intervals.dkw(n, 0.95)
        assert 0.95 <= scipy.stats.kstwo.cdf(half, n) <= 0.97
        assert half == pytest.approx(math.sqrt(math.log(40.0) / (2 * n)))


def test_student_is_scipys():
    rows = np.random.default_rng(0).normal(3.0, 2.0, (16, 4))
    mean, half = intervals.student(rows, 0.95)
    for k in range(4):
        ci = scipy.stats.ttest_1samp(rows[:, k], 0.0).confidence_interval(0.95)
        assert (mean[k] - half[k], mean[k] + half[k]) == pytest.approx((ci.low, ci.high), rel=1e-9)
        assert intervals.student(rows[:, k], 0.95) == pytest.approx((mean[k], half[k]), rel=1e-14)
    assert intervals.student_quantile(15, 0.95) == pytest.approx(scipy.stats.t.ppf(0.975, 15))
    assert intervals.normal_quantile(0.95) == pytest.approx(1.959963984540054)


def test_student_of_numbers_whose_squares_underflow():
    rows = np.random.default_rng(1).normal(3.0, 2.0, (16, 2)) * [1.0, 2.0**-900]
    _, half = intervals.student(rows, 0.99)
    assert half[1] > 0 and np.array_equal(intervals.student(rows * [1.0, 2.0**900], 0.99)[1][1:] * 2.0**-900, half[1:])
    assert intervals.student(np.zeros((4, 3)))[1].tolist() == [0.0, 0.0, 0.0]


def test_bernstein_formula():
    log = math.log(4.0 / 0.02)
    assert intervals.bernstein(0.3, 50, 0.02) == pytest.approx(math.sqrt(0.6 * log / 50) + 7 * log / 147)
    # numbers in [0, top] are top times numbers in [0, 1]
    assert intervals.bernstein(0.3 * 9.0, 50, 0.02, 3.0) == pytest.approx(3.0 * intervals.bernstein(0.3, 50, 0.02))


def test_chernoff_ends_solve_their_equation():
    mean, n, risk = np.array([0.0, 0.2, 0.5, 1.0]), 30, 0.05
    lower, upper = intervals.chernoff(mean, n, risk)
    assert lower[0] == 0.0 and upper[3] == 1.0
    assert upper[0] == pytest.approx(1 - (risk / 2) ** (1 / n)) and lower[3] == pytest.approx((risk / 2) ** (1 / n))
    for q in (lower[1], upper[1]):
        kl = 0.2 * math.log(0.2 / q) + 0.8 * math.log(0.8 / (1 - q))
        assert kl == pytest.approx(math.log(2 / risk) / n, rel=1e-9)


@pytest.mark.parametrize("n", [2, 30, 1000])
def test_finite_sample_interval_holds_for_coins(n):
    """Coverage computed exactly from the binomial law: at least the level, for every chance."""
    heads = np.arange(n + 1.0)
    for level in (0.8, 0.99):
        _, lower, upper = intervals.bounded_mean(heads, heads, n, level)
        for p in (0.0, 1e-4, 0.01, 0.3, 0.5, 0.97, 1.0):
            chance = scipy.stats.binom.pmf(heads, n, p)
            assert chance[(lower <= p) & (p <= upper)].sum() >= level
    _, lower, upper = intervals.bounded_mean(np.array([0.5 * n]), np.array([0.25 * n]), n, 0.95)
    if n == 1000:  # numbers that do not vary: bets are far better than Chernoff
        assert (upper - lower)[0] < 0.02


SKEWED = {
    "few ones": (1.0, 0.003, lambda rng, n: (rng.random(n) < 0.003) * 1.0),
    "a rare top": (1.0, 0.02 * 0.999 + 0.001, lambda rng, n: np.where(rng.random(n) < 0.001, 1.0, 0.02)),
    "few spread": (1.0, 0.01, lambda rng, n: np.where(rng.random(n) < 0.02, rng.random(n), 0.0)),
    "heavy": (1.0, 1 / 51, lambda rng, n: rng.random(n) ** 50),
    "near one": (1.0, 1 - 0.005, lambda rng, n: 1.0 - 0.01 * rng.random(n)),
    "weights": (4.0, 0.01 + 4e-4, lambda rng, n: 0.02 * rng.random(n) + 4.0 * (rng.random(n) < 1e-4)),
    "two laws": (2.0, 0.5 * 0.02, lambda rng, n: np.where(np.arange(n) % 2, 0.0, 2.0 * (rng.random(n) < 0.01))),
    "equal": (1.0, 0.3, lambda rng, n: np.full(n, 0.3)),
}


@pytest.mark.parametrize("case", SKEWED)
@pytest.mark.parametrize("known", ["nothing", "truth", "nonsense"])
def test_bounds_from_sums_hold_for_skewed_numbers(case, known):
    """400 samples at 90 %: at most 60 misses (chance of more at exactly 10 %: 1e-3; the bounds are on the safe side).

    What is expected of the numbers may be wrong: that costs width and not coverage.
    """
    top, mean, draw = SKEWED[case]
    n, samples = 600, 400
    rng = np.random.default_rng(len(case))
    values = np.array([draw(rng, n) for _ in range(samples)])
    total, square = values.sum(axis=1), (values * values).sum(axis=1)
    expected = {
        "nothing": None,
        "truth": (np.full(samples, mean), np.full(samples, values.var())),
        "nonsense": (np.full(samples, 0.4 * top), np.full(samples, 1e-12)),
    }[known]
    _, lower, upper = intervals.bounded_mean(total, square, n, 0.9, top=top, expected=expected)
    assert (lower <= np.clip(total / n, 0.0, top)).all() and (upper >= np.clip(total / n, 0.0, top)).all()
    assert ((lower > mean) | (upper < mean)).sum() <= 60
    assert (lower >= 0.0).all() and (upper <= top).all()


def test_bounds_from_sums_are_narrow():
    """Against the normal interval where numbers are many, and against what no draw has shown where they are alike."""
    rng = np.random.default_rng(0)
    n = 100_000
    values = rng.random(n) * 0.02
    sums = np.array([values.sum()]), np.array([(values * values).sum()])
    expected = np.array([0.01]), np.array([0.02**2 / 12])
    normal = intervals.normal_quantile(0.99) * values.std() / math.sqrt(n)
    _, lower, upper = intervals.bounded_mean(*sums, n, 0.99, expected=expected)
    assert values.mean() - lower[0] < 1.5 * normal and upper[0] - values.mean() < 1.5 * normal + 8.0 / n
    wide = float(intervals.bernstein(values.var(), n, 0.01))
    assert upper[0] - lower[0] < 1.1 * wide  # two sides together: what was one side before
    _, lower, upper = intervals.bounded_mean(*sums, n, 0.99)
    assert values.mean() - lower[0] < 2.0 * normal and upper[0] - values.mean() < 2.0 * normal + 10.0 / n
    _, lower, upper = intervals.bounded_mean(np.zeros(1), np.zeros(1), n, 0.99, expected=(np.zeros(1), np.zeros(1)))
    assert lower[0] == 0.0 and math.log(200) / n < upper[0] < 1.3 * math.log(200) / n


def test_betting_intervals_cover():
    """200 samples of skewed numbers at 90 %: at most 38 misses (chance of more at exactly 10 %: 4e-5)."""
    rng = np.random.default_rng(0)
    misses = 0
    for _ in range(200):
        values = np.where(rng.random(500) < 0.02, rng.random(500), 0.0)
        lower, upper = intervals.betting(values, 1.0, 0.9)
        assert lower <= values.mean() <= upper
        misses += not lower <= 0.01 <= upper
    assert misses <= 38
    lower, upper = intervals.betting(np.zeros(1000), 2.0, 0.95)
    assert lower == 0.0 and 2.0 * math.log(40.0) / 1000 <= upper < 12.0 / 1000
    tight = intervals.betting(rng.exponential(1e-6, 4000), 2.0, 0.95)
    assert 0.9e-6 < tight[0] < 1.02e-6


@pytest.mark.parametrize("level", [0.8, 0.99])
def test_strata_cover_whatever_the_guesses(level):
    """Summed over all outcomes of two or three strata: never below the level, for good guesses and bad ones."""
    cases = [
        ((5, 9), (0.9, 0.1), (0.02, 0.6)),
        ((1, 30), (0.5, 0.5), (0.1, 0.3)),
        ((12, 3, 2), (0.3, 0.6, 0.1), (0.0, 1.0, 0.5)),
        ((8, 8, 1), (0.98, 0.01, 0.01), (0.3, 0.9, 0.2)),
    ]
    for draws, mass, chance in cases:
        n, m, p = (np.array(part, float) for part in (draws, mass, chance))
        truth = float(m @ p)
        grid = np.stack(np.meshgrid(*(np.arange(k + 1.0) for k in draws), indexing="ij"), axis=-1).reshape(-1, len(n))
        weight = scipy.stats.binom.pmf(grid, n, p).prod(axis=1)
        for guess in (np.clip(p, 1e-3, 1 - 1e-3), np.full(len(n), 0.5), 1.0 - np.clip(p, 1e-6, 1 - 1e-6)):
            covered = 0.0
            for hits, chance_of in zip(grid[weight > 1e-9], weight[weight > 1e-9], strict=True):
                value, lower, upper = intervals.strata(hits, n, m, guess, level)
                assert 0.0 <= lower <= value <= upper <= 1.0 + 1e-12
                assert value == pytest.approx(float((m * hits / n).sum()), abs=1e-12)
                covered += chance_of * (lower - 1e-12 <= truth <= upper + 1e-12)
            assert covered >= level - 1e-6


def test_strata_are_narrow_where_guesses_are_good():
    rng = np.random.default_rng(0)
    mass = np.append(rng.dirichlet(np.ones(500)) * 0.01, [0.6, 0.39])
    chance = np.append(rng.random(500), [0.0, 0.0])
    draws = np.append(np.ceil(4e5 * mass[:500] / 0.01), [6e5, 3.9e5])
    guess = np.clip(np.append(chance[:500] + rng.normal(size=500) * 0.1, [0.0, 0.0]), 1e-7, 1 - 1e-7)
    hits = np.append(rng.binomial(draws[:500].astype(int), chance[:500]), [0.0, 0.0])
    _, lower, upper = intervals.strata(hits, draws, mass, guess)
    spread = 2.576 * math.sqrt(float((mass**2 * chance * (1 - chance) / draws).sum()))
    # One hit in the large strata that were never hit would move the estimate by 1e-6: that much is left open above.
    assert upper - lower < 2.9 * spread + 7e-6
    assert lower <= float(mass @ chance) <= upper  # false alarm below 1 %, with this seed none
    # Numbers of the large strata are a hundred times larger; they must not spoil the bound below, which has none.
    value = float((mass * hits / draws).sum())
    assert value - lower < 1.6 * spread
