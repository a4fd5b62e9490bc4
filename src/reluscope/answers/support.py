"""Probable patterns, quickly: a large set of activation patterns that is walked, never listed.

After Algorithms 1-3 of Chaudhari and Moura ("ReLU Networks as Random Functions"). Layer by layer, and given the pieces
chosen so far, each unit's pre-activation is `h = C u + d` with `u ~ N(0, I)`, so its marginal law is `N(d, |C|^2)` and
its piece probabilities are closed forms. Units whose probability is lopsided are fixed to their likelier piece, the
others are free; the set holds every combination of the free ones.
"""

from __future__ import annotations

import heapq
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from reluscope._check import EPS, FloatArray, choice, describe, generator, integer, real, real_array
from reluscope.answer import Answer
from reluscope.errors import InputError
from reluscope.intervals import binomial
from reluscope.network import Layer, Network, Pattern
from reluscope.parallel import blas_threads

if TYPE_CHECKING:
    from reluscope.activations import Units
    from reluscope.inputs import Law
    from reluscope.inputs._standard import Component

Mask = npt.NDArray[np.bool_]
Index = npt.NDArray[np.intp]
_Leaves: TypeAlias = tuple[Pattern, Mask, FloatArray]

_MAP_NUMBERS = 1 << 21
"""Numbers in the affine maps of one batch of prefixes: 16 MB."""
_DRAW_NUMBERS = 1 << 21
"""Numbers in one batch of draws."""
_RANKED_PREFIXES = 100_000
_RANKED_WORK = 1 << 34
"""Iteration is in exact order of score for up to this many prefixes, and multiplications to walk them."""
_NEVER = 1e-12
"""Pieces of lower probability are left out even for a free unit (of three or more pieces, or at threshold 1/2)."""
_TIES = 10
"""Probabilities are compared after rounding to this many decimals, so that equal units tie however they were summed."""
MOST_UNIFORM_DIMENSIONS = 6
"""Up to here volumes under a uniform law are exact."""


# -- a law's patterns: drawn, counted, enumerated ----------------------------------------------------------------


def share(hits: int, draws: int, confidence: float, method: str = "") -> Answer:
    """`hits / draws` with the exact binomial (Clopper-Pearson) interval: it holds for any true probability and any
    number of draws, as long as that number was fixed beforehand."""
    low, high = binomial(hits, draws, confidence)
    return Answer(hits / draws, low, high, "confidence", confidence, method or f"{draws:,} draws")


def draw_patterns(
    net: Network, law: Law, components: tuple[Component, ...], draws: int, rng: np.random.Generator
) -> Iterator[Pattern]:
    """Patterns of `draws` independent inputs from the law, in batches.

    Gaussian components are drawn in the few coordinates the network can see; how many draws each gets is multinomial.
    """
    plain = all(c.kind == "gaussian" for c in components)
    sources = [c.network for c in components] if plain else [net]
    weights = np.array([c.weight for c in components]) if plain else np.ones(1)
    counts = rng.multinomial(draws, weights / weights.sum())
    for network, count in zip(sources, counts, strict=True):
        size = max(64, _DRAW_NUMBERS // max(network.n_inputs, net.n_units, 1))
        for begin in range(0, int(count), size):
            n = min(size, int(count) - begin)
            rows = rng.standard_normal((n, network.n_inputs)) if plain else law.sample(n, rng)
            yield network.pattern(rows)


def enumerable(components: tuple[Component, ...]) -> bool:
    """Whether complete enumeration gives exact masses for every component."""
    return all(c.kind == "point" or c.r <= (MOST_UNIFORM_DIMENSIONS if c.kind == "uniform" else 3) for c in components)


class PatternMasses(NamedTuple):
    """Different patterns (n, units), their masses under a law, and a bound on the mass not enumerated."""

    pattern: Pattern
    value: FloatArray
    lower: FloatArray
    upper: FloatArray
    missing: float
    stopped: str | None


def enumerated_patterns(net: Network, law: Law, budget: Any, progress: Any = None) -> PatternMasses:
    """Every pattern that has mass under the law, by enumeration; for laws that are `enumerable`."""
    from reluscope.measure.regions import enumerate_law

    parts = enumerate_law(net, law, budget=budget, progress=progress)
    masses = [p.masses.scaled(p.component.weight) for p in parts]
    pattern = np.concatenate([p.regions.pattern for p in parts])
    stopped = next((p.regions.stopped for p in parts if p.regions.stopped), None)
    # The masses of a complete subdivision sum to 1. If they do not, say so instead of calling the answer exact.
    gap = [1.0 - float(p.masses.value.sum()) for p in parts]
    slack = [1e-9 + float((p.masses.upper - p.masses.lower).sum()) for p in parts]
    if not stopped and any(abs(g) > e for g, e in zip(gap, slack, strict=True)):
        stopped = f"the masses of all cells sum to {1.0 - max(gap, key=abs):.9g} instead of 1"
    _, first, inverse = np.unique(net.key(pattern), return_index=True, return_inverse=True)
    columns = [np.concatenate([getattr(m, k) for m in masses]) for k in ("value", "lower", "upper")]
    value, lower, upper = (np.bincount(inverse, column).astype(np.float64) for column in columns)
    missing = max(0.0, 1.0 - float(lower.sum())) if stopped else 0.0
    if stopped:
        lower = np.maximum(lower - max(0.0, float(value.sum()) - 1.0), 0.0)
    return PatternMasses(pattern[first], value, lower, np.minimum(upper, 1.0), missing, stopped)


def summed(found: PatternMasses, members: Mask) -> Answer:
    """Mass of the named patterns, with what was not enumerated added to the upper end."""
    inside = float(found.value[members].sum())
    low = float(found.lower[members].sum())
    slack = len(members) * EPS * inside
    high = min(1.0, float(found.upper[members].sum()) + found.missing + slack)
    how = f"enumeration, {len(found.value):,} patterns"
    if found.stopped:
        return Answer(inside, max(0.0, low - slack), high, "sound", method=how, note=found.stopped)
    return Answer(inside, max(0.0, low - slack), high, "exact", method=how)


def checked(net: Any, law: Law) -> tuple[Component, ...]:
    """The law's components in the coordinates the network sees, or an `InputError` about `net` or `law`."""
    from reluscope.inputs import standard

    return standard(law, net)


# -- the algorithm -----------------------------------------------------------------------------------------------


class _Run(NamedTuple):
    """One pass of the algorithm: first-layer maps (units, 1, r + 1) of its Gaussian parts, their weights (summing to
    1), and the pass's share of the law."""

    first: tuple[FloatArray, ...]
    weights: FloatArray
    share: float


class _Node(NamedTuple):
    """A walked prefix: the next layer's maps, and the choices of its free units, best first."""

    layer: int
    maps: list[FloatArray]
    best: Pattern
    free: list[int]
    pieces: list[list[int]]
    losses: list[list[float]]
    score: float


_Entry: TypeAlias = tuple[float, int, _Run, Pattern, _Node | None, tuple[int, ...], int]
"""Cost, serial number (breaks ties), pass, prefix, node (None: not made yet), levels of its units, where to lower."""


@dataclass(frozen=True, eq=False, repr=False)
class Support:
    """A set of activation patterns given by a rule: see `support`. Nothing is listed unless it is asked for.

    `pattern in s`, `s.contains(patterns)`, `s.coverage(X)`, `len(s)`, `s.count()`, iteration (most probable first, by
    the algorithm's own score), `s.top(k)`, `s.mass()`.
    """

    network: Network
    law: Law
    thresholds: tuple[float, ...]
    cap: int
    threshold_kind: str
    runs: tuple[_Run, ...]

    # -- membership ----------------------------------------------------------------------------------------------

    def __contains__(self, pattern: npt.ArrayLike) -> bool:
        return bool(self.contains(np.atleast_2d(np.asarray(pattern)))[0])

    def contains(self, patterns: npt.ArrayLike) -> Mask:
        """Whether each pattern (n, units) is in the set.

        Rows are walked together: the maps of a prefix are made once for all rows that share it, and rows leave at the
        first layer that contradicts them. Cost: one product of a layer's weights with an (inputs, r + 1) map per
        prefix that is still alive.
        """
        rows = np.atleast_2d(self.network._patterns(patterns))
        inside = np.zeros(len(rows), dtype=bool)
        if not self.network.hidden:
            return np.ones(len(rows), dtype=bool)
        with blas_threads(max(self.network.widths)):
            for run in self.runs:
                left = np.flatnonzero(~inside)
                self._walk(run, 0, list(run.first), rows, left, np.zeros(len(left), dtype=np.intp), inside)
        return inside

    def coverage(self, X: npt.ArrayLike) -> Answer:
        """Share of the rows of `X` (n, inputs) whose pattern is in the set: a plain count of these rows."""
        patterns = np.atleast_2d(self.network.pattern(X))
        if not len(patterns):
            raise InputError("X has no rows; coverage is a share of rows")
        value = float(self.contains(patterns).mean())
        return Answer(value, value, value, "exact", method=f"count of {len(patterns):,} rows")

    def _walk(
        self, run: _Run, layer: int, maps: list[FloatArray], rows: Pattern, left: Index, owner: Index, inside: Mask
    ) -> None:
        """Mark the rows `left` that are in the set; `owner` gives each one's prefix (second axis of `maps`)."""
        units = self.network.hidden[layer].units
        piece = rows[left, self.network.offsets[layer] : self.network.offsets[layer + 1]]
        allowed = self._allowed(layer, _marginals(units, maps, run.weights))
        agrees = allowed[owner[:, None], np.arange(len(units)), piece].all(axis=1)
        left, owner, piece = left[agrees], owner[agrees], piece[agrees]
        if layer + 1 == len(self.network.hidden):
            inside[left] = True
            return
        if not len(left):
            return
        first, inverse = _unique(owner, piece)
        order = np.argsort(inverse, kind="stable")
        starts = np.searchsorted(inverse[order], np.arange(len(first) + 1))
        size = self._batch(layer + 1, maps)
        for begin in range(0, len(first), size):
            chosen = first[begin : begin + size]
            mine = order[starts[begin] : starts[min(begin + size, len(first))]]
            after = _advance(self.network, layer, [m[:, owner[chosen]] for m in maps], piece[chosen])
            self._walk(run, layer + 1, after, rows, left[mine], inverse[mine] - begin, inside)

    def _batch(self, layer: int, maps: list[FloatArray]) -> int:
        width = max(self.network.hidden[layer].width, self.network.hidden[layer - 1].width if layer else 0)
        return max(1, _MAP_NUMBERS // (width * sum(m.shape[2] for m in maps)))

    def _allowed(self, layer: int, probability: FloatArray) -> Mask:
        """Which pieces each unit may take, shape (prefixes, units, pieces)."""
        threshold = self.thresholds[layer]
        top = np.round(probability.max(axis=2), _TIES)
        if self.threshold_kind == "distance":
            certainty = top
            free = top <= 0.5 + threshold + 0.5 * 10.0**-_TIES
        else:
            from scipy.special import entr

            certainty = -np.round(entr(probability).sum(axis=2) / np.log(2.0), _TIES)
            free = -certainty >= threshold - 0.5 * 10.0**-_TIES
        order = np.argsort(np.where(free, certainty, np.inf), axis=1, kind="stable")
        np.put_along_axis(free, order[:, self.cap :], False, axis=1)
        fixed = np.zeros(probability.shape, dtype=bool)
        np.put_along_axis(fixed, probability.argmax(axis=2)[:, :, None], True, axis=2)
        return np.where(free[:, :, None], probability > _NEVER, fixed)

    # -- counting ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        found = self.count()
        if found.guarantee != "exact" or found.upper > sys.maxsize:
            raise InputError(
                f"the set has between {found.lower:.6g} and {found.upper:.6g} patterns, too many to count by prefix; "
                "use count(prefixes=...) for a bracket or a larger allowance"
            )
        return int(found.value)

    def count(self, prefixes: int = 200_000) -> Answer:
        """Number of patterns, without listing those of the last layer.

        Given the pieces of all earlier layers, the last layer adds a product of numbers of free pieces. At most
        `prefixes` prefixes are walked; beyond, each one counts as 1 to the most that `cap` allows. Patterns that
        several passes (components) share count once, up to twelve passes to a prefix; else the answer is a bracket.
        """
        most = integer(prefixes, "prefixes", low=1)
        if not self.network.hidden:
            return Answer(1.0, 1.0, 1.0, "exact", method="affine network")
        leaves, rests = [], []
        with blas_threads(max(self.network.widths)):
            for run in self.runs:
                found, *rest = self._last_layer(run, most)
                leaves.append(found)
                rests.append(rest)
        sizes = [sum(int(_products(allowed).sum()) for _, allowed, _ in found) for found in leaves]
        walked = sum(len(allowed) for found in leaves for _, allowed, _ in found)
        how = f"{walked:,} prefixes of {len(self.runs)} pass{'es' * (len(self.runs) > 1)}"
        low = max(s + r[0] for s, r in zip(sizes, rests, strict=True))
        high = sum(s + r[1] for s, r in zip(sizes, rests, strict=True))
        if not any(r[1] for r in rests):
            both = sizes[0] if len(leaves) == 1 else self._union(leaves)
            if both is not None:
                return Answer(float(both), float(both), float(both), "exact", method=how)
            return Answer(float(low), float(low), float(high), "sound", method=how, note="many passes overlap")
        note = f"more than {most:,} prefixes; the rest is bounded by the cap"
        return Answer(float(low), float(low), float(high), "sound", method=how, note=note)

    def _last_layer(self, run: _Run, most: int) -> tuple[list[_Leaves], int, int]:
        """Prefixes up to the last hidden layer with that layer's allowed pieces and the logarithm of the best score
        after each, and bounds on the number of patterns that were not walked."""
        last = len(self.network.hidden) - 1
        root = (0, list(run.first), np.zeros((1, 0), np.uint8), np.full(1, np.log(run.share)))
        stack: list[tuple[int, list[FloatArray], Pattern, FloatArray]] = [root]
        found: list[_Leaves] = []
        walked, rest_low, rest_high = 1, 0, 0
        while stack:
            layer, maps, prefix, score = stack.pop()
            probability = _marginals(self.network.hidden[layer].units, maps, run.weights)
            allowed = self._allowed(layer, probability)
            if layer == last:
                found.append((prefix, allowed, score + np.log(probability.max(axis=2)).sum(axis=1)))
                continue
            children = int(_products(allowed).sum())
            if walked + children > most:
                rest_low += children
                rest_high += children * self._most_after(layer + 1)
                continue
            walked += children
            parent, piece = _combinations(allowed)
            size = self._batch(layer + 1, maps)
            for begin in range(0, len(parent), size):
                some = slice(begin, begin + size)
                after = _advance(self.network, layer, [m[:, parent[some]] for m in maps], piece[some])
                chosen = probability[parent[some][:, None], np.arange(piece.shape[1]), piece[some]]
                scores = score[parent[some]] + np.log(chosen).sum(axis=1)
                stack.append((layer + 1, after, np.concatenate([prefix[parent[some]], piece[some]], axis=1), scores))
        return found, rest_low, rest_high

    def _most_after(self, layer: int) -> int:
        out = 1
        for hidden in self.network.hidden[layer:]:
            for pieces in sorted(hidden.units.pieces.tolist())[::-1][: self.cap]:
                out *= pieces
        return out

    def _union(self, leaves: list[list[_Leaves]]) -> int | None:
        """Size of the union of the passes' sets; prefix by prefix by inclusion and exclusion."""
        prefix = np.concatenate([p for found in leaves for p, _, _ in found])
        allowed = np.concatenate([a for found in leaves for _, a, _ in found])
        _, inverse = _unique(np.zeros(len(prefix), dtype=np.intp), prefix)
        members = np.bincount(inverse)
        alone = members[inverse] == 1
        total = int(_products(allowed[alone]).sum())
        if members.max() > 12:
            return None
        for group in np.flatnonzero(members > 1):
            boxes = allowed[inverse == group]
            for size in range(1, len(boxes) + 1):
                for some in itertools.combinations(range(len(boxes)), size):
                    both = boxes[list(some)].all(axis=0)
                    total += (-1) ** (size + 1) * int(_products(both[None])[0])
        return total

    # -- listing -------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Pattern]:
        """The patterns one by one, each once, most probable first by the algorithm's own score.

        The score is the product of the marginal piece probabilities on the way (times the component's weight). The
        order is exact when the prefixes up to the last hidden layer are few (100,000; fewer for wide layers, so
        that walking them takes seconds); else patterns come in order of
        the product of the chosen pieces' probabilities *relative to* the likeliest piece of each unit, which needs no
        look-ahead. Memory grows with the number of patterns taken.
        """
        return (pattern for pattern, _ in self._ranked())

    def top(self, k: int) -> tuple[Pattern, FloatArray]:
        """The k patterns (fewer if the set is smaller) of highest score and their scores, shapes (k, units), (k,).

        A score is the product of the algorithm's marginal piece probabilities (times the component's weight): good
        for ordering, not a probability.
        """
        count = integer(k, "k", low=1)
        found = list(itertools.islice(self._ranked(), count))
        return np.stack([p for p, _ in found]), np.array([s for _, s in found])

    def _ranked(self) -> Iterator[tuple[Pattern, float]]:
        """Patterns with scores; see `__iter__`.

        Within a node a choice of pieces is reached from the best one by lowering free units, in order of their index:
        each is reached once, and lowering a unit never lowers the cost.
        """
        if not self.network.hidden:
            yield np.zeros(0, np.uint8), 1.0
            return
        last = len(self.network.hidden) - 1
        serial = itertools.count()
        heap = self._starts(serial)
        seen: set[bytes] | None = set() if len(self.runs) > 1 else None
        while heap:
            cost, _, run, prefix, node, state, start = heapq.heappop(heap)
            if node is None:
                node = self._node_after(run, prefix)
                state = (0,) * len(node.free)
            for j in range(start, len(state)):
                if state[j] + 1 < len(node.pieces[j]):
                    lowered = (*state[:j], state[j] + 1, *state[j + 1 :])
                    extra = node.losses[j][state[j] + 1] - node.losses[j][state[j]]
                    heapq.heappush(heap, (cost + extra, next(serial), run, prefix, node, lowered, j))
            piece = node.best.copy()
            score = node.score
            for j, (unit, level) in enumerate(zip(node.free, state, strict=True)):
                piece[unit] = node.pieces[j][level]
                score -= node.losses[j][level]
            pattern = np.concatenate([prefix, piece])
            if node.layer < last:
                with blas_threads(max(self.network.widths)):
                    after = _advance(self.network, node.layer, node.maps, piece[None])
                    child = self._node(run, node.layer + 1, after, score)
                heapq.heappush(heap, (cost, next(serial), run, pattern, child, (0,) * len(child.free), 0))
                continue
            if seen is not None:
                key = pattern.tobytes()
                if key in seen:
                    continue
                seen.add(key)
            yield pattern, float(np.exp(score))

    def _starts(self, serial: Iterator[int]) -> list[_Entry]:
        """The first entries of the heap: all prefixes with their best score, or one root per pass."""
        columns = max(sum(m.shape[2] for m in run.first) for run in self.runs)
        work = max(layer.width * layer.n_inputs for layer in self.network.layers[1:]) * columns
        most = max(1, min(_RANKED_PREFIXES, _RANKED_WORK // work))
        heap: list[_Entry] = []
        with blas_threads(max(self.network.widths)):
            for run in self.runs:
                found, _, rest = self._last_layer(run, most)
                if rest:
                    break
                for prefixes, _, best in found:
                    pairs = zip(prefixes, best.tolist(), strict=True)
                    heap += [(-b, next(serial), run, p, None, (), 0) for p, b in pairs]
            else:
                heapq.heapify(heap)
                return heap
            empty = np.zeros(0, np.uint8)
            roots = [(run, self._node(run, 0, list(run.first), float(np.log(run.share)))) for run in self.runs]
            return [
                (-float(np.log(r.share)), next(serial), r, empty, node, (0,) * len(node.free), 0) for r, node in roots
            ]

    def _node_after(self, run: _Run, prefix: Pattern) -> _Node:
        """The node of the last hidden layer after a prefix."""
        maps, score = list(run.first), float(np.log(run.share))
        last = len(self.network.hidden) - 1
        with blas_threads(max(self.network.widths)):
            for layer in range(last):
                piece = prefix[self.network.offsets[layer] : self.network.offsets[layer + 1]]
                probability = _marginals(self.network.hidden[layer].units, maps, run.weights)[0]
                score += float(np.log(probability[np.arange(len(piece)), piece]).sum())
                maps = _advance(self.network, layer, maps, piece[None])
            return self._node(run, last, maps, score)

    def _node(self, run: _Run, layer: int, maps: list[FloatArray], score: float) -> _Node:
        probability = _marginals(self.network.hidden[layer].units, maps, run.weights)
        allowed = self._allowed(layer, probability)[0]
        logs = np.where(allowed, np.log(np.where(allowed, probability[0], 1.0)), -np.inf)
        free = np.flatnonzero(allowed.sum(axis=1) > 1).tolist()
        order_of = np.argsort(-logs, axis=1, kind="stable")
        pieces = [order_of[j, : int(allowed[j].sum())].tolist() for j in free]
        losses = [[float(logs[j, order[0]] - logs[j, q]) for q in order] for j, order in zip(free, pieces, strict=True)]
        best = logs.argmax(axis=1).astype(np.uint8)
        return _Node(layer, maps, best, free, pieces, losses, score + float(logs.max(axis=1).sum()))

    # -- probability ---------------------------------------------------------------------------------------------

    def mass(
        self,
        *,
        method: str = "auto",
        draws: int = 100_000,
        confidence: float = 0.999,
        budget: Any = "30s, 200000 regions",
        rng: Any = None,
    ) -> Answer:
        """The true probability of the set under the law.

        "enumeration": all regions with exact masses, for laws that the network sees in up to three dimensions (six
        for uniform laws; any for particles). If the budget ends first, a sound bracket. "draws": the share of `draws`
        inputs whose pattern is in the set, with the exact binomial interval. "auto": enumeration where it is possible
        and completes, else draws.
        """
        how = choice(method, "method", ("auto", "enumeration", "draws"))
        count = integer(draws, "draws", low=1)
        level = real(confidence, "confidence", low=0.0, high=1.0, open_=True)
        gen = generator(rng)
        components = checked(self.network, self.law)
        if how == "enumeration" and not enumerable(components):
            raise InputError(
                f"method='enumeration' needs a law seen in at most 3 dimensions, got {max(c.r for c in components)}; "
                "use method='draws'"
            )
        if how == "enumeration" or (how == "auto" and enumerable(components)):
            found = enumerated_patterns(self.network, self.law, budget)
            if how == "enumeration" or not found.stopped:
                return summed(found, self.contains(found.pattern))
        hits = sum(
            int(self.contains(batch).sum()) for batch in draw_patterns(self.network, self.law, components, count, gen)
        )
        return share(hits, count, level)

    def __repr__(self) -> str:
        same = len(set(self.thresholds)) == 1
        text = f"{self.thresholds[0]:g}" if same else ", ".join(f"{t:g}" for t in self.thresholds)
        passes = f", {len(self.runs)} passes" if len(self.runs) > 1 else ""
        return f"Support({self.network!r}, {self.threshold_kind} threshold {text or '-'}, cap {self.cap}{passes})"


def support(
    net: Network,
    law: Law,
    threshold: Any = 0.1,
    cap: int = 10,
    *,
    threshold_kind: str = "distance",
    mixture: str = "each",
) -> Support:
    """The patterns that combine the likely pieces of all units: Algorithms 1-3 of Chaudhari and Moura.

    Walking down the layers, unit j of a layer has on the pieces chosen so far the pre-activation `h_j = C_j u + d_j`,
    `u ~ N(0, I)`, hence `P(t < h_j <= t') = Phi((t' - d_j) / |C_j|) - Phi((t - d_j) / |C_j|)` for the piece between
    break points t and t' (a ReLU is on with probability `Phi(d_j / |C_j|)`). A unit is free

    - `threshold_kind="distance"`: if no piece has more than `1/2 + threshold` (0 to 1/2; a larger one frees more);
    - `threshold_kind="entropy"`: if its entropy is at least `threshold` bits (a larger one frees fewer);

    and otherwise fixed to its likeliest piece. `threshold` is one number or one per hidden layer. At most `cap` units
    are free per layer and prefix, the most uncertain ones; the rest are fixed. A free unit may take any piece of
    probability above 1e-12. The set holds all combinations.

    `mixture="each"` walks every Gaussian component by itself and takes the union; "together" makes one pass with the
    mixture's marginals `sum_k w_k P_k`, as the paper's equation (21). Laws that are not Gaussian are walked as the
    Gaussian of the same mean and covariance.

    **No mass guarantee.** The marginals are those of the *untruncated* Gaussian pushed through the chosen affine map,
    not probabilities given the pieces chosen before. `Support.mass` says what the set truly holds, and `probable` finds
    patterns with a certificate.

    Corrections to the paper: the standard deviation (not the variance) goes under Phi in Algorithm 3; the cap is on the
    free units (the paper's index set holds the fixed ones); a threshold of 0.1 in distance is 0.971 bits, not
    0.92; pieces are named by index, so that units with any number of break points, slopes and intercepts work.

    Cost: none here beyond the reduction to standard coordinates; see the methods.

    >>> from reluscope import Gaussian
    >>> net = Network([([[1.0], [1.0]], [3.0, 0.0]), ([[1.0, 1.0]], None)])
    >>> s = support(net, Gaussian([0.0]))
    >>> len(s), [0, 1] in s, [1, 0] in s
    (2, False, True)
    """
    checked(net, law)
    kind = choice(threshold_kind, "threshold_kind", ("distance", "entropy"))
    most = integer(cap, "cap", low=0)
    joint = choice(mixture, "mixture", ("each", "together")) == "together"
    runs = _runs(net, law, joint)
    return Support(net, law, _thresholds(threshold, kind, net), most, kind, runs)


def _runs(net: Network, law: Law, joint: bool) -> tuple[_Run, ...]:
    from reluscope.inputs import Gaussian, standard

    walked = law if law.gaussians else Gaussian(law.mean, law.cov)
    parts = standard(walked, net)
    weights = np.array([c.weight for c in parts])
    maps = []
    for c in parts:
        first = c.network.layers[0]
        maps.append(np.column_stack([first.dense(), first.bias])[:, None, :])
    if joint:
        return (_Run(tuple(maps), weights / weights.sum(), 1.0),)
    return tuple(_Run((m,), np.ones(1), float(w)) for m, w in zip(maps, weights, strict=True))


def _thresholds(threshold: Any, kind: str, net: Network) -> tuple[float, ...]:
    layers = len(net.hidden)
    values = real_array(threshold, "threshold", ndim=(0, 1))
    if values.ndim == 1 and len(values) != layers:
        raise InputError(
            f"threshold must be one number or one per hidden layer, of which there are {layers}; got {len(values)}"
        )
    high = 0.5 if kind == "distance" else 8.0
    if ((values < 0) | (values > high)).any():
        unit = "a distance from 1/2, between 0 and 0.5" if kind == "distance" else "an entropy in bits, between 0 and 8"
        hint = "; for an entropy in bits pass threshold_kind='entropy'" if kind == "distance" else ""
        raise InputError(f"threshold must be {unit}, got {describe(threshold)}{hint}")
    return tuple(float(v) for v in np.broadcast_to(values, (layers,)))


def _advance(net: Network, layer: int, maps: list[FloatArray], piece: Pattern) -> list[FloatArray]:
    """Maps of the next layer's pre-activations on each prefix, shape (units, prefixes, r + 1), per Gaussian part."""
    here: Layer = net.hidden[layer]
    following = net.layers[layer + 1]
    slope, intercept = here.units.on(piece)
    out = []
    for m in maps:
        scaled = m * slope.T[:, :, None]
        scaled[:, :, -1] += intercept.T
        n, columns = scaled.shape[1:]
        new = np.asarray(following.weight @ scaled.reshape(here.width, n * columns))
        new = new.reshape(following.width, n, columns)
        new[:, :, -1] += following.bias[:, None]
        out.append(new)
    return out


def _marginals(units: Units, maps: list[FloatArray], weights: FloatArray) -> FloatArray:
    """Piece probabilities, shape (prefixes, units, pieces), of units with the maps (units, prefixes, r + 1)."""
    total: Any = 0.0
    for m, weight in zip(maps, weights, strict=True):
        sd = np.sqrt(np.einsum("ijk,ijk->ji", m[:, :, :-1], m[:, :, :-1]))
        total = total + weight * piece_probabilities(m[:, :, -1].T, sd, units.breaks)
    return np.asarray(total)


def piece_probabilities(mean: FloatArray, sd: FloatArray, breaks: FloatArray) -> FloatArray:
    """`P(t_j < h <= t_{j+1})` for `h ~ N(mean, sd^2)`, shape (..., units, k + 1).

    `mean` and `sd` have shape (..., units), `breaks` (units, k). Differences of Phi are taken on the side where they
    are small; `sd = 0` is a point and follows the tie rule.
    """
    from scipy.special import ndtr

    ends = np.full((len(breaks), 1), np.inf)
    edges = np.concatenate([-ends, breaks, ends], axis=1)
    gap = edges - mean[..., None]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        z = np.where(sd[..., None] > 0, gap / sd[..., None], np.where(gap >= 0, np.inf, -np.inf))
    low, high = z[..., :-1], z[..., 1:]
    return np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))


def _products(allowed: Mask) -> npt.NDArray[Any]:
    """Number of combinations of allowed pieces per prefix, as Python integers (they may be huge)."""
    counts = allowed.sum(axis=2)
    if allowed.shape[0] and np.log2(np.maximum(counts, 1)).sum(axis=1).max() < 52:
        return np.prod(counts, axis=1, dtype=np.int64).astype(object)
    out = np.ones(len(counts), dtype=object)
    for column in counts.T:
        out = out * column.astype(object)
    return out


def _combinations(allowed: Mask) -> tuple[Index, Pattern]:
    """All combinations of allowed pieces: the prefix each comes from, and its pieces (n, units)."""
    each = _products(allowed).astype(np.int64)
    parent = np.repeat(np.arange(len(allowed)), each)
    number = np.arange(len(parent)) - np.repeat(np.cumsum(each) - each, each)
    counts = allowed.sum(axis=2)
    places = np.argsort(~allowed, axis=2, kind="stable").astype(np.uint8)  # the allowed pieces first
    piece = np.empty((len(parent), allowed.shape[1]), dtype=np.uint8)
    for unit in range(allowed.shape[1]):
        number, digit = np.divmod(number, counts[parent, unit])
        piece[:, unit] = places[parent, unit, digit]
    return parent, piece


def _unique(owner: Index, piece: Pattern) -> tuple[Index, Index]:
    """First occurrence and inverse of the distinct rows (owner, piece)."""
    label = np.ascontiguousarray(owner, dtype=np.int64).view(np.uint8).reshape(len(owner), 8)
    rows = np.ascontiguousarray(np.concatenate([label, piece], axis=1))
    keys = rows.view(f"V{rows.shape[1]}")[:, 0]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first, inverse
