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

from reluscope._check import FloatArray, choice, describe, generator, integer, real, real_array
from reluscope._lazy import late
from reluscope.answer import Answer
from reluscope.answers._marginals import Index, Mask, advance, combinations, marginals, products, unique_rows
from reluscope.answers._patterns import checked, draw_patterns, enumerated_patterns, share, summed
from reluscope.budget import parse_budget
from reluscope.errors import InputError
from reluscope.intervals import DEFAULT_LEVEL
from reluscope.measure.exactness import all_exact
from reluscope.network import Network, Pattern, pattern_rows
from reluscope.threads import blas_threads, clean_interrupt

if TYPE_CHECKING:
    from reluscope.inputs import Law

_Leaves: TypeAlias = tuple[Pattern, Mask, FloatArray]

_MAP_NUMBERS = 1 << 21
"""Numbers in the affine maps of one batch of prefixes: 16 MB."""
_RANKED_PREFIXES = 100_000
_RANKED_WORK = 1 << 34
"""Iteration is in exact order of score for up to this many prefixes, and multiplications to walk them."""
_NEVER = 1e-12
"""Pieces of lower probability are left out even for a free unit (of three or more pieces, or at threshold 1/2)."""
_TIES = 10
"""Probabilities are compared after rounding to this many decimals, so that equal units tie however they were summed."""


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

    Attributes
    ----------
    network : Network
    law : Law
    thresholds, cap, threshold_kind
        As given to `support`, one threshold per layer.
    runs : tuple
        One pass of the algorithm per component.
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

        Parameters
        ----------
        patterns : (n, units)

        Returns
        -------
        (n,) array of bool
        """
        rows = np.atleast_2d(pattern_rows(self.network, patterns))
        inside = np.zeros(len(rows), dtype=bool)
        if not self.network.hidden:
            return np.ones(len(rows), dtype=bool)
        with blas_threads(max(self.network.widths)):
            for run in self.runs:
                left = np.flatnonzero(~inside)
                self._walk(run, 0, list(run.first), rows, left, np.zeros(len(left), dtype=np.intp), inside)
        return inside

    def coverage(self, X: npt.ArrayLike) -> Answer:
        """Share of the rows of `X` (n, inputs) whose pattern is in the set: a plain count of these rows.

        Parameters
        ----------
        X : (n, inputs)

        Returns
        -------
        Answer
        """
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
        allowed = self._allowed(layer, marginals(units, maps, run.weights))
        agrees = allowed[owner[:, None], np.arange(len(units)), piece].all(axis=1)
        left, owner, piece = left[agrees], owner[agrees], piece[agrees]
        if layer + 1 == len(self.network.hidden):
            inside[left] = True
            return
        if not len(left):
            return
        first, inverse = unique_rows(owner, piece)
        order = np.argsort(inverse, kind="stable")
        starts = np.searchsorted(inverse[order], np.arange(len(first) + 1))
        size = self._batch(layer + 1, maps)
        for begin in range(0, len(first), size):
            chosen = first[begin : begin + size]
            mine = order[starts[begin] : starts[min(begin + size, len(first))]]
            after = advance(self.network, layer, [m[:, owner[chosen]] for m in maps], piece[chosen])
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
            entr = late("scipy.special", "entr")

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

        Parameters
        ----------
        prefixes : int

        Returns
        -------
        Answer
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
        sizes = [sum(int(products(allowed).sum()) for _, allowed, _ in found) for found in leaves]
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
            probability = marginals(self.network.hidden[layer].units, maps, run.weights)
            allowed = self._allowed(layer, probability)
            if layer == last:
                found.append((prefix, allowed, score + np.log(probability.max(axis=2)).sum(axis=1)))
                continue
            children = int(products(allowed).sum())
            if walked + children > most:
                rest_low += children
                rest_high += children * self._most_after(layer + 1)
                continue
            walked += children
            parent, piece = combinations(allowed)
            size = self._batch(layer + 1, maps)
            for begin in range(0, len(parent), size):
                some = slice(begin, begin + size)
                after = advance(self.network, layer, [m[:, parent[some]] for m in maps], piece[some])
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
        _, inverse = unique_rows(np.zeros(len(prefix), dtype=np.intp), prefix)
        members = np.bincount(inverse)
        alone = members[inverse] == 1
        total = int(products(allowed[alone]).sum())
        if members.max() > 12:
            return None
        for group in np.flatnonzero(members > 1):
            boxes = allowed[inverse == group]
            for size in range(1, len(boxes) + 1):
                for some in itertools.combinations(range(len(boxes)), size):
                    both = boxes[list(some)].all(axis=0)
                    total += (-1) ** (size + 1) * int(products(both[None])[0])
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

        Parameters
        ----------
        k : int

        Returns
        -------
        patterns, scores : (k, units) and (k,) arrays
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
                    after = advance(self.network, node.layer, node.maps, piece[None])
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
                probability = marginals(self.network.hidden[layer].units, maps, run.weights)[0]
                score += float(np.log(probability[np.arange(len(piece)), piece]).sum())
                maps = advance(self.network, layer, maps, piece[None])
            return self._node(run, last, maps, score)

    def _node(self, run: _Run, layer: int, maps: list[FloatArray], score: float) -> _Node:
        probability = marginals(self.network.hidden[layer].units, maps, run.weights)
        allowed = self._allowed(layer, probability)[0]
        logs = np.where(allowed, np.log(np.where(allowed, probability[0], 1.0)), -np.inf)
        free = np.flatnonzero(allowed.sum(axis=1) > 1).tolist()
        order_of = np.argsort(-logs, axis=1, kind="stable")
        pieces = [order_of[j, : int(allowed[j].sum())].tolist() for j in free]
        losses = [[float(logs[j, order[0]] - logs[j, q]) for q in order] for j, order in zip(free, pieces, strict=True)]
        best = logs.argmax(axis=1).astype(np.uint8)
        return _Node(layer, maps, best, free, pieces, losses, score + float(logs.max(axis=1).sum()))

    def sample(self, n: int, rng: Any = None) -> Pattern:
        """Patterns of the set, drawn piece by piece with the algorithm's own marginal probabilities.

        These are not the true probabilities (see `support`). For draws with those, take patterns of random inputs
        that are in the set.

        Parameters
        ----------
        n : int
        rng : optional
            None, an int, a SeedSequence or a Generator.

        Returns
        -------
        (n, units) array
        """
        count, gen, net = integer(n, "n", low=1), generator(rng), self.network
        shares = np.array([run.share for run in self.runs])
        parts = []
        for run, k in zip(self.runs, gen.multinomial(count, shares / shares.sum()).tolist(), strict=True):
            maps = [np.repeat(m, k, axis=1) for m in run.first]
            pieces = [np.zeros((k, 0), np.uint8)]
            for layer, hidden in enumerate(net.hidden if k else ()):
                probability = marginals(hidden.units, maps, run.weights)
                probability = np.where(self._allowed(layer, probability), probability, 0.0)
                steps = np.cumsum(probability, axis=2)
                u = gen.random(steps.shape[:2])[:, :, None] * steps[:, :, -1:]
                pieces.append((u > steps[:, :, :-1]).sum(axis=2).astype(np.uint8))
                if layer + 1 < len(net.hidden):
                    maps = advance(net, layer, maps, pieces[-1])
            if k:
                parts.append(np.concatenate(pieces, axis=1))
        return np.concatenate(parts)[gen.permutation(count)]

    # -- probability ---------------------------------------------------------------------------------------------

    def mass(
        self,
        *,
        method: str = "auto",
        draws: int = 100_000,
        level: float = DEFAULT_LEVEL,
        budget: Any = None,
        rng: Any = None,
    ) -> Answer:
        """The true probability of the set under the law.

        "enumeration": all regions with exact masses, for laws that the network sees in up to three dimensions (six
        for uniform laws; any for particles). If the budget ends first, a sound bracket. "draws": the share of `draws`
        inputs whose pattern is in the set, with the exact binomial interval. "auto": enumeration where it is possible
        and completes, else draws.

        Parameters
        ----------
        method : {"auto", "enumeration", "draws"}
        draws : int
            Fewer where the budget does not allow so many.
        level : float
            Confidence level of the interval from draws.
        budget : optional
            A time or a number of regions; where both ways may be taken, half of the time is for the enumeration.
        rng : optional
            None, an int, a SeedSequence or a Generator.

        Returns
        -------
        Answer
        """
        how = choice(method, "method", ("auto", "enumeration", "draws"))
        count = integer(draws, "draws", low=1)
        level = real(level, "level", low=0.0, high=1.0, open_=True)
        limit, gen = parse_budget(budget), generator(rng)
        components = checked(self.network, self.law)
        if how == "enumeration" and not all_exact(components):
            raise InputError(
                f"method='enumeration' needs a law seen in at most 3 dimensions, got {max(c.r for c in components)}; "
                "use method='draws'"
            )
        if how == "enumeration" or (how == "auto" and all_exact(components)):
            within = None if budget is None else limit.part(0.8 if how == "enumeration" else 0.5)
            found = enumerated_patterns(self.network, self.law, within)
            if how == "enumeration" or not found.stopped:
                return summed(found, self.contains(found.pattern))
        other = np.random.default_rng(0)

        def pilot(n: int) -> None:
            for batch in draw_patterns(self.network, self.law, components, n, other):
                self.contains(batch)

        count = limit.afford(pilot, count)
        hits = sum(
            int(self.contains(batch).sum()) for batch in draw_patterns(self.network, self.law, components, count, gen)
        )
        return share(hits, count, level)

    def __repr__(self) -> str:
        same = len(set(self.thresholds)) == 1
        text = f"{self.thresholds[0]:g}" if same else ", ".join(f"{t:g}" for t in self.thresholds)
        passes = f", {len(self.runs)} passes" if len(self.runs) > 1 else ""
        return f"Support({self.network!r}, {self.threshold_kind} threshold {text or '-'}, cap {self.cap}{passes})"


@clean_interrupt()
def support(
    net: Network,
    law: Law,
    threshold: Any = 0.1,
    cap: int = 10,
    *,
    threshold_kind: str = "distance",
    mixture: str = "together",
) -> Support:
    """The patterns that combine the likely pieces of all units: Algorithms 1-3 of Chaudhari and Moura.

    Parameters
    ----------
    net : Network
    law : Law
        The distribution of the inputs. Laws that are not Gaussian are walked as the Gaussian of the same mean and
        covariance.
    threshold : float or sequence
        When a unit is free (see Notes): one number, or one per hidden layer.
    cap : int
        At most so many units are free per layer and prefix, the most uncertain ones; the rest are fixed.
    threshold_kind : {"distance", "entropy"}
    mixture : {"together", "each"}
        "together" makes one pass with the mixture's marginals `sum_k w_k P_k`, the paper's equation (21); "each" walks
        every Gaussian component by itself and takes the union, which holds more where components are far apart.

    Returns
    -------
    Support

    Raises
    ------
    InputError
        If an argument does not fit the network.

    Notes
    -----
    Walking down the layers, unit j of a layer has on the pieces chosen so far the pre-activation `h_j = C_j u + d_j`,
    `u ~ N(0, I)`, hence `P(t < h_j <= t') = Phi((t' - d_j) / |C_j|) - Phi((t - d_j) / |C_j|)` for the piece between
    break points t and t' (a ReLU is on with probability `Phi(d_j / |C_j|)`). A unit is free

    - `threshold_kind="distance"`: if no piece has more than `1/2 + threshold` (0 to 1/2; a larger one frees more);
    - `threshold_kind="entropy"`: if its entropy is at least `threshold` bits (a larger one frees fewer);

    and otherwise fixed to its likeliest piece. A free unit may take any piece of probability above 1e-12. The set holds
    all combinations.

    **No mass guarantee.** The marginals are those of the *untruncated* Gaussian pushed through the chosen linear model,
    not probabilities given the pieces chosen before. `Support.mass` says what the set truly holds, and `probable` finds
    patterns with a certificate.

    Corrections to the paper: the standard deviation (not the variance) goes under Phi in Algorithm 3; the cap is on the
    free units (the paper's index set holds the fixed ones); a threshold of 0.1 in distance is 0.971 bits, not
    0.92; pieces are named by index, so that units with any number of break points, slopes and intercepts work.

    Cost: none here beyond the reduction to standard coordinates; see the methods.

    Examples
    --------
    >>> from reluscope import Gaussian, Network, support
    >>> net = Network([([[1.0], [1.0]], [3.0, 0.0]), ([[1.0, 1.0]], None)])
    >>> s = support(net, Gaussian([0.0]))
    >>> len(s), [0, 1] in s, [1, 0] in s
    (2, False, True)
    """
    checked(net, law)
    kind = choice(threshold_kind, "threshold_kind", ("distance", "entropy"))
    most = integer(cap, "cap", low=0)
    joint = choice(mixture, "mixture", ("together", "each")) == "together"
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
