"""The support audit of LCR: a proposal that cannot reach everything has improper weights."""

from __future__ import annotations

from typing import Literal

from locore.local import Exact, Kernel, Lazy
from locore.models import LanguageModel
from locore.samplers.base import Guarantee

Weights = Literal["augmented", "mixture"]


def audit(
    model: LanguageModel, draft: LanguageModel, kernel: Kernel, weights: Weights = "augmented"
) -> tuple[Guarantee, list[str]]:
    """Is the support of the proposal complete? If not, say why and what to do."""
    notes = []
    # The mixture never divides by r(ỹ): any contexts will do.
    if not draft.full_support and weights == "augmented":
        notes.append(
            "the law of ỹ excludes tokens (nucleus, top-k or zeros), so sequences that need them "
            "are never reached: draw ỹ from the model, or from Mixture(nucleus, model, 0.1)"
        )
    # Without a floor the exact kernel is still reversible: ỹ is near y exactly when y is near ỹ.
    # A mixture asks for more: every y must be near some context, which an end of ỹ prevents.
    complete = is_exact(kernel) and model.full_support
    if weights == "mixture":
        complete = complete and not model.tokenizer.eos_ids
    if kernel.floor == 0 and not complete:
        notes.append("the kernel has no floor, so it excludes tokens: give it floor=0.05")
    return ("biased" if notes else "proper"), notes


def is_exact(kernel: Kernel) -> bool:
    """Does this kernel read every neighbour?"""
    return isinstance(kernel, Exact) or (isinstance(kernel, Lazy) and is_exact(kernel.kernel))
