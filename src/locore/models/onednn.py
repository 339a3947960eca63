"""Products by oneDNN, where the default library leaves half of the processor idle; only with LOCORE_ONEDNN=1.

On processors of AMD, MKL does not use AVX-512. With the weights laid out for oneDNN once, products of 32 rows and more are 2.2
times as fast, those of 5 rows 1.2 to 3.5 times (the more the larger the layer); a single row is not faster.

oneDNN makes a kernel for each number of rows, some .6 MB, and keeps 1,024: neighbours after prompts of all lengths came to 1.8
GB after an hour. Here it keeps 64; to make one anew takes half a millisecond.

It is asked for, not the default, because it sets environment variables of the process and calls private operators of torch.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor
from torch.nn import Linear, Module
from torch.nn.functional import linear

from locore.models.head import mkl_lags

_FEWEST_ROWS = 4
_MOST_BYTES = 2**30  # of weights, which are kept twice
_TOLERANCE = 1e-4  # of a product's largest number
_KEPT_KERNELS = 64
_CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")  # of oneDNN, and of what torch puts before it


class PackedLinear(Linear):
    """A linear layer for inference: the same weights, and a copy of them in the layout of oneDNN."""

    def __init__(self, layer: Linear) -> None:
        Module.__init__(self)  # not that of Linear, which would draw new weights
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias
        # The names under which torch's own compiler calls oneDNN; there are no others.
        self._packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), None)

    def forward(self, input: Tensor) -> Tensor:
        """x Wᵀ + b."""
        if input.numel() < _FEWEST_ROWS * self.in_features:
            return linear(input, self.weight, self.bias)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(input, self._packed, self.bias, "none", [], "")
        return product


def is_wanted() -> bool:
    """Did the user ask for it?"""
    return os.environ.get("LOCORE_ONEDNN") == "1"


def pack(module: Module) -> None:
    """Let the linear layers of a module use oneDNN, if it has the faster products here and they agree.

    Args:
        module: in 32 bits, on the CPU, and not to be trained: a change of its weights would not be seen.
    """
    weights = sum(layer.weight.nbytes for layer in module.modules() if isinstance(layer, Linear))
    if not onednn_is_faster() or weights > _MOST_BYTES:
        return
    for name in _CACHES:  # read at the first product by oneDNN; a limit that the user has set stays
        os.environ.setdefault(name, str(_KEPT_KERNELS))
    for parent in list(module.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is Linear and layer.weight.dtype == torch.float32:
                packed = PackedLinear(layer)
                if _agrees(packed):
                    setattr(parent, name, packed)


def onednn_is_faster() -> bool:
    """Does this processor have AVX-512 that MKL does not use?"""
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    return bool(torch.backends.mkldnn.is_available()) and mkl_lags()  # type: ignore[no-untyped-call]


def _agrees(layer: PackedLinear) -> bool:
    """Are the products those of torch?"""
    rows = torch.linspace(-1, 1, _FEWEST_ROWS * layer.in_features).view(_FEWEST_ROWS, -1)
    with torch.inference_mode():
        expected = linear(rows, layer.weight, layer.bias)
        error = (layer(rows) - expected).abs().max()
    return bool(error <= _TOLERANCE * expected.abs().max())
