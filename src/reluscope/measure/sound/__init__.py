"""Sound brackets of the probability of an event: linear bounds, branch and bound.

- `bracket`: `bound_event`: the whole search, and its answer
- `frame`: the box and the coordinates that are split
- `chain`: the layers as the kernels read them
- `search`, `tasks`: bounds of one box, and boxes in batches
- `mass`: rounded-outward masses of boxes
- `points`, `witness`: what sampled points say, and an input inside
"""

from reluscope.measure.sound.bracket import bound_event

__all__ = ["bound_event"]
