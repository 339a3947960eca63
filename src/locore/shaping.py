"""The model and the target that a request asks for: its law, what the prompt is to constraints, and where texts end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol, runtime_checkable

from locore.answering import Asked
from locore.evidence import Particles
from locore.kernel.chat import Prompt, is_chat, plain_messages
from locore.kernel.constraints.base import And, Constant, Constraint, Not, Or
from locore.kernel.constraints.sequence import TokenSequence, is_written
from locore.kernel.constraints.spelling import spelled
from locore.kernel.constraints.structure import fold
from locore.kernel.constraints.tokens import finished
from locore.kernel.errors import InvalidArgument, Unsatisfiable
from locore.kernel.request import Law, Request, Seconds
from locore.kernel.samplers.base import promised
from locore.kernel.tokenizer import Tokenizer
from locore.models import Biased, EndingAt, LanguageModel, MinP, Penalised, Tempered, TopK, TopP, prompt_ids
from locore.models.pace import pace_of
from locore.parts import answered_by_parts, strata_of
from locore.potentials import Target
from locore.samplers import Sampler, of_mode, sampler_by_name


@runtime_checkable
class SeesPrompt(Protocol):
    """A leaf that speaks of the prompt."""

    def fate(self) -> bool | None:
        """Does it hold, or fail, whatever follows the prompt? None: that depends, or is not known."""

    def why(self, sequence: TokenSequence) -> str:
        """What decides it."""


def story_of(tokenizer: Tokenizer, prompt: Prompt) -> str:
    """The text before the new one, as a reader sees it.

    Of a prompt that is a text it is this text. Of a chat it is how the answer begins, the last message if the assistant's, and
    nothing otherwise: what others said is no part of what the assistant writes. Of token ids it is what follows the last
    special token, in which a rendered chat has the name of the role, too.
    """
    if isinstance(prompt, str):
        if not is_written(prompt):
            raise InvalidArgument("the prompt has a lone surrogate, which has no UTF-8 bytes; remove it.")
        return prompt
    if not is_chat(prompt):
        return _since_special(tokenizer, prompt_ids(tokenizer, prompt))
    last = plain_messages(prompt)[-1]
    if last["role"] != "assistant":
        return ""
    written = _since_special(tokenizer, prompt_ids(tokenizer, prompt))
    begun = last["content"]  # templates cut white space at its end, or at its start
    ways = (begun, begun.rstrip(), begun.lstrip(), begun.strip())
    return next((way for way in ways if written.endswith(way)), begun)


def _since_special(tokenizer: Tokenizer, ids: Iterable[int]) -> str:
    content = b""
    for token in ids:
        piece = tokenizer.token_bytes[token]
        content = b"" if piece is None or token in tokenizer.eos_ids else content + piece
    return content.decode("utf-8", errors="replace")


def told(aim: Target, tokenizer: Tokenizer, prompt: Prompt) -> Target:
    """The target, in which what speaks of the prompt knows it.

    Raises:
        Unsatisfiable: the prompt alone breaks the constraint, whatever follows.
    """
    known = with_prompt(aim, tokenizer, prompt)
    if known is not aim:
        _check_possible(known.constraint, tokenizer)
    return known


def with_prompt(aim: Target, tokenizer: Tokenizer, prompt: Prompt) -> Target:
    """As `told`, whatever the prompt breaks."""
    if not any(leaf.waits_for_prompt() for part in aim.constraints() for leaf in part.leaves()):
        return aim
    story = story_of(tokenizer, prompt)
    return aim.read_with(lambda constraint: constraint.transform(lambda leaf: leaf.leaf_told(story)))


def _check_possible(constraint: Constraint, tokenizer: Tokenizer) -> None:
    said: dict[str, None] = {}
    nothing = TokenSequence((), tokenizer)

    def rule(node: Constraint, parts: list[bool | None]) -> bool | None:
        if isinstance(node, Constant):
            return node.value
        if isinstance(node, SeesPrompt):
            fate = node.fate()
            if fate is not None:
                said[f"{spelled(node)}: {node.why(nothing)}"] = None
            return fate
        if isinstance(node, Not):
            return None if parts[0] is None else not parts[0]
        if isinstance(node, And | Or):
            decisive = isinstance(node, Or)
            return decisive if decisive in parts else None if None in parts else not decisive
        return None

    if fold(constraint, rule) is False and said:
        raise Unsatisfiable(
            f"the prompt alone breaks the constraint, whatever follows it: {'; '.join(said)}. Change the prompt, or leave over "
            "out."
        )


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
        aim = aim.read_with(lambda constraint: constraint.before(request.stop))
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
        sampler = of_mode()
    if isinstance(request.budget, Seconds):
        pace, times = pace_of(model, prompt), promised(sampler, "times_through")(model) * len(strata_of(aim))
        request = replace(request, budget=pace.lm_tokens(request.budget, request.max_new_tokens, times))
    aim = told(aim, model.tokenizer, prompt)
    if complete is not None:
        complete = with_prompt(Target(complete, ()), model.tokenizer, prompt).constraint
    found = answered_by_parts(Asked(request, model, prompt, aimed(aim, request), sampler, complete))
    return replace(found, run=replace(found.run, law=str(law)), stops=request.stop).ordered()


def most_spent(request: Request) -> int | None:
    """LM tokens that a request may spend, for who waits; None where nothing limits them beforehand."""
    if request.budget is not None:
        return None if isinstance(request.budget, Seconds) else request.budget
    sampler = of_mode() if request.most_probable else sampler_by_name(request.sampler)
    found = promised(sampler, "most_prefixes")(request.num_particles)
    return None if found is None else int(max(1, request.max_new_tokens - 1) * found)
