"""Pictures of how laws grow through layers."""

from __future__ import annotations

from typing import Any

from reluscope.invariance.components import Growth
from reluscope.plot._axes import axes, expect, name_axes


def plot_growth(growth: Growth, ax: Any = None, **style: Any) -> Any:
    """Number of truncated Gaussians (left, bars) and errors of moment matching (right, lines) by layer.

    Parameters
    ----------
    growth : Growth
        What `reluscope.invariance.growth(net, law)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    **style
        Goes to `ax.bar`.

    Returns
    -------
    matplotlib Axes
        That of the bars.
    """
    expect(growth, Growth, "growth", "reluscope.invariance.growth(net, law)")
    ax = axes(ax, figsize=(5.6, 3.6))
    columns = growth.to_dict()
    layer = columns["layer"]
    ax.bar(layer, columns["components"], **({"color": "#c9d6e6", "width": 0.7} | style))
    ax.set(yscale="log", ylim=(0.7, None))
    name_axes(ax, "layer (pre-activations)", "truncated Gaussians in the exact law")
    ax.xaxis.get_major_locator().set_params(integer=True)
    other = ax.twinx()
    for name, colour, label in (
        ("kolmogorov", "#d1495b", "largest error of a cdf"),
        ("mean_error", "#1d6fb8", "error of the mean (in sd)"),
        ("cov_error", "#2e8b57", "error of the covariance"),
    ):
        other.plot(layer, columns[name], "o-", color=colour, markersize=3.5, linewidth=1.4, label=label)
    other.set_ylabel("error of the moment-matched Gaussian")
    other.set_ylim(bottom=0)
    other.legend(frameon=False, fontsize="small", loc="upper left")
    return ax
