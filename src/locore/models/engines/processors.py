"""Processors of logits for both of vLLM's model runners, which have interfaces of their own and refuse each other's classes.

A class made here is of both, so whoever starts vLLM need not know which runner it takes. The first knows requests by their
place in the batch and hands over the list of generated tokens. The second, which vLLM 0.32 takes where it has Triton, knows
them by slots, and tells where a row stands in its sequence.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from torch import Tensor

FIRST = "vllm.v1.sample.logits_processor"
SECOND = "vllm.v1.worker.gpu.sample.logits_processor"


def _interfaces() -> tuple[type, ...]:
    """Those that the vLLM has that is installed."""
    interfaces = []
    for module in (FIRST, SECOND):
        try:
            interfaces.append(import_module(module).LogitsProcessor)
        except (ImportError, AttributeError):
            continue  # an older or a newer one
    if not interfaces:
        raise ImportError(
            f"vLLM {import_module('vllm').__version__} has no processors of logits as Locore knows them ({FIRST}, {SECOND}); "
            "those of vLLM 0.32 are known."
        )
    return tuple(interfaces)


class RowProcessor(*_interfaces()):  # type: ignore[misc]
    """Changes the logits of requests that ask for it; a subclass says which (`wanted`) and how (`change`)."""

    def __init__(self, vllm_config: Any, *rest: Any) -> None:
        """As vLLM calls it: the first runner with a device and a flag more, the second with the state of its requests."""
        if getattr(vllm_config, "speculative_config", None) is not None:
            raise ValueError(f"{type(self).__name__} reads one row for each request: start vLLM without speculative decoding.")
        self._requests: Any = None
        if len(rest) == 1:
            self._requests = rest[0]
        else:
            self._update = import_module(f"{FIRST}.builtin").process_dict_updates
        self._rows: dict[int, tuple[Any, list[int]]] = {}  # by place or slot: what is wanted, and the generated tokens

    @classmethod
    @abstractmethod
    def wanted(cls, params: Any) -> Any | None:
        """What the sampling parameters of a request ask for; None for nothing."""

    @abstractmethod
    def change(self, logits: Tensor, rows: list[tuple[int, Any, list[int]]]) -> None:
        """Change, in place, rows of Float[rows, vocab]: each with what is wanted and the tokens generated so far."""

    def is_argmax_invariant(self) -> bool:
        """Greedy decoding is changed too."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """First runner: requests come, go and move."""
        if batch_update is not None:
            self._update(self._rows, batch_update, self._first_seen)

    def _first_seen(self, params: Any, prompt_ids: list[int] | None, generated: list[int]) -> tuple[Any, list[int]] | None:
        asked = self.wanted(params)
        return None if asked is None else (asked, generated)  # a list that vLLM makes longer

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Second runner: a request takes a slot, whoever had it before."""
        self._rows.pop(req_idx, None)
        asked = self.wanted(sampling_params)
        if asked is not None:
            self._rows[req_idx] = (asked, [])
        return asked is not None

    def apply(self, logits: Tensor, ctx: Any = None) -> Tensor:
        """As both call it."""
        if self._rows:
            rows = [(row, *facts) for row, facts in self._rows.items()] if ctx is None else list(self._placed(ctx))
            self.change(logits, rows)
        return logits

    def _placed(self, ctx: Any) -> Iterator[tuple[int, Any, list[int]]]:
        """Second runner: the rows of this step that draw a token, with what has been generated."""
        if self._rows.keys().isdisjoint(ctx.idx_mapping_np.tolist()):  # known here; the rest has to come from the device
            return
        requests, read = self._requests, ctx.pos.tolist()
        last = ctx.input_ids.tolist()
        for row, slot in enumerate(ctx.expanded_idx_mapping.tolist()):
            length = read[row] + 1
            if slot not in self._rows or length < int(requests.prefill_len.np[slot]):  # a part of a prompt draws nothing
                continue
            asked, generated = self._rows[slot]
            start = int(requests.prompt_len.np[slot])
            if length - start == len(generated) + 1:
                generated.append(last[row])
            elif length - start != len(generated):  # it was set aside and read again
                generated[:] = requests.all_token_ids.gpu[slot, start:length].tolist()
            yield row, asked, generated
