"""The law of a network's output (Propositions 2 and 3 of the paper): cdf, pdf, atoms, quantiles, moments, events.

On a cell where the network is affine, `y = C u + d` with `u` Gaussian on a polytope. The law of y is the mixture over
the cells. Two corrections to the source: on a cell the output is the *marginal* of a truncated Gaussian (a truncated
Gaussian only where the affine piece is one-to-one), and a jump of the cdf is an *atom*, the mass of the cells where
the output is constant; truncation alone makes no jump.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray, choice, describe, generator, integer, real, real_array, seeded, several
from reluscope._text import in_dimensions
from reluscope.answer import Answer, Answers, unless_interrupted
from reluscope.answers._output_mixture import Mixture, mixture_of
from reluscope.answers._output_regions import OutputRegions, output_regions
from reluscope.budget import parse_budget
from reluscope.errors import InputError
from reluscope.inputs import ClassMixtures, Law, check_law
from reluscope.intervals import DEFAULT_LEVEL
from reluscope.measure.exactness import LIMITS, is_exact
from reluscope.network import Network, check_network
from reluscope.threads import clean_interrupt
from reluscope.workers import jobs_at_hand, with_jobs

METHODS = ("auto", "enumeration", "lines")


@dataclass(frozen=True, eq=False, repr=False)
class Atoms:
    """Values that an output takes with positive probability, in increasing order, and their masses (Answers, (k,)).

    Attributes
    ----------
    value : (k,) array
    mass : Answers
        Shape (k,).
    """

    value: FloatArray
    mass: Answers

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{v:.6g}: {m:.6g}" for v, m in zip(self.value[:6].tolist(), self.mass.value[:6].tolist(), strict=True)
        )
        more = f", ... {len(self) - 6:,} more" if len(self) > 6 else ""
        return f"Atoms({shown}{more})" if len(self) else "Atoms(none)"


@dataclass(frozen=True, eq=False, repr=False)
class Outputs:
    """What `outputs` returns: the distribution of `y = net(x)` for x from `law`.

    Methods take `output=`, the index of one output, and give `Answers` of the shape of their argument.

    Attributes
    ----------
    network : Network
    law : Law
    guarantee : str
        "exact" when every region was found and measured in closed form or by quadrature (the brackets then bound
        rounding), "sound" when a budget ended the search early (the brackets then also hold the mass not found),
        "confidence" for estimates.
    method : str
    stopped : str or None
        Why the search ended early.
    regions : OutputRegions
        What the sums run over.
    seed : int or None
        The `rng=` that repeats the answer; None where nothing was drawn or a Generator was given.
    """

    network: Network
    law: Law
    guarantee: str
    method: str
    stopped: str | None
    regions: OutputRegions
    seed: int | None = None

    # -- one output ----------------------------------------------------------------------------------------------

    def cdf(self, t: npt.ArrayLike, output: int = 0) -> Answers:
        """`P(y <= t)`: right-continuous, never decreasing in one call, with jumps exactly at `atoms`.

        `t` may hold infinities. Cost in two dimensions: about a microsecond per threshold and straddling region.

        Parameters
        ----------
        t : float or array
            Thresholds.
        output : int
            Index of the output.

        Returns
        -------
        Answers
            Of the shape of `t`.
        """
        return self._both(t, output, self.regions.below)

    def sf(self, t: npt.ArrayLike, output: int = 0) -> Answers:
        """`P(y > t) = 1 - cdf(t)`, summed on its own so that it is accurate where it is small.

        Parameters
        ----------
        t : float or array
        output : int
            Index of the output.

        Returns
        -------
        Answers
            Of the shape of `t`.
        """
        return self._both(t, output, self.regions.above)

    def pdf(self, t: npt.ArrayLike, output: int = 0) -> Answers:
        """Density of the continuous part of y, `sum over regions of P_slice(y = t) / |c|`; it integrates to 1 - atoms.

        A finite number at every finite t; where two regions meet in a level set it is the limit from the right. Zero
        for particles (their output has atoms only).

        Parameters
        ----------
        t : float or array
        output : int
            Index of the output.

        Returns
        -------
        Answers
            Of the shape of `t`.

        Raises
        ------
        InputError
            If the law is seen in more dimensions than densities are exact in.
        """
        o, levels, shape, order = self._levels(t, output)
        finite = np.isfinite(levels)
        value, error = np.zeros(len(levels)), np.zeros(len(levels))
        value[finite], error[finite] = self.regions.density(o, levels[finite])
        upper = np.full(len(levels), np.inf) if self.regions.missing else value + error
        return self._values(order, shape, value, np.maximum(value - error, 0.0), upper)

    def atoms(self, output: int = 0) -> Atoms:
        """The values the output takes with positive probability: regions on which it is constant, equal values merged.

        Values are worked out in fractions and rounded up to a float, so that `cdf` jumps where the network's own values
        are. Where that would take too long, values closer than rounding count as equal, and the brackets of `cdf` and
        `sf` hold both sides there.

        Parameters
        ----------
        output : int
            Index of the output.

        Returns
        -------
        Atoms
        """
        o = self._output(output)
        found = self.regions.atoms[o]
        lower = np.maximum(found.mass - found.error, 0.0)
        upper = np.minimum(found.mass + found.error + self.regions.missing, 1.0)
        return Atoms(found.value, Answers(found.mass, lower, upper, self.guarantee, None, self.method))

    def quantile(self, q: npt.ArrayLike, output: int = 0) -> Answers:
        """`inf {t : P(y <= t) >= q}` for q in (0, 1); exactly the atom where the cdf jumps across q.

        The bracket holds the quantiles of all levels within the cdf's own rounding of q, so it is wide where the cdf
        is flat at q.

        Parameters
        ----------
        q : float or array
            Levels, strictly between 0 and 1.
        output : int
            Index of the output.

        Returns
        -------
        Answers
            Of the shape of `q`.
        """
        o = self._output(output)
        levels = self._checked_q(q)
        flat, rest = levels.ravel(), 1.0 - levels.ravel()
        if self.regions.missing:
            return self._partial_quantile(o, levels)
        value = self._inverse(o, flat, rest)
        _, blur = _ordered(lambda s: self.regions.below(o, s), value)
        _, tail_blur = _ordered(lambda s: self.regions.above(o, s), value)
        blur = np.where(flat > 0.5, tail_blur, blur)
        lower = np.minimum(self._inverse(o, flat - blur, rest + blur, (value, -1.0)), value)
        upper = np.maximum(self._inverse(o, flat + blur, rest - blur, (value, 1.0)), value)
        arrays = [a.reshape(levels.shape) for a in (value, lower, upper)]
        return Answers(arrays[0], arrays[1], arrays[2], self.guarantee, None, self.method)

    # -- all outputs ---------------------------------------------------------------------------------------------

    @property
    def mean(self) -> Answers:
        """`E y`, shape (outputs,): `sum over regions of C E[u 1] + d P`."""
        mean, _, error, _ = self._moments
        if self.regions.missing:
            error = np.full_like(mean, np.inf)
        return Answers(mean, mean - error, mean + error, self.guarantee, None, self.method)

    @property
    def cov(self) -> Answers:
        """Covariance of the outputs, shape (outputs, outputs)."""
        _, cov, _, error = self._moments
        if self.regions.missing:
            error = np.full_like(cov, np.inf)
        return Answers(cov, cov - error, cov + error, self.guarantee, None, self.method)

    @cached_property
    def mixture(self) -> Mixture:
        """The regions of the output's law: masses, parameters and moments of each part, its image and its density."""
        return mixture_of(self.regions, self.guarantee, self.method)

    def joint_pdf(self, y: npt.ArrayLike, outputs: Any = None) -> Answers:
        """Joint density of several outputs (Proposition 3 of the paper), of the part of their law that has one.

        On a region with `y = C u + d` it is the measure of its part where `C u + d = y`, over `sqrt(det C C')`.
        Regions whose image is flat (`mixture.degenerate`) have none: it integrates to 1 minus their mass.

        Parameters
        ----------
        y : (..., k)
            Points; one number for each of the outputs asked for.
        outputs : sequence of int, optional
            Which outputs, all by default.

        Returns
        -------
        Answers
            Of shape (...). At a jump of the density, up to rounding, the bracket holds both sides.

        Raises
        ------
        InputError
            If y or outputs do not fit, or the law is uniform in so many inputs that fibres are not segments.

        Notes
        -----
        Exact for Gaussian laws that the network sees in at most three directions. With as many outputs as directions a
        fibre is a point, with one less a segment, whose mass is a difference of two normal cdfs. Cost: points times
        sides of regions.

        Examples
        --------
        >>> from reluscope import Gaussian, Network, outputs
        >>> out = outputs(Network([([[1.0, 0.0], [1.0, 1.0]], None)]), Gaussian([0.0, 0.0]))
        >>> float(out.joint_pdf([0.0, 0.0]).value.round(6))  # 1 / (2 pi)
        0.159155
        """
        n = self.network.n_outputs
        chosen = range(n) if outputs is None else several(outputs, "outputs", "indices of outputs")
        which = [integer(o, "outputs", low=-n, high=n - 1) % n for o in chosen]
        if not which or len(set(which)) < len(which):
            raise InputError(f"outputs must be indices different from one another, got {describe(outputs)}")
        points = real_array(y, "y")
        if points.ndim == 0 or points.shape[-1] != len(which):
            raise InputError(
                f"y must have {len(which)} numbers in its last axis, one for each output asked for, "
                f"got shape {points.shape}"
            )
        value, lower, upper = self.regions.joint_density(which, points.reshape(-1, len(which)))
        if self.regions.missing:
            upper = np.full_like(upper, np.inf)
        shaped = [a.reshape(points.shape[:-1]) for a in (value, lower, upper)]
        return Answers(shaped[0], shaped[1], shaped[2], self.guarantee, None, self.method)

    def probability(self, rows: tuple[npt.ArrayLike, npt.ArrayLike]) -> Answer:
        """`P(G y <= g)` for `rows = (G, g)`, G of shape (rows, outputs): all inequalities at once.

        Each region is cut by the rows and its part measured. On a region where a row is constant it holds or fails as a
        whole; a value within rounding of the bound counts as on it.

        Parameters
        ----------
        rows : (G, g)
            Arrays of shapes (rows, outputs) and (rows,).

        Returns
        -------
        Answer

        Raises
        ------
        InputError
            If the shapes do not fit the network.
        """
        G, g = self._rows(rows)
        if not len(g):
            return Answer(1.0, 1.0, 1.0, "exact", method="no rows")
        value, error = self.regions.event(G, g)
        lower, upper = max(value - error, 0.0), min(value + error + self.regions.missing, 1.0)
        note = self.stopped or ""
        return Answer(min(value, 1.0), lower, upper, self.guarantee, None, self.method, note)

    def hidden(self, layer: int) -> Outputs:
        """The distribution of a layer's pre-activations (from 0), as outputs; the last layer is the output itself.

        Parameters
        ----------
        layer : int

        Returns
        -------
        Outputs
        """
        return outputs(truncated_network(self.network, self._layer(layer)), self.law)

    # -- text ----------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Mean, covariance, atoms and quartiles of each output, in plain lists."""
        out: dict[str, Any] = {
            "guarantee": self.guarantee,
            "method": self.method,
            "mean": self.mean.to_dict(),
            "cov": self.cov.to_dict(),
        }
        out["outputs"] = [
            {
                "atoms": [
                    {"value": v, "mass": m}
                    for v, m in zip(self.atoms(o).value.tolist(), self.atoms(o).mass.value.tolist(), strict=True)
                ],
                "quantiles": dict(
                    zip(("0.05", "0.25", "0.5", "0.75", "0.95"), self.quantile(_SHOWN, o).value.tolist(), strict=True)
                ),
            }
            for o in range(self.network.n_outputs)
        ]
        return out

    def __repr__(self) -> str:
        state = f", {self.stopped}: brackets allow for {self.regions.missing:.2g} of the mass" if self.stopped else ""
        n = self.network.n_outputs
        return f"Outputs({n} output{'s' * (n > 1)} of {self.network!r}, {self.guarantee}: {self.method}{state})"

    # -- inside --------------------------------------------------------------------------------------------------

    @cached_property
    def _moments(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        return self.regions.moments()

    def _checked_q(self, q: npt.ArrayLike) -> FloatArray:
        levels = real_array(q, "q")
        outside = (levels <= 0) | (levels >= 1)
        if outside.any():
            raise InputError(f"q must lie strictly between 0 and 1, got {float(levels[outside].ravel()[0])}")
        return levels

    def _layer(self, layer: int) -> int:
        return integer(layer, "layer", low=0, high=len(self.network.layers) - 1)

    def _output(self, output: int) -> int:
        n = self.network.n_outputs
        return integer(output, "output", low=-n, high=n - 1) % n

    def _levels(self, t: npt.ArrayLike, output: int) -> tuple[int, FloatArray, tuple[int, ...], npt.NDArray[np.intp]]:
        """The output's index, sorted thresholds, their shape, and the order that sorts them."""
        o = self._output(output)
        levels = check_levels(t)
        order = np.argsort(levels, axis=None, kind="stable")
        return o, levels.ravel()[order], levels.shape, order

    def _values(
        self,
        order: npt.NDArray[np.intp],
        shape: tuple[int, ...],
        value: FloatArray,
        lower: FloatArray,
        upper: FloatArray,
    ) -> Answers:
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        arrays = [a[back].reshape(shape) for a in (value, lower, upper)]
        return Answers(arrays[0], arrays[1], arrays[2], self.guarantee, None, self.method)

    def _both(self, t: npt.ArrayLike, output: int, side: Any) -> Answers:
        o, levels, shape, order = self._levels(t, output)
        value, error = side(o, levels)
        less, more = self.regions.undecided(o, levels)
        if side == self.regions.above:
            less, more = more, less
        lower = np.maximum(value - error - less, 0.0)
        upper = np.minimum(value + error + more + self.regions.missing, 1.0)
        return self._values(order, shape, np.minimum(value, 1.0), np.minimum(lower, 1.0), upper)

    def _rows(self, rows: Any) -> tuple[FloatArray, FloatArray]:
        if not isinstance(rows, (tuple, list)) or len(rows) != 2:
            raise InputError(f"rows must be a pair (G, g) meaning G y <= g, got {describe(rows)}")
        G, g = real_array(rows[0], "G", ndim=2), real_array(rows[1], "g", ndim=1)
        if G.shape != (len(g), self.network.n_outputs):
            raise InputError(
                f"rows needs G of shape (rows, {self.network.n_outputs}) and g of shape (rows,), "
                f"got {G.shape} and {g.shape}"
            )
        return G, g

    def _partial_quantile(self, o: int, levels: FloatArray) -> Answers:
        """Quantiles when some mass was not found: it may lie anywhere, so the cdf is between F and F + missing."""
        q = levels.ravel()
        total = float(self.regions.below(o, np.array([np.inf]))[0][0])
        wanted = np.concatenate([q * total, q - self.regions.missing, q])
        found = self._inverse(o, np.minimum(wanted, total), np.full(len(wanted), np.nan))
        found = np.where(wanted <= 0, -np.inf, np.where(wanted >= total, np.inf, found))
        arrays = [a.reshape(levels.shape) for a in np.split(found, 3)]
        return Answers(arrays[0], arrays[1], arrays[2], self.guarantee, None, self.method)

    def _inverse(
        self, o: int, q: FloatArray, rest: FloatArray, near: tuple[FloatArray, float] | None = None
    ) -> FloatArray:
        """Quantiles at levels q = 1 - rest (both given: each is accurate where it is small; nan asks for q alone).

        Levels outside (0, 1) give the ends of the output's range. `near=(t, sign)` asks for a bound instead: a place
        not far below (sign -1) or above (1) the quantile, found by growing steps from t.
        """
        tail = (q > 0.5) & ~np.isnan(rest)
        low, high = self.regions.limits(o)
        atoms = self.regions.atoms[o]
        under, over = self.regions.below(o, atoms.value)[0], self.regions.above(o, atoms.value)[0]
        # The first atom whose cdf reaches q: it is the answer, or the root lies between it and the atom before.
        k = np.where(
            tail,
            len(over) - np.searchsorted(over[::-1], rest, side="right"),
            np.searchsorted(under, q, side="left"),
        )
        start, stop = np.concatenate([[low], atoms.value])[k], np.concatenate([atoms.value, [high]])[k]
        before = np.concatenate([under - atoms.mass, [np.inf]])[k] < q
        jump = np.where(tail, np.concatenate([over + atoms.mass, [-np.inf]])[k] > rest, before)
        out = np.where(jump, stop, 0.0)
        open_ = np.flatnonzero(~jump & (q > 0) & ~(rest <= 0))
        if len(open_):
            ends = start[open_], stop[open_]
            hint = None if near is None else (near[0][open_], near[1])
            out[open_] = self._roots(o, q[open_], rest[open_], *ends, hint)
        return np.where(q <= 0, low, np.where(rest <= 0, high, out))

    def _roots(
        self, o: int, q: FloatArray, rest: FloatArray, low: FloatArray, high: FloatArray,
        near: tuple[FloatArray, float] | None,
    ) -> FloatArray:  # fmt: skip
        """Roots of `cdf(t) = q` in the brackets; beyond the middle by the upper tail, which has more digits there."""
        tail = (q > 0.5) & ~np.isnan(rest)

        def gap(t: FloatArray, which: npt.NDArray[np.intp]) -> FloatArray:
            out, error = np.empty(len(t)), np.empty(len(t))
            up = tail[which]
            if (~up).any():
                out[~up], error[~up] = _ordered(lambda s: self.regions.below(o, s), t[~up])
                out[~up] -= q[which[~up]]
            if up.any():
                out[up], error[up] = _ordered(lambda s: self.regions.above(o, s), t[up])
                out[up] = rest[which[up]] - out[up]
            return np.where(np.abs(out) <= 0.25 * error, 0.0, out)  # what rounding leaves open is a root

        if near is not None:
            return _stepped(gap, low, high, *near)
        # Draws say where to look: the range of a Gaussian law's output is hundreds of standard deviations wide.
        y = self._drawn[:, o]
        p = np.where(np.isnan(rest) | (q < 0.5), q, 1.0 - rest)
        slack = 5.0 * np.sqrt(p * (1.0 - p) / len(y)) + 2.0 / len(y)
        every = np.arange(len(q))
        for level in (p - slack, p + slack):
            t = y[np.clip((level * len(y)).astype(np.intp), 0, len(y) - 1)]
            inside = np.flatnonzero((t > low) & (t < high))
            if len(inside):
                value = gap(t[inside], every[inside])
                low[inside[value < 0]] = t[inside[value < 0]]
                high[inside[value >= 0]] = t[inside[value >= 0]]
        return bracketed_roots(gap, low, high)

    @cached_property
    def _drawn(self) -> FloatArray:
        """Some outputs, sorted one by one."""
        return np.sort(self.network(self.law.sample(_PILOT_DRAWS, rng=0)), axis=0)


def check_levels(t: npt.ArrayLike, name: str = "t") -> FloatArray:
    """Thresholds as an array; infinities allowed."""
    levels = real_array(t, name, finite=False)
    if np.isnan(levels).any():
        raise InputError(f"{name} must hold numbers or infinities, got nan")
    return levels


_PILOT_DRAWS = 4096
_SHOWN = np.array([0.05, 0.25, 0.5, 0.75, 0.95])


def _ordered(side: Any, t: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A function of sorted thresholds, at thresholds in any order."""
    order = np.argsort(t, kind="stable")
    value, error = np.empty(len(t)), np.empty(len(t))
    value[order], error[order] = side(t[order])
    return value, error


def _stepped(gap: Any, low: FloatArray, high: FloatArray, near: FloatArray, sign: float) -> FloatArray:
    """Bounds on the roots of non-decreasing functions: below them for sign -1, above them for sign 1.

    Steps from `near` grow tenfold until the gap has the sign that proves the bound, or the bracket ends.
    """
    end = low if sign < 0 else high
    step = 8 * EPS * np.maximum(np.abs(near), 1e-3 * (high - low)) + 1e-300
    out = near.copy()
    live = np.arange(len(near))
    while len(live):
        t = near[live] + sign * step[live]
        past = (t - end[live]) * sign >= 0
        out[live] = np.where(past, end[live], t)
        value = gap(out[live], live)
        proved = value < 0 if sign < 0 else value > 0
        live = live[~(past | proved)]
        step[live] *= 10.0
    return out


def bracketed_roots(gap: Any, low: FloatArray, high: FloatArray) -> FloatArray:
    """Leftmost sign changes of non-decreasing functions, all at once: `gap(low) < 0 <= gap(high)`.

    `gap(t, which)` gives the values of function `which[i]` at `t[i]`. Inverse quadratic interpolation where the last
    three points allow it and bisection otherwise (Chandrupatla's rule); stops at neighbouring doubles, at a width of
    4 eps, or where a gap is 0. The end of the bracket where the gap is not negative is returned.
    """
    n = len(low)
    every = np.arange(n)
    a, b = low.copy(), high.copy()
    fa, fb = np.full(n, -1.0), gap(b, every)
    fa = np.minimum(gap(a, every), -np.finfo(float).tiny)
    fb = np.maximum(fb, 0.0)
    c, fc = a.copy(), fa.copy()
    step = np.full(n, 0.5)
    live = every[b > a]
    for _ in range(400):
        if not len(live):
            break
        t = a[live] + step[live] * (b[live] - a[live])
        ft = gap(t, live)
        # Keep (a, b) a bracket with a the newest point; c is the point that a or b replaced.
        same = (ft < 0) == (fa[live] < 0)
        here, there = live[same], live[~same]
        c[here], fc[here] = a[here], fa[here]
        c[there], fc[there] = b[there], fb[there]
        b[there], fb[there] = a[there], fa[there]
        a[live], fa[live] = t, ft
        width = np.abs(b[live] - a[live])
        # The scale at which doubles cannot be told apart; 1e-300 keeps roots at zero from being chased for ever.
        close = 4 * EPS * np.maximum(np.abs(a[live]), np.abs(b[live])) + 1e-300
        half = np.minimum(0.5, np.where(width > 0, close / np.where(width > 0, width, 1.0), 0.5))
        with np.errstate(all="ignore"):
            xi = (a[live] - b[live]) / (c[live] - b[live])
            phi = (fa[live] - fb[live]) / (fc[live] - fb[live])
            alpha = (c[live] - a[live]) / (b[live] - a[live])
            guess = fa[live] / (fb[live] - fa[live]) * fc[live] / (fb[live] - fc[live]) + alpha * fa[live] / (
                fc[live] - fa[live]
            ) * fb[live] / (fc[live] - fb[live])
            fits = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi) & np.isfinite(guess)
        step[live] = np.clip(np.where(fits, guess, 0.5), half, 1.0 - half)
        live = live[(width > close) & (ft != 0)]
    return np.where(fa >= 0, a, b)


def truncated_network(net: Network, layer: int) -> Network:
    """The network whose outputs are the pre-activations of layer `layer` (counted from 0)."""
    kept = [*net.layers[:layer], (net.layers[layer].weight, net.layers[layer].bias)]
    return Network(kept, input_shape=net.input_shape, name=f"{net.name}, layer {layer}")


@clean_interrupt()
@with_jobs
def outputs(
    net: Network,
    law: Law,
    *,
    method: str = "auto",
    level: float = DEFAULT_LEVEL,
    budget: Any = None,
    jobs: Any = None,
    rng: Any = None,
    progress: Any = None,
) -> Outputs:
    """The distribution of `y = net(x)`, x from `law`: cdf, pdf, atoms, quantiles, moments, joint probabilities.

    Parameters
    ----------
    net : Network
    law : Law
        The distribution of the inputs.
    method : {"auto", "enumeration", "lines"}
        "auto" enumerates where that is exact, else integrates along random lines.
    level : float
        Confidence level of each interval by lines.
    budget : optional
        Enumeration: a time or a number of regions. Lines: the time for each question, one second by default.
    jobs : int, optional
        Workers that share the work, -1 for all cores. A budget in counts gives the same answer for any number of them.
    rng : optional
        None, an int, a SeedSequence or a Generator.
    progress : optional
        Where to report progress.

    Returns
    -------
    Outputs

    Raises
    ------
    InputError
        If the law does not fit the network, or "enumeration" is asked for where it is not exact.

    Notes
    -----
    Exact for Gaussian laws (mixtures, singular, truncated) that the network sees in at most three directions, for
    uniform laws in up to six inputs (the pdf in three), and for particles. The regions are found once; each question
    is then a sum over them. A budget that ends the search or the measuring early gives sound brackets;
    `method="lines"` then says more. By lines every question runs anew, and `mixture` is not available.

    Examples
    --------
    >>> from reluscope import Gaussian, Network, outputs
    >>> out = outputs(Network([([[1.0]], [0.0]), ([[1.0]], None)]), Gaussian([0.0]))
    >>> out.cdf([0.0, 1.0]).value.round(6).tolist(), out.atoms()
    ([0.5, 0.841345], Atoms(0: 0.5))
    """
    from reluscope.inputs import standard
    from reluscope.measure.regions import enumerate_law

    check_network(net)
    choice(method, "method", METHODS)
    real(level, "level", low=0.0, high=1.0, open_=True)
    rng, seed = seeded(rng)
    components = standard(law, net)
    unseen = sorted({c.r for c in components if not is_exact(c)})
    if method == "enumeration" and unseen:
        raise InputError(
            f"the network sees this law in {unseen[-1]} dimensions, and its output law is exact in {LIMITS}; "
            'use method="lines"'
        )
    if method == "lines" or unseen:
        from reluscope.answers._by_lines import LineOutputs, seconds_of

        return LineOutputs(
            net,
            law,
            "confidence",
            f"lines or points in {in_dimensions(c.r for c in components)}",
            None,
            OutputRegions((), (), 0.0, net.n_outputs),
            seed,
            level,
            seconds_of(budget),
            int(rng.integers(2**63)),
            jobs_at_hand(),
        )
    parts = enumerate_law(net, law, budget=budget, progress=progress, rng=rng)
    stopped = next((p.regions.stopped for p in parts if p.regions.stopped), None)
    regions = output_regions(parts, net)
    masses = [c.mass for c in regions.components] + [p.mass for p in regions.points]
    dimensions = in_dimensions([*(c.dimension for c in regions.components), *([0] if regions.points else [])])
    return Outputs(
        net,
        law,
        "exact" if stopped is None else "sound",
        f"{sum(map(len, masses)):,} regions in {dimensions}",
        stopped,
        regions,
    )


@dataclass(frozen=True, eq=False)
class ErrorRates:
    """What `error_rates` returns, for the decision "positive when y > threshold"; all of the shape of `threshold`.

    Attributes
    ----------
    threshold : (...) array
    false_positive, false_negative : Answers
        P(y > threshold | negative class) and P(y <= threshold | positive class).
    error : Answers
        Their mean weighted by the classes' probabilities (equal weights when two laws are given).
    """

    threshold: FloatArray
    false_positive: Answers
    false_negative: Answers
    error: Answers


@clean_interrupt()
def error_rates(
    net: Network,
    laws: ClassMixtures | tuple[Law, Law],
    threshold: npt.ArrayLike = 0.0,
    *,
    positive: Any = None,
    output: int = 0,
    budget: Any = None,
    rng: Any = None,
) -> ErrorRates:
    """False positive and false negative rates of a two-class decision, from the output's distribution in each class.

    Parameters
    ----------
    net : Network
    laws : ClassMixtures or (Law, Law)
        The distribution of the inputs in two classes; a pair is (negative, positive).
    threshold : float or array
        The decision is "positive" when the output is above it; several thresholds trace the whole trade-off.
    positive : optional
        The positive class of a `ClassMixtures`, its last label by default.
    output : int
        Index of the output.
    budget, rng : optional
        As in `outputs`; both classes share the budget.

    Returns
    -------
    ErrorRates

    Raises
    ------
    InputError
        If there are not two classes, or a law does not fit the network.

    Examples
    --------
    >>> from reluscope import Gaussian, Network, error_rates
    >>> net = Network([([[1.0]], [0.0]), ([[1.0]], None)])
    >>> found = error_rates(net, (Gaussian([-1.0]), Gaussian([1.0])))
    >>> float(found.error.value.round(6))
    0.158655
    """
    t = check_levels(threshold, "threshold")
    if isinstance(laws, ClassMixtures):
        if len(laws) != 2:
            raise InputError(f"laws must have two classes, got {len(laws)}; join the others first")
        label = laws.labels[-1] if positive is None else positive
        bad: Law
        good: Law = laws[label]
        k = laws.labels.index(label)
        bad, share = laws.laws[1 - k], float(laws.weights[k])
    elif isinstance(laws, (tuple, list)) and len(laws) == 2:
        if positive is not None:
            raise InputError("positive names a class of a ClassMixtures; with two laws the second is the positive one")
        (bad, good), share = (check_law(law, net, f"laws[{i}]") for i, law in enumerate(laws)), 0.5
    else:
        raise InputError(f"laws must be a ClassMixtures or a pair (negative law, positive law), got {describe(laws)}")
    rng, limit = generator(rng), parse_budget(budget)
    first, second = (None, None) if budget is None else (limit.part(0.5), limit)
    of_bad = outputs(net, bad, budget=first, rng=rng)
    unless_interrupted(of_bad.stopped)
    false_positive = of_bad.sf(t, output)
    of_good = outputs(net, good, budget=second, rng=rng)
    unless_interrupted(of_good.stopped)
    false_negative = of_good.cdf(t, output)
    weakest = max((false_positive, false_negative), key=lambda v: ("exact", "sound", "confidence").index(v.guarantee))
    parts = [
        (1.0 - share) * getattr(false_positive, k) + share * getattr(false_negative, k)
        for k in ("value", "lower", "upper")
    ]
    both = Answers(parts[0], parts[1], parts[2], weakest.guarantee, weakest.level, weakest.method)
    return ErrorRates(t, false_positive, false_negative, both)
