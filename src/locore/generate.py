"""The front door: a model, a prompt and a constraint in, weighted particles out; or many prompts at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, overload

import torch
from torch import Tensor

from locore.canonical import OnlyCanonical, kept, share_of_others
from locore.chat import Prompt
from locore.compilers import compile
from locore.constraints import Constraint, PythonFunction
from locore.errors import Interrupted, InvalidArgument, InvalidConstraint, LocoreError, ZeroWeights
from locore.evidence import Draws, Particles, Run
from locore.limits import Limits
from locore.models import Counted, LanguageModel, load, prompt_ids
from locore.models.meeting import together as run_together
from locore.models.validation import positive, tokenizer_of
from locore.numerics import make_generator
from locore.request import Canonical, Request, Stop
from locore.samplers import Sampler, sampler_by_name
from locore.stopping import stop_of, stopped
from locore.tokenizer import Tokenizer

SEED_RANGE = 2**31
TOGETHER = 16  # requests that run beside each other
RELAXED = "allowed by the relaxed circuit, but not by the constraint"


def generate(
    model: LanguageModel | str | Path,
    prompt: Prompt,
    constraint: Constraint,
    max_new_tokens: int = 20,
    min_new_tokens: int = 0,
    num_particles: int = 32,
    sampler: str | Sampler | None = None,
    budget: int | None = None,
    seed: int | None = None,
    canonical: Canonical | None = None,
    stop: Stop | None = None,
    limits: Limits | None = None,
) -> Particles:
    """Sample continuations of a prompt from p(y | constraint).

    Args:
        model: a language model, or what `locore.load` accepts.
        prompt: what comes before the continuation: a text, token ids, or the messages of a chat,
            `[{"role": "user", "content": "..."}]`, which the model's chat template writes. Special tokens that a message spells
            are text there. Where the last message is of the assistant, the continuation goes on from it.
        constraint: what the continuation must satisfy; it never speaks about the prompt.
        max_new_tokens: the horizon; a text may end before it.
        min_new_tokens: the text may not end before so many tokens; part of the constraint.
        num_particles: how many weighted sequences come back at most; fewer do where weights are zero, or where there are no
            more; SMC and AWRS with a budget return as many as it pays for. The default sampler reads as many prefixes as a
            verdict needs, and 16 times what one text costs where one is asked for.
        sampler: a name ("auto", the default, looks at the problem and chooses; "twisted", "swor", "smc", "masked", "lcr",
            "rejection", "cars", "exact", …) or an object of `locore.samplers`.
        budget: LM tokens that may be spent; None for the sampler's own limit.
        seed: makes the run repeatable; None draws one, which is in `info["seed"]`.
        canonical: "alpha" also demands that the canonical tokenisation of the text satisfies the constraint (the paper), "only"
            that the tokens are canonical themselves.
        stop: "complete" ends a text, at no cost, once it satisfies the constraint and no longer text that begins with it can,
            at any horizon (`locore.stopping.StopWhenComplete` says it in full); "eos" leaves ending to the model, so that every
            text that ends before the horizon pays for its end. None, the default, is "complete" where the model has an end and
            the constraint is read from left to right, and "eos" elsewhere; `info["stop"]` says which.
        limits: what compiling the constraint may use; see `locore.Limits`.

    Returns:
        Particles that all satisfy the constraint. Their weights are proper unless `info["guarantee"]` says otherwise.

    Raises:
        Unsatisfiable: nothing of this length satisfies the constraint.
        ZeroWeights: the sampler found nothing.
        BudgetExceeded, CannotScore, InvalidArgument, InvalidConstraint, MissingTemplate: as their messages say.
    """
    if not isinstance(constraint, Constraint):
        raise InvalidConstraint(
            f"generate needs a constraint, got {type(constraint).__name__}; use ban, contains, ends_with or choice, decorate a "
            "Boolean function with @constraint, or read JSON with locore.from_json."
        )
    request = Request(max_new_tokens, min_new_tokens, num_particles, sampler, budget, seed, canonical, stop, limits or Limits())
    chosen = sampler_by_name(sampler)
    base = model if isinstance(model, LanguageModel) else load(model)
    return _answered(request, base, prompt, constraint, chosen)


def _answered(request: Request, base: LanguageModel, prompt: Prompt, constraint: Constraint, sampler: Sampler) -> Particles:
    """Compile, sample, read again, and filter by tokenisation."""
    start = time.perf_counter()
    circuit = compile(constraint, base, request.max_new_tokens, min_length=request.min_new_tokens, limits=request.limits)
    compiled = time.perf_counter() - start
    counted, mode = Counted(base.prompted(prompt)), request.canonical
    before = _ids_before(base.tokenizer, prompt) if mode is None else prompt_ids(base.tokenizer, prompt)
    stop = stop_of(request.stop, circuit, counted)
    target = stopped(counted, circuit) if stop == "complete" else counted
    if mode == "only" and circuit.reader is not None and before is not None:
        target = OnlyCanonical(target, circuit.reader, before)
    seed = _seed(request.seed)
    draws = sampler(target, circuit, request.num_particles, request.budget, make_generator(seed))
    run = Run(sampler.name, seed, stop, time.perf_counter() - start, compiled, **counted.account())
    notes = tuple(dict.fromkeys(note for leaf in constraint.leaves() for note in leaf.notes()))
    notes += () if circuit.reader is None else circuit.reader.notes()
    draws = replace(draws, record=replace(draws.record, notes=(*draws.record.notes, *notes)))
    particles = Particles.of(draws, base.tokenizer, run)
    holds_exactly = _recheck(constraint, draws, base.tokenizer, circuit.relaxed)
    if circuit.relaxed:
        particles = _exact(particles, holds_exactly)
    if before is None:
        return particles
    if mode is not None:
        return kept(particles, constraint, mode, before)
    return replace(particles, record=replace(particles.record, not_canonical=share_of_others(particles, before)))


def _seed(given: int | None) -> int:
    """The seed that was given, or one that is drawn, which makes the run repeatable all the same."""
    return int(torch.randint(SEED_RANGE, (), generator=make_generator(None))) if given is None else given


def _ids_before(tokenizer: Tokenizer, prompt: Prompt) -> list[int] | None:
    """The ids of a prompt; None where it has none, such as a picture, or where nothing is spelled."""
    if not tokenizer.has_text:
        return None
    try:
        return prompt_ids(tokenizer, prompt)
    except InvalidArgument:  # the model itself has taken it
        return None


def holds(constraint: Constraint, text: str, tokenizer: Tokenizer | LanguageModel) -> bool:
    """Does a finished text satisfy a constraint? Checked plainly, without automata, on the canonical tokens of the text."""
    if not isinstance(text, str):
        raise InvalidArgument(f"holds needs a text, got {type(text).__name__}.")
    known = tokenizer_of(tokenizer, "holds")
    ids = [*known.encode(text), *known.eos_ids[:1]]
    return constraint.at(len(ids)).bind(known).evaluate(ids, known)


def _recheck(constraint: Constraint, draws: Draws, tokenizer: Tokenizer, relaxed: bool) -> Tensor:
    """Bool[num]: read every sequence plainly, by another road than the circuit's.

    Where the circuit is no relaxation a failure is a bug, and nothing is returned.
    """
    bound = constraint.bind(tokenizer)
    keep = [bound.evaluate(y, tokenizer) for y in draws.tokens.tolist()]
    for y, good in zip(draws.tokens.tolist(), keep, strict=True):
        if not (good or relaxed):
            spelled = f" ({tokenizer.decode(y)!r})" if tokenizer.has_text else ""
            raise LocoreError(
                f"internal error: the circuit accepted the tokens {y}{spelled}, which do not satisfy the "
                f"constraint. Nothing was returned; {_whose(constraint)}."
            )
    return torch.tensor(keep, dtype=torch.bool)


def _whose(constraint: Constraint) -> str:
    """Whose error it is that two readings of a constraint differ."""
    if any(isinstance(leaf, PythonFunction) for leaf in constraint.leaves()):
        return "if the @constraint function depends on more than its tokens (on chance, say), mend that, else report this"
    return "please report this"


def _exact(particles: Particles, keep: Tensor) -> Particles:
    """Particles of a relaxation that satisfy the constraint itself.

    Also where all do: bounds that rest on sequences which were not returned speak about the relaxation.
    """
    if not bool(keep.any()):
        raise ZeroWeights(
            f"none of {len(particles)} sequences satisfies the constraint: its circuit is a relaxation and lets more through. "
            "Use more particles, or a larger memory of simple_moves."
        )
    return particles.where(keep, RELAXED)


@overload
def generate_many(
    model: LanguageModel | str | Path,
    prompts: Sequence[Prompt],
    constraints: Constraint | Sequence[Constraint],
    *,
    seed: int | None = None,
    together: int = TOGETHER,
    errors: Literal["raise"] = "raise",
    **options: Any,
) -> list[Particles]: ...


@overload
def generate_many(
    model: LanguageModel | str | Path,
    prompts: Sequence[Prompt],
    constraints: Constraint | Sequence[Constraint],
    *,
    seed: int | None = None,
    together: int = TOGETHER,
    errors: Literal["return"],
    **options: Any,
) -> list[Particles | LocoreError]: ...


def generate_many(
    model: LanguageModel | str | Path,
    prompts: Sequence[Prompt],
    constraints: Constraint | Sequence[Constraint],
    *,
    seed: int | None = None,
    together: int = TOGETHER,
    errors: Literal["raise", "return"] = "raise",
    **options: Any,
) -> list[Any]:
    """Sample continuations of many prompts, each from its own p(y | constraint), as `generate` does one by one.

    Rows of different requests are read in the same forward passes: those of requests that have ended leave, those of new ones
    enter. An answer depends on its own seed alone, up to the rounding of a batch. A model that cannot read several prompts in
    one pass (one that is no `HuggingFaceModel`, or whose attention is not plain) is asked for one after the other.

    Args:
        model: a language model, or what `locore.load` accepts.
        prompts: any number of them; see `generate`.
        constraints: one for all prompts, or one for each.
        seed: request i gets the seed `seed + i`, as `generate(…, seed=seed + i)` would; None draws one.
        together: how many requests run beside each other. Memory grows with it, and not with the number of prompts.
        errors: "raise" stops all requests at the first that fails; "return" puts its error into its place.
        options: any others of `generate`, the same for all: `max_new_tokens`, `num_particles`, `sampler`, `budget`, ….

    Returns:
        One answer for each prompt, in their order.

    Raises:
        InvalidArgument: the numbers of prompts and constraints differ, or `together` is below 1.
        LocoreError: as those of `generate`, with errors="raise".
    """
    each = _each(prompts, constraints)
    positive(together, "together")
    if errors not in ("raise", "return"):
        raise InvalidArgument(f"errors must be 'raise' or 'return', got {errors!r}.")
    base = model if isinstance(model, LanguageModel) else load(model)
    first = _seed(seed)

    def answer(number: int, used: LanguageModel) -> Particles | LocoreError:
        try:
            return generate(used, *each[number], seed=first + number, **options)
        except LocoreError as error:
            if errors == "raise" or isinstance(error, Interrupted):
                raise
            return error

    return list(run_together(base, (partial(answer, number) for number in range(len(each))), together))


def _each(prompts: Sequence[Prompt], constraints: Constraint | Sequence[Constraint]) -> list[tuple[Prompt, Constraint]]:
    """A constraint with each prompt."""
    if isinstance(prompts, str) or any(isinstance(prompt, dict) for prompt in prompts):
        raise InvalidArgument("generate_many takes a list of prompts; for one prompt or one chat there is generate.")
    wanted = [constraints] * len(prompts) if isinstance(constraints, Constraint) else list(constraints)
    if len(wanted) != len(prompts):
        raise InvalidArgument(
            f"there are {len(prompts)} prompts and {len(wanted)} constraints; give one for all, or one for each."
        )
    return list(zip(prompts, wanted, strict=True))
