"""What is known of one prompt: an audit of it, in rounds where a limit may be settled early.

**Early stops.** With a limit the budget is spent in rounds of 1/8, 1/4 and 5/8, each a run of its own. It ends after a round
whose certain bounds are on one side of the limit, or whose interval is when its ends are twice as far from the estimate in
nats: three looks at 95 % intervals would be wrong more often than one, three at these are not. The estimate is that of the last
round. It is unbiased where all rounds are run; one that stopped because of what it found is not, and the row says so. Certain
bounds are of all rounds together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

from locore.constraints import Constraint
from locore.evidence import Particles
from locore.generate import generate
from locore.kernel.chat import Prompt
from locore.kernel.errors import BudgetExceeded, InvalidArgument, Unsatisfiable, ZeroWeights
from locore.kernel.request import OF_WHOLE_TEXTS
from locore.kernel.tokenizer import Tokenizer
from locore.models import EndingAt, LanguageModel
from locore.samplers import Auto, sampler_by_name
from locore.samplers.steering import SeeksMode
from locore.samplers.twist.lessons import Shared

Settled = Literal["below", "above", "not settled", "no limit"]
Bounds = tuple[float, float]
CERTAIN: Bounds = (0.0, 1.0)
ROUNDS = (1 / 8, 1 / 4, 5 / 8)  # of a budget
LEAST = 24  # texts that a round pays for
STRETCH = 2.0  # times, that the ends of an interval must be away to end an audit early
APART = 100_003  # seeds of rounds
PARTICLES = 256  # which cost nothing: the budget says what is read
TEXTS = 3  # that are shown
TEACHERS = 4  # rows that teach all others
DEFAULT = (None, "auto")  # samplers that learn
LETTERS = 60  # of a prompt, that are shown
JUDGED = ("trust", "rough")  # verdicts whose interval may settle a limit
STOPPED = "stopped where the limit was settled, so that the estimate is not unbiased"


@dataclass(frozen=True)
class AuditRow:
    """What is known of one prompt.

    Attributes:
        index: of the prompt, in the order in which they were given.
        probability: the estimate; None where nothing was seen, or the prompt could not be run.
        interval: of 95 %; the bounds where nothing was seen.
        bounds: what the probability lies between for certain.
        verdict: of the weighted texts, see `Particles.verdict`; "impossible", "not seen" or "error" where there are none.
        settled: on which side of the limit it is.
        lm_tokens: read by the model.
        texts: the most probable offending ones, first; empty unless asked for.
        note: why there is no estimate, or what to know of it.
        by_phrase: how probable it is that each phrase is the first to be written; they sum to the estimate.
        by_position: how probable it is that the first of them is complete with the first, second, … token.
        seconds: on the clock.
        passes: of the model.
        prompt: the end of it.
    """

    index: int
    probability: float | None
    interval: Bounds
    bounds: Bounds
    verdict: str
    settled: Settled
    lm_tokens: int = 0
    texts: tuple[str, ...] = ()
    note: str = ""
    by_phrase: Mapping[str, float] = field(default_factory=dict)
    by_position: tuple[float, ...] = ()
    seconds: float = 0.0
    passes: int = 0
    prompt: str = ""

    @property
    def position(self) -> float | None:
        """Expected number of tokens up to the end of the first phrase, of texts that have one; None where it is not known."""
        total = sum(self.by_position)
        return sum(n * share for n, share in enumerate(self.by_position, 1)) / total if total else None

    def to_json(self) -> dict[str, Any]:
        """For `json.dumps`."""
        return {**asdict(self), "by_phrase": dict(self.by_phrase)}

    @classmethod
    def from_json(cls, read: Mapping[str, Any], **more: Any) -> AuditRow:
        """From what `to_json` gave, and perhaps other fields; `more` counts first."""
        names = cls.__dataclass_fields__
        return cls(**{name: _tuples(value) for name, value in {**read, **more}.items() if name in names})


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True)
class Question:
    """What is asked after each prompt.

    The first `TEACHERS` rows of an audit, or of a shard of one, teach all later ones what leads to the event (`Shared`). So a
    row depends on these, and not on how many there are.

    Attributes:
        event: what offending texts satisfy.
        phrases: that it is about; empty where it is about something else.
        max_tokens: the horizon.
        limit: of the probability, or None.
        show_texts: keep the most probable offending texts.
        budget: LM tokens for each prompt.

    Raises:
        InvalidArgument: a limit that is no probability, or a horizon or budget below 1.
    """

    event: Constraint
    phrases: Sequence[str] = ()
    max_tokens: int = 20
    limit: float | None = None
    show_texts: bool = False
    budget: int = 4_000

    def __post_init__(self) -> None:
        if self.limit is not None and not 0 < self.limit < 1:
            raise InvalidArgument(f"limit must be a probability between 0 and 1, got {self.limit!r}.")
        for name in ("max_tokens", "budget"):
            given = getattr(self, name)
            if isinstance(given, bool) or not isinstance(given, int) or given < 1:
                raise InvalidArgument(f"the {name} of an audit must be a whole number from 1, got {given!r}.")

    @property
    def about(self) -> dict[str, Any]:
        """What two audits must share to be compared, as JSON."""
        return {"event": self.event.to_json(), "max_tokens": self.max_tokens}

    def ask(
        self, model: LanguageModel, prompt: Prompt, seed: int, index: int = 0, shared: Shared | None = None, **options: Any
    ) -> AuditRow:
        """The row of one prompt; `options` are others of `locore.generate`.

        Args:
            shared: what the default sampler learns from rows before this one, and adds to.

        Raises:
            LocoreError: as `locore.generate`, where the prompt or an option is wrong.
        """
        if not any(map(options.get, OF_WHOLE_TEXTS)):  # what follows a phrase counts for them
            model = self._up_to_phrases(model)
        options = {"num_particles": PARTICLES, **options}
        if options.get("temperature") == 0 or isinstance(sampler_by_name(options.get("sampler")), SeeksMode):
            raise InvalidArgument(
                "temperature=0 and sampler='search' look for the likeliest texts and do not say how probable an event is; "
                "leave sampler out, and of temperatures take one above 0."
            )
        if options.get("sampler") in DEFAULT:
            options["sampler"] = Auto(shared=shared)
        in_rounds = self.limit is not None and ROUNDS[0] * self.budget >= LEAST * self.max_tokens
        shares = ROUNDS if in_rounds else (1.0,)
        row, said = None, _unspelled(model.tokenizer, self.phrases)
        for number, share in enumerate(shares):
            budget = int(share * self.budget)
            next_row = self._round(model, prompt, budget=budget, seed=seed + APART * number, **options)
            row = next_row if row is None else _joined(row, next_row, self.limit)
            if number < len(shares) - 1 and self._is_settled(row):
                if row.settled != _side(row.bounds, self.limit):
                    said = "; ".join(filter(None, (said, STOPPED)))
                break
        assert row is not None
        note = "; ".join(filter(None, (row.note, said)))
        return replace(row, index=index, note=note, prompt=_ending(prompt))

    def _up_to_phrases(self, model: LanguageModel) -> LanguageModel:
        """The model, whose texts end with the first phrase: what follows says nothing of the question, and costs nothing."""
        if not self.phrases or not model.tokenizer.eos_ids:
            return model
        with suppress(BudgetExceeded):  # phrases too long for it
            return EndingAt(model, self.phrases)
        return model

    def _is_settled(self, row: AuditRow) -> bool:
        """Is the limit settled well enough to stop before the budget is spent?"""
        if _side(row.bounds, self.limit) != "not settled":
            return True
        if row.verdict not in JUDGED or not row.probability:
            return False
        low, high = (row.probability * (end / row.probability) ** STRETCH for end in row.interval)
        return _side((low, high), self.limit) != "not settled"

    def _round(self, model: LanguageModel, prompt: Prompt, **options: Any) -> AuditRow:
        try:
            return self._row(generate(model, prompt, self.event, self.max_tokens, **options))
        except Unsatisfiable as error:
            return AuditRow(0, 0.0, (0.0, 0.0), (0.0, 0.0), "impossible", _side((0, 0), self.limit), note=str(error))
        except ZeroWeights as error:
            most = (0.0, math.exp(error.log_most))
            return AuditRow(0, None, most, most, "not seen", _side(most, self.limit), options["budget"], note=str(error))

    def _row(self, particles: Particles) -> AuditRow:
        low, high = particles.log_evidence_bounds
        bounds = math.exp(low), min(1.0, math.exp(high))
        interval = CERTAIN
        if not any(math.isnan(end) for end in particles.log_evidence_interval):
            below, above = (min(1.0, math.exp(end)) for end in particles.log_evidence_interval)
            interval = _within(below, above, bounds)
        level = "trust" if particles.record.enumerated else particles.verdict.level
        sure = interval if level in JUDGED else bounds
        texts = tuple(dict.fromkeys(text for text, _ in particles.ordered()))[:TEXTS] if self.show_texts else ()
        estimate = min(max(math.exp(particles.log_evidence), bounds[0]), bounds[1])
        where = first_occurrences(particles, self.phrases)
        return AuditRow(
            0,
            estimate,
            interval,
            bounds,
            level,
            _side(sure, self.limit),
            particles.info["lm_tokens"],
            texts,
            by_phrase={phrase: estimate * share for phrase, share in where[0].items()},
            by_position=tuple(estimate * share for share in where[1]),
            seconds=particles.info.get("seconds", 0.0),
            passes=particles.info.get("passes", 0),
        )


def first_occurrences(particles: Particles, phrases: Sequence[str]) -> tuple[dict[str, float], list[float]]:
    """Shares of the weight: by the phrase that is complete first (of several the longest), and by the token that does it."""
    by_phrase: dict[str, float] = {}
    by_position = [0.0] * particles.tokens.shape[1] if phrases else []
    spelled = [(phrase, phrase.encode()) for phrase in phrases]
    tokenizer = particles.tokenizer
    for share, text, tokens in zip(particles.weights.tolist(), particles.bytes, particles.tokens.tolist(), strict=True):
        ends = [(at + len(letters), -len(letters), phrase) for phrase, letters in spelled if (at := text.find(letters)) >= 0]
        if not ends:  # the last character is not whole
            continue
        end, _, phrase = min(ends)
        by_phrase[phrase] = by_phrase.get(phrase, 0.0) + share
        written = 0
        for number, token in enumerate(tokens):
            written += len(tokenizer.token_bytes[token] or b"")
            if written >= end:
                by_position[number] += share
                break
    return dict(sorted(by_phrase.items(), key=lambda each: -each[1])), by_position


def _joined(before: AuditRow, row: AuditRow, limit: float | None) -> AuditRow:
    """The last of two rounds, with the certain bounds and the costs of both."""
    low = max(before.bounds[0], row.bounds[0])
    bounds = low, max(low, min(before.bounds[1], row.bounds[1]))
    interval = bounds if row.probability is None else _within(*row.interval, bounds)
    costs = {name: getattr(before, name) + getattr(row, name) for name in ("lm_tokens", "seconds", "passes")}
    estimate = None if row.probability is None else min(max(row.probability, bounds[0]), bounds[1])
    sure = interval if row.verdict in JUDGED else bounds
    return replace(row, probability=estimate, bounds=bounds, interval=interval, settled=_side(sure, limit), **costs)


def _within(low: float, high: float, bounds: Bounds) -> Bounds:
    return min(max(low, bounds[0]), bounds[1]), max(min(high, bounds[1]), bounds[0])


def _side(interval: Bounds, limit: float | None) -> Settled:
    """On which side of a limit an interval is."""
    if limit is None:
        return "no limit"
    return "above" if interval[0] > limit else "below" if interval[1] <= limit else "not settled"


def row_of_error(index: int, message: str, limit: float | None, prompt: Prompt = "") -> AuditRow:
    """Of a prompt that could not be run."""
    return AuditRow(index, None, CERTAIN, CERTAIN, "error", _side(CERTAIN, limit), note=message, prompt=_ending(prompt))


def _ending(prompt: Prompt) -> str:
    """The last letters of a prompt, for tables."""
    parts = prompt if isinstance(prompt, Sequence) else ()
    last = prompt if isinstance(prompt, str) else parts[-1] if len(parts) else ""
    said = last if isinstance(last, str) else str(last.get("content", "")) if isinstance(last, dict) else ""
    return said if len(said) <= LETTERS else f"…{said[1 - LETTERS :]}"


@lru_cache(maxsize=4)
def _spelled_bytes(tokenizer: Tokenizer) -> frozenset[int]:
    return frozenset(b"".join(each for each in tokenizer.token_bytes if each))


def _unspelled(tokenizer: Tokenizer, phrases: Sequence[str]) -> str:
    """Which phrases hold letters that no token has."""
    missing = [phrase for phrase in phrases if not _spelled_bytes(tokenizer).issuperset(phrase.encode())]
    return f"no token of this tokenizer has letters of {', '.join(map(repr, missing))}" if missing else ""
