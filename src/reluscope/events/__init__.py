"""Events: what one may ask the probability of, as a record, as text, and placed on a law.

- `dnf`: the disjunctive normal form, shared with VNN-LIB
- `named`: the names of a schema, as the language uses them
- `placed`: an event placed on a law, or on a part of it: network, rows, case starts, features, mass
- `rational`: events at points, in rational arithmetic where floats cannot tell
- `record`: the record: a union of cases, each a conjunction of rows
- `relation`: several networks or inputs: the one network that a question is about
- `shadow`: what an event asks of one output alone
- `text`: the language of events
"""

from reluscope.events.dnf import Bounds, Formula, Join, Row, Variable, disjuncts, rounded_row
from reluscope.events.placed import PlacedEvent, lifted_question, place, place_parts, place_together
from reluscope.events.rational import ExactNetwork, decided, feature_errors
from reluscope.events.record import Case, Event, assembled
from reluscope.events.relation import Declared, Relation, Tensor, entry_name, entry_names, joined, tensor_values
from reluscope.events.shadow import output_intervals
from reluscope.events.text import as_event, event

__all__ = [
    "Bounds",
    "Case",
    "Declared",
    "Event",
    "ExactNetwork",
    "Formula",
    "Join",
    "PlacedEvent",
    "Relation",
    "Row",
    "Tensor",
    "Variable",
    "as_event",
    "assembled",
    "decided",
    "disjuncts",
    "entry_name",
    "entry_names",
    "event",
    "feature_errors",
    "joined",
    "lifted_question",
    "output_intervals",
    "place",
    "place_parts",
    "place_together",
    "rounded_row",
    "tensor_values",
]
