"""vLLM, wherever it runs: which of its requests gives which probabilities.

Four roads lead to a score. `prompt_logprobs` reads the whole sequence and never the prefix cache: plain, and the reference.
One generated token with `logprobs=-1` gives the whole distribution after a prefix, which comes from the cache. Tokens that the
processor `ForcedTokens` makes it generate are scored one by one after a prefix from the cache. In one process with us, the
processor `LiveRows` hands over whole distributions as they are, on the model's device, and their requests go on from there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from locore.kernel.errors import CannotScore, EngineError
from locore.models.engines.model import Engine, Ids, Refused, parsed_log_probs, whole_row

CHOSEN = 128  # ids for which vLLM gives log-probabilities in one request
DRAWN = 1024  # texts in one request


@dataclass(frozen=True)
class Completion:
    """What vLLM generated after one prompt, once.

    Attributes:
        ids: of the generated tokens.
        scores: their log-probabilities.
        tops: for each, the log-probabilities that were asked for, by id.
        prompt: the same for each token of the prompt; None for the first of them, and where they were not asked for.
    """

    ids: list[int]
    scores: list[Any]
    tops: list[dict[int, Any]]
    prompt: list[dict[int, Any] | None] | None = None


@dataclass(frozen=True)
class CompletionRequest:
    """One prompt, and settings beside the neutral ones; `forced` are tokens for `ForcedTokens`."""

    prompt: Ids
    settings: Mapping[str, Any]
    forced: Ids | None = None


class VLLM(Engine):
    """A model in vLLM; a subclass says how requests get there."""

    draws = True

    @abstractmethod
    def _ask(self, requests: Sequence[CompletionRequest], rows: bool = False) -> list[list[Completion]]:
        """The answers to each request; `rows` says that they are large.

        Raises:
            EngineError: as its message says.
        """

    def probe(self) -> None:
        """What this one can do, by asking: whole distributions, and forced tokens; and how many tokens there are."""
        try:
            top = self._complete([CompletionRequest([0], {"max_tokens": 1, "logprobs": -1})], rows=True)[0].tops[0]
        except Refused as refusal:
            if refusal.status != 400:
                raise
            self.no_whole_rows = refusal.reason
            return
        self.vocab_size = len(top)
        whole_row(top, self.vocab_size, self.name)
        trial = [min(top, key=top.__getitem__)] * 3  # nothing that it would draw by itself
        try:
            self.reuses_prefix = self._complete([self._forcing([0], trial)])[0].ids == trial
        except Refused as refusal:
            if refusal.status != 400:
                raise

    def next_log_probs(self, prefixes: Sequence[Ids]) -> Tensor:
        """Float[prefix, vocab]; one request for each prefix, which is read from the cache as far as it is there."""
        self._require_rows()
        requests = [CompletionRequest(prefix, {"max_tokens": 1, "logprobs": -1}) for prefix in prefixes]
        answers = self._complete(requests, rows=True)
        return torch.stack([whole_row(answer.tops[0], self.vocab_size, self.name) for answer in answers])

    def chosen_log_probs(self, prefixes: Sequence[Ids], chosen: Sequence[Ids]) -> Tensor:
        """Float[prefix, k]; as `next_log_probs`, but only the chosen ids travel."""
        self._require_rows()
        parts = [
            (prefix, ids[at : at + CHOSEN])
            for prefix, ids in zip(prefixes, chosen, strict=True)
            for at in range(0, len(ids), CHOSEN)
        ]
        answers = self._complete([self._choosing(prefix, sorted(set(ids))) for prefix, ids in parts])
        log_probs = [self._log_probs_of(answer.tops[0], ids) for answer, (_, ids) in zip(answers, parts, strict=True)]
        return torch.tensor([score for scores in log_probs for score in scores]).view(len(prefixes), -1)

    def tail_scores(self, prefixes: Sequence[Ids], tails: Sequence[Ids]) -> list[list[float]]:
        """Log p of each token of each tail: by forcing them where that is possible, else plainly."""
        if not self.reuses_prefix:
            return self.plain_scores(prefixes, tails)
        requests = [self._forcing(prefix, tail) for prefix, tail in zip(prefixes, tails, strict=True)]
        answers = self._complete(requests)
        for answer, tail in zip(answers, tails, strict=True):
            if answer.ids != list(tail):
                raise EngineError(f"{self.name} was to generate the tokens {list(tail)} and generated {answer.ids}.")
        return [parsed_log_probs(answer.scores, self.name) for answer in answers]

    def plain_scores(self, prefixes: Sequence[Ids], tails: Sequence[Ids]) -> list[list[float]]:
        """Log p of each token of each tail, read with its prefix from the first token on."""
        whole = [[*prefix, *tail] for prefix, tail in zip(prefixes, tails, strict=True)]
        answers = self._complete([CompletionRequest(ids, {"max_tokens": 1, "prompt_logprobs": 0}) for ids in whole])
        return [self._prompt_log_probs(answer, ids, len(tail)) for answer, ids, tail in zip(answers, whole, tails, strict=True)]

    def draw(self, prefix: Ids, num: int, length: int, seed: int, eos_ids: Ids) -> tuple[list[list[int]], list[list[float]]]:
        """Texts drawn by vLLM itself; number i has the seed `seed` + i, so few are the first of many."""
        settings = {"max_tokens": length, "logprobs": 0, "stop_token_ids": list(eos_ids)}
        parts = [{**settings, "n": min(DRAWN, num - at), "seed": seed + at} for at in range(0, num, DRAWN)]
        answers = [answer for group in self._ask([CompletionRequest(prefix, part) for part in parts]) for answer in group]
        if len(answers) != num:
            raise EngineError(f"{self.name} was to draw {num} texts and drew {len(answers)}.")
        for answer in answers:
            ends = [at for at, token in enumerate(answer.ids) if token in eos_ids] or [length - 1]
            in_range = all(0 <= token < self.vocab_size for token in answer.ids)
            if not (in_range and len(answer.scores) == len(answer.ids) == ends[0] + 1 <= length):
                raise EngineError(
                    f"{self.name} was to draw {length} tokens or up to an end ({list(eos_ids)}), and drew {answer.ids}. If its "
                    "model has other ends, give a `tokenizer` whose files declare them."
                )
        return [a.ids for a in answers], [parsed_log_probs(a.scores, self.name) for a in answers]

    def _choosing(self, prefix: Ids, ids: Ids) -> CompletionRequest:
        return CompletionRequest(prefix, {"max_tokens": 1, "logprobs": len(ids), "logprob_token_ids": ids})

    def _forcing(self, prefix: Ids, tail: Ids) -> CompletionRequest:
        return CompletionRequest(prefix, {"max_tokens": len(tail), "logprobs": 0}, tail)

    def _complete(self, requests: Sequence[CompletionRequest], rows: bool = False) -> list[Completion]:
        """The only answer to each request, as long as it was asked for, with log-probabilities if they were asked for."""
        groups = self._ask(requests, rows)
        for request, answers in zip(requests, groups, strict=True):
            wanted = request.settings["max_tokens"]
            scored = wanted if "logprobs" in request.settings else 0
            got = [(len(a.ids), len(a.scores), len(a.tops)) for a in answers]
            if got != [(wanted, scored, scored)]:
                raise EngineError(
                    f"{self.name} was asked for {wanted} tokens and {scored} log-probabilities, and gave {got} (tokens, "
                    "log-probabilities, tables of them)."
                )
        return [answers[0] for answers in groups]

    def _log_probs_of(self, table: Mapping[int, Any], ids: Ids) -> list[float]:
        """Checked log-probabilities of these ids."""
        missing = [token for token in ids if token not in table]
        if missing:
            raise EngineError(f"{self.name} gave no log-probability for the token {missing[0]}, which was asked for.")
        return parsed_log_probs((table[token] for token in ids), self.name)

    def _prompt_log_probs(self, answer: Completion, ids: Ids, length: int) -> list[float]:
        """Checked log-probabilities of the last `length` tokens of the prompt."""
        rows = answer.prompt
        if rows is None or len(rows) != len(ids):
            raise EngineError(
                f"{self.name} read {len(ids)} tokens and gave log-probabilities of {0 if rows is None else len(rows)}."
            )
        start = len(ids) - length
        return [self._log_probs_of(row or {}, [token])[0] for row, token in zip(rows[start:], ids[start:], strict=True)]

    def _require_rows(self) -> None:
        if self.no_whole_rows is not None:
            raise CannotScore(
                f"{self.name} gives no whole next-token distributions ({self.no_whole_rows}). Start it with --max-logprobs -1, "
                'or use the only sampler that needs none, sampler="rejection".'
            )
