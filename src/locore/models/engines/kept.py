"""Whole distributions of a vLLM in this process, taken where they lie: a processor of logits that keeps them.

`logprobs=-1` makes vLLM sort a distribution, send it to the CPU and write it as Python numbers. A processor sees the logits
themselves, on the model's device; in one process with us it can leave their log-probabilities here.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from torch import Tensor
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

KEEP = "locore_keep"  # the name under which a request says where its distribution is kept
_places = count()  # never one twice, so that a request that was given up cannot write into another's place
_kept: dict[int, Tensor | None] = {}  # of the places that somebody waits for


def places(number: int) -> list[int]:
    """New places to wait for; `taken` gives them back."""
    found = [next(_places) for _ in range(number)]
    _kept.update(dict.fromkeys(found))
    return found


def taken(found: list[int]) -> list[Tensor | None]:
    """Float[vocab] of each place, None where nothing has come; the places are gone then."""
    return [_kept.pop(place, None) for place in found]


class KeptRows(AdapterLogitsProcessor):  # type: ignore[misc]
    """Keeps the last distribution of a request that asks for it, and touches no logits."""

    def is_argmax_invariant(self) -> bool:
        """It is, but it has to see logits before the temperature does."""
        return False

    def new_req_logits_processor(self, params: Any) -> Callable[[list[int], Tensor], Tensor] | None:
        """For one request."""
        place = (params.extra_args or {}).get(KEEP)
        if place is None:
            return None

        def keep(generated: list[int], logits: Tensor) -> Tensor:
            if place in _kept:
                _kept[place] = logits.float().log_softmax(-1)
            return logits

        return keep
