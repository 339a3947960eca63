"""The product of hidden states with the head of a model, where the default library is slow for layers as large as that.

MKL on processors of AMD takes 1.5 to 2 times as long for a layer of 49,152 or 262,144 columns as for the same columns some at a
time, or for the transposed product where rows are few: 112 and 73 ms for 50 rows of SmolLM2's head, 35 and 18 ms for two. Which
product is taken follows from the processor and the numbers of rows and columns, so a seed means the same from run to run.
"""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import Linear, Module

_LARGE = 2**22  # numbers of a layer, from which it pays
_AT_ONCE = 1_024  # columns
_FEW, _MANY = 6, 128  # rows: with fewer the transposed product is the fastest, with more the library's own


def product_of(head: Module) -> Module:
    """What makes logits of hidden states: the head itself, or the same by faster products."""
    if type(head) is not Linear or head.bias is not None or not mkl_lags():
        return head
    weight = head.weight
    suits = weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.numel() >= _LARGE
    return _InParts(head) if suits else head


class _InParts(Module):
    """The product of a large linear layer without a bias."""

    def __init__(self, head: Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, hidden: Tensor) -> Tensor:
        """Float[…, columns] of Float[…, size]."""
        rows, weight = hidden.reshape(-1, hidden.shape[-1]), self.head.weight
        assert isinstance(weight, Tensor)
        if torch.is_grad_enabled() or not 1 < len(rows) <= _MANY:
            logits: Tensor = self.head(hidden)
            return logits
        if len(rows) < _FEW:
            return (weight @ rows.T).T.reshape(*hidden.shape[:-1], -1)
        logits = rows.new_empty(len(rows), len(weight))
        for some, part in zip(torch.split(logits, _AT_ONCE, 1), torch.split(weight, _AT_ONCE), strict=True):
            torch.mm(rows, part.T, out=some)
        return logits.view(*hidden.shape[:-1], -1)


@cache
def mkl_lags() -> bool:
    """Is this a processor of AMD, and MKL the library?"""
    if not torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        return False
    facts = Path("/proc/cpuinfo")
    return "AuthenticAMD" in (facts.read_text() if facts.exists() else platform.processor())
