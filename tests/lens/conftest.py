"""torch with one thread: the networks are small, and tests share the machine."""

from importlib.util import find_spec

if find_spec("torch") is not None:
    import torch

    torch.set_num_threads(1)
