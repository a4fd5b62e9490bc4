"""The distribution over linear models: closed forms, draws with exact binomial acceptance, the paper's formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import binom

import reluscope as rs
from nets import integer_net, random_net
from reluscope.activations import leaky_relu
from reluscope.answers.linear_models import linear_models, pattern_text
from reluscope.answers.orthant import orthant_masses
from reluscope.errors import InputError

G2 = rs.Gaussian([0.3, -0.2], [[1.0, 0.3], [0.3, 2.0]])
LAWS = {
    "gaussian 1": rs.Gaussian([0.5], 2.0),
    "gaussian 2": G2,
    "gaussian 3": rs.Gaussian([0.1, 0.2, 0.3], [1.0, 2.0, 0.5]),
    "singular": rs.Gaussian([1.0, 2.0, 0.0], factor=[[1.0], [2.0], [-1.0]]),
    "constant": rs.Gaussian([1.0, 2.0], [0.0, 0.0]),
    "mixture": rs.GaussianMixture([0.3, 0.7], [rs.Gaussian([30.0, 0.0], [0.5, 0.1]), rs.Gaussian([-2.0, 1.0], 1.0)]),
    "uniform 2": rs.Uniform([-1.0, 0.0], [1.0, 3.0]),
    "uniform 4": rs.Uniform(-np.ones(4), np.ones(4)),
    "truncated": rs.Truncated(rs.Gaussian([0.0, 0.0], 1.0), [-1.0, -1.0], [1.0, 2.0]),
    "truncated, correlated": rs.Truncated(G2, [-1.0, -np.inf], [1.0, 2.0]),
    "particles": rs.Particles(np.random.default_rng(0).normal(size=(50, 2))),
}


def plausible(count, n, lower, upper, alarm=1e-9):
    """Whether counts of n draws fit a probability in [lower, upper]: exact binomial tails, `alarm` per number."""
    low, high = np.clip(lower, 0, 1), np.clip(upper, 0, 1)
    return (binom.cdf(count, n, low) > alarm / 2) & (binom.sf(count - 1, n, high) > alarm / 2)


def counted(found, net, x):
    """How often each listed pattern occurs among the rows, and how many rows have a pattern that is not listed."""
    index = {key: i for i, key in enumerate(net.key(found.pattern).tolist())}
    rows, count = np.unique(net.key(net.pattern(x)), return_counts=True)
    out, others = np.zeros(len(found), np.int64), 0
    for key, c in zip(rows.tolist(), count.tolist(), strict=True):
        if key in index:
            out[index[key]] += c
        else:
            others += c
    return out, others


def binary_entropy(p):
    return -(p * np.log2(p) + (1 - p) * np.log2(1 - p))


# -- closed forms ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.0, 0.7, -3.0, -30.0, 30.0])
def test_one_relu(mu):
    net = rs.Network([([[2.0]], None), ([[1.5]], [0.25])])
    found = linear_models(net, rs.Gaussian([mu], 4.0))
    on, off = found.mass([1]), found.mass([0])
    assert on.value == pytest.approx(ndtr(mu / 2), rel=1e-11)
    assert off.value == pytest.approx(ndtr(-mu / 2), rel=1e-11)
    assert found.marginals.value[0] == pytest.approx([ndtr(-mu / 2), ndtr(mu / 2)], rel=1e-11)
    assert float(found.expected_linear_model.C.value[0, 0]) == pytest.approx(3.0 * ndtr(mu / 2), rel=1e-11)
    assert float(found.expected_linear_model.d.value[0]) == pytest.approx(0.25, rel=1e-12)
    assert found.guarantee == "exact" and found.remainder == 0.0


def test_independent_units_add_their_entropies():
    net = rs.Network([(np.eye(2), [0.5, -1.0]), ([[1.0, 1.0]], None)])
    found = linear_models(net, rs.Gaussian([0.0, 0.0], 1.0))
    expected = binary_entropy(ndtr(0.5)) + binary_entropy(ndtr(-1.0))
    assert found.entropy.value == pytest.approx(expected, rel=1e-12)
    assert found.entropy.lower <= expected <= found.entropy.upper
    assert found.entropy.upper - found.entropy.lower < 1e-10
    assert found.support_size == 4
    np.testing.assert_allclose(found.mass([1, 0]).value, ndtr(0.5) * ndtr(1.0), rtol=1e-12)


def test_first_layer_marginals_are_equation_21():
    law = LAWS["mixture"]
    net = random_net((2, 5, 4, 1), 2, bias=0.6)
    W, b = net.layers[0].weight, net.layers[0].bias
    expected = np.zeros(5)
    for weight, g in law.components:
        expected += weight * ndtr((W @ g.mean + b) / np.sqrt(np.einsum("ij,jk,ik->i", W, g.cov, W)))
    found = linear_models(net, law).marginals
    np.testing.assert_allclose(found.value[:5, 1], expected, rtol=1e-11)
    assert (found.lower[:5, 1] <= expected).all() and (expected <= found.upper[:5, 1]).all()
    np.testing.assert_allclose(found.value.sum(axis=1), 1.0, atol=1e-12)


def test_units_with_three_pieces():
    net = rs.Network([([[1.0]], None, "hardtanh"), ([[1.0]], None, "relu"), ([[1.0]], None)])
    found = linear_models(net, rs.Gaussian([0.2], 1.0))
    np.testing.assert_allclose(found.marginals.value[0], [ndtr(-1.2), ndtr(0.8) - ndtr(-1.2), ndtr(-0.8)], rtol=1e-11)
    np.testing.assert_allclose(found.marginals.value[1], [ndtr(-0.2), ndtr(0.2), 0.0], rtol=1e-11)


def test_patterns_that_share_a_function():
    # relu(x) - relu(-x) = x on both sides.
    net = rs.Network([([[1.0], [-1.0]], None), ([[1.0, -1.0]], [0.5])])
    found = linear_models(net, rs.Gaussian([0.4], 1.0))
    same = found.distinct_linear_models()
    assert len(found) == 2 and len(same) == 1
    assert same.mass.value[0] == pytest.approx(1.0, abs=1e-12)
    assert same.group.tolist() == [0, 0]
    # A dead last layer: many patterns, one constant function; another piece that really differs.
    rng = np.random.default_rng(0)
    net = rs.Network(
        [(rng.normal(size=(6, 2)), rng.normal(size=6)), (np.ones((2, 6)), [-1e6, -3.0]), ([[1.0, 1.0]], [2.0])]
    )
    found = linear_models(net, G2)
    same = found.distinct_linear_models()
    assert 1 < len(same) < len(found)
    zero = int(same.group[np.flatnonzero((found.pattern[:, 6:] == 0).all(axis=1))[0]])
    off = (found.pattern[:, 6:] == 0).all(axis=1)
    assert same.mass.value[zero] == pytest.approx(found.masses.value[off].sum(), rel=1e-12)
    assert same.mass.value.sum() == pytest.approx(1.0, abs=1e-12)
    for g in range(len(same)):
        members = np.flatnonzero(same.group == g)
        np.testing.assert_allclose(found.C[members], np.broadcast_to(found.C[members[:1]], found.C[members].shape))


# -- every law ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAWS)
def test_agrees_with_draws(name):
    law = LAWS[name]
    net = random_net((law.n, 6, 5, 2), 3, bias=0.6)
    found = linear_models(net, law)
    assert found.guarantee == "exact"
    assert found.masses.value.sum() == pytest.approx(1.0, abs=1e-8 if name == "gaussian 3" else 1e-12)
    assert (np.diff(found.masses.value) <= 0).all()
    n = 200_000
    x = law.sample(n, rng=5)
    count, others = counted(found, net, x)
    assert plausible(count, n, found.masses.lower, found.masses.upper).all()
    assert others == 0
    on = net.pattern(x).mean(axis=0)
    assert plausible(np.round(on * n), n, found.marginals.lower[:, 1], found.marginals.upper[:, 1]).all()
    # The linear models are those of the network in the original input.
    local = net.local(x[:200])
    for row in range(0, 200, 20):
        i = found._index[net.key(local.pattern[row])]
        np.testing.assert_allclose(found.C[i], local.C[row], atol=1e-12)
        np.testing.assert_allclose(found.d[i], local.d[row], atol=1e-12)
    # Total expectation: E[C] x + ... against the mean Jacobian of the draws, 6.5 standard errors (1e-10 each).
    C = net.jacobian(x[:20_000])
    error = C.std(axis=0) / np.sqrt(len(C)) + 1e-10
    assert (np.abs(C.mean(axis=0) - found.expected_linear_model.C.value) <= 6.5 * error).all()


def check_example(draws):
    example = rs.example("moons")
    net, law = example.network, example.law
    found = linear_models(net, law)
    assert abs(found.masses.value.sum() - 1) < 1e-12
    rng = np.random.default_rng(13)
    total, count, others = 0, np.zeros(len(found), np.int64), 0
    for _ in range(draws // 500_000):
        some, left = counted(found, net, law.sample(500_000, rng))
        count, others, total = count + some, others + left, total + 500_000
    assert others == 0
    heavy = found.masses.value > 1e-5
    assert heavy.sum() > 20
    assert plausible(count, total, found.masses.lower, found.masses.upper)[heavy].all()
    p = found.masses.value[found.masses.value > 0]
    assert found.entropy.lower <= -(p * np.log2(p)).sum() <= found.entropy.upper


def test_example_agrees_with_draws():
    check_example(1_000_000)


@pytest.mark.slow
def test_example_agrees_with_ten_million_draws():
    check_example(10_000_000)


def test_far_components_and_tiny_masses():
    law = rs.GaussianMixture([0.5, 0.5], [rs.Gaussian([-40.0], 1.0), rs.Gaussian([20.0], 1.0)])
    net = rs.Network([([[1.0]], None), ([[1.0]], None)])
    found = linear_models(net, law)
    assert found.mass([0]).value == pytest.approx(0.5, rel=1e-12)
    lone = linear_models(net, rs.Gaussian([20.0], 1.0))
    assert lone.mass([0]).value == pytest.approx(ndtr(-20.0), rel=1e-10)


def test_four_dimensions_carry_confidence_brackets():
    law = rs.Gaussian(np.zeros(4), 1.0)
    net = random_net((4, 5, 3, 1), 1, bias=0.5)
    found = linear_models(net, law, level=0.999, rng=0)
    assert found.guarantee == "confidence" and found.masses.level == pytest.approx(0.999)
    n = 400_000
    count, others = counted(found, net, law.sample(n, rng=1))
    assert others == 0
    # Each bracket misses with probability 1e-3: give it as much room again (false alarms below 1e-9).
    room = found.masses.upper - found.masses.lower
    assert plausible(count, n, found.masses.lower - room, found.masses.upper + room).all()
    spread = np.sqrt(((room / 2 / 3.29) ** 2).sum())
    assert abs(found.masses.value.sum() - 1) < 6 * spread + 1e-9
    assert found.entropy.lower < found.entropy.value < found.entropy.upper
    marginal = found.marginals
    W, b = net.layers[0].weight, net.layers[0].bias
    exact = ndtr(b / np.linalg.norm(W, axis=1))
    width = (marginal.upper - marginal.lower)[:5, 1]
    assert (np.abs(marginal.value[:5, 1] - exact) <= 2 * width).all()


def test_a_budget_gives_sound_brackets():
    net = random_net((2, 16, 16, 1), 5, bias=0.7)
    # The narrow component is found completely; the wide one has mass in the narrow one's patterns that is not found.
    law = rs.GaussianMixture([0.4, 0.6], [G2, rs.Gaussian([2.0, 1.0], 1e-5)])
    whole, part = linear_models(net, law), linear_models(net, law, budget="60 regions")
    assert part.guarantee == "sound" and "60 regions" in part.stopped
    assert 0 < part.remainder <= 1
    for i in range(len(whole)):
        answer = part.mass(whole.pattern[i])
        assert answer.lower <= whole.masses.value[i] * (1 + 1e-12)
        assert whole.masses.value[i] * (1 - 1e-12) <= answer.upper
    assert part.entropy.lower <= whole.entropy.value <= part.entropy.upper
    inside = (part.marginals.lower <= whole.marginals.upper) & (whole.marginals.lower <= part.marginals.upper)
    assert inside.all()
    assert np.isinf(part.expected_linear_model.C.upper).all()
    assert "60 regions" in repr(part)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    widths=st.sampled_from([(1, 4, 3, 1), (2, 4, 4, 1), (2, 3, 3, 3, 1)]),
    activation=st.sampled_from(["relu", leaky_relu(0.125), "abs", "relu6", "hardtanh"]),
)
@example(seed=420, widths=(1, 4, 3, 1), activation="relu")  # a unit that is 0 on a whole region: off, by the tie rule
def test_integer_networks_sum_to_one(seed, widths, activation):
    net = integer_net(widths, seed, activation)
    law = rs.Gaussian(np.zeros(widths[0]), 1.0)
    found = linear_models(net, law)
    assert found.masses.value.sum() == pytest.approx(1.0, abs=1e-12)
    assert len(np.unique(found.pattern, axis=0)) == len(found)
    x = np.round(law.sample(2000, rng=seed) * 2**20) / 2**20  # whole-number networks map these without rounding
    count, others = counted(found, net, x)
    assert others == 0
    assert plausible(count, len(x), found.masses.lower, found.masses.upper, alarm=1e-8).all()
    assert found.distinct_linear_models().mass.value.sum() == pytest.approx(1.0, abs=1e-12)


def test_sampling_follows_the_masses():
    found = linear_models(random_net((2, 6, 4, 1), 1, bias=0.5), G2)
    drawn = found.sample(100_000, rng=3)
    assert drawn.shape == (100_000, 10)
    _, inverse = np.unique(found.network.key(np.concatenate([found.pattern, drawn])), return_inverse=True)
    count = np.bincount(inverse[len(found) :], minlength=len(found))[inverse[: len(found)]]
    assert plausible(count, 100_000, found.masses.lower, found.masses.upper).all()
    assert (found.sample(5, rng=1) == found.sample(5, rng=1)).all()
    assert found.sample(0).shape == (0, 10)


# -- the paper's formula -----------------------------------------------------------------------------------------


def test_formula_11_agrees_where_it_applies():
    # Fewer hidden units than inputs: the covariance is invertible.
    law = rs.Gaussian([0.2, -0.1, 0.4], [[1.0, 0.2, 0.0], [0.2, 0.5, 0.1], [0.0, 0.1, 2.0]])
    net = random_net((3, 2, 1, 1), 4, bias=0.4)
    truth = linear_models(net, law)
    formula = linear_models(net, law, method="orthant", rng=0)
    assert formula.guarantee == "approximation"
    for p, m in zip(truth.pattern, truth.masses.value, strict=True):
        assert formula.mass(p).value == pytest.approx(m, abs=1e-4)
        assert formula.mass(p).lower == 0.0 and formula.mass(p).upper == 1.0


def test_diagonal_is_exact_for_independent_units_only():
    net = rs.Network([(np.eye(2), [0.5, -1.0]), ([[1.0, 1.0]], None)])
    law = rs.Gaussian([0.0, 0.0], 1.0)
    truth = linear_models(net, law)
    found = orthant_masses(net, law, truth.pattern, "diagonal")
    np.testing.assert_allclose(found, truth.masses.value, rtol=1e-12)
    twice = rs.Network([(np.ones((2, 2)), [0.0, 0.0]), ([[1.0, 1.0]], None)])
    # Two equal units: 1/2, not 1/4.
    assert orthant_masses(twice, law, [[1, 1]], "diagonal")[0] == pytest.approx(0.25)
    assert linear_models(twice, law).mass([1, 1]).value == pytest.approx(0.5, rel=1e-12)
    # On the example the diagonal covariance is off by a factor of two and more.
    example = rs.example("moons")
    truth = linear_models(example.network, example.law)
    heavy = truth.masses.value > 1e-4
    ratio = orthant_masses(example.network, example.law, truth.pattern[heavy], "diagonal") / truth.masses.value[heavy]
    assert max(ratio.max(), (1 / ratio).max()) > 2


def test_low_rank_with_enough_factors_is_the_truth():
    net = random_net((2, 5, 4, 1), 6, bias=0.4)
    truth = linear_models(net, G2)
    full = orthant_masses(net, G2, truth.pattern, "lowrank", rank=2, rng=0)
    np.testing.assert_allclose(full, truth.masses.value, atol=2e-3)  # 8192 quasi-random points on an indicator
    none = orthant_masses(net, G2, truth.pattern, "lowrank", rank=0)
    np.testing.assert_allclose(none, orthant_masses(net, G2, truth.pattern, "diagonal"))


def test_formula_with_constant_units_and_other_activations():
    # The second unit is dead: its variance is zero and the formula has no density for it.
    net = rs.Network([([[1.0, 0.0], [0.0, 0.0]], [0.3, -1.0]), ([[1.0, 1.0]], None)])
    law = rs.Gaussian([0.0, 0.0], 1.0)
    for method in ("orthant", "diagonal", "lowrank"):
        found = orthant_masses(net, law, [[1, 0], [1, 1]], method, rank=1, rng=0)
        assert found == pytest.approx([ndtr(0.3), 0.0], abs=1e-3)
    clipped = rs.Network([([[1.0, 0.0]], None, "hardtanh"), ([[1.0]], None)])
    found = orthant_masses(clipped, law, [[0], [1], [2]], "orthant", rng=0)
    assert found == pytest.approx([ndtr(-1.0), 1 - 2 * ndtr(-1.0), ndtr(-1.0)], abs=1e-6)
    affine = rs.Network([([[1.0, 1.0]], None)])
    assert orthant_masses(affine, law, np.zeros((1, 0), np.uint8), "diagonal").tolist() == [1.0]


# -- out ---------------------------------------------------------------------------------------------------------


def test_tables_and_text():
    example = rs.example("moons")
    found = linear_models(example.network, example.law)
    table = found.top(5)
    assert len(table) == 5
    assert table.remainder == pytest.approx(1 - found.masses.value[:5].sum(), abs=1e-12)
    assert table.remainder >= found.masses.value[5:].sum()
    assert "pattern" in repr(table) and "at most" in repr(table)
    columns = found.to_dict()
    assert list(columns)[:4] == ["mass", "lower", "upper", "pattern"]
    assert len(columns["C0_1"]) == len(found)
    pandas = pytest.importorskip("pandas")
    frame = found.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == len(found)
    assert "61 patterns" in repr(found) and "exact" in repr(found)
    assert len(found.top(10**6)) == len(found)
    assert pattern_text(np.array([[0, 1, 11]], np.uint8)) == ["01b"]
    missing = found.mass(1 - found.pattern[0])
    assert missing.value == 0.0 and missing.upper == 0.0 and "interior" in missing.note


def test_affine_network_has_one_linear_model():
    found = linear_models(rs.Network([(np.ones((1, 2)), [1.0])]), G2)
    assert len(found) == 1 and found.masses.value[0] == pytest.approx(1.0)
    assert found.entropy.value == pytest.approx(0.0, abs=1e-12)
    assert found.marginals.shape == (0, 1)
    assert found.mass(np.zeros(0, np.uint8)).value == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda f: linear_models("net", G2), "net must be a Network"),
        (lambda f: linear_models(f.network, "normal"), "law must be"),
        (lambda f: linear_models(f.network, rs.Gaussian([0.0], 1.0)), "1 inputs"),
        (lambda f: linear_models(f.network, G2, method="exact"), "method must be one of"),
        (lambda f: linear_models(f.network, G2, method=None), "method must be one of"),
        (lambda f: linear_models(f.network, G2, relative=0), "relative"),
        (lambda f: linear_models(f.network, G2, level=1.0), "level"),
        (lambda f: linear_models(f.network, G2, budget="soon"), "budget"),
        (lambda f: linear_models(f.network, G2, rng="seed"), "rng"),
        (lambda f: linear_models(f.network, G2, patterns=f.pattern), "patterns is for"),
        (lambda f: linear_models(f.network, LAWS["uniform 2"], method="orthant"), "formula \\(11\\)"),
        (lambda f: linear_models(f.network, G2, method="lowrank", rank=-1), "rank"),
        (lambda f: linear_models(f.network, G2, method="diagonal", patterns=[[0, 1]]), "pattern must hold"),
        (lambda f: f.top(0), "k must be"),
        (lambda f: f.top(2.5), "k must be"),
        (lambda f: f.mass([0, 1]), "pattern must"),
        (lambda f: f.mass(f.pattern), "one pattern"),
        (lambda f: f.mass(f.pattern[0] + 2), "outside"),
        (lambda f: f.mass("0101"), "pattern must"),
        (lambda f: f.sample(-1), "n must be"),
        (lambda f: f.sample(3, rng=-2), "rng"),
        (lambda f: f.distinct_linear_models(agreement=-1), "agreement"),
        (lambda f: orthant_masses(f.network, G2, f.pattern, "magic"), "method must be one of"),
        (lambda f: orthant_masses(f.network, rs.Gaussian([0.0], 1.0), f.pattern), "1 inputs"),
    ],
)
def test_bad_calls_say_what_is_wrong(call, says):
    found = linear_models(random_net((2, 4, 3, 1), 1), G2)
    with pytest.raises(InputError, match=says) as caught:
        call(found)
    assert "\n" not in str(caught.value)


# -- lines -------------------------------------------------------------------------------------------------------


def test_lines_agree_with_enumeration():
    net = random_net((3, 6, 5, 1), 2, bias=0.5)
    law = LAWS["gaussian 3"]
    exact, lines = linear_models(net, law), linear_models(net, law, method="lines", budget="0.3s", rng=1)
    assert lines.guarantee == "confidence" and lines.masses.value.sum() == pytest.approx(1.0, abs=1e-9)
    for i in range(20):
        answer, truth = lines.mass(exact.pattern[i]), exact.masses.value[i]
        # Within three widths of a 99.9 % Student interval from 16 replicates: false alarms below 1e-12 each.
        assert abs(answer.value - truth) <= 3 * (answer.upper - answer.lower) + 1e-9
    listed = np.array([exact.mass(p).value for p in lines.pattern])
    assert exact.masses.value.sum() - listed.sum() <= lines.remainder + 1e-9
    marginal = lines.marginals
    width = marginal.upper - marginal.lower
    # States rarer than a line in a hundred may not be met at all: no spread between replicates, no interval.
    common = (exact.marginals.value > 0.01) & (exact.marginals.value < 0.99)
    assert (np.abs(marginal.value - exact.marginals.value) <= 3 * width + 1e-9)[common].all()
    assert lines.entropy.lower <= exact.entropy.value <= lines.entropy.upper


def test_many_dimensions_go_by_lines():
    law = rs.Gaussian(np.zeros(10), 1.0)
    net = random_net((10, 12, 1), 1, bias=0.5)
    found = linear_models(net, law, rng=0)
    assert "lines" in found.method
    W, b = net.layers[0].weight, net.layers[0].bias
    exact = ndtr(b / np.linalg.norm(W, axis=1))
    width = (found.marginals.upper - found.marginals.lower)[:, 1]
    assert (np.abs(found.marginals.value[:, 1] - exact) <= 3 * width + 1e-9).all()
    assert 0 < found.remainder < 1


def test_a_time_budget_holds_where_masses_are_estimated():
    net, law = random_net((20, 16, 8, 1), 0), rs.Gaussian(np.zeros(20))
    assert "lines" in linear_models(net, law, budget="0.3s", rng=0).method
    listed = linear_models(net, law, method="enumeration", budget="0.4s", rng=0)
    assert listed.stopped == "budget of 0.4 s reached"
    assert (
        (listed.masses.lower <= listed.masses.value).all()
        and (listed.masses.value <= listed.masses.upper).all()
        and listed.remainder > 0.5
    )
    assert "entropy in [0, 24] bits" in repr(listed)  # an entropy of what was found is not the entropy


def test_inputs_and_outputs_are_named_as_in_events():
    moons = rs.example("moons")
    top = rs.linear_models(moons.network, moons.law).top(3)
    for shown in (repr(top), top._repr_html_()):
        assert "y[0] = -4.71 x[0] -7.48 x[1] +3.64" in shown
        assert "y0" not in shown and "x0" not in shown


def test_the_largest_coefficients_are_shown():
    net = rs.Network([([[1e-12, 3.0, 0.5, 0.0, -2.0, 4.0]], [1.0])])
    found = rs.linear_models(net, rs.Gaussian(np.zeros(6), 1.0))
    assert "y[0] = +3 x[1] -2 x[4] +4 x[5] +1 ..." in str(found.top(1))
