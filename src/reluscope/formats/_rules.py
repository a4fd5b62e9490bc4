"""Rules of users at work: kept, called, compared with the operation they stand for, said in the network's notes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from reluscope._check import FloatArray, describe
from reluscope.activations import Activation
from reluscope.errors import InputError, ReluscopeWarning, UnsupportedError
from reluscope.formats.graph import GraphBuilder, Tensor
from reluscope.network import Network

_ROUNDING = 1e-5
"""What float32 may do to a value, over its size."""
_AGREEMENT = 1e-2
"""Largest difference from the model's own output, relative to its size, that counts as rounding."""


@dataclass(frozen=True)
class Registered:
    """A rule, or an activation for every entry, and how far it is from the operation at most."""

    rule: Any
    error: float

    def apply(self, graph: Any, operands: Any, attributes: dict[str, Any]) -> Any:
        """What the operation returns for these operands."""
        if isinstance(self.rule, Activation):
            return graph.activate(operands[0], self.rule)
        return self.rule(graph, *operands, **attributes)


TORCH: dict[str, Registered] = {}
ONNX: dict[str, Registered] = {}
FORMATS: dict[str, tuple[Callable[..., Any], str]] = {}


def call_rule(mine: Registered, graph: GraphBuilder, operands: Any, attributes: dict[str, Any], where: str) -> Any:
    """What a rule gives, with its error; whatever it raises names the place."""
    try:
        made = mine.apply(graph, operands, attributes)
    except (UnsupportedError, InputError) as error:
        raise type(error)(f"{where}, by the rule that was registered: {error}") from error
    except Exception as error:
        raise UnsupportedError(
            f"{where}: the rule that was registered fails with {type(error).__name__}: {error}"
        ) from error
    several = isinstance(made, (tuple, list))
    for part in made if several else (made,):
        if not isinstance(part, (Tensor, np.ndarray)):
            raise UnsupportedError(f"{where}: the rule that was registered returned {describe(part)}, not a tensor")
    if not mine.error:
        return list(made) if several else made
    off = [
        graph.approximate(p, mine.error) if isinstance(p, Tensor) and p.terms else p
        for p in (made if several else (made,))
    ]
    return off if several else off[0]


def check_activation(mine: Registered, run: Callable[[FloatArray], FloatArray], where: str) -> None:
    """Refuse an activation that differs from the operation by more than it says, on a grid of numbers."""
    x = np.linspace(-50.0, 50.0, 20001)
    try:
        true = run(x)
    except Exception as error:
        raise UnsupportedError(
            f"{where} could not be run to try the activation that was registered: {error}"
        ) from error
    if true.shape != x.shape:
        raise UnsupportedError(f"{where} is not a function of one number, so an activation cannot stand for it")
    off = np.abs(true - mine.rule(x))
    allowed = mine.error + _ROUNDING * (1 + np.abs(x))
    worst = int(np.argmax(off - allowed))
    if not off[worst] <= allowed[worst]:
        raise UnsupportedError(
            f"{where} is {true[worst]:.6g} at {x[worst]:.6g}, and the activation that was registered gives "
            f"{float(mine.rule(x[worst])):.6g}: it differs by {off[worst]:.2g}, more than its error of "
            f"{mine.error:g}. Use more segments, or register it with its true error"
        )


def compare_rules(net: Network, run: Callable[[FloatArray], FloatArray]) -> None:
    """Refuse a network that differs from its model by more than its bound, at two inputs."""
    for x in np.random.default_rng(0).normal(size=(2, net.n_inputs)):
        there, here = run(x), net(x)
        off = 0.0 if net.approximation is None else net.approximation
        if there.shape != here.shape or (np.abs(there - here) > _AGREEMENT * max(1.0, np.abs(there).max()) + off).any():
            raise UnsupportedError(
                f"{net.name} differs from the model itself by {np.abs(there - here).max():.3g} at a random input, "
                "more than the rules that were registered say"
            )


def said_of(name: str, mine: Registered, *, checked: bool = True) -> str:
    """The note about an operation with a rule of the user's."""
    if mine.error:
        said = f"{name} is approximated: each value differs by at most {mine.error:g} from the model's"
    else:
        said = f"{name} by a rule that was registered as exact"
    return said if checked else f"{said}; taken on trust, since the operation cannot be run"


def warn_of(net: Network, added: dict[str, str]) -> None:
    """Say aloud that the network is not the model."""
    if net.approximation is not None:
        most = float(net.approximation.max())
        warnings.warn(
            f"{net.name}: {'; '.join(added.values())}. Its outputs differ by at most {most:.3g} from the model's, "
            "for any input; answers are about the network (see net.approximation)",
            ReluscopeWarning,
            stacklevel=6,
        )
