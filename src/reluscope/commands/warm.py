"""`reluscope warm`: compile what is compiled once, so that no first call waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reluscope.commands._common import Options, command, show


def add(commands: Any) -> None:
    """Declare the command."""
    command(commands, "warm", run, "compile the kernels now, so that first calls are quick")


def run(options: Options) -> int:
    """Ask a small question of every engine, and print how long each first call took."""
    import time
    from itertools import pairwise

    import numpy as np

    from reluscope.answers.linear_models import linear_models
    from reluscope.answers.outputs import outputs
    from reluscope.answers.probability import probability
    from reluscope.cells.complex import polyhedral_complex
    from reluscope.cells.regions import regions
    from reluscope.inputs import Gaussian
    from reluscope.local_models.unwrap import unwrap
    from reluscope.network import Network
    from reluscope.progress import meter

    rng = np.random.default_rng(0)

    def net(*widths: int) -> Any:
        sizes = pairwise(widths)
        return Network([(rng.normal(size=(b, a)), 0.3 * rng.normal(size=b)) for a, b in sizes])

    def law(d: int) -> Any:
        return Gaussian(np.zeros(d), 1.0)

    calls: dict[str, Callable[[], Any]] = {
        "regions, 1 input": lambda: regions(net(1, 4, 4, 1), (-1, 1)),
        "regions, 2 inputs": lambda: regions(net(2, 4, 4, 1), (-1, 1)),
        "regions, 3 inputs": lambda: regions(net(3, 4, 4, 1), (-1, 1)),
        "regions, 6 inputs": lambda: regions(net(6, 4, 4, 1), (-1, 1)),
        "faces": lambda: polyhedral_complex(net(2, 4, 4, 1), (-1, 1)),
        "probability, exact, 1 input": lambda: probability(net(1, 4, 1), law(1), "y > 0", guarantee="exact"),
        "probability, exact, 2 inputs": lambda: probability(net(2, 4, 1), law(2), "y > 0", guarantee="exact"),
        "probability, exact, 3 inputs": lambda: probability(net(3, 4, 1), law(3), "y > 0", guarantee="exact"),
        "probability, sound": lambda: probability(
            net(4, 6, 1), law(4), "y > 0", guarantee="sound", budget="200 regions"
        ),
        "probability, sound, 2 outputs": lambda: probability(
            net(8, 8, 8, 2), law(8), "argmax == 0", guarantee="sound", budget="200 regions"
        ),
        "probability, confidence": lambda: probability(net(8, 8, 1), law(8), "y > 0", guarantee="confidence", rng=0),
        "probability, rare": lambda: probability(net(8, 8, 1), law(8), "y > 40", rng=0, budget="2s"),
        "outputs": lambda: outputs(net(2, 4, 1), law(2)).cdf(0.3),
        "linear models": lambda: linear_models(net(2, 4, 1), law(2)),
        "local models": lambda: unwrap(net(2, 4, 1), rng.normal(size=(40, 2))),
    }
    taken = {}
    with meter("auto", "compiling") as report:
        for i, (name, call) in enumerate(calls.items()):
            report(i, f"{i} of {len(calls)}: {name}")
            begin = time.process_time()
            call()
            taken[name] = time.process_time() - begin
    width = max(map(len, taken))
    lines = [f"{name:<{width}}  {seconds:6.2f} s" for name, seconds in taken.items()]
    total = sum(taken.values())
    lines += [f"{'in all':<{width}}  {total:6.2f} s of processor time; the next process finds the compiled code"]
    show(options, {"seconds": taken, "total": total}, "\n".join(lines))
    return 0
