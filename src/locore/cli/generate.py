"""`locore generate`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

import locore
from locore.cli.inputs import (
    MODEL_HELP,
    Budget,
    CanonicalMode,
    LimitList,
    MaxNewTokens,
    MinNewTokens,
    NumParticles,
    SamplerName,
    StopMode,
    read_constraint,
    read_limits,
    read_prompt,
)
from locore.cli.show import show_draws, show_particles, working
from locore.request import Request, help_of


def generate(
    prompt: Annotated[str, typer.Option(help="Text before the continuation; with --chat a message, or @FILE with messages.")],
    constraint: Annotated[str, typer.Option(metavar="JSON|@FILE", help="What the continuation must satisfy; @- reads stdin.")],
    model: Annotated[str, typer.Option(help=f"{MODEL_HELP} Or an engine.")] = "tiny",
    chat: Annotated[bool, typer.Option("--chat", help="The prompt is a message; the model's chat template writes it.")] = False,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="With --chat: a message of the system before it.")] = None,
    max_new_tokens: MaxNewTokens = Request.max_new_tokens,
    min_new_tokens: MinNewTokens = Request.min_new_tokens,
    num_particles: NumParticles = Request.num_particles,
    sampler: SamplerName = None,
    seed: Annotated[int | None, typer.Option(help=help_of("seed"))] = None,
    budget: Budget = None,
    canonical: CanonicalMode = None,
    stop: StopMode = None,
    limit: LimitList = None,
    resample: Annotated[int | None, typer.Option(metavar="N", help="Return N equally probable draws instead.")] = None,
    full: Annotated[bool, typer.Option("--full", help="The whole report: bounds, cost, warnings.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print texts, tokens, weights and diagnostics as JSON.")] = False,
) -> None:
    """Sample continuations of a prompt from p(text | constraint).

    The constraint is JSON, such as '{"type": "ends_with", "text": " happy."}'.

    A chat: --chat --prompt "Write one sentence about the sea.", or --chat --prompt @messages.json with a list such as
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]. An answer that the last message
    begins (role "assistant") goes on from there.
    """
    asked, parsed = read_prompt(prompt, chat, system), read_constraint(constraint)
    options: dict[str, Any] = {
        "canonical": canonical,
        "stop": stop,
        "limits": read_limits(limit or []),
    }  # checked by `generate`, like all the rest
    with working("sampling"):
        particles = locore.generate(
            model, asked, parsed, max_new_tokens, min_new_tokens, num_particles, sampler, budget, seed, **options
        )
    if resample is not None:
        # Another stream of random numbers than that of the sampler, and as repeatable.
        particles = particles.resample(resample, seed=particles.info["seed"] + 1)
    if as_json:
        print(json.dumps(particles.to_json(), ensure_ascii=False, allow_nan=False))
    else:
        (show_particles if resample is None else show_draws)(particles, full)
        print(f"Repeat this run with --seed {particles.info['seed']}")
