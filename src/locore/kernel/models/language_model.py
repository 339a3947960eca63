"""What a language model is to Locore: next-token distributions, and what follows from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from locore.kernel.chat import Prompt, is_chat
from locore.kernel.errors import CannotScore, InvalidArgument
from locore.kernel.limits import may_stop
from locore.kernel.models.cursor import AbsorbingCursor, Cursor, RecomputingCursor, scores_of
from locore.kernel.models.validation import (
    checked_distributions,
    checked_log_probs,
    positive,
    prompt_ids,
    token_ids,
    within_context,
)
from locore.kernel.numerics import absorb_rows, absorb_scores, categorical, is_end, make_generator
from locore.kernel.plugins import cached_property
from locore.kernel.tokenizer import Tokenizer

# Numbers in one full table of distributions: 64 MiB in float32.
_TABLE_NUMBERS = 2**24


@dataclass(frozen=True)
class Origin:
    """What a file of weights says about itself; None where it says nothing.

    Attributes:
        provenance: who published the model, under which name.
        licence: as the file spells it, such as "apache-2.0".
        quantisation: formats of the weights in the file, by their share of the numbers.
        caution: what is not as in the original model, if anything.
    """

    provenance: str | None = None
    licence: str | None = None
    quantisation: str | None = None
    caution: str | None = None


@dataclass(frozen=True)
class ModelInfo:
    """What is known of a model; printed, it is a few lines.

    Attributes:
        name: of its folder or file, or its name on the Hub.
        architecture: as `transformers` calls it, such as "llama".
        parameters: how many numbers it has; what is shared counts once.
        vocabulary: columns of its next-token distributions.
        context: how many tokens it can read; None if nothing is declared.
        dtype: in which it computes, such as "float32"; and a copy that draws, if it has one.
        place: the folder that its weights are read from, or its name on the Hub; "" if they are in memory only.
        origin: what its files say about where it comes from.
        hindrances: which shortcuts of reading it does not allow, and why, such as "no cache: each step reads everything anew,
            because …"; none for plain attention.
        sampling: what its generation configuration suggests, such as {"temperature": 0.2, "top_p": 0.9}; taken on request only.
        threads: how many compute, and why, such as "1, as 2 take 3.1 times as long"; None where the user has set it.
    """

    name: str
    architecture: str
    parameters: int
    vocabulary: int
    context: int | None
    dtype: str
    place: str
    origin: Origin
    hindrances: tuple[str, ...] = ()
    sampling: dict[str, Any] = field(default_factory=dict)
    threads: str | None = None

    def __str__(self) -> str:
        context = "no declared context" if self.context is None else f"a context of {self.context:,} tokens"
        size = f"{self.parameters:,} parameters, {self.vocabulary:,} tokens, {context}"
        lines = {
            "architecture": f"{self.architecture}: {size}",
            "computes in": self.dtype,
            "threads": self.threads,
            "provenance": self.origin.provenance,
            "licence": self.origin.licence,
            "quantisation": self.origin.quantisation,
            "caution": self.origin.caution,
            "read from": self.place or None,
            "suggests": ", ".join(f"{name} {value:g}" for name, value in self.sampling.items()) or None,
        }
        shown = [(key, value) for key, value in lines.items() if value is not None]
        shown += [("reading", reason) for reason in self.hindrances]
        return "\n".join([self.name, *(f"  {key:<14}{value}" for key, value in shown)])


@dataclass(frozen=True, eq=False)
class Drafts:
    """Sequences drawn from a model.

    Attributes:
        tokens: Long[num, time], EOS-padded.
        token_scores: f64[num, time], log p(y_t | y_<t) of each token under the law they were drawn from.
        log_probs: Float[num, time, vocab], the whole distributions on the model's device, if they were asked for.
    """

    tokens: Tensor
    token_scores: Tensor
    log_probs: Tensor | None = None


class LanguageModel(ABC):
    """A distribution over token sequences of any length asked for, after a prompt.

    A subclass gives `tokenizer`, `full_support`, `prompted` and `_log_probs`; those with a cache override `_begin`,
    `_token_scores` and `_neighbours` too. The public methods check their arguments and make the end of sequence absorbing, so a
    subclass need do neither: what `_log_probs` says after an end is never read. Results live on the CPU; only the distributions
    of cursors and drafts, which are large and used at once, stay where the model computes.

    Attributes:
        tokenizer: the vocabulary.
        full_support: is every token possible at every position before the end?
        info: what is known of it; None if nothing is.
    """

    tokenizer: Tokenizer
    full_support: bool
    info: ModelInfo | None = None

    @property
    def slow_because(self) -> str | None:
        """Why reading on costs orders of magnitude more than it should, in a sentence; None if it does not."""
        return None

    @property
    def near(self) -> LanguageModel | None:
        """One that has probability where this one has, nearly the same, for less: it may draw what this weighs. Or none."""
        return None

    @abstractmethod
    def prompted(self, prompt: Prompt) -> LanguageModel:
        """The model after a prompt, which is again a model.

        Args:
            prompt: a text, token ids, or the messages of a chat.

        Raises:
            CannotScore: the model cannot read this prompt.
            InvalidArgument: a chat after an earlier prompt, or messages that the chat template does not take.
            MissingTemplate: messages, for a model without a chat template.
        """

    def unprompted(self) -> LanguageModel:
        """The model before any prompt; a model without prompts is its own."""
        return self

    def fingerprint(self) -> str | None:
        """A name under which what was computed from this model can be kept; None if it has none."""
        return None

    @abstractmethod
    def _log_probs(self, tokens: Tensor) -> Tensor:
        """Float[batch, time, vocab] of valid ids Long[batch, time]; row t: log p(· | y_<t)."""

    @property
    def device(self) -> torch.device:
        """Where the distributions of its cursors are."""
        return torch.device("cpu")

    @property
    def vocab_size(self) -> int:
        """Number of columns of a distribution."""
        return self.tokenizer.vocab_size

    def log_probs(self, tokens: Tensor) -> Tensor:
        """All next-token distributions along sequences.

        Args:
            tokens: Long[batch, time]; the last token of each row is not read.

        Returns:
            Float[batch, time, vocab], natural logs; row t is log p(· | tokens[:t]).

        Raises:
            InvalidArgument: an id is out of range or there is no position.
            CannotScore: the sequences are longer than the model can read.
            BrokenModel: what the model gives is no distribution.
        """
        may_stop()
        tokens = token_ids(tokens, "batch time", self.vocab_size)
        self.require_length(tokens.shape[1])
        rows = self._log_probs(tokens)
        eos_ids = self.tokenizer.eos_ids
        return checked_distributions(absorb_rows(rows, tokens, eos_ids) if eos_ids else rows)

    def begin(self, batch: int) -> Cursor:
        """A cursor of `batch` rows, all before their first token."""
        inner = self._begin(positive(batch, "batch"))
        return AbsorbingCursor.begin(inner, batch, self.vocab_size, self.tokenizer.eos_ids)

    def token_scores(self, tokens: Tensor) -> Tensor:
        """f64[batch, time]: log p(y_t | y_<t) of Long[batch, time]; errors as `log_probs`."""
        may_stop()
        tokens = token_ids(tokens, "batch time", self.vocab_size)
        self.require_length(tokens.shape[1])
        return checked_log_probs(absorb_scores(self._token_scores(tokens), tokens, self.tokenizer.eos_ids))

    def score(self, tokens: Tensor) -> Tensor:
        """f64[batch]: log p of whole sequences Long[batch, time]; errors as `log_probs`."""
        return self.token_scores(tokens).sum(-1)

    def sample(self, num: int, length: int, seed: int | torch.Generator | None = None, keep_log_probs: bool = False) -> Drafts:
        """Sequences drawn token by token from the model itself.

        The same seed gives the same sequences on a CPU, and the first of many are those of few (up to rounding of the
        log-probabilities in another batch).

        Args:
            num: how many sequences.
            length: tokens in each.
            seed: an integer, a CPU generator (which is advanced), or None for a fresh one.
            keep_log_probs: keep every distribution, num × length × vocabulary numbers.

        Raises:
            InvalidArgument: `num` or `length` is below 1.
            CannotScore: the sequences are longer than the model can read.
        """
        self.require_length(positive(length, "length"))
        cursor = self.begin(positive(num, "num"))
        uniforms = torch.rand(num, length, generator=make_generator(seed), dtype=torch.float64)
        tokens, scores, distributions = [], [], []
        for step in range(length):
            log_probs = cursor.log_probs
            token = categorical(log_probs, uniforms[:, step])
            tokens.append(token)
            scores.append(scores_of(log_probs, token))
            if keep_log_probs:
                distributions.append(log_probs)
            if step + 1 < length:
                cursor = cursor.advance(token)
        rows = torch.stack(distributions, 1) if keep_log_probs else None
        return Drafts(torch.stack(tokens, 1), torch.stack(scores, 1), rows)

    def neighbours(self, tokens: Tensor, candidates: Tensor) -> Tensor:
        """Joint log-probabilities of the sequences that differ from y in one position.

        Args:
            tokens: Long[time], the sequence y.
            candidates: Long[time, k], replacements to try at each position.

        Returns:
            f64[time, k]: log p of y with y_i replaced by candidates[i, j].

        Raises:
            InvalidArgument: an id is out of range or the shapes do not fit.
            CannotScore: the sequence is longer than the model can read.
        """
        may_stop()
        tokens = token_ids(tokens, "time", self.vocab_size)
        candidates = token_ids(candidates, "time k", self.vocab_size)
        if len(candidates) != len(tokens):
            raise InvalidArgument(f"There are candidates for {len(candidates)} positions, but {len(tokens)} tokens.")
        self.require_length(len(tokens))
        return checked_log_probs(self._neighbours(tokens, candidates))

    def require_length(self, length: int) -> None:
        """Refuse a horizon that the model cannot read.

        Raises:
            CannotScore: prompt and continuation are longer than its context.
        """
        return None

    def _begin(self, batch: int) -> Cursor:
        """The model's own cursor; it need not know about ends."""
        return RecomputingCursor(self._next_log_probs, torch.empty(batch, 0, dtype=torch.int64))

    def _next_log_probs(self, tokens: Tensor) -> Tensor:
        """Float[batch, vocab] after Long[batch, time]."""
        unread = tokens.new_zeros(len(tokens), 1)
        return self._log_probs(torch.cat([tokens, unread], 1))[:, -1]

    def _token_scores(self, tokens: Tensor) -> Tensor:
        """f64[batch, time] of valid ids; what it says after an end is never read."""
        rows = max(1, _TABLE_NUMBERS // (tokens.shape[1] * self.vocab_size))
        parts = [self._log_probs(part).gather(2, part[..., None])[..., 0].double() for part in torch.split(tokens, rows)]
        return torch.cat(parts)

    def _neighbours(self, tokens: Tensor, candidates: Tensor) -> Tensor:
        """f64[time, k] of valid ids; here each sequence is read as a whole."""
        changed = candidates != tokens[:, None]
        scores = self.score(torch.cat([tokens[None], substituted(tokens, candidates)[changed]]))
        result = scores[0].repeat(candidates.shape)
        result[changed] = scores[1:]
        return result


class TokenModel(LanguageModel):
    """A model that reads token ids before a continuation; a subclass gives `context` and `_after`."""

    _prompt: tuple[int, ...] | None = None

    @property
    @abstractmethod
    def context(self) -> int | None:
        """How many tokens it can read; None if it has no limit."""

    @abstractmethod
    def _after(self, prompt: tuple[int, ...] | None) -> Self:
        """The same model after these ids, and no others."""

    def prompted(self, prompt: Prompt) -> Self:
        """The model after a prompt; after a second one, if it has one already.

        Args:
            prompt: a text, which gets the special tokens that the tokenizer puts at a start (and none if there is a prompt
                already); token ids, which are taken as they are; or the messages of a chat, written by the chat template (see
                `Tokenizer.encode_chat`).

        Raises:
            CannotScore: the prompt is longer than the context, or it is empty and the model has no token to start from.
            InvalidArgument: a chat after an earlier prompt, or messages that the template refuses.
            MissingTemplate: messages, for a model without a chat template.
        """
        before = self._prompt
        if before is not None and is_chat(prompt):
            raise InvalidArgument(
                "a chat has its own beginning, so it cannot follow an earlier prompt; put that into its messages, or give the "
                "chat to model.unprompted()."
            )
        goes_on = before is not None and isinstance(prompt, str)
        added = self.tokenizer.encode(str(prompt)) if goes_on else prompt_ids(self.tokenizer, prompt)
        joint = (*(before or ()), *added) or self.tokenizer.bos_ids
        if not joint:
            raise CannotScore(
                "The prompt is empty and this model has no BOS token to start from. Give a prompt of at least one token."
            )
        within_context(len(joint), 1, self.context)
        return self._after(joint)

    def unprompted(self) -> Self:
        """The model before any prompt."""
        return self._after(None)

    @cached_property
    def prompt_ids(self) -> tuple[int, ...]:
        """The ids that the model reads before a continuation."""
        return self.prompted("").prompt_ids if self._prompt is None else self._prompt

    def require_length(self, length: int) -> None:
        """By the context, behind the prompt."""
        within_context(len(self.prompt_ids), length, self.context)


class Wrapper(LanguageModel):
    """A model made of another one, whose tokenizer, device, context and fingerprint it has.

    Attributes:
        base: the other model.
    """

    def __init__(self, base: LanguageModel) -> None:
        self.base = base
        self.tokenizer = base.tokenizer
        self.full_support = base.full_support

    def unprompted(self) -> LanguageModel:
        """The base before any prompt."""
        return self.base.unprompted()

    def fingerprint(self) -> str | None:
        """That of the base."""
        return self.base.fingerprint()

    @property
    def slow_because(self) -> str | None:
        """What makes the base slow."""
        return self.base.slow_because

    @property
    def device(self) -> torch.device:
        """That of the base."""
        return self.base.device

    def require_length(self, length: int) -> None:
        """As the base."""
        self.base.require_length(length)


def substituted(tokens: Tensor, candidates: Tensor) -> Tensor:
    """Long[time, k, time]: Long[time] with position i replaced by candidates[i, j]."""
    length, k = candidates.shape
    sequences = tokens.expand(length, k, length).clone()
    at = torch.arange(length)
    sequences[at, :, at] = candidates
    return sequences


def neighbour_scores(
    tokens: Tensor,
    candidates: Tensor,
    own: Tensor,
    chosen: Tensor,
    tail_scores: Callable[[Tensor, Tensor], Tensor],
    eos_ids: tuple[int, ...],
) -> Tensor:
    """`LanguageModel.neighbours` from its parts: neighbour (i, v) shares y_0 … y_{i−1} with y, so only its tail is read.

    Args:
        tokens: Long[time], the sequence y.
        candidates: Long[time, k], replacements at each position.
        own: f64[live], log p(y_t | y_<t) up to and with its end.
        chosen: f64[live, k], log p(candidates[t, j] | y_<t).
        tail_scores: maps neighbours Long[batch, time] and the positions Long[batch], ascending, where they differ from y to
            f64[batch, time], scores of the tokens after that position, up to the end of each row.
        eos_ids: tokens that end a text.
    """
    n, k = candidates.shape
    live, at = len(own), torch.arange(n)
    sequences = substituted(tokens, candidates)
    scores = torch.zeros(n, k, n, dtype=torch.float64)
    scores[:, :, :live] = own
    scores[at[:live], :, at[:live]] = chosen
    has_tail = (candidates != tokens[:, None]) & ~is_end(candidates, eos_ids) & (at < min(live, n - 1))[:, None]
    if bool(has_tail.any()):
        start = has_tail.nonzero()[:, 0]
        scores[has_tail] = torch.where(at > start[:, None], tail_scores(sequences[has_tail], start), scores[has_tail])
    return absorb_scores(scores.flatten(0, 1), sequences.flatten(0, 1), eos_ids).sum(-1).view(n, k)
