"""Events as the text of VNN-LIB properties, in both versions; numbers read back bit for bit."""

from __future__ import annotations

from decimal import Decimal

import numpy as np

from reluscope.errors import InputError
from reluscope.events import Case, Declared, Event, Relation, Tensor, entry_names


def written(event: Event, version: int) -> str:
    """The property that `vnnlib` reads back as this event."""
    event.on_inputs_and_outputs()
    if event.n_inputs == 0 or (version == 1 and event.relation is not None and len(event.relation.networks) > 1):
        raise InputError("VNN-LIB 1.0 speaks of one network, this event of several; write version=2")
    lines = ["; " + " ".join(event.text.split())]
    if version == 1:
        inputs = [f"X_{i}" for i in range(event.n_inputs)]
        outputs = [f"Y_{i}" for i in range(event.n_outputs)]
        lines += [f"(declare-const {name} Real)" for name in (*inputs, *outputs)]
    else:
        relation = event.relation or _plain(event)
        inputs, outputs = list(relation.free), entry_names(relation.networks, "output")
        lines += ["(vnnlib-version <2.0>)", *(line for d in relation.networks for line in _declared(d))]
        lines += _equations(relation)
    cases = [_rows(case, inputs, outputs) for case in event.cases]
    if not cases:
        lines.append(f"(assert (< {inputs[0]} {inputs[0]}))")
    elif len(cases) == 1:
        lines += [f"(assert {row})" for row in cases[0] or ["(<= 0 0)"]]
    else:
        lines.append("(assert (or")
        lines += [f"    (and {' '.join(rows or ['(<= 0 0)'])})" for rows in cases]
        lines.append("))")
    return "\n".join(lines) + "\n"


def number(value: float) -> str:
    """A decimal number without an exponent, which version 2.0 does not know; it rounds to the same float64."""
    return format(Decimal(repr(float(value) + 0.0)), "f")


def _plain(event: Event) -> Relation:
    """The declaration of an event that was not read from a property: one network, its tensors flat."""
    tensors = Tensor("input", "X", "real", (event.n_inputs,)), Tensor("output", "Y", "real", (event.n_outputs,))
    networks = (Declared("N", tensors),)
    return Relation(networks, tuple(entry_names(networks, "input")), None, np.zeros(0))


def _declared(net: Declared) -> list[str]:
    lines = [f"(declare-network {net.name}"]
    lines += [f"    (equal-to {net.equal_to})"] if net.equal_to else []
    lines += [f"    (isomorphic-to {net.isomorphic_to})"] if net.isomorphic_to else []
    for t in net.tensors:
        node = f' "{t.node}"' if t.node else ""
        lines.append(f"    (declare-{t.kind} {t.name} {t.dtype} [{','.join(map(str, t.shape))}]{node})")
    return [*lines, ")"]


def _equations(relation: Relation) -> list[str]:
    """What the inputs that are not free are equal to."""
    out = []
    free = set(relation.free)
    for i, name in enumerate(entry_names(relation.networks, "input")):
        if name not in free:
            row = slice(relation.A.indptr[i], relation.A.indptr[i + 1])
            terms = zip(relation.A.indices[row].tolist(), relation.A.data[row].tolist(), strict=True)
            value = _sum([(relation.free[j], a) for j, a in terms], float(relation.c[i]))
            out.append(f"(assert (== {name} {value}))")
    return out


def _sum(terms: list[tuple[str, float]], constant: float = 0.0) -> str:
    parts = [name if a == 1.0 else f"(* {number(a)} {name})" for name, a in terms]
    parts += [number(constant)] if constant or not parts else []
    return parts[0] if len(parts) == 1 else f"(+ {' '.join(parts)})"


def _rows(case: Case, inputs: list[str], outputs: list[str]) -> list[str]:
    """The box, but for sides that a strict row says again, and the rows."""
    rows, said = [], set()
    for k in range(len(case.g)):
        at = np.flatnonzero(case.A[k]).tolist() if case.reads_inputs[k] else []
        to = np.flatnonzero(case.G[k]).tolist()
        terms: list[tuple[str, float]] = [(inputs[i], float(case.A[k, i])) for i in at]
        terms += [(outputs[j], float(case.G[k, j])) for j in to]
        op = "<" if case.strict[k] else "<="
        if len(terms) == 1:  # the reader divides by the coefficient: a bound of the variable
            name, a = terms[0]
            if at and abs(a) == 1.0:
                said.add((at[0], a > 0, float(case.g[k] / a)))
            left, right, op = name, float(case.g[k] / a), op if a > 0 else op.replace("<", ">")
            rows.append(f"({op} {left} {number(right)})")
        else:
            rows.append(f"({op} {_sum(terms)} {number(float(case.g[k]))})")
    sides = ((case.lower, False, ">="), (case.upper, True, "<="))
    box = [
        f"({op} {inputs[i]} {number(float(side[i]))})"
        for i in np.flatnonzero(np.isfinite(case.lower) | np.isfinite(case.upper)).tolist()
        for side, above, op in sides
        if np.isfinite(side[i]) and (i, above, float(side[i])) not in said
    ]
    return box + rows
