"""Recordings and detectors on planted and random attention; the page. No torch needed."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reluscope import lens
from reluscope.errors import InputError

STEPS, MEMORY = 240, 48


def normalised(weights):
    for t in range(len(weights)):
        weights[t, :, t + 1 :] = 0
    total = weights.sum(2, keepdims=True)
    weights = np.where(total > 0, weights / np.where(total > 0, total, 1), 0)
    return weights.astype(np.float32)


def recording(weights):
    return lens.Recording(normalised(weights), tuple(f"0.{h}" for h in range(weights.shape[1])), "memory")


def noise(rng, heads=1):
    return rng.random((STEPS, heads, MEMORY)) ** 2 * 0.01


@given(st.integers(0, 2**32))
def test_a_previous_frame_head_is_found(seed):
    weights = noise(np.random.default_rng(seed))
    weights[:, 0, 1] += 1
    (pattern,) = lens.detect_patterns(recording(weights))
    assert pattern.detected() == ("previous frame",)
    assert pattern.previous > 0.7


@given(st.integers(0, 2**32), st.sampled_from([3, 4, 5, 7]), st.booleans())
def test_an_every_nth_frame_head_is_found_with_its_n(seed, n, in_time):
    weights = noise(np.random.default_rng(seed))
    for t in range(STEPS):
        first = t % n if in_time else n
        weights[t, 0, first : t + 1 : n] += 0.2
    (pattern,) = lens.detect_patterns(recording(weights))
    assert any("every" in name for name in pattern.detected())
    assert (pattern.period, pattern.period_in) == (n, "time" if in_time else "lag")


@given(st.integers(0, 2**32), st.sets(st.sampled_from([15, 60, 100, 150, 180]), min_size=1))
def test_a_key_frame_head_is_found_with_its_frames(seed, keys):
    weights = noise(np.random.default_rng(seed))
    for t in range(STEPS):
        for s in keys:
            if 4 <= t - s < MEMORY:
                weights[t, 0, t - s] += 1
    (pattern,) = lens.detect_patterns(recording(weights))
    assert "key frame" in pattern.detected()
    assert set(pattern.key_frames) == keys
    assert not any("every" in name for name in pattern.detected())


def test_a_two_mode_head_is_found():
    weights = noise(np.random.default_rng(0))
    for t in range(STEPS):
        if (t // 30) % 2:
            weights[t, 0, 0] += 1
        else:
            weights[t, 0, 10:20] += 0.1
    (pattern,) = lens.detect_patterns(recording(weights))
    assert pattern.detected() == ("two modes",)
    assert pattern.recent == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("power", [1, 2, 8, 40])
def test_random_heads_are_not_found(power):
    """400 random heads, from even to nearly one frame each: none may be found."""
    rng = np.random.default_rng(power)
    for _ in range(5):
        assert lens.detect_patterns(recording(rng.random((STEPS, 20, MEMORY)) ** power + 1e-9)).detected() == {}


def test_a_fixed_lag_is_neither_period_nor_key():
    weights = noise(np.random.default_rng(0))
    weights[10:, 0, 10] += 1
    assert lens.detect_patterns(recording(weights))["0.0"].detected() == ()


@given(st.integers(0, 2**32), st.integers(2, 30), st.integers(1, 12))
def test_absolute_time_and_lags_are_the_same_numbers(seed, steps, memory):
    weights = np.random.default_rng(seed).random((steps, 2, memory))
    made = recording(weights)
    absolute = made.absolute("0.1")
    for t in range(steps):
        for lag in range(memory):
            if lag <= t:
                assert absolute[t, t - lag] == made.weights[t, 1, lag]
    assert absolute.sum() == pytest.approx(made.weights[:, 1].sum(), rel=1e-5)
    frames, weight = made.attended(steps - 1)
    assert weight[0] == made.weights[-1, 0].max()
    assert absolute[-1, frames[1]] == weight[1]
    places, values = made.top(1)
    assert np.array_equal(values[:, :, 0], made.weights.max(2))
    assert places.shape == (steps, 2, 1)
    assert np.array_equal(made.maximum(), made.weights.max(1))


def test_z_scores_standardise_each_output_over_time():
    rng = np.random.default_rng(0)
    outputs = rng.normal(3, 5, (50, 2, 7)).astype(np.float32)
    outputs[:, 1, 3] = 4.0
    made = lens.Recording(normalised(rng.random((50, 2, 8))), ("0.0", "0.1"), "memory", outputs)
    scores = made.z_scores("0.1")
    assert np.allclose(scores.mean(0), 0, atol=1e-5)
    assert np.allclose(scores.std(0), [1, 1, 1, 0, 1, 1, 1], atol=1e-5)
    with pytest.raises(InputError, match="no outputs"):
        recording(rng.random((9, 1, 4))).z_scores(0)


def test_recordings_are_kept_on_disk(tmp_path):
    made = recording(np.random.default_rng(0).random((40, 3, 6)))
    made.save(tmp_path / "r", key="abc")
    again = lens.load_recording(tmp_path / "r", key="abc")
    assert np.abs(again.weights - made.weights).max() < 1e-3
    assert (again.heads, again.kind, again.steps) == (made.heads, "memory", 40)
    assert isinstance(again.weights, np.memmap)
    with pytest.raises(InputError, match="another model or other frames"):
        lens.load_recording(tmp_path / "r", key="xyz")
    with pytest.raises(InputError, match="does not hold a recording"):
        lens.load_recording(tmp_path)
    with pytest.raises(InputError, match=r"no head '9\.9'; heads are 0\.0 to 0\.2"):
        made.index("9.9")


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """1,000 frames of noise and 64 random heads over 128 lags: nothing compresses."""
    rng = np.random.default_rng(0)
    weights = rng.random((1000, 64, 128), np.float32) ** 20
    heads = tuple(f"{i // 16}.{i % 16}" for i in range(64))
    made = lens.Recording(weights / weights.sum(2, keepdims=True), heads, "memory")
    frames = rng.integers(0, 256, (1000, 64, 64, 3), dtype=np.uint8)
    path = tmp_path_factory.mktemp("study") / "page.html"
    return path, lens.write_study(path, title="A <b> study", recording=made, frames=frames), made


def test_a_thousand_frames_of_64_heads_stay_under_5_megabytes(large):
    path, size, _ = large
    assert size == path.stat().st_size < 5_000_000


def test_the_page_is_whole_and_asks_for_nothing(large):
    import base64
    import json

    path, _, made = large
    text = path.read_text("utf-8")
    assert "A &lt;b&gt; study" in text
    assert not re.search(r"(src|href)\s*=\s*['\"]?(https?:)?//", text)
    assert "default-src 'none'" in text
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL).group(1))
    places = np.frombuffer(base64.b64decode(data["places"]), np.uint8).reshape(1000, 64, 4)
    weights = np.frombuffer(base64.b64decode(data["weights"]), np.uint8).reshape(1000, 64, 4)
    assert np.array_equal(places[:, :, 0], made.weights.argmax(2))
    assert np.allclose(weights[:, :, 0] / 255, made.weights.max(2), atol=0.003)


def test_plots_draw_on_the_axes_they_are_given():
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from reluscope.plot import lens as plot

    rng = np.random.default_rng(0)
    made = lens.Recording(
        normalised(rng.random((30, 4, 8))), ("0.0", "0.1", "1.0", "1.1"), "memory", rng.random((30, 4, 5))
    )
    frames = rng.integers(0, 256, (30, 8, 8, 3), dtype=np.uint8)
    figure = Figure()
    ax = figure.add_subplot()
    assert plot.plot_attention(made, "1.0", ax) is ax
    shown = ax.images[0].get_array()
    assert np.array_equal(shown, made.weights[:, 2].T)
    shown = plot.plot_attention(made, "1.0", absolute=True).images[0].get_array()
    assert np.array_equal(shown, made.absolute("1.0").T)
    grids = [plot.plot_heads(made), plot.plot_trajectory(made, frames, "0.1")]
    assert grids[0].shape == (2, 2)
    singles = [
        plot.plot_attended(made, frames, 20),
        plot.plot_z_scores(made, "0.0"),
        plot.plot_frame_strip(frames, count=4),
        plot.plot_channels(rng.random((5, 4, 4))),
        plot.plot_kernels(rng.normal(size=(5, 3, 4, 4))),
        plot.plot_pictures(rng.random((5, 4, 4, 1)), titles=["a"]),
    ]
    for one in [*(g.flat[0] for g in grids), *singles]:
        FigureCanvasAgg(one.figure).draw()
    strip = singles[2]
    assert [image.get_extent()[0] for image in strip.images] == [-0.5, 6.5, 14.5, 21.5]


def test_the_maximum_of_a_sequence_lies_like_its_heads(tmp_path):
    import base64
    import io
    import json

    picture = pytest.importorskip("PIL.Image")
    weights = np.zeros((5, 2, 5), np.float32)
    weights[:, :, 3] = 1  # every position looks at position 3: a column
    made = lens.Recording(weights, ("0.0", "0.1"), "sequence", labels=("a", "b", "c", "d", "<e>"))
    lens.write_study(tmp_path / "p.html", title="t", recording=made)
    text = (tmp_path / "p.html").read_text("utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL).group(1))
    assert data["labels"][4] == "<e>"
    shown = np.asarray(picture.open(io.BytesIO(base64.b64decode(data["maximum"].split(",")[1]))))
    assert np.array_equal(shown, np.where(np.arange(5) == 3, 0, 255)[None].repeat(5, 0))


def test_heads_are_laid_over_the_image():
    pytest.importorskip("matplotlib")
    from reluscope.plot import lens as plot

    rng = np.random.default_rng(0)
    weights = rng.random((10, 4, 10)).astype(np.float32)
    made = lens.Recording(weights / weights.sum(2, keepdims=True), ("0.0", "0.1", "1.0", "1.1"), "sequence")
    grid = plot.plot_on_image(made, rng.random((12, 12, 3)), 3)
    assert grid.shape == (2, 2)
    assert np.array_equal(grid[1, 0].images[1].get_array(), made.weights[3, 2, 1:].reshape(3, 3))
    assert grid[1, 0].get_title() == f"1.0: {made.weights[3, 2, 1:].sum():.0%}"
    with pytest.raises(InputError, match="no square of patches"):
        plot.plot_on_image(made, rng.random((12, 12, 3)), classes=2)
    attended = plot.plot_attended(made, rng.random((10, 4, 4, 3)), 2)
    where, weight = made.attended(2)
    assert [t.get_text() for t in attended.texts] == [
        f"{h}  at {w}  {v:.0%}" for h, w, v in zip(made.heads, where, weight, strict=True)
    ]
