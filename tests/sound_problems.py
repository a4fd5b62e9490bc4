"""Random problems for sound bounds, and what a bracket must meet on them."""

import numpy as np

import reluscope as rs
from nets import integer_net, random_net
from reluscope.activations import leaky_relu
from reluscope.events import as_event

ACTIVATIONS = ("relu", "relu", "relu", leaky_relu(0.1), "hardtanh", "abs", "relu6")
DRAWS = 20_000


def problem(stream, seed):
    """A network, a law, an event, and the generator for what the search should do."""
    rng = np.random.default_rng([stream, seed])
    n = int(rng.integers(1, 4)) if rng.random() < 0.5 else int(rng.integers(4, 16))
    net = make_net(rng, n)
    law = make_law(rng, n)
    return net, law, make_event(rng, net, law), rng


def check_bracket(net, law, event, low, high, rng, seed):
    """The bracket meets 6.5 standard errors around the share of draws, and the exact value in some planar problems."""
    share = as_event(event, net, law).holds(net, law.sample(DRAWS, rng)).mean()
    error = 6.5 * np.sqrt(max(share * (1 - share), 1 / DRAWS) / DRAWS)
    assert low <= share + error and share - error <= high, (seed, low, high, share)
    if law.n <= 2 and seed % 4 == 0:
        exact = rs.probability(net, law, event, guarantee="exact", budget="5s")
        assert low <= exact.upper and exact.lower <= high, (seed, low, high, exact)


def make_net(rng, n):
    activation = ACTIVATIONS[int(rng.integers(len(ACTIVATIONS)))]
    depth = int(rng.integers(1, 4))
    widths = [n, *rng.integers(2, 8, depth).tolist(), int(rng.integers(1, 4))]
    make = integer_net if rng.random() < 0.25 else random_net
    net = make(widths, seed=int(rng.integers(1 << 30)), activation=activation)
    if rng.random() < 0.25:  # badly scaled weights, scaled back in the next layer
        layers, scale = [], np.ones(n)
        for layer in net.layers:
            last = layer is net.layers[-1]
            out = np.ones(layer.width) if last or not layer.units.is_relu else 10.0 ** rng.uniform(-4, 4, layer.width)
            layers.append((out[:, None] * layer.dense() / scale, out * layer.bias, layer.units))
            scale = out
        net = rs.Network(layers)
    return net


def make_law(rng, n):
    kind = rng.integers(5)
    mean, spread = rng.normal(size=n), 10.0 ** rng.uniform(-1, 0.5)
    if kind == 0:
        factor = rng.normal(size=(n, max(1, n - int(rng.random() < 0.3))))  # sometimes singular
        return rs.Gaussian(mean, spread**2 * factor @ factor.T)
    if kind == 1:
        half = spread * rng.uniform(0.5, 2, n)
        return rs.Uniform(mean - half, mean + half)
    if kind == 2:
        return rs.Truncated(rs.Gaussian(mean, np.full(n, spread**2)), mean - 1.5 * spread, mean + 2 * spread)
    if kind == 3:
        parts = [rs.Gaussian(rng.normal(size=n), np.full(n, spread**2)) for _ in range(2)]
        return rs.GaussianMixture([0.3, 0.7], parts)
    return rs.Gaussian(mean, spread**2 * rng.uniform(0.2, 2, n))


def make_event(rng, net, law):
    y = net(law.sample(400, np.random.default_rng(int(rng.integers(1 << 30)))))
    if net.n_outputs > 1 and rng.random() < 0.4:
        return "argmax != argmax at mean"
    texts = []
    for _ in range(int(rng.integers(1, 4))):
        k = int(rng.integers(net.n_outputs))
        level = float(np.quantile(y[:, k], rng.choice([0.5, 0.9, 0.99, 1.0])))
        texts.append(f"y[{k}] {rng.choice(['>', '<=', '>='])} {level + (0.3 if rng.random() < 0.3 else 0.0)!r}")
    if rng.random() < 0.2:
        texts.append(f"x[0] > {float(law.mean[0])!r}")
    return f" {rng.choice(['and', 'or'])} ".join(texts)
