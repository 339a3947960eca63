"""Problems written down: at least one of each family behind a plain prompt and one in a chat."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from locore import Constraint, ban, choice, contains, ends_with, regex, sentence_count, starts_with, word_count
from locore.kernel.errors import InvalidArgument
from locore_lab.tasks.problem import (
    Family,
    Feature,
    Problem,
    after,
    before,
    first_word,
    group,
    last_word,
    position_of,
    value,
    whole,
    words,
    written,
    written_as_models_do,
)

WARM = 0.7  # a temperature that people use
LILY = "Once upon a time, there was a little girl named Lily."
REVIEW = "Review: The food was cold, and the waiter forgot us twice.\nSentiment:"
# A mild list; what is banned in earnest lies in shared word lists, not here.
RUDE = [
    "hate", "stupid", "idiot", "kill", "damn", "hell", "ugly", "dumb", "crap", "suck", "fool", "trash", "awful", "die", "dead"
]  # fmt: skip
COLOURS = ["red", "blue", "green", "yellow", "purple", "orange", "black"]
CAPITAL = {
    "type": "object",
    "properties": {"capital": {"type": "string", "maxLength": 20}, "population": {"type": "integer"}},
    "required": ["capital", "population"],
}
BOOK = {
    "type": "object",
    "properties": {"title": {"type": "string", "maxLength": 20}, "year": {"type": "integer"}},
    "required": ["title", "year"],
}

DOG = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}


FAMILIES: dict[str, Family] = {"keyword": "keywords", "infill": "infilling"}  # by how names begin, if otherwise


def _asked(name: str, prompt: str, constraint: Constraint, length: int, *features: Feature, chat: bool = True) -> Problem:
    start = name.split("-")[0]
    return Problem(name, FAMILIES.get(start, start), prompt, constraint, length, features, chat)  # type: ignore[arg-type]


_plain = partial(_asked, chat=False)


def at_temperature(temperature: float) -> list[Problem]:
    """The same at another temperature; truths come with the package for `WARM`."""
    if not 0 < temperature < math.inf:
        raise InvalidArgument(f"--temperature must be a positive number, got {temperature:g}.")
    return [
        replace(problem, name=f"{problem.name}-at-{temperature:g}", temperature=temperature) for problem in written_problems()
    ]


def written_problems() -> list[Problem]:
    """In the order of the families."""
    return [
        _plain("keyword-dog", LILY, contains(" dog"), 12, first_word(), position_of(" dog"), written(" dog")),
        _asked("keyword-ship", "Write one sentence about the sea.", contains("ship") & ban(["ocean", "water"]), 24,
               first_word(), written("ship"), words()),
        _asked("keyword-book", "Suggest a hobby for a rainy day in one sentence.", contains(" book"), 20,
               first_word(), position_of(" book"), written(" book")),
        _plain("ban-rude", "The protest, which was attended by", ban(RUDE, ignore_case=True), 20, first_word(), words()),
        _asked("ban-letter", "Describe a cat in a few words.", ban(["e", "E"]), 12, first_word(), words()),
        _plain("ending-happy", "The weather is", ends_with(" happy."), 8, first_word(), before(" happy."), words()),
        _asked("ending-soon", "Write one sentence to end a letter to a friend.", ends_with(" soon."), 20,
               first_word(), before(" soon."), words()),
        _asked("ending-question", "Give me one tip for learning the guitar.", ends_with("?"), 20, first_word(), words()),
        _plain("infill-home", "My grandfather worked on a farm.", starts_with(" Every evening") & ends_with(" home."), 14,
               after(" Every evening"), before(" home."), words()),
        _asked("infill-robot", "Tell me about a robot in one sentence.", starts_with("The robot") & ends_with(" people."), 20,
               after("The robot"), before(" people."), words()),
        _plain("count-two-sentences", "The library on the corner is closed this week.", sentence_count(2, 2) & ends_with("."),
               40, first_word(), words()),
        _asked("count-six-words", "Describe the ocean in exactly six words.", word_count(6, 6) & ends_with("."), 12,
               first_word(), last_word()),
        _plain("json-book", 'A classic novel of the 19th century, as JSON with "title" and "year":\n',
               written_as_models_do(BOOK), 28, value("title"), value("year")),
        _asked("json-capital", 'What is the capital of France, and how many people live there? Answer in JSON with '
               '"capital" and "population".', written_as_models_do(CAPITAL), 28, value("capital"), value("population")),
        _asked("json-dog", 'Invent a dog. Answer in JSON with "name" and "age".', written_as_models_do(DOG), 28,
               value("name"), value("age")),
        _plain("format-date", "The treaty was signed on (YYYY-MM-DD):",
               regex(r" (1[5-9]|20)\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"), 12,
               group("century", r"(\d\d)\d\d-"), group("month", r"-(\d\d)-"), group("day", r"-\d\d-(\d\d)")),
        _asked("format-reason", "Is it a good idea to drink coffee at night? Answer yes or no, and give a reason.",
               regex(r"(Yes|No), because [^.\n]+\."), 32,
               group("answer", "^(Yes|No)"), group("first word of the reason", r"because (\S+)"), words()),
        _plain("choice-sentiment", REVIEW, choice([" positive", " negative", " neutral", " mixed", " angry"]), 6, whole()),
        _asked("choice-colour", "What is the best colour for a kitchen? Answer with one word.",
               choice([colour.capitalize() for colour in COLOURS]), 6, whole()),
    ]  # fmt: skip
