"""Laws of a network's input, and the coordinates in which the network sees them.

`Gaussian`, `GaussianMixture` (given, fitted, or one kernel per sample: `kde`), `Uniform`, `Truncated`, `Mixture`,
`Particles`, `Categorical` and `Copula` (any marginals) are immutable laws with exact draws; `standard` turns a law and
a network into components `u ~ N(0, I_r)`, boxes or points; `law_from_json` reads a law from a file.

- `_law`: what all laws have in common
- `_gaussian`, `_mixture`, `_mixed`, `_simple`, `_truncated`: the laws
- `_open`: laws written by users, of which only draws are known
- `_marginal`, `_copula`: any distribution of one input as a function of a normal score; a Gaussian of such scores
- `_categories`: categories as points; products of independent laws
- `_condition`: laws given values or bounds, without some inputs, moved and scaled
- `_fit`, `_law_check`: a law fitted to a table, and how well one fits
- `_names`: names of inputs
- `_factor`: covariances held as factors
- `_normal1`, `_tilting`: exact draws of normal numbers restricted to an interval, or by inequalities
- `_standard`: each component in the fewest coordinates the network can see
- `_plain`: laws from JSON
"""

from reluscope.inputs._categories import Categorical, product
from reluscope.inputs._copula import Copula, score_correlation
from reluscope.inputs._factor import Factor, loading_factor
from reluscope.inputs._fit import fit
from reluscope.inputs._gaussian import Gaussian
from reluscope.inputs._law import FAR, Box, Law, Restriction, check_law, data_rows, far_sides
from reluscope.inputs._law_check import LawCheck
from reluscope.inputs._marginal import Marginal
from reluscope.inputs._mixed import Mixture
from reluscope.inputs._mixture import ClassMixtures, GaussianMixture, kde
from reluscope.inputs._normal1 import restricted_moments, restricted_normals
from reluscope.inputs._open import OpenLaw
from reluscope.inputs._plain import classes_from_dict, classes_from_json, law_from_dict, law_from_json
from reluscope.inputs._simple import Particles, Uniform
from reluscope.inputs._standard import Component, known_law, lifted, only_draws, own_pattern, standard
from reluscope.inputs._truncated import Truncated

__all__ = [
    "FAR",
    "Box",
    "Categorical",
    "ClassMixtures",
    "Component",
    "Copula",
    "Factor",
    "Gaussian",
    "GaussianMixture",
    "Law",
    "LawCheck",
    "Marginal",
    "Mixture",
    "OpenLaw",
    "Particles",
    "Restriction",
    "Truncated",
    "Uniform",
    "check_law",
    "classes_from_dict",
    "classes_from_json",
    "data_rows",
    "far_sides",
    "fit",
    "kde",
    "known_law",
    "law_from_dict",
    "law_from_json",
    "lifted",
    "loading_factor",
    "only_draws",
    "own_pattern",
    "product",
    "restricted_moments",
    "restricted_normals",
    "score_correlation",
    "standard",
]
