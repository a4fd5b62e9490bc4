"""What came in: rows, responses, names, weights and scalers, checked once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray, any_array, choice, describe, integer, real_array, several
from reluscope._columns import Names, check_rows, columns_of, few, unknown_name
from reluscope.errors import InputError, InputTypeError
from reluscope.local_models._source import arranged
from reluscope.network import Network
from reluscope.schema import input_labels, output_labels

TASKS = ("auto", "regression", "binary", "multiclass")

Index = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Response:
    """The response of each row.

    `task` is `"regression"` (`target` of shape (n, outputs)), `"binary"` or `"multiclass"` (`code`: index into
    `classes`), or `"none"` when no response was given.
    """

    task: str
    target: FloatArray | None = None
    code: Index | None = None
    classes: tuple[Any, ...] = ()

    def part(self, rows: Any) -> Response:
        """The response of some rows."""
        target = None if self.target is None else self.target[rows]
        code = None if self.code is None else self.code[rows]
        return Response(self.task, target, code, self.classes)

    def column(self, output: int) -> FloatArray | None:
        """What output `output` is compared with: the target, or 1 for rows of that class and 0 for others."""
        if self.target is not None:
            return self.target[:, output]
        if self.code is None:
            return None
        wanted = 1 if self.task == "binary" else output
        return (self.code == wanted).astype(np.float64)

    def encode(self, y: Any, n: int) -> Response:
        """New responses in the same terms."""
        if self.task == "none":
            raise InputError("y cannot be compared: this was unwrapped without a response; pass y to unwrap")
        if self.task == "regression":
            assert self.target is not None
            return Response(self.task, _target(y, n, self.target.shape[1]))
        return Response(self.task, None, _codes(_labels(y, n), self.classes), self.classes)


@dataclass(frozen=True, eq=False)
class Scaling:
    """The network's inputs from original ones: `x = scale * original + shift`, feature by feature."""

    scale: FloatArray
    shift: FloatArray

    @property
    def identity(self) -> bool:
        """Whether original numbers are the network's own."""
        return bool((self.scale == 1).all() and (self.shift == 0).all())

    def original(self, x: FloatArray) -> FloatArray:
        """Rows in original units."""
        return (x - self.shift) / self.scale

    def model(self, C: FloatArray, d: FloatArray) -> tuple[FloatArray, FloatArray]:
        """`C x + d` as coefficients and intercepts of the original features."""
        return C * self.scale, d + C @ self.shift


def as_rows(X: Any, net: Network, name: str = "X", names: tuple[Names, ...] = ()) -> Any:
    """`X` as an array of shape (n, inputs), without a copy where possible; a memory map stays on disk.

    A table is read by the names of its columns: those of the network's schema, or one of `names`. Numbers of arrays
    are checked chunk by chunk as they are read (`read`).
    """
    schema = net.schema
    found = columns_of(X)
    if found is not None and schema is not None and schema.columns:
        other = next((n for n in names if set(n) == set(found) != set(schema.names) and len(n) == net.n_inputs), None)
        if other is None:
            return schema.encode(X, name=name)
        if len(other) == len(schema.columns):  # other names for the same columns
            return schema.encode({c: X[n] for c, n in zip(schema.names, other, strict=True)}, name=name)
    X = arranged(X, names, name)
    if isinstance(X, np.memmap) and X.dtype.kind in "fiu":
        rows: Any = X
    else:
        table = None if schema is None or found is not None else schema.positional(X)
        if table is not None and schema is not None and np.shape(X)[1] != net.n_inputs:
            return schema.encode(table, name=name)
        rows = real_array(X, name, finite=False)
    if rows.ndim > 2 and rows.shape[1:] == net.input_shape:
        rows = rows.reshape(len(rows), net.n_inputs)
    if rows.ndim != 2 or rows.shape[1] != net.n_inputs or not len(rows):
        raise InputError(f"{name} must have shape (n, {net.n_inputs}) with n >= 1, got {rows.shape}{_table_hint(net)}")
    if schema is not None and schema.columns and rows is not X and np.isfinite(rows).all():
        schema.warn(rows, name)
    return rows


def _table_hint(net: Network) -> str:
    schema = net.schema
    if schema is None or not schema.columns or len(schema.columns) == net.n_inputs:
        return ""
    return f"; or pass a data frame with the columns {few(schema.names)}"


def read(X: Any, rows: Any, name: str = "X") -> FloatArray:
    """Some rows as finite float64."""
    part = np.ascontiguousarray(X[rows], dtype=np.float64)
    bad = ~np.isfinite(part)
    if bad.any():
        i, j = np.argwhere(bad)[0]
        raise InputError(f"{name} must be finite, got {part[i, j]} in column {j}; drop or fill such rows first")
    return part


def names_of(
    X: Any, given: Any, known: Names | None, n: int, inputs: Names | None = None
) -> tuple[Names, Names | None]:
    """Feature names (as given, else those of the model's `inputs`, else the columns of a data frame, else x0, x1, ...),
    and the names that the columns of new data frames must have (None: any).
    """
    own = columns_of(X)
    if given is None:
        columns = getattr(X, "columns", own)
        given = inputs or ([f"x{k}" for k in range(n)] if columns is None or len(columns) != n else list(columns))
        return tuple(str(g) for g in given), known or own
    if (
        isinstance(given, (str, bytes))
        or not hasattr(given, "__len__")
        or not isinstance(given, (Sequence, np.ndarray))
        or getattr(given, "ndim", 1) != 1
        or len(given) != n
        or not all(isinstance(g, (str, int, np.integer)) for g in given)
    ):
        raise InputError(f"feature_names must be {n} names, one per input, got {describe(given)}")
    names, columns = tuple(str(g) for g in given), known or own
    if columns is not None and names != columns and sorted(names) == sorted(columns):
        i = next(i for i in range(n) if names[i] != columns[i])
        raise InputError(
            f"feature_names has the names of the columns in another order: name {i} is {names[i]!r}, the column "
            f"{columns[i]!r}; leave feature_names out, or reorder the columns of X"
        )
    return names, columns or names


def feature_index(feature: Any, names: Names, name: str) -> int:
    """The number of a feature, from its name or number."""
    if isinstance(feature, str):
        if feature not in names:
            raise unknown_name(feature, names, name)
        return names.index(feature)
    return integer(feature, name, low=0, high=len(names) - 1)


def check_beside(X: Any, y: Any, sample_weight: Any) -> None:
    """Refuse responses and weights that belong to other rows, by their index."""
    check_rows(X, y, "y")
    check_rows(X, sample_weight, "sample_weight")


def weights_of(weight: Any, n: int) -> FloatArray | None:
    """Row weights, positive somewhere and nowhere negative, or None."""
    if weight is None:
        return None
    w = real_array(weight, "sample_weight", ndim=1)
    if len(w) != n or (w < 0).any() or not w.sum() > 0:
        raise InputError(
            f"sample_weight must be {n} numbers >= 0 with a positive sum, got {describe(weight)}"
            + (f" with smallest entry {w.min():g}" if len(w) == n else "")
        )
    return w


def scaling_of(scaler: Any, n: int) -> Scaling | None:
    """A scaler as `x = scale * original + shift`: a fitted scikit-learn scaler, or a pair (centre, scale)."""
    if scaler is None or isinstance(scaler, Scaling):
        return scaler
    if isinstance(scaler, (tuple, list)) and len(scaler) == 2:
        centre, size = real_array(scaler[0], "scaler[0]", ndim=1), real_array(scaler[1], "scaler[1]", ndim=1)
        if len(centre) != n or len(size) != n or (size == 0).any():
            raise InputError(f"scaler must be a pair (centre, scale) of {n} numbers each, scale not 0")
        return Scaling(1.0 / size, -centre / size)
    from reluscope.formats.sklearn import affine_step

    step = affine_step(scaler, "scaler")
    M = np.asarray(step.M)
    if step.bounds is not None or M.ndim != 1 or M.dtype.kind == "i" or len(M) != n or (M == 0).any():
        raise InputError(
            f"scaler must scale and shift each of the {n} features on its own (StandardScaler, MinMaxScaler without "
            f"clip, MaxAbsScaler, RobustScaler, or a pair (centre, scale)), got {type(scaler).__name__}"
        )
    return Scaling(M.astype(np.float64), step.c)


def scaling_of_schema(net: Network) -> Scaling | None:
    """The scaling of a network whose schema has units of its own; None where its numbers are those of the columns."""
    schema = net.schema
    if schema is None or not schema.columns:
        return None
    labels = input_labels(schema, net.n_inputs)
    found = Scaling(np.array([label.scale for label in labels]), np.array([label.shift for label in labels]))
    return None if found.identity else found


def in_original_units(net: Network, scaling: Scaling) -> Network:
    """The same network with a schema whose columns are in original units: tables are scaled as they are read."""
    schema = net.schema
    assert schema is not None
    if len(schema.columns) != net.n_inputs or any(
        c.kind == "category" or (c.scale, c.shift) != (1.0, 0.0) for c in schema.columns
    ):
        raise InputError(
            "scaler must be left out: the schema of this network has categories or units of its own, so tables are in "
            "original units already"
        )

    def moved(pair: tuple[float, float], j: int) -> tuple[float, float]:
        low, high = sorted((float(v) - float(scaling.shift[j])) / float(scaling.scale[j]) for v in pair)
        return low, high

    columns = tuple(
        replace(
            c,
            scale=float(scaling.scale[j]),
            shift=float(scaling.shift[j]),
            support=moved(c.support, j),
            seen=None if c.seen is None else moved(c.seen, j),
            within=None if c.within is None else moved(c.within, j),
            moments=None,  # those of scaled numbers say nothing about original ones
        )
        for j, c in enumerate(schema.columns)
    )
    return net.with_schema(columns=columns)


def results_in_units(net: Network, response: Response | None = None) -> Network:
    """The same network with outputs in the units of its schema.

    A decision by the largest or smallest output compares the network's own numbers. So scalings that differ from output
    to output, or turn the order round, are left alone until the `response` says that nothing is decided.
    """
    schema = net.schema
    if schema is None or all((o.scale, o.shift) == (1.0, 0.0) for o in schema.outputs):
        return net
    one = schema.outputs[0]
    alike = one.scale > 0 and all((o.scale, o.shift) == (one.scale, one.shift) for o in schema.outputs)
    free = response is not None and not response.classes
    return net.in_units(inputs=False) if alike or free else net


def result_names(net: Network) -> Names:
    """What the outputs are called: as the schema has it, else y0, y1, ..."""
    known = net.schema is not None and net.schema.outputs
    return net.schema.output_names if known and net.schema else tuple(f"y{k}" for k in range(net.n_outputs))


@dataclass(frozen=True)
class Units:
    """The units of the numbers in tables: of each input, and of each output where its numbers are in it."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @classmethod
    def of(cls, net: Network, own: bool = False) -> Units:
        """Those of a network's columns; `own`: of the numbers that it takes itself."""
        labels = input_labels(net.schema, net.n_inputs)
        results = output_labels(net.schema, net.n_outputs)
        return cls(
            tuple(label.unit if label.plain or not own else "" for label in labels),
            tuple(label.unit if label.plain else "" for label in results),
        )

    def coefficient(self, output: int, feature: int) -> str:
        """The unit of a coefficient, such as "pts per ft"; empty if nothing is known."""
        unit = self.inputs[feature]
        return " ".join(part for part in (self.outputs[output], f"per {unit}" if unit else "") if part)


def headed(name: str, unit: str) -> str:
    """The head of a column."""
    return f"{name} ({unit})" if unit else name


def prepare(
    net: Network, y: Any, n: int, task: str, classes: Any, known: tuple[Any, ...] | None = None
) -> tuple[Network, Response]:
    """The response in terms of the network's outputs; `known` are the classes of the model, if it has them.

    Two classes and two outputs (softmax) become one output, the difference of the logits. Rules of `task="auto"`: one
    column beside a model with classes, or beside `classes`, is labels; else with one output two distinct labels (whole
    numbers, truth values) are classes, and text always is; with several outputs a column of labels is classes;
    everything else is a number to be predicted.
    """
    choice(task, "task", TASKS)
    if known is not None and (classes is not None or len(known) != max(2, net.n_outputs)):
        known = None
    if y is None:
        if task != "auto":
            raise InputError(f"task={task!r} needs y, the response of each row")
        return net, Response("none", classes=known or ())
    _check_length(y, n)
    kind = _guess(net, y, classes, known) if task == "auto" else task
    if kind == "regression":
        return net, Response("regression", _target(y, n, net.n_outputs))
    labels = _labels(y, n)
    if kind == "binary" and net.n_outputs > 2:
        raise InputError(f'task="binary" needs a network with 1 or 2 outputs, got {net.n_outputs}')
    found = _classes(labels, known if classes is None else classes, kind, net.n_outputs)
    response = Response(kind, None, _codes(labels, found), found)
    if kind == "binary" and net.n_outputs == 2:
        smallest = net.schema is not None and net.schema.rule == "smallest"
        net = net.then([[1.0, -1.0] if smallest else [-1.0, 1.0]])  # above 0: the second class
    return net, response


def _check_length(y: Any, n: int) -> None:
    """The length before anything else: every other message would mislead."""
    shape = any_array(y, "y", "a list of numbers or labels").shape
    if not shape or shape[0] != n:
        got = f"{shape[0]:,} entries" if shape else describe(y)
        raise InputError(f"y must have one entry for each of the {n:,} rows of X, got {got}")


def _guess(net: Network, y: Any, classes: Any, known: tuple[Any, ...] | None) -> str:
    raw = np.asarray(y)
    column = raw.reshape(-1) if raw.ndim == 2 and raw.shape[1] == 1 else raw
    if column.ndim != 1:
        return "regression"
    given = known if classes is None else several(classes, "classes", "labels")
    if given is not None:
        return "binary" if len(given) == 2 else "multiclass"
    if column.dtype.kind in "OUT":
        return (
            "binary" if net.n_outputs == 1 or (net.n_outputs == 2 and len(set(column.tolist())) <= 2) else "multiclass"
        )
    labels = column.dtype.kind != "f" or bool((column == np.round(column)).all())
    distinct = len(np.unique(column)) if labels else 0
    if net.n_outputs == 1:
        return "binary" if labels and distinct == 2 else "regression"
    if net.n_outputs == 2 and labels and distinct <= 2:
        return "binary"
    return "multiclass" if labels else "regression"


def _labels(y: Any, n: int) -> npt.NDArray[Any]:
    _check_length(y, n)
    raw = np.asarray(y)
    raw = raw.reshape(-1) if raw.ndim == 2 and raw.shape[1] == 1 else raw
    if raw.ndim != 1:
        raise InputError(f"y must hold one label per row of X, got {describe(y)}")
    missing = (
        not np.isfinite(raw).all()
        if raw.dtype.kind == "f"
        else raw.dtype.kind == "O" and any(v is None or (isinstance(v, float) and v != v) for v in raw.tolist())
    )
    if raw.dtype.kind not in "iufbOUST":
        raise InputTypeError(f"y must hold numbers, truth values or texts, got {describe(y)}")
    if missing:
        raise InputError("y must not hold nan or infinite labels; drop or fill such rows first")
    return raw.astype(str) if raw.dtype.kind in "OUT" else raw


def _classes(labels: npt.NDArray[Any], given: Any, kind: str, n_outputs: int) -> tuple[Any, ...]:
    count = 2 if kind == "binary" else n_outputs
    if given is not None:
        known = several(given, "classes", "labels")
        if not all(isinstance(c, (str, bool, int, float, np.generic)) for c in known):
            raise InputTypeError(f"classes must hold numbers or texts, got {describe(given)}")
        if len(known) != count or len(set(known)) != count:
            raise InputError(
                f"classes must be {count} different labels in the order of the outputs, got {describe(given)}"
            )
        return tuple(str(c) for c in known) if labels.dtype.kind == "U" else known
    found = np.unique(labels)
    if len(found) == count:
        return tuple(found.tolist())
    if labels.dtype.kind in "iubf" and set(found.tolist()) <= set(range(count)):
        return tuple(range(count))
    shown = ", ".join(repr(v) for v in found[:6].tolist()) + (", ..." if len(found) > 6 else "")
    raise InputError(
        f"y has {len(found):,} different label{'' if len(found) == 1 else 's'} ({shown}), but the network has {count} "
        "classes; pass classes=, the labels in the order of the outputs"
    )


def _codes(labels: npt.NDArray[Any], classes: tuple[Any, ...]) -> Index:
    known = np.asarray(classes)
    if known.dtype.kind == "U" or labels.dtype.kind == "U":
        known, labels = known.astype(str), labels.astype(str)
    order = np.argsort(known, kind="stable")
    place = np.minimum(np.searchsorted(known[order], labels), len(known) - 1)
    code = order[place]
    wrong = known[code] != labels
    if wrong.any():
        expected = ", ".join(str(c) for c in classes[:10]) + (", ..." if len(classes) > 10 else "")
        raise InputError(
            f"y must hold the classes {expected}, but it has the label {labels[wrong][0].item()!r} "
            f"({int(wrong.sum()):,} of {len(labels):,} labels are not one of the classes); rename the labels, or pass "
            "classes=, yours in the order of the outputs"
        )
    return np.asarray(code, dtype=np.int64)


def _target(y: Any, n: int, outputs: int) -> FloatArray:
    _check_length(y, n)
    target = real_array(y, "y", ndim=(1, 2))
    target = target.reshape(len(target), -1)
    if target.shape != (n, outputs):
        raise InputError(
            f"y must have shape ({n}, {outputs}), one number per row and output, or one column of class labels, got "
            f"{np.shape(y)}"
        )
    return target
