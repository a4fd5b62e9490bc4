"""Pictures of laws: the density of a law of two inputs, and how well a law fits a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reluscope._check import real_array
from reluscope.errors import InputError
from reluscope.inputs import Law, LawCheck
from reluscope.plot._axes import EXACT, GREY, axes, expect, name_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_SHARES = (0.5, 0.9, 0.99)
_DRAWS = 20_000
_GRID = 220


def plot_law(law: Law, ax: Axes | None = None, *, points: Any = None, **style: Any) -> Axes:
    """The density of a law of two inputs: shades, and lines around its densest 50, 90 and 99 %.

    Parameters
    ----------
    law : Law
        Of two inputs, with a density.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    points : (N, 2), optional
        Rows to lay over, for instance those the law was fitted to.
    **style
        Goes to `ax.contour`.

    Returns
    -------
    matplotlib Axes
    """
    expect(law, Law, "law", "reluscope.Gaussian(mean, cov)")
    if law.n != 2:
        raise InputError(f"plot_law draws laws of 2 inputs, got {law.n}")
    drawn = law.sample(_DRAWS, 0)
    height = law.density(drawn)
    low, high = np.quantile(drawn, [0.0005, 0.9995], axis=0)
    pad = 0.12 * (high - low)
    x, y = (np.linspace(a, b, _GRID) for a, b in zip(low - pad, high + pad, strict=True))
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    density = law.density(grid).reshape(_GRID, _GRID)
    ax = axes(ax)
    sides = np.ptp(x), np.ptp(y)
    aspect: Any = "equal" if max(sides) < 3 * min(sides) else "auto"  # a round law is round, unless that makes a strip
    ax.imshow(density, origin="lower", extent=(x[0], x[-1], y[0], y[-1]), aspect=aspect, cmap="Blues", alpha=0.9)
    # The draws say which height of the density is exceeded with probability 50, 90 and 99 %.
    levels, first = np.unique(np.quantile(height, [1 - share for share in _SHARES]), return_index=True)
    lines = ax.contour(x, y, density, levels, **({"colors": "#33415c", "linewidths": 0.9} | style))
    names = {level: f"{_SHARES[k]:.0%}" for level, k in zip(levels.tolist(), first.tolist(), strict=True)}
    ax.clabel(lines, fmt=names, fontsize=7)
    if points is not None:
        rows = real_array(points, "points", ndim=2)
        ax.plot(*rows.T, ".", markersize=2, color="#d1495b", alpha=0.6)
    name_axes(ax, "x[0]", "x[1]")
    return ax


def plot_law_check(check: LawCheck, ax: Axes | None = None) -> Axes:
    """The gap of every column between law and table, and what chance would show.

    Parameters
    ----------
    check : LawCheck
        What `law.check(table)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib Axes
    """
    expect(check, LawCheck, "check", "law.check(table)")
    n = len(check.names)
    ax = axes(ax, figsize=(6.0, 0.8 + 0.26 * n))
    ax.barh(np.arange(n), check.ks, color=EXACT)
    ax.axvline(check.ks_noise, color=GREY, linestyle="--", linewidth=1.2, label="99 of 100 right laws are below")
    ax.set_yticks(np.arange(n), check.names)
    ax.invert_yaxis()
    ax.legend(frameon=False, fontsize="small")
    name_axes(ax, "largest gap between the cdf of law and table", "", f"AUC of a classifier {check.auc:.2f}")
    return ax
