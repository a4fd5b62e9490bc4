"""What a report is about, the answers that its sections share, and how long each may take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reluscope._check import FloatArray
from reluscope.budget import Budget
from reluscope.errors import InputError
from reluscope.inputs import ClassMixtures, Law
from reluscope.measure.exactness import MOST_EXACT_DIMENSIONS
from reluscope.network import Network

_DRAWS = 100_000
MOST_LINE_UNITS, MOST_LINE_INPUTS = 2500, 1000
"""Larger networks get no lines: one takes longer than a report may."""
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
    events: tuple[str, ...] = ()
    budget: Budget = field(default_factory=lambda: Budget(seconds=60.0))
    seed: int = 0
    cache: dict[str, Any] = field(default_factory=dict)
    """Answers that several sections share."""

    def feature(self, i: int) -> str:
        """The name of input i."""
        return self.names[i] if self.names is not None else f"x[{i}]"

    def allow(self, share: float) -> float:
        """Seconds for one question: this share of the whole, or half of what is left, but never less than 0.2."""
        left = self.budget.seconds - self.budget.elapsed()
        return max(0.2, min(share * self.budget.seconds, 0.5 * left))

    def linear_models(self) -> Any:
        """`linear_models(net, law)`, computed once."""
        if "linear_models" not in self.cache:
            self.refuse_if_large("rs.linear_models")
            from reluscope.answers.linear_models import linear_models

            exact = self.seen() <= MOST_EXACT_DIMENSIONS
            budget = f"{self.allow(0.2):g}s, 300000 regions" if exact else f"{self.allow(0.05):g}s"
            found = linear_models(self.net, self.law, method="auto" if exact else "lines", budget=budget, rng=self.seed)
            if exact and found.stopped and found.remainder > _MOST_MISSING:
                budget = f"{self.allow(0.05):g}s"
                found = linear_models(self.net, self.law, method="lines", budget=budget, rng=self.seed)
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
        """Whether the largest or the smallest output decides: the smallest where an event speaks of argmin."""
        return "smallest" if any("argmin" in text for text in self.events) else "largest"

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
