"""Importance, profiles, pairs, intervals."""

import numpy as np
import pytest

import reluscope as rs
from nets import random_net
from reluscope.errors import InputError
from reluscope.local_models import glm
from reluscope.local_models._data import Response


def linear(w, b=0.0):
    return rs.Network([(np.atleast_2d(w), [b])])


def test_importance_of_a_linear_network_in_closed_form():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3)) * [1.0, 2.0, 0.5]
    w = np.array([3.0, -1.0, 0.0])
    found = rs.unwrap(linear(w), X).importance()
    assert np.allclose(found.squares, [0.9, 0.1, 0.0])
    variance = w**2 * X.var(axis=0)
    assert np.allclose(found.variance, variance / variance.sum())
    assert found.rows()[0]["feature"] == "x0" and len(found.to_pandas()) == 3


@pytest.mark.parametrize("output", [None, 1])
def test_importance_by_definition(output):
    net = random_net((3, 7, 2), 1)
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(200, 3)), rng.uniform(0.5, 2, 200)
    u = rs.unwrap(net, X, sample_weight=w)
    which = [0, 1] if output is None else [output]
    C = u.coefficients[u.region][:, which]
    squares = np.einsum("n,nod->d", w, C**2)
    parts = C * (X - u.centre)[:, None]
    mean = np.average(parts, axis=0, weights=w)
    variance = np.average((parts - mean) ** 2, axis=0, weights=w).sum(axis=0)
    found = u.importance(output=output)
    assert np.allclose(found.squares, squares / squares.sum())
    assert np.allclose(found.variance, variance / variance.sum())


def test_profiles_and_pairs():
    net = random_net((3, 7, 1), 1)
    X = np.random.default_rng(0).normal(size=(200, 3))
    scale = np.array([1.0, 10.0, 100.0])
    u = rs.unwrap(net, X, feature_names=["a", "b", "c"], scaler=(np.zeros(3), 1 / scale))
    p = u.profile("b")
    assert np.allclose(p.value, X[:, 1] / 10)
    assert np.allclose(p.coefficient, 10 * u.coefficients[u.region, 0, 1])
    assert np.allclose(p.contribution, u.coefficients[u.region, 0, 1] * (X[:, 1] - u.centre[1]))
    bins = p.binned(5)
    assert bins["count"].sum() == 200 and np.average(bins["value"], weights=bins["count"]) == pytest.approx(
        p.value.mean()
    )
    pair = u.pair(0, "c", bins=4)
    total = u.profile(0).contribution + u.profile(2).contribution
    assert np.nansum(pair.mean * pair.count) == pytest.approx(total.sum())
    with pytest.raises(InputError, match="feature must be one of"):
        u.profile("z")


def test_the_smooth_curve_keeps_straight_lines():
    rng = np.random.default_rng(0)
    u = rs.unwrap(linear([2.0]), rng.normal(size=(300, 1)))
    p = u.profile(0)
    x, y = p.partial()
    assert np.allclose(y, 2 * (x - p.value.mean()))


def data(n, seed, task):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) * [1.0, 3.0] + [0.0, 5.0]
    eta = 0.5 + X @ [1.0, -0.3]
    if task == "regression":
        return X, eta + 0.7 * rng.normal(size=n)
    return X, (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int)


def test_wald_intervals_of_a_line_are_the_textbook_ones():
    X, y = data(60, 0, "regression")
    found = rs.unwrap(linear([0.9, -0.2]), X, y, task="regression").intervals(0, level=0.95)
    Z = np.column_stack([np.ones(60), X])
    beta = np.linalg.solve(Z.T @ Z, Z.T @ y)
    s2 = ((y - Z @ beta) ** 2).sum() / 57
    error = np.sqrt(s2 * np.diag(np.linalg.inv(Z.T @ Z)))
    assert np.allclose(found.estimate, beta) and np.allclose(found.error, error)
    assert np.allclose(found.upper - found.estimate, 2.0024654592910065 * error)  # scipy.stats.t(57).ppf(0.975)
    assert np.allclose(found.network, [0.0, 0.9, -0.2])


def test_wald_intervals_of_logistic_regression():
    X, y = data(400, 1, "binary")
    found = rs.unwrap(linear([0.9, -0.2]), X, y).intervals(0)
    Z = np.column_stack([np.ones(400), X])
    p = 1 / (1 + np.exp(-Z @ found.estimate))
    assert np.allclose(Z.T @ (y - p), 0, atol=1e-6)  # the score vanishes at the estimate
    fisher = (Z * (p * (1 - p))[:, None]).T @ Z
    assert np.allclose(found.error, np.sqrt(np.diag(np.linalg.inv(fisher))), rtol=1e-6)
    assert len(found.to_pandas()) == 3 and "intercept" in repr(found)


def test_intervals_cover():
    """95 % intervals of 400 data sets: fewer than 360 or more than 395 hits has probability below 1e-4."""
    for task, most in (("regression", 400), ("binary", 400)):
        hits = np.zeros(3)
        for seed in range(most):
            X, y = data(80, 1000 + seed, task)
            found = rs.unwrap(linear([0.9, -0.2]), X, y, task=task).intervals(0, level=0.95)
            hits += (found.lower <= [0.5, 1.0, -0.3]) & (found.upper >= [0.5, 1.0, -0.3])
        assert (hits >= 360).all() and (hits <= 397).all(), hits


def test_bootstrap_is_near_wald_for_many_rows():
    X, y = data(800, 3, "binary")
    u = rs.unwrap(linear([0.9, -0.2]), X, y)
    wald, boot = u.intervals(0), u.intervals(0, method="bootstrap", draws=200, rng=1)
    assert np.allclose(boot.error, wald.error, rtol=0.3)
    assert np.allclose(boot.estimate, wald.estimate, atol=0.02)
    assert np.array_equal(boot.lower, u.intervals(0, method="bootstrap", draws=200, rng=1).lower)


def test_intervals_that_cannot_be():
    X, _ = data(60, 0, "binary")
    net = linear([0.9, -0.2])
    with pytest.raises(InputError, match="single class"):
        rs.unwrap(net, X, np.ones(60, dtype=int), task="binary", classes=[0, 1]).intervals(0)
    with pytest.raises(InputError, match="rows for 3 coefficients"):
        rs.unwrap(net, X[:3], [0.0, 1.5, 2.0]).intervals(0)
    with pytest.raises(InputError, match="need a response"):
        rs.unwrap(net, X).intervals(0)
    ridge = rs.unwrap(net, X, (X[:, 0] > 0).astype(int)).intervals(0, penalty=1.0)
    assert np.isfinite(ridge.error).all()


def test_multinomial_fits_match_logistic_for_two_classes():
    X, y = data(200, 5, "binary")
    scale = glm.Scale.of(X)
    two = glm.fit(X, Response("binary", None, y, (0, 1)), penalty=0.5, scale=scale)
    # With logits (-e/2, e/2) the ridge counts each coefficient twice at half its size.
    many = glm.fit(X, Response("multiclass", None, y, (0, 1)), penalty=1.0, scale=scale)
    assert np.allclose(many.C[1] - many.C[0], two.C[0], atol=1e-4)


@pytest.mark.parametrize("task", ["regression", "binary", "multiclass"])
def test_fits_minimise_the_penalised_objective(task):
    rng = np.random.default_rng(0)
    X, y = data(80, 7, "binary")
    outputs = 3 if task == "multiclass" else 1
    code = rng.integers(0, 3, 80) if outputs == 3 else y
    response = Response(task, X[:, :1] ** 2 if task == "regression" else None, code, tuple(range(max(outputs, 2))))
    scale, w = glm.Scale.of(X), rng.uniform(0.5, 2, 80)
    towards = glm.Linear(rng.normal(size=(outputs, 2)), rng.normal(size=outputs))
    found = glm.fit(X, response, penalty=3.0, scale=scale, weight=w, towards=towards)

    def objective(beta):
        eta = scale.design(X) @ beta.T
        if task == "regression":
            loss = 0.5 * w @ (response.target - eta)[:, 0] ** 2
        elif task == "binary":
            loss = w @ (np.logaddexp(0, eta[:, 0]) - code * eta[:, 0])
        else:
            loss = w @ (np.log(np.exp(eta).sum(axis=1)) - eta[np.arange(80), code])
        return loss + 1.5 * ((beta - scale.into(towards)) ** 2).sum()

    at = scale.into(found)
    for _ in range(20):
        step = 1e-4 * rng.normal(size=at.shape)
        slope = (objective(at + step) - objective(at - step)) / np.linalg.norm(step)
        assert abs(slope) < 1e-4
    far = glm.fit(X, response, penalty=1e9, scale=scale, weight=w, towards=towards)
    assert np.allclose(far.C, towards.C, atol=1e-5) and np.allclose(far.d, towards.d, atol=1e-5)


@pytest.mark.parametrize("task", ["regression", "binary", "multiclass"])
def test_fits_of_groups_are_the_fits_of_each(task):
    rng = np.random.default_rng(1)
    X, y = data(90, 8, "binary")
    code = rng.integers(0, 3, 90) if task == "multiclass" else y
    target = np.column_stack([X[:, 0] ** 2, X[:, 1]]) if task == "regression" else None
    response = Response(task, target, code, (0, 1, 2) if task == "multiclass" else (0, 1))
    scale, w = glm.Scale.of(X), rng.uniform(0.5, 2, 90)
    whole = glm.fit(X, response, penalty=1.0, scale=scale, weight=w)
    rows, ends = rng.permutation(90), np.array([0, 3, 3, 40, 90])  # the second group has no rows
    found = glm.fits(X, response, rows, ends, penalty=1.0, scale=scale, weight=w, towards=whole)
    assert np.allclose(found[1].C, whole.C, rtol=1e-12) and np.allclose(found[1].d, whole.d, rtol=1e-12)
    for g in (0, 2, 3):
        mine = rows[ends[g] : ends[g + 1]]
        part = response.part(mine)
        alone = glm.fit(X[mine], part, penalty=1.0, scale=scale, weight=w[mine], towards=whole)
        assert np.allclose(found[g].C, alone.C, rtol=1e-9) and np.allclose(found[g].d, alone.d, rtol=1e-9)
    group = rng.integers(0, 4, 90)
    eta = glm.predict(X, rows, group, found)
    expected = np.stack([found[g](X[i : i + 1])[0] for g, i in zip(group, rows, strict=True)])
    assert np.allclose(eta, expected, rtol=1e-12)


def test_least_squares_agree_with_lapack():
    rng = np.random.default_rng(2)
    for n, p, dependent in ((5, 3, False), (40, 7, False), (40, 7, True), (3, 6, True)):
        X = rng.normal(size=(n, p)) * 10.0 ** rng.integers(-6, 7, p)
        if dependent:
            X[:, 1] = 2 * X[:, 0]
        y, scale = rng.normal(size=(n, 2)), glm.Scale.of(X)
        found = glm.fit(X, Response("regression", y, None, ()), penalty=0.0, scale=scale)
        expected = np.linalg.lstsq(scale.design(X), y, rcond=None)[0]
        assert np.allclose(scale.into(found), expected.T, atol=1e-9 * np.abs(expected).max())


# -- coefficients that the rows do not determine -------------------------------------------------------------------


def responses(eta, task, rng):
    if task == "regression":
        return eta + 0.7 * rng.normal(size=len(eta))
    return (rng.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(int)


@pytest.mark.parametrize("task", ["regression", "binary"])
@pytest.mark.parametrize("weighted", [False, True])
def test_two_equal_features_are_aliased_and_the_others_as_without_one_of_them(task, weighted):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(200, 3)) * [1.0, 30.0, 0.01] + [0.0, 5.0, 2.0]
    y = responses(0.5 + X[:, 0] - 0.03 * X[:, 1], task, rng)
    w = rng.uniform(0.2, 2, 200) if weighted else None
    twice = np.column_stack([X, X[:, 0]])
    found = rs.unwrap(linear([0.5, 0, 0, 0.5]), twice, y, task=task, sample_weight=w).intervals(0)
    alone = rs.unwrap(linear([1.0, 0, 0]), X, y, task=task, sample_weight=w).intervals(0)
    assert found.aliased.tolist() == [False, True, False, False, True] and not alone.aliased.any()
    for name in ("estimate", "error", "lower", "upper", "p_value"):
        ours, theirs = getattr(found, name), getattr(alone, name)
        assert np.isnan(ours[[1, 4]]).all()
        assert np.allclose(ours[[0, 2, 3]], theirs[[0, 2, 3]], rtol=1e-6)
    assert [row["aliased"] for row in found.rows()] == found.aliased.tolist()
    assert "2 aliased" in repr(found) and "aliased" not in repr(alone).splitlines()[-1]
    from matplotlib.figure import Figure

    labels = [t.get_text() for t in found.plot(Figure().add_subplot()).get_yticklabels()]
    assert labels == ["x0 (aliased)", "x1", "x2", "x3 (aliased)"]


@pytest.mark.parametrize("weighted", [False, True])
def test_levels_that_add_up_to_one_are_compared_with_the_most_frequent(weighted):
    rng = np.random.default_rng(0)
    kind = rng.choice(3, 150, p=[0.3, 0.5, 0.2])
    X = np.column_stack([kind == 0, kind == 1, kind == 2, rng.normal(size=150)]).astype(float)
    y = kind + 2.0 * X[:, 3] + 0.1 * rng.normal(size=150)
    w = np.where(kind == 2, 4.0, 1.0) if weighted else None
    found = rs.unwrap(linear([0.5, 1.0, 2.5, 2.0]), X, y, task="regression", sample_weight=w).intervals(0)
    base = 2 if weighted else 1
    others = [j for j in range(4) if j != base]
    alone = rs.unwrap(linear([0.0] * 3), X[:, others], y, task="regression", sample_weight=w).intervals(0)
    assert found.base.tolist() == [j == 1 + base for j in range(5)] and not found.aliased.any()
    for name in ("estimate", "error", "lower", "upper", "p_value"):
        ours = getattr(found, name)
        assert np.allclose(np.delete(ours, 1 + base), getattr(alone, name), rtol=1e-6), name
        assert ours[1 + base] == 0 if name == "estimate" else np.isnan(ours[1 + base])
    assert np.allclose(found.network, np.array([0, 0.5, 1.0, 2.5, 2.0]) - np.array([-1, 1, 1, 1, 0]) * found.network[0])
    assert found.network[0] == [0.5, 1.0, 2.5][base]
    assert found.support.tolist() == [150, *np.bincount(kind).tolist(), 150]
    assert f"its most frequent one: x{base} (the base, 0)" in repr(found)
    from matplotlib.figure import Figure

    labels = [t.get_text() for t in found.plot(Figure().add_subplot()).get_yticklabels()]
    assert labels == [f"x{j}{' (base)' * (j == base)}" for j in range(4)]


def test_a_level_with_one_class_is_separated_and_not_hidden_by_the_other_levels():
    rng = np.random.default_rng(0)
    kind = np.repeat([0, 1, 2], [100, 60, 3])
    y = np.where(kind == 2, 0, rng.integers(0, 2, 163))
    X = np.column_stack([kind == 2, kind == 0, kind == 1, rng.normal(size=163)]).astype(float)
    found = rs.unwrap(linear([-5.0, 0.0, 0.1, 0.0]), X, y).intervals(0)
    dropped = rs.unwrap(linear([-5.0, 0.1, 0.0]), X[:, [0, 2, 3]], y).intervals(0)
    assert found.separated.tolist() == [False, True, False, False, False] and not found.aliased.any()
    assert found.estimate[1] == -np.inf and np.isfinite(found.upper[1]) and found.support[1] == 3
    for name in ("estimate", "error", "lower", "upper", "p_value"):
        kept = getattr(found, name)[[0, 1, 3, 4]]
        assert np.allclose(kept, getattr(dropped, name), equal_nan=True, rtol=1e-6), name


def test_features_of_zeros_and_ones_that_are_no_levels_stay_as_they_are():
    rng = np.random.default_rng(1)
    flags = (rng.random((80, 3)) < 0.4).astype(float)  # some rows have none, some several
    found = rs.unwrap(linear([1.0, 2.0, 3.0]), flags, flags @ [1.0, 2, 3] + rng.normal(size=80)).intervals(0)
    assert not found.base.any() and found.network.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert found.support.tolist() == [80, *flags.sum(axis=0).astype(int).tolist()]


def test_a_feature_that_does_not_vary_is_aliased_and_its_part_is_in_the_intercept():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=60), np.full(60, 4.0)])
    y = 1.0 + X @ [2.0, 3.0] + 0.1 * rng.normal(size=60)
    found = rs.unwrap(linear([2.0, 3.0]), X, y, task="regression").intervals(0)
    assert found.aliased.tolist() == [False, False, True] and np.isnan(found.estimate[2])
    assert found.lower[0] < 13.0 < found.upper[0]


def test_nearly_equal_features_are_not_aliased():
    """A difference of 1e-6 standard deviations still tells them apart; one of 1e-14 does not."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 1))
    y = x[:, 0] + 0.1 * rng.normal(size=100)
    for gap, aliased in ((1e-6, False), (1e-14, True)):
        X = np.column_stack([x, x + gap * rng.normal(size=(100, 1))])
        found = rs.unwrap(linear([0.5, 0.5]), X, y, task="regression").intervals(0)
        assert found.aliased[1:].tolist() == [aliased, aliased] and not found.aliased[0]
    assert np.isnan(found.error[1])


def test_aliased_coefficients_with_a_ridge_and_by_bootstrap():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(120, 1))
    X, y = np.column_stack([x, x]), responses(x[:, 0], "binary", rng)
    u = rs.unwrap(linear([0.5, 0.5]), X, y)
    ridge = u.intervals(0, penalty=1.0)
    assert ridge.aliased.tolist() == [False, True, True]
    assert np.isfinite(ridge.estimate).all() and np.isnan(ridge.error[1:]).all() and np.isfinite(ridge.error[0])
    boot = u.intervals(0, method="bootstrap", draws=30)
    assert np.isnan(boot.estimate[1:]).all() and np.isnan(boot.lower[1:]).all() and np.isfinite(boot.lower[0])
    both = u.intervals(0, method="bootstrap", draws=30, penalty=1.0)
    assert np.isfinite(both.lower).all() and both.aliased.tolist() == [False, True, True]
    few = rs.unwrap(linear(np.ones(9)), rng.normal(size=(6, 9)), rng.normal(size=6), task="regression")
    with pytest.raises(InputError, match="6 rows for 10 coefficients"):
        few.intervals(0)
    assert few.intervals(0, penalty=1.0).aliased.sum() == 10


# -- separated classes ---------------------------------------------------------------------------------------------


def two_by_two(k=6, n=10, m=7):
    """k of n positive where the dummy is 0, all m positive where it is 1: the coefficient of the dummy is infinite."""
    x = np.repeat([0.0, 1.0], [n, m])
    y = np.concatenate([np.arange(n) < k, np.ones(m)]).astype(int)
    return x[:, None], y


def test_a_zero_cell_has_an_infinite_estimate_and_a_one_sided_profile_interval():
    """Quasi-complete separation: a ridge or a stopped search would invent a number and an interval here."""
    from scipy.optimize import brentq, minimize_scalar
    from scipy.stats import chi2

    k, n, m = 6, 10, 7
    X, y = two_by_two(k, n, m)
    u = rs.unwrap(linear([0.9]), X, y)
    found = u.intervals(0, level=0.95)
    assert found.separated.tolist() == [False, True] and found.penalty == 0
    assert found.estimate[0] == pytest.approx(np.log(0.6 / 0.4)) and found.estimate[1] == np.inf
    assert found.error[0] == pytest.approx(np.sqrt(1 / 6 + 1 / 4)) and np.isnan(found.error[1])

    def profile(b):  # the log-likelihood of the table with log odds a and a + b, maximised over a
        def minus(a):
            return n * np.logaddexp(0, a) - k * a + m * np.logaddexp(0, -(a + b))

        return -minimize_scalar(minus, bounds=(-30, 30), method="bounded", options={"xatol": 1e-10}).fun

    top = k * np.log(k / n) + (n - k) * np.log(1 - k / n)
    end = brentq(lambda b: 2 * (top - profile(b)) - chi2.ppf(0.95, 1), -10, 10)
    assert found.lower[1] == pytest.approx(end, abs=1e-4) and found.upper[1] == np.inf
    assert found.p_value[1] == pytest.approx(chi2.sf(2 * (top - profile(0.0)), 1), rel=1e-4)
    mirrored = rs.unwrap(linear([0.9]), -X, y).intervals(0, level=0.95)
    assert mirrored.estimate[1] == -np.inf and mirrored.upper[1] == pytest.approx(-end, abs=1e-4)
    assert mirrored.lower[1] == -np.inf
    assert "1 separated: the likelihood has no maximum" in repr(found) and "maximum likelihood" in repr(found)
    boot = u.intervals(0, method="bootstrap", draws=40, rng=0)
    assert boot.separated[1] and boot.estimate[1] == np.inf and np.isnan([boot.lower[1], boot.upper[1]]).all()
    assert np.isfinite(boot.estimate[0]) and boot.resamples == 40
    ridge = u.intervals(0, penalty=1.0)
    assert ridge.separated[1] and np.isfinite(ridge.estimate[1]) and "ridge of 1" in repr(ridge)
    assert "their size comes from the ridge" in repr(ridge)
    from matplotlib.figure import Figure

    ax = found.plot(Figure().add_subplot())
    assert [t.get_text() for t in ax.get_yticklabels()] == ["x0 (separated)"]
    assert any(line.get_marker() == ">" and line.get_xdata()[0] == found.lower[1] for line in ax.lines)


def test_separated_classes_leave_the_other_coefficients_as_the_other_rows_have_them():
    rng = np.random.default_rng(0)
    X, y = data(200, 4, "binary")
    rare = np.zeros(230)
    rare[200:] = 1.0
    both = np.vstack([X, rng.normal(size=(30, 2))])
    found = rs.unwrap(
        linear([0.9, -0.2, 0.0]), np.column_stack([both, rare]), np.append(y, np.ones(30, int))
    ).intervals(0)
    alone = rs.unwrap(linear([0.9, -0.2]), X, y).intervals(0)
    assert found.separated.tolist() == [False, False, False, True]
    for name in ("estimate", "error", "lower", "upper", "p_value"):
        assert np.allclose(getattr(found, name)[:3], getattr(alone, name), rtol=1e-5), name
    assert found.estimate[3] == np.inf and np.isfinite(found.lower[3])


def test_complete_separation_determines_a_sign_at_most():
    X, _ = data(60, 0, "binary")
    found = rs.unwrap(linear([0.9, -0.2]), X, (X[:, 0] > 0).astype(int)).intervals(0)
    assert found.separated.all() and found.estimate[1] == np.inf and found.lower[1] > 0
    either = np.isnan(found.estimate)  # these may go either way: nothing is known
    assert either[2] and (found.lower[either] == -np.inf).all() and (found.upper[either] == np.inf).all()


def test_near_separation_is_not_separation():
    """One row on the wrong side, however far the others run: the estimate is finite."""
    x = np.r_[np.linspace(-5, -0.5, 40), np.linspace(0.5, 5, 40), [-0.6]]
    y = np.r_[np.zeros(40), np.ones(41)].astype(int)
    found = rs.unwrap(linear([1.0]), x[:, None], y).intervals(0)
    assert not found.separated.any() and np.isfinite(found.estimate).all() and found.estimate[1] > 5


def test_the_bootstrap_has_no_hidden_ridge():
    """Its estimate is that of maximum likelihood; a resample that is separated counts as infinite."""
    X, y = data(120, 3, "binary")
    u = rs.unwrap(linear([0.9, -0.2]), X, y)
    assert np.allclose(u.intervals(0, method="bootstrap", draws=20, rng=0).estimate, u.intervals(0).estimate, rtol=1e-8)
    X, y = two_by_two(6, 10, 7)
    y[-1] = 0  # one row in the cell: a third of the resamples miss it
    found = rs.unwrap(linear([0.9]), X, y).intervals(0, method="bootstrap", draws=60, rng=0, level=0.9)
    assert not found.separated.any() and 5 < found.resamples < 40 and found.upper[1] == np.inf
    assert np.isfinite(found.estimate).all() and np.isfinite(found.lower[1])
    assert "resamples were separated" in repr(found)


def test_intervals_of_merged_models_are_headed_by_what_they_show():
    X, y = data(300, 1, "binary")
    u = rs.unwrap(random_net((2, 6, 1), 0), X, y)
    m = u.merge(2)
    found = m.intervals(0)
    assert "merged" in found.rows()[0] and "network" not in found.rows()[0]
    assert np.allclose([row["merged"] for row in found.rows()], np.append(m.d[0], m.C[0, 0]))
    assert "network" in u.intervals(0, penalty=1.0).rows()[0]
