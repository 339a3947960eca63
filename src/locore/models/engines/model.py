"""What Locore asks of an engine, token ids in and natural logs of probabilities out; and a language model that asks it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from locore.kernel.errors import EngineError, InvalidArgument
from locore.kernel.models.language_model import Drafts, TokenModel, neighbour_scores
from locore.kernel.models.validation import positive
from locore.kernel.numerics import NEG_INF, ended_before, live_lengths, make_generator
from locore.kernel.plugins import cached_property
from locore.kernel.tokenizer import Tokenizer

Ids = Sequence[int]

FORCED = "locore_forced"  # the name under which a request to vLLM carries tokens that it must generate
ROUNDING = 1e-4  # nats by which a log-probability may exceed 0
SUM_ROUNDING = 1e-3  # nats by which a whole distribution may miss a mass of 1
CLAMPED = -9999.0  # what engines write for a probability of zero: JSON has no infinity
_SEEDS = 2**62

# Every setting that would reshape what is drawn: a server takes those that are missing from the model's own files.
NEUTRAL = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "ignore_eos": True,
}


class Refused(EngineError):
    """The engine answered that it does not do this (over HTTP: 4xx).

    Attributes:
        status: of the answer.
        reason: the engine's own words.
    """

    def __init__(self, message: str, status: int, reason: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class Engine(ABC):
    """An engine with one model.

    Attributes:
        name: what errors call it.
        root: where it has its model from: a folder, or a Hugging Face name.
        context: tokens of prompt and continuation together that it can read; None if it does not say.
        vocab_size: columns of a distribution; 0 until that is known.
        no_whole_rows: why it gives no whole distributions; None if it gives them.
        reuses_prefix: does it score what follows a prefix without reading the prefix again?
        draws: does it draw texts by itself, with `draw`?
        verified: has this code been run against a real one?
        device: where whole distributions lie.
    """

    name: str
    root: str
    context: int | None
    vocab_size = 0
    no_whole_rows: str | None = None
    reuses_prefix = False
    draws = False
    verified = True
    device = torch.device("cpu")

    def tokenized(self, text: str) -> list[int] | None:
        """Ids of a prompt by the engine's own tokenizer; None if it does not tell."""
        return None

    @abstractmethod
    def next_log_probs(self, prefixes: Sequence[Ids]) -> Tensor:
        """Float[prefix, vocab], log p(· | prefix) of non-empty prefixes.

        Raises:
            CannotScore: the engine does not give whole distributions.
        """

    @abstractmethod
    def tail_scores(self, prefixes: Sequence[Ids], tails: Sequence[Ids]) -> list[list[float]]:
        """Log p of each token of each tail after its prefix; neither is empty."""

    def plain_scores(self, prefixes: Sequence[Ids], tails: Sequence[Ids]) -> list[list[float]]:
        """As `tail_scores`, by the engine's plainest road: what the others are checked against."""
        return self.tail_scores(prefixes, tails)

    def chosen_log_probs(self, prefixes: Sequence[Ids], chosen: Sequence[Ids]) -> Tensor:
        """Float[prefix, k] on the CPU, log p of k chosen tokens after each prefix; errors as `next_log_probs`."""
        log_probs = self.next_log_probs(prefixes)
        return log_probs.gather(1, torch.tensor(chosen, device=log_probs.device)).cpu()

    def draw(self, prefix: Ids, num: int, length: int, seed: int, eos_ids: Ids) -> tuple[list[list[int]], list[list[float]]]:
        """Ids and log-probabilities of texts drawn by the engine, up to and with an end; few are the first of many."""
        raise NotImplementedError


def require_options(engine: str, given: Iterable[str], allowed: Sequence[str]) -> None:
    """Refuse, by an `InvalidArgument` that names them, options of `load` that an engine does not take."""
    foreign = sorted(set(given) - set(allowed))
    if foreign:
        raise InvalidArgument(f"{engine} takes no option {', '.join(foreign)}, only {', '.join(allowed)}; leave it out.")


def parsed_log_probs(values: Iterable[object], engine: str) -> list[float]:
    """Checked logs of probabilities, as an engine wrote them; −inf where it means zero.

    Raises:
        EngineError: a value is no number, NaN, or above 0.
    """
    checked = []
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value > ROUNDING:
            raise EngineError(
                f"{engine} gave {value!r} as the log of a probability. Nothing was computed from it. "
                "Ask again; if it stays so, restart the engine, and see docs/engines.md for settings that are known to do this."
            )
        checked.append(NEG_INF if value <= CLAMPED else float(value))
    return checked


def whole_row(log_probs: dict[int, float], vocab_size: int, engine: str) -> Tensor:
    """Float[vocab] of a distribution given as {id: log p}, which must be whole.

    Raises:
        EngineError: a token is missing or unknown, a value is no log of a probability, or the mass is not 1.
    """
    missing = vocab_size - len(log_probs)
    wrong = next((token for token in log_probs if not 0 <= token < vocab_size), None)
    if missing or wrong is not None:
        what = f"has the token {wrong}" if wrong is not None else f"lacks {missing} of {vocab_size} tokens"
        raise EngineError(f"A next-token distribution of {engine} {what}. Nothing was computed from it.")
    row = torch.empty(vocab_size)
    row[torch.tensor(list(log_probs))] = torch.tensor(parsed_log_probs(log_probs.values(), engine))
    mass = float(row.double().logsumexp(0))
    if not abs(mass) <= SUM_ROUNDING:
        raise EngineError(
            f"The probabilities of a next-token distribution of {engine} sum to {math.exp(mass):.6g}, not to 1. Start it "
            "without options that reshape what it reports (vLLM: --logprobs-mode raw_logprobs, the default)."
        )
    return row


class EngineModel(TokenModel):
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

    @property
    def context(self) -> int | None:
        """How many tokens the engine can read; None if it does not say."""
        return self.engine.context

    def sample(self, num: int, length: int, seed: int | torch.Generator | None = None, keep_log_probs: bool = False) -> Drafts:
        """As `LanguageModel.sample`, drawn by the engine where it draws; then a seed is worth what the engine makes of it."""
        if not self.engine.draws:
            return super().sample(num, length, seed, keep_log_probs)
        self.require_length(positive(length, "length"))
        number = int(torch.randint(_SEEDS, (), generator=make_generator(seed)))
        texts, log_probs = self.engine.draw(self.prompt_ids, positive(num, "num"), length, number, self.tokenizer.eos_ids)
        padding = (self.tokenizer.eos_ids or (0,))[0]
        tokens = torch.tensor([[*ids, *[padding] * (length - len(ids))] for ids in texts])
        scores = torch.tensor([[*of, *[0.0] * (length - len(of))] for of in log_probs], dtype=torch.float64)
        return Drafts(tokens, scores, self.log_probs(tokens).to(self.device) if keep_log_probs else None)

    def _neighbours(self, tokens: Tensor, candidates: Tensor) -> Tensor:
        """Where the engine reuses what it has read, a neighbour costs its tail, as with `HuggingFaceModel`."""
        if not self.engine.reuses_prefix:
            return super()._neighbours(tokens, candidates)
        live = int(live_lengths(tokens[None], self.tokenizer.eos_ids))
        own = self._token_scores(tokens[None])[0, :live]
        prefixes = [[*self.prompt_ids, *tokens[:i].tolist()] for i in range(live)]
        chosen = self.engine.chosen_log_probs(prefixes, candidates[:live].tolist()).double()
        return neighbour_scores(tokens, candidates, own, chosen, self._tail_scores, self.tokenizer.eos_ids)

    @property
    def device(self) -> torch.device:
        """Where the engine hands over distributions."""
        return self.engine.device

    def _after(self, prompt: tuple[int, ...] | None) -> EngineModel:
        after = EngineModel(self.engine, self.tokenizer, self.full_support, prompt)
        after.differences, after.info = self.differences, self.info
        return after

    @cached_property
    def _first(self) -> Tensor:
        """Float[1, vocab] after the prompt."""
        return self.engine.next_log_probs([self.prompt_ids])

    def _next_log_probs(self, tokens: Tensor) -> Tensor:
        if tokens.shape[1] == 0:
            return self._first.expand(len(tokens), -1)
        self.require_length(tokens.shape[1] + 1)
        distinct, which = torch.unique(tokens, dim=0, return_inverse=True)
        rows = self.engine.next_log_probs([[*self.prompt_ids, *prefix] for prefix in distinct.tolist()])
        return rows[which.to(rows.device)]

    def _log_probs(self, tokens: Tensor) -> Tensor:
        rows = self._first.cpu().expand(len(tokens), 1, -1).repeat(1, tokens.shape[1], 1)
        ended = ended_before(tokens, self.tokenizer.eos_ids)
        for step in range(1, tokens.shape[1]):
            live = ~ended[:, step]
            if bool(live.any()):  # what is said after an end is never read
                rows[live, step] = self._next_log_probs(tokens[live, :step]).cpu()
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
        answers = dict(zip(distinct, self.engine.tail_scores(prefixes, [tail for _, tail in distinct]), strict=True))
        scores = torch.zeros(sequences.shape, dtype=torch.float64)
        for row, (prefix, tail) in enumerate(asked):
            scores[row, len(prefix) : len(prefix) + len(tail)] = torch.tensor(answers[prefix, tail], dtype=torch.float64)
        return scores
