"""What a report is about, the answers that its sections share, and how long each may take."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reluscope._check import FloatArray
from reluscope.answer import unless_interrupted
from reluscope.budget import Budget
from reluscope.errors import InputError
from reluscope.inputs import ClassMixtures, Law
from reluscope.measure.exactness import MOST_EXACT_DIMENSIONS
from reluscope.network import Network
from reluscope.schema import Label, assumed, input_labels, models_in_units, output_labels
from reluscope.threads import OutOfTimeError, deadline

_DRAWS = 100_000
MOST_LINE_UNITS, MOST_LINE_INPUTS = 2500, 1000
"""Larger networks get no lines: one takes longer than a report may."""
_MOST_COMPONENTS = 100
"""With more components, moments of a law with any marginals come from draws."""
_MOST_LINE_COMPONENTS = 1000
"""Components of a law that lines can visit, each at least once, in the time of a report."""
AT_THE_MEAN = 0.2
"""Standard deviations up to which an input counts as the mean itself."""
_NUMBERS = 1 << 23
"""Numbers in a batch of inputs."""
_MOST_MISSING = 0.01
"""With more mass that enumeration did not reach in time, lines say more."""


@dataclass(frozen=True)
class Subject:
    """What a report is about: the network, the law of its inputs and where it came from, and what else was given."""

    net: Network
    law: Law
    law_from: str
    classes: ClassMixtures | None = None
    """One law per class (`ClassMixtures`), when known."""
    X: FloatArray | None = None
    y: Any = None
    X_test: FloatArray | None = None
    y_test: Any = None
    names: tuple[str, ...] | None = None
    decision: str = ""
    """Which output decides, when asked for: "largest" or "smallest"."""
    events: tuple[str, ...] = ()
    guarantee: str = "auto"
    """Of the probabilities of these events."""
    budget: Budget = field(default_factory=lambda: Budget(seconds=60.0))
    seed: int = 0
    cache: dict[str, Any] = field(default_factory=dict)
    """Answers that several sections share."""
    records: list[dict[str, Any]] = field(default_factory=list)
    """What the answers were computed from, for `replay`."""

    @property
    def table(self) -> bool:
        """Whether the inputs are columns of a table: names, units and categories are known."""
        return self.net.schema is not None and bool(self.net.schema.columns)

    def keep(self, event: Any, answer: Any, law: Any = None, **asked: Any) -> None:
        """Keep the record of an answer."""
        from reluscope.answers.replay import record

        law, names = self.law if law is None else law, None if event is None else self.names
        self.records.append(record(self.net, law, event, answer, names=names, **asked))

    def feature(self, i: int) -> str:
        """The name of input i."""
        return self.names[i] if self.names is not None else f"x[{i}]"

    def axis(self, i: int) -> Label:
        """What input i is called beside an axis, with its unit."""
        return replace(input_labels(self.net.schema, self.net.n_inputs)[i], name=self.feature(i))

    def result(self, o: int) -> Label:
        """What the values of output o are called, with their unit."""
        return output_labels(self.net.schema, self.net.n_outputs)[o]

    def in_units(self, C: FloatArray, d: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Linear models `C x + d`, shapes (..., outputs, inputs) and (..., outputs), for values in their units."""
        return models_in_units(self.net.schema, C, d)

    def output(self, o: int) -> str:
        """The name of output o, or of the class that it stands for."""
        schema = self.net.schema
        if schema is None:
            return f"y[{o}]"
        if len(schema.classes) == self.net.n_outputs:
            return str(schema.classes[o])
        return schema.output_names[o] if schema.outputs else f"y[{o}]"

    def allow(self, share: float) -> float:
        """Seconds for one question: this share of the whole, or half of what is left, but never less than 0.2."""
        left = self.budget.seconds - self.budget.elapsed()
        return max(0.2, min(share * self.budget.seconds, 0.5 * left))

    def holds(self, text: str, X: FloatArray) -> npt.NDArray[np.bool_]:
        """Where an event holds, for rows (n, inputs), in batches."""
        from reluscope.events import event

        net = self.net
        placed = event(text, net.n_inputs, net.n_outputs, net=net, law=self.law, names=self.names)
        step = max(1, _NUMBERS // max(net.n_inputs, *net.widths))
        return np.concatenate([placed.holds(net, X[at : at + step]) for at in range(0, len(X), step)])

    def share_of_rows(self, text: str) -> float | None:
        """The share of the rows of data in an event; None without data."""
        return None if self.X is None else float(np.mean(self.holds(text, self.X)))

    def nearest(self) -> Any:
        """The nearest input of the first event that a short search finds (`Witness`), or None."""
        return self._witness("nearest", self.events[0]) if self.events else None

    def beyond(self) -> Any:
        """Where the first event holds at the mean: the nearest input outside of it that a short search finds."""
        nearest = self.nearest()
        if nearest is None or nearest.distance is None or nearest.distance > AT_THE_MEAN:
            return None
        if not self.holds(self.events[0], np.asarray(self.law.mean)[None])[0]:
            return None  # near the mean, but not there
        return self._witness("beyond", f"not ({self.events[0]})")

    def _witness(self, name: str, event: str) -> Any:
        if name not in self.cache:
            from reluscope.answers.witness import witness

            self.cache[name] = None
            budget, begun = self.allow(0.05), self.budget.elapsed()
            with suppress(OutOfTimeError), deadline(lambda: self.budget.elapsed() > begun + 2.0 * budget + 1.0):
                found = witness(self.net, self.law, event, names=self.names, budget=budget, rng=self.seed)
                self.cache[name] = found[0] if len(found) else None
        return self.cache[name]

    def linear_models(self) -> Any:
        """`linear_models(net, law)`, computed once."""
        if "linear_models" not in self.cache:
            self.refuse_if_large("rs.linear_models")
            from reluscope.answers.linear_models import linear_models

            exact = self.seen() <= MOST_EXACT_DIMENSIONS
            budget = f"{self.allow(0.2):g}s, 300000 regions" if exact else f"{self.allow(0.05):g}s"
            method = "auto" if exact else "lines"
            found = linear_models(self.net, self.law, method=method, budget=budget, rng=self.seed)
            unless_interrupted(found.stopped)
            if exact and found.stopped and found.remainder > _MOST_MISSING:
                budget, method = f"{self.allow(0.05):g}s", "lines"
                found = linear_models(self.net, self.law, method=method, budget=budget, rng=self.seed)
            self.keep(None, found, method=method, budget=budget)
            self.cache["linear_models"] = found
        return self.cache["linear_models"]

    def most_decided(self) -> int:
        """The output that decides most often where that was worked out, else the first."""
        found = self.cache.get("decisions")
        return 0 if found is None else int(found.outputs[0])

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of the inputs; from draws where the law has too many components for integrals."""
        if "moments" not in self.cache:
            law = self.law
            if len(getattr(law, "scores", law).components) > _MOST_COMPONENTS:
                x = self.draws()[0]
                self.cache["moments"] = x.mean(axis=0), np.atleast_2d(np.cov(x.T))
            else:
                self.cache["moments"] = np.asarray(law.mean), np.asarray(law.cov)
        return self.cache["moments"]

    def unwrapped(self) -> Any:
        """`unwrap(net, X, y)`, computed once."""
        if "unwrapped" not in self.cache:
            from reluscope.local_models.unwrap import unwrap

            self.cache["unwrapped"] = unwrap(
                self.net, self.X, self.y, feature_names=[self.feature(i) for i in range(self.net.n_inputs)]
            )
        return self.cache["unwrapped"]

    def outputs(self) -> Any:
        """`outputs(net, law)`, computed once."""
        if "outputs" not in self.cache:
            self.refuse_if_large("rs.outputs")
            from reluscope.answers.outputs import outputs

            # each of some twenty questions takes this long where lines are drawn
            exact = self.seen() <= MOST_EXACT_DIMENSIONS
            each = f"{max(0.1, self.allow(0.1) / 20):g}s"
            budget = f"{self.allow(0.2):g}s, 300000 regions" if exact else each
            method = "auto" if exact else "lines"
            found = outputs(self.net, self.law, method=method, budget=budget, rng=self.seed)
            unless_interrupted(found.stopped)
            if exact and found.stopped:  # moments have no bracket when mass is missing; lines estimate them
                found = outputs(self.net, self.law, method="lines", budget=each, rng=self.seed)
            self.cache["outputs"] = found
        return self.cache["outputs"]

    def seen(self) -> int:
        """In how many dimensions the network sees the law, at most."""
        from reluscope.inputs import standard

        if "seen" not in self.cache:
            components = standard(self.law, self.net)
            self.cache["seen"], self.cache["components"] = max(c.r for c in components), len(components)
        return int(self.cache["seen"])

    @property
    def deciding(self) -> str:
        """Whether the largest or the smallest output decides: as asked for, as the schema says, else the largest."""
        return self.decision or self._rule or "largest"

    @property
    def _rule(self) -> str:
        rule = "" if self.net.schema is None else self.net.schema.rule
        return rule if rule in ("largest", "smallest") else ""

    @property
    def assumption(self) -> str:
        """A sentence where nobody has said which output decides, else nothing."""
        how = 'decision="smallest" in rs.report (--decision smallest in the shell)'
        return assumed(self.net.schema, self.net.n_outputs, self.decision, how)

    def probability(self, text: str, seconds: float) -> Any:
        """The probability of an event, computed once."""
        found = self.cache.setdefault("events", {})
        if text not in found:
            from reluscope.answers.probability import probability

            budget, kind = f"{seconds:g}s", self.guarantee if text in self.events else "auto"
            found[text] = probability(
                self.net, self.law, text, names=self.names, guarantee=kind, budget=budget, rng=self.seed
            )
            unless_interrupted(found[text])
            self.keep(text, found[text], guarantee=kind, budget=budget)
        return found[text]

    @property
    def too_large(self) -> str:
        """What there is too much of for lines within the time of a report, or nothing."""
        if self.net.n_units > MOST_LINE_UNITS or self.net.n_inputs > MOST_LINE_INPUTS:
            return f"the network has {self.net.n_units:,} units and {self.net.n_inputs:,} inputs"
        return self._many_components

    @property
    def _many_components(self) -> str:
        exact = self.seen() <= MOST_EXACT_DIMENSIONS
        parts = int(self.cache["components"])
        return f"the law has {parts:,} components" if parts > _MOST_LINE_COMPONENTS and not exact else ""

    def refuse_if_large(self, call: str, *, law: bool = False) -> None:
        """Raise an error when lines would take longer than a report may; `law=True` looks at the law alone."""
        if reason := self._many_components if law else self.too_large:
            raise InputError(f"{reason}, too many for the time of a report; ask {call}(net, law, budget=...) by itself")

    def draws(self) -> tuple[FloatArray, FloatArray]:
        """Inputs from the law and their outputs: the Monte Carlo that is laid over exact curves."""
        if "draws" not in self.cache:
            n = int(np.clip(2e9 / max(1, self.net.n_parameters), 2000, _DRAWS))
            x = self.law.sample(n, rng=self.seed)
            self.cache["draws"] = (x, self.net(x))
        return self.cache["draws"]
