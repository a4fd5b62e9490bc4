"""The logit lens: what a model would say if it stopped after each of its blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import integer
from reluscope._tables import Tabular
from reluscope.errors import InputError, UnsupportedError
from reluscope.lens._probe import Probe
from reluscope.lens.ablation import log_probabilities
from reluscope.lens.models import evaluation, first_tensor

__all__ = ["LogitLens", "logit_lens"]

Array = npt.NDArray[Any]
_OFF = 1e-3
"""Relative difference from the model's own logits that the last block may have."""


@dataclass(frozen=True, slots=True, repr=False)
class LogitLens(Tabular):
    """Log-probabilities that the end of a model gives for the values after each block, at each position.

    Attributes
    ----------
    blocks : tuple of str
    log_probabilities : (blocks, positions, classes) array
    tail : tuple of str
        The modules that are applied after a block, in order.
    error : float
        Largest difference between the model's own logits and those of the last block, relative to the largest logit.
    """

    blocks: tuple[str, ...]
    log_probabilities: Array
    tail: tuple[str, ...]
    error: float

    @property
    def best(self) -> npt.NDArray[np.intp]:
        """The most probable class after each block at each position, (blocks, positions)."""
        return np.asarray(self.log_probabilities.argmax(-1))

    def probability(self, targets: Any = None) -> npt.NDArray[np.float64]:
        """Probability of one class per position, by default the one that the model ends with, (blocks, positions).

        Parameters
        ----------
        targets : int or sequence of int, optional

        Returns
        -------
        (blocks, positions) array
        """
        count, positions, classes = self.log_probabilities.shape
        if targets is None:
            chosen = self.best[-1]
        else:
            listed = np.atleast_1d(np.asarray(targets))
            checked = [integer(t, "targets", low=0, high=classes - 1) for t in listed.tolist()]
            if len(checked) not in (1, positions):
                raise InputError(f"targets must be one class, or one for each of {positions} positions")
            chosen = np.broadcast_to(np.array(checked), (positions,))
        picked = np.take_along_axis(self.log_probabilities, np.broadcast_to(chosen, (count, positions))[..., None], -1)
        return np.asarray(np.exp(picked[..., 0]))

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns of a table, one row per block and position."""
        blocks, positions = self.best.shape
        return {
            "block": [b for b in self.blocks for _ in range(positions)],
            "position": list(range(positions)) * blocks,
            "best": self.best.ravel().tolist(),
            "probability": np.exp(self.log_probabilities.max(-1)).ravel().tolist(),
            "probability of the end": self.probability().ravel().tolist(),
        }

    def __repr__(self) -> str:
        b, p, c = self.log_probabilities.shape
        return (
            f"<LogitLens of {b} blocks, {p} positions, {c} classes by {' > '.join(self.tail)}; error {self.error:.1e}>"
        )


def logit_lens(
    model: Any, inputs: Any, *, blocks: Sequence[str] | None = None, tail: Sequence[str] | None = None, element: int = 0
) -> LogitLens:
    """What any model would say after each of its blocks: the modules at its end, applied to every block's output.

    Parameters
    ----------
    model : torch module, or what `as_model` returns
    inputs : as in `ablate`
    blocks : sequence of str, optional
        By default the blocks of the last stack.
    tail : sequence of str, optional
        The modules from a block's output to the logits, such as ("transformer.ln_f", "lm_head"). By default those that
        the model itself runs after its last block.
    element : int
        Which element of the batch.

    Returns
    -------
    LogitLens

    Raises
    ------
    UnsupportedError
        If the end of the model does not give the model's own logits for its last block, because it does more than run
        these modules one after the other.

    Notes
    -----
    The last row is the model's own answer, which is checked; a model that scales its logits by one number (T5) is
    followed. A model that reads one position (the class token of a vision transformer) must agree there. One run, and
    one of the tail for each block.
    """
    probe = Probe(model)
    if probe.module is None:
        raise UnsupportedError(f"{probe.label} is an ONNX file; the logit lens needs a torch module")
    given = probe.inputs(inputs)
    element = integer(element, "element", low=0)
    names = _last_stack(probe, given) if blocks is None else [p.module for p in probe.parts(blocks, given, "blocks")]
    run = probe.run(given, keep=names)
    hidden = [run.values[n][-1] for n in names]
    if any(h.ndim != 3 for h in hidden):
        raise InputError(f"{names[0]} gives {tuple(hidden[0].shape)}; blocks must give (batch, positions, width)")
    if element >= len(run.output):
        raise InputError(f"element must be below {len(run.output)}, the size of the batch, got {element}")
    steps = (
        _modules_after(probe, given, names[-1])
        if tail is None
        else [p.module for p in probe.parts(tail, given, "tail")]
    )
    own = run.output.double()
    made = [_applied(probe, steps, h).double() for h in hidden]
    scale, error = _agreement(made[-1], own)
    if not error <= _OFF:
        raise UnsupportedError(
            f"{' > '.join(steps) or 'nothing'} after {names[-1]} of {probe.label} misses its own logits by {error:.1e} "
            "of the largest; name the modules of its end with tail=[...]"
        )
    logs = np.stack([log_probabilities((scale * m)[element]) for m in made])
    return LogitLens(tuple(names), logs, tuple(steps), float(error))


def _last_stack(probe: Probe, given: Any) -> list[str]:
    """The blocks of the list that runs last."""
    ran: list[str] = []
    handles = []
    try:
        for name in probe.blocks():
            note = probe.modules[name].register_forward_hook(lambda m, i, o, name=name: ran.append(name))
            handles.append(note)
        probe.run(given)
    finally:
        for handle in handles:
            handle.remove()
    stack = ran[-1].rpartition(".")[0]
    return [n for n in dict.fromkeys(ran) if n.rpartition(".")[0] == stack]


def _modules_after(probe: Probe, given: Any, block: str) -> list[str]:
    """The outermost modules that start after a block has ended, in order."""
    found: list[str] = []
    state = {"past": False, "inside": 0}
    handles = []

    def enter(name: str) -> Any:
        def hook(module: Any, inputs: Any) -> None:
            if state["past"]:
                if not state["inside"]:
                    found.append(name)
                state["inside"] += 1

        return hook

    def leave(name: str) -> Any:
        def hook(module: Any, inputs: Any, value: Any) -> None:
            if name == block:
                state["past"] = True
                found.clear()
            elif state["past"] and state["inside"]:
                state["inside"] -= 1

        return hook

    try:
        for name, module in probe.modules.items():
            handles += [module.register_forward_pre_hook(enter(name)), module.register_forward_hook(leave(name))]
        probe.run(given)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _applied(probe: Probe, steps: list[str], value: Any) -> Any:
    torch = probe.torch
    with torch.no_grad(), evaluation(probe.module):
        for name in steps:
            try:
                value = first_tensor(probe.modules[name](value))
            except Exception as error:
                raise UnsupportedError(
                    f"{name} of {probe.label} cannot be applied to the values after each block ({error}); name the "
                    "modules of its end with tail=[...]"
                ) from error
    return value


def _agreement(made: Any, own: Any) -> tuple[float, float]:
    """The factor between the model's logits and those made here, and how far they are off then."""
    if (
        own.ndim == 2 and made.ndim == 3 and made.shape[-1] == own.shape[-1]
    ):  # a classifier reads one position, or the mean
        tried = [_agreement(part, own) for part in (made[:, 0], made[:, -1], made.mean(1))]
        return min(tried, key=lambda found: found[1])
    if made.shape != own.shape:
        return 1.0, float("inf")
    size = float(own.abs().max()) or 1.0
    plain = float((made - own).abs().max()) / size
    if plain <= _OFF:
        return 1.0, plain
    factor = float((made * own).sum() / ((made * made).sum() or 1.0))
    return factor, float((factor * made - own).abs().max()) / size
