"""Make the pictures of the README and the documentation. Run with `.venv/bin/python tools/make_pictures.py`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import reluscope as rs
from reluscope.plot import plot_regions
from reluscope.plot.invariance import plot_growth
from reluscope.representation.laboratory import random_cloud, random_network
from reluscope.reproduce import boundedness

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"


def main() -> None:
    """Write the pictures of the README and of the pages on layers, topology and invariance to docs/images."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    moons = rs.example("moons")
    regions = rs.regions(moons.network, law=moons.law)
    axes = plot_regions(regions, colour="mass", masses=regions.masses(moons.law).value)
    axes.set(xlim=(-2, 3), ylim=(-2, 2.5))
    _save(axes, "moons-regions.png", dpi=150, bbox_inches="tight")

    net = random_network([2, 6, 6, 6, 6, 1], bias=0.3, rng=0)
    _save(plot_growth(rs.invariance.growth(net, rs.Gaussian([0.0, 0.0], 1.0))), "law-growth.png", dpi=130)

    rng = np.random.default_rng([0, 100, 100, 52])
    net = random_network([100] * 51 + [1], bias=10.0, rng=rng)
    cloud = random_cloud("normal", 1000, 100, scale=100.0, rng=rng)
    _save(np.ravel(rs.layers(net, cloud, jacobians=8, rng=rng).plot())[0], "layers-panels.png", dpi=100)

    shapes()
    segments()

    boundedness.run(IMAGES, quick=False, rng=0, progress=None)


def shapes() -> None:
    """The pictures of `docs/topology.md`: holes of a decision, their persistence, a plane through eight inputs."""
    import matplotlib.pyplot as plt

    rng = np.random.default_rng(8)
    sizes = ((2, 20), (20, 14), (14, 3))
    net = rs.Network([(rng.normal(size=(b, a)) * np.sqrt(2 / a), rng.normal(size=b)) for a, b in sizes])
    seen = net(rng.uniform(-2, 2, (2000, 2)))
    net = net.then(np.diag(1 / seen.std(axis=0)), -np.median(seen, axis=0) / seen.std(axis=0))
    found = rs.topology(net, (-2, 2), of="decision boundary")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4.2), layout="constrained")
    ticks = np.linspace(-2, 2, 500)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1)
    left.imshow(net(grid.reshape(-1, 2)).argmax(axis=1).reshape(500, 500), origin="lower", extent=(-2, 2, -2, 2),
                cmap="Pastel1", vmin=0, vmax=8, interpolation="nearest")  # fmt: skip
    for line in found.part.segments():
        left.plot(*line.T, color="black", linewidth=1.5)
    left.set(xlabel="x[0]", ylabel="x[1]", title=f"Decision boundary, Betti numbers {found.betti}")
    rs.persistence(net, (-2, 2)).plot(right)
    right.set_title("Sublevel sets of y[0]")
    figure.savefig(IMAGES / "topology.png", dpi=110)

    wide = random_network([8, 24, 16, 1], bias=0.5, rng=rng)
    plane = rs.slice(wide, rng.normal(size=(3, 8)))
    _save(plane.plot(), "slice.png", dpi=110, bbox_inches="tight")


def segments() -> None:
    """Hardswish by segments, and what that does to a network along a line."""
    import matplotlib.pyplot as plt

    def exact(h: np.ndarray) -> np.ndarray:
        return h * np.clip(h + 3, 0, 6) / 6

    def chords(count: int) -> rs.Activation:
        t = np.linspace(-3, 3, count + 1)
        return rs.activations.piecewise(
            t, [0.0, *np.diff(exact(t)) / np.diff(t), 1.0], float(np.interp(0, t, exact(t)))
        )

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
    h = np.linspace(-4.5, 4.5, 600)
    left.plot(h, exact(h), color="black", linewidth=1.5, label="Hardswish")
    left.plot(h, chords(6)(h), color="tab:red", linewidth=1.2, label="6 segments")
    left.set(xlabel="h", title="error at most 1/24")
    left.legend()
    rng = np.random.default_rng(3)
    W1, b1, W2 = rng.normal(size=(8, 2)), rng.normal(size=8), rng.normal(size=(1, 8))
    s = np.linspace(-3, 3, 900)
    X = np.outer(s, [0.8, 0.6])
    true = exact(X @ W1.T + b1) @ W2[0]
    for count, colour in ((6, "tab:red"), (12, "tab:blue")):
        net = rs.Network([(W1, b1), (W2, None)], chords(count))
        bound = (6 / count) ** 2 / 24 * np.abs(W2).sum()
        right.plot(s, net(X)[:, 0] - true, color=colour, linewidth=1.2, label=f"{count} segments")
        right.axhspan(-bound, bound, color=colour, alpha=0.08)
        for side in (-bound, bound):
            right.axhline(side, color=colour, linewidth=0.8, linestyle="--")
    right.set(xlabel="position on a line", ylabel="output minus the model's", title="error and bound (dashed)")
    right.legend()
    figure.savefig(IMAGES / "segments.png", dpi=110)


def _save(ax: object, name: str, **options: object) -> None:
    ax.figure.savefig(IMAGES / name, **options)


if __name__ == "__main__":
    main()
