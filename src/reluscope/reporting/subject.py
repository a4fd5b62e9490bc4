"""What a report is about, the answers that its sections share, and how long each may take."""

from __future__ import annotations

from dataclasses import dataclass, field
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

_DRAWS = 100_000
MOST_LINE_UNITS, MOST_LINE_INPUTS = 2500, 1000
"""Larger networks get no lines: one takes longer than a report may."""
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
    names: tuple[str, ...] | None = None
    decision: str = ""
    """Which output decides, when asked for: "largest" or "smallest"."""
    events: tuple[str, ...] = ()
    budget: Budget = field(default_factory=lambda: Budget(seconds=60.0))
    seed: int = 0
    cache: dict[str, Any] = field(default_factory=dict)
    """Answers that several sections share."""
    records: list[dict[str, Any]] = field(default_factory=list)
    """What the answers were computed from, for `replay`."""

    def keep(self, event: Any, answer: Any, law: Any = None, **asked: Any) -> None:
        """Keep the record of an answer."""
        from reluscope.answers.replay import record

        law, names = self.law if law is None else law, None if event is None else self.names
        self.records.append(record(self.net, law, event, answer, names=names, **asked))

    def feature(self, i: int) -> str:
        """The name of input i."""
        return self.names[i] if self.names is not None else f"x[{i}]"

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
        if "nearest" not in self.cache:
            self.cache["nearest"] = None
            if self.events:
                from reluscope.answers.witness import witness

                budget = self.allow(0.05)
                found = witness(self.net, self.law, self.events[0], names=self.names, budget=budget, rng=self.seed)
                self.cache["nearest"] = found[0] if len(found) else None
        return self.cache["nearest"]

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

    def outputs(self) -> Any:
        """`outputs(net, law)`, computed once."""
        if "outputs" not in self.cache:
            self.refuse_if_large("rs.outputs")
            from reluscope.answers.outputs import outputs

            # each of some twenty questions takes this long where lines are drawn
            exact = self.seen() <= MOST_EXACT_DIMENSIONS
            each = f"{max(0.1, self.allow(0.1) / 20):g}s"
            budget = f"{self.allow(0.2):g}s, 300000 regions" if exact else each
            found = outputs(self.net, self.law, budget=budget, rng=self.seed)
            unless_interrupted(found.stopped)
            if exact and found.stopped:  # moments have no bracket when mass is missing; lines estimate them
                found = outputs(self.net, self.law, method="lines", budget=each, rng=self.seed)
            self.cache["outputs"] = found
        return self.cache["outputs"]

    def seen(self) -> int:
        """In how many dimensions the network sees the law, at most."""
        from reluscope.inputs import standard

        if "seen" not in self.cache:
            self.cache["seen"] = max(c.r for c in standard(self.law, self.net))
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
        if self.decision or self._rule:
            return ""
        return 'That the largest output decides is assumed; decision="smallest" in rs.report says otherwise.'

    def probability(self, text: str, seconds: float) -> Any:
        """The probability of an event, computed once."""
        found = self.cache.setdefault("events", {})
        if text not in found:
            from reluscope.answers.probability import probability

            budget = f"{seconds:g}s"
            found[text] = probability(self.net, self.law, text, budget=budget, names=self.names, rng=self.seed)
            self.keep(text, found[text], budget=budget)
        return found[text]

    def refuse_if_large(self, call: str) -> None:
        """Raise an error with the reason when lines through this network take longer than a report may."""
        if self.net.n_units > MOST_LINE_UNITS or self.net.n_inputs > MOST_LINE_INPUTS:
            raise InputError(
                f"the network has {self.net.n_units:,} units and {self.net.n_inputs:,} inputs, too many for the time "
                f"of a report; ask {call}(net, law, budget=...) by itself"
            )

    def draws(self) -> tuple[FloatArray, FloatArray]:
        """Inputs from the law and their outputs: the Monte Carlo that is laid over exact curves."""
        if "draws" not in self.cache:
            n = int(np.clip(2e9 / max(1, self.net.n_parameters), 2000, _DRAWS))
            x = self.law.sample(n, rng=self.seed)
            self.cache["draws"] = (x, self.net(x))
        return self.cache["draws"]
