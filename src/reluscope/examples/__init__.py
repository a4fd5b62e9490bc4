"""Built-in networks with the distribution of their inputs, small enough to ship: `example("moons")`.

Each was trained by `tools/train_examples.py`, which also wrote the files beside this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import as_file, files

from reluscope._check import choice
from reluscope.inputs import ClassMixtures, Law, classes_from_json
from reluscope.network import Network
from reluscope.schema import Output, Schema

NAMES = ("moons", "cocircles", "controller", "digits")


@dataclass(frozen=True)
class Example:
    """A network, the law (the distribution) of its inputs, and one sentence about them.

    Attributes
    ----------
    name : str
    network : Network
    law : Law
    about : str
    events : tuple of str
        Events worth asking about.
    classes : ClassMixtures or None
    """

    name: str
    network: Network
    law: Law
    about: str
    events: tuple[str, ...] = ()
    """Events worth asking about."""
    classes: ClassMixtures | None = None
    """One law per class (`ClassMixtures`) where the network decides between classes that have laws; else None."""


def example(name: str = "moons") -> Example:
    """A built-in network with the law of its inputs.

    Parameters
    ----------
    name : {"moons", "cocircles", "controller", "digits"}

    Returns
    -------
    Example
        With `network`, `law`, `about`, `events` and `classes`.

    Raises
    ------
    InputError
        If there is no example of that name.

    Examples
    --------
    >>> example("moons").network
    Network(2-4x3-1, relu, 57 parameters)
    """
    choice(name, "name", NAMES)
    from reluscope.formats import load

    folder = files("reluscope.examples")
    with as_file(folder / f"{name}.npz") as weights, as_file(folder / f"{name}.json") as law:
        inputs, network = classes_from_json(law), load(weights)
    network = Network(network.layers, name=name, notes=network.notes)
    if name in _SCHEMAS:
        network = network.with_schema(_SCHEMAS[name])
    if isinstance(inputs, ClassMixtures):
        return Example(name, network, inputs.joint, _ABOUT[name], _EVENTS[name], inputs)
    return Example(name, network, inputs, _ABOUT[name], _EVENTS[name])


_ABOUT = {
    "moons": "2-4-4-4-1 classifier of scikit-learn's two moons (noise 0.2); inputs: one Gaussian mixture per class",
    "cocircles": "2-12-12-12-12-1 classifier of two noisy circles; inputs: a mixture of eight Gaussians fitted to them",
    "controller": "5-25-25-25-5 collision-avoidance adviser, smallest score wins; inputs: an intruder ahead, with "
    "sensor noise",
    "digits": "64-16-16-10 classifier of handwritten digits of 8 x 8 pixels; inputs: a Gaussian fitted to the threes",
}

_SCHEMAS = {
    "cocircles": Schema(classes=("outer circle", "inner circle"), rule="above"),
    "controller": Schema(
        outputs=tuple(Output(name) for name in ("clear", "weak left", "weak right", "strong left", "strong right")),
        rule="smallest",
    ),
    "digits": Schema(outputs=tuple(Output(f"digit {k}") for k in range(10)), rule="largest"),
}

_EVENTS = {
    "moons": ("y[0] > 0",),
    "cocircles": ("y[0] > 0",),
    "controller": ("argmin == 0",),  # "clear of conflict", with an intruder ahead
    "digits": ("argmax != 3",),
}
