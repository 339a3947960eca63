"""How often a call of a function is obeyed.

OpenAI's own client asks a server for calls of functions drawn by a seed, with arguments of every kind. A call is obeyed
if its name is one that was offered (the one that was demanded), and `jsonschema` finds its arguments valid. Answers to several
calls at once count one by one.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import jsonschema
from openai import APIError, OpenAI

from locore_lab.bench.serving import Server
from locore_lab.harness import Case, Row, measurement

NAMES = ("get_weather", "book", "search", "set_alarm", "translate", "pay", "route", "play")
ASKED = ("What is the weather in Rome?", "Wake me at seven.", "Find a table for four.", "Pay Ann ten euros.", "Play something.")
CHOICES = ("required", "named", "parallel")
TOKENS = 120
CLIENTS = 4
ROUND = 24  # requests
TIMEOUT = 600  # seconds


@dataclass(frozen=True)
class Asked:
    """What is asked for, and which schemas of arguments may come back, by name."""

    choice: str
    options: dict[str, Any]
    offered: dict[str, Any]


def value(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    """A schema of an argument."""
    kinds: list[dict[str, Any]] = [
        {"enum": rng.sample(["red", "green", "blue", 1, 2.5, None, True], 3)},
        {"type": "integer", "minimum": rng.randint(-50, 0), "maximum": rng.randint(1, 5000)},
        {"type": "number", "exclusiveMinimum": 0, "maximum": rng.randint(1, 9), "multipleOf": 0.5},
        {"type": "string", "maxLength": rng.randint(1, 20)},
        {"type": "string", "pattern": rng.choice([r"^[A-Z]{2}\d{3}$", r"^(?:mon|tues|fri)day$", r"^\d\d:\d\d$"])},
        {"type": "string", "format": rng.choice(["date", "ipv4", "uuid"])},
        {"type": ["boolean", "null"]},
    ]
    if depth < 2:
        kinds += [
            {"type": "array", "items": value(rng, depth + 1), "minItems": 1, "maxItems": 2},
            arguments(rng, depth + 1),
            {"oneOf": [{"type": "integer", "minimum": 0, "maximum": 99}, {"const": "none"}]},
        ]
    return rng.choice(kinds)


def arguments(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    """A schema of an object."""
    names = rng.sample("abcdefgh", rng.randint(1, 3))
    required = names[: rng.randint(0, len(names))]
    properties = {name: value(rng, depth) for name in names}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def asked(model: str, number: int, particles: int | None = None) -> Asked:
    """The request of a number."""
    rng = random.Random(number)
    offered = {name: arguments(rng) for name in rng.sample(NAMES, rng.randint(1, 4))}
    choice = CHOICES[number % len(CHOICES)]
    tools = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in offered.items()]
    options = {
        "model": model,
        "messages": [{"role": "user", "content": rng.choice(ASKED)}],
        "tools": tools,
        "tool_choice": "required",
        "parallel_tool_calls": choice == "parallel",
        "max_tokens": TOKENS * (2 if choice == "parallel" else 1),
        "seed": number,
        "extra_body": {"effort": "low", "num_particles": particles},
    }
    if choice == "named":
        name = rng.choice(list(offered))
        offered = {name: offered[name]}
        options["tool_choice"] = {"type": "function", "function": {"name": name}}
    return Asked(choice, options, offered)


def obeyed(client: OpenAI, one: Asked) -> list[str]:
    """For each call of one answer "obeyed" or what is wrong with it."""
    try:
        answer = client.chat.completions.create(**one.options)
    except APIError as error:
        return [f"no answer: {type(error).__name__} {str(error.body)[:200]}"]
    calls = answer.choices[0].message.tool_calls or []
    return [verdict(call.function, one.offered) for call in calls] or ["no call"]  # type: ignore[union-attr]


def verdict(function: Any, offered: dict[str, Any]) -> str:
    """Of one call."""
    if function.name not in offered:
        return f"not offered: {function.name}"
    try:
        jsonschema.Draft202012Validator(offered[function.name]).validate(json.loads(function.arguments))
    except (ValueError, jsonschema.ValidationError) as error:
        return f"not valid: {str(error)[:200]}"
    return "obeyed"


def measured(server: Server, first: int, particles: int | None) -> Row:
    """One round of requests."""
    client = OpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key="none", timeout=TIMEOUT, max_retries=0)
    start, some = time.perf_counter(), [asked(server.model, first + more, particles) for more in range(ROUND)]
    found: dict[str, Counter[str]] = {choice: Counter() for choice in CHOICES}
    with ThreadPoolExecutor(CLIENTS) as pool:
        for one, verdicts in zip(some, pool.map(lambda one: obeyed(client, one), some), strict=True):
            found[one.choice].update(verdicts)
    calls, right = (sum(each) for each in zip(*((c.total(), c["obeyed"]) for c in found.values()), strict=True))
    return {"calls": calls, "obeyed": right, "found": found, "seconds": time.perf_counter() - start}


@measurement(
    "first request | calls | obeyed | s",
    "{first} | {calls} | {obeyed} | {seconds:.0f}",
    quick={"requests": ROUND},
    after=lambda rows: f"{sum(row['obeyed'] for row in rows):,} of {sum(row['calls'] for row in rows):,} calls were obeyed",
)
def run(
    model: Annotated[str, "one with a chat template"] = "smollm2",
    requests: int = 360,
    particles: Annotated[int | None, "of each request; by default those of effort low"] = None,
    first: Annotated[int, "number of the first request"] = 0,
) -> Iterator[Case]:
    server = Server(model, TIMEOUT)
    try:
        for number in range(first, first + requests, ROUND):
            yield {"first": number}, partial(measured, server, number, particles)
    finally:
        server.process.terminate()
