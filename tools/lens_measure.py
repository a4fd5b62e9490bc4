"""Times and sizes of docs/lens.md. CPU seconds of one run each, one thread; needs torch and RELUSCOPE_DATA.

RELUSCOPE_DATA=... python tools/lens_measure.py
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lens_models as real
import numpy as np
import torch

from reluscope import lens


def timed(what: str, work: Callable[[], Any]) -> Any:
    """Run `work` once and print its CPU time."""
    before = time.process_time()
    out = work()
    print(f"| {what} | {time.process_time() - before:.1f} s |", flush=True)
    return out


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    draw = np.random.default_rng(0)
    weights = draw.random((1000, 64, 128), np.float32) ** 20
    heads = tuple(f"{i // 16}.{i % 16}" for i in range(64))
    recording = lens.Recording(weights / weights.sum(2, keepdims=True), heads, "memory")
    noise = draw.integers(0, 256, (1000, 64, 64, 3), dtype=np.uint8)
    photographs = (lens.crops(real.photographs(), (128, 128), 1000, rng=0) * 255).round().astype(np.uint8)
    patterns = timed("detectors, 64 heads, 1,000 steps, 128 lags", lambda: lens.detect_patterns(recording))
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"

        def write(frames: Any) -> int:
            return lens.write_study(page, title="page", recording=recording, frames=frames, patterns=patterns)

        for name, frames in (("64x64 frames of noise", noise), ("128x128 crops of photographs", photographs)):
            size = timed(f"page of 1,000 {name} and 64 heads", lambda frames=frames: write(frames))
            print(f"  {size / 1e6:.2f} MB")
    model = real.shared("marabou/onnx/cnn_max_mninst2")
    layer = model.convolutions()[1]
    lens.visualise(model, lens.channel(layer, 0), steps=2, rng=0)  # the first call loads libraries
    timed(
        "image for one channel of an MNIST CNN, 128 steps", lambda: lens.visualise(model, lens.channel(layer, 0), rng=0)
    )
    thin = real.resnet()
    if thin is not None:
        timed("receptive fields of ResNet-50-thin (the graph is read, not run)", lambda: lens.receptive_fields(thin))
    big = lens.vpt_cnn(lens.vpt_policy("2x", rng=0))
    timed("receptive fields of VPT 2x (one run of the CNN at 128x128)", lambda: lens.receptive_fields(big))


if __name__ == "__main__":
    main()
