"""Every error Reluscope raises on purpose, in words for the person who reads it.

All of them derive from `ReluscopeError`. Errors about what you passed in are also `ValueError`s (and `TypeError`s,
where the kind of the argument is wrong), a missing
optional package is also an `ImportError`, so ordinary handlers keep working. A message names the argument, what
was expected, what came, and what to try.
"""

from __future__ import annotations


class ReluscopeError(Exception):
    """Base of all errors raised by Reluscope itself."""


class InputError(ReluscopeError, ValueError):
    """An argument, model, law or file is not what was asked for. The message says which and what to try."""


class InputTypeError(InputError, TypeError):
    """An argument is of a kind that cannot be meant, such as None for a network. Also a `TypeError`."""


class InputLimitError(InputError):
    """A file or model is larger than a limit in `reluscope.Limits`. The message says which one and how to raise it."""


class UnsupportedError(InputError):
    """The model holds an operation that is not piecewise affine (or not known). The message names the node."""


class MissingExtraError(ReluscopeError, ImportError):
    """An optional package is needed for this call. The message gives the command that installs it."""


class WorkerError(ReluscopeError, RuntimeError):
    """A worker process died while it worked on a part of the answer, twice. The message says which part."""


class ReluscopeWarning(UserWarning):
    """Something was done that you should know about, such as a final Softmax that was cut off."""
