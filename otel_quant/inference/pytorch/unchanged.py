"""A model is after the measurement as it was before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def left_unchanged(model: Any) -> Iterator[None]:
    """Has a model infer in the block, and sets back afterwards what that has changed in it.

    Modules are in eval mode meanwhile, without a call of their ``eval()``, which may be the
    program's own. Buffers that a run changes, as observers and caches do, get their values again.
    """
    import torch

    modules = list(model.modules()) if isinstance(model, torch.nn.Module) else []
    training = [module for module in modules if getattr(module, "training", False)]
    buffers = [
        (module, name, buffer, _version(buffer), buffer.detach().clone())
        for module in modules
        for name, buffer in module.named_buffers(recurse=False)
    ]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
        with torch.no_grad():
            for module, name, buffer, version, copy in buffers:
                if getattr(module, name, None) is not buffer:
                    setattr(module, name, buffer)
                if version is None or buffer._version != version:
                    if buffer.shape != copy.shape:
                        buffer.resize_(copy.shape)
                    buffer.copy_(copy)


def _version(tensor: Any) -> int | None:
    """Returns how often a tensor was changed; None where torch does not count."""
    return None if tensor.is_inference() else tensor._version
