"""Enumeration of regions (patterns, affine maps, interior points): CPU time against affinitree and plain LP splitting.

Random He nets; box [-5, 5]^2 for two inputs, [-1, 1]^d otherwise. `--quick` leaves out what takes the peers minutes.
`--compare` needs no peers: it times cells with vertices against cells as half-spaces, to see where the first get slow.
`--planes` needs no peers either: planes through three random points of [0, 1]^3072 in image networks, from the folder
named by RELUSCOPE_DATA. Beside the default stands the plain traversal, in which every unit of a layer looks at every
cell and takes part in every product. `--wide`: one wide layer in [-5, 5]^2, streamed, and two networks of three layers.
"""

import argparse
import contextlib
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from side_by_side import cpu_seconds, random_net

import reluscope as rs
from reluscope.cells import subdivide as traversal
from reluscope.cells.domain import starting_cell
from reluscope.cells.polytope import HPolytopes
from reluscope.cells.subdivide import CutPlan, Stack, subdivide, traverse
from reluscope.cells.vertex import VertexCells
from reluscope.threads import blas_threads

CASES = [  # widths, target ratio to affinitree, seconds the peer may take before it is left out of --quick
    ((2, 16, 16, 1), None, 1),
    ((2, 32, 32, 32, 1), 1000, 10),
    ((2, 64, 64, 64, 1), 2000, 100),
    ((3, 16, 16, 1), 60, 2),
    ((4, 16, 16, 1), 60, 15),
    ((5, 10, 10, 1), 30, 2),
    ((6, 12, 12, 1), 20, 30),
    ((8, 8, 8, 1), 10, 3),
    ((10, 8, 8, 1), 10, 3),
]
COMPARED = [
    (3, 16, 16, 1),
    (4, 16, 16, 1),
    (5, 10, 10, 1),
    (6, 10, 10, 1),
    (7, 8, 7, 1),
    (8, 7, 6, 1),
    (10, 8, 8, 1),
    (20, 10, 5, 1),
]
MOST_INPUTS_WITH_VERTICES = 8
WIDE = (100, 500, 1000, 2000, 4000)
DEEP = ((2, 64, 64, 64, 1), (2, 128, 128, 128, 1))
IMAGE_NETWORKS = ("cifar_base_kw", "cifar_wide_kw", "cifar_deep_kw")


@contextlib.contextmanager
def silent():
    """Standard output closed, also for compiled code that writes to it directly."""
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def affinitree_regions(net, low: float, high: float) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import affinitree as at
    d = net.n_inputs
    arch = at.Architecture(d)
    for layer in net.hidden:
        arch.linear(at.AffFunc.from_mats(np.array(layer.weight), np.array(layer.bias)))
        arch.relu()
    arch.linear(at.AffFunc.from_mats(np.array(net.layers[-1].weight), np.array(net.layers[-1].bias)))
    A, b = np.concatenate([np.eye(d), -np.eye(d)]), np.concatenate([np.full(d, high), np.full(d, -low)])
    with silent():
        tree = at.builder.from_layers(arch, at.AffTree.from_poly(at.Polytope.from_mats(A, b), at.AffFunc.identity(d)))
    return tree.num_terminals()


def lp_splitting(net, low: float, high: float) -> int:
    """What one would write in an afternoon: split every cell by every unit that a linear program finds crossing it."""
    from scipy.optimize import linprog

    d = net.n_inputs
    box = [(low, high)] * d
    cells = [(np.zeros((0, d)), np.zeros(0), net.layers[0].weight, net.layers[0].bias)]
    for i, layer in enumerate(net.hidden):
        found = []
        for A, b, C, c in cells:
            parts = [(A, b, np.zeros(0))]
            for j in range(layer.width):
                new = []
                for P, q, on in parts:
                    rows = P if len(P) else None
                    bounds = q if len(q) else None
                    top = -linprog(-C[j], A_ub=rows, b_ub=bounds, bounds=box, method="highs").fun + c[j]
                    bottom = linprog(C[j], A_ub=rows, b_ub=bounds, bounds=box, method="highs").fun + c[j]
                    if top > 1e-9:
                        new.append(
                            (
                                np.vstack([P, -C[j]]) if bottom < -1e-9 else P,
                                np.append(q, c[j]) if bottom < -1e-9 else q,
                                np.append(on, 1.0),
                            )
                        )
                    if bottom < -1e-9:
                        new.append(
                            (
                                np.vstack([P, C[j]]) if top > 1e-9 else P,
                                np.append(q, -c[j]) if top > 1e-9 else q,
                                np.append(on, 0.0),
                            )
                        )
                parts = new
            following = net.layers[i + 1]
            found += [
                (P, q, following.weight @ (on[:, None] * C), following.weight @ (on * c) + following.bias)
                for P, q, on in parts
            ]
        cells = found
    return len(cells)


def cells_of(kind: Any, widths: tuple[int, ...]) -> tuple[float, Any]:
    """CPU seconds of the subdivision alone, and all its cells."""
    net, d = random_net(widths), widths[0]
    start = kind.box(np.full(d, -1.0), np.full(d, 1.0))
    seconds, leaves = cpu_seconds(lambda: list(subdivide(net, start)), 4)
    return seconds, kind.join([leaf.cells for leaf in leaves])


def inner_points(cells: Any) -> float:
    """CPU seconds per cell for a point inside each."""
    n = min(len(cells), 3000)
    return cpu_seconds(lambda: cells.part(0, n).interior(), 3)[0] / n  # a new part each time: some remember the answer


def compare() -> None:
    """Microseconds per region, and per inner point, of both geometries."""
    print(f"{'':>14} {'':>8} | {'with vertices':^26} | {'as half-spaces':^26}")
    columns = f"{'us/region':>9} {'each':>6} {'us/point':>9}"
    print(f"{'net':>14} {'regions':>8} | {columns} | {columns}")
    for widths in COMPARED:
        seconds, by_rows = cells_of(HPolytopes, widths)
        n = len(by_rows)
        rows = f"{seconds / n * 1e6:>9.2f} {len(by_rows.b) / n:>6.1f} {inner_points(by_rows) * 1e6:>9.2f}"
        vertices = f"{'too many vertices':>26}"
        if widths[0] <= MOST_INPUTS_WITH_VERTICES:
            seconds, by_vertices = cells_of(VertexCells, widths)
            assert len(by_vertices) == n, f"counts differ: {len(by_vertices)} and {n}"
            each = len(by_vertices.points) / n
            vertices = f"{seconds / n * 1e6:>9.2f} {each:>6.1f} {inner_points(by_vertices) * 1e6:>9.2f}"
        print(f"{'-'.join(map(str, widths[:-1])):>14} {n:>8,} | {vertices} | {rows}", flush=True)
    print("each: vertices, or cuts, that a cell carries")


def planes() -> None:
    """Regions per CPU second in planes through convolutional networks."""
    folder = Path(os.environ["RELUSCOPE_DATA"]) / "nets" / "oval21" / "onnx"
    print(f"{'network':>14} {'square':>9} {'regions':>8} {'regions/s':>10} {'plain':>8} {'ratio':>6}")
    for name in IMAGE_NETWORKS:
        net = rs.load(folder / f"{name}.onnx")
        plane = rs.slice(net, np.random.default_rng(0).uniform(0.0, 1.0, (3, net.n_inputs))).network
        for half, most in ((0.3, 1000), (8.0, 10_000)):

            def ours(net=plane, half=half, budget=f"{most} regions"):
                return rs.regions(net, (-half, half), budget=budget, progress=None)

            ours()
            with blas_threads(1):
                seconds, found = cpu_seconds(ours, 3)
            text = f"{name:>14} {f'[-{half:g}, {half:g}]':>9} {len(found):>8,} {len(found) / seconds:>10,.0f}"
            if found.complete:
                text += plain_plane(plane, half, len(found), len(found) / seconds)
            print(text, flush=True)


def wide() -> None:
    """CPU seconds, and microseconds per region, where the first layer is wide; regions per second of deep networks."""
    print(f"{'net':>12} {'regions':>10} {'CPU s':>8} {'us/region':>9}")
    for width in WIDE:
        net = random_net((2, width, 1))

        def streamed(net=net):
            return sum(len(batch) for batch in rs.stream_regions(net, (-5, 5)))

        seconds, count = cpu_seconds(streamed, 1 + 3000 // width)
        print(f"{f'2-{width}':>12} {count:>10,} {seconds:>8.3f} {seconds / count * 1e6:>9.2f}", flush=True)
    for widths in DEEP:
        net = random_net(widths)

        def listed(net=net):
            found = rs.regions(net, (-5, 5), progress=None)
            return len(found), found.interior

        listed()
        seconds, (count, _) = cpu_seconds(listed, 15)
        name = "-".join(map(str, widths[:-1]))
        print(f"{name:>12} {count:>10,} {seconds:>8.3f}  {count / seconds:,.0f} a second", flush=True)


def plain_plane(net: Any, half: float, count: int, ours: float) -> str:
    """Regions per second without the lists of a wide first layer and without leaving units out."""
    cell = starting_cell(2, box=(np.full(2, -half), np.full(2, half)))
    kept, traversal._FEW_ON = traversal._FEW_ON, 0.0
    try:
        with blas_threads(1):
            seconds, batches = cpu_seconds(lambda: list(traverse(Stack(CutPlan.plain(net, 2).start(cell)))), 3)
    finally:
        traversal._FEW_ON = kept
    assert sum(len(batch.root) for batch in batches) == count, "counts differ"
    return f" {count / seconds:>8,.0f} {ours * seconds / count:>6.1f}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--quick", action="store_true", help="leave out what takes the peers minutes")
    options.add_argument("--compare", action="store_true", help="cells with vertices against cells as half-spaces")
    options.add_argument("--planes", action="store_true", help="planes through image networks")
    options.add_argument("--wide", action="store_true", help="wide first layers in the plane")
    chosen = options.parse_args()
    if chosen.wide:
        wide()
        return
    if chosen.planes:
        planes()
        return
    if chosen.compare:
        compare()
        return
    quick = chosen.quick
    affinitree_regions(random_net((2, 2, 1)), -1.0, 1.0)  # its import is not what we measure
    print(f"{'net':>14} {'regions':>8} {'ours':>10} {'us/region':>9} {'affinitree':>10} {'ratio':>8} {'target':>7}")
    for widths, target, peer in CASES:
        net = random_net(widths)
        low, high = (-5.0, 5.0) if widths[0] == 2 else (-1.0, 1.0)

        def ours(net=net, low=low, high=high):
            found = rs.regions(net, (low, high), progress=None)
            return found, found.interior, found.C

        ours()
        with blas_threads(1):
            seconds, (found, _, _) = cpu_seconds(ours, 25)  # milliseconds: the best of many on a busy machine
        name = "-".join(map(str, widths[:-1]))
        text = f"{name:>14} {len(found):>8,} {seconds * 1e3:>7.1f} ms {seconds / len(found) * 1e6:>9.2f}"
        if quick and peer > 5:
            print(text)
            continue
        again = 3 if peer <= 15 else 1  # the best of several for both, where the peer takes seconds and not minutes
        theirs, count = cpu_seconds(lambda net=net, low=low, high=high: affinitree_regions(net, low, high), again)
        assert count == len(found), f"counts differ: {count} and {len(found)}"
        print(
            f"{text} {theirs:>8.2f} s {theirs / seconds:>8,.0f} {'' if target is None else f'{target:>7,}'}", flush=True
        )
    net = random_net((2, 8, 8, 1))
    seconds, found = cpu_seconds(lambda: rs.regions(net, (-5, 5), progress=None), 7)
    plain, count = cpu_seconds(lambda: lp_splitting(net, -5.0, 5.0))
    assert count == len(found)
    print(f"plain LP splitting, 2-8-8: {count} regions in {plain:.2f} s, {plain / seconds:,.0f} times ours")


if __name__ == "__main__":
    main()
