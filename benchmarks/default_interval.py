"""The default interval of `rs.probability(..., guarantee="confidence")` beside Monte Carlo and Sobol points.

Run: python benchmarks/default_interval.py [seconds] [repeats] [name ...]   (one thread; a second each by default)
     python benchmarks/default_interval.py coverage [seconds] [repeats]

For each network of `lines.py`, the event P(y > c) = 0.01 at the level 0.99: half the width of the default interval
(finite-sample: it holds at any number of draws) and of `interval="replicate"` (asymptotic), against 2.576 standard
errors of plain Monte Carlo and of scrambled Sobol points that are given the same CPU time. Sobol points have no
interval of their own; their error is the standard deviation over repeated runs. Ratios above 1 say how many times
narrower ours is; those to Sobol points rest on few runs, and are good to a factor of two.

What a finite-sample interval can reach: contributions in [0, b] that are n in number leave at least about
`b log(2 / 0.01) / n` open, whatever their variance: no bound can exclude what fewer than one draw in n / 5 meets. For
points of the law b = 1 and n is 7 million a second, so 1e-6 is left open, a hundredth of Monte Carlo's half-width.
What is above that is variance, and boxes lower it: their masses are known, so points that say the same as all others
in their box add none. Only boxes that the border of the event passes matter, and those get most of the points
(`reluscope.measure.points.strata`). How much of the mass lies in such boxes decides:

- fitted networks change in two directions, and 15,000 boxes leave 0.2 % of the mass on the border;
- with random weights in five dimensions it is 1 to 2 %, and falls as the number of boxes to the power -1/4;
- in 16 dimensions it is 0.7 % for fitted networks, but 5 % for random ones, whose border bends in all of them.

Tried and not better: proved bounds instead of looks (linear bounds leave 5 to 44 % of the mass undecided after half a
second in five dimensions, and more than half in ten), and boxes halved further by a plane through the nearest look
(kinks inside the boxes are as large as the boxes).

Measured on a two-core EPYC, 18 November 2026, about a second each, one run; default, then replicate, to Monte Carlo
/ Sobol points (wanted were 30 / 10 in five dimensions and 10 / 2 in 16: reached by the fitted networks, not by the
others):

    fitted 5-50-50-1 #0         70 / 23       24 / 7.9
    he 5-50-50-1 #0             12 / 2.9      7.4 / 1.7
    he 5-50-50-1 #1             27 / 8.1      14 / 4.2
    torch 5-50-50-1 #0          17 / 11       12 / 7.7
    torch 5-50-50-1 #1          9.0 / 1.5     6.9 / 1.2
    fitted 10-32-32-1 #1        6.8 / 3.3     8.0 / 3.8
    he 10-32-32-1 #1            6.0 / 2.7     8.9 / 4.1
    torch 10-32-32-1 #1         4.4 / 2.0     9.0 / 4.1
    fitted 16-16-16-16-1 #0     15 / 4.9      5.8 / 1.9
    fitted 16-16-16-16-1 #1     53 / 34       95 / 62
    torch 16-16-16-16-1 #0      2.4 / 1.5     4.6 / 2.9
    torch 16-16-16-16-1 #1      3.4 / 0.8     5.5 / 1.3

With `coverage`: how often default intervals at 99 % hold truths of closed form. Measured so far: 25 of 25 on each of
the ten problems, at 0.15 s, six of them by boxes.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from lines import CpuClock, cases, monte_carlo_cost, random_network, sobol_points
from scipy.special import ndtr, ndtri
from threadpoolctl import threadpool_limits

import reluscope as rs
from reluscope.measure.lines import integration, pilot, plan
from reluscope.measure.points import strata

TAIL, QUANTILE = 0.01, 2.5758


def run(name: str, net: rs.Network, seconds: float, repeats: int) -> None:
    """One row: ratios to Monte Carlo and Sobol, default then replicate."""
    law = rs.Gaussian(np.zeros(net.n_inputs), 1.0)
    (component,) = rs.inputs.standard(law, net)
    seen = component.network
    rng = np.random.default_rng(1)
    y = np.concatenate([seen(rng.standard_normal((100_000, seen.n_inputs)))[:, 0] for _ in range(8)])
    c = float(np.quantile(y, 1.0 - TAIL))
    half: dict[str, list[float]] = {"finite-sample": [], "replicate": []}
    used, how = [], ""
    for interval, found in half.items():
        rs.probability(net, law, f"y[0] > {c!r}", guarantee="confidence", interval=interval, budget=0.2, rng=0)
        for k in range(repeats):
            start = time.process_time()
            answer = rs.probability(
                net, law, f"y[0] > {c!r}", guarantee="confidence", interval=interval, budget=seconds, rng=k
            )
            used.append(time.process_time() - start)
            found.append(0.5 * (answer.upper - answer.lower))
            how = how or answer.method
    spent = float(np.mean(used))
    limits = np.array([c])
    plain = QUANTILE * np.sqrt(TAIL * (1 - TAIL) * monte_carlo_cost(seen, limits, rng) / spent)
    runs = [sobol_points(seen, limits, spent, np.random.default_rng(100 + k)) for k in range(max(4, repeats))]
    took = float(np.mean([r[2] for r in runs]))
    sobol = QUANTILE * float(np.std([r[0][0] for r in runs], ddof=1)) * np.sqrt(took / spent)
    ours = {k: float(np.exp(np.mean(np.log(v)))) for k, v in half.items()}
    cells = "  ".join(f"{plain / h:6.1f} / {sobol / h:6.2f}" for h in ours.values())
    print(f"{name:28s} {spent:6.2f}  {ours['finite-sample']:.2e}  {cells}   {how}", flush=True)


def problems():
    """Events of known probability: names, networks, laws, events, truths."""

    def corner(r, t, mean=0.0):
        """Whether one of r orthogonal directions is beyond t; elsewhere the output is on the limit."""
        turn = np.linalg.qr(np.random.default_rng(r).normal(size=(r, r)))[0]
        net = rs.Network([(turn, np.full(r, -t)), (np.ones((1, r)), None)])
        return net, 1.0 - np.prod(ndtr(t - turn @ np.full(r, mean)))

    def at(r, p):
        return float(ndtri((1.0 - p) ** (1.0 / r)))

    for r, p in ((3, 0.5), (5, 0.01), (5, 0.004), (10, 0.05), (16, 0.01)):
        net, truth = corner(r, at(r, p))
        yield f"corner, {r} inputs, p = {p}", net, rs.Gaussian(np.zeros(r), 1.0), "y[0] > 0", truth
    net, truth = corner(5, at(5, 0.01))
    yield "its complement", net, rs.Gaussian(np.zeros(5), 1.0), "y[0] <= 0", 1.0 - truth
    mixed = rs.Mixture([0.25, 0.75], [rs.Gaussian(np.zeros(5), 1.0), rs.Gaussian(np.full(5, 0.3), 1.0)])
    yield "corner, mixture", net, mixed, "y[0] > 0", 0.25 * truth + 0.75 * corner(5, at(5, 0.01), 0.3)[1]
    plain = rs.Network([(np.eye(4), np.full(4, -0.99)), (np.ones((1, 4)), None)])
    yield "corner, uniform law", plain, rs.Uniform(np.zeros(4), np.ones(4)), "y[0] > 0", 1.0 - 0.99**4
    net = random_network((5, 20, 20, 1), 3)
    yield "never (p = 0)", net, rs.Gaussian(np.zeros(5), 1.0), "y[0] > 1e6", 0.0
    yield "always (p = 1)", net, rs.Gaussian(np.zeros(5), 1.0), "y[0] < 1e6", 1.0


def coverage(seconds: float, repeats: int) -> None:
    """How often the default interval holds the truth."""
    print(f"{'problem':28s} {'hold':>9s}  {'half':8s}  error / half (root mean square)")
    with threadpool_limits(1):
        for name, net, law, event, truth in problems():
            held, half, error, how = 0, [], [], ""
            for k in range(repeats):
                answer = rs.probability(net, law, event, guarantee="confidence", budget=seconds, rng=k)
                held += answer.lower <= truth <= answer.upper
                half.append(0.5 * (answer.upper - answer.lower))
                error.append((answer.value - truth) / max(half[-1], 1e-300))
                how = answer.method
            spread = float(np.sqrt(np.mean(np.square(error))))
            print(f"{name:28s} {held:4d}/{repeats:4d}  {np.median(half):.2e}  {spread:5.2f}   {how}", flush=True)


def main(seconds: float, repeats: int, names: list[str]) -> None:
    """All networks, or those whose names hold one of the words."""
    print(f"{'network':28s} {'CPU s':>6s}  {'half':8s}  {'default':>15s}  {'replicate':>15s}   (Monte Carlo / Sobol)")
    with threadpool_limits(1):
        for name, net in cases():
            if not names or any(n in name for n in names):
                run(name, net, seconds, repeats)


if __name__ == "__main__":
    checked = sys.argv[1:2] == ["coverage"]
    given = sys.argv[2:] if checked else sys.argv[1:]
    length = float(given[0]) if given else 0.25 if checked else 1.0
    times = int(given[1]) if len(given) > 1 else 200 if checked else 4
    for module in (integration, pilot, plan, strata):
        module.time = CpuClock
    if checked:
        coverage(length, times)
    else:
        main(length, times, given[2:])
