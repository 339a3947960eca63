"""From a request, checked in its form, to texts: what a worker computes.

Which requests may share a run. Answers must stay independent draws of p(y | constraint), so requests that ask the same share
- the exact posterior, if the sampler has enumerated it: it is no random quantity, and each request draws from it by itself;
- one run of independent particles, of which each request gets its own, as many as it would have had alone.
Everything else runs by itself: particles that were resampled, merged or kept without replacement depend on each other.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import replace
from typing import Any

import torch

import locore
from locore.circuits import Circuit
from locore.ending import is_end, live_lengths
from locore.errors import LocoreError, ZeroWeights
from locore.evidence import Particles
from locore.limits import Limits
from locore.models import LanguageModel, Tempered, TopP, prompt_ids
from locore.samplers import BY_NAME
from locore.stopping import is_finished

INDEPENDENT = ("masked",)  # every particle by itself, a fixed number of them, none merged, and zeros counted in `drawn`
Message = dict[str, Any]


class Stopped(BaseException):
    """Nobody waits for the result any more. No `Exception`, so that nothing on the way takes it for an error."""


class Computer:
    """A model, and what requests ask of it."""

    def __init__(self, model: LanguageModel, limits: Limits) -> None:
        self.model = model
        self.limits = limits

    def facts(self) -> Message:
        """What the server tells of the model."""
        tokenizer = self.model.tokenizer
        fingerprint = self.model.fingerprint() or tokenizer.fingerprint()
        return {"fingerprint": fingerprint[:16], "vocab_size": tokenizer.vocab_size, "samplers": sorted(BY_NAME)}

    def results(self, jobs: list[Message]) -> Group:
        """Of requests that differ in `id`, `n` and `seed` only; computed when they are asked for."""
        return Group(self, jobs)

    def model_of(self, job: Message) -> LanguageModel:
        """The model that a request asks for, before any prompt."""
        model = self.model
        if job["temperature"] != 1:
            model = Tempered(model, job["temperature"])
        if job["top_p"] != 1:
            model = TopP(model, job["top_p"])
        return model

    def particles(self, job: Message, num_particles: int) -> tuple[Particles, int]:
        """Weighted texts for a request, and the number of tokens of its prompt."""
        constraint = locore.from_json(job["constraint"])
        model, prompt = self.model_of(job), prompt_ids(self.model.tokenizer, job["prompt"])
        options = {name: job[name] for name in ("sampler", "budget", "seed", "canonical")}
        particles = locore.generate(
            model,
            prompt,
            constraint,
            max_new_tokens=job["max_tokens"],
            min_new_tokens=job["min_tokens"],
            num_particles=num_particles,
            stop=job["ending"],
            limits=self.limits,
            **options,
        )
        return particles, len(prompt)

    def circuit(self, job: Message) -> Circuit:
        """Of the constraint of a request. What takes long to compile was kept when its texts were sampled."""
        constraint = locore.from_json(job["constraint"])
        return locore.compile(constraint, self.model, job["max_tokens"], min_length=job["min_tokens"], limits=self.limits)

    def answer(self, particles: Particles, prompt_tokens: int, job: Message, shared: int) -> Message:
        """Texts drawn in proportion to the weights, and what they are worth."""
        seed = particles.run.seed
        # Another stream of random numbers than that of the sampler, and as repeatable.
        drawn = particles.resample(job["n"], seed=None if seed is None else seed + 1)
        choices = [
            {"text": text, "tokens": tokens, "finish": "stop" if finished else "length"}
            for text, tokens, finished in zip(drawn.texts, *self._lengths(drawn, job), strict=True)
        ]
        return {"choices": choices, "prompt_tokens": prompt_tokens, "locore": diagnostics(particles, job, shared)}

    def _lengths(self, drawn: Particles, job: Message) -> tuple[list[int], list[bool]]:
        """How many tokens come before the end, and whether nothing was cut off."""
        ends = drawn.tokenizer.eos_ids
        ended = is_end(drawn.tokens, ends).any(-1)
        lengths = (live_lengths(drawn.tokens, ends) - ended.long()).tolist()
        finished = ended if bool(ended.all()) else is_finished(self.circuit(job), drawn.tokens, ends)
        return lengths, finished.tolist()


class Group:
    """Requests that ask the same."""

    def __init__(self, computer: Computer, jobs: list[Message]) -> None:
        self._computer = computer
        self._jobs = {job["id"]: job for job in jobs}
        self._exact: tuple[Particles, int] | None = None
        self._parts: dict[int, tuple[Particles, int] | LocoreError] = {}

    def of(self, number: int) -> Message:
        """The result of one request.

        Raises:
            LocoreError: as `locore.generate`.
        """
        job = self._jobs[number]
        shared = 1
        if self._exact is not None:
            particles, prompt_tokens = self._exact
            seed = secrets.randbelow(2**31) if job["seed"] is None else job["seed"]
            particles = replace(particles, run=replace(particles.run, seed=seed))
            shared = len(self._jobs)
        elif len(self._jobs) > 1 and job["sampler"] in INDEPENDENT:
            particles, prompt_tokens = self._part(number)
            shared = len(self._jobs)
        else:
            particles, prompt_tokens = self._computer.particles(job, job["num_particles"])
            if is_exact_posterior(particles):
                self._exact = particles, prompt_tokens
        return self._computer.answer(particles, prompt_tokens, job, shared)

    def _part(self, number: int) -> tuple[Particles, int]:
        """The particles of one request among those of one run for all."""
        if not self._parts:
            job = self._jobs[number]
            whole, prompt_tokens = self._computer.particles(job, job["num_particles"] * len(self._jobs))
            for other, part in zip(self._jobs, split(whole, len(self._jobs)), strict=True):
                self._parts[other] = (part, prompt_tokens) if isinstance(part, Particles) else part
        found = self._parts[number]
        if isinstance(found, LocoreError):
            raise found
        return found


def is_exact_posterior(particles: Particles) -> bool:
    """Are these all sequences that satisfy the constraint, with their exact probabilities?"""
    return particles.record.enumerated and particles.record.sequences == len(particles)


def split(particles: Particles, parts: int, generator: torch.Generator | None = None) -> list[Particles | ZeroWeights]:
    """Independent particles dealt out in equal parts; those of weight zero, which are not kept, are dealt out too.

    Independent draws have no order, so which of the `drawn` places the kept ones had is drawn anew; each part is then
    distributed as a run of its own.
    """
    drawn, kept = particles.drawn, len(particles)
    size = drawn // parts
    place = torch.randperm(drawn, generator=generator)[:kept]
    found: list[Particles | ZeroWeights] = []
    for part in range(parts):
        mine = (place // size == part).nonzero()[:, 0]
        if not len(mine):
            found.append(ZeroWeights(f"none of {size} particles has a positive weight; use more particles."))
            continue
        zeros = {"weight zero": 1 - len(mine) / size} if len(mine) < size else {}
        # `keep_positive` scaled by kept/drawn of the whole; now it is that of the part.
        scale = math.log(len(mine) / size) - math.log(kept / drawn)
        scores = None if particles.token_scores is None else particles.token_scores[mine]
        found.append(
            replace(
                particles,
                tokens=particles.tokens[mine],
                log_weights=particles.log_weights[mine] + scale,
                token_scores=scores,
                record=replace(particles.record, drawn=size, zeros=zeros),
                run=replace(particles.run, seed=None, lm_tokens=(particles.run.lm_tokens or 0) // parts),
            )
        )
    return found


def diagnostics(particles: Particles, job: Message, shared: int) -> Message:
    """The `locore` object of an answer."""
    plain = particles.to_json()
    names = ("log_evidence", "log_evidence_error", "log_evidence_interval", "log_evidence_bounds", "ess", "pareto_k")
    found = {name: plain[name] for name in names}
    info = plain["info"]
    found |= {
        "verdict": plain["verdict"],
        "report": plain["report"],
        "guarantee": info["guarantee"],
        "sampler": info.get("chosen", info["sampler"]),
        "num_particles": len(particles),
        "distinct_texts": plain["distinct_texts"],
        "zero_weights": plain["zero_weights"],
        "seed": particles.run.seed,
        "lm_tokens": info["lm_tokens"],
        "compile_seconds": particles.run.compile_seconds,
        "seconds": info["seconds"],
        "shared_by": shared,
    }
    if job.get("return_particles"):
        found["particles"] = [
            {"text": text, "log_weight": weight} for text, weight in zip(plain["texts"], plain["log_weights"], strict=True)
        ]
    return found
