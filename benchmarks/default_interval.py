"""The default interval of `rs.probability(..., guarantee="confidence")` beside Monte Carlo and Sobol points.

Run: python benchmarks/default_interval.py [seconds] [repeats] [name ...]   (one thread; a second each by default)

For each network of `lines.py`, the event P(y > c) = 0.01 at the level 0.99: half the width of the default interval
(finite-sample: it holds at any number of draws) and of `interval="replicate"` (asymptotic), against 2.576 standard
errors of plain Monte Carlo and of scrambled Sobol points that are given the same CPU time. Sobol points have no
interval of their own; their error is the standard deviation over repeated runs. Ratios above 1 say how many times
narrower ours is; those to Sobol points rest on few runs, and are good to a factor of two.

What a finite-sample interval can reach: contributions in [0, b] that are n in number leave at least about
`b log(2 / 0.01) / n` open, whatever their variance: no bound can exclude what fewer than one draw in n / 5 meets.
Points aimed at what is rare have b of 2 to 8 and n of 4 million a second, so 1e-5 is left open: a seventeenth of
Monte Carlo's half-width. Lines have b = 1 and n of some ten thousand a second. What is between that floor and the
half-widths below is the variance of the weights. Sobol points lower it, but then only whole scrambles are independent,
of which there are few: with b = 1 and 16 of them nothing is left to say.

Measured on a busy two-core Xeon, 2026-11, a second each, 3 repeats; default, then replicate, against Monte Carlo /
Sobol points:

    fitted 5-50-50-1 #0         3.1 / 1.1     18 / 6.5
    he 5-50-50-1 #0             3.2 / 0.6     6.7 / 1.3
    torch 5-50-50-1 #0          3.5 / 2.4     15 / 10
    fitted 16-16-16-16-1 #0     2.1 / 0.8     3.5 / 1.3
"""

from __future__ import annotations

import sys
import time

import numpy as np
from lines import CpuClock, cases, monte_carlo_cost, sobol_points
from threadpoolctl import threadpool_limits

import reluscope as rs
from reluscope.measure.lines import integration, pilot, plan

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


def main(seconds: float, repeats: int, names: list[str]) -> None:
    """All networks, or those whose names hold one of the words."""
    for module in (integration, pilot, plan):
        module.time = CpuClock
    print(f"{'network':28s} {'CPU s':>6s}  {'half':8s}  {'default':>15s}  {'replicate':>15s}   (Monte Carlo / Sobol)")
    with threadpool_limits(1):
        for name, net in cases():
            if not names or any(n in name for n in names):
                run(name, net, seconds, repeats)


if __name__ == "__main__":
    main(
        float(sys.argv[1]) if len(sys.argv) > 1 else 1.0,
        int(sys.argv[2]) if len(sys.argv) > 2 else 4,
        sys.argv[3:],
    )
