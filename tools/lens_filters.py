"""Does an optimised image drive a channel further than 1,000 real images do? Counts, for docs/lens.md.

    RELUSCOPE_DATA=... python tools/lens_filters.py [--out results.json] [NAME ...]

For each channel the mean over positions is maximised over images with pixels in [0, 1] (`lens.visualise`, default
settings, rng = number of the channel), and compared with its largest mean on 1,000 MNIST test digits, or on 1,000
crops of scikit-learn's two photographs of many sizes (`lens.crops`, rng = 0). Both are measured by `lens.measure`.
"From noise alone" is the same with `rescue=False`: no plain colours, no random dots.
A channel is dead if its value never changes on the 1,000 real images. Times are CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lens_models as real
import numpy as np
import torch

from reluscope import lens

COUNT = 1000
MNIST = ("marabou/onnx/cnn_max_mninst2", "marabou/onnx/cnn_max_mninst3", "verivital/onnx/Convnet_avgpool")
MNIST += ("verivital/onnx/Convnet_maxpool",)
CIFAR = ("cifar10_resnet/onnx/resnet_2b", "oval21/onnx/cifar_base_kw", "oval21/onnx/cifar_deep_kw")
CIFAR += ("oval21/onnx/cifar_wide_kw", "marabou_cifar10/onnx/cifar10_small")
RESNET = ("Relu", "Relu_3", "Relu_10", "Relu_20", "Relu_30", "Relu_40", "Relu_48")
Case = Callable[[int, int], dict[str, Any] | None]
EFFICIENT = ("_bn0", "_blocks.2", "_blocks.5", "_blocks.10", "_blocks.15", "_bn1", "_fc")


def spatial(model: Any, image: Any) -> list[str]:
    """The ReLU layers that still have channels and positions."""
    names = [x.name for x in model.layers if x.kind == "Relu"]
    found = model.activations(image[None], names)
    return [n for n in names if found[n].ndim == 4]


def ranges(model: Any, layers: list[str], images: Any) -> dict[str, tuple[Any, Any]]:
    """For each layer: the largest mean of each channel over `images`, and whether the channel ever changes."""
    best: dict[str, Any] = {}
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    for start in range(0, len(images), 20):
        for name, value in model.activations(images[start : start + 20], layers, batch=20).items():
            flat = value.reshape(*value.shape[:2], -1)
            mean, least, most = flat.mean(2).max(0), flat.min((0, 2)), flat.max((0, 2))
            best[name] = np.maximum(best.get(name, -np.inf), mean)
            low[name], high[name] = np.minimum(low.get(name, np.inf), least), np.maximum(high.get(name, -np.inf), most)
    return {n: (best[n], high[n] - low[n] > 1e-12 * np.maximum(1.0, np.abs(high[n]))) for n in layers}


def study(name: str, model: Any, images: Any, layers: list[str], per_layer: int | None, steps: int) -> dict[str, Any]:
    """All numbers of one network."""
    rows = []
    found_dead = {}
    for layer, (best, alive) in ranges(model, layers, images).items():
        count = len(best)
        found_dead[layer] = np.flatnonzero(~alive).tolist()
        chosen = range(count) if per_layer is None else np.unique(np.linspace(0, count - 1, per_layer).astype(int))
        for c in map(int, chosen):
            objective = lens.channel(layer, c)
            before = time.process_time()
            found = lens.visualise(model, objective, steps=steps, rng=c)
            seconds = time.process_time() - before
            if found.images.min() < 0 or found.images.max() > 1:
                raise AssertionError("a pixel left the range")
            value = float(lens.measure(model, objective, found.images)[0])
            row = {"layer": layer, "channel": c, "value": value, "real": float(best[c]), "dead": not bool(alive[c])}
            alone = value
            if found.origins[0] != "noise":  # the climb from noise without help, which is the same climb otherwise
                climb = lens.visualise(model, objective, steps=steps, rescue=False, rng=c)
                alone = float(lens.measure(model, objective, climb.images)[0])
            rows.append(row | {"seconds": seconds, "origin": found.origins[0], "alone": alone})
            print(f"{name} {layer}[{c}]: {value:.4g}, real {best[c]:.4g}, {seconds:.1f} s", file=sys.stderr, flush=True)
    done = {"network": name, "rows": rows, "dead": found_dead}
    print(summary(done), flush=True)
    return done


def summary(done: dict[str, Any]) -> str:
    """One line of the table, then failures and dead channels."""
    rows = done["rows"]
    alive = [r for r in rows if not r["dead"]]
    won = [r for r in alive if r["value"] > r["real"]]
    gain = [r["value"] / r["real"] for r in alive if r["real"] > 0]
    layers = len({r["layer"] for r in rows})
    seconds = np.mean([r["seconds"] for r in rows])
    ratio = f"{np.median(gain):.2f}, {min(gain):.2f}" if gain else ""
    alone = sum(r["alone"] > r["real"] for r in alive)
    text = f"| {done['network']} | {layers} | {len(rows)} | {len(won)} of {len(alive)} | {alone} of {len(alive)} "
    text += f"| {ratio} | {seconds:.1f} s |"
    for r in alive:
        if r["value"] <= r["real"]:
            text += f"\n  lost: {r['layer']}[{r['channel']}] {r['value']:.4g}, real {r['real']:.4g}"
    for layer, dead in done["dead"].items():
        if dead:
            text += f"\n  dead in {layer}: {', '.join(map(str, dead))}"
            woken = [str(r["channel"]) for r in rows if r["dead"] and r["layer"] == layer and r["value"] > r["real"]]
            text += f" (woken by the optimised image: {', '.join(woken)})" if woken else ""
    return text


def cases() -> dict[str, Case]:
    """What can be asked for by name."""
    out: dict[str, Case] = {}

    def small(path: str, source: Callable[[], Any]) -> Case:
        def run(steps: int, per_layer: int) -> dict[str, Any]:
            model, images = real.shared(path), source()
            return study(path.split("/")[-1], model, images, spatial(model, images[0]), None, steps)

        return run

    def large(name: str, make: Callable[[], Any], layers: tuple[str, ...]) -> Case:
        def run(steps: int, per_layer: int) -> dict[str, Any] | None:
            model = make()
            return None if model is None else study(name, model, cut(224), list(layers), per_layer, steps)

        return run

    def cut(size: int) -> Any:
        return lens.crops(real.photographs(), (size, size), COUNT, largest=16, rng=0)

    for path in MNIST:
        out[path.split("/")[-1]] = small(path, lambda: real.digits(COUNT).astype(np.float32) / 255)
    for path in CIFAR:
        out[path.split("/")[-1]] = small(path, lambda: cut(32))
    out["resnet50-thin"] = large("resnet50-thin", real.resnet, RESNET)
    out["efficientnet-lite0"] = large("efficientnet-lite0", real.efficientnet, EFFICIENT)
    return out


def main() -> None:
    """Run the networks named on the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*cases(), []])
    parser.add_argument("--steps", type=int, default=128)
    parser.add_argument("--per-layer", type=int, default=4, help="channels per layer of the two large networks")
    parser.add_argument("--out", type=Path, help="every number, as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| network | layers | channels | beats 1,000 real | from noise alone | gain: median, least | per channel |")
    print("|---|---|---|---|---|---|---|", flush=True)
    everything = []
    for name, run in cases().items():
        if not options.names or name in options.names:
            everything.append(run(options.steps, options.per_layer))
            if options.out is not None:
                options.out.write_text(json.dumps(everything))


if __name__ == "__main__":
    main()
