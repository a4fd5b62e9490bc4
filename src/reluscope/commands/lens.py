"""`reluscope lens`: pictures of an image model or agent on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reluscope.commands._common import Options, command, numbers, show


def add(commands: Any) -> None:
    """Declare the command."""
    parser = command(
        commands, "lens", run, "pictures of a CNN, vision transformer or VPT agent on images: one HTML page"
    )
    parser.add_argument(
        "model", help='an ONNX file, a VPT .model file, or "vpt:tiny", "vpt:1x" ... with random weights'
    )
    parser.add_argument("--images", type=Path, required=True, help="a folder of images, an .npz or an .npy file")
    parser.add_argument("--weights", type=Path, help="the .weights file of a VPT .model file")
    parser.add_argument(
        "--layer", action="append", help="a layer to look at (may be given again; default: three convolutions)"
    )
    parser.add_argument("--top", type=int, default=500, help="activations shown as receptive fields (default 500)")
    parser.add_argument(
        "--filters", type=int, default=0, help="channels per layer to visualise by optimisation (needs torch)"
    )
    parser.add_argument(
        "--attribute", type=int, default=0, metavar="N",
        help="show what the largest output of the first N images is due to, by four methods (needs torch)",
    )  # fmt: skip
    parser.add_argument("--most", type=int, default=1000, help="frames read at most (default 1000)")
    parser.add_argument(
        "--shape", help="height,width,channels of an image, for a file that leaves them open (images are resized)"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="the model takes (scale * image - mean) / std")
    parser.add_argument("--mean", default="0", help="a number or a list such as 0.485,0.456,0.406")
    parser.add_argument("--std", default="1", help="a number or a list")
    parser.add_argument("--bgr", action="store_true", help="the model takes channels in the order blue, green, red")
    parser.add_argument("--cache", type=Path, help="folder that keeps a recording of attention")
    parser.add_argument("--out", type=Path, default=Path("lens.html"), help="the page (default lens.html)")


def run(options: Options) -> int:
    """Write the page."""
    import numpy as np

    from reluscope.reporting.survey import survey

    facts, text = survey(
        options.model,
        options.images,
        options.out,
        weights=options.weights,
        layers=options.layer,
        top=options.top,
        filters=options.filters,
        attributed=options.attribute,
        most=options.most,
        image_shape=None if options.shape is None else _whole(options.shape),
        scale=options.scale,
        mean=tuple(np.atleast_1d(numbers(options.mean, "--mean")).tolist()),
        std=tuple(np.atleast_1d(numbers(options.std, "--std")).tolist()),
        bgr=options.bgr,
        cache=options.cache,
    )
    show(options, facts, text)
    return 0


def _whole(text: str) -> list[int]:
    """Three whole numbers."""
    import numpy as np

    from reluscope.errors import InputError

    values = np.atleast_1d(numbers(text, "--shape")).tolist()
    if len(values) != 3 or any(v != int(v) or v < 1 for v in values):
        raise InputError(f"--shape takes height,width,channels such as 32,32,3, got {text!r}")
    return [int(v) for v in values]
