"""The few lines of Python that compute what the page shows."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

import numpy as np

from reluscope.playground.session import View


def python_code(view: View, budgets: Mapping[str, str], methods: Sequence[str]) -> str:
    """A script with the names `answer`, `out`, `models` and `regions` for the numbers beside the picture.

    `methods` are those of `rs.outputs` and of `rs.linear_models`. Numbers are written so that they read back as they
    are; text from the page is quoted, never pasted.
    """
    lines = ["import numpy as np", "import reluscope as rs", "", view.opened.code]
    if view.vary == "own":
        change: list[str | list[float]] = [x for k, v in view.change().items() for x in (f", {k}=", v)]
        if change:
            change[0] = str(change[0]).removeprefix(", ")
            lines.append(_call("law = law.move(", *change, ")"))
    else:
        lines.append(_call("law = rs.Gaussian(", view.at.tolist(), ", cov=", view.variances, ")"))
    lines.append("")
    if view.event:
        lines += [
            f"answer = rs.probability(net, law, {view.event!r}, budget={budgets['event']!r}, rng=0)",
            "print(answer)",
        ]
    how = ["" if method == "auto" else f"method={method!r}, " for method in methods]
    lines += [
        f"out = rs.outputs(net, law, {how[0]}budget={budgets['outputs']!r}, rng=0)",
        "print('mean', out.mean.value, 'sd', np.sqrt(np.diag(out.cov.value)))",
        f"models = rs.linear_models(net, law, {how[1]}budget={budgets['linear_models']!r}, rng=0)",
        "print(models.top(10))",
    ]
    plane = "net"
    if not view.whole:
        A, c = view.frame()
        lines += [
            f"A = np.eye({len(A)})[:, {list(view.axes)!r}]  # the plane that is shown",
            _call("c = np.array(", c.tolist(), ")"),
        ]
        plane = "net.after(A, c)"
    lower, upper = view.lower.tolist(), view.upper.tolist()
    lines += [
        f"regions = rs.regions({plane}, box=({lower!r}, {upper!r}), budget={budgets['picture']!r}, progress=None)",
        "print(regions)",
    ]
    return "\n".join(lines) + "\n"


def _call(*parts: str | list[float]) -> str:
    """Text and lists of numbers in one statement, broken into lines of readable length."""
    text = "".join(part if isinstance(part, str) else _list(part) for part in parts)
    if len(text) <= 110:
        return text
    return textwrap.fill(text, 110, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def _list(values: list[float]) -> str:
    if len(values) > 8 and len(set(values)) == 1:
        return f"np.full({len(values)}, {values[0]!r})"
    return (
        repr([v if v != np.rint(v) or abs(v) > 1e15 else int(v) for v in values]) if len(values) > 8 else repr(values)
    )
