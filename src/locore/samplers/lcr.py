"""Locally Constrained Resampling (Ahmed, Chang, Van den Broeck, ICLR 2025): Algorithm 2, and the same from left to right.

**As published**, in pairs: draw ỹ ~ r, build the local distribution p̃_ỹ, condition it on α with the circuit, draw
y ~ p̃_ỹ(· | α), and weight

    augmented:  w = p(y) · p̃_y(ỹ | padded) / (r(ỹ) · p̃_ỹ(y | α))
    mixture:    w = p(y) / (1/M Σ_j p̃_ỹj(y | α))   over the run's M contexts ỹ_1 … ỹ_M.

r is the model itself in the paper. p̃_y is conditioned on "only padding after the end" (α implies
it for p̃_ỹ); without that, it puts mass on sequences that no model can write, and the weight is
improper as soon as texts can end.

The mixture weight is the balance heuristic (Veach and Guibas 1995; deterministic mixture, Owen and
Zhou 2000). It is proper *given the contexts*, whatever made them: with R draws from each,
E[1/(MR) Σ_j Σ_r w(y_jr) f(y_jr)] = 1/M Σ_j Σ_y p̃_ỹj(y | α) w(y) f(y) = Σ_y p(y) 1[y ⊨ α] f(y),
if some p̃_ỹj reaches every y. It needs no reverse kernel, but M contexts cover little of what α
allows. On stories260k, n = 8, 256 pairs, top-k: ESS 16 % instead of 39 % under a ban with
p(α) = .55; where " dog" must occur (log p(α) = −5.8) log Ẑ is −8.2 instead of −16, and neither is
of use.

Several y from one context, and the sum of the weights of equal y (Rao-Blackwell), change no mean.

**From left to right** (the default): all of y from p̃_ỹ is further from p with every token, 5 nats at two tokens and 51 at
sixteen (`locore reproduce overview`), and so the weights vanish. Only what is still to come need be guessed: a prefix is
extended by the model itself, p(y_t | y_<t), times p̃_ỹ(α | y_≤t), the probability that the circuit gives α where the rest comes
from around ỹ. The weight is p(y) over the probability of having been kept, whatever p̃_ỹ is; no way back to ỹ is needed, and no
weight is zero. Contexts cost an eighth of the budget, prefixes are selected without replacement (`twist.local`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from locore.circuits import Circuit
from locore.compilers.compile import compile
from locore.constraints import Constant
from locore.evidence import Blocks, Draws, Guarantee, Record, keep_positive
from locore.kernel.errors import BudgetExceeded, InvalidArgument, ZeroWeights
from locore.kernel.evidence.pareto import pareto_k
from locore.kernel.numerics import NEG_INF, effective_sample_size, segment_logsumexp
from locore.kernel.samplers.sampler import Promises, affordable
from locore.kernel.samplers.smc import LESS_SPREAD
from locore.kernel.tokenizer import Tokenizer
from locore.local import Exact, Kernel, Lazy, kernel_by_name
from locore.models import Drafts, LanguageModel
from locore.samplers.twist.local_twist import Contexts
from locore.samplers.without_replacement import WithoutReplacement

TOGETHER = 2**23  # numbers of local distributions that are worked on together
KEPT = 2**27  # numbers that are kept: 1 GiB; what is not kept is paid for again when needed again
Weights = Literal["augmented", "mixture"]
NOT_REACHED = "the distribution around ỹ gives the constraint no probability"
IMPOSSIBLE = "the model gives the text, or the kernel the way back to ỹ, no probability"
DEFAULT_BUDGET = 5_000_000  # LM tokens for all particles, where the caller sets no limit
BLOCKS = 4
PUBLISHED = "topk"  # the kernel of pairs
KEPT_DRAFTS = 2**26  # numbers of next-token distributions that are kept from the drafts: 256 MiB


class Neighbourhoods:
    """A kernel around sequences; one that is asked for again costs nothing while memory lasts."""

    def __init__(self, model: LanguageModel, kernel: Kernel, drafts: Drafts | None = None) -> None:
        """None has been made yet.

        Args:
            model: p.
            kernel: what is made around a sequence.
            drafts: drawn from the model with their distributions, which then need not be asked for again.
        """
        self._model = model
        self._kernel = kernel
        self._distributions: dict[tuple[int, ...], Tensor] = {}
        self._scores: dict[tuple[int, ...], Tensor] = {}
        self._drawn: dict[tuple[int, ...], Tensor] = {}
        if drafts is not None and drafts.log_probs is not None:
            self._drawn.update(zip(map(tuple, drafts.tokens.tolist()), drafts.log_probs.cpu(), strict=True))

    @property
    def everywhere(self) -> bool:
        """Has every sequence a positive probability around each, and so every constraint?"""
        return not self._kernel.excludes

    def around(self, tokens: Tensor) -> Tensor:
        """f64[batch, time, vocab] around Long[batch, time]; rows may repeat."""
        keys = [tuple(y) for y in tokens.tolist()]
        rows = {key: self._distributions[key] for key in keys if key in self._distributions}
        missing = list(dict.fromkeys(key for key in keys if key not in rows))
        if missing:
            wanted = torch.tensor(missing)
            forward = self._forward(wanted, missing)
            distributions = self._kernel.distributions(self._model, wanted, forward=forward)
            scores = forward.gather(-1, wanted[..., None])[..., 0].double()
            self._scores.update(zip(missing, scores, strict=True))
            rows.update(zip(missing, distributions, strict=True))
            for key in missing:
                if (len(self._distributions) + 1) * rows[key].numel() <= KEPT:
                    self._distributions[key] = rows[key]
            if keys == missing:
                return distributions
        return torch.stack([rows[key] for key in keys])

    def token_scores(self, tokens: Tensor) -> Tensor:
        """f64[batch, time]: log p(y_t | y_<t); of sequences that a neighbourhood was made of it is known."""
        keys = [tuple(y) for y in tokens.tolist()]
        missing = list(dict.fromkeys(key for key in keys if key not in self._scores))
        if missing:
            self._scores.update(zip(missing, self._model.token_scores(torch.tensor(missing)), strict=True))
        return torch.stack([self._scores[key] for key in keys])

    def _forward(self, tokens: Tensor, keys: list[tuple[int, ...]]) -> Tensor:
        """Float[batch, time, vocab], log p(· | y_<t), of distinct sequences."""
        drawn = [self._drawn.pop(key, None) for key in keys]
        unknown = torch.tensor([row is None for row in drawn])
        if bool(unknown.all()):
            return self._model.log_probs(tokens)
        new_rows = iter(self._model.log_probs(tokens[unknown]) if bool(unknown.any()) else ())
        return torch.stack([next(new_rows) if row is None else row for row in drawn])

    def padded_circuit(self, length: int) -> Circuit:
        """The circuit of "only padding follows the end" of the model's texts."""
        return padded_circuit(self._model, length)

    def parts(self, num: int, length: int) -> Iterator[slice]:
        """Slices of `num` rows of `length` tokens, small enough to be worked on together."""
        size = max(1, TOGETHER // (length * self._model.vocab_size))
        return (slice(start, min(start + size, num)) for start in range(0, num, size))


def conditional(circuit: Circuit, log_probs: Tensor, tokens: Tensor) -> Tensor:
    """f64[batch]: log p̃(tokens | the circuit's constraint) of tokens that satisfy it."""
    chosen = log_probs.gather(-1, tokens[..., None]).squeeze(-1).sum(-1)
    return torch.where(chosen > NEG_INF, chosen - circuit.log_mass(log_probs), NEG_INF)


def padded_circuit(model: LanguageModel, length: int) -> Circuit:
    """The circuit of "only padding follows the end"."""
    return _padded(model.tokenizer.vocab_size, model.tokenizer.eos_ids, length)


@functools.lru_cache(maxsize=32)
def _padded(vocab_size: int, eos_ids: tuple[int, ...], length: int) -> Circuit:
    return compile(Constant(True), Tokenizer.integers(vocab_size, eos_ids), length)


@dataclass(frozen=True)
class LocallyConstrainedResampling(Promises):
    """The paper's sampler, from left to right unless something is asked for that only pairs (ỹ, y) have.

    Attributes:
        as_published: in pairs, as Algorithm 2 of the paper has it. So is it with any of the other options, and where a
            constraint has no left-to-right reading.
        kernel: of pairs: "topk" (32 candidates and a floor; None means this one), "exact", "window", "forward", "lazy", or an
            object of `locore.local`.
        draft: the law r of ỹ, a model prompted like the target; None for the target itself, or
            what it wraps if the target excludes tokens. With augmented weights a law that excludes
            tokens is used as asked, and the result is marked "biased".
        weights: "augmented" (the paper) or "mixture".
        per_context: how many y are drawn around each ỹ; `num_particles` counts the y.
    """

    remedy: ClassVar[str] = LESS_SPREAD

    kernel: str | Kernel | None = None
    draft: LanguageModel | None = None
    weights: Weights = "augmented"
    per_context: int = 1
    as_published: bool = False
    name: str = "lcr"

    def __post_init__(self) -> None:
        if self.weights not in get_args(Weights):
            raise InvalidArgument(f"weights must be one of {get_args(Weights)}, got {self.weights!r}.")
        if self.per_context < 1:
            raise InvalidArgument(f"per_context must be at least 1, got {self.per_context}.")

    def times_through(self, model: LanguageModel) -> int:
        """For contexts, a trial and rounds."""
        return 3

    def __call__(
        self, model: LanguageModel, circuit: Circuit, num_particles: int, budget: int | None, generator: torch.Generator
    ) -> Draws:
        """See `Sampler`; `num_particles` counts pairs, or the prefixes at every position, those of contexts included."""
        if circuit.reader is not None and not self.in_pairs:
            guided = WithoutReplacement(name="lcr", foresight=Contexts())
            return guided(model, circuit, num_particles, budget, generator)
        return self._pairs(model, circuit, num_particles, budget, generator)

    @property
    def in_pairs(self) -> bool:
        """Is anything asked for that only pairs have?"""
        options = (self.kernel, self.draft, self.weights, self.per_context)
        return self.as_published or options != (None, None, "augmented", 1)

    def _pairs(
        self, model: LanguageModel, circuit: Circuit, num_particles: int, budget: int | None, generator: torch.Generator
    ) -> Draws:
        """One weight for each pair, those of equal y merged."""
        kernel, draft = kernel_by_name(self.kernel or PUBLISHED), self._draft(model)
        contexts, price = self._affordable_contexts(kernel, circuit, num_particles, budget)
        keep = draft is model and contexts * circuit.length * model.vocab_size <= KEPT_DRAFTS
        drafts = draft.sample(contexts, circuit.length, generator, keep_log_probs=keep)
        nearby = Neighbourhoods(model, kernel, drafts if keep else None)
        pairs = _propose(nearby, circuit, drafts.tokens, self.per_context, generator)
        distinct, which = torch.unique(pairs.tokens, dim=0, return_inverse=True)
        if self.weights == "mixture":
            mixture = _log_mixture(nearby, circuit, drafts.tokens, pairs, distinct)
            token_scores = nearby.token_scores(distinct)
            weights = token_scores.sum(-1)[which] - mixture[which]
            drawn = len(weights)
        else:
            log_context = drafts.token_scores.sum(-1)[pairs.context]
            reverse = _log_reverse(nearby, drafts.tokens, pairs)
            token_scores = nearby.token_scores(distinct)
            weights = log_weights(token_scores.sum(-1)[which], log_context, pairs.log_proposal, reverse)
            drawn = contexts * self.per_context
        guarantee, notes = audit(model, draft, kernel, self.weights)
        merged = segment_logsumexp(weights, which, len(distinct))
        draws = keep_positive(distinct, merged, token_scores, drawn=drawn)
        impossible = int((weights == NEG_INF).sum())
        zeros = {NOT_REACHED: drawn - len(weights), IMPOSSIBLE: impossible}
        record = Record(
            guarantee=guarantee,
            drawn=len(draws) + drawn - len(weights) + impossible,
            zeros={reason: count / drawn for reason, count in zeros.items() if count},
            notes=tuple(notes),
            details={
                "kernel": repr(kernel),
                "weights": self.weights,
                "contexts": contexts,
                "pairs": drawn,
                "price": price * contexts,
            },
            **self._dependence(weights, pairs.context, contexts, len(distinct)),
        )
        return replace(draws, record=record)

    def _dependence(self, weights: Tensor, context: Tensor, contexts: int, distinct: int) -> dict[str, Any]:
        """What a reader of the weights must know where only the contexts are independent: fields of the record."""
        if self.weights == "augmented" and len(weights) == distinct and self.per_context == 1:
            return {}
        sums = segment_logsumexp(weights, context, contexts)
        facts: dict[str, Any] = {"independent": False, "ess": effective_sample_size(sums)}
        if self.weights == "augmented":
            facts["pareto_k"] = pareto_k(sums)  # contexts are independent; a mixture weight knows of them all
        if self.weights == "augmented" and contexts >= BLOCKS:
            means = [part - math.log(len(part) * self.per_context) for part in sums.chunk(BLOCKS)]
            facts["blocks"] = Blocks(tuple(float(torch.logsumexp(part, 0)) for part in means))
        return facts

    def _draft(self, model: LanguageModel) -> LanguageModel:
        if self.draft is not None:
            if self.draft.vocab_size != model.vocab_size:
                raise InvalidArgument(
                    f"the draft law has {self.draft.vocab_size} tokens, the model "
                    f"{model.vocab_size}; they must share a vocabulary."
                )
            return self.draft
        candidate = model
        while not candidate.full_support:
            base = getattr(candidate, "base", None)
            if not isinstance(base, LanguageModel):
                return model
            candidate = base
        return candidate

    def _affordable_contexts(self, kernel: Kernel, circuit: Circuit, num_particles: int, budget: int | None) -> tuple[int, int]:
        """How many contexts, and what each costs at most, with all that is drawn around it."""
        length, many = circuit.length, self.per_context
        around = kernel.price(length, circuit.vocab_size)
        backward = many * around if self.weights == "augmented" else 0
        price = around + backward + (1 + many) * length
        wanted = -(-num_particles // many)
        limit = DEFAULT_BUDGET if budget is None else budget
        if is_exact(kernel) and price * wanted > limit:
            raise BudgetExceeded(
                f"the exact kernel needs up to {price * wanted:,} LM tokens for {num_particles} "
                f"particles of {length} tokens ({price:,} for each context) and the budget is "
                f"{limit:,}; raise the budget, or use kernel='topk'."
            )
        return affordable(wanted, price, budget, "lcr"), price


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
    if kernel.excludes and not complete:
        notes.append("the kernel has no floor, so it excludes tokens: give it floor=0.05")
    return ("biased" if notes else "proper"), notes


def is_exact(kernel: Kernel) -> bool:
    """Does this kernel read every neighbour?"""
    return isinstance(kernel, Exact) or (isinstance(kernel, Lazy) and is_exact(kernel.kernel))


@dataclass(frozen=True, eq=False)
class Pairs:
    """Sequences drawn around contexts.

    Attributes:
        context: Long[pairs], the number of the context; those that give α no mass are left out.
        tokens: Long[pairs, time], y.
        log_proposal: f64[pairs], log p̃_ỹ(y | α).
    """

    context: Tensor
    tokens: Tensor
    log_proposal: Tensor


def log_weights(log_target: Tensor, log_context: Tensor, log_proposal: Tensor, log_reverse: Tensor) -> Tensor:
    """log w = log p(y) + log p̃_y(ỹ | padded) − log r(ỹ) − log p̃_ỹ(y | α); each f64[pairs]."""
    return log_target + log_reverse - log_context - log_proposal


def log_mixture(circuit: Circuit, around: Tensor, tokens: Tensor) -> Tensor:
    """f64[num]: log Σ_j p̃_ỹj(y | α).

    Args:
        circuit: α.
        around: f64[contexts, time, vocab], the p̃_ỹj.
        tokens: Long[num, time], sequences that satisfy α.
    """
    position = torch.arange(tokens.shape[1])
    joint = around[:, position, tokens].sum(-1)
    return (joint - circuit.log_mass(around)[:, None]).logsumexp(0)


def _propose(nearby: Neighbourhoods, circuit: Circuit, contexts: Tensor, per_context: int, generator: torch.Generator) -> Pairs:
    """Draw y ~ p̃_ỹ(· | α) around each context that can reach α."""
    draws: list[tuple[Tensor, Tensor, Tensor]] = []
    for part in nearby.parts(len(contexts), circuit.length):
        around, number = nearby.around(contexts[part]), torch.arange(part.start, part.stop)
        if not nearby.everywhere:
            reaches = (circuit.log_mass(around) > NEG_INF).nonzero()[:, 0]
            around, number = around[reaches], number[reaches]
        if len(number):
            for _ in range(per_context):
                draws.append((number, *circuit.sample(around, generator)))
    if not draws:
        raise ZeroWeights(
            f"none of {len(contexts)} local distributions gives the constraint any mass; give the kernel floor=0.05."
        )
    context, tokens, log_proposal = (torch.cat(column) for column in zip(*draws, strict=True))
    return Pairs(context, tokens, log_proposal)


def _log_reverse(nearby: Neighbourhoods, contexts: Tensor, pairs: Pairs) -> Tensor:
    """f64[pairs]: log p̃_y(ỹ | padded), with one neighbourhood for each distinct y."""
    padded = nearby.padded_circuit(contexts.shape[1])
    # In the order of y, so that equal ones meet in one part even where memory is short.
    order = torch.unique(pairs.tokens, dim=0, return_inverse=True)[1].argsort()
    result = torch.empty_like(pairs.log_proposal)
    for part in nearby.parts(len(order), contexts.shape[1]):
        rows = order[part]
        around = nearby.around(pairs.tokens[rows])
        result[rows] = conditional(padded, around, contexts[pairs.context[rows]])
    return result


def _log_mixture(nearby: Neighbourhoods, circuit: Circuit, contexts: Tensor, pairs: Pairs, tokens: Tensor) -> Tensor:
    """f64[num]: log 1/M Σ_j p̃_ỹj(y | α) over the contexts that were drawn from."""
    used = contexts[torch.unique(pairs.context)]
    total = torch.full((len(tokens),), NEG_INF, dtype=torch.float64)
    for part in nearby.parts(len(used), circuit.length):
        total = torch.logaddexp(total, log_mixture(circuit, nearby.around(used[part]), tokens))
    return total - math.log(len(used))
