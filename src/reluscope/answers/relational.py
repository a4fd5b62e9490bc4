"""Ready questions about two inputs or two networks: monotone, robust, agreement.

Each is an event of a joined network (`reluscope.algebra`), so that the engines of `probability` answer it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reluscope import intervals
from reluscope._check import EPS, FloatArray, choice, describe, integer, real, seeded, several
from reluscope.algebra import stack
from reluscope.answer import Answer, Status, unless_interrupted
from reluscope.answers._largest import largest
from reluscope.answers.outputs import Outputs, outputs
from reluscope.answers.probability import GUARANTEES, probability
from reluscope.answers.witness import Witnesses, witness
from reluscope.budget import Budget, parse_budget
from reluscope.cells.along import along
from reluscope.cells.bounds import box_preactivations
from reluscope.errors import InputError
from reluscope.events import decided, event
from reluscope.inputs import Law, check_law, known_law, only_draws
from reluscope.intervals import DEFAULT_LEVEL
from reluscope.measure.sound import bound_changes
from reluscope.network import Network, check_network
from reluscope.progress import Report, meter
from reluscope.schema import assumed
from reluscope.threads import clean_interrupt

NORMS = ("inf", "2", "1")

_ATTACK_STEPS = 10
_ATTACKED_AT_ONCE = 1024
_WORST_DRAWS = 20_000

_NEVER, _WORTH_A_NOTE = 1e-300, 1e-9
_SOUND_BUDGET = "60s"
_MOST_SWITCHES = 2000
_LINE_ROUNDING = 1e-12
"""How far a place where the decision changes may be off, as a share of the numbers on the line."""


@dataclass(frozen=True, eq=False, repr=False)
class Monotone:
    """How likely an output falls although an input rises, for one input or several.

    Attributes
    ----------
    inputs : tuple of int
    names : tuple of str
        Names of these inputs, or `x[i]`.
    output : int
    step : float or None
        None: derivatives; else how far the input rises.
    falls : tuple of Answer
        One for each input.
    places : tuple of Witnesses
        The most probable inputs where the output falls, one for each input; none where it never does.
    """

    inputs: tuple[int, ...]
    names: tuple[str, ...]
    output: int
    step: float | None
    falls: tuple[Answer, ...]
    places: tuple[Witnesses, ...]

    def to_dict(self) -> dict[str, Any]:
        """The table by rows, fit for JSON."""
        rows = [
            {"input": i, "name": name, **answer.to_dict(), "places": [w.to_dict() for w in found]}
            for i, name, answer, found in zip(self.inputs, self.names, self.falls, self.places, strict=True)
        ]
        return {"output": self.output, "step": self.step, "inputs": rows}

    def __repr__(self) -> str:
        rises = "when it rises" if self.step is None else f"when it rises by {self.step:g}"
        rows = ", ".join(f"{name}: {answer}" for name, answer in zip(self.names, self.falls, strict=True))
        return f"Monotone(P(y[{self.output}] falls {rises}): {rows})"


@clean_interrupt()
def monotone(
    net: Network,
    law: Law,
    input: int | str | Sequence[int | str] | None = None,
    output: int | str = 0,
    *,
    step: float | None = None,
    places: int = 1,
    guarantee: str = "auto",
    tolerance: float | None = None,
    level: float = DEFAULT_LEVEL,
    budget: Any = None,
    rng: Any = None,
    progress: Any = None,
) -> Monotone:
    """How likely an output falls although an input rises, and where.

    Parameters
    ----------
    net : Network
    law : Law
        The distribution of the inputs.
    input : int, str, sequence of these, or None
        Indices or names of inputs; None: all of them, one after the other.
    output : int or str
    step : float, optional
        None: the probability that the derivative is negative. Else that of `net(x + step e_i) < net(x)`.
    places : int
        How many inputs in the event to find for each input; 0: none.
    guarantee, tolerance, level, rng, progress
        As in `probability`, for each input.
    budget : optional
        As in `probability`; a time is shared by the inputs, and a third of it is for `places`.

    Returns
    -------
    Monotone

    Raises
    ------
    InputError
        If an argument does not fit, or the guarantee cannot be given.

    Notes
    -----
    Derivatives are constant on each region: exact where the law is seen in few dimensions, "confidence" above. With a
    step the event is one on outputs, of `net` and a shifted copy of it, so "sound" answers in any dimension.

    Examples
    --------
    >>> from reluscope import Gaussian, Network, monotone
    >>> tent = Network([([[1.0], [-1.0]], None), ([[-1.0, -1.0]], None)])  # -|x|
    >>> monotone(tent, Gaussian([0.0])).falls[0].value
    0.5
    """
    check_law(law, check_network(net))
    choice(guarantee, "guarantee", GUARANTEES)
    o = _index(output, () if net.schema is None else net.schema.output_names, net.n_outputs, "output")
    own = () if net.schema is None else net.schema.inputs
    asked: Sequence[Any] = range(net.n_inputs)
    if input is not None:
        asked = [input] if isinstance(input, (int, str)) else several(input, "input", "indices or names")
    chosen = tuple(_index(i, own, net.n_inputs, "input") for i in asked)
    if not chosen:
        raise InputError("input must name at least one input")
    count = integer(places, "places", low=0, high=1000)
    step = None if step is None else real(step, "step")
    if step is not None and not step > 0:
        raise InputError(f"step must be positive, got {step}")
    limit, (draw, seed) = parse_budget(budget), seeded(rng)
    options: dict[str, Any] = {"guarantee": guarantee, "tolerance": tolerance, "level": level, "progress": progress}
    falls, found = [], []
    for k, i in enumerate(chosen):
        own_limit = _left(limit, 1.0 / (len(chosen) - k))
        text, asked_net = f"J[{o},{i}] < 0", net
        if step is not None:
            shift = np.zeros(net.n_inputs)
            shift[i] = step
            asked_net = stack({"here": net, "there": net.after(np.eye(net.n_inputs), shift)})
            text = f"there.y[{o}] < here.y[{o}]"
        rngs = draw.spawn(2)
        part = own_limit.part(2.0 / 3.0) if count else own_limit
        answer = probability(asked_net, law, text, budget=part, rng=rngs[0], **options)
        unless_interrupted(answer)
        falls.append(replace(answer, seed=seed if answer.guarantee == "confidence" else None))
        never = answer.upper == 0 and answer.guarantee != "confidence"
        if never or not count:
            found.append(Witnesses((), never, "it never happens" if never else "not looked for"))
        else:
            seconds = min(_left(own_limit, 1.0).seconds, 5.0)
            found.append(_places(asked_net, law, text, count, seconds, rngs[1]))
    names = tuple(own[i] if own else f"x[{i}]" for i in chosen)
    return Monotone(chosen, names, o, step, tuple(falls), tuple(found))


def _places(net: Network, law: Law, text: str, count: int, seconds: float, rng: np.random.Generator) -> Witnesses:
    """Inputs in the event; none, with the reason, under a law that witnesses cannot be ranked by."""
    try:
        return witness(net, law, text, count, budget=seconds, rng=rng)
    except InputError as error:
        return Witnesses((), False, str(error))


def _index(value: Any, names: Sequence[str], size: int, what: str) -> int:
    if isinstance(value, str):
        if value not in names:
            raise InputError(f"no {what} is called {value!r}")
        return list(names).index(value)
    return integer(value, what, low=0, high=size - 1)


# -- robustness ----------------------------------------------------------------------------------------------------


@clean_interrupt()
def robust(
    net: Network,
    law: Law,
    radius: float,
    norm: str = "inf",
    *,
    draws: int = 1000,
    guarantee: str = "auto",
    tolerance: float | None = None,
    level: float = DEFAULT_LEVEL,
    budget: Any = None,
    rng: Any = None,
    progress: Any = None,
) -> Answer:
    """How likely it is that the decision at x changes somewhere within a radius of x.

    Parameters
    ----------
    net : Network
        Its decision is the largest output, or the rule of its schema.
    law : Law
        The distribution of x.
    radius : float
        How far the input may move.
    norm : {"inf", "2", "1"}
        By which distances are measured.
    draws : int
        Inputs that are drawn for "confidence".
    guarantee : {"auto", "exact", "sound", "confidence"}
        "exact" is for one input, "sound" for laws with a density and up to about six inputs. "auto": exact, else
        confidence.
    tolerance : float, optional
        Half the width of the bracket wanted of "sound".
    level : float
        Confidence level.
    budget : optional
        A time: draws that it does not allow for are left out. For "sound" as in `probability`; 60 s if there is neither
        a budget nor a tolerance.
    rng : optional
        None, an int, a SeedSequence or a Generator.
    progress : optional
        As in `probability`.

    Returns
    -------
    Answer
        The probability that the decision is not robust.

    Raises
    ------
    InputError
        If an argument does not fit, or the guarantee cannot be given.

    Notes
    -----
    - exact: with one input all places where the decision changes are known.
    - sound: `lower <= P <= upper` for certain. Boxes of inputs are split; on each, linear bounds of the margins over
      the box and all moves tell how much of it surely keeps its decision, and how much surely does not. Moves are not
      split, so the bracket keeps a width, which is small if few units change sign within the radius.
    - confidence: `lower` counts draws whose decision was seen to change (a search by gradients), `upper` all draws but
      those that are proved to keep it (linear bounds on the box around them; for the norms 2 and 1 that box is larger
      than the ball), each with its confidence bound; `value` is the share seen to change.

    Examples
    --------
    >>> from reluscope import Network, Uniform, robust
    >>> net = Network([([[1.0]], [0.0])])  # decides by the sign of x
    >>> round(robust(net, Uniform([-1.0], [1.0]), 0.1).value, 12)
    0.1
    >>> plane = Network([([[1.0, 1.0]], [0.0])])  # decides by the sign of x + y
    >>> sure = robust(plane, Uniform([-1.0, -1.0], [1.0, 1.0]), 0.1, guarantee="sound", tolerance=0.001)
    >>> sure.lower <= 0.19 <= sure.upper, sure.upper - sure.lower < 0.002
    (True, True)
    """
    check_law(law, check_network(net))
    r = real(radius, "radius")
    if not r > 0:
        raise InputError(f"radius must be positive, got {radius}")
    choice(norm, "norm", NORMS)
    choice(guarantee, "guarantee", GUARANTEES)
    level = real(level, "level", low=0.0, high=1.0, open_=True)
    wanted = None if tolerance is None else real(tolerance, "tolerance", low=0.0, high=1.0, open_=True)
    n = integer(draws, "draws", low=1, high=10_000_000)
    limit, (draw, seed) = parse_budget(budget), seeded(rng)
    scores = net.deciding()
    if scores.n_outputs == 1:  # the sign: as two outputs
        scores = scores.then([[0.0], [1.0]])
    if guarantee == "sound" and budget is None and wanted is None:
        limit = parse_budget(_SOUND_BUDGET)
    if guarantee == "exact" and net.n_inputs > 1:
        raise InputError(
            f'robustness is exact for one input, this network has {net.n_inputs}; ask for "sound" or "confidence"'
        )
    with meter(progress, "robust") as report:
        if guarantee == "sound":
            return _with_assumption(bound_changes(scores, law, r, norm, limit, wanted, report), net)
        if net.n_inputs == 1 and guarantee != "confidence" and (guarantee == "exact" or not only_draws(law)):
            return _with_assumption(_robust_on_a_line(scores, law, r), net)
        broken, kept, done = _robust_draws(scores, law, n, r, norm, limit, draw, report)
    each = 1.0 - (1.0 - level) / 2.0
    lower = intervals.binomial(broken, done, each, side="lower")[0]
    upper = intervals.binomial(done - kept, done, each, side="upper")[1]
    note = f"{broken} of {done:,} draws were seen to change, {kept} were proved to keep their decision"
    status = Status.DONE if done == n else Status.BUDGET
    method = "attacks by gradients, and linear bounds around draws"
    share = broken / done
    found = Answer(share, min(lower, share), max(upper, share), "confidence", level, method, note, done, status=status,
                   seed=seed)  # fmt: skip
    return _with_assumption(found, net)


def _assumption(net: Network) -> str:
    """What is assumed about the decision of a network whose schema has no rule."""
    return assumed(net.schema, net.n_outputs, None, 'rule="smallest" in the schema').removesuffix(".")


def _with_assumption(answer: Answer, net: Network) -> Answer:
    return replace(answer, note="; ".join(filter(None, [answer.note, _assumption(net)])))


def _robust_draws(
    scores: Network, law: Law, n: int, r: float, norm: str, limit: Budget, rng: np.random.Generator, report: Report
) -> tuple[int, int, int]:
    """How many draws were seen to change, how many are proved to keep their decision, and of how many."""
    scout, draw = rng.spawn(2)
    at_once = limit.afford(
        lambda k: _attacked(scores, law.sample(k, scout), r, norm, scout), _ATTACKED_AT_ONCE, 0.3, least=1
    )
    X = law.sample(n, draw)
    broken, kept, done = 0, 0, 0
    for start in range(0, n, at_once):
        part = X[start : start + at_once]
        hit = _attacked(scores, part, r, norm, draw)
        for x, seen in zip(part, hit.tolist(), strict=True):
            if done and limit.spent() is not None:
                break
            done += 1
            broken += seen
            kept += not seen and _keeps(scores, x, r)
            report(done, f"{broken} seen to change, {kept} proved to keep their decision")
        if limit.spent() is not None:
            break
    return broken, kept, done


def _robust_on_a_line(scores: Network, law: Law, r: float) -> Answer:
    """All changes of the decision along the line are known: an event on x."""
    (low, high), (first, last) = law.far_box(), law.support()
    a, b = float(low[0]) - r, float(high[0]) + r
    found = _switches(scores, a, b)
    if len(found) > _MOST_SWITCHES:
        raise InputError(f"the decision changes {len(found):,} times, more than {_MOST_SWITCHES:,}")
    sure = [place for place in found if place.sure]
    # What rounding may do to the places, and to changes that are in doubt.
    least = _near(law, [(p.x, r - p.error) for p in sure if p.error < r])
    most = _near(law, [(p.x, r + p.error) for p in found])
    value = _near(law, [(p.x, r) for p in sure])
    lower, upper = min(least.lower, value.lower), max(most.upper, value.upper)
    if not (np.isfinite(first[0]) and np.isfinite(last[0])):
        upper = max(upper, _NEVER)
    many = f"{len(sure):,} place{'s' * (len(sure) != 1)}"
    method = f"the decision changes at {many}" if sure else "the decision never changes"
    note = value.note
    if len(sure) < len(found):
        doubtful = len(found) - len(sure)
        note = f"rounding cannot tell whether the decision changes at {doubtful:,} place{'s' * (doubtful > 1)} more"
    elif upper - lower > _WORTH_A_NOTE:
        note = "rounding moves the places where the decision changes, or inputs sit at the edge of the radius"
    return replace(value, lower=lower, upper=upper, method=method, note=note)


def _near(law: Law, places: list[tuple[float, float]]) -> Answer:
    """How likely x is within its radius of one of the places, given as (place, radius)."""
    ends: list[list[float]] = []
    for low, high in sorted((s - r, s + r) for s, r in places):
        if ends and low <= ends[-1][1]:
            ends[-1][1] = max(ends[-1][1], high)
        else:
            ends.append([low, high])
    if not ends:
        return Answer(0.0, 0.0, 0.0, "exact", evaluations=0)
    text = " or ".join(f"{low!r} <= x[0] <= {high!r}" for low, high in ends)
    return probability(Network([([[1.0]], [0.0])]), law, text, guarantee="exact")


class _Switch(NamedTuple):
    """A place where the decision changes (`sure`) or may change, and how far it may be off."""

    x: float
    error: float
    sure: bool


def _switches(scores: Network, a: float, b: float) -> list[_Switch]:
    """Where the largest output changes between a and b, for good or at a single point."""
    path = along(scores, [a], [b])
    t = np.unique(np.concatenate([[0.0], np.asarray(path.breaks(0)), [1.0]]))
    x = a + (b - a) * t
    y = scores(x[:, None])
    m = scores.n_outputs
    rounding = _output_error(scores, max(abs(a), abs(b)))
    cuts = dict.fromkeys(x[1:-1].tolist(), 0.0)
    for k in range(len(x) - 1):
        for i in range(m):
            d = y[k, i] - y[k, i + 1 :], y[k + 1, i] - y[k + 1, i + 1 :]
            for d0, d1 in zip(d[0].tolist(), d[1].tolist(), strict=True):
                if (d0 < 0) != (d1 < 0) and d0 != d1:
                    place = float(x[k] + (x[k + 1] - x[k]) * d0 / (d0 - d1))
                    error = 2.0 * rounding * float(x[k + 1] - x[k]) / abs(d0 - d1)
                    cuts[place] = max(cuts.get(place, 0.0), min(error, b - a))
    points = np.array(sorted(cuts))
    if not len(points):
        return []
    ends = np.concatenate([[a], points, [b]])
    between, at = _decisions(scores, 0.5 * (ends[1:] + ends[:-1])), _decisions(scores, points)
    found = []
    for place, left, right, here in zip(points.tolist(), between[:-1], between[1:], at, strict=True):
        error = cuts[place] + _LINE_ROUNDING * (abs(a) + abs(b))
        own = {*left, *right}
        if len(left) == len(right) == 1 and left != right:
            found.append(_Switch(place, error, True))
        elif len(own) > 1:
            found.append(_Switch(place, error, False))
        elif here != left:  # a tie at a single point: a change, if it is there in exact arithmetic
            found.append(_Switch(place, error, len(here) == 1))
        elif _touched(scores, place, next(iter(own)), rounding):
            found.append(_Switch(place, error, False))
    return found


def _decisions(scores: Network, x: FloatArray) -> list[set[int]]:
    """The largest output at each point in exact arithmetic; several where that cannot be told."""
    y = scores(x[:, None])
    rounding = _output_error(scores, float(np.abs(x).max(initial=0.0)))
    top = y.max(axis=1)
    close = y >= (top - 2.0 * rounding)[:, None]
    out = [{int(i)} for i in y.argmax(axis=1)]
    for k in np.flatnonzero(close.sum(axis=1) > 1).tolist():
        out[k] = set()
        for i in np.flatnonzero(close[k]).tolist():
            asked = event(f"argmax == {i}", 1, scores.n_outputs)
            if decided(scores, asked, x[k : k + 1, None])[1][0]:
                out[k].add(i)
    return out


def _touched(scores: Network, x: float, own: int, rounding: float) -> bool:
    """Whether an output that would win a tie comes as near to the largest as rounding can tell."""
    y = scores([[x]])[0]
    return bool((y[:own] >= y[own] - 2.0 * rounding).any())


def _output_error(net: Network, size: float) -> float:
    """What rounding may do to an output at inputs up to this size."""
    for layer in net.layers:
        size = float(abs(layer.weight).sum(axis=1).max()) * size + float(np.abs(layer.bias).max())
        size = float(np.abs(layer.units.slopes).max()) * size + float(np.abs(layer.units.intercepts).max())
    return 2.0 * EPS * (sum(net.widths) + 8 * len(net.layers)) * size


def _attacked(scores: Network, X: FloatArray, r: float, norm: str, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Which rows were seen to change their decision within the radius: ascent of every other output's lead.

    A lead counts if it is more than rounding, and the decision at the row itself must be beyond doubt.
    """
    own = scores(X).argmax(axis=1)
    rows = np.arange(len(X))
    hit = np.zeros(len(X), bool)
    rounding = 2.0 * _output_error(scores, float(np.abs(X).max(initial=0.0)) + r)

    def leads(Z: FloatArray) -> tuple[FloatArray, npt.NDArray[np.intp]]:
        """By how much the best other output is ahead of the row's own, and which it is."""
        y = scores(Z)
        mine = y[rows, own]
        y[rows, own] = -np.inf
        return y.max(axis=1) - mine, y.argmax(axis=1)

    Z = X + _on_sphere(rng.normal(size=X.shape), r, norm) * 0.5
    for step in range(_ATTACK_STEPS):
        ahead, rival = leads(Z)
        hit |= ahead > rounding
        J = scores.jacobian(Z)
        slope = J[rows, rival] - J[rows, own]
        size = r * 2.0 / (1.0 + step)
        Z = X + _inside(Z + _on_sphere(slope, size, norm) - X, r, norm)
        hit |= leads(X + _on_sphere(slope, r, norm))[0] > rounding
    for k in np.unique(own[hit & (leads(X)[0] > -rounding)]).tolist():  # ties, maybe
        some = np.flatnonzero(hit & (own == k))
        hit[some] = decided(scores, event(f"argmax == {k}", scores.n_inputs, scores.n_outputs), X[some])[0]
    return hit


def _on_sphere(D: FloatArray, r: float, norm: str) -> FloatArray:
    """The step of length r that rises most along D."""
    if norm == "inf":
        return r * np.sign(D)
    if norm == "2":
        return r * D / np.maximum(np.linalg.norm(D, axis=1, keepdims=True), 1e-300)
    out = np.zeros_like(D)
    at = np.abs(D).argmax(axis=1)
    out[np.arange(len(D)), at] = r * np.sign(D[np.arange(len(D)), at])
    return out


def _inside(D: FloatArray, r: float, norm: str) -> FloatArray:
    """Steps shortened to the radius."""
    if norm == "inf":
        return np.clip(D, -r, r)
    size = np.linalg.norm(D, 2 if norm == "2" else 1, axis=1, keepdims=True)
    return D * np.minimum(1.0, r / np.maximum(size, 1e-300))


def _keeps(scores: Network, x: FloatArray, r: float) -> bool:
    """Whether linear bounds prove that the decision is the same on the box around x."""
    own = int(scores(x).argmax())
    m = scores.n_outputs
    lead = np.delete(np.eye(m)[own] - np.eye(m), own, axis=0)
    last = scores.then(lead).layers[-1]
    margins = Network([*scores.hidden, (last.weight, last.bias, "relu")])  # outputs as units, for their bounds
    low, high = np.nextafter(x - r, -np.inf), np.nextafter(x + r, np.inf)
    rounding = _output_error(margins, float(max(np.abs(low).max(), np.abs(high).max())))
    return bool((box_preactivations(margins, low, high)[-1].lower > rounding).all())


# -- two networks --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Agreement:
    """How two networks differ under a law.

    Attributes
    ----------
    alike : Answer
        How likely they decide alike.
    difference : Outputs
        The law of `f(x) - g(x)`: quantiles, cdf, moments of each output.
    worst : float
        The largest difference of an output that was found.
    worst_input : (inputs,) array
        Where.
    worst_bound : float
        No difference is larger anywhere in the support of the law; infinite if that is unbounded.
    regions : tuple of dict
        The common regions that carry most of the mean absolute difference, by draws: `share` of it, `mass`, the mean
        `difference` there and an input `x`.
    """

    alike: Answer
    difference: Outputs
    worst: float
    worst_input: FloatArray
    worst_bound: float
    regions: tuple[dict[str, Any], ...]

    def distance(self, p: float = 2) -> Answer:
        """The distance of the networks weighted by the law.

        Parameters
        ----------
        p : {1, 2, inf}
            The mean of `sum_k |g_k|` for the difference g, the root of the mean of `sum_k g_k^2`, or the largest
            `|g_k|` (of those found, up to `worst_bound`).

        Returns
        -------
        Answer
        """
        if isinstance(p, bool) or not isinstance(p, (int, float)) or p not in (1, 2, inf):
            raise InputError(f"p must be 1, 2 or inf, got {describe(p)}")
        if p == inf:
            return Answer(
                self.worst, self.worst, self.worst_bound, "sound", method="the largest found; linear bounds above"
            )
        apart, law, level = self.difference.network, self.difference.law, getattr(self.difference, "level", None)
        if p == 1:
            fold = np.concatenate([np.eye(apart.n_outputs), -np.eye(apart.n_outputs)])
            sizes = Network([(fold, None), (np.ones((1, len(fold))), None)]) @ apart  # sum_k max(g_k, 0) + max(-g_k, 0)
            return outputs(sizes, law, rng=self.difference.seed).mean[0]
        mean, cov = self.difference.mean, self.difference.cov
        nearest = np.where(mean.lower * mean.upper < 0, 0.0, np.minimum(np.abs(mean.lower), np.abs(mean.upper)))
        farthest = np.maximum(np.abs(mean.lower), np.abs(mean.upper))
        ends = (
            float(np.sqrt((np.diagonal(cov.value) + mean.value**2).sum())),
            float(np.sqrt((np.maximum(np.diagonal(cov.lower), 0.0) + nearest**2).sum())),
            float(np.sqrt((np.diagonal(cov.upper) + farthest**2).sum())),
        )
        kept = level if mean.guarantee == "confidence" else None
        return Answer(*ends, mean.guarantee, kept, method="from the mean and covariance of the difference")

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, fit for JSON."""
        return {
            "alike": self.alike.to_dict(),
            "difference": self.difference.to_dict(),
            "worst": self.worst,
            "worst_input": self.worst_input.tolist(),
            "worst_bound": self.worst_bound if np.isfinite(self.worst_bound) else None,
            "regions": [{**row, "x": row["x"].tolist()} for row in self.regions],
        }

    def __repr__(self) -> str:
        return f"Agreement(alike {self.alike}; largest difference found {self.worst:.4g} (<= {self.worst_bound:.4g}))"


@clean_interrupt()
def agreement(
    net: Network,
    other: Network,
    law: Law,
    *,
    guarantee: str = "auto",
    tolerance: float | None = None,
    level: float = DEFAULT_LEVEL,
    budget: Any = None,
    rng: Any = None,
    progress: Any = None,
) -> Agreement:
    """How often two networks decide alike, how far apart they are, and where: for a retrained or rounded network.

    Parameters
    ----------
    net, other : Network
        With equally many inputs and outputs. Each decides by its schema's rule, else by the largest output (one
        output: by its sign).
    law : Law
        The distribution of the inputs.
    guarantee, tolerance, level, rng, progress
        As in `probability`, for `alike`.
    budget : optional
        Two fifths of a time are for `alike`, a tenth or more for `difference`, the rest for the largest difference and
        its bound; a number of regions limits each enumeration.

    Returns
    -------
    Agreement

    Raises
    ------
    InputError
        If the networks do not fit each other or the law.

    Examples
    --------
    >>> from reluscope import Gaussian, Network, agreement, quantised
    >>> net = Network([([[1.0], [-0.3]], None), ([[1.0, 0.4]], [-0.2])])
    >>> found = agreement(net, quantised(net, "float16"), Gaussian([0.0]), rng=0)
    >>> found.alike.value > 0.999, found.worst < 0.01
    (True, True)
    """
    known_law(law, check_network(net))
    check_network(other, "other")
    if (net.n_inputs, net.n_outputs) != (other.n_inputs, other.n_outputs):
        raise InputError(
            "net and other must have equally many inputs and outputs, got "
            f"{net.n_inputs} -> {net.n_outputs} and {other.n_inputs} -> {other.n_outputs}"
        )
    limit, (draw, seed) = parse_budget(budget), seeded(rng)
    rngs = draw.spawn(4)
    text = "argmax f == argmax g"
    if net.n_outputs == 1:
        text = "(f.y[0] > 0 and g.y[0] > 0) or (f.y[0] <= 0 and g.y[0] <= 0)"
    both = stack({"f": net.deciding(), "g": other.deciding()})
    alike = probability(
        both, law, text, guarantee=guarantee, tolerance=tolerance, level=level, budget=limit.part(0.4), rng=rngs[0],
        progress=progress,
    )  # fmt: skip
    unless_interrupted(alike)
    alike = _with_assumption(replace(alike, seed=None if alike.guarantee != "confidence" else seed), net)
    apart = net - other
    spread = outputs(apart, law, level=level, budget=_left(limit, 0.15), rng=rngs[1], progress=progress)
    unless_interrupted(spread.stopped)
    n = limit.afford(lambda n: _carriers(net, other, law.sample(n, rngs[3])), _WORST_DRAWS, 0.2, least=256)
    X = law.sample(n, rngs[2])
    found = _carriers(net, other, X)
    worst, at, bound = _worst(apart, law, X, _left(limit, 1.0), rngs[2])
    return Agreement(alike, spread, worst, at, bound, found)


def _left(limit: Budget, share: float) -> Budget:
    """A share of what is left of a budget, as one that begins now; a little where nothing is left."""
    seconds = share * max(limit.seconds - limit.elapsed(), 0.1 * limit.seconds)
    return Budget(seconds, limit.regions, whole=limit.whole or limit.seconds)


def _worst(
    apart: Network, law: Law, X: FloatArray, limit: Budget, rng: np.random.Generator
) -> tuple[float, FloatArray, float]:
    """The largest output in absolute value: the best draws, moved uphill inside the support; and a bound on all."""
    low, high = law.support()
    if np.isfinite(low).all() and np.isfinite(high).all():
        return largest(apart, low, high, X, limit, rng)
    size = np.abs(apart(X)).max(axis=1)
    best = int(size.argmax())
    return float(size[best]), X[best], float("inf")


def _carriers(net: Network, other: Network, X: FloatArray, most: int = 10) -> tuple[dict[str, Any], ...]:
    """Common regions by their share of the mean absolute difference, from draws."""
    both = stack([net, other])
    size = np.abs(net(X) - other(X)).sum(axis=1)
    total = float(size.sum())
    _, first, index, count = np.unique(
        both.key(both.pattern(X)), return_index=True, return_inverse=True, return_counts=True
    )
    sums = np.bincount(index, weights=size, minlength=len(count))
    return tuple(
        {
            "share": float(sums[i]) / total if total else 0.0,
            "mass": float(count[i]) / len(X),
            "difference": float(sums[i]) / float(count[i]),
            "x": X[first[i]],
        }
        for i in np.argsort(-sums, kind="stable")[:most].tolist()
    )
