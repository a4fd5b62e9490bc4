"""Lines against points at equal CPU time: error on cdf values and on a tail probability.

Run: python benchmarks/lines.py [seconds] [repeats] [name ...] [cdf | tail]   (one thread; a second each by default)

For each network: `integrate(..., interval="block")` under a time budget, pilot and choice included; plain Monte Carlo
and scrambled Sobol points done well (inputs projected onto what the first layer sees, batches that stay in the cache,
one BLAS thread), both given the CPU time that `integrate` used. Errors are standard deviations over repeated runs
(Monte Carlo: the binomial formula), as geometric means over cdf values at the quantiles .1 to .9 and over the tails
P(y > c) = 1e-2 and 1e-4. Ratios above 1 say how many times smaller the error of `integrate` is. Budgets are CPU time.

Measured on one core of a busy two-core Xeon with AVX-512, 2026-11, a second each, 8 repeats, each column in one run
(the cdf of relu6 in another); cdf, then tail, against Monte Carlo / Sobol. Ratios of the cdf are good to about a
quarter (torch 5-50-50-1 #1 with 32 repeats: 13 / 3.1); those of tails differ between runs by a factor of two or three,
because single heavy points matter.

    mnist 784-16-16-16-10 (trained)     8.9 / 3.5     90 / 37
    fitted 5-50-50-1 #0                 20 / 3.7      590 / 195
    fitted 5-50-50-1 #1                 32 / 6.2      11 / 5.8
    fitted 10-32-32-1 #0                23 / 6.9      275 / 181
    fitted 10-32-32-1 #1                25 / 12       10 / 7.0
    fitted 16-16-16-16-1 #0             20 / 9.2      14 / 11
    fitted 16-16-16-16-1 #1             56 / 28       953 / 573
    torch 5-50-50-1 #0                  17 / 4.1      46 / 23
    torch 5-50-50-1 #1                  11 / 2.6      42 / 20
    torch 10-32-32-1 #0                 8.3 / 2.7     32 / 22
    torch 10-32-32-1 #1                 9.0 / 3.8     19 / 11
    torch 16-16-16-16-1 #0              8.8 / 4.6     9.8 / 12
    torch 16-16-16-16-1 #1              6.1 / 2.9     10 / 9.1
    torch 784-16-16-16-10 #0            8.7 / 4.2     5.7 / 5.9
    torch 784-16-16-16-10 #1            6.8 / 3.0     7.6 / 5.0
    he 5-50-50-1 #0                     12 / 4.2      28 / 7.5
    he 5-50-50-1 #1                     19 / 3.6      59 / 26
    he 10-32-32-1 #0                    7.7 / 3.5     30 / 13
    he 10-32-32-1 #1                    7.2 / 3.0     18 / 16
    leaky 10-32-32-1                    12 / 4.1      17 / 9.2
    relu6 10-32-32-1                    7.2 / 3.5     25 / 16
    he 5-50x6-1                         11 / 3.4      25 / 14
    he 4-8x10-1                         27 / 6.5      203 / 85
    he 16-64-64-1                       6.5 / 2.6     15 / 14
    he 16-200-200-1                     4.2 / 2.5     3.1 / 2.5
    he 10-12x12-1                       7.1 / 2.7     3.6 / 4.3
    leaky 4-8x10-1                      29 / 5.7      18 / 7.7

Trained networks gain most on the cdf: their output changes mainly in few directions, and lines pay. Networks of random
weights have no such direction; on those the engine takes points, and is faster than plain ones by its forward pass in
single precision. Tails gain by lines, or by points aimed at them.
"""

from __future__ import annotations

import os
import sys
import time
from itertools import pairwise

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc
from threadpoolctl import threadpool_limits

import reluscope as rs
from reluscope.activations import leaky_relu
from reluscope.measure.lines import Request, integrate, integration, pilot, plan

BODY = np.array([0.1, 0.25, 0.5, 0.75, 0.9])
TAIL = np.array([0.99, 0.9999])
CHUNK = 4096


class CpuClock:
    """Budgets in CPU time, so that other processes on the machine do not matter."""

    perf_counter = staticmethod(time.process_time)
    thread_time = staticmethod(time.thread_time)


def random_network(widths, seed, kind="he", activation="relu"):
    """Weights N(0, 2/inputs) and biases N(0, 0.01), or torch's uniform default."""
    rng = np.random.default_rng(seed)
    layers = []
    for n, m in pairwise(widths):
        if kind == "he":
            layers.append((rng.normal(size=(m, n)) * np.sqrt(2 / n), 0.1 * rng.normal(size=m)))
        else:
            layers.append((rng.uniform(-1, 1, (m, n)) / np.sqrt(n), rng.uniform(-1, 1, m) / np.sqrt(n)))
    return rs.Network(layers, activation)


def fitted_network(widths, seed, steps=1500):
    """A network fitted by Adam to a smooth function of the inputs, as trained networks are."""
    rng = np.random.default_rng(seed)
    net = random_network(widths, seed)
    W, b = [np.array(x.dense()) for x in net.layers], [np.array(x.bias) for x in net.layers]
    a, c = rng.normal(size=(2, widths[0])) / np.sqrt(widths[0])
    params = W + b
    first, second = [np.zeros_like(p) for p in params], [np.zeros_like(p) for p in params]
    for step in range(1, steps + 1):
        X = rng.normal(size=(256, widths[0]))
        goal = np.sin(2 * X @ a) + (X @ c) ** 2 / 2 + X @ a
        z, h = [X], []
        for i, (w, v) in enumerate(zip(W, b, strict=True)):
            h.append(z[-1] @ w.T + v)
            z.append(np.maximum(h[-1], 0) if i + 1 < len(W) else h[-1])
        g = np.zeros_like(z[-1])
        g[:, 0] = 2 * (z[-1][:, 0] - goal) / len(X)
        grads = [None] * len(params)
        for i in reversed(range(len(W))):
            grads[i], grads[len(W) + i] = g.T @ z[i], g.sum(axis=0)
            g = (g @ W[i]) * (h[i - 1] > 0) if i else g
        for p, d, m, s in zip(params, grads, first, second, strict=True):
            m += 0.1 * (d - m)
            s += 0.001 * (d * d - s)
            p -= 3e-3 * (m / (1 - 0.9**step)) / (np.sqrt(s / (1 - 0.999**step)) + 1e-8)
    return rs.Network(list(zip(W, b, strict=True)))


def mnist_case():
    """The paper's network for Table 1 and its law of class 3, if the images are at hand."""
    from reluscope.reproduce._images import classifier, images

    data = images("mnist")
    net, _ = classifier(data, (16, 16, 16), 0)
    law = rs.Gaussian.fit(data.train[data.train_label == 3])
    (component,) = rs.inputs.standard(law, net)
    # Output 3, in the 16 coordinates that the network sees.
    return component.network.then(np.eye(10)[[3]], np.zeros(1))


def cases():
    if "RELUSCOPE_DATA" in os.environ:
        yield "mnist 784-16-16-16-10", mnist_case()
    for seed in (0, 1):
        yield f"fitted 5-50-50-1 #{seed}", fitted_network((5, 50, 50, 1), seed)
        yield f"he 5-50-50-1 #{seed}", random_network((5, 50, 50, 1), seed)
        yield f"torch 5-50-50-1 #{seed}", random_network((5, 50, 50, 1), seed, "torch")
        yield f"fitted 10-32-32-1 #{seed}", fitted_network((10, 32, 32, 1), seed)
        yield f"he 10-32-32-1 #{seed}", random_network((10, 32, 32, 1), seed)
        yield f"torch 10-32-32-1 #{seed}", random_network((10, 32, 32, 1), seed, "torch")
        yield f"fitted 16-16-16-16-1 #{seed}", fitted_network((16, 16, 16, 16, 1), seed)
        yield f"torch 16-16-16-16-1 #{seed}", random_network((16, 16, 16, 16, 1), seed, "torch")
        yield f"torch 784-16-16-16-10 #{seed}", random_network((784, 16, 16, 16, 10), seed, "torch")
    yield "he 5-50x6-1", random_network((5, 50, 50, 50, 50, 50, 50, 1), 0)
    yield "he 4-8x10-1", random_network((4, *[8] * 10, 1), 3)
    yield "he 16-64-64-1", random_network((16, 64, 64, 1), 0)
    yield "he 16-200-200-1", random_network((16, 200, 200, 1), 0)
    yield "he 10-12x12-1", random_network((10, *[12] * 12, 1), 1)
    yield "leaky 10-32-32-1", random_network((10, 32, 32, 1), 0, activation=leaky_relu(0.1))
    yield "relu6 10-32-32-1", random_network((10, 32, 32, 1), 0, activation="relu6")
    yield "leaky 4-8x10-1", random_network((4, *[8] * 10, 1), 3, activation=leaky_relu(0.1))


def sobol_points(net, thresholds, seconds, rng):
    """P(y <= c) by one scrambled Sobol sequence for the given CPU time."""
    start = time.process_time()
    sequence = qmc.Sobol(net.n_inputs, rng=rng)
    below, n = 0, 0
    while time.process_time() - start < seconds or n & (n - 1):
        # A coordinate that is 0 in all 30 bits has no normal quantile.
        y = net(ndtri(np.maximum(sequence.random(CHUNK), 2.0**-31)))[:, 0]
        below = below + (y[:, None] <= thresholds).sum(axis=0)
        n += CHUNK
        if n & (n - 1) == 0 and time.process_time() - start > 0.7 * seconds:
            break
    return below / n, n, time.process_time() - start


def monte_carlo_cost(net, thresholds, rng):
    start = time.process_time()
    for _ in range(20):
        (net(rng.standard_normal((CHUNK, net.n_inputs)))[:, 0, None] <= thresholds).sum(axis=0)
    return (time.process_time() - start) / (20 * CHUNK)


def run(name, net, seconds, repeats, parts):
    law = rs.Gaussian(np.zeros(net.n_inputs), 1.0)
    (component,) = rs.inputs.standard(law, net)
    seen = component.network
    rng = np.random.default_rng(1)
    y = np.concatenate([seen(rng.standard_normal((100_000, seen.n_inputs)))[:, 0] for _ in range(8)])
    for part, q in (("cdf", BODY), ("tail", TAIL)):
        if part not in parts:
            continue
        thresholds = np.quantile(y, q)
        request = Request(levels={0: thresholds})
        integrate(net, law, request, lines=64, rng=0)
        ours, used, by_lines, first = [], 0.0, 0, None
        for k in range(repeats):
            start = time.process_time()
            first = integrate(net, law, request, budget=seconds, interval="block", rng=k)
            used += (time.process_time() - start) / repeats
            ours.append(first.levels[0].sf.value)
            by_lines += first.method == "lines"
        error = np.std(ours, axis=0, ddof=1)
        cost = monte_carlo_cost(seen, thresholds, rng)
        plain = np.sqrt((1 - q) * q * cost / used)
        found = [sobol_points(seen, thresholds, used, np.random.default_rng(100 + k)) for k in range(repeats)]
        spent = np.mean([f[2] for f in found])
        sobol = np.std([f[0] for f in found], axis=0, ddof=1) * np.sqrt(spent / used)
        ratio = lambda other: float(np.exp(np.mean(np.log(np.maximum(other, 1e-300) / error))))  # noqa: B023, E731
        print(
            f"{name:28s} {part:5s} {used:6.2f} {by_lines:4d}/{repeats:<4d} {first.lines:10,d} "
            f"{ratio(plain):9.2f} {ratio(sobol):9.2f}",
            flush=True,
        )


def main(seconds: float, repeats: int, names: list[str]) -> None:
    print(
        f"{'network':28s} {'what':5s} {'CPU s':>6s} {'by lines':>9s} {'lines':>10s} {'MC/ours':>9s} {'Sobol/ours':>9s}"
    )
    for module in (integration, pilot, plan):
        module.time = CpuClock
    parts = [n for n in names if n in ("cdf", "tail")] or ["cdf", "tail"]
    names = [n for n in names if n not in ("cdf", "tail")]
    with threadpool_limits(1):
        for name, net in cases():
            if not names or any(n in name for n in names):
                run(name, net, seconds, repeats, parts)


if __name__ == "__main__":
    main(
        float(sys.argv[1]) if len(sys.argv) > 1 else 1.0,
        int(sys.argv[2]) if len(sys.argv) > 2 else 8,
        sys.argv[3:],
    )
