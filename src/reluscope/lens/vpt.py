"""VPT (Video PreTraining) agents: our own implementation of the architecture, and a loader that runs no code.

`vpt_policy("2x")` builds one with random weights, `load_vpt(model_file, weights_file)` with published ones. A `.model`
file is read by an interpreter that knows plain containers, numbers and text only; a `.weights` file with
`weights_only=True`. Keys that are missing or not expected are reported, never hidden.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from os import PathLike
from typing import Any

from reluscope._check import describe, generator, integer, real, several
from reluscope._extras import require
from reluscope._files import as_path, read_bytes
from reluscope.errors import InputError, UnsupportedError
from reluscope.formats._torch_pickle import check_pickles
from reluscope.lens._plain_data import read_plain
from reluscope.lens.models import Preparation, TorchModel
from reluscope.limits import DEFAULT_LIMITS, Limits

__all__ = ["LoadReport", "load_vpt", "vpt_cnn", "vpt_policy"]

_COMMON: dict[str, Any] = {
    "attention_heads": 16,
    "attention_memory_size": 256,
    "timesteps": 128,
    "img_shape": [128, 128, 3],
    "impala_chans": [16, 32, 32],
    "n_recurrence_layers": 4,
    "pointwise_ratio": 4,
    "post_pool_groups": 1,
    "group_norm_groups": 1,
}
SIZES: dict[str, dict[str, Any]] = {
    "1x": _COMMON | {"hidsize": 1024, "impala_width": 4},
    "2x": _COMMON | {"hidsize": 2048, "impala_width": 8},
    "3x": _COMMON | {"hidsize": 3072, "impala_width": 12},
    "tiny": _COMMON
    | {
        "hidsize": 32,
        "impala_width": 1,
        "impala_chans": [4, 8, 8],
        "img_shape": [32, 32, 3],
        "attention_heads": 4,
        "attention_memory_size": 24,
        "timesteps": 8,
    },
}
"""Policy arguments by size; "tiny" has the same shape at a size for tests (its memory is 16 frames)."""

_MOST = {
    "hidsize": 1 << 16, "attention_heads": 1 << 12, "attention_memory_size": 1 << 20, "timesteps": 1 << 20,
    "n_recurrence_layers": 1000, "pointwise_ratio": 1000, "post_pool_groups": 1 << 12, "group_norm_groups": 1 << 12,
}  # fmt: skip
"""The largest values that policy arguments may have: a file may say anything."""
_MOST_WIDTH, _MOST_STACKS = 1 << 14, 16

_ACTIONS = {"tiny": (11, 41)}
_CAMERA, _BUTTONS = 121, 8641


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a weights file contains, next to what the model wants.

    Attributes
    ----------
    loaded, missing, unexpected, wrong_shape : tuple of str
        Names of tensors.
    """

    loaded: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    wrong_shape: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether every parameter came from the file and nothing was left over."""
        return not (self.missing or self.unexpected or self.wrong_shape)

    def __str__(self) -> str:
        parts = [f"{len(self.loaded)} tensors loaded"]
        for label, names in (
            ("missing", self.missing),
            ("not expected", self.unexpected),
            ("of the wrong shape", self.wrong_shape),
        ):
            if names:
                shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
                parts.append(f"{len(names)} {label}: {shown}")
        return "; ".join(parts)


def vpt_policy(size: str | dict[str, Any] = "tiny", *, temperature: float = 2.0, rng: Any = None) -> Any:
    """A VPT policy with random weights.

    Parameters
    ----------
    size : {"tiny", "1x", "2x", "3x"} or dict
        71.3, 248.5 and 531.5 million parameters for 1x, 2x, 3x; or the policy arguments of a `.model` file.
    temperature : float
    rng : None, int, SeedSequence or Generator

    Returns
    -------
    torch module
    """
    torch = require("torch", "torch")
    from reluscope.lens._vpt_net import Policy

    if isinstance(size, str):
        if size not in SIZES:
            raise InputError(f"size must be one of {', '.join(map(repr, SIZES))} or policy arguments, got {size!r}")
        arguments = SIZES[size]
    else:
        arguments = _checked(size)
    camera, buttons = _ACTIONS.get(size, (_CAMERA, _BUTTONS)) if isinstance(size, str) else (_CAMERA, _BUTTONS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(generator(rng).integers(2**62)))
        return Policy(arguments, float(temperature), camera, buttons).eval()


def load_vpt(
    model_file: str | PathLike[str],
    weights_file: str | PathLike[str] | None = None,
    *,
    strict: bool = True,
    limits: Limits = DEFAULT_LIMITS,
) -> tuple[Any, LoadReport]:
    """A VPT policy from a `.model` file and, unless None, a `.weights` file.

    Parameters
    ----------
    model_file, weights_file : path
    strict : bool
        Whether a missing, unexpected or misshapen key is an error; otherwise it is in the report, and the parameters in
        question stay random.
    limits : Limits

    Returns
    -------
    tuple of torch module and LoadReport

    Raises
    ------
    InputError
        If a file is not what it should be; the message names the keys.
    """
    torch = require("torch", "torch")
    arguments, temperature = read_model_file(model_file, limits=limits)
    limits.check("file_bytes", 4 * count_parameters(arguments, torch), f"{as_path(model_file).name}, as a model,")
    policy = vpt_policy(arguments, temperature=temperature, rng=0)
    wanted = policy.state_dict()
    if weights_file is None:
        return policy, LoadReport((), tuple(wanted), (), ())
    path = as_path(weights_file)
    content = read_bytes(path, limits=limits)
    check_pickles(content, limits, path.name)
    try:
        given = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:
        raise InputError(f"{path.name} does not hold a plain state dict of tensors") from error
    if not isinstance(given, dict) or not all(hasattr(v, "shape") for v in given.values()):
        raise InputError(f"{path.name} must hold a state dict: names and tensors")
    if any(v.device.type == "meta" for v in given.values()):
        raise InputError(f"{path.name} has tensors without data (on the meta device)")
    wrong = tuple(k for k in given if k in wanted and given[k].shape != wanted[k].shape)
    good = {k: v for k, v in given.items() if k in wanted and k not in wrong}
    report = LoadReport(
        tuple(good), tuple(k for k in wanted if k not in given), tuple(k for k in given if k not in wanted), wrong
    )
    if strict and not report.complete:
        raise InputError(f"{path.name} does not fit the model: {report}; pass strict=False to load what fits")
    policy.load_state_dict(good, strict=False)
    return policy, report


def read_model_file(path: str | PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> tuple[dict[str, Any], float]:
    """Policy arguments and temperature of a `.model` file; anything but plain data in it is refused."""
    where = as_path(path)
    content = read_bytes(where, limits=limits)
    try:
        data = read_plain(content, where.name)
        arguments = data["model"]["args"]["net"]["args"]
        options = data["model"]["args"].get("pi_head_opts", {})
        return _checked(arguments), float(options.get("temperature", 1.0))
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{where.name} is not a VPT .model file ({type(error).__name__}: {error})") from error


def vpt_cnn(policy: Any, label: str = "VPT") -> TorchModel:
    """The convolutional network of a policy as a model with named layers (`stacks.1.firstconv`, ...).

    Parameters
    ----------
    policy : VPT policy
        What `load_vpt` or `vpt_policy` gives.
    label : str
        What the model is called on pages.

    Returns
    -------
    Model
    """
    return TorchModel(policy.net.img_process.cnn, policy.image_shape, Preparation(layout="NHWC"), label)


def _checked(arguments: Any) -> dict[str, Any]:
    if not isinstance(arguments, dict):
        raise InputError(f"policy arguments must be a dict, got {type(arguments).__name__}")
    norm = arguments.get("init_norm_kwargs")
    extra = dict(norm) if isinstance(norm, dict) else {}
    inner = arguments.get("impala_kwargs")
    extra |= dict(inner) if isinstance(inner, dict) else {}
    full = _COMMON | {k: v for k, v in extra.items() if k in _COMMON} | arguments
    for name in ("hidsize", "impala_width"):
        if name not in full:
            raise InputError(f"the policy arguments lack {name!r}")
    if full.get("use_pre_lstm_ln", False) or full.get("recurrence_type", "transformer") != "transformer":
        raise UnsupportedError("only transformer policies without use_pre_lstm_ln are known")
    if extra.get("batch_norm"):
        raise UnsupportedError("policies with batch norm are not known; group norm is")
    for name, most in _MOST.items():
        integer(full[name], name, low=1, high=most)
    real(full["impala_width"], "impala_width", low=0.0, high=_MOST_WIDTH, open_=True)
    for name, count in (("img_shape", 3), ("impala_chans", None)):
        sizes = several(full[name], name, "whole numbers")
        if not sizes or len(sizes) != (count or len(sizes)) or len(sizes) > _MOST_STACKS:
            raise InputError(f"{name} must be a list of {count or 'a few'} whole numbers, got {describe(full[name])}")
        for size in sizes:
            integer(size, name, low=1, high=_MOST_WIDTH)
    return full


def count_parameters(arguments: dict[str, Any], torch: Any) -> int:
    """Parameters of a policy, counted on one that has no memory of its own."""
    from reluscope.lens._vpt_net import Policy

    with torch.device("meta"):
        return sum(p.numel() for p in Policy(arguments, 1.0, _CAMERA, _BUTTONS).parameters())
