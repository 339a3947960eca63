"""What the server asks of a worker, and what comes back: records that both processes know, as JSON between them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from locore.kernel.request import Canonical, Ending, Law, Request

Json = dict[str, Any]
Prompt = str | list[int] | list[dict[str, str]]
Effort = Literal["low", "normal", "high"]
NO_LOGPROBS = -1
EVERYTHING: Json = {"type": "true"}  # the constraint that always holds
BEGUN: Json = {"phase": "compiling", "lm_tokens": 0, "seconds": 0.0}  # how far a run is at its beginning


@dataclass(frozen=True)
class Task:
    """One run of a sampler, and how many texts to draw from what it finds.

    Attributes:
        prompt: a text, token ids, or messages with a role and a text each.
        constraint: as `to_json()` writes it.
        constrains_stop: is it about the text with its stop string, and not about what comes before that?
        num_particles: None for as many as the effort has.
        effort: what is done where neither a sampler nor a budget is asked for.
        logprobs: how many alternatives to each token; `NO_LOGPROBS` for no log-probabilities at all.
        bad_words: what the text must not contain, whatever the constraint says.
        compares: for the page: masking and Locore beside each other.
        return_fields, abstain_below: what is known of the fields of texts that are JSON; see `locore.parse`.
        streams: does the client want to hear what is certain of the texts before they are finished?
    """

    prompt: Prompt
    max_tokens: int
    constraint: Json = field(default_factory=lambda: EVERYTHING)
    min_tokens: int = 0
    num_particles: int | None = None
    sampler: str | None = None
    budget: int | str | None = None  # LM tokens, or seconds, as "5s"
    seed: int | None = None
    canonical: Canonical | None = None
    ending: Ending | None = None
    finished: bool = False
    effort: Effort = "normal"
    law: Law = field(default_factory=Law)
    stop: list[str] = field(default_factory=list)
    include_stop: bool = False
    constrains_stop: bool = False
    bad_words: list[str] = field(default_factory=list)
    n: int = 1
    echo: bool = False
    logprobs: int = NO_LOGPROBS
    return_particles: bool = False
    return_fields: bool = False
    abstain_below: float | None = None
    return_ids: bool = False
    template_options: Json = field(default_factory=dict)
    compares: bool = False
    streams: bool = False

    @property
    def particles(self) -> int:
        """How many weighted texts to look for."""
        if self.num_particles is not None:
            return self.num_particles
        return LOW_PARTICLES if self.effort == "low" and self.is_free else Request.num_particles

    @property
    def rows(self) -> int:
        """About how many rows of a forward pass it fills."""
        return max(self.particles, self.lm_tokens // self.max_tokens)

    @property
    def lm_tokens(self) -> int:
        """The budget, where it is one of LM tokens."""
        return self.budget if isinstance(self.budget, int) else 0

    @property
    def comes_in_pieces(self) -> bool:
        """May a part of a text be told before the rest? What is said of its tokens is known with the whole text only."""
        return self.streams and self.logprobs == NO_LOGPROBS and not self.return_ids

    @property
    def wants_draws_alone(self) -> bool:
        """At low effort: are there only texts to be drawn, and nothing that needs p(α) or may refuse a text afterwards?"""
        more = self.num_particles is not None or self.return_particles or self.return_fields or self.logprobs != NO_LOGPROBS
        return self.effort == "low" and self.is_free and not more and self.canonical is None

    @property
    def is_free(self) -> bool:
        """Does the effort decide how to sample?"""
        return self.sampler is None and self.budget is None

    def to_json(self) -> Json:
        """As plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Json) -> Task:
        """What `to_json` wrote."""
        return cls(**{**plain, "law": Law(**plain["law"])})


LOW_PARTICLES = 8


@dataclass(frozen=True)
class ScoredToken:
    """A token of an answer.

    Attributes:
        text: what it spells; half a character as one that is missing.
        content: its bytes.
        log_prob: log p(token | before), in nats, of the model that was sampled.
        masked_log_prob: the same renormalised over the tokens with which the constraint can still be satisfied.
        top: the likeliest tokens of the model there, with their log-probabilities.
    """

    text: str
    content: list[int]
    log_prob: float
    masked_log_prob: float | None
    top: list[ScoredToken] = field(default_factory=list)


@dataclass(frozen=True)
class Scores:
    """What is known of the probability of a text, in nats; None where it is not known or infinite.

    Attributes:
        log_prob: log p(text's tokens).
        log_prob_given_constraint: log p(tokens | constraint), by the estimate of log p(constraint).
        log_prob_masked: log q(tokens), q the law of masked decoding that looks ahead.
        log_weight: log p − log q: the importance weight of the text if it had been drawn by masking.
    """

    log_prob: float | None
    log_prob_given_constraint: float | None
    log_prob_masked: float | None
    log_weight: float | None


@dataclass(frozen=True)
class Text:
    """One text of an answer.

    Attributes:
        tokens: how many were written, without the end.
        finish: "length" if the horizon cut off a text that could have gone on.
        ids: of these tokens, if they were asked for.
    """

    text: str
    tokens: int
    finish: Literal["stop", "length"]
    ids: list[int] | None = None
    scored: list[ScoredToken] | None = None
    scores: Scores | None = None

    @classmethod
    def from_json(cls, plain: Json) -> Text:
        """What `asdict` wrote."""
        scored, scores = plain["scored"], plain["scores"]
        tokens = None if scored is None else [_scored(token) for token in scored]
        scores = None if scores is None else Scores(**scores)
        return cls(plain["text"], plain["tokens"], plain["finish"], plain["ids"], tokens, scores)


def _scored(plain: Json) -> ScoredToken:
    return ScoredToken(**{**plain, "top": [_scored(token) for token in plain["top"]]})


@dataclass(frozen=True)
class Result:
    """What one run gave.

    Attributes:
        diagnostics: the `locore` object of the answer.
        fingerprint: of the model that computed it.
    """

    texts: list[Text]
    prompt_tokens: int
    diagnostics: Json
    fingerprint: str
    prompt_ids: list[int] | None = None

    def to_json(self) -> Json:
        """As plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Json) -> Result:
        """What `to_json` wrote."""
        texts = [Text.from_json(text) for text in plain["texts"]]
        return cls(texts, plain["prompt_tokens"], plain["diagnostics"], plain["fingerprint"], plain["prompt_ids"])
