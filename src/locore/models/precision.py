"""A copy of a model in 16 bits, by which draws are made where its products take less time; the model itself weighs them.

On a processor with AMX or AVX-512-bf16, and on an accelerator, a product in bfloat16 takes a quarter of the time or less;
elsewhere it takes several times as long. So that is measured, on part of the model's largest matrix, before anything is copied.
"""

from __future__ import annotations

import time
from copy import deepcopy
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Parameter

from locore.kernel.errors import InvalidArgument, LocoreError
from locore.models.causal import CausalLM, are_same
from locore.models.hardware import SMALL, free_bytes

SteerDtype = torch.dtype | Literal["auto", "bfloat16", "float16"] | None
SIXTEEN = {"bfloat16": torch.bfloat16, "float16": torch.float16}
WORTH = 0.5  # of the time of a product in 32 bits, that one in 16 may take: what was drawn has to be read once more
ROWS, SIDE, TIMES = 32, 2_048, 3  # rows of a product that is measured, the longest side of its matrix, and how often
ROOM = 2  # times the bytes of the copy, that have to be free


class SixteenBits(CausalLM):
    """A causal model that has the weights of another one in 16 bits, and its name.

    Parts that are put into the other are copied at the next prompt; weights that are changed in place are not: it draws worse.
    """

    def __init__(self, of: CausalLM, dtype: torch.dtype, buffers: bool) -> None:
        """Copy parameters, and `buffers` too, or these as they are."""
        self._of, self._dtype, self._buffers, self._copied_of = of, dtype, buffers, list(of.module.modules())
        super().__init__(_converted(of.module, dtype, buffers), of.memory_bytes)

    def notice_changes(self) -> None:
        """Copy anew if parts of the other were replaced or added."""
        parts = list(self._of.module.modules())
        if not are_same(parts, self._copied_of):
            fresh = SixteenBits(self._of, self._dtype, self._buffers)
            fresh.steps_elsewhere = self.steps_elsewhere
            self.__dict__ = fresh.__dict__  # at once, for whoever reads beside

    @property
    def fingerprint(self) -> str:
        """That of the other: what was learned of one is true of both."""
        return self._of.fingerprint


def check_steering(asked: SteerDtype, dtype: torch.dtype) -> None:
    """Refuse a copy in another type than one of 16 bits, or of a model whose numbers do not have 32: `InvalidArgument`."""
    if asked is None or asked == "auto":
        return
    if asked not in [*SIXTEEN, *SIXTEEN.values()]:
        raise InvalidArgument(f'steer_dtype must be "auto", "bfloat16", "float16", or None for none, got {asked!r}.')
    if dtype != torch.float32:
        raise InvalidArgument(
            f"steer_dtype={asked} is for models in torch.float32, this one is in {dtype}; leave it out, or load the model with "
            "dtype=torch.float32."
        )


def copied(causal: CausalLM, asked: SteerDtype) -> SixteenBits | None:
    """The copy that was asked for, or that pays; None for none.

    Raises:
        InvalidArgument: as `check_steering`; or the module cannot compute in this type what it can in 32 bits.
    """
    check_steering(asked, causal.module.dtype)
    dtype = torch.bfloat16 if asked == "auto" else SIXTEEN[asked] if isinstance(asked, str) else asked
    if dtype is None or (asked == "auto" and not pays(causal.module, dtype)):
        return None
    failed: Exception | None = None
    for buffers in (False, True):  # frequencies of positions want 32 bits, tables of them the type of the weights
        try:
            copy = SixteenBits(causal, dtype, buffers)
        except (RuntimeError, LocoreError) as error:
            failed = error
            continue
        if (copy.caches, copy.shares) >= (causal.caches, causal.shares):
            return copy
    if asked == "auto":
        return None
    reason = "without the shortcuts of reading that it has in 32 bits" if failed is None else f"not at all: {failed}"
    raise InvalidArgument(f"the module computes in {dtype} {reason}. Leave steer_dtype out.") from failed


def pays(module: Any, dtype: torch.dtype) -> bool:
    """Is a copy worth its memory? Not of small models, in which products take little of the time."""
    parameters = list(module.parameters())
    size, device = sum(each.numel() for each in parameters), module.device
    matrices = [each for each in parameters if each.dim() == 2 and each.is_floating_point()]
    if module.dtype != torch.float32 or size <= SMALL or not matrices:
        return False
    free = free_bytes(device)
    if free is not None and free < ROOM * dtype.itemsize * size:
        return False
    matrix = max(matrices, key=torch.numel)[:SIDE, :SIDE].detach()
    rows = torch.ones(ROWS, matrix.shape[1], device=device)
    return _seconds(rows.to(dtype), matrix.to(dtype)) <= WORTH * _seconds(rows, matrix)


def _seconds(rows: Tensor, matrix: Tensor) -> float:
    """Of a product, the shortest of some."""
    taken = []
    for _ in range(1 + TIMES):  # the first does what is done once
        start = time.perf_counter()
        float((rows @ matrix.T)[0, 0])  # an accelerator is waited for
        taken.append(time.perf_counter() - start)
    return min(taken[1:])


def _converted(module: Any, dtype: torch.dtype, buffers: bool) -> Any:
    """A copy with parameters, and `buffers`, of this type where they are numbers of another precision."""
    memo: dict[int, Tensor] = {}
    for each in (*module.parameters(), *(module.buffers() if buffers else ())):
        if each.is_floating_point():
            number = each.detach().to(dtype)
            memo[id(each)] = Parameter(number, requires_grad=False) if isinstance(each, Parameter) else number
    return deepcopy(module, memo)
