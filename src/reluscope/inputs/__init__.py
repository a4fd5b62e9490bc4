"""Laws of a network's input, and the coordinates in which the network sees them.

`Gaussian`, `GaussianMixture` (given, fitted, or one kernel per sample: `kde`), `Uniform`, `Truncated` and `Particles`
are immutable laws with exact draws; `standard` turns a law and a network into components `u ~ N(0, I_r)`,
boxes or points; `law_from_json` reads a law from a file.
"""

from reluscope.inputs._gaussian import Gaussian
from reluscope.inputs._law import FAR, Law, Restriction, check_law, far_sides
from reluscope.inputs._mixture import ClassMixtures, GaussianMixture, kde
from reluscope.inputs._plain import classes_from_json, law_from_dict, law_from_json
from reluscope.inputs._simple import Particles, Uniform
from reluscope.inputs._standard import Component, standard
from reluscope.inputs._truncated import Truncated

__all__ = [
    "FAR",
    "ClassMixtures",
    "Component",
    "Gaussian",
    "GaussianMixture",
    "Law",
    "Particles",
    "Restriction",
    "Truncated",
    "Uniform",
    "check_law",
    "classes_from_json",
    "far_sides",
    "kde",
    "law_from_dict",
    "law_from_json",
    "standard",
]
