"""What the engines share: draws, traced lines and rays, sums, fitted mixtures, the search for rare events.

- `costs`: what lines and points cost, by formula
- `draws`: lines and points under a component of a law, from Sobol points or independent numbers
- `trace`: a network along many lines: where its pieces change, and its values
- `line_sums`: closed-form integrals along a traced line
- `job`, `tally`: what is summed over lines or points, and the sums
- `rays`, `ray_event`, `ray_sampler`: rays from the origin: radial laws, the part inside an event, weighted draws
- `mixture`: mixtures of directions, fitted to points
- `search`, `proposal`: the walk into a rare event, and the proposal that is made of what it finds
"""

from reluscope.measure.shared.costs import (
    decided_seconds,
    drawn_seconds,
    frame_seconds,
    lines_seconds,
    moved_seconds,
    point_seconds,
    single_seconds,
    slope_seconds,
    small_seconds,
)
from reluscope.measure.shared.draws import (
    MOST_POINTS,
    BoxLines,
    ChordLines,
    GaussianLines,
    IndependentDraws,
    RadialLines,
    SobolDraws,
    Source,
    normals,
)
from reluscope.measure.shared.job import Flags, FormRows, Job, Sides, form_rows
from reluscope.measure.shared.line_sums import segment_masses
from reluscope.measure.shared.mixture import Directions, fit, join, modes_of
from reluscope.measure.shared.proposal import HALFWAY, RayPlan, make_plan, standard_deviation
from reluscope.measure.shared.ray_event import RayRows, ray_rows
from reluscope.measure.shared.ray_sampler import Drawn, Proposal, Sampler
from reluscope.measure.shared.rays import CHI, POWER, Rays
from reluscope.measure.shared.search import flat_values, pcn, tuned, walk, without
from reluscope.measure.shared.tally import Parts, Tally, batches
from reluscope.measure.shared.trace import Tracer

__all__ = [
    "CHI",
    "HALFWAY",
    "MOST_POINTS",
    "POWER",
    "BoxLines",
    "ChordLines",
    "Directions",
    "Drawn",
    "Flags",
    "FormRows",
    "GaussianLines",
    "IndependentDraws",
    "Job",
    "Parts",
    "Proposal",
    "RadialLines",
    "RayPlan",
    "RayRows",
    "Rays",
    "Sampler",
    "Sides",
    "SobolDraws",
    "Source",
    "Tally",
    "Tracer",
    "batches",
    "decided_seconds",
    "drawn_seconds",
    "fit",
    "flat_values",
    "form_rows",
    "frame_seconds",
    "join",
    "lines_seconds",
    "make_plan",
    "modes_of",
    "moved_seconds",
    "normals",
    "pcn",
    "point_seconds",
    "ray_rows",
    "segment_masses",
    "single_seconds",
    "slope_seconds",
    "small_seconds",
    "standard_deviation",
    "tuned",
    "walk",
    "without",
]
