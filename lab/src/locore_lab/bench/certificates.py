"""The most probable valid text: when is it proved, and how often does a beam of eight miss it?

Labels, formats and JSON of the problems of `locore bench tasks`, and of two more drawn sets. Of each: LM tokens and CPU seconds
until no unread prefix is likelier than the best text found, and log p of that text; beside it the beam search of transformers,
which may only take tokens that the constraint allows, ends a text for free where it is complete, and ranks by log p without a
penalty for length; of its LM tokens those count behind which there is a choice. The texts of both are read again by the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

import locore
from locore.kernel.numerics import NEG_INF
from locore.models import Counted, HuggingFaceModel, LanguageModel, prompt_ids
from locore.stopping import StopWhenComplete
from locore_lab.harness import Case, Row, measurement
from locore_lab.shared import timed
from locore_lab.tasks.drawn import drawn_problems
from locore_lab.tasks.problem import Problem, Task, prompt_of
from locore_lab.tasks.written import written_problems

FAMILIES = ("choice", "format", "json")
SAME = 1e-3  # nats that rounding in another batch makes


def problems(temperature: float) -> list[Problem]:
    """Each once."""
    every = [*written_problems(), *(problem for seed in range(3) for problem in drawn_problems(seed))]
    once = {problem.key(): problem for problem in reversed(every) if problem.family in FAMILIES}
    return [replace(problem, temperature=temperature) for problem in reversed(once.values())]


class Allowed(LogitsProcessor):
    """Log-probabilities of the next token under the law that is searched; −inf of what the constraint does not allow."""

    def __init__(self, task: Task, prompt: int) -> None:
        self._ends, self._prompt = StopWhenComplete(task.model, task.circuit), prompt
        self._temperature = task.problem.temperature
        self.lm_tokens = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Float[batch, vocab], whose rows need not sum to 1."""
        tokens, reader = input_ids[:, self._prompt :], self._ends.reader
        states = reader.read(tokens)
        allowed = reader.allowed_tokens(tokens.shape[1], states)
        rows = (scores / self._temperature).log_softmax(-1).masked_fill(~allowed, NEG_INF)
        if tokens.shape[1]:
            self.lm_tokens += int((allowed.sum(-1) > 1).sum())
        return self._ends.changed(rows, tokens, states)


def by_beams(model: LanguageModel, task: Task, beams: int) -> tuple[Tensor, int]:
    """Long[1, length], the best text of transformers' beam search, and LM tokens."""
    assert isinstance(model, HuggingFaceModel)
    problem, tokenizer = task.problem, model.tokenizer
    ids = torch.tensor([prompt_ids(tokenizer, prompt_of(problem))])
    allowed = Allowed(task, ids.shape[1])
    found: Any = model.causal.module.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=problem.length,
        num_beams=beams,
        do_sample=False,
        length_penalty=0.0,
        early_stopping=False,
        logits_processor=LogitsProcessorList([allowed]),
        eos_token_id=list(tokenizer.eos_ids),
        pad_token_id=tokenizer.eos_ids[0],
        return_dict_in_generate=True,
    )
    tokens = found.sequences[:, ids.shape[1] :]
    missing = problem.length - tokens.shape[1]
    return torch.nn.functional.pad(tokens, (0, missing), value=tokenizer.eos_ids[0]), allowed.lm_tokens


def log_p(task: Task, tokens: Tensor) -> float:
    """Of one sequence by the law that is searched; −inf if it does not satisfy the constraint."""
    if not task.problem.constraint.bind(task.model.tokenizer).evaluate(tokens[0].tolist(), task.model.tokenizer):
        return NEG_INF
    law = task.target(Counted(task.model))
    return float(law.score(tokens)[0])


def measured(problem: Problem, budget: int, beams: int) -> Row:
    """One problem, by both."""
    model = locore.load(problem.model)
    task = Task.of(problem, model)
    call = (model, prompt_of(problem), problem.constraint, problem.length)
    options = {"temperature": problem.temperature, "sampler": "search", "num_particles": 1, "budget": budget, "seed": 0}
    p, seconds = timed(lambda: locore.generate(*call, **options))
    (tokens, spent), beam_seconds = timed(lambda: by_beams(model, task, beams))
    ours, theirs = log_p(task, p.tokens[:1]), log_p(task, tokens)
    mode = p.record.mode
    assert mode is not None
    return {
        "family": problem.family,
        "length": problem.length,
        "proven": mode.is_proven,
        "log_p": ours,
        "nats_open": max(0.0, mode.log_unread - mode.log_found),
        "lm_tokens": p.info["lm_tokens"],
        "passes": p.info["passes"],
        "seconds": seconds,
        "text": p.best,
        "beam_log_p": theirs,
        "beam_lm_tokens": spent,
        "beam_seconds": beam_seconds,
        "beam_text": task.model.tokenizer.decode(tokens[0].tolist()),
    }


def summary(rows: list[Row]) -> str:
    """Shares, in a sentence each."""
    lines = []
    for temperature in sorted({row["temperature"] for row in rows}, reverse=True):
        mine = [row for row in rows if row["temperature"] == temperature]
        proven = sum(row["proven"] for row in mine)
        missed = [row["log_p"] - row["beam_log_p"] for row in mine if row["log_p"] > row["beam_log_p"] + SAME]
        behind = sum(row["beam_log_p"] > row["log_p"] + SAME for row in mine)
        lines.append(
            f"Temperature {temperature:g}: {proven} of {len(mine)} proved; the beams missed a better text in {len(missed)}, by "
            f"up to {max(missed, default=0.0):.1f} nats, and found a better one in {behind}."
        )
    return "\n".join(lines)


@measurement(
    "problem | T | n | proved | log p | LM tokens | passes | CPU s | beams: log p | LM tokens | CPU s",
    "{problem} | {temperature} | {length} | {proven} | {log_p:.2f} | {lm_tokens} | {passes} | {seconds:.1f} | "
    "{beam_log_p:.2f} | {beam_lm_tokens} | {beam_seconds:.1f}",
    after=summary,
)
def run(
    budget: Annotated[int, "LM tokens of a search"] = 1_000,
    beams: Annotated[int, "of transformers"] = 8,
    temperature: Annotated[list[float] | None, "of the law; 1 and .7 by default"] = None,
) -> Iterator[Case]:
    """Certificates of the most probable texts, beside beam search."""
    for value in temperature or (1.0, 0.7):
        for problem in problems(value):
            yield {"problem": problem.name, "temperature": value}, partial(measured, problem, budget, beams)
