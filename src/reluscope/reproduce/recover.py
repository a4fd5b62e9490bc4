"""Networks from queries: exact recovery beside the published figure, and the thesis' convex fit beside baselines.

Exact: random networks (He weights, biases N(0, 0.5^2), box [-2, 2]^n), values only. Published (Carlini, Jagielski and
Mironov, 2020) for a 10-15-15-1 network: 131k queries, minutes of work, largest error 7e-12.

Samples (Hamidi, chapter 3, which prints no numbers): relative root mean square error of each model of f from 50 to 800
samples with gradients, in 2 and 5 dimensions; and what the two conjectures of its section 3.3.5 say against what is
counted.
"""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from reluscope._check import FloatArray, generator
from reluscope._text import table
from reluscope.network import Network
from reluscope.progress import meter
from reluscope.recovery.nearest_error import nearest_error
from reluscope.recovery.oracle import Oracle
from reluscope.recovery.recover import recover
from reluscope.recovery.samples import l1_path
from reluscope.reproduce import Reproduction

SHAPES = ((20, 10, 1), (5, 20, 1), (10, 15, 15, 1), (10, 20, 20, 1), (40, 20, 10, 10, 1))
GRID = ((2, 5, 1), (2, 20, 1), (2, 40, 1), (2, 5, 5, 1), (2, 20, 20, 1), (2, 5, 5, 5, 5, 1), (3, 10, 10, 1), (4, 10, 1))
"""Widths, depths and dimensions in which the conjectures of section 3.3.5 are counted."""
_BOX = (-2.0, 2.0)


def run(folder: Path, *, quick: bool, rng: Any, progress: Any) -> Reproduction:
    """Both tables; `quick` takes the small networks and sample counts."""
    rng = generator(rng)
    shapes, seeds = (SHAPES[:2], 1) if quick else (SHAPES, 3)
    counts = (50, 100) if quick else (50, 100, 200, 400, 800)
    rows: list[dict[str, Any]] = []
    with meter(progress, "recover") as report:
        for widths, seed in itertools.product(shapes, range(seeds)):
            rows.append(_exact(widths, seed))
            report(len(rows), f"{len(rows)} networks")
        fits = [
            _pieces(w, n, k) for k, (w, n) in enumerate(itertools.product(((2, 10, 10, 1), (5, 10, 10, 1)), counts))
        ]
        counted = [conjectures((2, 10, 10, 1), n) for n in counts[:3]]
        if not quick:
            counted += [conjectures(widths, 100) for widths in GRID]
    text = table(fits)
    (folder / "pieces.txt").write_text(text + "\n\n" + table(counted) + "\n")
    solved = sum(row["largest error"] <= 1e-10 for row in rows)
    remarks = [
        f"{solved} of {len(rows)} networks recovered with a largest error of at most 1e-10 at 40,000 points",
        "",
        "pieces: root mean square error over the spread of f (sampled; 'right' and 'L2 exact' are exact areas and "
        "integrals of the nearest-piece model in the plane)",
        text,
        "",
        "conjectures of section 3.3.5: non-zero weights of the L1 fit (loss within 5 % of the unpenalised one) against "
        "first-layer width, and non-zero interactions against regions",
        table(counted),
    ]
    compared = [
        "published for 10-15-15-1, by Carlini, Jagielski and Mironov (the thesis prints no number): 131,000 queries, "
        "minutes, largest error 7e-12"
    ]
    return Reproduction("recover", rows, remarks, ["pieces.txt"], compared=compared)


def _network(widths: tuple[int, ...], seed: int) -> Network:
    rng = np.random.default_rng(seed)
    return Network(
        [
            (rng.normal(size=(out, inn)) * np.sqrt(2 / inn), 0.5 * rng.normal(size=out))
            for inn, out in itertools.pairwise(widths)
        ]
    )


def _exact(widths: tuple[int, ...], seed: int) -> dict[str, Any]:
    net = _network(widths, seed)
    found = recover(Oracle(net, limit=500_000), _BOX, rng=seed, check=0)
    held = found.compare(net, certify=False)
    return {
        "network": "-".join(map(str, widths)),
        "seed": seed,
        "hidden found": "-".join(map(str, found.layers)),
        "queries": found.total_queries,
        "restarts": found.restarts,
        "seconds": round(found.seconds, 2),
        "largest error": float(f"{held.sampled:.1e}"),
        "parameter error": None if held.parameter_error is None else float(f"{held.parameter_error:.1e}"),
        "certified": None if held.certified is None else float(f"{held.certified:.1e}"),
    }


def _pieces(widths: tuple[int, ...], samples: int, seed: int) -> dict[str, Any]:
    """One row: the relative error of each model."""
    net = _network(widths, 7)
    oracle = Oracle(net, gradient=True)
    apart = recover(oracle, _BOX, method="samples", samples=samples, overlap=0.3, rng=seed, check=0).result
    found = recover(oracle, _BOX, method="samples", samples=samples, rng=seed, check=0).result
    X = np.random.default_rng(1).uniform(*_BOX, (20_000, widths[0]))
    y = net(X)[:, 0]

    def error(values: FloatArray) -> float:
        return float(f"{np.sqrt(((values - y) ** 2).mean()) / y.std():.3g}")

    row = {
        "inputs": widths[0],
        "samples": samples,
        "small balls": error(apart(X, "balls")),
        "balls": error(found(X, "balls")),
        "interactions": error(found(X, "interactions")),
        "inverse distance": error(found(X, "inverse distance")),
        "nearest": error(found(X, "nearest")),
        "distilled": _distilled(net, samples, seed, X, y),
        "right": None,
        "L2 exact": None,
        "condition": float(f"{found.hessian.condition:.2g}"),
        "interaction terms": len(found.pairs),
    }
    if widths[0] == 2:
        exact = nearest_error(net, found)
        row |= {"right": round(exact.right, 3), "L2 exact": float(f"{exact.l2 / y.std():.3g}")}
    else:
        same = np.abs(found.slopes[found.nearest(X)] / found.half - net.jacobian(X)[:, 0]).max(axis=1) < 1e-6
        row["right"] = round(float(same.mean()), 3)
    return row


def _distilled(net: Network, samples: int, seed: int, X: FloatArray, y: FloatArray) -> float | None:
    """A network of the same shape trained on the sampled values (None without scikit-learn)."""
    try:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.neural_network import MLPRegressor
    except ImportError:
        return None
    T = np.random.default_rng(seed).uniform(*_BOX, (samples, net.n_inputs))
    model = MLPRegressor(
        hidden_layer_sizes=[layer.width for layer in net.hidden], solver="lbfgs", max_iter=2000, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(T, net(T)[:, 0])
    return float(f"{np.sqrt(((model.predict(X) - y) ** 2).mean()) / y.std():.3g}")


def conjectures(widths: tuple[int, ...], samples: int, seed: int = 7) -> dict[str, Any]:
    """How many weights an L1 penalty leaves, against what the conjectures say they count."""
    from reluscope.cells.regions import regions

    net = _network(widths, seed)
    found = recover(Oracle(net, gradient=True), _BOX, method="samples", samples=samples, rng=0, check=0).result
    weights = _sparse(found.gram, found.linear)
    A, f = found.terms(found.centre + found.half * found.points[:4096]), found.point_values[:4096]
    size = np.maximum(np.sqrt((A**2).mean(axis=0)), 1e-12)
    both = _sparse((A / size).T @ (A / size) / len(f), (A / size).T @ f / len(f))
    return {
        "network": "-".join(map(str, widths)),
        "samples": samples,
        "non-zero weights": int((np.abs(weights) > 1e-9).sum()),
        "first-layer units": net.layers[0].width,
        "overlapping pairs": len(found.pairs),
        "non-zero interactions": int((np.abs(both[len(found) :]) > 1e-9).sum()),
        "regions": len(regions(net, _BOX)),
    }


def _sparse(G: FloatArray, b: FloatArray) -> FloatArray:
    """The sparsest weights on the L1 path whose loss is within 5 % of the unpenalised one."""
    path = l1_path(G, b, float(np.abs(b).max()) * np.geomspace(0.5, 1e-4, 9), rounds=100)
    loss = np.einsum("ki,ij,kj->k", path, G, path) - 2 * path @ b
    best = np.linalg.lstsq(G, b, rcond=1e-10)[0]
    least = float(best @ G @ best - 2 * b @ best)
    near = np.flatnonzero(loss <= least + 0.05 * abs(least))
    return np.asarray(path[near[0] if len(near) else -1])
