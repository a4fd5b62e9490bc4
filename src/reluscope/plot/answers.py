"""Pictures of answers: probabilities of linear models, the distribution of an output, Jacobian spectra."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reluscope._check import FloatArray, describe, integer, real_array, several, text
from reluscope.answers.linear_models import LinearModels
from reluscope.answers.outputs import Outputs
from reluscope.answers.spectrum import Spectrum
from reluscope.cells.domain import box_bounds
from reluscope.errors import InputError
from reluscope.plot._axes import DRAWN, EXACT, axes, expect, in_units, name_axes, probability_axis
from reluscope.schema import output_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LONGEST_PATTERN = 24
"""Patterns with more digits are numbered instead of spelt."""


_PIXELS = 220
"""Pixels along each side of a picture of a joint density."""


def plot_masses(
    linear_models: LinearModels,
    ax: Axes | None = None,
    *,
    top: int = 12,
    patterns: Any = None,
    of: str = "draws",
    **style: Any,
) -> Axes:
    """The probabilities of the most probable linear models as bars, with their intervals.

    Parameters
    ----------
    linear_models : LinearModels
        What `reluscope.linear_models(net, law)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    top : int
        How many.
    patterns : (N, units), optional
        Patterns to count and draw beside, for instance `net.pattern(law.sample(N))`.
    of : str
        What these are, for the legend.
    **style
        Goes to `ax.bar`.

    Returns
    -------
    matplotlib Axes
    """
    expect(linear_models, LinearModels, "linear_models", "reluscope.linear_models(net, law)")
    text(of, "of")
    table = linear_models.top(integer(top, "top", low=1))
    ax = axes(ax, figsize=(6.4, 3.6))
    place = np.arange(len(table))
    shift, width = (0.0, 0.8) if patterns is None else (0.2, 0.4)
    mass = table.mass
    gaps = np.maximum(0.0, np.stack([mass.value - mass.lower, mass.upper - mass.value]))
    ax.bar(place - shift, mass.value, width, **({"color": EXACT, "label": mass.guarantee} | style))
    if mass.guarantee == "confidence":
        ax.errorbar(place - shift, mass.value, gaps, fmt="none", ecolor="#222222", elinewidth=1.0, capsize=2.0)
    if patterns is not None:
        net = linear_models.network
        keys, counts = np.unique(net.key(patterns), return_counts=True)
        seen = dict(zip(keys.tolist(), (counts / counts.sum()).tolist(), strict=True))
        drawn = [seen.get(key, 0.0) for key in net.key(table.pattern).tolist()]
        ax.bar(place + shift, drawn, width, color=DRAWN, label=f"{counts.sum():,} {of}")
        ax.legend(frameon=False)
    if table.pattern.shape[1] <= _LONGEST_PATTERN:
        spelt, by = ["".join(map(str, p)) for p in table.pattern.tolist()], ""
        ax.set_xticks(place, spelt, rotation=60, ha="right", fontsize=6)
    else:
        ax.set_xticks(place)
        by = ", by rank"
    title = f"the {len(table)} most probable of {linear_models.support_size:,} linear models"
    name_axes(ax, f"activation pattern{by}", "probability", title)
    return ax


def plot_cdf(
    outputs: Outputs,
    ax: Axes | None = None,
    *,
    output: int = 0,
    t: Any = None,
    draws: Any = None,
    of: str = "draws",
    **style: Any,
) -> Axes:
    """The distribution function `P(y <= t)` of an output, with its band and its atoms.

    Parameters
    ----------
    outputs : Outputs
        What `reluscope.outputs(net, law)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    output : int
        Index of the output.
    t : sequence of float, optional
        Where; by default over the central 99.8 % of the output.
    draws : (N,), optional
        Values of the output to lay over.
    of : str
        What these are, for the legend.
    **style
        Goes to `ax.plot`.

    Returns
    -------
    matplotlib Axes
    """
    expect(outputs, Outputs, "outputs", "reluscope.outputs(net, law)")
    text(of, "of")
    at = _places(outputs, output, t)
    atoms = outputs.atoms(output)
    jumps = np.asarray(atoms.value)[np.asarray(atoms.mass.value) > 1e-3]
    jumps = jumps[(jumps > at[0]) & (jumps < at[-1])]
    at = np.unique(np.concatenate([at, jumps, np.nextafter(jumps, -np.inf)]))  # a jump is upright
    cdf = outputs.cdf(at, output)
    ax = axes(ax, figsize=(5.6, 3.4))
    if cdf.guarantee == "confidence":
        ax.fill_between(at, cdf.lower, cdf.upper, color=EXACT, alpha=0.2, linewidth=0)
    marks: dict[str, Any] = {"color": EXACT, "linewidth": 2.0, "label": cdf.guarantee} | style
    ax.plot(at, cdf.value, **marks)
    if draws is not None:
        y = np.sort(real_array(draws, "draws", ndim=1))
        share = np.searchsorted(y, at, side="right") / len(y)
        ax.plot(at, share, "--", color=DRAWN, linewidth=1.2, label=f"{len(y):,} {of}")
        ax.legend(frameon=False)
    for value, mass in zip(np.asarray(atoms.value), np.asarray(atoms.mass.value), strict=True):
        if mass > 1e-3 and at[0] <= value <= at[-1]:
            ax.annotate(f"atom {mass:.3f}", (value, 0.02), fontsize=7, color="#555555", ha="center")
    _name_output(ax, outputs, output)
    name_axes(ax, y="probability of at most this")
    ax.set_ylim(-0.02, 1.02)
    return ax


def plot_joint_pdf(
    outputs: Outputs, ax: Axes | None = None, *, which: Any = (0, 1), view: Any = None, draws: Any = None, **style: Any
) -> Axes:
    """The joint density of two outputs as shades; what has no density is named in the title.

    Parameters
    ----------
    outputs : Outputs
        What `reluscope.outputs(net, law)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    which : (int, int)
        Indices of the two outputs.
    view : (lower, upper), optional
        The part of the plane to show; by default the central 99 % of each output.
    draws : (N, 2), optional
        Values of the two outputs to lay over.
    **style
        Goes to `ax.imshow`.

    Returns
    -------
    matplotlib Axes
    """
    expect(outputs, Outputs, "outputs", "reluscope.outputs(net, law)")
    named = several(which, "which", "indices of outputs")
    pair = [integer(o, "which", low=0, high=outputs.network.n_outputs - 1) for o in named]
    if len(pair) != 2 or pair[0] == pair[1]:
        raise InputError(f"which must name two different outputs, got {describe(which)}")
    if view is None:
        ends = np.array([outputs.quantile([0.005, 0.995], o).value for o in pair]).T
        pad = np.maximum(0.05 * (ends[1] - ends[0]), 1e-9)
        low, high = ends[0] - pad, ends[1] + pad
    else:
        low, high = box_bounds(view, 2, "view")
    steps = (np.arange(_PIXELS) + 0.5) / _PIXELS
    x, y = (a + steps * (b - a) for a, b in zip(low, high, strict=True))
    density = outputs.joint_pdf(np.stack(np.meshgrid(x, y), axis=-1), pair).value
    ax = axes(ax)
    # Images of regions differ by orders of magnitude in density: the brightest hundredth is one shade.
    top = float(np.quantile(density[density > 0], 0.99)) if (density > 0).any() else 1.0
    marks: dict[str, Any] = {"cmap": "Blues", "vmin": 0.0, "vmax": top, "interpolation": "nearest"}
    picture = ax.imshow(density, origin="lower", extent=(low[0], high[0], low[1], high[1]), aspect="auto",
                        **(marks | style))  # fmt: skip
    ax.figure.colorbar(picture, ax=ax, label="joint density")
    if draws is not None:
        rows = real_array(draws, "draws", ndim=2)
        ax.plot(*rows.T, ".", markersize=1.5, color=DRAWN, alpha=0.5)
        ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    flat = outputs.mixture.degenerate_mass if len(pair) == outputs.network.n_outputs else 0.0
    title = f"{flat:.3g} of the mass is on lines and points, without a joint density" if flat > 0 else None
    name_axes(ax, title=title)
    labels = output_labels(outputs.network.schema, outputs.network.n_outputs)
    in_units(ax, labels[pair[0]], labels[pair[1]])
    return ax


def plot_pdf(
    outputs: Outputs, ax: Axes | None = None, *, output: int = 0, t: Any = None, draws: Any = None, **style: Any
) -> Axes:
    """The density of an output; its atoms are left out and named in the title.

    Parameters
    ----------
    outputs, ax, output, t, draws, **style
        As for `plot_cdf`.

    Returns
    -------
    matplotlib Axes
    """
    expect(outputs, Outputs, "outputs", "reluscope.outputs(net, law)")
    at = _places(outputs, output, t)
    pdf = outputs.pdf(at, output)
    ax = axes(ax, figsize=(5.6, 3.4))
    if pdf.guarantee == "confidence":
        finite = np.isfinite(pdf.upper)
        ax.fill_between(at[finite], pdf.lower[finite], pdf.upper[finite], color=EXACT, alpha=0.2, linewidth=0)
    if draws is not None:
        y = real_array(draws, "draws", ndim=1)
        counts, edges = np.histogram(y, 60, (float(at[0]), float(at[-1])))
        ax.stairs(counts / len(y) / np.diff(edges), edges, fill=True, color=DRAWN, alpha=0.3, label=f"{len(y):,} draws")
    marks: dict[str, Any] = {"color": EXACT, "linewidth": 1.8, "label": pdf.guarantee} | style
    ax.plot(at, pdf.value, **marks)
    if draws is not None:
        ax.legend(frameon=False)
    constant = float(np.sum(outputs.atoms(output).mass.value))
    if constant > 0:
        name_axes(ax, title=f"without atoms of total probability {constant:.3g}")
    _name_output(ax, outputs, output)
    name_axes(ax, y="density")
    ax.set_ylim(bottom=0.0)
    return ax


def plot_spectrum(spectrum: Spectrum, ax: Axes | None = None, *, rank: int = 0, bins: int = 30, **style: Any) -> Axes:
    """The distribution of a singular value of the Jacobian as a histogram with error bars.

    Marked are the singular values of the expected Jacobian and of the Jacobian at the most probable pattern.

    Parameters
    ----------
    spectrum : Spectrum
        What `reluscope.spectrum(net, law)` gives.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure.
    rank : int
        Which singular value, 0 for the largest.
    bins : int
        Bins of the histogram.
    **style
        Goes to `ax.stairs`.

    Returns
    -------
    matplotlib Axes
    """
    expect(spectrum, Spectrum, "spectrum", "reluscope.spectrum(net, law)")
    shown = spectrum.histogram(rank, bins=bins)
    ax = axes(ax, figsize=(5.6, 3.4))
    marks: dict[str, Any] = {"fill": True, "color": EXACT, "alpha": 0.75} | style
    mass = shown.mass
    ax.stairs(mass.value, shown.edges, **marks)
    middle = 0.5 * (shown.edges[1:] + shown.edges[:-1])
    gaps = np.maximum(0.0, np.stack([mass.value - mass.lower, mass.upper - mass.value]))
    if gaps.max(initial=0.0) > 1e-9:
        ax.errorbar(middle, mass.value, gaps, fmt="none", ecolor="#222222", elinewidth=0.8)
    for value, colour, name in (
        (spectrum.expected.singular[rank], DRAWN, "of the expected Jacobian"),
        (spectrum.modal.singular[rank], "#2a9d55", "at the most probable pattern"),
    ):
        ax.axvline(float(value), color=colour, linewidth=1.3, label=name)
    ax.legend(frameon=False, fontsize="small")
    which = "largest singular value" if rank == 0 else f"singular value {rank}"
    name_axes(ax, f"{which} of the Jacobian", "probability")
    ax.set_ylim(bottom=0.0)
    return ax


def _name_output(ax: Axes, outputs: Outputs, output: int) -> None:
    """The output on the axis: by its name and unit, a logit with its probabilities above."""
    schema = outputs.network.schema
    in_units(ax, output_labels(schema, outputs.network.n_outputs)[output])
    if schema is not None and schema.outputs:
        one = schema.outputs[output]
        if len(schema.outputs) == 1 and (one.link == "sigmoid" or one.calibration):
            probability_axis(ax, one.name, one)


def _places(outputs: Outputs, output: int, t: Any) -> FloatArray:
    """The places asked for, or 400 of them over the output's central 99.8 % and a little beyond."""
    if t is not None:
        at = np.unique(real_array(t, "t", ndim=1))
        if len(at) < 2:
            raise InputError(f"t must hold two places or more, got {len(at)}")
        return at
    low, high = (float(v) for v in np.asarray(outputs.quantile([0.001, 0.999], output).value))
    pad = 0.05 * (high - low) or 0.1 * abs(low) or 0.5
    return np.linspace(low - pad, high + pad, 400)
