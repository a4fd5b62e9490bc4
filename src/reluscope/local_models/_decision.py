"""From outputs to probabilities and decisions, as the schema of a network says: link, calibration, cut-off, rule."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reluscope._check import FloatArray, real
from reluscope.errors import InputError
from reluscope.local_models import scores
from reluscope.local_models.scores import Index
from reluscope.network import Network
from reluscope.schema import Output, Schema


def chances(net: Network, outputs: FloatArray) -> FloatArray:
    """The probability of each class, (n, classes): by link and calibration of the schema, else by the logistic
    function or softmax.
    """
    schema = net.schema
    if schema is not None and len(schema.outputs) == 1 and _scaled(schema.outputs[0]):
        p = schema.values(outputs)[:, 0]
        return np.stack([1.0 - p, p], axis=1)
    return scores.probabilities(outputs)


def cutoff_of(net: Network) -> float:
    """The cut-off as a probability of the second class: the schema's, else one half."""
    limit = None if net.schema is None else net.schema.threshold()
    if limit is None or not math.isfinite(limit):
        return 0.5
    return float(chances(net, np.array([[limit]]))[0, 1])


def decided(net: Network, outputs: FloatArray) -> Index:
    """The number of the class that is decided for, (n,): by the rule of the schema, else the most probable."""
    if net.schema is not None and net.schema.rule:
        return np.asarray(net.schema.decide(outputs), dtype=np.int64)
    return scores.winners(outputs)


def with_cutoff(net: Network, classes: tuple[Any, ...], cutoff: Any) -> Network:
    """The same network with another cut-off on the probability of the second class."""
    if net.n_outputs != 1 or len(classes) != 2:
        raise InputError("cutoff is for a decision between two classes; pass y with two labels, or leave it out")
    p = real(cutoff, "cutoff", low=0.0, high=1.0, open_=True)
    schema = net.schema or Schema()
    if schema.outputs and _scaled(schema.outputs[0]):
        return net.with_schema(schema.with_names(rule="above", cutoff=p, classes=classes))
    one = Output(schema.outputs[0].name if schema.outputs else f"P({classes[1]})", link="sigmoid")
    return net.with_schema(schema.with_names(outputs=one, rule="above", cutoff=p, classes=classes))


def _scaled(output: Output) -> bool:
    """Whether an output is a probability."""
    return output.link != "raw" or bool(output.calibration)
