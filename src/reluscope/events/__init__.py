"""Events: what one may ask the probability of, as a record, as text, and placed on a law."""

from reluscope.events.record import Case, Event
from reluscope.events.text import as_event, event

__all__ = ["Case", "Event", "as_event", "event"]
