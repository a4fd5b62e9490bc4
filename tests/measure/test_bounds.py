"""Sound brackets contain the exact value: rational arithmetic, closed forms, exact masses, planted regions."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import rational

import reluscope as rs
from nets import integer_net, random_net
from reluscope import activations
from reluscope._kernels import kernel
from reluscope.events import Case, Event
from reluscope.measure.sound.bracket import bound_event
from reluscope.measure.sound.mass import fraction, side_mass

BUDGET = "600 regions"


def event(n, m, cases, box=(-np.inf, np.inf)):
    """A property from cases [(G, g)] or [(G, g, A)] on one box."""
    lower, upper = np.broadcast_to(box[0], (n,)).astype(float), np.broadcast_to(box[1], (n,)).astype(float)
    made = []
    for G, g, *A in cases:
        G, g = np.atleast_2d(np.asarray(G, dtype=float)), np.atleast_1d(np.asarray(g, dtype=float))
        inputs = np.atleast_2d(np.asarray(A[0], dtype=float)) if A else np.zeros((len(g), n))
        made.append(Case(lower, upper, inputs, G, g, np.zeros(len(g), bool)))
    return Event("property", n, m, tuple(made))


# -- the mass of a box and a half-space ---------------------------------------------------------------------------


@kernel
def _compiled_fraction(form, d, lower, upper, sides, gaussian, tolerance, work):
    return fraction(form, 0, d, lower, upper, sides, 0, gaussian, tolerance, work)


def _fraction(form, lower, upper, gaussian, tolerance=1e-6):
    d = len(lower)
    sides = np.array([side_mass(a, b) for a, b in zip(lower, upper, strict=True)]) if gaussian else np.ones(d)
    form, lower, upper = (np.asarray(v, dtype=float) for v in (form, lower, upper))
    return _compiled_fraction(form, d, lower, upper, sides, gaussian, tolerance, np.zeros(2 * d + 512))


def _uniform_volume(a, b):
    """P(a . t <= b), t uniform on [0, 1]^d, exactly: inclusion and exclusion over the corners."""
    a, b = [Fraction(float(v)) for v in a], Fraction(float(b))
    b -= sum(v for v in a if v < 0)
    a = [abs(v) for v in a if v]
    total = sum(
        (-1) ** len(corner) * max(Fraction(0), b - sum(corner)) ** len(a)
        for size in range(len(a) + 1)
        for corner in itertools.combinations(a, size)
    )
    return total / math.factorial(len(a)) / math.prod(a)


def test_half_space_of_a_uniform_box_is_bracketed_tightly():
    rng = np.random.default_rng(0)
    widths = []
    for _ in range(300):
        d = int(rng.integers(1, 7))
        a = rng.normal(size=d) * 10.0 ** rng.uniform(-3 * rng.integers(0, 2), 0, d)
        b = float(a @ rng.uniform(0, 1, d))
        low, high = _fraction([*a, -b], np.zeros(d), np.ones(d), False)
        exact = float(_uniform_volume(a, b))
        assert low <= exact * (1 + 1e-14) and exact * (1 - 1e-14) <= high
        widths.append(high - low)
    assert np.median(widths) < 1e-4 and np.max(widths) < 0.02


def test_half_space_of_a_normal_box_is_bracketed_tightly():
    """Against exact masses of polygons and polyhedra."""
    rng = np.random.default_rng(1)
    widths = []
    for _ in range(60):
        d = int(rng.integers(1, 4))
        lower = rng.uniform(-4, 3, d)
        upper = lower + 10.0 ** rng.uniform(-2, 0.3, d)
        a = rng.normal(size=d)
        b = float(a @ rng.uniform(lower, upper))
        A = np.concatenate([np.eye(d), -np.eye(d), a[None]])
        rows = np.concatenate([upper, -lower, [b]])
        law = rs.Gaussian(np.zeros(d))
        whole = np.prod([side_mass(x, y) for x, y in zip(lower, upper, strict=True)])
        exact = float(rs.mass(A, rows, law)) / whole
        low, high = _fraction([*a, -b], lower, upper, True)
        assert low <= exact + 1e-8 and exact - 1e-8 <= high, (d, lower, upper, a, b)
        widths.append(high - low)
    assert np.median(widths) < 1e-3


def test_side_masses():
    from mpmath import erfc, mp, sqrt

    mp.dps = 80
    rng = np.random.default_rng(2)
    for _ in range(200):
        lo = float(rng.uniform(-12, 12))
        hi = lo + float(10.0 ** rng.uniform(-6, 1))
        exact = (erfc(mp.mpf(lo) / sqrt(2)) - erfc(mp.mpf(hi) / sqrt(2))) / 2
        assert abs(mp.mpf(side_mass(lo, hi)) / exact - 1) < 1e-13


# -- small networks against exact arithmetic ----------------------------------------------------------------------


def _polygon_area(rows, box):
    """Area of {p in box, a . p <= b for all rows}, exactly."""
    (x0, y0), (x1, y1) = box
    corners = [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
    for a, b in rows:
        kept = []
        for p, q in zip(corners, corners[1:] + corners[:1], strict=True):
            fp, fq = (a[0] * v[0] + a[1] * v[1] - b for v in (p, q))
            if fp <= 0:
                kept.append(p)
            if (fp < 0 < fq) or (fq < 0 < fp):
                t = fp / (fp - fq)
                kept.append((p[0] + t * (q[0] - p[0]), p[1] + t * (q[1] - p[1])))
        corners = kept
        if len(corners) < 3:
            return Fraction(0)
    shifted = corners[1:] + corners[:1]
    return abs(sum((p[0] * q[1] - p[1] * q[0] for p, q in zip(corners, shifted, strict=True)), Fraction(0))) / 2


def _exact_maps(net, pattern):
    """The output's affine map on a pattern, in fractions."""
    n = net.n_inputs
    z = [([Fraction(int(i == j)) for j in range(n)], Fraction(0)) for i in range(n)]
    start = 0
    for layer in net.layers:
        h = []
        for row, bias in zip(layer.dense(), layer.bias, strict=True):
            w = [Fraction(float(v)) for v in row]
            slope = [sum((c * v[0][i] for c, v in zip(w, z, strict=True)), Fraction(0)) for i in range(n)]
            h.append((slope, sum((c * v[1] for c, v in zip(w, z, strict=True)), Fraction(float(bias)))))
        if layer is net.layers[-1]:
            return h
        pieces = pattern[start : start + layer.width]
        start += layer.width
        z = []
        for (slope, offset), kind, piece in zip(h, layer.units.kind, pieces, strict=True):
            act = layer.units.kinds[kind]
            s, c = Fraction(act.slopes[piece]), Fraction(act.intercepts[piece])
            z.append(([s * v for v in slope], s * offset + c))
    raise AssertionError


def _exact_uniform(net, lower, upper, prop):
    """P(event) under the uniform law on a 2-D box, exactly; cases must be disjoint or single."""
    box = tuple(map(Fraction, lower)), tuple(map(Fraction, upper))
    total = Fraction(0)
    for pattern, cell in rational.rational_cells(net, lower, upper).items():
        maps = _exact_maps(net, pattern)
        rows = [(r.normal, r.bound) for r in cell.rows]
        sets = []
        for case in prop.cases:
            extra = []
            for G, A, g in zip(case.G, np.asarray(case.A), case.g, strict=True):
                a = [
                    sum((Fraction(float(c)) * m[0][i] for c, m in zip(G, maps, strict=True)), Fraction(float(A[i])))
                    for i in range(2)
                ]
                offset = sum((Fraction(float(c)) * m[1] for c, m in zip(G, maps, strict=True)), Fraction(0))
                extra.append((a, Fraction(float(g)) - offset))
            sets.append(extra)
        for size in range(1, len(sets) + 1):  # inclusion and exclusion
            for chosen in itertools.combinations(sets, size):
                total += (-1) ** (size + 1) * _polygon_area(rows + [r for s in chosen for r in s], box)
    volume = (box[1][0] - box[0][0]) * (box[1][1] - box[0][1])
    return total / volume


def _one_case(seed, wide=False):
    from reluscope.activations import leaky_relu

    rng = np.random.default_rng(seed)
    activation = ["relu", "relu", "relu", "hardtanh", "abs", leaky_relu(0.1), "relu6"][int(rng.integers(7))]
    activation = "relu" if wide else activation
    depth = int(rng.integers(1, 3))
    widths = [2, *rng.integers(2, 5, depth).tolist(), int(rng.integers(1, 3))]
    make = integer_net if rng.random() < 0.4 else random_net
    net = make(widths, seed=seed, activation=activation)
    if rng.random() < 0.35 or wide:  # weights over ten orders of magnitude, units scaled back
        layers = []
        scale = np.ones(2)
        for i, layer in enumerate(net.layers):
            out = 10.0 ** rng.uniform(-5, 5, layer.width) if i < len(net.layers) - 1 else np.ones(layer.width)
            if not layer.units.is_relu and i < len(net.layers) - 1:
                out = np.ones(layer.width)
            layers.append((out[:, None] * layer.dense() / scale, out * layer.bias, layer.units))
            scale = out
        net = rs.Network(layers)
    lower = rng.integers(-2, 1, 2).astype(float)
    upper = lower + rng.integers(1, 4, 2)
    m = net.n_outputs
    y = net(rng.uniform(lower, upper, (200, 2)))
    cases = []
    for _ in range(int(rng.integers(1, 3))):
        rows = int(rng.integers(1, 3))
        G = rng.integers(-2, 3, (rows, m)).astype(float)
        A = rng.integers(-1, 2, (rows, 2)).astype(float) * (rng.random() < 0.3)
        g = np.array([np.quantile(y @ G[i], rng.uniform(0, 1)) for i in range(rows)])
        cases.append((G, g, A))
    return net, lower, upper, event(2, m, cases)


def _contains(seed, wide=False):
    net, lower, upper, prop = _one_case(seed, wide)
    exact = _exact_uniform(net, lower, upper, prop)
    # A set that touches a cell of constant output has an atom on its boundary: closed rows count it.
    answer = bound_event(net, rs.Uniform(lower, upper), prop, budget=BUDGET, tolerance=1e-9)
    assert Fraction(answer.lower) <= exact <= Fraction(answer.upper), (seed, answer, float(exact))
    return answer.upper - answer.lower


def test_brackets_contain_the_rational_value():
    widths = [_contains(seed) for seed in range(100)]
    assert np.median(widths) < 0.05


def test_brackets_contain_the_rational_value_of_badly_scaled_networks():
    for seed in range(2000, 2020):
        _contains(seed, wide=True)


@pytest.mark.slow
def test_brackets_contain_the_rational_value_of_three_hundred_badly_scaled_networks():
    spread = []
    for seed in range(2020, 2320):
        _contains(seed, wide=True)
        size = np.concatenate([np.abs(layer.dense()).ravel() for layer in _one_case(seed, True)[0].layers])
        spread.append(np.log10(size.max() / size[size > 0].min()) if size.any() else 0.0)
    assert np.median(spread) > 8 and np.mean(np.array(spread) > 10) > 0.2


@pytest.mark.slow
def test_brackets_contain_the_rational_value_a_thousand_times():
    for seed in range(100, 1100):
        _contains(seed)


# -- Gaussian laws against closed forms and exact masses ----------------------------------------------------------


def test_linear_network_is_a_half_space():
    rng = np.random.default_rng(3)
    net = rs.Network([(rng.normal(size=(1, 4)), [0.3])])
    factor = rng.normal(size=(4, 4))
    law = rs.Gaussian(rng.normal(size=4), factor=factor)
    w = net.layers[0].dense()[0]
    mean, sd = float(w @ law.mean + 0.3), float(np.linalg.norm(w @ factor))
    for z in (-3.0, 0.0, 5.0):
        answer = bound_event(net, law, event(4, 1, [([[1.0]], mean + z * sd)]), tolerance=1e-12)
        exact = 0.5 * math.erfc(-z / math.sqrt(2))
        assert answer.lower <= exact * (1 + 1e-13) and exact * (1 - 1e-13) <= answer.upper
        assert answer.upper - answer.lower < 1e-9 and answer.guarantee == "sound"


def _gaussian_contains(seed):
    """r <= 2: the exact engine sums closed-form masses over all cells."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    net = random_net((n, 3 if n < 3 else 2, 4, 1), seed=seed, bias=0.5)
    if seed % 3 == 0:
        parts = [rs.Gaussian(rng.normal(size=n), rng.uniform(0.2, 2.0, n)) for _ in range(2)]
        law = rs.GaussianMixture([0.3, 0.7], parts)
    else:
        law = rs.Gaussian(rng.normal(size=n), factor=rng.normal(size=(n, n)))
    y = net(law.sample(500, rng))
    c = float(np.quantile(y, rng.uniform(0.02, 0.98)))
    exact = rs.outputs(net, law).cdf(c)
    answer = bound_event(net, law, event(n, 1, [([[1.0]], c)]), budget="4000 regions", tolerance=1e-9)
    assert answer.lower <= float(exact) + 1e-9 and float(exact) - 1e-9 <= answer.upper, (seed, answer)
    # A plateau at c up to rounding cannot be decided: its mass stays open.
    if (np.abs(y - c) < 1e-12).sum() <= 1:
        assert answer.upper - answer.lower < 0.1, (seed, answer)


@pytest.mark.parametrize("seed", range(12))
def test_gaussian_brackets_contain_the_exact_mass(seed):
    _gaussian_contains(seed)


@pytest.mark.slow
def test_gaussian_brackets_contain_the_exact_mass_two_hundred_times():
    for seed in range(100, 300):
        _gaussian_contains(seed)


def test_truncated_and_uniform_laws_know_their_box():
    net = rs.Network([([[1.0, 0.0]], [0.0]), ([[1.0]], [0.0])])
    free = event(2, 1, [([[-1.0]], -0.5)])  # relu(x_0) >= 0.5
    boxed = event(2, 1, [([[-1.0]], -0.5)], box=([-1.0, -1.0], [1.0, 0.0]))
    uniform = rs.Uniform([-1.0, -1.0], [1.0, 1.0])
    assert bound_event(net, uniform, free, tolerance=1e-12).value == pytest.approx(0.25, abs=1e-9)
    assert bound_event(net, uniform, boxed, tolerance=1e-12).value == pytest.approx(0.125, abs=1e-9)
    law = rs.Truncated(rs.Gaussian([0.0, 0.0]), [-1.0, -1.0], [1.0, 2.0])
    phi = lambda z: 0.5 * math.erfc(-z / math.sqrt(2))  # noqa: E731
    wanted = (phi(1) - phi(0.5)) / (phi(1) - phi(-1))
    assert bound_event(net, law, free, tolerance=1e-12).value == pytest.approx(wanted, abs=1e-9)
    wanted *= (phi(0) - phi(-1)) / (phi(2) - phi(-1))
    assert bound_event(net, law, boxed, tolerance=1e-12).value == pytest.approx(wanted, abs=1e-9)
    gaussian = bound_event(net, rs.Gaussian([0.0, 0.0]), boxed, budget="20000 regions")
    exact = (phi(1) - phi(0.5)) * (phi(0) - phi(-1))
    assert gaussian.lower <= exact <= gaussian.upper and gaussian.upper - gaussian.lower < 0.1 * exact


def test_decided_events_are_exactly_zero_or_one():
    net = random_net((3, 8, 2), seed=4)
    law = rs.Uniform(-1.0 * np.ones(3), np.ones(3))
    never = bound_event(net, law, event(3, 2, [([[1.0, 0.0]], -1e3)]))
    always = bound_event(net, law, event(3, 2, [([[1.0, 0.0]], 1e3)]))
    assert (never.lower, never.upper) == (0.0, 0.0)
    assert always.upper == 1.0 and always.lower > 1 - 1e-10
    far = bound_event(net, law, event(3, 2, [([[1.0, 0.0]], 1e3)], box=(5.0, 6.0)))
    assert far.upper == 0.0


def test_atoms_on_the_boundary_respect_strictness():
    """relu(x) <= 0 has probability one half, relu(x) < 0 has none."""
    net = rs.Network([([[1.0]], [0.0]), ([[1.0]], [0.0])])
    law = rs.Uniform([-1.0], [1.0])
    closed = event(1, 1, [([[1.0]], 0.0)])
    answer = bound_event(net, law, closed, tolerance=1e-9)
    assert answer.lower == pytest.approx(0.5, abs=1e-8) and answer.upper == pytest.approx(0.5, abs=1e-8)
    case = closed.cases[0]
    strict = Event("property", 1, 1, (Case(case.lower, case.upper, case.A, case.G, case.g, np.ones(1, bool)),))
    assert bound_event(net, law, strict, tolerance=1e-9).upper < 1e-8


def test_ties_of_two_inputs_are_decided_beside_rows_on_the_inputs():
    """The output never falls and is constant below 0.625: a row on the inputs (carried by identity units) must not hide
    that both outputs of many pairs are exactly equal."""
    net = rs.Network([([[1.0]], [-0.5]), ([[1.0], [0.5]], [-0.125, -0.125]), ([[1.0, 1.0]], [0.3])])
    law = rs.Uniform([0.0, 0.0], [1.0, 1.0])
    falls = rs.probability(net, law, "y'[0] > y[0] and x'[0] <= x[0]", guarantee="sound", budget="6000 regions")
    assert falls.lower == 0.0 and falls.upper < 0.01
    rises = rs.probability(net, law, "y'[0] > y[0] and x'[0] >= x[0]", guarantee="sound", budget="6000 regions")
    exact = (1 - 0.625**2) / 2  # all pairs in order but those below 0.625
    assert rises.lower <= exact <= rises.upper and rises.upper - rises.lower < 0.01


def test_unions_and_intersections():
    net = rs.Network([(np.eye(2), np.zeros(2))])
    law = rs.Uniform([0.0, 0.0], [1.0, 1.0])
    both = event(2, 2, [([[1.0, 0.0], [0.0, 1.0]], [0.5, 0.25])])
    either = event(2, 2, [([[1.0, 0.0]], 0.5), ([[0.0, 1.0]], 0.25)])
    for prop, exact in ((both, 0.125), (either, 0.625)):
        answer = bound_event(net, law, prop, tolerance=1e-4)
        assert answer.lower <= exact <= answer.upper and answer.upper - answer.lower <= 2.1e-4


@pytest.mark.parametrize("seed", range(5))
def test_a_planted_tiny_region_is_never_missed(seed):
    """A pyramid of height 1 over a cube of half-width w: y > 0 has the known volume of a cross-polytope."""
    rng = np.random.default_rng(seed)
    d, w = 3, 1e-3
    centre = rng.uniform(-0.9, 0.9, d)
    # relu(w - sum |x_i - c_i|), with |t| = relu(t) + relu(-t)
    first = np.concatenate([np.eye(d), -np.eye(d)])
    net = rs.Network(
        [(first, np.concatenate([-centre, centre])), (-np.ones((1, 2 * d)), [w]), ([[1.0]], [0.0])], "relu"
    )
    exact = (2 * w) ** d / math.factorial(d) / 2.0**d
    prop = event(d, 1, [([[-1.0]], -1e-9 * w)])
    answer = bound_event(net, rs.Uniform(-np.ones(d), np.ones(d)), prop, budget="200000 regions", tolerance=1e-13)
    exact *= (1 - 1e-9) ** d
    assert answer.lower <= exact <= answer.upper
    assert answer.lower > 0.5 * exact


def test_particles_are_decided_exactly():
    net = integer_net((2, 4, 1), seed=3)
    points = np.array([[0.0, 0.0], [1.0, 0.5], [-2.0, 1.0], [3.0, -1.0]])
    y = net(points)[:, 0]
    for c in np.unique(y):
        answer = bound_event(net, rs.Particles(points), event(2, 1, [([[1.0]], c)]))
        assert answer.value == pytest.approx((y <= c).mean(), abs=1e-12) and answer.upper - answer.lower < 1e-12


def test_budget_tolerance_progress_and_notes():
    net = random_net((4, 20, 20, 1), seed=5)
    law = rs.Gaussian(np.zeros(4))
    prop = event(4, 1, [([[1.0]], 0.0)])
    seen = []
    few = bound_event(net, law, prop, budget="2000 regions", progress=lambda n, text: seen.append(text))
    more = bound_event(net, law, prop, budget="30000 regions")
    assert few.note == "budget of 2,000 regions reached" and few.evaluations >= 2000
    assert more.upper - more.lower < few.upper - few.lower
    assert few.lower <= more.upper and more.lower <= few.upper
    wide = bound_event(net, law, prop, tolerance=0.2)
    assert wide.upper - wide.lower <= 0.4
    assert all(text.startswith("[") for text in seen)


def test_bad_inputs_name_the_argument():
    net, law = random_net((2, 3, 1)), rs.Gaussian(np.zeros(2))
    prop = event(2, 1, [([[1.0]], 0.0)])
    for arguments, words in (
        ((None, law, prop), "net must be a Network"),
        ((net, "N(0,1)", prop), "law must be"),
        ((net, law, 3), "event must be text"),
        ((net, rs.Gaussian(np.zeros(3)), prop), "3 inputs"),
        ((net, law, event(2, 2, [([[1.0, 0.0]], 0.0)])), "2 outputs"),
    ):
        with pytest.raises(rs.InputError, match=words):
            bound_event(*arguments)
    with pytest.raises(rs.InputError, match="tolerance"):
        bound_event(net, law, prop, tolerance=-1.0)


# -- ACAS Xu ------------------------------------------------------------------------------------------------------


@pytest.mark.needs_data
@pytest.mark.parametrize(("net", "prop"), [("1_1", 3), ("2_1", 3), ("1_1", 1), ("4_6", 1), ("3_3", 4)])
def test_safe_advisories_are_proved_safe(data_folder, net, prop):
    folder = data_folder / "nets" / "acasxu"
    network = rs.load(folder / "onnx" / f"ACASXU_run2a_{net}_batch_2000.onnx")
    found = rs.vnnlib(folder / "vnnlib" / f"prop_{prop}.vnnlib")
    answer = bound_event(network, rs.Uniform(*found.boxes[0]), found, budget="60s")
    assert (answer.lower, answer.upper) == (0.0, 0.0)


@pytest.mark.needs_data
def test_property_two_holds_the_sampled_value(data_folder):
    folder = data_folder / "nets" / "acasxu"
    network = rs.load(folder / "onnx" / "ACASXU_run2a_4_3_batch_2000.onnx")
    found = rs.vnnlib(folder / "vnnlib" / "prop_2.vnnlib")
    answer = bound_event(network, rs.Uniform(*found.boxes[0]), found, budget="400000 regions")
    assert answer.lower <= 0.01433 <= answer.upper and answer.upper - answer.lower < 0.02


@pytest.mark.parametrize("seed", range(8))
def test_cancelling_weights_stay_inside_the_bracket(seed):
    """Steep units whose sum is almost flat: what rounding leaves open is open, and the truth is in it."""
    rng = np.random.default_rng(seed)
    v = rng.uniform(1e5, 1e6, 4)
    w = rng.uniform(-1, 1, (4, 2))
    w[3] = -(v[:3] @ w[:3]) / v[3] + rng.uniform(1e-15, 4e-15, 2)
    b = rng.uniform(3, 5, 4)
    net = rs.Network([(w, b), (v[None], [-float(v @ b)])])
    lower, upper = np.zeros(2), np.ones(2)
    middle = [Fraction(1, 2)] * 2
    slope, offset = _exact_maps(net, (1, 1, 1, 1))[0]
    c = float(sum((s * m for s, m in zip(slope, middle, strict=True)), offset))
    prop = event(2, 1, [([[1.0]], c)])
    exact = _exact_uniform(net, lower, upper, prop)
    answer = bound_event(net, rs.Uniform(lower, upper), prop, budget=BUDGET, tolerance=1e-9)
    assert Fraction(answer.lower) <= exact <= Fraction(answer.upper)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("power", [100, 149, 151, 200, 280, 289, 291, 300, 301, 303, 306, 307])
@pytest.mark.parametrize("kind", [activations.hard_sigmoid(), activations.relu6(), activations.hardtanh()])
def test_numbers_near_the_end_of_the_range_prove_nothing_wrong(power, kind):
    # The output is between 0.3 and 4.3 or more, however steep the first layer is.
    size = 10.0**power
    top = kind(np.array([1e9])).item()
    net = rs.Network([([[size]], [0.3 * size], kind), ([[-4.0 / top]], [4.3])])
    for law in (rs.Gaussian([0.0]), rs.Uniform([-1.0], [2.0])):
        assert bound_event(net, law, "y[0] <= 0", budget="60 regions").lower == 0.0
        assert bound_event(net, law, "y[0] > 0", budget="60 regions").upper == 1.0
