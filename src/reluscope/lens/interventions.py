"""What parts of any model do, measured by changing them: ablation, activation patching, path patching.

Parts are heads ("2.3": layer and head in the order they run), modules by their dotted names ("*.mlp" stands for all
that match) and units of modules ("mlp.fc1[7]", "c_attn[0:16]"; channels of a convolution). Everything works through
hooks and a look at attention calls, so the model itself is not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import choice, describe, generator, several
from reluscope._tables import Tabular
from reluscope.errors import InputError, InputTypeError
from reluscope.lens._probe import Edit, Part, Probe, Run
from reluscope.lens.ablation import divergence, log_distributions
from reluscope.progress import meter

__all__ = ["Effects", "Patching", "ablate", "patch", "patch_paths"]

Metric = Callable[[Any], Any]
_KL = "KL divergence, nats"


@dataclass(frozen=True, slots=True, repr=False)
class Effects(Tabular):
    """What changes when parts are taken away: `change[i, r]` on row r of the batch.

    Attributes
    ----------
    parts : tuple of str
    change : (parts, rows) array
        The metric without the part minus the metric, or the divergence of the outputs.
    how : str
        "zero", "mean" or "resample".
    measure : str
        What `change` is a change of.
    """

    parts: tuple[str, ...]
    change: npt.NDArray[np.float64]
    how: str
    measure: str

    @property
    def mean(self) -> npt.NDArray[np.float64]:
        """Mean over rows, one number per part."""
        return np.asarray(self.change.mean(1))

    def ranked(self) -> list[tuple[str, float]]:
        """Parts and mean change, the largest in size first."""
        order = np.argsort(-np.abs(self.mean), kind="stable")
        return [(self.parts[i], float(self.mean[i])) for i in order]

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns of a table, one row per part."""
        return {"part": list(self.parts), "mean": self.mean.tolist(), "largest": np.abs(self.change).max(1).tolist()}

    def __repr__(self) -> str:
        top = ", ".join(f"{name} {value:.3g}" for name, value in self.ranked()[:5])
        return f"<Effects of {len(self.parts)} parts ({self.how}), {self.measure}; largest: {top}>"


@dataclass(frozen=True, slots=True, repr=False)
class Patching(Tabular):
    """Share of the difference between two inputs that one part brings back.

    `share` is `(m - m_base) / (m_other - m_base)` with the metric m of the run on the base input into which values from
    the other one were put: 0 is no effect, 1 is the whole difference.

    Attributes
    ----------
    rows : tuple of str
        Parts (for paths: where they start).
    columns : tuple of str
        Positions, parts where paths end, or "all" alone.
    share : (rows, columns) array
    clean, corrupted : float
        The metric on the two inputs.
    into : str
        The base input: "corrupted" or "clean".
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    share: npt.NDArray[np.float64]
    clean: float
    corrupted: float
    into: str

    def ranked(self) -> list[tuple[str, str, float]]:
        """Row, column and share, the largest in size first."""
        order = np.argsort(-np.abs(self.share).ravel(), kind="stable")
        places = [divmod(int(i), len(self.columns)) for i in order]
        return [(self.rows[i], self.columns[j], float(self.share[i, j])) for i, j in places]

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns of a table, one row per part and column."""
        return {
            "part": [r for r in self.rows for _ in self.columns],
            "at": list(self.columns) * len(self.rows),
            "share": self.share.ravel().tolist(),
        }

    def __repr__(self) -> str:
        top = ", ".join(f"{r} at {c}: {v:.2f}" for r, c, v in self.ranked()[:4])
        return (
            f"<Patching into the {self.into} input, {len(self.rows)} parts, {len(self.columns)} columns; "
            f"metric {self.clean:.4g} clean, {self.corrupted:.4g} corrupted; largest shares: {top}>"
        )


def ablate(
    model: Any,
    inputs: Any,
    parts: Any = "heads",
    *,
    how: str = "zero",
    reference: Any = None,
    metric: Metric | None = None,
    rng: Any = None,
    progress: Any = None,
) -> Effects:
    """How much the output of any model changes when parts of it are taken away, one at a time.

    Parameters
    ----------
    model : torch module, or what `as_model` returns
    inputs : tensor or array, tuple of these, or mapping
        What the model is called with: `model(inputs)`, `model(*inputs)` or `model(**inputs)`.
    parts : "heads", "blocks", str or sequence of str
        Heads ("2.3"), modules by name or pattern (``"*.mlp"``), units of modules ("mlp.fc1[7]").
    how : {"zero", "mean", "resample"}
        What takes the part's place: zeros; its mean over the reference's rows and positions; its value on another row
        of the reference.
    reference : as inputs, optional
        By default the inputs themselves ("resample" then needs at least two rows).
    metric : callable, optional
        From the output tensor to a number, or to one per row; the change of it is given. By default the
        Kullback-Leibler divergence of the output distributions.
    rng : int or Generator, optional
        For "resample".
    progress : optional

    Returns
    -------
    Effects

    Raises
    ------
    InputError
        If there is no such part, or the reference does not fit.

    Notes
    -----
    One run for the model as it is, one for the reference, one for each part. Replacing a head means replacing its
    output before the output projection, whatever kernel computes the attention.
    """
    how = choice(how, "how", ("zero", "mean", "resample"))
    probe = Probe(model)
    given = probe.inputs(inputs)
    chosen = probe.parts(parts, given)
    read = _reader(metric)
    keep = _modules(chosen)
    plain = probe.run(given, keep=keep, heads=any(p.is_head for p in chosen))
    other = plain
    if reference is not None and how != "zero":
        other = probe.run(probe.inputs(reference, "reference"), keep=keep, heads=any(p.is_head for p in chosen))
    before = read(plain.output)
    draw = generator(rng)
    rows = []
    with meter(progress, "taking parts away") as report:
        for i, part in enumerate(chosen):
            report(i, part.label)
            new = [
                _replacement(part, a, b, how, other is plain, draw)
                for a, b in zip(plain.of(part), other.of(part), strict=True)
            ]
            after = read(_with(probe, given, [(part, new)]).output)
            rows.append(np.atleast_1d(after - before) if metric is not None else divergence(before, after))
    return Effects(tuple(p.label for p in chosen), np.stack(rows), how, _KL if metric is None else _name(metric))


def patch(
    model: Any,
    clean: Any,
    corrupted: Any,
    metric: Metric,
    parts: Any = "blocks",
    *,
    positions: Any = "all",
    into: str = "corrupted",
    progress: Any = None,
) -> Patching:
    """Activation patching: which parts, at which positions, carry the difference between two inputs.

    Parameters
    ----------
    model : torch module, or what `as_model` returns
    clean, corrupted : as `inputs` of `ablate`
        Two inputs of the same shape.
    metric : callable
        From the output tensor to a number, such as a difference of two logits.
    parts : "blocks", "heads", str or sequence of str
        As in `ablate`; "blocks" are the layers of the residual stream.
    positions : "all", "each" or sequence of int
        Whether values are put in at all positions together, or one at a time.
    into : {"corrupted", "clean"}
        The input that is run; values come from the other one.
    progress : optional

    Returns
    -------
    Patching
        Parts by positions.

    Raises
    ------
    InputError
        If the metric is the same on both inputs, or their values differ in shape.

    Notes
    -----
    One run per part and position.
    """
    into = choice(into, "into", ("corrupted", "clean"))
    probe, base, given, chosen, m = _both(model, clean, corrupted, metric, parts, into)
    other = base["other"]
    where: list[int | None] = [None]
    if isinstance(positions, str):
        if choice(positions, "positions", ("all", "each")) == "each":
            where = list(range(_length(chosen, other)))
    else:
        last = _length(chosen, other) - 1
        where = [_position(p, last) for p in positions]
    share = np.zeros((len(chosen), len(where)))
    with meter(progress, "patching") as report:
        for i, part in enumerate(chosen):
            report(i, part.label)
            for j, at in enumerate(where):
                got = _with(probe, given, [(part, other.of(part))], at).output
                share[i, j] = (_number(metric, got) - m[into]) / (m["other"] - m[into])
    labels = tuple("all" if at is None else str(at) for at in where)
    return Patching(tuple(p.label for p in chosen), labels, share, m["clean"], m["corrupted"], into)


def patch_paths(
    model: Any,
    clean: Any,
    corrupted: Any,
    metric: Metric,
    senders: Any,
    receivers: Any = "output",
    *,
    frozen: Any = (),
    into: str = "corrupted",
    progress: Any = None,
) -> Patching:
    """Path patching: how much of the difference goes from one part to another directly.

    Parameters
    ----------
    model, clean, corrupted, metric, into, progress
        As in `patch`.
    senders : as `parts` of `ablate`
        Where paths start.
    receivers : as `parts` of `ablate`, "output" among them
        Where paths end, such as the keys of one head, "h.1.attn.c_attn[64:80]".
    frozen : str or sequence of str
        Modules that keep their value of the run without patching, such as ``"*.mlp"``. All other heads always do.

    Returns
    -------
    Patching
        Senders by receivers.

    Notes
    -----
    First the sender is changed while all other heads and `frozen` keep their values, and what arrives at the receiver
    is noted; then the receiver alone is set to it, and all that follows is computed (Wang and others, 2023). Modules
    that are neither heads nor `frozen` pass the change on. Two runs per pair of sender and receiver.
    """
    into = choice(into, "into", ("corrupted", "clean"))
    probe, base, given, chosen, m = _both(model, clean, corrupted, metric, senders, into)
    other = base["other"]
    ends = []
    for end in (receivers,) if isinstance(receivers, str) else several(receivers, "receivers", "names of parts"):
        ends += [Part("output")] if end == "output" else probe.parts(end, given, "receivers")
    held = [] if frozen in ((), [], None) else probe.parts(frozen, given, "frozen")
    if any(p.is_head for p in held):
        raise InputError("frozen must name modules; heads other than the sender keep their values anyway")
    keep = _modules([*ends, *held])
    own = probe.run(given, keep=keep, heads=True)
    share = np.zeros((len(chosen), len(ends)))
    with meter(progress, "patching paths") as report:
        for i, part in enumerate(chosen):
            report(i, part.label)
            fixed = [(h, own.of(h)) for h in held if h.module != part.module]
            first = _with(probe, given, [*fixed, (part, other.of(part))], keep=keep, heads=own.heads)
            for j, end in enumerate(ends):
                got = first.output if end.label == "output" else _with(probe, given, [(end, first.of(end))]).output
                share[i, j] = (_number(metric, got) - m[into]) / (m["other"] - m[into])
    labels = tuple(e.label for e in ends)
    return Patching(tuple(p.label for p in chosen), labels, share, m["clean"], m["corrupted"], into)


def _both(
    model: Any, clean: Any, corrupted: Any, metric: Any, parts: Any, into: str
) -> tuple[Probe, dict[str, Run], Any, list[Part], dict[str, float]]:
    """The probe, both runs, the base input, the parts, and the metric on both."""
    probe = Probe(model)
    given = {"clean": probe.inputs(clean, "clean"), "corrupted": probe.inputs(corrupted, "corrupted")}
    chosen = probe.parts(parts, given["clean"])
    heads = any(p.is_head for p in chosen)
    runs = {k: probe.run(v, keep=_modules(chosen), heads=heads) for k, v in given.items()}
    for part in chosen:
        shapes = [[tuple(v.shape) for v in runs[k].of(part)] for k in ("clean", "corrupted")]
        if shapes[0] != shapes[1]:
            raise InputError(
                f"{part.label} has shape {shapes[0]} on the clean and {shapes[1]} on the corrupted input; both must be "
                "as long as each other"
            )
    m = {k: _number(metric, run.output) for k, run in runs.items()}
    other = "clean" if into == "corrupted" else "corrupted"
    m["other"], runs["other"] = m[other], runs[other]
    if abs(m["clean"] - m["corrupted"]) <= 1e-6 * max(abs(m["clean"]), abs(m["corrupted"])):
        raise InputError(
            f"metric is {m['clean']:.6g} on the clean and {m['corrupted']:.6g} on the corrupted input: there is no "
            "difference whose share could be given"
        )
    return probe, runs, given[into], chosen, m


def _with(
    probe: Probe,
    given: Any,
    changes: list[tuple[Part, list[Any]]],
    at: int | None = None,
    *,
    keep: Iterable[str] = (),
    heads: list[Any] | None = None,
) -> Run:
    """A run in which parts have other values, at one position or at all; `heads` are the values other heads keep."""
    edits: dict[str, Edit] = {}
    for module in dict.fromkeys(p.module for p, _ in changes if not p.is_head):
        mine = [(p, new) for p, new in changes if p.module == module and not p.is_head]
        edits[module] = lambda k, value, mine=mine: _put(value, mine, k, at)  # type: ignore[misc]
    moved = [(p, new) for p, new in changes if p.is_head]

    def edit(number: int, value: Any) -> Any:
        out = value if heads is None else heads[number]
        for p, new in moved:
            if p.layer == number:
                out = p.put(out, new[0], at)
        return out

    wanted = edit if moved or heads is not None else None
    return probe.run(given, keep=keep, edits=edits, heads=heads is not None, head_edit=wanted)


def _put(value: Any, changes: list[tuple[Part, list[Any]]], call: int, at: int | None) -> Any:
    for part, new in changes:
        value = part.put(value, new[call], at)
    return value


def _replacement(part: Part, value: Any, reference: Any, how: str, same: bool, rng: np.random.Generator) -> Any:
    if how == "zero":
        return value * 0
    if value.shape[1:] != reference.shape[1:] and how == "resample":
        raise InputError(
            f"{part.label} has shape {tuple(reference.shape)} on the reference and {tuple(value.shape)} on the inputs; "
            "rows to resample must be as long as the inputs"
        )
    if how == "mean":
        # all axes but those that tell units apart
        over = (0, 2) if part.is_head else (0, 2, 3) if value.ndim == 4 else tuple(range(value.ndim - 1))
        return reference.mean(over, keepdim=True).expand_as(value).clone()
    n, m = len(value), len(reference)
    if same:
        if m < 2:
            raise InputError('how="resample" needs a reference, or inputs of at least two rows')
        picked = (np.arange(n) + rng.integers(1, m, n)) % m
    else:
        picked = rng.integers(0, m, n)
    return reference[picked.tolist()]


def _modules(parts: list[Part]) -> list[str]:
    return list(dict.fromkeys(p.module for p in parts if p.module))


def _length(parts: list[Part], run: Run) -> int:
    """How many positions all parts have."""
    sizes = set()
    for part in parts:
        value = run.of(part)[0]
        if value.ndim < 3:
            raise InputError(f"{part.label} has shape {tuple(value.shape)}: it has no positions; pass positions='all'")
        sizes.add(int(value.shape[2] if part.is_head else value.shape[1]))
    if len(sizes) > 1:
        raise InputError(f"parts have different numbers of positions ({sorted(sizes)}); patch them in separate calls")
    return sizes.pop()


def _position(value: Any, last: int) -> int:
    if not isinstance(value, (int, np.integer)) or not 0 <= value <= last:
        raise InputError(f"positions must be whole numbers from 0 to {last}, got {describe(value)}")
    return int(value)


def _number(metric: Metric, output: Any) -> float:
    instance_of = metric(output) if callable(metric) else None
    if instance_of is None:
        raise InputTypeError(f"metric must be a function of the model's output, got {describe(metric)}")
    value = np.asarray(instance_of.detach().cpu() if hasattr(instance_of, "detach") else instance_of, np.float64)
    if not np.isfinite(value).all():
        raise InputError(f"metric must give finite numbers, got {value}")
    return float(value.mean())


def _reader(metric: Metric | None) -> Callable[[Any], Any]:
    if metric is None:
        return log_distributions
    if not callable(metric):
        raise InputTypeError(f"metric must be a function of the model's output, got {describe(metric)}")

    def read(output: Any) -> Any:
        value = metric(output)
        array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value, np.float64)
        if array.ndim > 1 or not np.isfinite(array).all():
            raise InputError(f"metric must give one finite number, or one per row, got {describe(array)}")
        return np.atleast_1d(array)

    return read


def _name(metric: Any) -> str:
    name = getattr(metric, "__name__", "metric")
    return "metric" if name == "<lambda>" else str(name)
