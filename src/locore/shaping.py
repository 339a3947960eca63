"""The model and the target that a request asks for: its law, where its texts stop, and whether they must have ended."""

from __future__ import annotations

from dataclasses import replace

from locore.chat import Prompt
from locore.constraints import Constraint, before, finished
from locore.errors import InvalidArgument
from locore.evidence import Particles
from locore.models import Biased, EndingAt, LanguageModel, MinP, Penalised, Tempered, TopK, TopP
from locore.models.pace import pace_of
from locore.parts import answered_by_parts
from locore.potentials import Target, strata_of
from locore.request import Law, Request, Seconds
from locore.samplers import Sampler, sampler_by_name
from locore.samplers.most_probable import MostProbable
from locore.story import told, with_prompt


def shaped(model: LanguageModel, law: Law, stops: tuple[str, ...] = ()) -> LanguageModel:
    """A model under a law, before any prompt, whose texts end behind a stop string.

    Without an end of its own a model goes on to the horizon; a text is cut all the same.
    """
    if law.frequency_penalty or law.presence_penalty:
        model = Penalised(model, law.frequency_penalty, law.presence_penalty)
    if law.logit_bias:
        model = Biased(model, law.logit_bias)
    if law.temperature not in (0, 1):
        model = Tempered(model, law.temperature)
    if law.min_p:
        model = MinP(model, law.min_p)
    if law.top_k > 0:
        model = TopK(model, law.top_k)
    if law.top_p != 1:
        model = TopP(model, law.top_p)
    return EndingAt(model, stops) if stops and model.tokenizer.eos_ids else model


def aimed(aim: Target, request: Request) -> Target:
    """The target of the whole text, a stop string and what follows it included: what is asked for holds before that string."""
    if request.stop:
        aim = aim.read_with(lambda constraint: before(list(request.stop), constraint))
    return aim * finished() if request.finished else aim


def asked_for(
    request: Request,
    base: LanguageModel,
    prompt: Prompt,
    aim: Target,
    sampler: Sampler,
    complete: Constraint | None = None,
) -> Particles:
    """What a request asks for, by any number of runs; the most probable texts come first.

    With ending="complete" texts end where the constraint `complete` is, by default the target's own.
    """
    law = request.suggested({} if base.info is None else base.info.sampling)
    model = shaped(base, law, request.stop)
    if law.most_probable:
        if request.sampler is not None:
            raise InvalidArgument("temperature=0 looks for the most probable text by a search of its own; leave sampler out.")
        sampler = MostProbable()
    if isinstance(request.budget, Seconds):
        pace, times = pace_of(model, prompt), _times_through(request.sampler) * len(strata_of(aim))
        request = replace(request, budget=pace.lm_tokens(request.budget, request.max_new_tokens, times))
    aim = told(aim, model.tokenizer, prompt)
    if complete is not None:
        complete = with_prompt(Target(complete, ()), model.tokenizer, prompt).constraint
    found = answered_by_parts(request, model, prompt, aimed(aim, request), sampler, complete)
    return replace(found, run=replace(found.run, law=str(law)), stops=request.stop).ordered()


def _times_through(sampler: str | Sampler | None) -> int:
    """How often a sampler goes through the positions of a text: twice where it learns before it samples."""
    return 1 if isinstance(sampler, str) and sampler not in ("auto", "twisted") else 2


def most_spent(request: Request) -> int | None:
    """LM tokens that a request may spend, for who waits; None where nothing limits them beforehand."""
    if request.budget is not None:
        return None if isinstance(request.budget, Seconds) else request.budget
    sampler = MostProbable() if request.most_probable else sampler_by_name(request.sampler)
    found = getattr(sampler, "most_prefixes", lambda num: None)(request.num_particles)
    return None if found is None else int(max(1, request.max_new_tokens - 1) * found)
