"""Families of laws that ReLU layers map into themselves, and what happens to those that they do not.

A family is *invariant* when the law of `relu(W x + b)` is again in the family for every member x and every layer.
Macdonald and Wäldchen proved that a parametrised family can only be so if layers have width one, or its members have
finite support, or its parametrisation is not locally Lipschitz. One example of each is here:

- finite support: `Particles`, moved exactly by `push`;
- width one: `Clamped`, the law of `clamp(a x + b, lo, hi)` for a fixed base law: four parameters, exact cdf;
- not locally Lipschitz: `Coded`, the layers written into the digits of one real number, exactly.

`is_invariant` checks a family, or finds a member and a layer that lead out of it; `growth` counts how many truncated
Gaussians the exact law after each layer needs, and how wrong the moment-matched Gaussian is.
"""

from reluscope.invariance.clamped import Clamped as Clamped
from reluscope.invariance.coded import Coded as Coded
from reluscope.invariance.coded import decode as decode
from reluscope.invariance.coded import encode as encode
from reluscope.invariance.coded import lipschitz_quotients as lipschitz_quotients
from reluscope.invariance.components import Growth as Growth
from reluscope.invariance.components import growth as growth
from reluscope.invariance.components import relu_moments as relu_moments
from reluscope.invariance.families import CodedFamily as CodedFamily
from reluscope.invariance.families import FiniteSupport as FiniteSupport
from reluscope.invariance.families import Gaussians as Gaussians
from reluscope.invariance.families import Invariance as Invariance
from reluscope.invariance.families import Mixtures as Mixtures
from reluscope.invariance.families import WidthOne as WidthOne
from reluscope.invariance.families import is_invariant as is_invariant
from reluscope.invariance.finite import push as push

__all__ = [
    "Clamped",
    "Coded",
    "CodedFamily",
    "FiniteSupport",
    "Gaussians",
    "Growth",
    "Invariance",
    "Mixtures",
    "WidthOne",
    "decode",
    "encode",
    "growth",
    "is_invariant",
    "lipschitz_quotients",
    "push",
    "relu_moments",
]
