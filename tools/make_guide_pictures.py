"""Make the pictures of the guides, one for each capability: `python tools/make_guide_pictures.py [NAME ...]`.

Names are those of the functions below; without one, all are made (about two CPU minutes). `tools/make_screens.py`
makes the pictures of pages in a browser (report, playground, batch).
"""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

import reluscope as rs
from reluscope import plot

DOCS = Path(__file__).resolve().parents[1] / "docs"


def complex_and_level_set() -> None:
    """`docs/regions.md`: where the units of each layer switch, and where the output is zero."""
    found = rs.polyhedral_complex(rs.example("moons").network, box=(-2, 3))
    figure, ax = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    plot.plot_complex(found, ax, boundary=found.level_set())
    _save(figure, "complex")


def probability() -> None:
    """`docs/events.md`: an event among the regions, and its probability as the noise grows."""
    moons = rs.example("moons")
    net, law = moons.network, moons.law
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.9), layout="constrained")
    ticks = np.linspace(-2, 3, 500), np.linspace(-2, 2.5, 450)
    grid = np.stack(np.meshgrid(*ticks), axis=-1)
    value = net(grid.reshape(-1, 2)).reshape(450, 500)
    left.contourf(*ticks, value > 5, levels=[0.5, 1.5], colors=["tab:red"], alpha=0.35)
    for edge in rs.polyhedral_complex(net, box=(-3, 4)).level_set(value=5.0).segments():
        left.plot(*edge.T, color="tab:red", linewidth=1.4)
    rows = law.sample(600, rng=0)
    left.plot(*rows.T, ".", color="0.35", markersize=2)
    nearest = rs.witness(net, law, "y[0] > 5")[0]
    left.plot(*nearest.x, "*", color="black", markersize=11, label="most probable input in the event")
    left.set(
        xlim=(-2, 3),
        ylim=(-2, 2.5),
        xlabel="x[0]",
        ylabel="x[1]",
        title=f"y[0] > 5: probability {rs.probability(net, law, 'y[0] > 5').value:.4f} (exact)",
    )
    left.legend(loc="lower left", fontsize=8)
    scale = np.linspace(0.25, 2.0, 15)
    exact = [rs.probability(net, law.move(scale=float(s)), "y[0] > 5").value for s in scale]
    right.plot(scale, exact, "o-", color="tab:red", markersize=4)
    right.set(xlabel="spread of the law, times its own", ylabel="probability of y[0] > 5", title="As the spread grows")
    right.set_ylim(bottom=0)
    _save(figure, "events")


def sound_bracket() -> None:
    """`docs/sound.md`: the bracket of one event against the number of boxes."""
    shown = rs.example("controller")
    counts = [300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000]
    found = [
        rs.probability(shown.network, shown.law, "argmin == 0", guarantee="sound", budget=f"{n} regions", jobs=1)
        for n in counts
    ]
    drawn = (shown.network(shown.law.sample(2_000_000, rng=0)).argmin(axis=1) == 0).mean()
    figure, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    ax.fill_between(counts, [a.lower for a in found], [a.upper for a in found], alpha=0.3, label="sound bracket")
    ax.plot(counts, [a.lower for a in found], "o-", color="tab:blue", markersize=3)
    ax.plot(counts, [a.upper for a in found], "o-", color="tab:blue", markersize=3)
    ax.axhline(drawn, color="black", linewidth=1, linestyle="--", label="two million draws")
    ax.set(xscale="log", xlabel="budget: boxes", ylabel='probability of "clear of conflict"')
    ax.legend()
    _save(figure, "sound")


def rare_events() -> None:
    """`docs/rare.md`: a tail down to 1e-11, and 200,000 plain draws."""
    rng = np.random.default_rng(0)
    widths = [5, 50, 50, 1]
    layers = [(rng.normal(size=(m, n)) * np.sqrt(2 / n), 0.1 * rng.normal(size=m)) for n, m in pairwise(widths)]
    net, law = rs.Network(layers), rs.Gaussian(np.zeros(5))
    draws = np.sort(net(law.sample(200_000, rng=1))[:, 0])
    levels = np.linspace(draws[int(0.99 * len(draws))], 1.5 * draws[-1], 12)
    found = [
        rs.probability(net, law, f"y[0] > {c!r}", guarantee="confidence", level=0.95, budget="2s", rng=0)
        for c in levels.tolist()
    ]
    value = np.array([a.value for a in found])
    gaps = [[a.value - a.lower for a in found], [a.upper - a.value for a in found]]
    figure, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    ax.errorbar(
        levels, value, gaps, fmt="o-", color="tab:blue", markersize=4, capsize=3, label="rs.probability, 95 % intervals"
    )
    share = 1 - np.searchsorted(draws, levels, side="right") / len(draws)
    seen = share > 0
    ax.plot(levels[seen], share[seen], "x", color="black", markersize=8, label="200,000 plain draws")
    ax.set(yscale="log", xlabel="c", ylabel="probability of y[0] > c")
    ax.legend()
    _save(figure, "rare")


def outputs() -> None:
    """`docs/linear_models.md`: the most probable linear models, and the distribution of the output."""
    moons = rs.example("moons")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.7), layout="constrained")
    plot.plot_masses(rs.linear_models(moons.network, moons.law), left)
    plot.plot_cdf(rs.outputs(moons.network, moons.law), right)
    _save(figure, "outputs")


def laws() -> None:
    """`docs/laws.md`: a table, and draws of the law that was fitted to it."""
    rng = np.random.default_rng(0)
    income = rng.lognormal(10.0, 0.6, 800)
    table = {"income": income, "debt": np.where(rng.random(800) < 0.25, 0.0, income * rng.uniform(0, 1, 800))}
    law = rs.fit(table)
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.7), sharex=True, sharey=True, layout="constrained")
    for ax, rows, title in zip(axes, (np.column_stack(list(table.values())), law.sample(800, rng=1)),
                               ("the table: 800 rows", "the law fitted to it: 800 draws"), strict=True):  # fmt: skip
        ax.plot(rows[:, 0] / 1e3, rows[:, 1] / 1e3, ".", markersize=3)
        ax.set(xlabel="income (thousands)", title=f"{title}; {np.mean(rows[:, 1] == 0):.0%} without debt")
    axes[0].set_ylabel("debt (thousands)")
    _save(figure, "laws")


def equivalence() -> None:
    """`docs/relational.md`: a network and its 8-bit copy, their difference on every common region."""
    net = rs.example("moons").network
    copy = rs.quantised(net, "int8")
    found = rs.equivalent(net, copy, box=(-2, 3))
    at = np.atleast_2d(found.witness)
    largest = float(np.abs(net(at) - copy(at)).max())
    joined = rs.polyhedral_complex(net - copy, box=(-2, 3))
    figure, ax = plt.subplots(figsize=(6.0, 4.4), layout="constrained")
    ticks = np.linspace(-2, 3, 500)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    gap = (net(grid) - copy(grid)).reshape(500, 500)
    top = np.abs(gap).max()
    shown = ax.pcolormesh(ticks, ticks, gap, cmap="RdBu_r", vmin=-top, vmax=top, shading="nearest", rasterized=True)
    for ends in joined.vertices[joined.edges]:
        ax.plot(*ends.T, color="black", linewidth=0.4)
    ax.plot(*found.witness, "k*", markersize=11, clip_on=False)
    ax.set(
        xlabel="x[0]",
        ylabel="x[1]",
        title=f"largest difference {largest:.3f} at the star",
    )
    figure.colorbar(shown, label="network minus its 8-bit copy")
    _save(figure, "equivalence")


def recovery() -> None:
    """`docs/recover.md`: the linear models of a network from its values alone."""
    net = rs.example("moons").network
    found = rs.recover(rs.Oracle(net), (-2.0, 3.0), method="regions", rng=0)
    ticks = np.linspace(-2, 3, 400)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.2), sharey=True, layout="constrained")
    slope = net.local(grid).C[:, 0]
    colours = np.clip(0.5 + slope / 30, 0, 1)
    left.imshow(
        np.dstack([colours.reshape(400, 400, 2), np.full((400, 400), 0.55)]), origin="lower", extent=(-2, 3, -2, 3)
    )
    left.set(title="the network: one colour for each linear model", xlabel="x[0]", ylabel="x[1]")
    part = found.result.find(grid)
    colours = np.clip(0.5 + found.result.C[part][:, 0] / 30, 0, 1)
    right.imshow(
        np.dstack([colours.reshape(400, 400, 2), np.full((400, 400), 0.55)]), origin="lower", extent=(-2, 3, -2, 3)
    )
    right.set(title=f"what {sum(found.queries.values()):,} queries of its output gave", xlabel="x[0]")
    _save(figure, "recover", dpi=90)


def local_models() -> None:
    """`docs/unwrap.md`: the regions that hold data, and the models they merge to."""
    from sklearn.datasets import make_circles

    X, y = make_circles(2000, noise=0.1, random_state=0)
    net = rs.example("cocircles").network
    found = rs.unwrap(net, X, np.array(net.schema.classes)[y], feature_names=["x[0]", "x[1]"])
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.4, 4.2), layout="constrained")
    plot.plot_models_2d(found, left)
    merged = found.merge(6)
    which = merged.assign(X)
    right.scatter(*X.T, c=which, cmap="tab10", s=5, vmin=0, vmax=9)
    right.set(xlabel="x[0]", ylabel="x[1]", aspect="equal", title=f"{len(found):,} regions merged to 6 models")
    _save(figure, "unwrap")


def speed() -> None:
    """`docs/scale.md`: the two tables of the page, drawn; no number is kept here."""
    text = (DOCS / "scale.md").read_text("utf-8")
    measured = _rows(text, "| work | one core | two | speed-up")
    predicted = _rows(text, "| workers | 100,000 rows of a batch")
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.4, 4.0), layout="constrained")
    names = [re.sub(r", (\d+ networks|one deal of folds|a wide layer)$", "", row[0]) for row in measured]
    left.barh(range(len(names)), [float(row[3]) for row in measured], color="tab:blue")
    left.set_yticks(range(len(names)), names, fontsize=8)
    left.invert_yaxis()
    left.axvline(2, color="black", linewidth=1, linestyle="--")
    left.set(xlim=(0, 2.1), xlabel="speed-up on two cores, measured")
    workers = [_number(row[0]) for row in predicted]
    for column, label in ((1, "rows of a batch"), (3, "certified rows"), (5, "masses")):
        right.loglog(workers, [_number(row[column]) for row in predicted], "o-", markersize=3, label=label)
    right.loglog(workers, workers, color="black", linewidth=1, linestyle="--")
    right.set(xlabel="workers of a cluster", ylabel="speed-up, predicted")
    right.legend()
    _save(figure, "scale")


PICTURES = (
    complex_and_level_set,
    probability,
    sound_bracket,
    rare_events,
    outputs,
    laws,
    equivalence,
    recovery,
    local_models,
    speed,
)


def _rows(text: str, head: str) -> list[list[str]]:
    """Cells of the table that starts with a line, without its two lines of heading."""
    lines = text[text.index(head) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _save(figure: plt.Figure, name: str, dpi: int = 100) -> None:
    path = DOCS / "images" / f"{name}.png"
    figure.savefig(path, dpi=dpi)
    plt.close(figure)
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(256)  # a third of the size, and no difference to the eye
    small.save(path, optimize=True)


def main(names: list[str]) -> None:
    """Make the named pictures, or all."""
    known = {picture.__name__: picture for picture in PICTURES}
    for name in names or known:
        if name not in known:
            raise SystemExit(f"no picture is called {name!r}; there are {', '.join(known)}")
        known[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
