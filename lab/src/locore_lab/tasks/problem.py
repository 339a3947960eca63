"""One thing that a user asks: a prompt, a constraint, a length, and the features by which the answer is judged."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import locore
from locore import Constraint, json_schema
from locore.circuits import Circuit
from locore.kernel.chat import Prompt
from locore.kernel.request import Ending
from locore.models import Counted, LanguageModel, Tempered
from locore.stopping import StopWhenComplete

OTHER = "(other)"
NOTHING = "(nothing)"  # stands for a run that returned nothing
LONGEST = 40  # characters of a value

Law = dict[str, float]


@dataclass(frozen=True)
class Feature:
    """A property of a finished text."""

    name: str  # says what it is; it belongs to what identifies a problem
    of: Callable[[str], str] = field(compare=False, repr=False)  # text -> value

    def __call__(self, text: str) -> str:
        """The value, short enough for a table."""
        return self.of(text)[:LONGEST]


def first_word() -> Feature:
    """The first run of characters that are no whitespace."""
    return Feature("first word", lambda text: (text.split() or [""])[0])


def words() -> Feature:
    """How many words."""
    return Feature("number of words", lambda text: str(len(text.split())))


def whole() -> Feature:
    """The text itself."""
    return Feature("text", lambda text: text)


def before(ending: str) -> Feature:
    """The word before an ending."""
    return Feature(f"word before {ending!r}", lambda text: (text.removesuffix(ending).split() or [""])[-1])


def last_word() -> Feature:
    """The last run of characters that are no whitespace."""
    return Feature("last word", lambda text: (text.split() or [""])[-1])


def after(beginning: str) -> Feature:
    """The word after a beginning."""
    return Feature(f"word after {beginning!r}", lambda text: (text.removeprefix(beginning).split() or [""])[0])


def position_of(phrase: str) -> Feature:
    """How many words stand before a phrase."""
    return Feature(f"words before {phrase!r}", lambda text: str(len(text.partition(phrase)[0].split())))


def written(phrase: str) -> Feature:
    """The word in which a phrase occurs first, with what is attached to it: its inflected form, its punctuation."""
    bare = phrase.strip()

    def form(text: str) -> str:
        return next((word for word in text.split() if bare in word), "")

    return Feature(f"form of {bare!r}", form)


def value(name: str) -> Feature:
    """A field of a JSON object, as JSON."""

    def read(text: str) -> str:
        try:
            return json.dumps(json.loads(text)[name], ensure_ascii=False)
        except (ValueError, KeyError, TypeError):
            return "(none)"

    return Feature(f"field {name!r}", read)


def group(name: str, pattern: str) -> Feature:
    """The first group of a regular expression, searched in the text."""

    def read(text: str) -> str:
        found = re.search(pattern, text)
        return found.group(1) if found else "(none)"

    return Feature(name, read)


def laws_of(features: tuple[Feature, ...], texts: Mapping[str, float]) -> dict[str, Law]:
    """The law of each feature, from a law of texts."""
    result: dict[str, Law] = {}
    for feature in features:
        law: Law = {}
        for text, probability in texts.items():
            seen = feature(text)
            law[seen] = law.get(seen, 0.0) + probability
        result[feature.name] = law
    return result


def mixed(parts: Iterable[tuple[Law, float]]) -> Law:
    """Laws in these shares."""
    total: Law = {}
    for law, share in parts:
        for value, probability in law.items():
            total[value] = total.get(value, 0.0) + share * probability
    return total


def averaged(laws: Sequence[Law]) -> Law:
    """The law of one draw of a run that is chosen by chance."""
    return mixed((law, 1 / len(laws)) for law in laws)


def shortened(law: Law, most: int) -> Law:
    """The likeliest values; the others together are `OTHER`."""
    ranked = sorted(law.items(), key=lambda item: (-item[1], item[0]))
    kept = dict(item for item in ranked[:most] if item[0] != OTHER)
    rest = sum(law.values()) - sum(kept.values())
    return kept | ({OTHER: rest} if rest > 1e-9 else {})


def distance(law: Law, truth: Law) -> float:
    """Total variation on the values that the truth names; all others are one value."""
    named = [v for v in truth if v != OTHER]
    gaps = [law.get(v, 0.0) - truth[v] for v in named]
    other = (sum(law.values()) - sum(law.get(v, 0.0) for v in named)) - truth.get(OTHER, 0.0)
    return 0.5 * (sum(map(abs, gaps)) + abs(other))


def mean_distance(laws: dict[str, Law], truth: dict[str, Law]) -> float:
    """Total variation, averaged over the features."""
    return sum(distance(laws.get(name, {NOTHING: 1.0}), truth[name]) for name in truth) / len(truth)


Family = Literal["keywords", "ban", "ending", "infilling", "count", "json", "format", "choice"]
MODEL = "smollm2"


@dataclass(frozen=True)
class Problem:
    """A posterior p(y | α) of a real model."""

    name: str  # unique; truths and results are kept under it
    family: Family  # what kind of wish it is
    prompt: str  # text, or what the user says in a chat if `chat`
    constraint: Constraint  # α
    length: int  # n, tokens
    features: tuple[Feature, ...]  # what its texts are judged by
    chat: bool = False  # is the prompt the message of a user?
    stop: Ending = "complete"  # as in `generate`
    model: str = MODEL  # as `locore.load` knows it
    temperature: float = 1.0  # of the law that is conditioned

    def to_json(self) -> dict[str, Any]:
        """What identifies the problem."""
        return {
            **({} if self.temperature == 1 else {"temperature": self.temperature}),
            "model": self.model,
            "chat": self.chat,
            "prompt": self.prompt,
            "constraint": self.constraint.to_json(),
            "length": self.length,
            "stop": self.stop,
            "features": [feature.name for feature in self.features],
        }

    def key(self) -> str:
        """A fingerprint: what was stored for another problem of this name is not used."""
        text = json.dumps(self.to_json(), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def written_as_models_do(schema: Mapping[str, Any]) -> Constraint:
    """A JSON object of these properties and no others, with whatever whitespace and in whatever order a model likes."""
    spelling: dict[str, Any] = dict.fromkeys(("whitespace", "order", "escapes", "integers"), "any")  # all that JSON allows
    return json_schema({**schema, "additionalProperties": False}, **spelling)


@dataclass(frozen=True, eq=False)
class Task:
    """A problem made ready: the model has read its prompt, the constraint is compiled."""

    problem: Problem
    model: LanguageModel
    circuit: Circuit

    @classmethod
    def of(cls, problem: Problem, model: LanguageModel) -> Task:
        """Prompt the model and compile."""
        circuit = locore.compile(problem.constraint, model, problem.length)
        law = model if problem.temperature == 1 else Tempered(model, problem.temperature)
        return cls(problem, law.prompted(prompt_of(problem)), circuit)

    def target(self, counted: Counted) -> LanguageModel:
        """The law that is conditioned; `counted` wraps `model`."""
        return StopWhenComplete(counted, self.circuit) if self.problem.stop == "complete" else counted


def prompt_of(problem: Problem) -> Prompt:
    """What the model reads first."""
    if not problem.chat:
        return problem.prompt
    return [{"role": "user", "content": problem.prompt}]
