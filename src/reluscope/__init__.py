"""Reluscope: what a trained ReLU network does, where, and how likely that is.

The names below are imported when they are first used, so `import reluscope` is quick. What a specialist wants has its
door in a sub-package, imported in the same way: `reluscope.representation.rays(net)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reluscope._lazy import lazy_door
from reluscope._version import __version__ as __version__

if TYPE_CHECKING:  # the same names as in _HOME below, which a test holds together
    from reluscope import cells as cells
    from reluscope import formats as formats
    from reluscope import inputs as inputs
    from reluscope import invariance as invariance
    from reluscope import lens as lens
    from reluscope import local_models as local_models
    from reluscope import measure as measure
    from reluscope import plot as plot
    from reluscope import recovery as recovery
    from reluscope import representation as representation
    from reluscope.activations import Activation as Activation
    from reluscope.algebra import parallel as parallel
    from reluscope.algebra import quantised as quantised
    from reluscope.algebra import stack as stack
    from reluscope.answer import Answer as Answer
    from reluscope.answers.certify import certify as certify
    from reluscope.answers.change import change as change
    from reluscope.answers.counterfactual import counterfactuals as counterfactuals
    from reluscope.answers.fairness import fairness as fairness
    from reluscope.answers.linear_models import linear_models as linear_models
    from reluscope.answers.outputs import error_rates as error_rates
    from reluscope.answers.outputs import outputs as outputs
    from reluscope.answers.probability import probability as probability
    from reluscope.answers.probable import probable as probable
    from reluscope.answers.relational import agreement as agreement
    from reluscope.answers.relational import monotone as monotone
    from reluscope.answers.relational import robust as robust
    from reluscope.answers.replay import record as record
    from reluscope.answers.replay import replay as replay
    from reluscope.answers.sensitivity import compare as compare
    from reluscope.answers.sensitivity import sensitivity as sensitivity
    from reluscope.answers.spectrum import spectrum as spectrum
    from reluscope.answers.support import support as support
    from reluscope.answers.witness import witness as witness
    from reluscope.batches.record import Batch as Batch
    from reluscope.batches.run import batch as batch
    from reluscope.cells.along import along as along
    from reluscope.cells.compare import distance as distance
    from reluscope.cells.compare import equivalent as equivalent
    from reluscope.cells.complex import polyhedral_complex as polyhedral_complex
    from reluscope.cells.lipschitz import lipschitz as lipschitz
    from reluscope.cells.reachable import reachable as reachable
    from reluscope.cells.regions import Regions as Regions
    from reluscope.cells.regions import regions as regions
    from reluscope.cells.regions import stream_regions as stream_regions
    from reluscope.cells.slices import Slice as Slice
    from reluscope.cells.slices import slice as slice
    from reluscope.cells.sup_norm import sup_norm as sup_norm
    from reluscope.cells.topology import Persistence as Persistence
    from reluscope.cells.topology import Topology as Topology
    from reluscope.cells.topology import persistence as persistence
    from reluscope.cells.topology import topology as topology
    from reluscope.errors import InputError as InputError
    from reluscope.errors import InputLimitError as InputLimitError
    from reluscope.errors import InputTypeError as InputTypeError
    from reluscope.errors import MissingExtraError as MissingExtraError
    from reluscope.errors import ReluscopeError as ReluscopeError
    from reluscope.errors import ReluscopeWarning as ReluscopeWarning
    from reluscope.errors import UnsupportedError as UnsupportedError
    from reluscope.errors import WorkerError as WorkerError
    from reluscope.events import Event as Event
    from reluscope.events import event as event
    from reluscope.examples import example as example
    from reluscope.formats import load as load
    from reluscope.formats.vnnlib import vnnlib as vnnlib
    from reluscope.inputs import Categorical as Categorical
    from reluscope.inputs import Copula as Copula
    from reluscope.inputs import Gaussian as Gaussian
    from reluscope.inputs import GaussianMixture as GaussianMixture
    from reluscope.inputs import Marginal as Marginal
    from reluscope.inputs import Mixture as Mixture
    from reluscope.inputs import Particles as Particles
    from reluscope.inputs import Truncated as Truncated
    from reluscope.inputs import Uniform as Uniform
    from reluscope.inputs import fit as fit
    from reluscope.inputs import kde as kde
    from reluscope.inputs import product as product
    from reluscope.limits import Limits as Limits
    from reluscope.local_models.estimators import LocalLinearClassifier as LocalLinearClassifier
    from reluscope.local_models.estimators import LocalLinearRegressor as LocalLinearRegressor
    from reluscope.local_models.estimators import ReluClassifier as ReluClassifier
    from reluscope.local_models.estimators import ReluRegressor as ReluRegressor
    from reluscope.local_models.l1_path import l1_path as l1_path
    from reluscope.local_models.unwrap import unwrap as unwrap
    from reluscope.loops import closed_loop as closed_loop
    from reluscope.measure.regions import mass as mass
    from reluscope.network import Network as Network
    from reluscope.recovery.oracle import Oracle as Oracle
    from reluscope.recovery.recover import recover as recover
    from reluscope.reporting.page import report as report
    from reluscope.representation.layers import layers as layers
    from reluscope.schema import Column as Column
    from reluscope.schema import Output as Output
    from reluscope.schema import Schema as Schema

_HOME = {
    name: module
    for module, names in {
        "activations": "Activation",
        "algebra": "parallel quantised stack",
        "answer": "Answer",
        "answers.certify": "certify",
        "answers.change": "change",
        "answers.fairness": "fairness",
        "answers.linear_models": "linear_models",
        "answers.outputs": "error_rates outputs",
        "answers.probability": "probability",
        "answers.probable": "probable",
        "answers.relational": "agreement monotone robust",
        "answers.replay": "record replay",
        "answers.sensitivity": "compare sensitivity",
        "answers.spectrum": "spectrum",
        "answers.support": "support",
        "answers.counterfactual": "counterfactuals",
        "answers.witness": "witness",
        "batches.record": "Batch",
        "batches.run": "batch",
        "cells.along": "along",
        "cells.compare": "distance equivalent",
        "cells.complex": "polyhedral_complex",
        "cells.lipschitz": "lipschitz",
        "cells.slices": "Slice slice",
        "cells.topology": "Persistence Topology persistence topology",
        "cells.reachable": "reachable",
        "cells.sup_norm": "sup_norm",
        "cells.regions": "Regions regions stream_regions",
        "errors": "InputError InputLimitError InputTypeError MissingExtraError ReluscopeError ReluscopeWarning "
        "UnsupportedError WorkerError",
        "events": "Event event",
        "examples": "example",
        "formats": "load",
        "formats.vnnlib": "vnnlib",
        "inputs": "Categorical Copula Gaussian GaussianMixture Marginal Mixture "
        "Particles Truncated Uniform fit kde product",
        "limits": "Limits",
        "local_models.estimators": "LocalLinearClassifier LocalLinearRegressor ReluClassifier ReluRegressor",
        "local_models.l1_path": "l1_path",
        "local_models.unwrap": "unwrap",
        "loops": "closed_loop",
        "measure.regions": "mass",
        "network": "Network",
        "recovery.oracle": "Oracle",
        "recovery.recover": "recover",
        "reporting.page": "report",
        "representation.layers": "layers",
        "schema": "Column Output Schema",
    }.items()
    for name in names.split()
}
"""Where each public name lives."""

_MODULES = (
    "cells",
    "formats",
    "inputs",
    "invariance",
    "lens",
    "local_models",
    "measure",
    "plot",
    "recovery",
    "representation",
)
"""Sub-packages with a door of their own: `reluscope.invariance.is_invariant`."""

__all__ = ["__version__", *sorted(_HOME)]

__getattr__ = lazy_door(__name__, _HOME, _MODULES)


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
