"""A language model behind an engine."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from locore.chat import Prompt
from locore.ending import absorb_scores, ended_before, is_end, live_lengths
from locore.models.base import Drafts, LanguageModel, neighbour_arguments, substituted
from locore.models.cursor import Cursor, RecomputingCursor
from locore.models.engines.base import Engine
from locore.models.prompting import joint_prompt
from locore.models.validation import positive, within_context
from locore.numerics import make_generator
from locore.tokenizer import Tokenizer

_SEEDS = 2**62


class EngineModel(LanguageModel):
    """The model of an engine after a prompt. The engine holds the caches; here are only token ids.

    Attributes:
        engine: that answers.
        differences: what the self-check found: by which nats two roads to the same number differ at most.
    """

    def __init__(self, engine: Engine, tokenizer: Tokenizer, full_support: bool, prompt: tuple[int, ...] | None = None) -> None:
        """Most users want `locore.load`, which also checks the engine."""
        self.engine = engine
        self.tokenizer = tokenizer
        self.full_support = full_support
        self.differences: dict[str, float] = {}
        self._prompt = prompt

    def __repr__(self) -> str:
        """The engine, and a warning where this code has never met a real one."""
        doubt = "" if self.engine.verified else " (not verified against a real server)"
        return f"<{type(self).__name__}: {self.engine.name}{doubt}>"

    def prompted(self, prompt: Prompt) -> EngineModel:
        """The model after a prompt; after a second one, if it has one already; see `HuggingFaceModel.prompted`.

        Raises:
            CannotScore: the prompt is longer than the context, or it is empty and there is no token to start from.
        """
        return self._after(joint_prompt(self.tokenizer, self._prompt, prompt, self.engine.context))

    def unprompted(self) -> EngineModel:
        """The model before any prompt."""
        return self._after(None)

    @cached_property
    def prompt_ids(self) -> tuple[int, ...]:
        """The ids that the model reads before a continuation."""
        return joint_prompt(self.tokenizer, None, "", self.engine.context) if self._prompt is None else self._prompt

    def sample(self, num: int, length: int, seed: int | torch.Generator | None = None, keep_log_probs: bool = False) -> Drafts:
        """As `LanguageModel.sample`, drawn by the engine where it draws; then a seed is worth what the engine makes of it."""
        if not self.engine.draws:
            return super().sample(num, length, seed, keep_log_probs)
        self._require_length(positive(length, "length"))
        number = int(torch.randint(_SEEDS, (), generator=make_generator(seed)))
        texts, found = self.engine.draw(self.prompt_ids, positive(num, "num"), length, number, self.tokenizer.eos_ids)
        padding = (self.tokenizer.eos_ids or (0,))[0]
        tokens = torch.tensor([[*ids, *[padding] * (length - len(ids))] for ids in texts])
        scores = torch.tensor([[*of, *[0.0] * (length - len(of))] for of in found], dtype=torch.float64)
        return Drafts(tokens, scores, self.log_probs(tokens) if keep_log_probs else None)

    def neighbours(self, tokens: Tensor, candidates: Tensor) -> Tensor:
        """Joint log-probabilities of the sequences at Hamming distance 1; see `LanguageModel`.

        Where the engine reuses what it has read, neighbour (i, v) costs its tail v, y_{i+1}, …, as with `HuggingFaceModel`.
        """
        if not self.engine.reuses_prefix:
            return super().neighbours(tokens, candidates)
        tokens, candidates = neighbour_arguments(tokens, candidates, self.vocab_size)
        n, k = candidates.shape
        self._require_length(n)
        eos_ids, at = self.tokenizer.eos_ids, torch.arange(n)
        live = int(live_lengths(tokens[None], eos_ids))
        sequences = substituted(tokens, candidates)
        scores = self._token_scores(tokens[None])[0].expand(n, k, n).clone()
        prefixes = [[*self.prompt_ids, *tokens[:i].tolist()] for i in range(live)]
        scores[at[:live], :, at[:live]] = self.engine.chosen_log_probs(prefixes, candidates[:live].tolist()).double()

        other = (candidates != tokens[:, None]) & ~is_end(candidates, eos_ids)
        reads_on = other & (at < min(live, n - 1))[:, None]
        if bool(reads_on.any()):
            start = reads_on.nonzero()[:, 0]
            tails = self._tail_scores(sequences[reads_on], start)
            scores[reads_on] = torch.where(at > start[:, None], tails, scores[reads_on])
        return absorb_scores(scores.flatten(0, 1), sequences.flatten(0, 1), eos_ids).sum(-1).view(n, k)

    def _after(self, prompt: tuple[int, ...] | None) -> EngineModel:
        after = EngineModel(self.engine, self.tokenizer, self.full_support, prompt)
        after.differences = self.differences
        return after

    def _require_length(self, length: int) -> None:
        within_context(len(self.prompt_ids), length, self.engine.context)

    def _begin(self, batch: int) -> Cursor:
        return RecomputingCursor(self._next_log_probs, torch.empty(batch, 0, dtype=torch.int64))

    @cached_property
    def _first(self) -> Tensor:
        """Float[1, vocab] after the prompt."""
        return self.engine.next_log_probs([self.prompt_ids])

    def _next_log_probs(self, tokens: Tensor) -> Tensor:
        if tokens.shape[1] == 0:
            return self._first.expand(len(tokens), -1)
        self._require_length(tokens.shape[1] + 1)
        distinct, which = torch.unique(tokens, dim=0, return_inverse=True)
        return self.engine.next_log_probs([[*self.prompt_ids, *prefix] for prefix in distinct.tolist()])[which]

    def _log_probs(self, tokens: Tensor) -> Tensor:
        rows = self._first.expand(len(tokens), 1, -1).repeat(1, tokens.shape[1], 1)
        ended = ended_before(tokens, self.tokenizer.eos_ids)
        for step in range(1, tokens.shape[1]):
            live = ~ended[:, step]
            if bool(live.any()):  # what is said after an end is never read
                rows[live, step] = self._next_log_probs(tokens[live, :step])
        return rows

    def _token_scores(self, tokens: Tensor) -> Tensor:
        return self._tail_scores(tokens, torch.full((len(tokens),), -1))

    def _tail_scores(self, sequences: Tensor, start: Tensor) -> Tensor:
        """f64[batch, time]: scores of the tokens after `start`, up to the end of each row; the same is asked once."""
        ends = live_lengths(sequences, self.tokenizer.eos_ids).tolist()
        asked = [
            (tuple(y[: i + 1]), tuple(y[i + 1 : end]))
            for y, i, end in zip(sequences.tolist(), start.tolist(), ends, strict=True)
        ]
        distinct = list(dict.fromkeys(asked))
        prefixes = [[*self.prompt_ids, *prefix] for prefix, _ in distinct]
        found = dict(zip(distinct, self.engine.tail_scores(prefixes, [tail for _, tail in distinct]), strict=True))
        scores = torch.zeros(sequences.shape, dtype=torch.float64)
        for row, (prefix, tail) in enumerate(asked):
            scores[row, len(prefix) : len(prefix) + len(tail)] = torch.tensor(found[prefix, tail], dtype=torch.float64)
        return scores
