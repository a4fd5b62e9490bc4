"""ACAS Xu, properties 1 to 4: every guarantee beside plain Monte Carlo, and ProbStar's cases.

Run: python benchmarks/acasxu.py table [seconds] [net ...]      both laws, a dozen networks, 10^7 draws each
     python benchmarks/acasxu.py probstar [seconds]             the cases that ProbStar reports, Gaussian in the box

Reads the folder named by RELUSCOPE_DATA. Laws on the property's box: `uniform`, and `gauss`, a Gaussian with mean at
the centre and three standard deviations to each face, conditioned on the box. `seconds` is the budget of `sound` on two
idle cores (CPU seconds over two, see bounds.py); columns of seconds are CPU seconds over all threads.

Draws are evaluated in single precision by numpy, and again in double precision where a row of the property is closer
than 2e-5 to its limit. `table` fails (exit code 1) unless in every case the interval of the draws at level 1 - 1e-9
holds the exact value and meets the sound bracket and the confidence interval (level 0.9999), and the sound bracket
holds the exact value and meets the confidence interval. Last it counts verdicts under the uniform law: `unsat`
cases whose sound upper end is exactly 0 within 120 s, `sat` cases with a positive lower end.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import csv
import sys
import time
from collections import Counter
from functools import cache

import numpy as np
from bounds import CpuBudget, acas_case, folder
from scipy.special import ndtr, ndtri

import reluscope as rs
from reluscope.intervals import binomial
from reluscope.measure.sound import bound_event

NETS = ("1_1", "1_6", "1_7", "1_9", "2_2", "2_9", "3_1", "3_3", "4_3", "4_9", "5_3", "5_8")
DRAWS = 10_000_000
AT_ONCE = 1 << 11
NEAR = 2e-5
BOX = (2 * ndtr(3.0) - 1) ** 5
"""Mass of the box under the Gaussian before it is conditioned."""
PROOF_SECONDS = 120.0


def gauss_in_box(event):
    lower, upper = event.boxes[0]
    return rs.Truncated(rs.Gaussian(0.5 * (lower + upper), ((upper - lower) / 6) ** 2), lower, upper)


def draws(event, law, n, seed):
    """Chunks of inputs; both laws by inversion."""
    rng = np.random.default_rng(seed)
    lower, upper = event.boxes[0]
    edge = ndtr(3.0)
    while n:
        u = rng.random((min(n, AT_ONCE), len(lower)))
        n -= len(u)
        if law == "gauss":
            u = 0.5 + ndtri((1 - edge) + (2 * edge - 1) * u) / 6
        yield lower + (upper - lower) * u


def forms_of(net, event):
    """Weights in single precision of the rows `G y - g` of the property's one case; biases ride on a unit that is 1."""
    (case,) = event.cases
    assert not np.any(case.A)
    layers = [(layer.dense(), layer.bias) for layer in net.layers]
    layers[-1] = (case.G @ layers[-1][0], case.G @ layers[-1][1] - case.g)
    out = []
    for i, (weight, bias) in enumerate(layers):
        full = np.concatenate([weight, bias[:, None]], axis=1)
        if i + 1 < len(layers):
            full = np.concatenate([full, np.eye(1, full.shape[1], full.shape[1] - 1)])
        out.append(np.ascontiguousarray(full, np.float32))
    return out


@cache
def monte_carlo(name, prop, law, n=DRAWS, seed=0):
    """Hits among n draws for the property and for others on the same box, CPU seconds for all of them."""
    start = time.process_time()
    net, _, event = acas_case(name, prop)
    cases = {p: acas_case(name, p)[2] for p in (1, 2, 3, 4)}
    cases = {p: e for p, e in cases.items() if np.array_equal(e.boxes, event.boxes)}
    weights = {p: forms_of(net, e) for p, e in cases.items()}
    hits = dict.fromkeys(cases, 0)
    body = weights[prop][:-1]
    sizes = [len(w[-1]) for w in weights.values()]
    last = np.concatenate([w[-1] for w in weights.values()])
    ends = np.cumsum([0, *sizes])
    for i, x in enumerate(draws(event, law, n, seed)):
        z = np.ones((x.shape[1] + 1, len(x)), np.float32)
        z[:-1] = x.T
        for weight in body:
            z = weight @ z
            np.maximum(z, 0, out=z)
        z = last @ z
        for k, (p, e) in enumerate(cases.items()):
            worst = z[ends[k] : ends[k + 1]].max(axis=0)
            near = np.flatnonzero(np.abs(worst) < NEAR) if i else np.arange(len(x))
            if len(near):
                true = (net(x[near]) @ e.cases[0].G.T - e.cases[0].g).max(axis=1)
                assert i or np.abs(true - worst).max() < NEAR / 4
                worst[near] = true
            hits[p] += int((worst <= 0).sum())
    return hits, time.process_time() - start


def timed(call):
    start = time.process_time()
    answer = call()
    return answer, time.process_time() - start


def meet(a, b):
    return a[0] <= b[1] and b[0] <= a[1]


def bracket(answer, digits=4):
    return f"[{answer.lower:.{digits}g}, {answer.upper:.{digits}g}]"


def verdicts():
    """The known verdict of (network, property)."""
    with (folder() / "expected_verdicts.csv").open(newline="") as file:
        return {
            (row["onnx"].split("run2a_")[1].split("_batch")[0], row["vnnlib"].split("prop_")[1].split(".")[0]): row[
                "verdict"
            ]
            for row in csv.DictReader(file)
            if row["benchmark"] == "acasxu"
        }


def one(name, prop, law_name, verdict, seconds, tally):
    net, uniform, event = acas_case(name, prop)
    law = uniform if law_name == "uniform" else gauss_in_box(event)
    first = 1 if prop == 2 else prop  # properties 1 and 2 have the same box
    counts, drawn = monte_carlo(name, first, law_name)
    hits = counts[prop]
    low, high = binomial(hits, DRAWS, 1 - 1e-9)
    budget = CpuBudget(seconds=PROOF_SECONDS if verdict == "unsat" else seconds)
    sound, took = timed(lambda: bound_event(net, law, event, tolerance=0.0, budget=budget))
    if law_name == "uniform":
        tally[verdict, sound.upper == 0.0 if verdict == "unsat" else sound.lower > 0.0] += 1
    guess, guessed = timed(
        lambda: rs.probability(net, law, event, guarantee="confidence", budget="3s", level=0.9999, rng=0)
    )
    checks = {
        "sound/draws": meet((sound.lower, sound.upper), (low, high)),
        "confidence/draws": meet((guess.lower, guess.upper), (low, high)),
        "sound/confidence": meet((sound.lower, sound.upper), (guess.lower, guess.upper)),
    }
    text = ""
    if law_name == "uniform":
        exact, spent = timed(lambda: rs.probability(net, law, event, guarantee="exact"))
        checks["exact/draws"] = low <= exact.upper and exact.lower <= high
        checks["exact/sound"] = sound.lower <= exact.upper and exact.lower <= sound.upper
        checks["exact"] = exact.guarantee == "exact"
        text = f"{exact.value:.6g} ({spent:.1f} s)"
    bad = [k for k, ok in checks.items() if not ok]
    print(
        f"| N_{name} P{prop}, {verdict} | {law_name} | {text} | {bracket(sound)} ({took:.1f} s) | "
        f"{bracket(guess)} ({guessed:.1f} s) | {hits / DRAWS:.6g} ({drawn:.0f} s) | {bad or 'yes'} |",
        flush=True,
    )
    return not bad


def table(seconds=5.0, *nets):
    bound_event(*acas_case("1_1", 3), budget="200 regions")
    print("| case | law | exact | sound | confidence | 10^7 draws | agree |\n|---|---|---|---|---|---|---|")
    known, tally = verdicts(), Counter()
    good = [
        one(name, prop, law, known[name, str(prop)], float(seconds), tally)
        for name in nets or NETS
        for prop in (1, 2, 3, 4)
        for law in ("uniform", "gauss")
    ]
    print(f"{sum(good)} of {len(good)} cases agree; (verdict, decided by sound): {dict(tally)}")
    return all(good)


PROBSTAR = (("2_2", 2, 0.0350512, 6046), ("3_1", 2, 0.0444883, 3926), ("2_9", 2, 0.00101382, 12248),
            ("1_6", 2, 8.9e-6, 4091), ("1_7", 3, 0.9769, 10))  # fmt: skip
"""Network, property, the value ProbStar reports (not renormalised after the cut) and its seconds."""


def probstar_case(name, prop, theirs, its, seconds):
    net, _, event = acas_case(name, prop)
    law = gauss_in_box(event)

    def ask(part, budget, seed):
        how = {"tolerance": part * theirs, "interval": "replicate", "budget": budget, "rng": seed}
        return rs.probability(net, law, event, guarantee="confidence", **how)

    guess, guessed = timed(lambda: ask(0.004, "60s", 0))
    truth = ask(0.0015, "200s", 99)
    budget = CpuBudget(seconds=seconds)
    sound, took = timed(lambda: bound_event(net, law, event, tolerance=0.0, budget=budget))
    off = guess.value / truth.value - 1
    width = (sound.upper - sound.lower) / truth.value
    print(
        f"| N_{name} P{prop} | {truth.value:.5g} ± {100 * truth.width / 2 / truth.value:.2f} % | {guess.value:.5g} "
        f"± {100 * guess.width / 2 / guess.value:.2f} % | {100 * off:+.2f} % | {guessed:.1f} | {bracket(sound)} "
        f"| {100 * width:.3g} % | {took:.0f} | {theirs / BOX:.5g} | {its:,} |",
        flush=True,
    )
    return meet((sound.lower, sound.upper), (truth.lower, truth.upper))


def probstar(seconds=15.0):
    """`confidence` at a half-width of 0.4 % of the value (60 s), as truth a run of its own (200 s), and `sound`."""
    bound_event(*acas_case("1_1", 3), budget="200 regions")
    print("| case | truth | confidence | off by | CPU s | sound | width | CPU s | ProbStar, renormalised | its s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    good = [probstar_case(*case, float(seconds)) for case in PROBSTAR]
    return all(good)


if __name__ == "__main__":
    word, *rest = sys.argv[1:] or ["table"]
    sys.exit(0 if {"table": table, "probstar": probstar}[word](*rest) else 1)
