"""The picture of a certified data set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reluscope._check import FloatArray
from reluscope._text import count, percent
from reluscope.answers._certificates import Certificates
from reluscope.plot._axes import EXACT, GREY, axes, expect, name_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_certificates(certificates: Certificates, ax: Axes | None = None, **style: Any) -> Axes:
    """The share of rows certified against sigma; plain linear bounds on boxes beside it, if they were asked for.

    Parameters
    ----------
    certificates : Certificates
        What `reluscope.certify(net, X, sigma)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    **style
        Goes to `ax.plot`, for the curve.

    Returns
    -------
    matplotlib Axes
    """
    expect(certificates, Certificates, "certificates", "reluscope.certify(net, X, sigma)")
    found = certificates
    ax = axes(ax, figsize=(6.0, 3.6))
    end = 1.05 * float(max(found.largest.max(), found.sigma.max()))
    at = _steps(found.largest, end)
    marks: dict[str, Any] = {
        "color": EXACT, "linewidth": 2.0, "drawstyle": "steps-pre", "label": f"P(change) ≤ {found.probability:g} proved"
    } | style  # fmt: skip
    # By `largest` alone: what splitting adds holds at single sigmas, which are drawn as points.
    right = np.ones(len(found), bool) if found.correct is None else found.correct
    ax.plot(at, 100 * (right & (found.largest >= at[:, None])).mean(axis=1), **marks)
    ax.plot(found.sigma, 100 * found.share(found.sigma), "o", color=marks["color"], label="at the sigmas asked for")
    if found.box_largest is not None and found.box_mass is not None:
        at = _steps(found.box_largest, end)
        name = f"plain CROWN on boxes of {found.box:g}σ ({percent(found.box_mass)} of the noise)"
        ax.plot(at, 100 * found.box_share(at), "--", color=GREY, linewidth=1.6, drawstyle="steps-pre", label=name)
    # Above the picture: the curves begin at 100 % on the left and may end anywhere.
    ax.legend(frameon=False, fontsize="small", loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2)
    name_axes(ax, "standard deviation σ of the noise", f"share of {count(len(found), 'row')} certified (%)")
    ax.set(xlim=(0.0, end), ylim=(-2.0, 102.0))
    return ax


def _steps(largest: FloatArray, end: float) -> FloatArray:
    """Where the share changes, from 0 on."""
    return np.unique(np.concatenate([[0.0], largest[largest < end], [end]]))
