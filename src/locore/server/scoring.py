"""Log-probabilities of the tokens of an answer: under the model that was sampled, and under masked decoding."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from locore.circuits import Circuit
from locore.kernel.numerics import NEG_INF
from locore.kernel.tokenizer import Tokenizer
from locore.models import LanguageModel
from locore.server.task import ScoredToken, Scores


class Scorer:
    """Of one prompt and one constraint.

    Args:
        model: the model after the prompt, as samplers read it.
        circuit: of the constraint.
        top: how many other tokens to tell at each place.
    """

    def __init__(self, model: LanguageModel, circuit: Circuit, top: int) -> None:
        self._model = model
        self._circuit = circuit
        self._top = min(top, model.vocab_size)

    def scored(self, tokens: Tensor, written: int, shown: int, log_evidence: float) -> tuple[list[ScoredToken], Scores]:
        """One sequence.

        Args:
            tokens: Long[time], the whole of it.
            written: tokens before its end.
            shown: bytes of its text; tokens that begin behind them are not told.
            log_evidence: estimate of log p(constraint).

        Returns:
            The tokens of the text; and the log-probabilities of the whole sequence, its end included.
        """
        rows = self._model.log_probs(tokens[None])[0]
        own = rows.gather(-1, tokens[:, None])[:, 0].double()
        masses = self._masses(rows, tokens)
        spelled, place = [], 0
        for time, token in enumerate(tokens[:written].tolist()):
            if place >= shown and place > 0:
                break
            masked = None if masses is None else finite(float(own[time] - masses[time]))
            spelled.append(self._token(token, float(own[time]), masked, rows[time]))
            place += len(spelled[-1].content)
        log_prob = float(own.sum())
        weight = None if masses is None else float(masses.sum())
        return spelled, Scores(
            finite(log_prob),
            finite(log_prob - log_evidence),
            None if weight is None else finite(log_prob - weight),
            None if weight is None else finite(weight),
        )

    def _masses(self, rows: Tensor, tokens: Tensor) -> Tensor | None:
        """f64[time], log of the model's mass of the allowed tokens; None if the circuit is not read from left to right."""
        reader = self._circuit.reader
        if reader is None:
            return None
        masses = torch.zeros(len(tokens), dtype=torch.float64)
        states = reader.initial(1)
        for position in range(len(tokens)):
            allowed = reader.allowed_tokens(position, states)[0]
            masses[position] = torch.logsumexp(rows[position].double().masked_fill(~allowed, NEG_INF), -1)
            states = reader.step(position, states, tokens[position][None])
        return masses

    def _token(self, token: int, log_prob: float, masked: float | None, row: Tensor) -> ScoredToken:
        tokenizer = self._model.tokenizer
        best = row.topk(self._top) if self._top else None
        others = [] if best is None else list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        top = [self._spelled(tokenizer, other, value) for other, value in others if value > -math.inf]
        return ScoredToken(spelling(tokenizer, token), _content(tokenizer, token), log_prob, masked, top)

    def _spelled(self, tokenizer: Tokenizer, token: int, log_prob: float) -> ScoredToken:
        return ScoredToken(spelling(tokenizer, token), _content(tokenizer, token), log_prob, None)


def _content(tokenizer: Tokenizer, token: int) -> list[int]:
    return list(tokenizer.token_bytes[token] or b"")


def spelling(tokenizer: Tokenizer, token: int) -> str:
    """The text of one token; half a character is shown as one that is missing, an end as nothing."""
    if token in tokenizer.eos_ids:
        return ""
    content = tokenizer.token_bytes[token]
    return f"⟨{token}⟩" if content is None else content.decode("utf-8", errors="replace")


def finite(value: float) -> float | None:
    """For JSON, which has no words for the others."""
    return value if math.isfinite(value) else None
