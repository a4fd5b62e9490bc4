"""Events: what one may ask the probability of, as a record, as text, and placed on a law.

- `dnf`: the disjunctive normal form, shared with VNN-LIB
- `placed`: an event placed on a law, or on a part of it: network, rows, case starts, features, mass
- `record`: the record: a union of cases, each a conjunction of rows
- `text`: the language of events
"""

from reluscope.events.dnf import Bounds, Formula, Join, Row, Variable, disjuncts, rounded_row
from reluscope.events.placed import PlacedEvent, place, place_parts, place_together
from reluscope.events.record import Case, Event, assembled
from reluscope.events.text import as_event, event

__all__ = [
    "Bounds",
    "Case",
    "Event",
    "Formula",
    "Join",
    "PlacedEvent",
    "Row",
    "Variable",
    "as_event",
    "assembled",
    "disjuncts",
    "event",
    "place",
    "place_parts",
    "place_together",
    "rounded_row",
]
