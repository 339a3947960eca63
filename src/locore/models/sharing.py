"""A module that reads the same weights with the attention of `locore.models.attention`."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor

from locore.models.attention import NAME


def sharing_twin(module: Any) -> Any:
    """A module with the same tensors, not copies of them, whose attention can share a prompt.

    The implementation of attention is a setting of a module, which others may be using, in another thread or with another
    setting; so there is a second one. It takes no memory to speak of, and sees every change of weights in place.

    Returns:
        The module; None if it cannot be told what belongs to it, because hooks move its weights about.
    """
    if any(hasattr(part, "_hf_hook") for part in module.modules()):
        return None
    tensors = [*module.parameters(), *module.buffers()]
    for part in module.modules():
        tensors += [value for value in vars(part).values() if isinstance(value, Tensor)]
    twin = copy.deepcopy(module, {id(tensor): tensor for tensor in tensors})
    twin.set_attn_implementation(NAME)
    return twin
