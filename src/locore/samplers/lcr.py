"""Locally Constrained Resampling (Ahmed, Chang, Van den Broeck, ICLR 2025), Algorithm 2.

Draw ỹ ~ r, build the local distribution p̃_ỹ, condition it on α with the circuit, draw y ~ p̃_ỹ(· | α), and weight

    w = p(y) · p̃_y(ỹ | padded) / (r(ỹ) · p̃_ỹ(y | α, padded)).

r is the model itself in the paper. Both kernels are conditioned on "only padding after the end"; without that, p̃_y puts mass
on sequences that no model can write and the weight is improper as soon as texts can end.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from locore.circuits import Circuit
from locore.compilers import compile
from locore.constraints import Constant
from locore.errors import BudgetExceeded, InvalidArgument, ZeroWeights
from locore.local import Exact, Kernel, kernel_by_name
from locore.models import LanguageModel
from locore.numerics import NEG_INF
from locore.samplers.base import Draws, Guarantee, affordable, keep_positive
from locore.tokenizer import Tokenizer

DEFAULT_BUDGET = 5_000_000  # LM tokens for all particles, where the caller sets no limit


@dataclass(frozen=True)
class LocallyConstrainedResampling:
    """The paper's sampler.

    Attributes:
        kernel: "topk" (default: 32 candidates and a floor), "exact", "forward", or an object of `locore.local`.
        draft: the law r of ỹ, a model prompted like the target; None for the target itself, or what it wraps if the target
            excludes tokens. A law that excludes tokens is used as asked, and the result is marked "biased".
    """

    kernel: str | Kernel = "topk"
    draft: LanguageModel | None = None
    name: str = "lcr"

    def __call__(
        self,
        model: LanguageModel,
        circuit: Circuit,
        num_particles: int,
        budget: int | None,
        generator: torch.Generator,
    ) -> Draws:
        """Independent pairs (ỹ, y), one weighted y each; see `Sampler`."""
        kernel = kernel_by_name(self.kernel)
        draft = self._draft(model)
        pairs = self._affordable_pairs(kernel, circuit, num_particles, budget)
        contexts = draft.sample(pairs, circuit.length, generator)
        around_context = kernel.distributions(model, contexts.tokens)
        reaches = circuit.log_mass(around_context) > NEG_INF  # always, if the kernel has a floor
        if not bool(reaches.any()):
            raise ZeroWeights(
                f"none of {pairs} local distributions gives the constraint any mass; give the kernel floor=0.05."
            )
        tokens, log_proposal = circuit.sample(around_context[reaches], generator)
        token_scores = model.token_scores(tokens)
        reverse = conditional(
            _padded_circuit(model, circuit.length), kernel.distributions(model, tokens), contexts.tokens[reaches]
        )
        log_context = contexts.token_scores.sum(-1)[reaches]
        weights = log_weights(token_scores.sum(-1), log_context, log_proposal, reverse)
        guarantee, notes = _audit(model, draft, kernel)
        info = {"kernel": repr(kernel), "pairs": pairs}
        return keep_positive(
            tokens, weights, token_scores, drawn=pairs, guarantee=guarantee, notes=notes, info=info
        )

    def _draft(self, model: LanguageModel) -> LanguageModel:
        if self.draft is not None:
            if self.draft.vocab_size != model.vocab_size:
                raise InvalidArgument(
                    f"the draft law has {self.draft.vocab_size} tokens, the model {model.vocab_size}; they must share a "
                    "vocabulary."
                )
            return self.draft
        candidate = model
        while not candidate.full_support and isinstance(getattr(candidate, "base", None), LanguageModel):
            candidate = candidate.base  # type: ignore[attr-defined]
        return candidate if candidate.full_support else model

    @staticmethod
    def _affordable_pairs(kernel: Kernel, circuit: Circuit, num_particles: int, budget: int | None) -> int:
        length = circuit.length
        price = 2 * kernel.price(length, circuit.vocab_size) + 2 * length
        total = price * num_particles
        limit = DEFAULT_BUDGET if budget is None else budget
        if isinstance(kernel, Exact) and total > limit:
            raise BudgetExceeded(
                f"the exact kernel needs up to {total:,} LM tokens for {num_particles} particles of {length} tokens "
                f"({price:,} each) and the budget is {limit:,}; raise the budget, or use kernel='topk'."
            )
        return affordable(num_particles, price, budget, "lcr")


def log_weights(
    log_target: Tensor, log_context: Tensor, log_proposal: Tensor, log_reverse: Tensor
) -> Tensor:
    """log w = log p(y) + log p̃_y(ỹ | padded) − log r(ỹ) − log p̃_ỹ(y | α); each f64[particles], natural logs."""
    return log_target + log_reverse - log_context - log_proposal


def conditional(circuit: Circuit, log_probs: Tensor, tokens: Tensor) -> Tensor:
    """f64[batch]: log p̃(tokens | the circuit's constraint) of tokens that satisfy it."""
    chosen = log_probs.gather(-1, tokens[..., None]).squeeze(-1).sum(-1)
    return torch.where(chosen > NEG_INF, chosen - circuit.log_mass(log_probs), NEG_INF)


def _padded_circuit(model: LanguageModel, length: int) -> Circuit:
    """The circuit of "only padding follows the end"."""
    return _padded(model.tokenizer.vocab_size, model.tokenizer.eos_ids, length)


@functools.lru_cache(maxsize=32)
def _padded(vocab_size: int, eos_ids: tuple[int, ...], length: int) -> Circuit:
    return compile(Constant(True), Tokenizer.integers(vocab_size, eos_ids), length)


def _audit(model: LanguageModel, draft: LanguageModel, kernel: Kernel) -> tuple[Guarantee, list[str]]:
    """Is the support of the proposal complete? If not, the weights have the wrong mean."""
    notes = []
    if not draft.full_support:
        notes.append(
            "the law of ỹ excludes tokens (nucleus, top-k or zeros), so sequences that need them are never reached: draw ỹ "
            "from the model, or from Mixture(nucleus, model, 0.1)"
        )
    # Without a floor the exact kernel is still reversible: ỹ is near y exactly when y is near ỹ.
    if kernel.floor == 0 and not (isinstance(kernel, Exact) and model.full_support):
        notes.append("the kernel has no floor, so it excludes tokens: give it floor=0.05")
    return ("biased" if notes else "proper"), notes
