"""How a probability moves with the law: its derivatives, and the difference between two laws.

For a Gaussian `x = m + L u` and any event S, differentiating the density gives

    dp/dm = L^-T E[1_S u],      dp/dSigma = 1/2 L^-T (E[1_S u u'] - p I) L^-1,

so both derivatives are moments of u on the cells inside the event: exact where the probability is. For a uniform law
`dp/dupper_i = (P(S | x_i = upper_i) - p) / width_i`, again a probability.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reluscope import intervals
from reluscope._check import FloatArray, choice, real, seeded
from reluscope._lazy import late
from reluscope.answer import Answer, Answers, unless_interrupted
from reluscope.answers._event_mass import component_share
from reluscope.answers.probability import GUARANTEES, INTERVALS, check_question, probability
from reluscope.budget import Budget, parse_budget
from reluscope.errors import InputError
from reluscope.events import Event, PlacedEvent, lifted_question, place
from reluscope.inputs import Component, Law, check_law, known_law
from reluscope.intervals import DEFAULT_LEVEL
from reluscope.measure.exactness import all_exact, is_exact, not_exact
from reluscope.measure.regions import component_measure, gaussian_moments, standard_domain
from reluscope.network import Network
from reluscope.threads import clean_interrupt, look

_SECONDS = 2.0
_TRY = 10.0
_LEAST_SECONDS = 0.015
"""What one component takes in any case, measured."""
_GROUPS = 16
_PILOT = 11
"""Logarithm (base 2) of the points of the pilot."""

_RARE = 0.02
"""Share of the pilot, of the event or of its complement, below which rays take over."""

_RAY_SECONDS = 0.25
"""Time below which a component of a mixture is not searched by rays."""

_MOST_NUMBERS = 1 << 28
"""Numbers that derivatives by covariances may take: 2 GB."""

_MULTIPLICATIONS = 6e9
"""Multiplications and additions of matrices in a second, roughly."""

_FEW = 100
"""Draws on the rarer side below which Student's t is not trusted."""

_POINTS = "scrambled Sobol points in 16 groups"
_ORDER = ("exact", "sound", "confidence")


@dataclass(frozen=True, eq=False, repr=False)
class Sensitivity:
    """What `sensitivity` returns: derivatives of `probability`; what the law does not have is None.

    Attributes
    ----------
    probability : Answer
    guarantee : str
    mean, cov : Answers or None
        Gaussian and truncated laws: (n,) and (n, n), such that `dp = sum mean_i dm_i + sum cov_ij dSigma_ij` (the two
        entries of a symmetric pair move together). Mixtures: with a first axis for the components.
    weights : Answers or None
        Mixtures: (k,), the probability of the event given each component. Particles: whether each point is inside.
    lower, upper : Answers or None
        Uniform laws: (n,), for the sides of the box.
    note : str
    seed : int or None
        The `rng=` that repeats the answer; None where nothing was drawn or a Generator was given.
    """

    probability: Answer
    guarantee: str
    mean: Answers | None = None
    cov: Answers | None = None
    weights: Answers | None = None
    lower: Answers | None = None
    upper: Answers | None = None
    note: str = ""
    seed: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields in plain lists and numbers, fit for JSON."""
        out: dict[str, Any] = {"probability": self.probability.to_dict(), "guarantee": self.guarantee}
        for name in ("mean", "cov", "weights", "lower", "upper"):
            values = getattr(self, name)
            out[name] = None if values is None else values.to_dict()
        return {**out, "note": self.note, "seed": self.seed}

    def __repr__(self) -> str:
        parts = [n for n in ("mean", "cov", "weights", "lower", "upper") if getattr(self, n) is not None]
        return f"Sensitivity({self.probability}; derivatives by {', '.join(parts)}, {self.guarantee})"


@clean_interrupt()
def sensitivity(
    net: Network,
    law: Law,
    event: Any,
    *,
    names: Any = None,
    guarantee: str = "auto",
    level: float = DEFAULT_LEVEL,
    budget: Any = None,
    rng: Any = None,
) -> Sensitivity:
    """The probability of an event and its derivatives by the law's mean and covariance (weights, sides of a box).

    Parameters
    ----------
    net : Network
    law : Law
        The distribution of the inputs.
    event, names
        As in `probability`.
    guarantee : {"auto", "exact", "confidence"}
    level : float
        Confidence level of estimates, for each interval on its own.
    budget : optional
        The time for estimates (2 s), or the most for enumeration.
    rng : optional
        None, an int, a SeedSequence or a Generator.

    Returns
    -------
    Sensitivity

    Raises
    ------
    InputError
        If an argument does not fit the network, or "exact" is asked for where it is not possible.

    Notes
    -----
    For `x = m + L u`: `dp/dm = L^-T E[1_S u]` and `dp/dSigma = 1/2 L^-T (E[1_S u u'] - p I) L^-1`. Exact (with a bound
    on rounding) where `probability` is, from the moments of the regions inside the event; otherwise estimates from
    scrambled Sobol points, or from the rays of the rare-event engine where the event (or its complement) has less than
    0.02 (Student's t over 16 scrambles; for rare events about the parts that the search has reached). Where next to
    nothing was reached, the brackets are what an event of the largest probability that could have been missed can have
    for derivatives, and `note` says so. A singular covariance has derivatives only along the directions that have
    spread; they are given with zero component across.

    Examples
    --------
    >>> from reluscope import Gaussian, Network, sensitivity
    >>> net = Network([([[1.0]], [0.0]), ([[1.0]], None)])
    >>> sensitivity(net, Gaussian([0.0]), "y > 0").mean.value.round(6).tolist()  # the density at 0
    [0.398942]
    """
    net, event = check_question(net, law, event, names)
    known_law(law)
    choice(guarantee, "guarantee", ("auto", "exact", "confidence"))
    level = real(level, "level", low=0.0, high=1.0, open_=True)
    (rng, seed), limit = seeded(rng), parse_budget(budget)
    if law.atoms is not None:
        inside = event.holds(net, law.atoms[0]).astype(np.float64)
        p = probability(net, law, event, guarantee="exact")
        return Sensitivity(p, "exact", weights=Answers(inside, inside, inside, "exact", None, p.method))
    note = ""
    if law.pushed is not None:
        net, law, event = lifted_question(net, law, event)
        note = "derivatives by the mean and covariance of the normal scores"
    based = [bool(part.unrestricted.gaussians) for w, part in law.components if w > 0]
    if law.is_mixture and not all(based):
        raise InputError("law: a mixture has derivatives here if all its components are Gaussian, truncated or not")
    solve = _gaussian if all(based) else _uniform
    out = solve(net, law, event, guarantee, limit, level, rng)
    notes = "; ".join(filter(None, [note, out.note]))
    return replace(out, note=notes, seed=seed if out.guarantee == "confidence" else None)


# -- uniform laws --------------------------------------------------------------------------------------------------


def _uniform(
    net: Network, law: Law, event: Event, guarantee: str, limit: Budget, level: float, rng: np.random.Generator
) -> Sensitivity:
    from reluscope.inputs import Uniform

    n = law.n
    box = law.support()
    width = box[1] - box[0]
    faces = 2 * int((width > 0).sum())
    share = limit.seconds / (faces + 1) if np.isfinite(limit.seconds) else None
    doubt = 1.0 - 0.5 * (1.0 - level)  # each derivative joins two intervals
    options: dict[str, Any] = {"guarantee": guarantee, "budget": share, "level": doubt}
    p = probability(net, law, event, rng=rng, **options)
    unless_interrupted(p)
    value, low, high = (np.zeros((2, n)) for _ in range(3))
    worst = p
    for i in np.flatnonzero(width > 0).tolist():
        for side, at in enumerate((box[0][i], box[1][i])):
            lower, upper = box[0].copy(), box[1].copy()
            lower[i] = upper[i] = at
            face = probability(net, Uniform(lower, upper), event, rng=rng, **options)
            unless_interrupted(face)
            worst = max(worst, face, key=lambda a: _ORDER.index(a.guarantee))
            ends = [(face.lower - p.upper) / width[i], (face.upper - p.lower) / width[i]]
            sign = 1.0 if side else -1.0
            value[side, i] = sign * (face.value - p.value) / width[i]
            low[side, i], high[side, i] = sorted(sign * e for e in ends)
    known = None if worst.level is None else level
    sides = [Answers(value[s], low[s], high[s], worst.guarantee, known, "faces of the box") for s in (0, 1)]
    return Sensitivity(p, worst.guarantee, lower=sides[0], upper=sides[1])


# -- Gaussian laws -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Part:
    """One component: p, `E[u 1]`, `E[u u' 1] - p (moments of the component)`, all with half-widths.

    Where there are `groups`, `first_half` and `second_half` only hold what is to be added to their spread.
    """

    value: float
    half: float
    first: FloatArray
    first_half: FloatArray
    second: FloatArray
    second_half: FloatArray
    stopped: bool
    method: str = ""
    unmet: str = ""
    """Why the half-widths are bounds on what was missed, not estimates."""
    groups: tuple[FloatArray, FloatArray] | None = None
    """`first` and `second` of each independent group, for half-widths of what is made of them."""
    quantile: float = 0.0
    """Half-width over the standard deviation of the groups."""

    def flipped(self) -> _Part:
        """The same for the complement."""
        return replace(self, value=1.0 - self.value, first=-self.first, second=-self.second)

    def halves(self, S: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Half-widths of `S first` and `S second S'`."""
        if self.groups is None or self.unmet:
            return np.abs(S) @ self.first_half, np.abs(S) @ self.second_half @ np.abs(S).T
        one, two = self.groups
        first = self.quantile * intervals.deviation(one @ S.T) + np.abs(S) @ self.first_half
        return first, self.quantile * _turned_deviation(S, two) + np.abs(S) @ self.second_half @ np.abs(S).T


def _turned_deviation(S: FloatArray, groups: FloatArray) -> FloatArray:
    """Standard deviation over the groups of each entry of `S group S'`; one group at a time, for there may be many
    inputs."""
    scale = float(np.abs(S).max(initial=0.0)) or 1.0, float(np.abs(groups).max(initial=0.0)) or 1.0
    S, groups = S / scale[0], groups / scale[1]
    centre = groups.mean(axis=0)
    squares = sum((S @ (group - centre) @ S.T) ** 2 for group in groups)
    return np.asarray(scale[0] * scale[0] * scale[1] * np.sqrt(squares / (len(groups) - 1)))


def _gaussian(
    net: Network, law: Law, event: Event, guarantee: str, limit: Budget, level: float, rng: np.random.Generator
) -> Sensitivity:

    asked = place(net, law, event)
    components = asked.components
    _check_memory(components, law.n)
    exact = all_exact(components)
    if guarantee == "exact" and not exact:
        raise InputError(not_exact(next(c for c in components if not is_exact(c))))
    note = ""
    parts: list[_Part] = []
    if exact and guarantee != "confidence":
        within = limit if guarantee == "exact" else Budget(min(_TRY, 0.5 * limit.seconds), limit.regions)
        parts = [_exact_part(c, asked, within) for c in components]
        if any(p.stopped for p in parts):
            if guarantee == "exact":
                raise InputError("sensitivity: the budget ended before all regions of the event were found; raise it")
            note, parts = "enumeration did not finish; estimated", []
    kind = "exact" if parts else "confidence"
    if not parts:
        least = max(_SECONDS, 2 * _LEAST_SECONDS * len(components))
        seconds = limit.seconds if np.isfinite(limit.seconds) else least
        share = max(seconds - limit.elapsed() - _turning_seconds(components, law.n), 0.2 * seconds) / len(components)
        _check_time(len(components), seconds)
        seeds = rng.spawn(len(components))
        rays = _ByRays(asked, level)
        found = [
            _estimated_part(k, c, asked, rays, share, level, s)
            for k, (c, s) in enumerate(zip(components, seeds, strict=True))
        ]
        components, parts = tuple(c for c, _ in found), [p for _, p in found]
        note = "; ".join(filter(None, [note, *dict.fromkeys(p.unmet for p in parts)]))
    return _joined(law, components, parts, kind, level, note)


def _check_memory(components: tuple[Component, ...], n: int) -> None:
    """Refuse before the derivatives by all covariances, and the moments they are made of, fill the memory."""
    numbers = sum(4 * n * n + (_GROUPS + 4) * c.r * c.r for c in components)
    if numbers > _MOST_NUMBERS:
        raise InputError(
            f"law has {len(components):,} components of {n:,} inputs: the derivatives by their covariances would take "
            f"{8 * numbers / 2**30:.0f} GB; ask for fewer components, such as GaussianMixture.fit(X, components=10)"
        )


def _check_time(components: int, seconds: float) -> None:
    """Refuse where the budget is gone before every component has been looked at."""
    if components > 1 and _LEAST_SECONDS * components > seconds:
        raise InputError(
            f"law has {components:,} components, and the derivatives by each take at least {1e3 * _LEAST_SECONDS:.0f} "
            f"ms: a budget of {_LEAST_SECONDS * components:.0f} s is needed, got {seconds:.3g} s; give more, or a law "
            "with fewer components, such as GaussianMixture.fit(X, components=10)"
        )


def _turning_seconds(components: tuple[Component, ...], n: int) -> float:
    """What it takes to bring the second moments of all groups to the inputs, roughly."""
    return sum(_GROUPS * 2.0 * n * c.r * (n + c.r) / _MULTIPLICATIONS for c in components)


def _joined(
    law: Law, components: tuple[Component, ...], parts: list[_Part], kind: str, level: float, note: str
) -> Sensitivity:
    known = None if kind == "exact" else level
    method = "moments of the regions in the event"
    if kind != "exact":
        method = " and ".join(dict.fromkeys(p.method for p in parts if p.method)) or "one point"
    mixture = law.is_mixture
    weights = np.array([w for w, _ in law.components])
    gaussians = [g for _, part in law.components for _, g in part.unrestricted.gaussians]
    live = np.flatnonzero(weights)
    n = law.n
    shapes = {"mean": (len(weights), n), "cov": (len(weights), n, n), "weights": (len(weights),)}
    value = {k: np.zeros(s) for k, s in shapes.items()}
    half = {k: np.zeros(s) for k, s in shapes.items()}
    for k, c, part in zip(live.tolist(), components, parts, strict=True):
        S, full = _pull(gaussians[k], c)
        if not full:
            note = note or "singular covariance: derivatives along the directions that have spread"
        w = float(weights[k])
        value["weights"][k], half["weights"][k] = part.value, part.half
        value["mean"][k], value["cov"][k] = w * (S @ part.first), 0.5 * w * (S @ part.second @ S.T)
        first_half, second_half = part.halves(S)
        half["mean"][k], half["cov"][k] = w * first_half, 0.5 * w * second_half
        h = _unseen_pull(c)
        if h is not None:
            cross, blur = 0.5 * np.outer(value["mean"][k], h), 0.5 * np.outer(half["mean"][k], np.abs(h))
            value["cov"][k] += cross + cross.T
            half["cov"][k] += blur + blur.T

    def values(name: str) -> Answers:
        v, h = (value[name], half[name]) if mixture else (value[name][0], half[name][0])
        return Answers(v, v - h, v + h, kind, known, method)

    p = float(weights @ value["weights"])
    # Squares add for independent estimates; bounds add: those of exact parts, and of what was not met.
    each = weights * half["weights"]
    bound = np.zeros(len(weights), bool)
    bound[live] = [kind == "exact" or bool(part.unmet) for part in parts]
    doubt = float(each[bound].sum() + np.linalg.norm(each[~bound]))
    answer = Answer(p, max(p - doubt, 0.0), min(p + doubt, 1.0), kind, known, method)
    return Sensitivity(answer, kind, values("mean"), values("cov"), values("weights") if mixture else None, note=note)


def _pull(gaussian: Any, component: Any) -> tuple[FloatArray, bool]:
    """`S` (n, r) with `dp/dm = S E[1 u]`, and whether the covariance has full rank: `S = L^-T L^-1 B`, x = m + B u."""
    n = gaussian.n
    r = component.r
    if r == 0:
        return np.zeros((n, 0)), True
    base = component.to_x(np.zeros((1, r)))
    B = (component.to_x(np.eye(r)) - base).T
    if gaussian.factor.diagonal:
        sd = gaussian.sd
        return B / np.where(sd > 0, sd, np.inf)[:, None] ** 2, bool((sd > 0).all())
    L = gaussian.factor.rows(np.arange(n))
    inner, _, rank, _ = np.linalg.lstsq(L, B, rcond=None)
    outer = np.linalg.lstsq(L.T, inner, rcond=None)[0]
    return np.asarray(outer), int(rank) == n


def _unseen_pull(component: Any) -> FloatArray | None:
    """`E[u_j] / sd_j` of restricted inputs that the network does not see: a covariance with them moves seen ones."""
    law = component.law
    if not law.independent_inputs or component.kind != "truncated":
        return None
    before = law.unrestricted
    variance = before.variance
    pull = np.where(variance > 0, (law.mean - before.mean) / np.where(variance > 0, variance, 1.0), 0.0)
    pull[component.chart.keep] = 0.0
    return np.asarray(pull) if pull.any() else None


def _exact_part(component: Any, asked: PlacedEvent, limit: Budget) -> _Part:
    share = component_share(component, asked, limit, moments=True)
    r = component.r
    if r == 0:
        return _Part(share.value, 0.0, np.zeros(0), np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0)), False)
    assert share.first is not None and share.second is not None
    one, two = _own_moments(component)
    first, second = share.first - share.value * one, share.second - share.value * two
    blur = share.error + share.excess + share.missing + 1e-11 * share.value + 1e-300
    # Cells further out hold nothing that counts.
    far = max(9.0, 3.0 + float(np.sqrt(-2.0 * np.log(max(share.value, 1e-300)))))
    return _Part(
        share.value,
        share.error + share.left + share.excess + share.missing,
        first,
        np.full(r, 2 * far * blur),
        second,
        np.full((r, r), 2 * far**2 * blur),
        share.stopped is not None,
    )


def _own_moments(component: Any) -> tuple[FloatArray, FloatArray]:
    """`E u` and `E u u'` under the component itself: 0 and I, or those of its box."""
    r = component.r
    if component.kind == "gaussian":
        return np.zeros(r), np.eye(r)
    from reluscope.cells.domain import cell_with_vertices

    where = standard_domain(component)
    cell = cell_with_vertices(where["box"], where.get("polytope"))
    mass, first, second = gaussian_moments(cell)
    return first[0] / mass[0], second[0] / mass[0]


def _inside(component: Any, asked: PlacedEvent, U: FloatArray) -> FloatArray:
    """1 where the event holds, by the component's own network."""
    f = asked.features(component.network.pattern(U)) if asked.event.features else np.zeros((len(U), 0))
    return asked.contains(component.network(U), f).astype(np.float64)


def _estimated_part(
    number: int,
    component: Any,
    asked: PlacedEvent,
    rays: _ByRays,
    seconds: float,
    level: float,
    rng: np.random.Generator,
) -> tuple[Any, _Part]:
    """The part of component `number`, with the coordinates it is in: by points, or by rays where few points differ."""
    look()
    r = component.r
    if r == 0:
        x = component.to_x(np.zeros((1, component.network.n_inputs)))
        v = float(asked.event.holds(asked.net, x)[0])
        return component, _Part(v, 0.0, np.zeros(0), np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0)), False)
    seeds = rng.spawn(_GROUPS + 1)

    def group(m: int, seed: np.random.Generator) -> tuple[float, FloatArray, FloatArray]:
        p, one, two, mean, square, done = 0.0, np.zeros(r), np.zeros((r, r)), np.zeros(r), np.zeros((r, r)), 0
        for U in _draws(component, m, seed):
            hit = _inside(component, asked, U)
            p += float(hit.sum())
            one += hit @ U
            two += (hit[:, None] * U).T @ U
            mean += U.sum(axis=0)
            square += U.T @ U
            done += len(U)
        p, one, two, mean, square = p / done, one / done, two / done, mean / done, square / done
        # What the component itself has is taken off: known for a Gaussian, the draws' own for a truncated one.
        if component.kind == "gaussian":
            mean, square = np.zeros(r), np.eye(r)
        return p, one - p * mean, two - p * square

    clock, pilot = Budget(), 9
    share = group(pilot, seeds[-1])[0]
    if clock.elapsed() * (1 << (_PILOT - pilot)) < 4.0 * seconds:
        clock, pilot = Budget(), _PILOT
        share = group(pilot, seeds[-1])[0]
    cost = clock.elapsed() / (1 << pilot)
    if min(share, 1.0 - share) < _RARE and (seconds >= _RAY_SECONDS or len(asked.components) == 1):
        made = rays(number, seconds, rng, complement=share > 0.5)
        if made is not None:
            return made
    m = int(np.clip(np.floor(np.log2(0.9 * seconds / _GROUPS / cost)), 6, 22))
    found = [group(m, s) for s in seeds[:_GROUPS]]
    t = intervals.student_quantile(_GROUPS - 1, level) / np.sqrt(_GROUPS)
    rows = [np.array([f[k] for f in found]) for k in range(3)]
    p, first, second = (part.mean(axis=0) for part in rows)
    half = t * float(intervals.deviation(rows[0]))
    part = _Part(
        float(p), half, first, np.zeros(r), second, np.zeros((r, r)), False, _POINTS, "", (rows[1], rows[2]), t
    )  # fmt: skip
    n = _GROUPS << m
    hits = round(part.value * n)
    if min(hits, n - hits) >= _FEW:
        return component, part
    low, high = intervals.binomial(hits, n, level)
    return component, _widened(
        component, part, low, high, f"{min(hits, n - hits)} of {n:,} draws are on the rarer side"
    )


def _widened(component: Any, part: _Part, low: float, high: float, why: str) -> _Part:
    """A part whose brackets hold for every event with a probability in [low, high]."""
    from reluscope.measure.rare import largest_moments, own_moments

    r = component.r
    p = min(high, 1.0 - low)  # the event or its complement is at most this
    whole, own = 1.0, np.zeros(1 + r + r * r)
    if component.kind != "gaussian":
        # Given a box of mass Q, E[1 u] is that of a set of mass p Q, over Q.
        whole = component_measure(component)
        own = own_moments(component) if component.rows is None else own
    first, square, cross = (b / whole for b in largest_moments(p * whole))
    first_half = np.full(r, first) + p * np.abs(own[1 : 1 + r])
    second_half = np.where(np.eye(r, dtype=bool), square, cross) + p * np.abs(own[1 + r :]).reshape(r, r)
    return replace(
        part,
        half=max(part.half, high - part.value, part.value - low),
        first_half=np.maximum(part.first_half, first_half + np.abs(part.first)),
        second_half=np.maximum(part.second_half, second_half + np.abs(part.second)),
        unmet=f"{why}: brackets are what an event of at most {p:.2g} can have",
    )


@dataclass(eq=False)
class _ByRays:
    """Parts by the rays of the rare-event engine, for events on inputs and outputs."""

    asked: PlacedEvent
    level: float

    def __call__(
        self, number: int, seconds: float, rng: np.random.Generator, *, complement: bool
    ) -> tuple[Any, _Part] | None:
        """The part of component `number`; None where the event is not one for rays."""
        from reluscope.measure.rare import RareMoments, rare_moments

        asked = self.asked
        if not asked.event.linear:
            return None
        try:
            placed = place(asked.net, asked.law, ~asked.event) if complement else asked
        except InputError:  # a complement with too many cases
            return None
        component = placed.components[number]
        r = component.r
        none = np.zeros(r), np.zeros((r, r))
        if not placed.n_cases or r == 0:
            return None

        def moments(share: float, starts: FloatArray | None) -> RareMoments:
            return rare_moments(placed, component, share, self.level, rng, starts)

        found = moments(0.7 * seconds, None)
        if not found.met:
            starts = self._known(number, placed.event, 0.1 * seconds, rng)
            found = moments(0.2 * seconds, starts) if len(starts) else found
        if not found.met:
            part = _Part(0.0, 0.0, none[0], none[0], none[1], none[1], False, f"{found.rays:,} rays")
            part = _widened(component, part, 0.0, found.most, f"none of {found.rays:,} rays met the event")
        else:
            n = len(found.rows)
            t = intervals.student_quantile(n - 1, self.level) / np.sqrt(n)
            v, h = found.rows.mean(axis=0), found.unmet
            half = t * float(intervals.deviation(found.rows[:, 0])) + float(h[0]) + found.lost
            groups = found.rows[:, 1 : 1 + r], found.rows[:, 1 + r :].reshape(-1, r, r)
            first, second, square = slice(1, 1 + r), slice(1 + r, None), (r, r)
            part = _Part(
                float(v[0]), half, v[first], h[first], v[second].reshape(square), h[second].reshape(square),
                False, f"{found.rays:,} rays or evaluations in {n} groups", "", groups, t,
            )  # fmt: skip
        return component, part.flipped() if complement else part

    def _known(self, number: int, event: Event, seconds: float, rng: np.random.Generator) -> FloatArray:
        """Inputs of the event that a search by exact steps finds."""
        from reluscope.answers._nearest import known_inputs

        return known_inputs(self.asked.net, self.asked.law, event, Budget(seconds), rng, only=number)


def _draws(component: Any, m: int, rng: np.random.Generator) -> Any:
    """2^m points of the component, in chunks: scrambled Sobol for a Gaussian, plain draws otherwise."""
    ndtri = late("scipy.special", "ndtri")
    qmc = late("scipy.stats", "qmc")

    count, chunk = 1 << m, 1 << 14
    if component.kind == "gaussian":
        sobol = qmc.Sobol(component.r, rng=rng)
        for begin in range(0, count, chunk):
            yield ndtri(np.clip(sobol.random(min(chunk, count - begin)), 1e-16, 1 - 1e-16))
    else:
        for begin in range(0, count, chunk):
            yield component.draws(min(chunk, count - begin), rng)


# -- two laws ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What `compare` returns: the probabilities of an event under two laws, and their difference.

    Attributes
    ----------
    probability, other_probability : Answer
        `P(event)` under `law` and under `other_law`.
    difference : Answer
        `other_probability - probability`, with a bracket of its own.
    seed : int or None
        The `rng=` that repeats the answer; None where nothing was drawn or a Generator was given.
    """

    probability: Answer
    other_probability: Answer
    difference: Answer
    seed: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The three answers and the seed by name, fit for JSON."""
        names = ("probability", "other_probability", "difference")
        return {**{name: getattr(self, name).to_dict() for name in names}, "seed": self.seed}

    def __repr__(self) -> str:
        return f"Comparison({self.probability}; other law {self.other_probability}; difference {self.difference})"


@clean_interrupt()
def compare(
    net: Network,
    law: Law,
    other_law: Law,
    event: Any,
    *,
    names: Any = None,
    interval: str | None = None,
    guarantee: str = "auto",
    tolerance: float | None = None,
    level: float = DEFAULT_LEVEL,
    budget: Any = None,
    rng: Any = None,
    progress: Any = None,
) -> Comparison:
    """`P(event)` under two laws, and the difference "under `other_law` minus under `law`", each with a bracket.

    Parameters
    ----------
    net : Network
    law, other_law : Law
        The two distributions of the inputs.
    event : str, Event or pair (G, g)
        As in `probability`. Text such as "argmax at mean" is read with each law's own mean.
    names, interval, guarantee, tolerance, level, budget, rng, progress
        As in `probability`. The budget is shared by the two probabilities and the common draws.

    Returns
    -------
    Comparison

    Raises
    ------
    InputError
        As `probability` does.

    Notes
    -----
    The lower bound of the difference is the one bracket's lower bound minus the other's upper bound, and so on. With
    "confidence", laws of one kind (two Gaussians, two uniform laws) also share random numbers: draws that fall in the
    event under one law only are counted, and that interval is intersected with the difference of the two (the level is
    shared between them), so that a small difference of large probabilities is seen. The two probabilities then have a
    higher level than asked for.

    Examples
    --------
    >>> from reluscope import Gaussian, Network, compare
    >>> net = Network([([[1.0]], [0.0]), ([[1.0]], None)])
    >>> found = compare(net, Gaussian([0.0]), Gaussian([0.5]), "y > 0")
    >>> round(found.difference.value, 6), found.difference.guarantee
    (0.191462, 'exact')
    """
    choice(guarantee, "guarantee", GUARANTEES)
    if interval is not None:
        choice(interval, "interval", INTERVALS)
    level = real(level, "level", low=0.0, high=1.0, open_=True)
    limit, (rng, seed) = parse_budget(budget), seeded(rng)
    net, own = check_question(net, law, event, names)
    check_law(other_law, net, "other_law")
    _, others = check_question(net, other_law, event, names)
    seconds = limit.seconds / 3 if np.isfinite(limit.seconds) else None
    each: Any = Budget(limit.seconds / 3, limit.regions) if seconds is not None else budget
    options: dict[str, Any] = {"tolerance": tolerance, "interval": interval, "progress": progress}
    doubt = 1.0 - level
    seeds = rng.spawn(3)
    a = probability(net, law, own, guarantee=guarantee, budget=each, level=1 - doubt / 4, rng=seeds[0], **options)
    unless_interrupted(a)
    if seconds is not None:
        each = Budget(limit.seconds / 3, limit.regions)
    b = probability(
        net, other_law, others, guarantee=guarantee, budget=each, level=1 - doubt / 4, rng=seeds[1], **options
    )
    kind = max(a.guarantee, b.guarantee, key=_ORDER.index)
    value, lower, upper = b.value - a.value, b.lower - a.upper, b.upper - a.lower
    method, note, work = "difference of the two", "", 0
    if kind == "confidence":
        paired = _paired(net, (law, other_law), (own, others), seconds or _SECONDS, 1 - doubt / 2, seeds[2])
        if paired is not None:
            p_value, p_low, p_high, work = paired
            narrow = p_high - p_low < upper - lower
            value = p_value if narrow else value
            lower, upper = max(lower, p_low), min(upper, p_high)
            if lower > upper:  # one of the two missed: say so with the wider bracket
                lower, upper = min(b.lower - a.upper, p_low), max(b.upper - a.lower, p_high)
                note = "the two ways of estimating disagree; the bracket covers both"
            value = min(max(value, lower), upper)
            method = f"difference of the two, and {work:,} common draws"
    known = level if kind == "confidence" else None
    difference = Answer(value, lower, upper, kind, known, method, note, work or None)
    return Comparison(a, b, difference, seed if kind == "confidence" else None)


def _paired(
    net: Network, laws: tuple[Law, Law], events: Any, seconds: float, level: float, rng: np.random.Generator
) -> tuple[float, float, float, int] | None:
    """`P_b - P_a` from common random numbers: exact binomial intervals of "only b" and "only a"; None if no pairing."""
    noise = laws[0].noise
    if noise is None or noise != laws[1].noise:
        return None
    kind, k = noise

    def draw(n: int, g: np.random.Generator) -> list[FloatArray]:
        z = g.standard_normal((n, k)) if kind == "normal" else g.random((n, k))
        return [law.from_noise(z) for law in laws]

    scout, main = rng.spawn(2)

    def both(n: int, g: np.random.Generator) -> tuple[int, int]:
        in_a, in_b = (e.holds(net, X) for e, X in zip(events, draw(n, g), strict=True))
        return int((in_b & ~in_a).sum()), int((in_a & ~in_b).sum())

    n = Budget(seconds).afford(lambda m: both(m, scout), 1 << 28, least=1024)
    up, down, left = 0, 0, n
    while left:
        size = min(left, 1 << 14)
        more, less = both(size, main)
        up, down, left = up + more, down + less, left - size
    high, low = (intervals.binomial(hits, n, 1 - (1 - level) / 2) for hits in (up, down))
    return (up - down) / n, high[0] - low[1], high[1] - low[0], n
