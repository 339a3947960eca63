"""A second device where there is none: tensors that say they are elsewhere, and refuse to be mixed with those of the CPU.

Torch lets a subclass of `Tensor` claim any device. A `Pretend` claims "meta" and holds its numbers on the CPU; a mode that sees
every operation lets only what belongs together through, as a GPU does, and counts what is copied to the CPU. So a mistake that
shows on a GPU only, or a table that crosses over at each step, is found on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = torch.device("meta")
aten = torch.ops.aten
COPIES = (aten._to_copy.default, aten.copy_.default)
READS = (aten._local_scalar_dense.default, aten.equal.default, aten.is_nonzero.default)
INDEXED = (aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default)


class Pretend(Tensor):
    """A tensor that is elsewhere."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Pretend:
        made = Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype, device=DEVICE
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        raise AssertionError(f"{operation} of a pretended tensor outside of the mode")


@dataclass
class Traffic:
    """What went to the CPU: the size of each copy, in numbers."""

    copies: list[int] = field(default_factory=list)


class _Elsewhere(TorchDispatchMode):
    def __init__(self, traffic: Traffic) -> None:
        super().__init__()
        self._traffic = traffic

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        tensors: list[Tensor] = []
        inside = [mapped(lambda part: tensors.append(part) or _inside(part), given) for given in (args, kwargs)]
        elsewhere = [tensor for tensor in tensors if isinstance(tensor, Pretend)]
        target = kwargs.get("device")
        if not elsewhere and (target is None or torch.device(target) != DEVICE):
            return operation(*args, **kwargs)
        if "device" in kwargs:
            inside[1]["device"] = torch.device("cpu")
        self._check(operation, args, tensors)
        found = operation(*inside[0], **inside[1])
        goes = operation in READS or (target is not None and torch.device(target) != DEVICE)
        if operation is aten.copy_.default:
            goes = not isinstance(args[0], Pretend)
        if goes:
            self._traffic.copies.append(elsewhere[-1].numel() if operation in COPIES else 1)
            return args[0] if operation is aten.copy_.default else found
        if operation._schema.is_mutable and isinstance(found, Tensor):  # in place: the same object, as torch expects
            same = next((tensor for tensor in elsewhere if tensor.inner is found), None)
            if same is not None:
                return same
        return mapped(Pretend, found)

    def _check(self, operation, args, tensors) -> None:
        """What is no single number is elsewhere, but for copies and for indices, which a GPU takes from the CPU as well."""
        if operation in COPIES or operation in INDEXED:
            return
        here = [tensor for tensor in tensors if not isinstance(tensor, Pretend) and tensor.ndim > 0]
        assert not here, f"{operation} mixes devices: {[tuple(tensor.shape) for tensor in here]} on the CPU"


class _Written(TorchFunctionMode):
    """`torch.tensor` of numbers has no operation of its own that says what they are."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        device = kwargs.get("device")
        if function is torch.tensor and device is not None and torch.device(device) == DEVICE:
            return function(*args, **(kwargs | {"device": "cpu"})).to(DEVICE)
        return function(*args, **kwargs)


def _inside(part: Tensor) -> Tensor:
    return part.inner if isinstance(part, Pretend) else part


def mapped(function: Callable[[Tensor], Any], given: Any) -> Any:
    """This of each tensor; most of the time went to the function of torch that does it for more kinds of containers."""
    if isinstance(given, Tensor):
        return function(given)
    if isinstance(given, (tuple, list)):
        return type(given)(mapped(function, part) for part in given)
    if isinstance(given, dict):
        return {name: mapped(function, part) for name, part in given.items()}
    return given


@contextmanager
def pretended() -> Iterator[Traffic]:
    """Inside, `tensor.to(DEVICE)` is elsewhere."""
    traffic = Traffic()
    with _Elsewhere(traffic), _Written():
        yield traffic
