"""monotone, robust, agreement."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import reluscope as rs
from nets import random_net

PLANE = rs.Gaussian([0.1, -0.2], [[1.0, 0.3], [0.3, 0.5]])


def near(answer, p, n):
    return abs(answer.value - p) < 5 * np.sqrt(max(p * (1 - p), 1 / n) / n)


def test_monotone_by_derivatives_and_by_steps():
    net = random_net((2, 6, 5, 2), 1)
    X = PLANE.sample(100_000, 0)
    found = rs.monotone(net, PLANE, output=1, rng=0)
    assert found.inputs == (0, 1) and len(found.falls) == 2
    for i, answer in enumerate(found.falls):
        assert answer.guarantee == "exact" and near(answer, (net.jacobian(X)[:, 1, i] < 0).mean(), 100_000)
        assert net.jacobian(found.places[i].x)[1, i] < 0
    one = rs.monotone(net, PLANE, 0, 1, step=0.5, rng=0)
    step = np.array([0.5, 0.0])
    moved = X + step
    assert one.falls[0].guarantee == "exact"
    assert near(one.falls[0], (net(moved)[:, 1] < net(X)[:, 1]).mean(), 100_000)
    x = one.places[0].x
    assert net(x + step)[1] < net(x)[1]
    bracket = rs.monotone(net, PLANE, 0, 1, step=0.5, guarantee="sound", tolerance=0.05, budget="5s", places=0)
    assert bracket.falls[0].lower <= one.falls[0].value <= bracket.falls[0].upper
    assert "x[0]" in repr(found) and found.to_dict()["inputs"][1]["input"] == 1


def test_what_always_rises_never_falls():
    net = rs.Network([([[1.0, 2.0], [0.5, 0.0]], None), ([[1.0, 3.0]], None)]).with_schema(columns=["a", "b"])
    found = rs.monotone(net, PLANE, "a")
    assert found.falls[0].value == 0.0 and found.names == ("a",) and not found.places[0]


def test_robust_on_a_line_is_exact():
    net = random_net((1, 12, 8, 3), 7)
    law = rs.Uniform([-2.0], [2.0])
    answer = rs.robust(net, law, 0.05)
    x = np.linspace(-2.1, 2.1, 420_001)
    decided = net(x[:, None]).argmax(axis=1)
    changes = x[1:][decided[1:] != decided[:-1]]
    inside = np.linspace(-2, 2, 100_001)
    truth = (np.abs(inside[:, None] - changes).min(axis=1) <= 0.05).mean()
    assert len(changes) > 1 and answer.guarantee == "exact" and answer.value == pytest.approx(truth, abs=1e-3)


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
def test_robust_in_the_plane_has_both_bounds(norm):
    line = rs.Network([([[3.0, 4.0]], [0.0])])  # decides by the sign of 3a + 4b: |3a + 4b| <= radius * dual norm
    law = rs.Uniform([-1, -1], [1, 1])
    answer = rs.robust(line, law, 0.1, norm, draws=400, rng=0)
    X = law.sample(200_000, 1)
    size = np.abs(X @ [3.0, 4.0])
    truth = (size <= 0.1 * {"inf": 7.0, "2": 5.0, "1": 4.0}[norm]).mean()
    assert answer.guarantee == "confidence" and answer.lower <= truth <= answer.upper
    if norm == "inf":  # attacks and bounds are both right for a linear rule
        assert "400" in answer.note and answer.upper - answer.lower < 0.15


def test_robust_stays_between_a_grid_of_attacks_and_one():
    net = random_net((2, 8, 3), 0)
    answer = rs.robust(net, PLANE, 0.2, draws=300, rng=0)
    X = PLANE.sample(20_000, 5)
    own = net(X).argmax(axis=1)
    changed = np.zeros(len(X), bool)
    for d in np.stack(np.meshgrid(*[np.linspace(-0.2, 0.2, 9)] * 2), axis=-1).reshape(-1, 2):
        changed |= net(X + d).argmax(axis=1) != own
    assert answer.lower - 0.01 <= changed.mean() <= answer.upper


SOUND = {"guarantee": "sound", "tolerance": 1e-9}


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
def test_sound_robustness_of_a_linear_rule_is_tight(norm):
    law, size = rs.Uniform([-1, -1], [1, 1]), 0.1 * {"inf": 2.0, "2": 2**0.5, "1": 1.0}[norm]
    answer = rs.robust(rs.Network([([[1.0, 1.0]], [0.0])]), law, 0.1, norm, budget="2000 regions", **SOUND)
    truth = 1 - (2 - size) ** 2 / 4
    assert answer.guarantee == "sound" and answer.lower <= truth <= answer.upper < answer.lower + 1e-4


def test_sound_robustness_beside_a_closed_form():
    """The decision is y > |x|. By the largest norm it can change where max(|x| - r, 0) - r < y < |x| + 2 r."""
    fold = rs.Network([([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], None), ([[-1.0, -1.0, 1.0, -1.0]], None)])
    answer = rs.robust(fold, rs.Uniform([-1, -1], [1, 1]), 0.1, budget="3000 regions", **SOUND)
    assert answer.lower <= 0.1875 <= answer.upper < answer.lower + 0.015


def test_sound_robustness_holds_the_exact_value_of_one_input():
    laws = [
        rs.Gaussian([0.3]),
        rs.Uniform([-2.0], [1.0]),
        rs.GaussianMixture([0.4, 0.6], [rs.Gaussian([-1.0], 0.3), rs.Gaussian([1.0], 0.3)]),
    ]
    widths = []
    for seed in range(12):
        net, law = random_net((1, 6, 6, 1 + seed % 3), seed), laws[seed % 3]
        exact = rs.robust(net, law, 0.05)
        answer = rs.robust(net, law, 0.05, budget="1000 regions", **SOUND)
        assert answer.lower <= exact.upper and exact.lower <= answer.upper, seed
        widths.append(answer.upper - answer.lower)
    assert np.median(widths) < 0.05


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
def test_sound_robustness_holds_what_a_grid_of_moves_sees(norm):
    grid = np.stack(np.meshgrid(*[np.linspace(-0.1, 0.1, 21)] * 2), axis=-1).reshape(-1, 2)
    order = {"inf": np.inf, "2": 2, "1": 1}[norm]
    moves = grid[np.linalg.norm(grid, order, axis=1) <= 0.1 + 1e-12]
    laws = [rs.Gaussian([0.0, 0.2], [[1.0, 0.7], [0.7, 1.0]]), rs.Truncated(rs.Gaussian([0, 0]), [-1, -1], [1, 2])]
    for seed, law in enumerate(laws):
        net = random_net((2, 8, 8, 3), seed)
        answer = rs.robust(net, law, 0.1, norm, budget="3000 regions", **SOUND)
        X = law.sample(4000, 1)
        own = net(X).argmax(axis=1)
        changed = np.zeros(len(X), bool)
        for move in moves:
            changed |= net(X + move).argmax(axis=1) != own
        error = 5 * np.sqrt(changed.mean() / len(X))
        # A grid with a step of 0.01 misses little: the decision changes at one of its points or just beyond it.
        assert answer.lower - error - 0.02 <= changed.mean() <= answer.upper + error
        assert answer.upper - answer.lower < 0.5


def test_sound_robustness_says_what_it_cannot_do():
    net = random_net((2, 6, 3), 0)
    with pytest.raises(rs.InputError, match="density"):
        rs.robust(net, rs.Particles([[0.0, 0.0]]), 0.1, guarantee="sound")
    with pytest.raises(rs.InputError, match="one input"):
        rs.robust(net, PLANE, 0.1, guarantee="exact")


def test_the_schema_decides():
    net = random_net((2, 6, 3), 0)
    low = net.with_schema(outputs=["a", "b", "c"], rule="smallest")
    X = PLANE.sample(100_000, 0)
    other = random_net((2, 6, 3), 7).with_schema(outputs=["a", "b", "c"], rule="smallest")
    found = rs.agreement(low, other, PLANE, rng=0)
    assert near(found.alike, (low(X).argmin(axis=1) == other(X).argmin(axis=1)).mean(), 100_000)


def test_agreement_with_a_rounded_network():
    net = random_net((2, 8, 6, 2), 2)
    law = rs.Uniform([-1, -1], [1, 1])
    coarse = rs.quantised(net, "int8")
    found = rs.agreement(net, coarse, law, rng=0)
    X = law.sample(200_000, 0)
    d = net(X) - coarse(X)
    assert near(found.alike, (net(X).argmax(axis=1) == coarse(X).argmax(axis=1)).mean(), 200_000)
    assert found.alike.guarantee == found.difference.guarantee == "exact"
    assert found.difference.quantile(0.9, 1).value == pytest.approx(np.quantile(d[:, 1], 0.9), abs=2e-3)
    exact = rs.distance(net, coarse, (-1, 1), norm="p")
    assert np.abs(d).max() * 0.98 <= found.worst <= exact.upper <= found.worst_bound + 1e-12
    assert (
        found.worst_bound <= 1.5 * exact.upper
    )  # proved by splitting boxes; linear bounds of the whole box are looser
    for p, truth in ((1, np.abs(d).sum(axis=1).mean()), (2, np.sqrt((d**2).sum(axis=1).mean()))):
        away = found.distance(p)
        assert away.guarantee == "exact" and away.value == pytest.approx(truth, rel=0.01)
    assert found.distance(np.inf).lower == found.worst
    here = np.abs(net(found.worst_input) - coarse(found.worst_input)).max()
    assert here == pytest.approx(found.worst, rel=1e-12)
    assert (
        sum(row["share"] for row in found.regions) <= 1 + 1e-9
        and found.regions[0]["share"] >= found.regions[1]["share"]
    )
    assert found.to_dict()["worst"] == found.worst and "alike" in repr(found)


def test_one_output_decides_by_its_sign():
    f, g = random_net((2, 6, 1), 0), random_net((2, 6, 1), 1)
    X = PLANE.sample(100_000, 0)
    found = rs.agreement(f, g, PLANE, rng=0)
    assert near(found.alike, ((f(X) > 0) == (g(X) > 0)).mean(), 100_000) and found.worst_bound == np.inf


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda n: rs.monotone(n, PLANE, 2), "input"),
        (lambda n: rs.monotone(n, PLANE, "a"), "no input is called 'a'"),
        (lambda n: rs.monotone(n, PLANE, []), "at least one input"),
        (lambda n: rs.monotone(n, PLANE, step=-1.0), "step must be positive"),
        (lambda n: rs.robust(n, PLANE, 0.0), "radius must be positive"),
        (lambda n: rs.robust(n, PLANE, 0.1, "3"), "norm must be"),
        (lambda n: rs.agreement(n, random_net((2, 3, 1), 0), PLANE), "equally many inputs and outputs"),
    ],
)
def test_refusals(call, words):
    with pytest.raises(rs.InputError, match=words):
        call(random_net((2, 4, 2), 0))


# -- what random checks have found -------------------------------------------------------------------------------------


def test_a_tie_at_a_single_point_is_another_decision():
    """y = (0, |x|): the first of equals is decided for at 0, and within 0.1 of it."""
    net = rs.Network([([[1.0], [-1.0]], None), ([[0.0, 0.0], [1.0, 1.0]], None)])
    found = rs.robust(net, rs.Uniform([-1.0], [1.0]), 0.1)
    assert found.value == pytest.approx(0.1, abs=1e-9) and found.lower <= 0.1 <= found.upper


def test_a_tie_that_rounding_cannot_tell_is_inside_the_bracket():
    """y = (c, |x - 0.1| + 0.3) with c one rounding away from 0.3: floats cannot tell whether they touch."""
    net = rs.Network([([[1.0], [-1.0]], [-0.1, 0.1]), ([[0.0, 0.0], [1.0, 1.0]], [0.1 + 0.2, 0.3])])
    found = rs.robust(net, rs.Uniform([-1.0], [1.0]), 0.25)
    assert found.lower <= 0.25 <= found.upper


def test_robust_in_the_tail_of_a_heavy_law():
    """The change is at 1e5, beyond 40 standard deviations of a log-normal law, and likely by 9e-15."""
    law = rs.Copula([stats.lognorm(2.0)])
    net = rs.Network([([[1.0]], [-1e5])])
    found, wanted = rs.robust(net, law, 0.5), rs.probability(net, law, "abs(y) <= 0.5")
    assert wanted.lower > 1e-15
    assert found.lower <= wanted.upper and wanted.lower <= found.upper


def test_shallow_crossings_are_as_uncertain_as_rounding_makes_them():
    """Two outputs near 1e9 cross at an angle of 1e-6: the place is known to about 0.1, and the bracket says so."""
    net = rs.Network([([[1e-6], [-1e-6]], None), ([[1.0, -1.0], [0.0, 0.0]], [1e9, 1e9 + 1e-7])])
    found = rs.robust(net, rs.Gaussian([0.0]), 0.3)
    x = float((Fraction(1e9 + 1e-7) - Fraction(1e9)) / Fraction(1e-6))  # where they cross, in fractions
    assert found.lower <= stats.norm.cdf(x + 0.3) - stats.norm.cdf(x - 0.3) <= found.upper


def test_a_lead_within_rounding_is_no_change():
    """The same numbers added in another order: only rounding can tell the outputs apart."""
    rng = np.random.default_rng(0)
    W, b, v, order = rng.normal(size=(12, 2)), rng.normal(size=12), rng.normal(size=12), rng.permutation(12)
    none = np.zeros(12)
    last = np.vstack([np.append(v, none), np.append(none, v[order])])
    net = rs.Network([(np.vstack([W, W[order]]), np.append(b, b[order])), (last, None)])
    assert len(np.unique(net(rng.normal(size=(99, 2))).argmax(axis=1))) == 2
    assert rs.robust(net, rs.Gaussian([0.0, 0.0]), 0.1, rng=0).lower == 0.0


def test_places_that_were_not_looked_for_are_not_proved_empty():
    tent = rs.Network([([[1.0], [-1.0]], None), ([[-1.0, -1.0]], None)])
    found = rs.monotone(tent, rs.Gaussian([0.0]), places=0)
    assert found.falls[0].value == 0.5 and not found.places[0].proved_empty


def test_monotone_under_a_law_without_nearest_inputs():
    """Witnesses of such a mixture cannot be ranked: the probability is still given."""
    law = rs.Mixture([0.5, 0.5], [rs.Copula([stats.expon()]), rs.Uniform([-1.0], [1.0])])
    tent = rs.Network([([[1.0], [-1.0]], None), ([[-1.0, -1.0]], None)])
    found = rs.monotone(tent, law)
    assert found.falls[0].value == pytest.approx(0.75, abs=1e-6)
    assert not found.places[0].items and "mixture" in found.places[0].note
