"""How often a call of a function is obeyed: python -m locore_lab.micro.tools [--calls 1000] [--json FILE]

OpenAI's own client asks a server for calls of functions drawn by a seed, with arguments of every kind. A call is obeyed
if its name is one that was offered (the one that was demanded), and `jsonschema` finds its arguments valid. Answers to several
calls at once count one by one.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
from openai import APIError, OpenAI

from locore_lab.micro.machine import machine
from locore_lab.micro.serving import Server

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2", help="one with a chat template")
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--particles", type=int, help="of each request; by default those of effort low")
    parser.add_argument("--first", type=int, default=0, help="number of the first request")
    parser.add_argument("--json", type=Path, help="written after each round of requests")
    options = parser.parse_args()
    server, start = Server(options.model, TIMEOUT), time.perf_counter()
    client = OpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key="none", timeout=TIMEOUT, max_retries=0)
    found: dict[str, Counter[str]] = {choice: Counter() for choice in CHOICES}
    results = {"machine": machine(), "model": options.model, "first": options.first, "particles": options.particles}
    number = options.first
    try:
        with ThreadPoolExecutor(CLIENTS) as pool:
            while sum(counter.total() for counter in found.values()) < options.calls:
                some = [asked(server.model, number + more, options.particles) for more in range(ROUND)]
                number += ROUND
                for one, verdicts in zip(some, pool.map(lambda one: obeyed(client, one), some), strict=True):
                    found[one.choice].update(verdicts)
                results["requests"] = number - options.first
                results["calls"] = {choice: dict(counter) for choice, counter in found.items()}
                results["seconds"] = time.perf_counter() - start
                print(json.dumps(results["calls"]), f"{results['requests']} requests, {results['seconds']:.0f} s", flush=True)
                if options.json:
                    options.json.write_text(json.dumps(results, indent=1) + "\n")
    finally:
        server.process.terminate()


if __name__ == "__main__":
    main()
