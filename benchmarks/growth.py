"""Time and memory against the number of regions of one 2-D net in growing boxes, past a million; writes growth.png."""

import gc
import resource
import time
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from side_by_side import random_net

from reluscope.cells.regions import stream_regions

HIDDEN = (256,) * 7
HALF_WIDTHS = (0.01, 0.03, 0.06, 0.1, 0.18, 0.3, 0.6)


def main() -> None:
    counts, seconds, memory = [], [], []
    list(stream_regions(random_net((2, 8, 8, 1)), (-5, 5)))
    net = random_net((2, *HIDDEN, 1))
    for half in HALF_WIDTHS:
        gc.collect()
        started, found, kept = time.process_time(), 0, 0
        for batch in stream_regions(net, (-half, half)):
            found += len(batch)
            kept += batch.cells.labels.nbytes + batch.cells.offsets.nbytes + batch.maps.nbytes
        counts.append(found)
        seconds.append(time.process_time() - started)
        memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        print(
            f"box +-{half:<5g} {found:>9,} regions {seconds[-1]:>7.2f} s "
            f"{seconds[-1] / found * 1e6:>6.2f} us/region, {kept / found:>4.0f} bytes/region beside vertices, pattern, "
            f"peak memory of the process {memory[-1]:,.0f} MB",
            flush=True,
        )
    draw(counts, seconds, memory)


def draw(counts: list[int], seconds: list[float], memory: list[float]) -> None:
    figure = Figure(figsize=(9, 3.6), dpi=130, layout="constrained")
    left, right = figure.subplots(1, 2)
    left.loglog(counts, seconds, "o-", color="#1d6fb8")
    left.loglog(counts, np.array(counts) * seconds[-1] / counts[-1], "--", color="#999999", label="linear")
    left.set_xlabel("regions")
    left.set_ylabel("CPU seconds, one thread")
    left.legend(frameon=False)
    right.semilogx(counts, memory, "o-", color="#1d6fb8")
    right.set_ylim(0, 1.15 * max(memory))
    right.set_xlabel("regions (streamed)")
    right.set_ylabel("peak memory, MB")
    FigureCanvasAgg(figure)
    figure.savefig(Path(__file__).with_name("growth.png"))


if __name__ == "__main__":
    main()
