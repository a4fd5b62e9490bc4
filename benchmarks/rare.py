"""Rare events: rays (in more than 12 dimensions populations) against OpenTURNS at the same coefficient of variation.

Run: python benchmarks/rare.py [repeats] [name ...]   (needs openturns; one thread; seconds are CPU time)

For each network and probability: `rare_probability(..., relative=0.1)` and OpenTURNS' subset sampling and NAIS with
sample sizes that give a coefficient of variation near 5 %, each repeated with fresh seeds. The table gives the mean
over the truth, the coefficient of variation and the root mean square error over the repeats, seconds and evaluations
of one run, and the seconds that one run would take at an error of exactly 5 % (variance falls as one over the work;
this holds for the others, while most of the time of rays is a search that does not get shorter: compare their seconds
as they are).
The truth comes from a long run of rays, or from a closed form where modes are counted; NAIS is the independent check.
`cover` is the share of 95 % intervals that hold the truth. Results are in docs/rare.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time
from itertools import pairwise

import numpy as np

import reluscope as rs
from reluscope.events import Case, Event
from reluscope.measure.rare import rare_probability


def random_network(widths, seed):
    """Weights N(0, 2/inputs) and biases N(0, 0.01)."""
    rng = np.random.default_rng(seed)
    return rs.Network(
        [(rng.normal(size=(m, n)) * np.sqrt(2 / n), 0.1 * rng.normal(size=m)) for n, m in pairwise(widths)]
    )


def four_modes(r, distances):
    """y = max of half-space functions `x_i - b` and `-x_i - b`: as many separate modes as distances."""
    directions = np.concatenate([np.eye(r), -np.eye(r)])[[i // 2 + (i % 2) * r for i in range(len(distances))]]
    net = [directions, -np.asarray(distances, float)]
    layers = []
    while len(net[0]) > 1:  # pairwise maxima: max(a, b) = relu(a - b) + relu(b) - relu(-b)
        W, c = net
        half = len(W) // 2
        a, b = slice(0, half), slice(half, 2 * half)
        rows = np.concatenate([W[a] - W[b], W[b], -W[b]])
        bias = np.concatenate([c[a] - c[b], c[b], -c[b]])
        layers.append((rows, bias))
        eye = np.eye(half)
        net = [np.concatenate([eye, eye, -eye], axis=1), np.zeros(half)]
    layers.append((net[0], net[1]))
    return rs.Network(layers)


def behind_a_layer(net, seed=5):
    """The same function behind ReLU units that see all inputs: x = Q' (relu(Qx) - relu(-Qx)), Q orthogonal."""
    r = net.n_inputs
    Q = np.linalg.qr(np.random.default_rng(seed).normal(size=(r, r)))[0]
    first = net.layers[0]
    both = np.concatenate([Q.T, -Q.T], axis=1)
    head = [(np.concatenate([Q, -Q]), np.zeros(2 * r)), (first.dense() @ both, first.bias)]
    return rs.Network([*head, *((layer.dense(), layer.bias) for layer in net.layers[1:])])


def above(net, threshold):
    """The property y[0] >= threshold."""
    inf = np.full(net.n_inputs, np.inf)
    row = np.zeros((1, net.n_outputs))
    row[0, 0] = -1.0
    case = Case(-inf, inf, np.zeros((1, net.n_inputs)), row, np.array([-threshold]), np.zeros(1, bool))
    return Event("property", net.n_inputs, net.n_outputs, (case,))


def threshold_for(net, law, p, seed=0):
    """The level that is exceeded with probability about p."""
    Y = net(law.sample(20000, 1))[:, 0]
    low, high = float(np.quantile(Y, 0.99)), float(np.quantile(Y, 0.99) + 12 * Y.std())
    for _ in range(12):
        middle = 0.5 * (low + high)
        value = rare_probability(net, law, above(net, middle), rng=seed).value
        low, high = (middle, high) if value > p else (low, middle)
    return 0.5 * (low + high)


def cases():
    from scipy.special import ndtr

    for widths in ((5, 50, 50, 1), (10, 32, 32, 1)):
        net, law = random_network(widths, 0), rs.Gaussian(np.zeros(widths[0]), 1.0)
        for p in (1e-4, 1e-6, 1e-9):
            c = threshold_for(net, law, p)
            truth = rare_probability(net, law, above(net, c), relative=0.003, rng=99).value
            yield f"{'-'.join(map(str, widths))} {p:.0e}", net, law, c, truth
    for r, distances in (
        (5, [4.75, 4.8]),
        (5, [5.0, 5.0, 5.0, 5.0]),
        (10, [6.1, 6.2, 6.15, 6.2]),
        (60, [5.0, 5.0, 5.1, 5.3]),
        (200, [4.75, 4.8]),
    ):
        tail = ndtr(-np.asarray(distances))
        pairs = tail.reshape(-1, 2).sum(axis=1)  # the two ends of an axis exclude one another, axes are independent
        truth = float(1 - np.prod(1 - pairs)) if pairs.sum() > 1e-5 else float(-np.expm1(np.log1p(-pairs).sum()))
        net = four_modes(r, distances)
        net = behind_a_layer(net) if r > 12 else net
        yield f"{len(distances)} modes, {r} inputs", net, rs.Gaussian(np.zeros(r), 1.0), 0.0, truth


def ours(net, law, threshold, seeds, relative=0.1):
    rows = []
    for seed in seeds:
        begin = time.process_time()
        found = rare_probability(net, law, above(net, threshold), relative=relative, rng=seed)
        rows.append((found.value, time.process_time() - begin, found.evaluations or 0, found.lower, found.upper))
    return np.array(rows)


def openturns_runs(net, threshold, method, size, seeds):
    import openturns as ot

    ot.Log.Show(ot.Log.NONE)
    ot.TBB.Disable()
    W = [layer.dense() for layer in net.layers]
    b = [layer.bias for layer in net.layers]
    count = [0]

    def forward(X):
        z = np.asarray(X)
        count[0] += len(z)
        for i in range(len(W)):
            z = z @ W[i].T + b[i]
            if i + 1 < len(W):
                np.maximum(z, 0.0, out=z)
        return z[:, :1]

    n = net.n_inputs
    function = ot.PythonFunction(n, 1, func=lambda x: forward([x])[0], func_sample=forward)
    rows = []
    for seed in seeds:
        ot.RandomGenerator.SetSeed(int(seed))
        vector = ot.RandomVector(ot.Normal(n))
        event = ot.ThresholdEvent(ot.CompositeRandomVector(function, vector), ot.Greater(), threshold)
        count[0] = 0
        begin = time.process_time()
        block = 1000
        if method == "subset":
            algorithm = ot.SubsetSampling(event)
            algorithm.setMaximumOuterSampling(max(1, size // block))
            algorithm.setBlockSize(min(block, size))
            algorithm.setMaximumCoefficientOfVariation(-1.0)
        else:
            algorithm = ot.NAIS(event, 0.1)
            algorithm.setMaximumOuterSampling(max(1, size // block))
            algorithm.setBlockSize(min(block, size))
        algorithm.run()
        result = algorithm.getResult()
        value = result.getProbabilityEstimate()
        half = 0.5 * result.getConfidenceLength(0.95)
        rows.append((value, time.process_time() - begin, count[0], value - half, value + half))
    return np.array(rows)


def line(name, rows, truth):
    value = rows[:, 0]
    cv = value.std(ddof=1) / truth
    rmse = np.sqrt(((value / truth - 1) ** 2).mean())
    seconds = rows[:, 1].mean()
    cover = ((rows[:, 3] <= truth) & (truth <= rows[:, 4])).mean()
    print(
        f"  {name:18s} mean/truth {value.mean() / truth:6.3f}   cv {100 * cv:5.1f} %   rmse {100 * rmse:5.1f} %   "
        f"{seconds:6.3f} s   {rows[:, 2].mean():9,.0f} evaluations   cover {cover:4.2f}   "
        f"at 5 %: {seconds * (rmse / 0.05) ** 2:7.3f} s",
        flush=True,
    )
    return seconds * (rmse / 0.05) ** 2


def main(repeats=10, names=()):
    for name, net, law, threshold, truth in cases():
        if names and not any(word in name for word in names):
            continue
        print(f"{name}: p = {truth:.4g}")
        levels = -np.log10(truth)
        line("rays" if net.n_inputs <= 12 else "populations", ours(net, law, threshold, range(repeats)), truth)
        size = 3000 if net.n_inputs <= 5 else 6000
        if net.n_inputs <= 12:  # a full covariance for every step
            line(f"NAIS {size}", openturns_runs(net, threshold, "nais", size, range(repeats)), truth)
        size = int(1000 * round(9 * levels))
        line(f"subset {size}", openturns_runs(net, threshold, "subset", size, range(repeats)), truth)


if __name__ == "__main__":
    words = sys.argv[1:]
    main(int(words[0]) if words else 10, words[1:])
