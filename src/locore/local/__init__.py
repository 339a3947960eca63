"""Local factorised distributions around a sequence: the paper's, and cheaper kernels.

A kernel maps a sequence ỹ to q_ỹ(y) = Π_i q_i(y_i), normalised at every position. Any kernel keeps
the importance weight exact as long as the numbers that propose are the numbers that enter the
weight and no position excludes a token. The second part needs a floor, q_i = (1 − ε)·kernel_i +
ε·floor_i, also behind the end of ỹ, where the kernel knows nothing but padding.
"""

from __future__ import annotations

from torch import Tensor

from locore.errors import InvalidArgument
from locore.local.exact import Exact
from locore.local.forward import Forward
from locore.local.kernel import Kernel
from locore.local.lazy import Lazy
from locore.local.topk import TopK
from locore.local.window import Window
from locore.models import LanguageModel

KERNELS: dict[str, Kernel] = {
    "exact": Exact(),
    "topk": TopK(),
    "window": Window(),
    "forward": Forward(),
    "lazy": Lazy(),
}


def kernel_by_name(kernel: str | Kernel) -> Kernel:
    """A kernel given by name ("topk", "exact", "window", "forward", "lazy") or as an object."""
    if not isinstance(kernel, str):
        return kernel
    if kernel not in KERNELS:
        raise InvalidArgument(f"unknown kernel {kernel!r}; known are {', '.join(KERNELS)}, or pass an object of locore.local.")
    return KERNELS[kernel]


def pseudolikelihood(model: LanguageModel, tokens: Tensor) -> Tensor:
    """log p(v | ỹ_−i) for all positions and tokens, without a floor (paper, Algorithm 1).

    Args:
        tokens: Long[time], the sequence ỹ; the model must give it positive probability.

    Returns:
        f64[time, vocab], normalised logs.
    """
    return Exact(floor=0.0).distributions(model, tokens[None])[0]


__all__ = [
    "Exact",
    "Forward",
    "Kernel",
    "Lazy",
    "TopK",
    "Window",
    "kernel_by_name",
    "pseudolikelihood",
]
