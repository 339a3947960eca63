"""One thing that a user asks: a prompt, a constraint, a length, and the features by which the answer is judged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import locore
from locore import Constraint, json_schema
from locore.circuits import Circuit
from locore.kernel.chat import Prompt
from locore.kernel.request import Ending
from locore.models import Counted, LanguageModel, Tempered
from locore.stopping import StopWhenComplete
from locore_lab.tasks.features import Feature

Family = Literal["keywords", "ban", "ending", "infilling", "count", "json", "format", "choice"]
MODEL = "smollm2"


@dataclass(frozen=True)
class Problem:
    """A posterior p(y | α) of a real model.

    Attributes:
        name: unique; truths and results are kept under it.
        family: what kind of wish it is.
        prompt: text, or what the user says in a chat if `chat`.
        constraint: α.
        length: n, tokens.
        features: what its texts are judged by.
        chat: is the prompt the message of a user?
        stop: as in `generate`.
        model: as `locore.load` knows it.
        temperature: of the law that is conditioned.
    """

    name: str
    family: Family
    prompt: str
    constraint: Constraint
    length: int
    features: tuple[Feature, ...]
    chat: bool = False
    stop: Ending = "complete"
    model: str = MODEL
    temperature: float = 1.0

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
