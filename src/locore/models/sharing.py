"""A module that reads the same weights with the attention of `locore.models.attention`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor

from locore.errors import CannotScore
from locore.models.attention import NAME, noting

_HOOKS = ("_hooks", "_hooks_with_kwargs", "_hooks_always_called")  # ends of names of what torch keeps hooks in


def sharing_twin(module: Any) -> tuple[Any, Callable[[Tensor], Tensor] | None]:
    """A module with the same tensors, not copies of them, whose attention can share a prompt.

    The implementation of attention is a setting of a module, which others may be using, in another thread or with another
    setting; so there is a second one. It takes no memory to speak of, sees every change of weights in place, and runs the hooks
    of the module, also later ones.

    Returns:
        The module, and the layer of it that makes logits of its last hidden states; None if it has no such layer.

    Raises:
        CannotScore: it cannot be told what belongs to the module, because hooks move its weights about.
    """
    if any(hasattr(part, "_hf_hook") for part in module.modules()):
        raise CannotScore("Hooks of accelerate move the weights of this module about, so they cannot be shared.")
    common = [*module.parameters(), *module.buffers()]
    for part in module.modules():
        common += [value for name, value in vars(part).items() if isinstance(value, Tensor) or name.endswith(_HOOKS)]
    twin = copy.deepcopy(module, {id(one): one for one in common})
    twin.set_attn_implementation(NAME)
    head = twin.get_output_embeddings()
    if head is None:
        return twin, None
    plain = head.forward
    head.forward = noting(plain)
    return twin, plain
