"""What a language model is to Locore: next-token distributions, and what follows from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from locore.chat import Prompt
from locore.ending import absorb_rows, absorb_scores
from locore.errors import InvalidArgument
from locore.models.cursor import AbsorbingCursor, Cursor, RecomputingCursor
from locore.models.info import ModelInfo
from locore.models.validation import distributions, log_probabilities, positive, token_ids
from locore.numerics import categorical, make_generator
from locore.tokenizer import Tokenizer

# Numbers in one full table of distributions: 64 MiB in float32.
_TABLE_NUMBERS = 2**24


@dataclass(frozen=True, eq=False)
class Drafts:
    """Sequences drawn from a model.

    Attributes:
        tokens: Long[num, time], EOS-padded.
        token_scores: f64[num, time], log p(y_t | y_<t) of each token under the law they were
            drawn from.
        log_probs: Float[num, time, vocab], the whole distributions, if they were asked for.
    """

    tokens: Tensor
    token_scores: Tensor
    log_probs: Tensor | None = None


class LanguageModel(ABC):
    """A distribution over token sequences of any length asked for, after a prompt.

    A subclass gives `tokenizer`, `full_support`, `prompted` and `_log_probs`; those with a cache
    override `_begin`, `_token_scores` and `neighbours` too. The public methods check their
    arguments and make the end of sequence absorbing, so a subclass need do neither: what
    `_log_probs` says after an end is never read. Results live on the CPU.

    Attributes:
        tokenizer: the vocabulary.
        full_support: is every token possible at every position before the end?
        info: what is known of it; None if nothing is.
    """

    tokenizer: Tokenizer
    full_support: bool
    info: ModelInfo | None = None

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
        tokens = token_ids(tokens, "batch time", self.vocab_size)
        self._require_length(tokens.shape[1])
        rows = self._log_probs(tokens)
        eos_ids = self.tokenizer.eos_ids
        return distributions(absorb_rows(rows, tokens, eos_ids) if eos_ids else rows)

    def begin(self, batch: int) -> Cursor:
        """A cursor of `batch` rows, all before their first token."""
        inner = self._begin(positive(batch, "batch"))
        return AbsorbingCursor.begin(inner, batch, self.vocab_size, self.tokenizer.eos_ids)

    def token_scores(self, tokens: Tensor) -> Tensor:
        """f64[batch, time]: log p(y_t | y_<t) of Long[batch, time]; errors as `log_probs`."""
        tokens = token_ids(tokens, "batch time", self.vocab_size)
        self._require_length(tokens.shape[1])
        return log_probabilities(absorb_scores(self._token_scores(tokens), tokens, self.tokenizer.eos_ids))

    def score(self, tokens: Tensor) -> Tensor:
        """f64[batch]: log p of whole sequences Long[batch, time]; errors as `log_probs`."""
        return self.token_scores(tokens).sum(-1)

    def sample(
        self,
        num: int,
        length: int,
        seed: int | torch.Generator | None = None,
        keep_log_probs: bool = False,
    ) -> Drafts:
        """Sequences drawn token by token from the model itself.

        The same seed gives the same sequences on a CPU, and the first of many are those of few
        (up to rounding of the log-probabilities in another batch).

        Args:
            num: how many sequences.
            length: tokens in each.
            seed: an integer, a CPU generator (which is advanced), or None for a fresh one.
            keep_log_probs: keep every distribution, num × length × vocabulary numbers.

        Raises:
            InvalidArgument: `num` or `length` is below 1.
            CannotScore: the sequences are longer than the model can read.
        """
        self._require_length(positive(length, "length"))
        cursor = self.begin(positive(num, "num"))
        uniforms = _uniforms(num, length, seed)
        tokens, scores, kept = [], [], []
        for step in range(length):
            log_probs = cursor.log_probs
            token = categorical(log_probs, uniforms[:, step])
            tokens.append(token)
            scores.append(log_probs.gather(1, token[:, None])[:, 0].double())
            if keep_log_probs:
                kept.append(log_probs)
            if step + 1 < length:
                cursor = cursor.advance(token)
        rows = torch.stack(kept, 1) if keep_log_probs else None
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
        tokens, candidates = neighbour_arguments(tokens, candidates, self.vocab_size)
        changed = candidates != tokens[:, None]
        scores = self.score(torch.cat([tokens[None], substituted(tokens, candidates)[changed]]))
        result = scores[0].repeat(candidates.shape)
        result[changed] = scores[1:]
        return result

    def _require_length(self, length: int) -> None:
        """Raise `CannotScore` if the model cannot read continuations of this length."""
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


def neighbour_arguments(tokens: Tensor, candidates: Tensor, vocab_size: int) -> tuple[Tensor, Tensor]:
    """The checked arguments of `neighbours`."""
    tokens = token_ids(tokens, "time", vocab_size)
    candidates = token_ids(candidates, "time k", vocab_size)
    if len(candidates) != len(tokens):
        raise InvalidArgument(f"There are candidates for {len(candidates)} positions, but {len(tokens)} tokens.")
    return tokens, candidates


def substituted(tokens: Tensor, candidates: Tensor) -> Tensor:
    """Long[time, k, time]: Long[time] with position i replaced by candidates[i, j]."""
    length, k = candidates.shape
    sequences = tokens.expand(length, k, length).clone()
    at = torch.arange(length)
    sequences[at, :, at] = candidates
    return sequences


def _uniforms(num: int, length: int, seed: int | torch.Generator | None) -> Tensor:
    """f64[num, length] in [0, 1), from a generator of its own."""
    return torch.rand(num, length, generator=make_generator(seed), dtype=torch.float64)
