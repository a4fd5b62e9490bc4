"""Sound brackets of the probability of an event: linear bounds, branch and bound.

- `bracket`: `bound_event`: a portfolio of the three searches below, and its answer
- `frame`: the coordinates of each component of the law
- `seen`: the part of the network that an event reads
- `boxes`: splits boxes of those coordinates
- `turn`: coordinates of a normal law in which it needs few of them
- `chain`, `search`, `tasks`: the layers as its kernels read them, bounds of one box, boxes in batches
- `mass`: rounded-outward masses of boxes
- `points`, `witness`: what sampled points say, and an input inside
- `components`: the other two searches, for all components of a law
- `unit_search`, `units`: splits units, at a schedule of radii
- `slices`, `slab`, `means`: cuts along a few directions, the rest Gaussian: by relaxation, or by mean and gradient
- `relu_form`, `linear`, `roots`: the layers as these read them, linear bounds by substitution, where they start
- `distance`: masses of polyhedra
- `moves`: whether a decision can change within a radius, by boxes
- `noise`: Gaussian noise around many points, by the same bounds
"""

from reluscope.measure.sound.bracket import bound_event
from reluscope.measure.sound.moves import bound_changes
from reluscope.measure.sound.noise import Noise

__all__ = ["Noise", "bound_changes", "bound_event"]
