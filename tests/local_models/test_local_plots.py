"""Every picture draws the numbers it is of, on the Axes it was given, and refuses what it cannot show."""

import itertools
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.figure import Figure

import reluscope as rs
from nets import random_net
from reluscope.errors import InputError
from reluscope.plot.instances import GREEN, some_rows
from reluscope.plot.local_models import KINDS

TASKS = ["regression", "binary", "multiclass", "none"]


def unwrapped(task, inputs=2):
    outputs = 3 if task == "multiclass" else 1
    net = random_net((inputs, 6, 5, outputs), 0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, inputs)) * np.arange(1, inputs + 1)
    eta = net(X) + 0.5 * rng.normal(size=(150, outputs))
    y = {"regression": eta[:, 0], "binary": (eta[:, 0] > 0).astype(int), "multiclass": eta.argmax(axis=1), "none": None}
    return rs.unwrap(net, X, y[task])


def check_regions(u, ax):
    arrows = [c for c in ax.collections if type(c).__name__ == "Quiver"]
    shown = min(40, len(u))
    middles = np.array([u.X[u.region == r].mean(axis=0) for r in range(shown)])
    slopes = u.coefficients[:shown, 0]
    for drawn in arrows:
        assert np.allclose(drawn.get_offsets(), middles)
        reach = np.column_stack([drawn.U, drawn.V])
        assert np.allclose(reach / np.linalg.norm(reach), slopes / np.linalg.norm(slopes))  # one scale for all
    assert len(arrows) == 2 and f"{len(u):,} regions" in ax.get_title()


def check_parallel(u, ax):
    lines = [line.get_ydata() for line in ax.lines if len(line.get_xdata()) == 2 and line.get_linestyle() == "-"]
    order = np.argsort(-u.importance(output=0).variance)
    scaled = u.coefficients[: min(30, len(u)), 0][:, order] * u.X.std(axis=0)[order]
    assert np.allclose(lines, scaled[::-1])  # the largest region on top
    assert [t.get_text() for t in ax.get_xticklabels()] == [u.feature_names[j] for j in order]


def check_violin(u, ax):
    order = np.argsort(-u.importance(output=0).variance)
    rows = u.coefficients[u.region, 0][:, order] * u.X.std(axis=0)[order]
    middle = next(line for line in ax.lines if line.get_marker() == "o")
    assert np.allclose(middle.get_xdata(), np.median(rows, axis=0))
    quartiles = next(c for c in ax.collections if type(c).__name__ == "LineCollection")
    ends = np.array([[segment[0, 0], segment[1, 0]] for segment in quartiles.get_segments()])
    assert np.allclose(ends, np.quantile(rows, [0.25, 0.75], axis=0).T)


def check_importance(u, ax):
    found = u.importance()
    order = np.argsort(-found.variance)
    widths = [bar.get_width() for bar in ax.patches]
    assert not found.standardised and np.allclose(widths, found.variance[order])
    assert sum(widths) == pytest.approx(1.0)
    both = [bar.get_width() for bar in u.plot("importance", Figure().add_subplot(), squares=True).patches]
    assert np.allclose(both, np.concatenate([found.variance[order], found.squares[order]]))


def cloud(ax):
    points = [c.get_offsets() for c in ax.collections if type(c).__name__ == "PathCollection"]
    points = np.concatenate(points)
    return points[np.lexsort(points.T)]


def check_profile(u, ax):
    j = int(np.argmax(u.importance(output=0).variance))
    points = np.column_stack([u.X[:, j], u.coefficients[u.region, 0, j]])
    assert np.allclose(cloud(ax), points[np.lexsort(points.T)])
    assert ax.get_xlabel() == u.feature_names[j]
    bins = u.profile(j).binned()
    assert np.allclose(ax.lines[0].get_ydata(), bins["coefficient"], equal_nan=True)


def check_partial(u, ax):
    j = int(np.argmax(u.importance(output=0).variance))
    points = np.column_stack([u.X[:, j], u.coefficients[u.region, 0, j] * (u.X[:, j] - u.X[:, j].mean())])
    assert np.allclose(cloud(ax), points[np.lexsort(points.T)])
    curve = u.profile(j).partial(0.3)
    assert np.allclose(ax.lines[0].get_xydata(), np.column_stack(curve))


def check_pair(u, ax):
    order = np.argsort(-u.importance(output=0).variance)
    found = u.pair(int(order[0]), int(order[1]))
    mesh = ax.collections[0]
    assert np.allclose(np.ma.filled(mesh.get_array(), np.nan).ravel(), found.mean.T.ravel(), equal_nan=True)
    assert mesh.norm.vmax == -mesh.norm.vmin == pytest.approx(np.nanmax(np.abs(found.mean)))
    # Weighted by the rows, the cells add up to the two features' contributions in all rows.
    centred = u.coefficients[u.region, 0] * (u.X - u.X.mean(axis=0))
    assert np.nansum(found.mean * found.count) == pytest.approx(centred[:, order[:2]].sum())


def score_columns(u):
    name = {"regression": "mse", "binary": "auc", "multiclass": "accuracy"}[u.task]
    return u.table[f"local_{name}"], u.table[f"global_{name}"]


def check_performance(u, ax):
    n = min(20, len(u))
    local, everywhere = score_columns(u)
    heights = np.array([bar.get_height() for bar in ax.patches])
    assert np.allclose(heights, np.concatenate([local[:n], everywhere[:n]]), equal_nan=True)
    network = ax.lines[0].get_ydata()[0]
    if u.task == "regression":  # the mean squared error of the network, beside those of its linear models
        assert network == pytest.approx(np.mean((u.response.target - u.prediction) ** 2))
    else:
        assert network == u.score
    assert [t.get_text() for t in ax.get_xticklabels()] == [f"{c:,}" for c in u.count[:n]]


def check_bubble(u, ax):
    local, everywhere = score_columns(u)
    mean = u.table["majority_share" if u.task == "multiclass" else "response_mean"]
    known = np.isfinite(local[:100])
    drawn = ax.collections[0]
    assert np.allclose(drawn.get_offsets(), np.column_stack([mean, local])[:100][known])
    assert np.allclose(drawn.get_array(), everywhere[:100][known])
    sizes = drawn.get_sizes()
    assert (np.argsort(-sizes, kind="stable") == np.arange(len(sizes))).all()  # largest region first
    assert (sizes[0] - 20) / 480 == pytest.approx(u.count[:100][known][0] / u.count[0])


def check_models(u, ax):
    shown = min(12, len(u))
    marked = next(line for line in ax.lines if line.get_marker() == "o").get_xydata()
    drawn = some_rows(u, shown, 3, 0)
    assert np.allclose(marked, u.X[drawn.ravel()])
    assert all((u.region[drawn[k]] == k).all() for k in range(shown))  # each row is in its region
    lines = [line.get_xydata() for line in ax.lines if line.get_color() == GREEN and line.get_linewidth() > 2]
    for ends in lines:  # on a region's own line the network itself is 0
        inside = ends[0] + np.linspace(0.02, 0.98, 7)[:, None] * (ends[1] - ends[0])
        assert np.abs(u.network(inside)[:, 0]).max() < 1e-9
    assert f"{shown} largest of {len(u)}" in ax.get_title()


def check_instances(u, ax):
    shown = min(4, len(u))
    rows = some_rows(u, shown, 3, 0)
    order = np.argsort(-u.importance(output=0).variance)
    picture = ax.images[0].get_array()
    for i, row in enumerate(rows.ravel().tolist()):
        # The differences between the rows of a region are those of the network itself: one linear model serves them.
        first = rows[i // rows.shape[1], 0]
        change = u.network(u.X[[row, first]])[:, 0]
        assert picture[i].sum() - picture[i // rows.shape[1] * rows.shape[1]].sum() == pytest.approx(
            change[0] - change[1]
        )
    slope = u.network.jacobian(u.X[rows[0, 0]])[0][order]
    assert np.allclose(picture[0], slope * (u.X[rows[0, 0]] - u.X.mean(axis=0))[order])
    assert f"row {rows[0, 0]}" in ax.get_yticklabels()[0].get_text()


CHECKS = {name.removeprefix("check_"): check for name, check in globals().items() if name.startswith("check_")}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", list(KINDS))
def test_each_kind_draws_its_numbers(kind, task):
    u = unwrapped(task)
    ax = Figure().add_subplot()
    if task == "none" and kind in ("performance", "bubble"):
        with pytest.raises(InputError, match="needs a response"):
            u.plot(kind, ax)
        return
    assert u.plot(kind, ax) is ax
    assert ax.get_xlabel()
    CHECKS[kind](u, ax)


def test_local_models_with_a_zero_in_their_region_have_a_line():
    net = random_net((2, 6, 5, 1), 0)
    X = np.random.default_rng(0).normal(size=(600, 2))
    u = rs.unwrap(net.then([[1.0]], [-float(np.median(net(X)))]), X)
    ax = u.plot("models", Figure().add_subplot(), top=8)
    check = [line.get_xydata() for line in ax.lines if line.get_color() == GREEN and line.get_linewidth() > 2]
    signs = [np.sign(u.network(u.X[u.region == k])[:, 0]) for k in range(8)]
    assert len(check) >= sum(len(set(s.tolist())) == 2 for s in signs) >= 1
    for ends in check:
        inside = ends[0] + np.linspace(0.02, 0.98, 7)[:, None] * (ends[1] - ends[0])
        assert np.abs(u.network(inside)).max() < 1e-9


@pytest.mark.parametrize("local", [True, False])
def test_a_waterfall_ends_at_the_prediction(local):
    u = unwrapped("binary", 8)
    e = u.explain(0)
    ax = e.plot(Figure().add_subplot(), local=local, top=3)
    steps = e.contribution[0] if local else e.path[0]
    largest = np.sort(np.abs(steps))[::-1][:3]
    bars = ax.patches
    assert np.allclose([abs(bar.get_width()) for bar in bars[:3]], largest)
    assert bars[3].get_width() == pytest.approx(steps.sum() - steps[np.argsort(-np.abs(steps))[:3]].sum())
    start, end = (next(line.get_xdata()[0] for line in ax.lines if line.get_marker() == m) for m in ("|", "D"))
    assert start == pytest.approx(e.d[0] if local else e.base[0])
    assert end == pytest.approx(u.network(u.X[:1])[0, 0])
    assert bars[0].get_x() == pytest.approx(start)
    for one, after in pairwise(bars):  # each bar begins where the last one ends
        assert after.get_x() == pytest.approx(one.get_x() + one.get_width())
    labels = [t.get_text() for t in ax.get_yticklabels()]
    assert "5 others" in labels and ax.get_xlabel() == "logit of class 1"
    assert labels[0].startswith("intercept of this region" if local else "at the mean of the data")


def test_intervals_are_drawn_where_they_are():
    u = unwrapped("binary")
    found = u.intervals(0, penalty=1.0)
    ax = found.plot(Figure().add_subplot())
    points, _, (bars,) = ax.containers[0]
    assert np.allclose(points.get_xdata(), found.estimate[1:])
    ends = np.array([[segment[0, 0], segment[1, 0]] for segment in bars.get_segments()])
    assert np.allclose(ends, np.column_stack([found.lower, found.upper])[1:])
    crosses = next(line for line in ax.lines if line.get_marker() == "x")
    assert np.allclose(crosses.get_xdata(), u.coefficients[0, 0])
    assert "99 %" in ax.get_xlabel()


def test_pictures_of_merged_models():
    u = unwrapped("binary")
    m = u.merge(most=6, rng=0)
    ax = m.plot("validation", Figure().add_subplot())
    points = ax.containers[0][0]
    assert points.get_xydata().tolist() == [[v.n, v.loss] for v in m.validation]
    best = min(m.validation, key=lambda v: v.loss)
    level = next(line for line in ax.lines if line.get_linestyle() == "--").get_ydata()[0]
    assert level == pytest.approx(best.loss + best.error)
    assert len(m) == min(v.n for v in m.validation if v.loss <= level)  # the one-standard-error rule
    assert next(line for line in ax.lines if f"chosen: {len(m)}" == line.get_label()).get_xdata()[0] == len(m)

    ax = m.plot("dendrogram", Figure().add_subplot(), leaves=10)
    heights = sorted(np.concatenate([c.get_segments() for c in ax.collections])[:, 1, 1])
    assert np.allclose(heights, np.sqrt(m.dendrogram.linkage(10)[0][:, 2]))
    assert sum(int(t.get_text().replace(",", "")) for t in ax.get_xticklabels()) == len(u.X)

    ax = m.plot("regions", Figure().add_subplot())
    image = ax.images[0]
    left, right, low, high = image.get_extent()
    cells = image.get_array()
    assert image.origin == "lower"
    for i, j in ((0, 0), (150, 20), (199, 199)):
        spot = [left + (j + 0.5) / 200 * (right - left), low + (i + 0.5) / 200 * (high - low)]
        assert cells[i, j] == m.assign([spot])[0]


def test_the_l1_path_shows_regions_and_scores():
    u = unwrapped("binary")
    path = rs.l1_path(u.X, u.response.code, [0.0, 0.01, 0.03], hidden=(4,), epochs=5, rng=0)
    ax = path.plot(Figure().add_subplot())
    other = next(a for a in ax.figure.axes if a is not ax)
    assert ax.lines[0].get_ydata().tolist() == [p.regions for p in path.points]
    assert np.allclose(ax.lines[0].get_xdata(), [0.01 / 3, 0.01, 0.03])
    assert other.lines[0].get_ydata().tolist() == [p.test_score for p in path.points]
    assert other.lines[1].get_ydata().tolist() == [p.train_score for p in path.points]


def test_what_cannot_be_drawn():
    u = unwrapped("binary", 3)
    with pytest.raises(InputError, match="2 inputs"):
        u.plot("regions")
    with pytest.raises(InputError, match='try "instances"'):
        u.plot("models")
    with pytest.raises(InputError, match="kind must be one of"):
        u.plot("pie")
    with pytest.raises(InputError, match="no dendrogram"):
        u.prune(3).plot("dendrogram")
    with pytest.raises(InputError, match="nothing was cross-validated"):
        u.merge(2).plot("validation")


def test_pictures_say_which_features_they_leave_out():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 23)) * np.geomspace(1, 1e6, 23)
    net = random_net((23, 6, 1), 0).after(np.diag(1 / np.geomspace(1, 1e6, 23)), np.zeros(23))
    u = rs.unwrap(net, X)
    for kind in ("violin", "parallel"):
        assert "(3 less important ones not shown)" in u.plot(kind, Figure().add_subplot()).get_xlabel()
        assert "not shown" not in u.plot(kind, Figure().add_subplot(), features=23).get_xlabel()
    ax = u.plot(ax=Figure().add_subplot())  # above two inputs: importance, of all features
    assert len(ax.get_yticklabels()) == len(ax.patches) == 23 and "not shown" not in ax.get_xlabel()
    assert "(19 less important ones not shown)" in u.plot("importance", Figure().add_subplot(), features=4).get_xlabel()
    assert "3 more features" in repr(u.importance())


def test_importance_by_squares_is_shown_for_standardised_inputs_only():
    """In raw units a feature measured in cents has a share of 0 by squares, whatever it does."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    net, size = random_net((3, 6, 1), 0), np.array([1.0, 1e3, 1e6])
    plain, raw = rs.unwrap(net, X), rs.unwrap(net.after(np.diag(1 / size), np.zeros(3)), X * size)
    assert np.allclose(plain.importance().variance, raw.importance().variance)
    assert plain.importance().standardised and "squares" in repr(plain.importance())
    assert not raw.importance().standardised and "squares" not in repr(raw.importance())
    assert "squares" not in raw.importance().rows()[0]
    for u, asked, bars in ((plain, None, 6), (raw, None, 3), (raw, True, 6), (plain, False, 3)):
        assert len(u.plot("importance", Figure().add_subplot(), squares=asked).patches) == bars


def test_a_waterfall_names_values_in_units_and_has_an_axis_of_probabilities():
    rng = np.random.default_rng(0)
    columns = (rs.Column("limit", "integer", "NT$"), rs.Column("job", "category", levels=["a", "b"]))
    net = rs.Network([(rng.normal(size=(4, 3)) * [1e-5, 1, 1], rng.normal(size=4)), (rng.normal(size=(1, 4)), [0.0])])
    net = net.with_schema(rs.Schema(columns, (rs.Output("PD", link="sigmoid"),), classes=("good", "bad")))
    X = np.column_stack([rng.integers(1, 50, 60) * 10_000.0, np.eye(2)[rng.integers(0, 2, 60)]])
    ax = rs.unwrap(net, X, np.array(["good", "bad"])[rng.integers(0, 2, 60)]).explain(0).plot()
    ax.figure.canvas.draw()
    labels = [t.get_text() for t in ax.get_yticklabels()]
    assert f"limit = {X[0, 0]:,.6g} NT$" in labels
    assert f"job = {'a' if X[0, 1] else 'b'}" in labels and not any("job=" in label for label in labels)
    above = ax.child_axes[0]
    assert above.get_xlabel() == "probability of class bad"
    shares = [float(t.get_text().removesuffix(" %")) / 100 for t in above.get_xticklabels()]
    assert len(shares) >= 1
    np.testing.assert_allclose(above.get_xticks(), [np.log(p / (1 - p)) for p in shares], atol=1e-9)
    boxes = [t.get_window_extent() for t in ax.get_xticklabels() if t.get_text()]
    assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))
