"""Events over several networks, and over two inputs of one."""

import numpy as np
import pytest

import reluscope as rs
from nets import random_net
from reluscope.errors import InputError

LAW = rs.Gaussian([0.1, -0.2], [[1.0, 0.3], [0.3, 0.5]])


@pytest.mark.parametrize("seed", range(4))
def test_relational_events_are_events_of_the_composed_network(seed):
    f, g = random_net((2, 5, 3), seed), random_net((2, 4, 4, 3), seed + 50)
    nets, both = {"f": f, "g": g}, rs.stack([f, g])
    for text, plain in [
        ("abs(f.y[0] - g.y[0]) > 0.5", "abs(y[0] - y[3]) > 0.5"),
        ("f.y[1] > 2 * g.y[2] + x[0]", "y[1] > 2 * y[5] + x[0]"),
        ("max(abs(f.y - g.y)) > 1", " or ".join(f"abs(y[{k}] - y[{k + 3}]) > 1" for k in range(3))),
        ("argmax f == 1 and argmin g in {0, 2}",
         "y[1] > y[0] and y[1] >= y[2] and not (y[4] < y[3] and y[4] <= y[5])"),
    ]:  # fmt: skip
        a, b = rs.probability(nets, LAW, text), rs.probability(both, LAW, plain)
        assert a.guarantee == b.guarantee == "exact"
        assert a.value == pytest.approx(b.value, abs=1e-12)
    X = LAW.sample(100_000, 1)
    differ = rs.probability(nets, LAW, "argmax f != argmax g")
    alike = rs.probability(nets, LAW, "argmax f == argmax g")
    p = (f(X).argmax(axis=1) != g(X).argmax(axis=1)).mean()
    assert abs(differ.value - p) < 5 * np.sqrt(0.25 / 100_000)
    assert differ.value + alike.value == pytest.approx(1.0, abs=1e-9)


def test_networks_with_inputs_of_their_own():
    f, g = random_net((1, 5, 1), 0), random_net((1, 4, 4, 1), 1)
    law = rs.Gaussian([0.0, 0.5], [[1.0, 0.4], [0.4, 1.0]])
    text = "f.x[0] < g.x[0] and f.y > g.y"
    answer = rs.probability({"f": f, "g": g}, law, text)
    X = law.sample(200_000, 2)
    p = ((X[:, 0] < X[:, 1]) & (f(X[:, :1]) > g(X[:, 1:]))[:, 0]).mean()
    assert answer.guarantee == "exact" and abs(answer.value - p) < 5 * np.sqrt(p / 200_000)
    with pytest.raises(InputError, match=r"say whose: f\.x, g\.x"):
        rs.probability({"f": f, "g": g}, law, "x[0] > 0")


def test_two_inputs_of_one_network():
    net = random_net((1, 6, 2), 3)
    pair = rs.Uniform([-1, -1], [1, 1])
    answer = rs.probability(net, pair, "y'[1] > y[1] and x'[0] <= x[0] and argmax' != argmax")
    X = pair.sample(200_000, 0)
    y, z = net(X[:, :1]), net(X[:, 1:])
    p = ((z[:, 1] > y[:, 1]) & (X[:, 1] <= X[:, 0]) & (y.argmax(axis=1) != z.argmax(axis=1))).mean()
    assert answer.guarantee == "exact" and abs(answer.value - p) < 5 * np.sqrt(0.25 / 200_000)
    found = rs.witness(net, pair, "y'[1] > y[1] and x'[0] <= x[0]", rng=0)
    assert net(found.x[1:])[1] > net(found.x[:1])[1] and found.x[1] <= found.x[0]


def test_jacobians_and_units_of_parts():
    f, g = random_net((2, 5, 1), 0), random_net((2, 4, 3, 1), 1)
    X = LAW.sample(100_000, 0)
    a = rs.probability({"f": f, "g": g}, LAW, "f.J[0,1] > g.J[0,1] and g.unit[1,2] on")
    start = g.offsets[1] + 2
    p = ((f.jacobian(X)[:, 0, 1] > g.jacobian(X)[:, 0, 1]) & (g.pattern(X)[:, start] == 1)).mean()
    assert a.guarantee == "exact" and 0.01 < p < 0.99 and abs(a.value - p) < 5 * np.sqrt(0.25 / 100_000)


@pytest.mark.parametrize("guarantee", ["sound", "confidence"])
def test_every_guarantee_answers(guarantee):
    f, g = random_net((2, 5, 3), 1), random_net((2, 4, 4, 3), 51)
    exact = rs.probability({"f": f, "g": g}, LAW, "f.y[0] > g.y[0] + 0.3", guarantee="exact")
    other = rs.probability(
        {"f": f, "g": g}, LAW, "f.y[0] > g.y[0] + 0.3", guarantee=guarantee, tolerance=0.05, budget="5s", rng=0
    )
    assert other.guarantee == guarantee and other.lower <= exact.value <= other.upper


def test_other_answers_take_the_joined_network():
    f, g = random_net((2, 5, 1), 1), random_net((2, 4, 1), 51)
    both = rs.stack({"f": f, "g": g})
    answer = rs.probability(both, LAW, "f.y > g.y")
    assert rs.probability({"f": f, "g": g}, LAW, "f.y > g.y").value == answer.value
    kept = rs.record(both, LAW, "f.y > g.y", answer)
    assert rs.replay(kept, both)
    found = rs.sensitivity({"f": f, "g": g}, LAW, "f.y > g.y", rng=0)
    assert found.probability.value == pytest.approx(answer.value, abs=1e-12)
    assert rs.witness({"f": f, "g": g}, LAW, "f.y > g.y", rng=0)


def test_absolute_values_of_several_numbers_are_joined_by_max_or_min():
    X = np.random.default_rng(0).normal(size=(500, 3))
    Y = np.random.default_rng(1).normal(size=(500, 2))
    for text, truth in [
        ("max(abs(y)) > 1", np.abs(Y).max(axis=1) > 1),
        ("max(abs(x[0]), y[1], 0.5) <= 1", np.maximum(np.abs(X[:, 0]), Y[:, 1]) <= 1),
        ("min(-abs(y[0]), x[1]) < -1", np.minimum(-np.abs(Y[:, 0]), X[:, 1]) < -1),
        ("min(min(x), y[0]) >= -1", np.minimum(X.min(axis=1), Y[:, 0]) >= -1),
    ]:
        assert np.array_equal(rs.event(text, 3, 2).contains(X, Y), truth), text


@pytest.mark.parametrize(
    "text, words",
    [
        ("y[0] > 0", r"say whose: f\.y, g\.y"),
        ("h.y[0] > 0", "no network is called 'h'; known are f, g"),
        ("f.y[3] > 0", "output 3 does not exist: there are 3 outputs"),
        ("f.z > 0", r"after f\. stands one of"),
        ("f.y > g.y", "has 3 entries; say which"),
        ("argmax f != argmin h", "say whose: argmin f, argmin g"),
        ("unit[0,0] on", r"say whose: f\.unit"),
        ("f.unit[3,0] on", "hidden layer 3 does not exist"),
        ("norm(J) > 1", "known for one network"),
        ("y'[0] > 0", "second of two inputs"),
        ("abs(f.y - g.y) > 1", r"write max\(abs"),
        ("f.y + x[0] > 1", "say which"),
    ],
)
def test_errors_point_at_their_place(text, words):
    nets = {"f": random_net((2, 5, 3), 1), "g": random_net((2, 4, 4, 3), 51)}
    with pytest.raises(InputError, match=words) as caught:
        rs.probability(nets, LAW, text)
    assert "^" in str(caught.value)


def test_laws_and_networks_must_fit():
    f, g = random_net((2, 5, 3), 1), random_net((2, 4, 1), 51)
    with pytest.raises(InputError, match=r"law has 3 inputs; the networks take 2, 2"):
        rs.probability({"f": f, "g": g}, rs.Gaussian([0, 0, 0]), "f.y[0] > g.y[0]")
    with pytest.raises(InputError, match="equally many outputs, got 3 and 1"):
        rs.probability({"f": f, "g": g}, LAW, "argmax f != argmax g")
    with pytest.raises(InputError, match="network 'g' must be a Network"):
        rs.probability({"f": f, "g": 3}, LAW, "f.y[0] > 0")
    with pytest.raises(InputError, match="names of networks"):
        rs.probability({"x": f}, LAW, "x.y[0] > 0")


@pytest.mark.slow
def test_500_random_pairs():
    """Relational probabilities are those of the composed network, written out and enumerated."""
    rng = np.random.default_rng(0)
    for k in range(500):
        n, m = int(rng.integers(1, 3)), int(rng.integers(1, 4))
        f, g = (
            random_net((n, *rng.integers(2, 6, size=rng.integers(1, 3)).tolist(), m), int(s))
            for s in rng.integers(1 << 30, size=2)
        )
        law = rs.Gaussian(rng.normal(size=n)) if k % 2 else rs.Uniform([-2.0] * n, [2.0] * n)
        t = float(rng.normal())
        j = int(rng.integers(m))
        a = rs.probability({"f": f, "g": g}, law, f"f.y[{j}] - g.y[{j}] > {t!r}")
        b = rs.probability((f - g).select_outputs(j), law, f"y > {t!r}")
        c = rs.probability(rs.stack([f, g]), law, f"y[{j}] > y[{m + j}] + {t!r}")
        assert a.guarantee == b.guarantee == c.guarantee == "exact", k
        assert a.value == pytest.approx(b.value, abs=1e-9) and a.value == pytest.approx(c.value, abs=1e-12), k
