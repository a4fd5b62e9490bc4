"""Calls that would take minutes if nothing stopped them: what budgets and Ctrl-C are tested on.

`CALLS[name](budget)` makes one; the first word of a name is the public name that is called, and every public name that
takes a `budget` must be among them (`prepare` makes what they share). As a program (`long_calls.py NAME`) it says
"ready" when the call begins, and prints how it ended.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import tempfile
import time
from functools import cache

import numpy as np

import reluscope as rs


@cache
def net(*widths):
    rng = np.random.default_rng(sum(widths))
    return rs.Network(
        [(rng.normal(size=(o, i)) * np.sqrt(2 / i), 0.1 * rng.normal(size=o)) for i, o in itertools.pairwise(widths)]
    )


@cache
def law(d):
    return rs.Gaussian(np.zeros(d), np.eye(d))


@cache
def mixture(d, k=3):
    rng = np.random.default_rng(k)
    return rs.GaussianMixture(np.full(k, 1 / k), [rs.Gaussian(rng.normal(size=d), np.eye(d)) for _ in range(k)])


@cache
def kernels(d, n=50):
    return rs.kde(np.random.default_rng(n).normal(size=(n, d)))


@cache
def points(n, d):
    return np.random.default_rng(n).normal(size=(n, d))


@cache
def unwrapped(d):
    f = image() if d == 784 else net(d, 50, 50, 1)
    X = points(2000, d)
    return rs.unwrap(f, X, f(X)[:, 0] if d != 784 else None)


@cache
def listed():
    return rs.regions(net(4, 24, 1), law=law(4), budget="2000 regions")


@cache
def found():
    return rs.recover(net(3, 4, 1), (-1, 1), rng=0)


@cache
def image():
    """As large as a network for images: 784-256-256-10."""
    return net(784, 256, 256, 10)


EVENT = "y[0] > y[1] + 1"


def one_row(budget):
    """A batch has a budget for each row."""
    with tempfile.TemporaryDirectory() as folder:
        net(6, 48, 48, 2).save(f"{folder}/net.npz")
        row = {"network": f"{folder}/net.npz", "law": law(6).to_dict(), "event": EVENT, "guarantee": "sound"}
        return rs.batch([row], f"{folder}/results.sqlite", budget=budget, rng=0)


CALLS = {
    "regions": lambda budget: rs.regions(net(3, 64, 64, 1), (-1, 1), budget=budget),
    "regions by half-spaces": lambda budget: rs.regions(net(8, 48, 1), (-1, 1), budget=budget),
    "regions of an image": lambda budget: rs.regions(image(), (0, 1), budget=budget),
    "stream_regions": lambda budget: sum(len(b) for b in rs.stream_regions(net(4, 64, 1), (-1, 1), budget=budget)),
    "polyhedral_complex": lambda budget: rs.polyhedral_complex(net(3, 40, 40, 1), (-1, 1), budget=budget),
    "Regions.masses": lambda budget: listed().masses(law(4), relative=1e-7, budget=budget, rng=0),
    "probability": lambda budget: rs.probability(image(), law(784), EVENT, budget=budget, rng=0),
    "probability, exact": lambda budget: rs.probability(
        net(3, 64, 64, 2), law(3), EVENT, guarantee="exact", budget=budget
    ),
    "probability, sound": lambda budget: rs.probability(
        net(6, 48, 48, 2), law(6), EVENT, guarantee="sound", budget=budget
    ),
    "probability, mixture": lambda budget: rs.probability(
        image(), mixture(784), EVENT, guarantee="confidence", budget=budget, rng=0
    ),
    "probability, kernels": lambda budget: rs.probability(
        net(5, 50, 50, 2), kernels(5), EVENT, guarantee="confidence", budget=budget, rng=0
    ),
    "linear_models, many kernels": lambda budget: rs.linear_models(
        net(5, 50, 50, 2), kernels(5, 300), method="lines", budget=budget, rng=0
    ),
    "probability, many kernels": lambda budget: rs.probability(
        net(5, 50, 50, 2), kernels(5, 2000), EVENT, guarantee="confidence", budget=budget, rng=0
    ),
    "probability, rare image": lambda budget: rs.probability(
        image(), law(784), "y[0] > y[1] + 30", guarantee="confidence", budget=budget, rng=0
    ),
    "probability, rare with kernels": lambda budget: rs.probability(
        net(5, 50, 50, 2), kernels(5), "y[0] > y[1] + 12", guarantee="confidence", budget=budget, rng=0
    ),
    "probability, rare with kernels of images": lambda budget: rs.probability(
        image(), kernels(784), "y[0] > y[1] + 50", guarantee="confidence", budget=budget, rng=0
    ),
    "probability, sound mixture": lambda budget: rs.probability(
        net(30, 50, 50, 2), mixture(30), EVENT, guarantee="sound", budget=budget
    ),
    "probability, kernels of images": lambda budget: rs.probability(
        image(), kernels(784), EVENT, guarantee="confidence", budget=budget, rng=0
    ),
    "probability, replicate": lambda budget: rs.probability(
        net(16, 64, 64, 2), mixture(16), EVENT, interval="replicate", guarantee="confidence", budget=budget, rng=0
    ),
    "probability, rare": lambda budget: rs.probability(
        net(20, 50, 50, 2), law(20), "y[0] > y[1] + 9", guarantee="confidence", budget=budget, rng=0
    ),
    "probability, units": lambda budget: rs.probability(
        net(5, 50, 50, 2), law(5), "unit[1,0] > 1 and y[0] > 0", budget=budget, rng=0
    ),
    "outputs": lambda budget: rs.outputs(net(3, 64, 64, 1), law(3), budget=budget, rng=0),
    "outputs by lines": lambda budget: rs.outputs(image(), mixture(784), budget=budget, rng=0),
    "error_rates": lambda budget: rs.error_rates(net(3, 64, 64, 1), (law(3), law(3)), budget=budget, rng=0),
    "linear_models": lambda budget: rs.linear_models(net(3, 64, 64, 1), law(3), budget=budget, rng=0),
    "linear_models by lines": lambda budget: rs.linear_models(image(), law(784), budget=budget, rng=0),
    "linear_models, masses": lambda budget: rs.linear_models(net(4, 24, 1), mixture(4), budget=budget, rng=0),
    "probable": lambda budget: rs.probable(net(8, 48, 48, 1), law(8), k=50, budget=budget, rng=0),
    "probable of an image": lambda budget: rs.probable(image(), law(784), k=5, budget=budget, rng=0),
    "spectrum": lambda budget: rs.spectrum(image(), law(784), budget=budget, rng=0),
    "spectrum by enumeration": lambda budget: rs.spectrum(
        net(3, 64, 64, 3), law(3), method="enumeration", budget=budget, rng=0
    ),
    "change": lambda budget: rs.change(net(3, 64, 64, 1), law(3), [0], budget=budget, rng=0),
    "change of an image": lambda budget: rs.change(image(), law(784), [0], decision=True, budget=budget, rng=0),
    "sensitivity": lambda budget: rs.sensitivity(net(3, 64, 64, 2), law(3), EVENT, budget=budget, rng=0),
    "sensitivity of an image": lambda budget: rs.sensitivity(image(), law(784), EVENT, budget=budget, rng=0),
    "sensitivity, mixture": lambda budget: rs.sensitivity(net(12, 50, 2), mixture(12), EVENT, budget=budget, rng=0),
    "sensitivity, kernels": lambda budget: rs.sensitivity(net(5, 50, 50, 2), kernels(5), EVENT, budget=budget, rng=0),
    "compare": lambda budget: rs.compare(image(), law(784), mixture(784), EVENT, budget=budget, rng=0),
    "compare, sound": lambda budget: rs.compare(
        net(6, 30, 30, 1), law(6), mixture(6), "y[0] > 2", guarantee="sound", budget=budget, rng=0
    ),
    "witness": lambda budget: rs.witness(net(12, 50, 50, 2), law(12), "y[0] > y[1] + 9", 3, budget=budget, rng=0),
    "witness of an image": lambda budget: rs.witness(image(), mixture(784), EVENT, budget=budget, rng=0),
    "monotone": lambda budget: rs.monotone(net(8, 48, 48, 1), law(8), [0, 1], budget=budget, rng=0),
    "monotone, all inputs": lambda budget: rs.monotone(net(8, 48, 48, 1), law(8), budget=budget, rng=0),
    "monotone, step": lambda budget: rs.monotone(image(), law(784), 0, step=0.1, budget=budget, rng=0),
    "robust": lambda budget: rs.robust(image(), law(784), 0.05, budget=budget, rng=0),
    "agreement": lambda budget: rs.agreement(
        net(5, 50, 50, 2), rs.quantised(net(5, 50, 50, 2), "float16"), law(5), budget=budget, rng=0
    ),
    "agreement of images": lambda budget: rs.agreement(
        image(), rs.quantised(image(), "float16"), mixture(784), budget=budget, rng=0
    ),
    "agreement of images in a box": lambda budget: rs.agreement(
        image(), rs.quantised(image(), "float16"), rs.Uniform(np.zeros(784), np.ones(784)), budget=budget, rng=0
    ),
    "equivalent": lambda budget: rs.equivalent(net(4, 40, 40, 1), net(4, 40, 40, 1), (-1, 1), budget=budget),
    "equivalent of images": lambda budget: rs.equivalent(image(), image(), (0, 1), budget=budget),
    "distance": lambda budget: rs.distance(net(4, 40, 40, 1), net(4, 39, 39, 1), (-1, 1), budget=budget),
    "distance, p = 1": lambda budget: rs.distance(net(2, 64, 64, 1), net(2, 63, 63, 1), (-1, 1), 1, budget=budget),
    "reachable": lambda budget: rs.reachable(net(3, 64, 64, 3), (-1, 1), budget=budget),
    "lipschitz": lambda budget: rs.lipschitz(net(3, 64, 64, 3), (-1, 1), budget=budget),
    "lipschitz of an image": lambda budget: rs.lipschitz(image(), (0, 1), budget=budget),
    "sup_norm": lambda budget: rs.sup_norm(net(3, 64, 64, 3), (-1, 1), budget=budget),
    "sup_norm on a ball": lambda budget: rs.sup_norm(net(3, 24, 24, 3), radius=1.0, budget=budget),
    "topology": lambda budget: rs.topology(net(3, 40, 40, 1), (-1, 1), budget=budget),
    "persistence": lambda budget: rs.persistence(net(3, 40, 40, 1), (-1, 1), budget=budget),
    "counterfactuals": lambda budget: rs.counterfactuals(net(12, 50, 50, 2), points(50, 12), budget=budget),
    "counterfactuals of images": lambda budget: rs.counterfactuals(image(), points(3, 784), budget=budget),
    "batch": lambda budget: one_row(budget),
    "recover": lambda budget: rs.recover(net(20, 60, 1), (-3, 3), budget=budget, rng=0),
    "recover two layers": lambda budget: rs.recover(net(10, 16, 16, 1), (-3, 3), budget=budget, rng=0),
    "recover by regions": lambda budget: rs.recover(net(3, 64, 64, 1), (-3, 3), method="regions", budget=budget, rng=0),
    "recover by samples": lambda budget: rs.recover(net(5, 50, 50, 1), (-3, 3), method="samples", budget=budget, rng=0),
    "Recovered.compare": lambda budget: found().compare(net(3, 4, 1), budget=budget),
    "certify": lambda budget: rs.certify(image(), 0.5 + 0.1 * points(200, 784), [0.01, 0.02], budget=budget),
    "certify with splits": lambda budget: rs.certify(net(8, 48, 48, 2), points(3, 8), [0.3], budget=budget),
    "Support.mass": lambda budget: rs.support(net(3, 64, 64, 1), law(3)).mass(budget=budget, rng=0),
    "invariance.growth": lambda budget: rs.invariance.growth(net(3, 64, 64, 1), law(3), budget=budget),
    "representation.rays": lambda budget: rs.representation.rays(net(6, 40, 40, 1), budget=budget, rng=0),
    "representation.rays of an image": lambda budget: rs.representation.rays(image(), budget=budget, rng=0),
    "representation.dimensions": lambda budget: rs.representation.dimensions(net(5, 40, 40, 1), budget=budget),
    "Unwrapped.coverage": lambda budget: unwrapped(4).coverage(budget=budget, rng=0),
    "Unwrapped.coverage of an image": lambda budget: unwrapped(784).coverage(budget=budget, rng=0),
    "Unwrapped.merge": lambda budget: unwrapped(3).merge(budget=budget, rng=0),
    "layers in a box": lambda budget: rs.layers(net(5, 50, 50, 1), points(3000, 5), box=(-1, 1), budget=budget, rng=0),
    "layers": lambda budget: rs.layers(image(), points(3000, 784), budget=budget, rng=0),
    "report": lambda budget: rs.report(net(3, 64, 64, 2), law(3), budget=budget, rng=0),
    "report of an adviser": lambda budget: rs.report(
        net(5, 50, 50, 50, 50, 50, 50, 5), law(5), events="argmin != 0", decision="smallest", budget=budget, rng=0
    ),
    "report of rows": lambda budget: rs.report(
        net(20, 64, 64, 3), X=points(4000, 20), y=np.arange(4000) % 3, events="argmax != 1", budget=budget, rng=0
    ),
    "report of an image": lambda budget: rs.report(image(), mixture(784), events=EVENT, budget=budget, rng=0),
}
UNBUDGETED = {
    "mass": lambda budget: rs.mass(points(400, 40), np.ones(400), law(40), relative=1e-7, rng=0),
    "support": lambda budget: rs.support(net(20, 200, 200, 1), law(20), 0.5, 22),
    "along": lambda budget: rs.along(image(), points(20000, 784), points(20001, 784)[1:]),
    "unwrap": lambda budget: rs.unwrap(image(), points(30000, 784)),
    "l1_path": lambda budget: rs.l1_path(points(4000, 20), points(4000, 20)[:, 0], rng=0),
    "kde": lambda budget: rs.probability(net(5, 50, 50, 2), rs.kde(points(4000, 5)), EVENT, rng=0),
}
"""Long calls that take no budget: for Ctrl-C only."""

PUBLIC = {name: name.split(",")[0].split(" ")[0] for name in CALLS}
"""Which public name each call is of."""


def prepare():
    """Make the networks, data and laws, so that no call pays for them."""
    image()
    listed()
    found()
    for d in (3, 4, 784):
        unwrapped(d)
    for d, n in ((5, 50), (5, 2000), (784, 50)):
        kernels(d, n).sample(2, 0)


if __name__ == "__main__":
    name = sys.argv[1]
    call = (CALLS | UNBUDGETED)[name]
    if len(sys.argv) > 2 and name in CALLS:  # compile first (the others would go on for minutes)
        with contextlib.suppress(rs.ReluscopeError):
            call(0.5)
    print("ready", flush=True)
    begin = time.monotonic()
    try:
        found = call(None)
    except KeyboardInterrupt:
        print("KeyboardInterrupt", flush=True)
    else:
        print("returned", str(getattr(found, "status", None)), str(getattr(found, "stopped", None)), flush=True)
    print(f"{time.monotonic() - begin:.2f}", flush=True)
