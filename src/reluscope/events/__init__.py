"""Events: the record, the text language, and an event placed on a component of a law."""
