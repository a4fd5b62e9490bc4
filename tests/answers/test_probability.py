"""Probabilities of events: exact rational areas, closed forms, planted regions, coverage, agreement of guarantees."""

from fractions import Fraction

import numpy as np
import pytest
from rational import rational_cells
from scipy.special import ndtr

import reluscope as rs
from nets import integer_net, random_net
from reluscope.answer import Status
from reluscope.errors import InputError
from reluscope.events import as_event

# -- an independent exact reference: areas in rational arithmetic ---------------------------------------------------


def clipped(polygon, a, b, c, keep):
    """The part of a rational polygon where `a x + b y + c` is `keep` ("<=": at most 0, ">": at least 0)."""
    sign = 1 if keep == "<=" else -1
    value = [sign * (a * x + b * y + c) for x, y in polygon]
    out = []
    for i, p in enumerate(polygon):
        j = (i + 1) % len(polygon)
        if value[i] <= 0:
            out.append(p)
        if (value[i] < 0 < value[j]) or (value[j] < 0 < value[i]):
            t = value[i] / (value[i] - value[j])
            out.append((p[0] + t * (polygon[j][0] - p[0]), p[1] + t * (polygon[j][1] - p[1])))
    return out


def area(polygon):
    return abs(sum(p[0] * q[1] - q[0] * p[1] for p, q in zip(polygon, polygon[1:] + polygon[:1], strict=True))) / 2


def rational_probability(net, event, lower, upper):
    """P(event) under the uniform law on a box of the plane: every cell, every case, in rational arithmetic."""
    low, high = [[Fraction(float(v)) for v in side] for side in (lower, upper)]
    total = Fraction(0)
    for pattern in rational_cells(net, lower, upper):
        polygon = [(low[0], low[1]), (high[0], low[1]), (high[0], high[1]), (low[0], high[1])]
        z = [((Fraction(1), Fraction(0)), Fraction(0)), ((Fraction(0), Fraction(1)), Fraction(0))]
        at = 0
        for layer in net.layers:
            h = []
            for row, bias in zip(layer.dense(), layer.bias, strict=True):
                w = [Fraction(float(v)) for v in row]
                slope = tuple(sum((a * u[0][k] for a, u in zip(w, z, strict=True)), Fraction(0)) for k in (0, 1))
                h.append((slope, sum((a * u[1] for a, u in zip(w, z, strict=True)), Fraction(float(bias)))))
            z = []
            for i, (slope, offset) in enumerate(h):
                kind = layer.units.kinds[layer.units.kind[i]]
                if layer is net.layers[-1]:
                    z.append((slope, offset))
                    continue
                piece = pattern[at + i]
                for t, k in zip(kind.breaks, range(len(kind.breaks)), strict=True):
                    polygon = clipped(polygon, *slope, offset - Fraction(t), "<=" if piece <= k else ">")
                s, c = Fraction(kind.slopes[piece]), Fraction(kind.intercepts[piece])
                z.append(((s * slope[0], s * slope[1]), s * offset + c))
            at += len(h)
        rest = [polygon]
        for c in event.cases:
            rows = case_rows(c, z)
            left = []
            for part in rest:
                inside = part
                for a, b, d, strict in rows:
                    if len(inside) < 3 or area(inside) == 0:
                        break
                    if a == b == 0:
                        holds = d < 0 if strict else d <= 0
                        left += [] if holds else [inside]
                        inside = inside if holds else []
                    else:
                        left.append(clipped(inside, a, b, d, ">"))
                        inside = clipped(inside, a, b, d, "<=")
                if len(inside) > 2:
                    total += area(inside)
            rest = [p for p in left if len(p) > 2 and area(p) > 0]
    return total / ((high[0] - low[0]) * (high[1] - low[1]))


def case_rows(case, z):
    rows = []
    for A, G, g, strict in zip(case.A, case.G, case.g, case.strict, strict=True):
        slope = [Fraction(float(a)) for a in A]
        offset = -Fraction(float(g))
        for weight, (s, o) in zip(G, z, strict=True):
            w = Fraction(float(weight))
            slope = [slope[0] + w * s[0], slope[1] + w * s[1]]
            offset += w * o
        rows.append((*slope, offset, bool(strict)))
    for k in (0, 1):
        for side, sign in ((case.upper, 1), (case.lower, -1)):
            if np.isfinite(side[k]):
                unit = [Fraction(0), Fraction(0)]
                unit[k] = Fraction(sign)
                rows.append((*unit, -sign * Fraction(float(side[k])), False))
    return rows


EVENTS = (
    "y[0] > y[1]",
    "y[0] <= 1",
    "y[0] < 0 or y[1] > 2 and x[0] <= 0.5",
    "argmax == 1",
    "argmax != 0",
    "y[0] == 0 or y[1] == 0",
    "0 <= y[0] < 3 or not (y[1] >= 0 or x[0] + x[1] > 1)",
    "abs(y[0] - y[1]) <= 1",
)


@pytest.mark.parametrize("seed", range(10))
def test_exact_agrees_with_rational_arithmetic(seed):
    widths = [(2, 3, 2), (2, 4, 2, 2), (2, 3, 2, 2)][seed % 3] if seed % 4 != 1 else (2, 2, 2, 2)
    whole = seed % 2 == 0  # whole numbers: parallel units, dead units, outputs constant on cells
    net = (
        integer_net(widths, seed, top=2) if whole else random_net(widths, seed, "hardtanh" if seed % 4 == 1 else "relu")
    )
    lower, upper = np.array([-2.0, -1.0]), np.array([1.0, 2.0])
    law = rs.Uniform(lower, upper)
    for text in EVENTS:
        event = as_event(text, net)
        truth = rational_probability(net, event, lower, upper)
        answer = rs.probability(net, law, event, guarantee="exact")
        assert answer.guarantee == "exact"
        assert abs(Fraction(answer.value) - truth) < Fraction(1, 10**12), text
        assert answer.lower <= truth * (1 + Fraction(1, 10**15)) and truth <= Fraction(answer.upper) + Fraction(
            1, 10**15
        )
        assert answer.width < 1e-11


def test_atoms_respect_strictness():
    net = rs.Network([([[1.0]], [0.0]), ([[1.0]], [0.0])])  # relu(x): 0 with probability 1/2
    law = rs.Gaussian([0.0])
    for text, p in (("y > 0", 0.5), ("y >= 0", 1.0), ("y < 0", 0.0), ("y <= 0", 0.5), ("y == 0", 0.5), ("y != 0", 0.5)):
        assert rs.probability(net, law, text, guarantee="exact").value == pytest.approx(p, abs=1e-15), text
        found = rs.probability(net, law, text, guarantee="confidence", rng=0)  # one dimension: one line says it all
        assert found.guarantee == "exact" and found.value == pytest.approx(p, abs=1e-12), text


def test_mixed_strictness_at_an_atom_in_many_dimensions():
    # y = (relu(x0), relu(x1), 0 * ...): ties at 0 with probability 1/4; argmax takes the first.
    net = rs.Network([(np.eye(5), np.zeros(5)), (np.eye(3, 5), np.zeros(3))])
    law = rs.Gaussian(np.zeros(5))
    truth = 1 / 3 * 7 / 8 + 1 / 8
    found = rs.probability(net, law, "argmax == 0", guarantee="confidence", tolerance=0.01, rng=0, level=0.9999)
    assert found.lower <= truth <= found.upper and found.width <= 0.02
    one = rs.probability(net, law, "argmax == 1", guarantee="confidence", budget="0.4s", rng=0, level=0.9999)
    assert one.lower <= 7 / 24 <= one.upper


def test_closed_forms():
    affine = rs.Network([([[1.0, 2.0, -1.0]], [0.5])])
    law = rs.Gaussian([0.1, 0.0, -0.2], [[1.0, 0.3, 0.0], [0.3, 2.0, 0.1], [0.0, 0.1, 0.5]])
    w = np.array([1.0, 2.0, -1.0])
    sd = np.sqrt(w @ law.cov @ w)
    for t in (0.0, 3.0, 20.0):
        truth = ndtr(-(t - 0.5 - w @ law.mean) / sd)
        found = rs.probability(affine, law, f"y > {t}", guarantee="exact")
        assert found.value == pytest.approx(truth, rel=1e-11) and found.lower <= truth * (1 + 1e-12) <= found.upper
    # Inputs the network does not see still count when the event reads them.
    blind = rs.Network([([[1.0, 0.0]], [0.0]), ([[1.0]], [0.0])])
    found = rs.probability(blind, rs.Gaussian([0.0, 0.0]), "y > 0 and x[1] > 1", guarantee="exact")
    assert found.value == pytest.approx(0.5 * ndtr(-1), rel=1e-12)
    box = rs.probability(
        blind, rs.Gaussian([0.0, 0.0]), "0 <= x[0] <= 1 and -1 < x[1] < 2 and y <= 0.5", guarantee="exact"
    )
    assert box.value == pytest.approx((ndtr(0.5) - 0.5) * (ndtr(2) - ndtr(-1)), rel=1e-11)


def test_function_events_by_enumeration():
    net = random_net((2, 8, 6, 2), 3, bias=0.5)
    law = rs.Gaussian([0.2, 0.1], [0.5, 0.8])
    cells = rs.regions(net, law=law)
    mass = cells.masses(law).value
    J = cells.C
    for text, inside in (
        ("J[0,1] < 0", J[:, 0, 1] < 0),
        ("norm(J) > 1.5", np.linalg.norm(J, 2, axis=(1, 2)) > 1.5),
        ("unit[1,3] on or unit[0,0] off", (cells.pattern[:, 11] == 1) | (cells.pattern[:, 0] == 0)),
    ):
        truth = mass[inside].sum()
        found = rs.probability(net, law, text, guarantee="exact")
        assert found.value == pytest.approx(truth, abs=1e-12) and 0.01 < truth < 0.99
        for kind in ("finite-sample", "replicate"):
            guess = rs.probability(
                net, law, text, guarantee="confidence", interval=kind, budget="0.3s", level=0.9999, rng=1
            )
            assert guess.lower <= truth <= guess.upper and guess.width < 0.2
    mixed = rs.probability(net, law, "J[0,1] < 0 and y[0] > y[1]", guarantee="exact").value
    rest = rs.probability(net, law, "J[0,1] >= 0 and y[0] > y[1]", guarantee="exact").value
    assert mixed + rest == pytest.approx(rs.probability(net, law, "y[0] > y[1]", guarantee="exact").value, abs=1e-12)


LAWS = {
    "gaussian": rs.Gaussian([0.1, -0.2], [[1.0, 0.4], [0.4, 0.7]]),
    "singular": rs.Gaussian([0.1, -0.2], factor=[[1.0], [0.5]]),
    "mixture": rs.GaussianMixture([0.4, 0.6], [rs.Gaussian([0.0, 0.0]), rs.Gaussian([1.0, -1.0], 0.3)]),
    "truncated": rs.Truncated(rs.Gaussian([0.0, 0.0], [[1.0, 0.4], [0.4, 0.7]]), -1.0, [0.5, 2.0]),
    "uniform": rs.Uniform([-1.0, -2.0], [2.0, 1.0]),
    "particles": rs.Particles(np.random.default_rng(0).normal(size=(500, 2))),
}


@pytest.mark.parametrize("name", LAWS)
def test_total_probability_and_sampling(name):
    net, law = random_net((2, 10, 8, 3), 5), LAWS[name]
    classes = [rs.probability(net, law, f"argmax == {k}", guarantee="exact") for k in range(3)]
    assert sum(a.value for a in classes) == pytest.approx(1, abs=1e-11)
    X = law.sample(200_000, 3)
    for text in ("y[0] > 0.2 or y[1] < 0 and x[0] > 0.1", "-0.5 <= x[1] < 0.4 and argmax != 0"):
        found = rs.probability(net, law, text, guarantee="exact")
        other = rs.probability(net, law, f"not ({text})", guarantee="exact")
        assert found.value + other.value == pytest.approx(1, abs=1e-11)
        share = as_event(text, net).holds(net, X).mean()
        # 5.5 standard errors: a false alarm in 4e-8 of runs.
        assert abs(found.value - share) <= 5.5 * np.sqrt(0.25 / len(X)) + (0.0 if name != "particles" else 0.01)


def test_uniform_laws_in_more_dimensions_by_volume():
    net = random_net((5, 6, 2), 2)
    law = rs.Uniform(-np.ones(5), np.ones(5))
    found = rs.probability(net, law, "y[0] > y[1] and x[4] <= 0.25", guarantee="exact")
    X = law.sample(400_000, 0)
    share = as_event("y[0] > y[1] and x[4] <= 0.25", net).holds(net, X).mean()
    assert found.guarantee == "exact" and abs(found.value - share) < 5.5 * np.sqrt(0.25 / len(X))


def test_a_planted_tiny_region_is_found():
    # Pyramids of radius 1e-5 at known places: out = max(0, 1 - (|x0 - a| + |x1 - b|) / r) - 1/2 is above 0 on a
    # diamond of area r^2 / 2, in a box of area 4, on top of a harmless background below 0.
    r, at = 1e-5, np.array([[0.317, -0.642], [-0.55, 0.123]])
    background = random_net((2, 12, 1), 4)
    first, bias, second = [], [], []
    for a in at:
        for k in (0, 1):
            for sign in (1.0, -1.0):
                row = np.zeros(2)
                row[k] = sign
                first.append(row)
                bias.append(-sign * a[k])
        block = np.zeros((1, 4 * len(at)))
        second.append(block)
    for i, block in enumerate(second):
        block[0, 4 * i : 4 * i + 4] = -1.0 / r
    W1 = np.concatenate([np.array(first), background.layers[0].weight])
    b1 = np.concatenate([bias, background.layers[0].bias])
    W2 = np.zeros((len(at) + 1, len(W1)))
    W2[: len(at), : 4 * len(at)] = np.concatenate(second)
    W2[len(at), 4 * len(at) :] = -np.abs(background.layers[1].weight[0])
    net = rs.Network([(W1, b1), (W2, np.array([1.0, 1.0, 0.0])), ([[1.0, 1.0, -0.001]], [-0.5])])
    law = rs.Uniform([-1.0, -1.0], [1.0, 1.0])
    found = rs.probability(net, law, "y > 0", guarantee="exact")
    truth = len(at) * r**2 / 2 / 4
    assert found.guarantee == "exact" and found.value == pytest.approx(truth, rel=1e-6)
    assert not as_event("y > 0", net).holds(net, law.sample(100_000, 0)).any()
    seen = rs.witness(net, law, "y > 0", rng=0)
    assert len(seen) and np.abs(at - seen.x).max(axis=1).min() < r


def test_far_tails_keep_their_digits():
    net = rs.Network([([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0]), ([[1.0, 1.0]], [0.0])])
    found = rs.probability(net, rs.Gaussian([0.0, 0.0]), "x[0] > 12 and x[1] > 11", guarantee="exact")
    truth = ndtr(-12.0) * ndtr(-11.0)
    assert (
        found.value == pytest.approx(truth, rel=1e-9)
        and found.lower <= truth * (1 + 1e-9)
        and truth <= found.upper * 1.000001
    )


def test_a_budget_that_ends_early_gives_a_bracket():
    net = random_net((3, 30, 30, 2), 0)
    law = rs.Uniform(-np.ones(3), np.ones(3))
    whole = rs.probability(net, law, "y[0] > y[1]", guarantee="exact")
    part = rs.probability(net, law, "y[0] > y[1]", guarantee="exact", budget="2000 cells")
    assert part.guarantee == "sound" and "budget" in part.note
    assert part.lower <= whole.value <= part.upper and 0 < part.width < 1


def test_exact_says_what_is_possible():
    net = random_net((5, 6, 2), 0)
    with pytest.raises(InputError, match=r"5 dimensions.*at most 3.*sound"):
        rs.probability(net, rs.Gaussian(np.zeros(5)), "y[0] > 0", guarantee="exact")
    with pytest.raises(InputError, match=r"7 dimensions.*at most 6"):
        rs.probability(random_net((7, 9, 2), 0), rs.Uniform(np.zeros(7), 1.0), "y[0] > 0", guarantee="exact")
    auto = rs.probability(net, rs.Gaussian(np.zeros(5)), "y[0] > 0", budget="0.5s", rng=0)
    assert auto.guarantee == "confidence" and "5 dimensions are too many" in auto.note and "interval" in auto.note
    few = rs.probability(random_net((2, 6, 2), 0), rs.Gaussian(np.zeros(2)), "y[0] > 0")
    assert few.guarantee == "exact" and "were measured" in few.note and few.seconds > 0


def test_confidence_covers():
    """At level 0.8, 120 seeds: fewer than 80 hits have probability 3e-4 at exactly 0.8.

    Intervals of half the width would hold the truth in 48 % of the runs: 80 hits or more then have probability 3e-5.
    """
    net, law = random_net((3, 10, 2), 7), rs.Gaussian(np.zeros(3))
    truth = rs.probability(net, law, "y[0] > y[1]", guarantee="exact").value
    for kind in ("finite-sample", "replicate"):
        hits = 0
        for seed in range(120):
            a = rs.probability(
                net, law, "y[0] > y[1]", guarantee="confidence", interval=kind, budget="0.02s", level=0.8, rng=seed
            )
            assert a.guarantee == "confidence" and a.level == 0.8 and kind in a.note
            hits += a.lower <= truth <= a.upper
        assert hits >= 80, kind


def test_boxes_folded_into_the_law_agree_with_carried_rows():
    net = random_net((3, 8, 2), 9)
    text = "0 <= x[0] <= 1 and y[0] > 0 or 1 <= x[0] <= 2 and y[1] > 0"
    for law in (rs.Uniform([-1.0, -1.0, -1.0], [2.0, 1.0, 1.0]), rs.Gaussian([0.2, 0.0, 0.0], [1.0, 2.0, 0.5])):
        folded = rs.probability(net, law, text, guarantee="exact").value
        overlap = rs.probability(net, law, f"({text}) or 0 <= x[0] <= 0.5 and y[0] > 0", guarantee="exact").value
        assert folded == pytest.approx(overlap, abs=1e-11)  # boxes that overlap cannot be folded
        guess = rs.probability(net, law, text, guarantee="confidence", budget="0.4s", level=0.9999, rng=0)
        assert guess.lower <= folded <= guess.upper and guess.width < 0.05


def test_never_and_always():
    net, law = random_net((2, 4, 2), 0), rs.Uniform([0.0, 0.0], [1.0, 1.0])
    for guarantee in ("exact", "confidence", "auto"):
        assert rs.probability(net, law, "x[0] > 2", guarantee=guarantee).upper == 0
        assert rs.probability(net, law, "x[0] > -2", guarantee=guarantee).lower == pytest.approx(1, abs=1e-12)
        assert rs.probability(net, law, "y[0] > 1 and y[0] < 1", guarantee=guarantee).value == 0


def test_same_seed_same_answer():
    net, law = random_net((4, 8, 2), 0), rs.Gaussian(np.zeros(4))
    a, b = (
        rs.probability(
            net, law, "J[0,0] > 0 and y[0] > 0", guarantee="confidence", tolerance=0.05, budget="60s", rng=3
        ).value
        for _ in range(2)
    )
    assert a == b


def test_bad_inputs():
    net, law = random_net((2, 4, 2), 0), rs.Gaussian(np.zeros(2))
    for bad in (
        {"guarantee": "certain"},
        {"tolerance": 0.0},
        {"tolerance": float("nan")},
        {"level": 1.0},
        {"interval": "wide"},
        {"budget": -1},
        {"rng": 1.5},
    ):
        with pytest.raises(InputError, match=next(iter(bad))):
            rs.probability(net, law, "y[0] > 0", **bad)
    with pytest.raises(InputError, match="law"):
        rs.probability(net, None, "y[0] > 0")
    with pytest.raises(InputError, match="net"):
        rs.probability("net", law, "y[0] > 0")
    with pytest.raises(InputError, match="3 inputs"):
        rs.probability(net, rs.Gaussian(np.zeros(3)), "y[0] > 0")


def test_answers_compare_when_they_can():
    a = rs.Answer(0.2, 0.1, 0.3, "sound")
    assert a < 0.5 and a > 0.05 and not a > 0.5 and a <= 0.3 and a >= 0.1 and not a < 0.1
    assert a.certainly_below(0.31) and not a.certainly_below(0.3) and a.certainly_above(0.0) and a.width == 0.3 - 0.1
    with pytest.raises(InputError, match="undecided"):
        assert a < 0.2
    with pytest.raises(TypeError):
        assert a < "b"
    assert set(a.to_dict()) >= {"evaluations", "seconds"}


def test_texts_of_answers():
    bound = rs.Answer(0.00215, 0.0, 0.0043, "sound")
    assert str(bound) == "at most 0.0043, in [0, 0.0043] (sound)" and repr(bound).startswith("Answer(at most 0.0043")
    assert str(rs.Answer(5e-301, 0.0, 1e-300, "sound")) == "at most 1e-300, in [0, 1e-300] (sound)"
    assert str(rs.Answer(0.1, 0.0, 0.1234561, "sound")).startswith("at most 0.123457")  # never rounded down
    assert str(rs.Answer(0.0, 0.0, 0.0, "sound")) == "0 (sound)"
    assert str(rs.Answer(0.2, 0.1, 0.3, "confidence", 0.95)) == "0.2 in [0.1, 0.3] (confidence 95 %)"
    assert type(float(rs.Answer(np.float64(0.5), 0.4, 0.6, "exact"))) is float
    one = rs.probability(random_net((1, 1, 1), 0), rs.Gaussian([0.0]), "y[0] > 100", guarantee="exact")
    assert one.method == "1 region measured or ruled out in 1 dimension"
    more = rs.probability(random_net((1, 1, 1), 0), rs.Gaussian([0.0]), "y[0] > 0.1", guarantee="exact")
    assert more.method == "3 regions measured or ruled out in 1 dimension"
    flat = rs.probability(rs.Network([(np.eye(3), np.zeros(3))]), rs.Uniform([0.0] * 3, [1.0] * 3), "y[0] > 2")
    assert "1 region measured or ruled out in 3 dimensions" in flat.method and "3 dimensions," in flat.note


def test_a_tolerance_that_was_not_reached_is_the_status():
    net, law = random_net((5, 8, 1), 0), rs.Gaussian(np.zeros(5))
    middle = float(np.median(net(law.sample(1000, 0))))
    coarse = rs.probability(net, law, f"y[0] > {middle}", guarantee="confidence", tolerance=0.2, budget="2s", rng=0)
    fine = rs.probability(net, law, f"y[0] > {middle}", guarantee="confidence", tolerance=1e-9, budget="0.2s", rng=0)
    assert coarse.status is Status.DONE and fine.status is Status.TOLERANCE and fine.width > 2e-9


def test_every_component_of_a_large_mixture_has_its_own_value():
    """Components beyond the first sixteen follow the heaviest: in how they are sampled, not in what they give."""
    means = np.linspace(-3.0, 3.0, 24)
    weights = np.where(np.arange(24) == 23, 2.0, 1.0) / 25.0  # the heaviest one is in the event almost surely
    parts = [rs.Gaussian(np.array([m, 0, 0, 0, 0]), 0.2**2) for m in means]
    net = rs.Network([(np.eye(5, 5), None), (np.ones((1, 5)) * [1, 0.1, 0.1, 0.1, 0.1], None)])
    law = rs.GaussianMixture(weights, parts)
    event = "x[0] + 0.1 * x[1] + 0.1 * x[2] > 0.05"
    truth = float(weights @ ndtr((means - 0.05) / (0.2 * np.sqrt(1.02))))
    for interval in ("finite-sample", "replicate"):
        found = rs.probability(net, law, event, guarantee="confidence", interval=interval, budget="3s", rng=0)
        assert found.lower <= truth <= found.upper
        assert abs(found.value - truth) < 0.02, interval


def test_boxes_of_inputs_have_one_story():
    """An event on inputs alone, of a law in many dimensions: exact, and no note of a confidence interval."""
    net, law = random_net((8, 16, 2), 0), rs.Gaussian(np.full(8, 1.2), 0.1)
    half = rs.probability(net, law, "x[1] > 1.2")
    assert half.guarantee == "exact" and half.value == pytest.approx(0.5, abs=1e-12)
    assert "always" not in repr(half) and "confidence" not in repr(half) and "box of inputs" in half.method
    assert "always happens" in rs.probability(net, law, "x[1] > -1000").method
