"""Sound upper bounds with many inputs: what `guarantee="sound"` proves in a minute, beside plain draws.

Run: python benchmarks/high_dimension.py [seconds] [name ...]     (reads the folder named by RELUSCOPE_DATA)

Event "argmax != argmax at mean"; law N(m, diag(s^2)) around the centre of a VNN-LIB property's box: s is given
(mnist_fc, cifar) or `scale` times half the side of the box. `prototype` is a one-pass relaxation at one radius with
slopes optimised for the margin (fixed numbers, measured once); `draws` is the share of 200,000 plain draws (20,000 for
images of 3,072 inputs), seed 1. Seconds are CPU seconds over all threads, one BLAS thread. Exit code 1 unless every
bracket meets the draws' interval at level 1 - 1e-9.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time

import numpy as np
from bounds import CORES, CpuBudget, folder

import reluscope as rs
from reluscope.events import as_event
from reluscope.intervals import binomial
from reluscope.measure.sound import bound_event

EVENT = "argmax != argmax at mean"

MNIST, LUNAR, GCAS = "mnist-net_256x2", "lunarlander", "gcas"
CASES = (
    *(("mnist_fc", MNIST, "prop_0_0.03", s, None, p, w) for s, p, w in (
        (0.03, "6e-13", "1e-15"), (0.05, "1.3e-9", "1e-12"), (0.08, "1e-6", "1e-8"), (0.10, "3.5e-3", "1e-4"),
        (0.12, "1", "1e-2"))),
    *(("mnist_fc", MNIST, "prop_1_0.03", s, None, p, w) for s, p, w in ((0.03, "2.9e-4", "1e-7"), (0.05, "1", "1e-2"))),
    ("mnist_fc", "mnist-net_256x4", "prop_0_0.03", 0.05, None, "1.3e-12", "1e-12"),
    ("mnist_fc", "mnist-net_256x6", "prop_0_0.03", 0.05, None, "", "1e-12"),
    *(("rl_benchmarks", LUNAR, f"lunarlander_case_{c}", None, 1.0, p, w) for c, p, w in (
        ("safe_0", "4.9e-6", "1e-12"), ("unsafe_3", "7.3e-5", "1e-11"), ("safe_12", "1", "[.00625, .025]"))),
    ("safenlp_2024", "medical/perturbations_0", "medical/hyperrectangle_2330", None, 1.0, ".065", "1e-4"),
    ("safenlp_2024", "ruarobot/perturbations_0", "ruarobot/hyperrectangle_1921", None, 1.0, ".71", "3e-3"),
    ("safenlp_2024", "ruarobot/perturbations_0", "ruarobot/hyperrectangle_1889", None, 1.0, ".23", "3e-3"),
    *(("reach_prob_density", GCAS, "gcas_0", None, s, p, w) for s, p, w in (
        (0.1, "1", ".5"), (0.03, ".0057", "9.6e-4"), (0.01, "5e-19", "1e-22"))),
    ("rl_benchmarks", "dubinsrejoin", "dubinsrejoin_case_safe_0", None, 0.3, ".0032", "1e-4"),
    *(("oval21", "cifar_base_kw", "cifar_base_kw-img2578-eps0.021176470588235297", s / 255, None, "", w)
      for s, w in ((1, "1e-6"), (2, "1e-6"))),
    ("cifar10_resnet", "resnet_2b", "prop_2_eps_0.008", 1 / 255, None, "", ""),
    ("verivital", "Convnet_maxpool", "maxpool_prop_0_0.004", 0.004, None, "", ""),
)  # fmt: skip


def law_of(family, spec, sigma, scale):
    """The Gaussian around the property's point."""
    lower, upper = rs.vnnlib(folder() / family / "vnnlib" / f"{spec}.vnnlib").boxes[0]
    half = 0.5 * (upper - lower)
    if family == "oval21":  # sigma is in pixels; the inputs are normalised, as the box's own eps tells
        sd = half * sigma / float(spec.rsplit("eps", 1)[1])
        sd = np.full(len(half), np.median(sd))
    else:
        sd = np.full(len(half), sigma) if sigma is not None else scale * half
    return rs.Gaussian(0.5 * (lower + upper), sd**2)


def draws(net, law, count):
    wrong, best = 0, int(net(law.mean[None])[0].argmax())
    rng = np.random.default_rng(1)
    for _ in range(count // 2000):
        x = law.mean + law.sd * rng.standard_normal((2000, law.n))
        wrong += int((net(x).argmax(axis=1) != best).sum())
    return wrong


def one(family, name, spec, sigma, scale, prototype, wanted, seconds):
    net, law = rs.load(folder() / family / "onnx" / f"{name}.onnx"), law_of(family, spec, sigma, scale)
    count = 200_000 if net.n_inputs < 1000 else 20_000
    wrong = draws(net, law, count)
    wide = binomial(wrong, count, 1 - 1e-9)
    start = time.process_time()
    event = as_event(EVENT, net, law)
    found = bound_event(net, law, event, tolerance=0.0, budget=CpuBudget(seconds=seconds / CORES))
    took = time.process_time() - start
    good = found.lower <= wide[1] and wide[0] <= found.upper
    noise = f"{sigma:.3g}" if sigma is not None else f"{scale:g} of the box"
    print(
        f"| {name.split('/')[0]} | {spec.split('/')[-1][:28]} | {net.n_inputs} | {noise} | {prototype} | {wanted} | "
        f"[{found.lower:.2g}, {found.upper:.2g}] | {took:.0f} | {wrong / count:.2g} | {found.method} |"
        f"{'' if good else ' DISAGREE'}",
        flush=True,
    )
    return good


def steps(seconds):
    """At least one of ten steps: twenty inputs, ten cases that see two of them each."""
    rng = np.random.default_rng(1)
    block, out = rng.normal(size=(16, 2)), np.abs(rng.normal(size=16))
    W, v = np.kron(np.eye(10), block), np.kron(np.eye(10), out)
    net, law = rs.Network([(W, None), (v, None)]), rs.Gaussian(np.zeros(20), 1.0)
    small = rs.Network([(block, None), (out[None], None)])
    level = float(np.quantile(small(np.random.default_rng(2).standard_normal((1_000_000, 2))), 0.999))
    p = rs.probability(small, rs.Gaussian(np.zeros(2), 1.0), f"y[0] > {level!r}").value
    event = " or ".join(f"y[{k}] > {level!r}" for k in range(10))
    start = time.process_time()
    found = rs.probability(net, law, event, guarantee="sound", budget=seconds)
    exact = -np.expm1(10 * np.log1p(-p))
    print(
        f"| ten steps | at least one | 20 | 1 | Boole {10 * p:.4g} | 2 % | [{found.lower:.6g}, {found.upper:.6g}] | "
        f"{time.process_time() - start:.0f} | exact {exact:.6g} | {found.method} |",
        flush=True,
    )
    return found.lower <= exact <= found.upper


def main(seconds=60.0, *names):
    print("| network | point | inputs | noise | prototype | wanted | proved | CPU s | draws | by |\n|" + "---|" * 10)
    good = [
        one(*case, float(seconds)) for case in CASES if not names or any(word in case[1] + case[2] for word in names)
    ]
    if not names or "steps" in names:
        good.append(steps(float(seconds)))
    return all(good)


if __name__ == "__main__":
    sys.exit(0 if main(*sys.argv[1:]) else 1)
