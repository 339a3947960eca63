"""The model and the target that a request asks for: its law, what the prompt is to constraints, where texts end, and its parts.

A target that has bonuses has **parts**, which are sampled apart, each as under a constraint, and put together. Whether the
constraints of k bonuses hold divides the texts into 2^k parts, in each of which all bonuses together are one number; parts with
the same number are one. So Z = Σ_s e^{w_s} p(α ∧ s), every term of which a sampler of constraints finds by its own means, and
what is rare but worth much is a constraint of its own instead of something that draws may miss.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch

from locore.answering import Asked, answered
from locore.evidence import Mode, Particles, Run
from locore.evidence.joining import Part, joined
from locore.kernel.certain import apart
from locore.kernel.chat import Prompt, is_chat, plain_messages
from locore.kernel.constraints.constraint import And, Constant, Constraint, Not, Or, conjunction, disjunction, negation
from locore.kernel.constraints.sequence import TokenSequence, is_written
from locore.kernel.constraints.spelling import spelled
from locore.kernel.constraints.structure import fold
from locore.kernel.constraints.tokens import finished
from locore.kernel.errors import InvalidArgument, InvalidConstraint, Unsatisfiable, ZeroWeights
from locore.kernel.evidence.record import UNKNOWN
from locore.kernel.numerics import make_generator
from locore.kernel.pipeline import thinned
from locore.kernel.request import SEED_RANGE, Law, Request, Seconds, drawn_seed
from locore.kernel.samplers.sampler import promised
from locore.kernel.tokenizer import Tokenizer
from locore.models import Biased, EndingAt, LanguageModel, MinP, Penalised, Tempered, TopK, TopP, prompt_ids
from locore.models.hardware import pace_of
from locore.potentials import Bonus, Target
from locore.samplers import Sampler, of_mode, sampler_by_name
from locore.samplers.steering import SeeksMode, check_proper


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


def checked_with_prompt(aim: Target, tokenizer: Tokenizer, prompt: Prompt) -> Target:
    """The target, in which what speaks of the prompt knows it.

    Raises:
        Unsatisfiable: the prompt alone breaks the constraint, whatever follows.
    """
    told_aim = with_prompt(aim, tokenizer, prompt)
    if told_aim is not aim:
        _check_possible(told_aim.constraint, tokenizer)
    return told_aim


def with_prompt(aim: Target, tokenizer: Tokenizer, prompt: Prompt) -> Target:
    """As `checked_with_prompt`, whatever the prompt breaks."""
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
    request: Request, base: LanguageModel, prompt: Prompt, aim: Target, sampler: Sampler, complete: Constraint | None = None
) -> Particles:
    """What a request asks for, by any number of runs; the most probable texts come first.

    With ending="complete" texts end where the constraint `complete` is, by default the target's own.
    """
    law = request.suggested({} if base.info is None else base.info.sampling)
    model = shaped(base, law, request.stop)
    if law.most_probable:
        if request.sampler is None:
            sampler = of_mode()
        elif not isinstance(sampler, SeeksMode):
            raise InvalidArgument("temperature=0 looks for the most probable text; leave sampler out, or take 'search'.")
    if isinstance(request.budget, Seconds):
        pace, times = pace_of(model, prompt), promised(sampler, "times_through")(model) * len(strata_of(aim))
        request = replace(request, budget=pace.lm_tokens(request.budget, request.max_new_tokens, times))
    aim = checked_with_prompt(aim, model.tokenizer, prompt)
    if complete is not None:
        complete = with_prompt(Target(complete, ()), model.tokenizer, prompt).constraint
    particles = answered_by_parts(Asked(request, model, prompt, aimed(aim, request), sampler, complete))
    return replace(particles, run=replace(particles.run, law=str(law)), stops=request.stop).ordered()


def most_spent(request: Request) -> int | None:
    """LM tokens that a request may spend, for who waits; None where nothing limits them beforehand."""
    if request.budget is not None:
        return None if isinstance(request.budget, Seconds) else request.budget
    sampler = of_mode() if request.most_probable and request.sampler is None else sampler_by_name(request.sampler)
    prefixes = promised(sampler, "most_prefixes")(request.num_particles)
    return None if prefixes is None else int(max(1, request.max_new_tokens - 1) * prefixes)


MOST_BONUSES = 6
DIGITS = 9  # of a number of nats, by which parts are told apart


@dataclass(frozen=True, eq=False)
class Stratum:
    """A part of the texts.

    Attributes:
        target: without bonuses.
        where: what tells it from the other parts.
        nats: what its texts are multiplied by, as a logarithm.
    """

    target: Target
    where: Constraint
    nats: float


def strata_of(aim: Target) -> list[Stratum]:
    """The parts that the bonuses of a target make, those that are worth most first; one where there are none.

    Raises:
        InvalidConstraint: more than MOST_BONUSES.
    """
    worth: dict[Constraint, float] = {}
    for bonus in aim.bonuses:
        worth[bonus.constraint] = worth.get(bonus.constraint, 0.0) + bonus.nats
    counted = [(constraint, nats) for constraint, nats in worth.items() if nats]
    if len(counted) > MOST_BONUSES:
        raise InvalidConstraint(
            f"there are {len(counted)} bonuses, at most {MOST_BONUSES} can be told apart; give what is worth the same as one, "
            "bonus(contains([...]), nats), or write a potential with bound=..."
        )
    others = tuple(factor for factor in aim.factors if not isinstance(factor, Bonus))
    parts: dict[float, list[Constraint]] = {}
    for holds in itertools.product([True, False], repeat=len(counted)):
        nats = sum(value for (_, value), flag in zip(counted, holds, strict=True) if flag)
        each = [alpha if flag else negation(alpha) for (alpha, _), flag in zip(counted, holds, strict=True)]
        parts.setdefault(round(nats, DIGITS), []).append(conjunction(each))
    strata = [(nats, disjunction(members)) for nats, members in sorted(parts.items(), reverse=True)]
    return [Stratum(Target(conjunction([aim.constraint, where]), others), where, nats) for nats, where in strata]


def answered_by_parts(asked: Asked) -> Particles:
    """As `answered`; what bonuses tell apart is sampled apart, by the same sampler.

    Texts end where the constraint of the whole target is complete, as they would without bonuses. A budget is shared: each part
    gets an equal share of what is left.

    Raises:
        InvalidConstraint: more bonuses than can be told apart.
        Unsatisfiable: nothing satisfies the constraint, bonuses apart.
        ZeroWeights: nothing was found of any part.
    """
    strata, request, sampler = strata_of(asked.aim), asked.request, asked.sampler
    if len(strata) == 1:
        return answered(replace(asked, aim=strata[0].target))
    start = time.perf_counter()
    if not isinstance(sampler, SeeksMode):
        check_proper(sampler)
    asked.compiled(asked.aim.constraint)
    seed = drawn_seed(request.seed)
    generator = make_generator(seed)
    seeds = torch.randint(SEED_RANGE, (len(strata),), generator=generator).tolist()
    whole = asked.aim.constraint if asked.complete is None else asked.complete
    parts = _sampled(replace(asked, complete=whole), strata, seeds)
    run = _run(parts, sampler, seed, time.perf_counter() - start)
    if isinstance(sampler, SeeksMode):
        return _best_of(parts, run, sampler.texts or request.num_particles)
    return thinned(joined(parts, run), request.num_particles, generator)


def _sampled(asked: Asked, strata: Sequence[Stratum], seeds: Sequence[int]) -> list[Part]:
    """What was found of each part that can be satisfied.

    Raises:
        ZeroWeights: nothing of any.
    """
    parts: list[Part] = []
    failed: ZeroWeights | None = None
    left = asked.request.lm_tokens
    for number, (stratum, seed) in enumerate(zip(strata, seeds, strict=True)):
        share = None if left is None else left // (len(strata) - number)
        particles = None
        try:
            with apart():
                request = replace(asked.request, seed=seed, budget=share)
                particles = answered(replace(asked, request=request, aim=stratum.target))
        except Unsatisfiable:
            continue
        except ZeroWeights as error:
            failed = error
        finally:
            if left is not None and share is not None:
                left -= share if particles is None else particles.run.lm_tokens or 0
        parts.append(Part(particles, stratum.nats, spelled(stratum.where)))
    if failed is not None and all(part.particles is None for part in parts):
        raise failed
    if not parts:
        raise Unsatisfiable("no text satisfies the constraint; bonuses for texts count only sequences of whole characters.")
    return parts


def _best_of(parts: Sequence[Part], run: Run, most: int) -> Particles:
    """The most probable texts of all parts, by what they are worth."""
    drawn = [(part.particles, part.nats) for part in parts if part.particles is not None]
    modes = [(particles, nats, mode) for particles, nats in drawn if (mode := particles.record.mode)]
    unread = max(mode.log_unread + nats for _, nats, mode in modes) if len(modes) == len(parts) else math.inf
    values = torch.cat([particles.log_weights + nats for particles, nats, _ in modes])
    order = values.argsort(descending=True)
    unread, order = max([unread, *values[order[most:]].tolist()]), order[:most]
    mode = Mode.of(values[order].tolist(), unread, sum(each.compared for *_, each in modes))
    best = modes[0][0]
    record = replace(best.record, mode=mode, bounds=UNKNOWN, drawn=len(order))
    tokens = torch.cat([particles.tokens for particles, *_ in modes])[order]
    scores = [particles.token_scores for particles, *_ in modes if particles.token_scores is not None]
    return replace(
        best, tokens=tokens, log_weights=values[order], token_scores=torch.cat(scores)[order], record=record, run=run
    )


def _run(parts: Sequence[Part], sampler: Sampler, seed: int, seconds: float) -> Run:
    """Settings and cost of all parts; a context that two of them asked for counts twice."""
    runs = [part.particles.run for part in parts if part.particles is not None]
    return Run(
        sampler=sampler.name,
        seed=seed,
        ending=runs[0].ending,
        seconds=seconds,
        compile_seconds=sum(run.compile_seconds or 0.0 for run in runs),
        lm_tokens=sum(run.lm_tokens or 0 for run in runs),
        lm_contexts=sum(run.lm_contexts or 0 for run in runs),
        passes=sum(run.passes or 0 for run in runs),
        model_seconds=sum(run.model_seconds or 0.0 for run in runs),
        remedy=promised(sampler, "remedy"),
    )
