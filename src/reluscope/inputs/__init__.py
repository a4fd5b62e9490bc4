"""Laws of a network's input, and the coordinates in which the network sees them.

`Gaussian`, `GaussianMixture` (given, fitted, or one kernel per sample: `kde`), `Uniform`, `Truncated` and `Particles`
are immutable laws with exact draws; `standard` turns a law and a network into components `u ~ N(0, I_r)`,
boxes or points; `law_from_json` reads a law from a file.

- `_law`: what all laws have in common
- `_gaussian`, `_mixture`, `_simple`, `_truncated`: the laws
- `_factor`: covariances held as factors
- `_normal1`, `_tilting`: exact draws of normal numbers restricted to an interval, or by inequalities
- `_standard`: each component in the fewest coordinates the network can see
- `_plain`: laws from JSON
"""

from reluscope.inputs._factor import Factor, loading_factor
from reluscope.inputs._gaussian import Gaussian
from reluscope.inputs._law import FAR, Box, Law, Restriction, check_law, data_rows, far_sides
from reluscope.inputs._mixture import ClassMixtures, GaussianMixture, kde
from reluscope.inputs._normal1 import restricted_moments, restricted_normals
from reluscope.inputs._plain import classes_from_json, law_from_dict, law_from_json
from reluscope.inputs._simple import Particles, Uniform
from reluscope.inputs._standard import Component, standard
from reluscope.inputs._truncated import Truncated

__all__ = [
    "FAR",
    "Box",
    "ClassMixtures",
    "Component",
    "Factor",
    "Gaussian",
    "GaussianMixture",
    "Law",
    "Particles",
    "Restriction",
    "Truncated",
    "Uniform",
    "check_law",
    "classes_from_json",
    "data_rows",
    "far_sides",
    "kde",
    "law_from_dict",
    "law_from_json",
    "loading_factor",
    "restricted_moments",
    "restricted_normals",
    "standard",
]
