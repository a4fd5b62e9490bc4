"""How likely Gaussian noise on the input changes a network's decision: `confidence`, and `sound` where inputs are few.

Run: python benchmarks/classchange.py [seconds] [name ...]     (reads the folder named by RELUSCOPE_DATA)

The event is "argmax != argmax at mean". The mean is the point that a VNN-LIB property is about (the centre of its box;
for mnist_fc the image, since boxes are cut at 0 and 1), the noise is independent, its standard deviation `scale` times
half the side of the box (10 for mnist_fc, 1/3 for robot, vdp and gcas, else 1). `confidence` has a budget of 5 s and
level 0.95; `sound` has `seconds` on two idle cores (CPU seconds over two, see bounds.py). Beside them 200,000 plain
draws, seed 1, with the 95 % binomial interval. Seconds are CPU seconds over all threads. Exit code 1 unless the sound
bracket meets the interval of the draws at level 1 - 1e-9.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time

import numpy as np
from bounds import CpuBudget, folder

import reluscope as rs
from reluscope.events import as_event
from reluscope.intervals import binomial
from reluscope.measure.sound import bound_event

EVENT = "argmax != argmax at mean"
DRAWS = 200_000
MOST_INPUTS = 14
"""Inputs up to which `sound` is tried."""

CASES = (
    ("mnist_fc", "mnist-net_256x2", ("prop_0_0.03", "prop_1_0.03", "prop_2_0.05"), 10.0),
    ("rl_benchmarks", "cartpole", ("cartpole_case_safe_99", "cartpole_case_unsafe_29", "cartpole_case_unsafe_44"), 1.0),
    ("rl_benchmarks", "lunarlander", ("lunarlander_case_safe_0", "lunarlander_case_safe_12",
                                      "lunarlander_case_unsafe_3"), 1.0),
    ("reach_prob_density", "robot", ("robot_0",), 1 / 3),
    ("reach_prob_density", "vdp", ("vdp_0",), 1 / 3),
    ("reach_prob_density", "gcas", ("gcas_0", "gcas_1"), 1 / 3),
    ("safenlp_2024", "medical/perturbations_0", ("medical/hyperrectangle_1835", "medical/hyperrectangle_2330"), 1.0),
    ("safenlp_2024", "ruarobot/perturbations_0", ("ruarobot/hyperrectangle_1921", "ruarobot/hyperrectangle_1889"), 1.0),
)  # fmt: skip


def law_of(family, spec, scale):
    """The Gaussian around the property's point."""
    lower, upper = rs.vnnlib(folder() / family / "vnnlib" / f"{spec}.vnnlib").boxes[0]
    if family != "mnist_fc":
        return rs.Gaussian(0.5 * (lower + upper), (0.5 * scale * (upper - lower)) ** 2)
    radius = float(spec.rsplit("_", 1)[1])
    image = np.where(lower > 0, lower + radius, upper - radius)
    return rs.Gaussian(image, np.full(len(image), (scale * radius) ** 2))


def draws(net, law):
    wrong, best = 0, int(net(law.mean[None])[0].argmax())
    rng, chunk = np.random.default_rng(1), 20_000
    for _ in range(DRAWS // chunk):
        x = law.mean + law.sd * rng.standard_normal((chunk, law.n))
        wrong += int((net(x).argmax(axis=1) != best).sum())
    return wrong


def one(family, name, spec, scale, seconds):
    net, law = rs.load(folder() / family / "onnx" / f"{name}.onnx"), law_of(family, spec, scale)
    wrong = draws(net, law)
    low, high = binomial(wrong, DRAWS, 0.95)
    start = time.process_time()
    guess = rs.probability(net, law, EVENT, guarantee="confidence", budget="5s", rng=0)
    spent = time.process_time() - start
    text, good = "", True
    if net.n_inputs <= MOST_INPUTS:
        start = time.process_time()
        event = as_event(EVENT, net, law)
        sound = bound_event(net, law, event, tolerance=0.0, budget=CpuBudget(seconds=seconds))
        text = f"[{sound.lower:.4g}, {sound.upper:.4g}] ({time.process_time() - start:.0f} s)"
        wide = binomial(wrong, DRAWS, 1 - 1e-9)
        good = sound.lower <= wide[1] and wide[0] <= sound.upper
    kind = guess.guarantee if guess.guarantee == "exact" else guess.note.split()[0]
    print(
        f"| {name.split('/')[0]} | {spec.split('/')[-1]} | {net.n_inputs} | {guess.value:.4g} | "
        f"[{guess.lower:.4g}, {guess.upper:.4g}], {kind} ({spent:.1f} s) | {text} | "
        f"{wrong / DRAWS:.4g} [{low:.3g}, {high:.3g}] |{'' if good else ' DISAGREE'}",
        flush=True,
    )
    return good


def main(seconds=6.0, *names):
    print("| network | point | inputs | value | confidence | sound | 200,000 draws |\n|---|---|---|---|---|---|---|")
    good = [
        one(family, name, spec, scale, float(seconds))
        for family, name, specs, scale in CASES
        if not names or any(word in name for word in names)
        for spec in specs
    ]
    return all(good)


if __name__ == "__main__":
    sys.exit(0 if main(*sys.argv[1:]) else 1)
