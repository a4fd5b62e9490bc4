"""Training with L1, the path, the estimators."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import make_circles
from sklearn.linear_model import Lasso
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import reluscope as rs
from reluscope.errors import InputError
from reluscope.local_models import training
from reluscope.local_models._data import Response
from reluscope.local_models.training import Recipe, train


@pytest.mark.parametrize("loss", ["_squared", "_logistic", "_softmax"])
def test_gradients_against_differences(loss):
    rng = np.random.default_rng(0)
    outputs = 3 if loss == "_softmax" else 1
    net = training._Parameters((3, 5, 4, outputs))
    net.draw(rng)
    Z, w = rng.normal(size=(20, 3)), rng.uniform(0.5, 2, 20)
    Y = np.eye(3)[rng.integers(0, 3, 20)] if outputs == 3 else rng.integers(0, 2, (20, 1)).astype(float)
    gradient = np.zeros_like(net.flat)
    function = getattr(training, loss)
    training._backward(net, Z, Y, w, function, *net.views(gradient))

    def value(flat):
        net.flat[:] = flat
        return (w * function(net.forward(Z)[-1], Y)[0]).sum() / 20

    at = net.flat.copy()
    for k in range(len(at)):
        step = np.zeros_like(at)
        step[k] = 1e-6
        assert gradient[k] == pytest.approx((value(at + step) - value(at - step)) / 2e-6, abs=1e-7)


def test_proximal_adam_solves_the_lasso():
    """Without hidden layers the objective is the Lasso's, ½ mean squared error + l1 Σ|w|, which scikit-learn solves."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = X @ [2.0, -1.0, 0.5, 0, 0, 0] + 0.3 * rng.normal(size=200)
    y = (y - y.mean()) / y.std()
    recipe = Recipe(hidden=(), l1=0.1, rate=1e-2, batch=200, epochs=3000, patience=3000, validation_fraction=0.0)
    done = train(X, Response("regression", y[:, None]), recipe)
    lasso = Lasso(alpha=0.1, tol=1e-10).fit(X, y)
    assert np.allclose(done.network.layers[0].weight[0], lasso.coef_, atol=2e-3)
    assert ((done.network.layers[0].weight[0] == 0) == (lasso.coef_ == 0)).all()
    assert done.zeros == pytest.approx((lasso.coef_ == 0).mean())


def test_seeds_fix_everything_and_scaling_is_folded():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2)) * [1, 1000] + [5, -3]
    y = 7 + 30 * np.maximum(X[:, :1], 5)
    recipe = Recipe(hidden=(10,), epochs=150, rate=1e-2, batch=32)
    a, b = (train(X, Response("regression", y), recipe, rng=3) for _ in range(2))
    assert all(np.array_equal(p.weight, q.weight) for p, q in zip(a.network.layers, b.network.layers, strict=True))
    c = train(X, Response("regression", y), recipe, rng=4)
    assert not np.array_equal(a.network.layers[0].weight, c.network.layers[0].weight)
    assert np.mean((a.network(X) - y) ** 2) < 0.05 * y.var()
    again = train(X, Response("regression", y), Recipe(hidden=(10,), epochs=1, rate=1e-9), start=a.network)
    assert np.allclose(again.network(X), a.network(X), rtol=1e-4)


def test_progress_and_divergence():
    X, y = make_circles(100, random_state=0)
    seen = []
    response = Response("binary", None, y, (0, 1))
    train(X, response, Recipe(hidden=(4,), epochs=3), progress=lambda done, text: seen.append((done, text)))
    assert [done for done, _ in seen] == [1, 2, 3] and "epoch 3 of 3" in seen[-1][1]
    for seed in range(12):  # exploding outputs, or dead units and a bias that only overflows in the units of y
        with pytest.raises(InputError, match="diverged"), np.errstate(all="ignore"):
            recipe = Recipe(hidden=(4, 4), rate=1e150, standardise=False)
            train(1e3 * X, Response("regression", X[:, :1] * 1e200), recipe, rng=seed)
    for bad in ({"l1": -1.0}, {"rate": 0.0}, {"hidden": (0,)}, {"epochs": 0}, {"validation_fraction": 1.0}):
        with pytest.raises(InputError, match=next(iter(bad))):
            Recipe(**bad)


def test_responses_of_any_size_are_learned():
    X, _ = make_circles(100, random_state=0)
    recipe = Recipe(hidden=(4,), epochs=5)
    plain, huge = (train(X, Response("regression", X[:, :1] * s), recipe, rng=0).network for s in (1.0, 2.0**660))
    assert np.array_equal(huge(X), plain(X) * 2.0**660)


def test_l1_path_trades_regions_for_little():
    X, y = make_circles(600, noise=0.1, factor=0.5, random_state=0)
    path = rs.l1_path(X, y, [0.01, 0.0, 1e-3], hidden=(16, 16), epochs=150, rate=3e-3, batch=64, rng=0, progress=None)
    assert path.penalties.tolist() == [0.0, 1e-3, 0.01] and len(path) == len(path.networks) == 3
    points = path.points
    assert points[0].regions > points[2].regions and points[0].zero_share == 0 < points[1].zero_share
    assert all(0.9 < p.test_score <= 1 for p in points[:2])
    u = path.unwrapped[1]
    assert points[1].regions == len(u) and u.certificate.relative < 1e-12
    assert points[1].single_row_share == pytest.approx((u.count == 1).mean())
    assert len(u.region) == 480
    # Validation rows choose: a test score that is spoilt afterwards changes nothing.
    spoilt = replace(path, points=tuple(replace(p, test_score=0.0 if k == 1 else 1.0) for k, p in enumerate(points)))
    for drop in (0.0, 0.01, 0.05):
        scores = np.array([p.validation_score for p in points])
        assert path.sparsest(drop) == spoilt.sparsest(drop) == np.flatnonzero(scores >= scores.max() - drop)[-1]
    held = train(u.X, u.response, Recipe((16, 16), l1=1e-3, rate=3e-3, batch=64, epochs=1), rng=0).held
    assert 90 < len(held) < 102  # a fifth of the training rows
    with pytest.raises(InputError, match="no validation rows"):
        replace(path, points=(replace(points[0], validation_score=np.nan),)).sparsest()
    assert path.sparsest(1.0) == 2 and "penalty" in repr(path) and len(path.to_pandas()) == 3


def test_l1_path_on_given_test_rows_and_numbers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = np.abs(X[:, 0]) + 0.1 * rng.normal(size=200)
    path = rs.l1_path(
        X[:150], y[:150], [1e-3], X_test=X[150:], y_test=y[150:], hidden=(8,), epochs=60, rate=1e-2, progress=None
    )
    assert path.metric == "r2" and path.points[0].single_class_share is None
    error = np.mean((path.networks[0](X[150:])[:, 0] - y[150:]) ** 2)
    assert path.points[0].test_score == pytest.approx(1 - error / y[150:].var())
    again = rs.l1_path(
        X[:150], y[:150], [1e-3], X_test=X[150:], y_test=y[150:], hidden=(8,), epochs=60, rate=1e-2, rng=path.seed
    )
    assert again.points == path.points
    for bad, message in (
        ({"penalties": [-1.0]}, "penalties"),
        ({"X_test": X}, "given together"),
        ({"speed": 3}, "unknown option"),
        ({"test_share": 2.0}, "test_share"),
    ):
        with pytest.raises(InputError, match=message):
            rs.l1_path(X, y, **({"penalties": [0.0]} | bad))


FAST = {"hidden": (8,), "epochs": 20, "rate": 1e-2, "batch": 64}


@parametrize_with_checks(
    [
        rs.ReluClassifier(hidden=(16,), epochs=60, rate=1e-2, batch=32),
        rs.ReluRegressor(hidden=(16,), epochs=60, rate=1e-2, batch=32),
        rs.LocalLinearClassifier(3, **FAST),
        rs.LocalLinearRegressor(3, **FAST),
    ],
    expected_failed_checks=lambda _: dict.fromkeys(
        ("check_sample_weight_equivalence_on_dense_data", "check_sample_weights_invariance"),
        "batches are drawn at random: copies of a row are not the same training as its weight",
    ),
)
@pytest.mark.filterwarnings("ignore")  # the checks provoke warnings on purpose
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_grid_search_and_pipelines():
    X, y = make_circles(200, noise=0.1, factor=0.4, random_state=0)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), rs.LocalLinearClassifier(hidden=(8,), epochs=60, rate=1e-2, batch=32)),
        {"locallinearclassifier__n_models": [1, 4]},
        cv=2,
    ).fit(X, y)
    assert search.best_params_ == {"locallinearclassifier__n_models": 4} and search.best_score_ > 0.8
    model = rs.ReluClassifier((8,), epochs=60, rate=1e-2, batch=32).fit(X, np.array(["a", "b"])[y])
    u = model.unwrap(X, np.array(["a", "b"])[y])
    assert u.task == "binary" and np.allclose(u.prediction[:, 0], model.decision_function(X))
    assert rs.unwrap(model, X).certificate.relative < 1e-12
    both = rs.ReluRegressor((8,), epochs=30).fit(X, np.column_stack([y, 1 - y]))
    assert both.predict(X).shape == (200, 2)


def test_weights_of_rows_and_classes_move_the_predictions():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = (rng.random(600) < 1 / (1 + np.exp(-X[:, 0] + 1.5))).astype(int)
    options = {"hidden": (8,), "epochs": 60, "rate": 1e-2, "random_state": 0}
    plain = rs.ReluClassifier(**options).fit(X, y)
    even = rs.ReluClassifier(**options, class_weight="balanced").fit(X, y)
    assert plain.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), abs=0.04)
    weight = np.where(y == 1, 0.5 / y.mean(), 0.5 / (1 - y.mean()))
    assert np.average(even.predict_proba(X)[:, 1], weights=weight) == pytest.approx(0.5, abs=0.04)
    by_hand = rs.ReluClassifier(**options).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(by_hand.predict_proba(X), even.predict_proba(X), rtol=1e-9)
    left_out = (X[:, 1] > 0).astype(float)  # rows of weight 0 do not count: their labels may be anything
    other = np.where(left_out > 0, y, 1 - y)
    a, b = (rs.ReluRegressor(**options).fit(X, v.astype(float), sample_weight=left_out) for v in (y, other))
    assert a.score(X, y, sample_weight=left_out) == pytest.approx(b.score(X, y, sample_weight=left_out), abs=0.05)
    few = rs.LocalLinearClassifier(2, **options, class_weight="balanced").fit(X, y)
    assert np.average(few.predict_proba(X)[:, 1], weights=weight) == pytest.approx(0.5, abs=0.05)
    for bad, words in (
        ([1.0], "sample_weight"),
        (np.full(600, -1.0), "sample_weight"),
        (np.zeros(600), "sample_weight"),
    ):
        with pytest.raises(InputError, match=words):
            rs.ReluClassifier(**options).fit(X, y, sample_weight=bad)
    with pytest.raises(InputError, match="class_weight"):
        rs.ReluClassifier(**options, class_weight="heavy").fit(X, y)
