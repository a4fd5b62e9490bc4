"""The questions users ask about a network under a law, one module and one result type each."""
