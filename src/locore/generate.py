"""The front door: a model, a prompt and a constraint in, weighted particles out; or many prompts at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial, wraps
from inspect import signature
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, overload

from locore.answering import drawn_from, warn_of
from locore.constraints import Constraint
from locore.evidence import Particles
from locore.kernel.certain import heard, listening
from locore.kernel.chat import Prompt, is_chat
from locore.kernel.errors import Interrupted, InvalidArgument, InvalidConstraint, LocoreError
from locore.kernel.limits import Limits
from locore.kernel.lists import items_of
from locore.kernel.models.validation import positive, tokenizer_of
from locore.kernel.request import Canonical, Ending, Request, Seconds, drawn_seed, require_known
from locore.kernel.tokenizer import Tokenizer
from locore.models import LanguageModel, load
from locore.models.meeting import together as run_together
from locore.potentials import Target, target_of
from locore.potentials.target import Term
from locore.samplers import Sampler, sampler_by_name
from locore.shaping import asked_for, most_spent, with_prompt
from locore.streaming import Certain, Stream
from locore.watching import Progress, long_call

P = ParamSpec("P")
R = TypeVar("R")
OF_EACH = ("model", "prompt", "constraint")  # arguments of `generate` that are not the same for all requests
TOGETHER = 16  # requests that run beside each other


def _with_known_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which says what was meant by an argument that it does not have."""
    names = [name for name, each in signature(function).parameters.items() if each.kind is not each.VAR_KEYWORD]

    @wraps(function)
    def checked(*args: P.args, **options: P.kwargs) -> R:
        require_known(options, names, function.__name__)
        return function(*args, **options)

    return checked


@_with_known_arguments
def generate(
    model: LanguageModel | str | Path,
    prompt: Prompt,
    constraint: Constraint | Term,
    max_new_tokens: int = 20,
    min_new_tokens: int = 0,
    num_particles: int = 32,
    sampler: str | Sampler | None = None,
    budget: int | str | Seconds | None = None,
    seed: int | None = None,
    canonical: Canonical | None = None,
    stop: str | Sequence[str] = (),
    limits: Limits | None = None,
    *,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
    min_p: float = 0.0,
    frequency_penalty: float = 0.0,
    presence_penalty: float = 0.0,
    logit_bias: Mapping[int, float] | None = None,
    sampling: Literal["model"] | None = None,
    ending: Ending | None = None,
    finished: bool = False,
    timeout: float | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Particles:
    """Sample continuations of a prompt from p(y | constraint).

    Args:
        model: a language model, or what `locore.load` accepts.
        prompt: what comes before the continuation: a text, token ids, or the messages of a chat,
            `[{"role": "user", "content": "..."}]`, which the model's chat template writes. Special tokens that a message spells
            are text there. Where the last message is of the assistant, the continuation goes on from it.
        constraint: what the continuation must satisfy; it speaks about the prompt only where `.over("prompt+text")` says so. Or
            a constraint with potentials, predicates and experts: the target is then p(y) · 1[y ⊨ α] · Π φ(y), normalised, and
            evidence is its log normaliser.
        max_new_tokens: the horizon; a text may end before it.
        min_new_tokens: the text may not end before so many tokens; part of the constraint.
        num_particles: how many weighted sequences come back at most; fewer do where weights are zero, or where there are no
            more; SMC with a budget returns as many as it pays for. The default sampler reads as many prefixes as a
            verdict needs, and 16 times what one text costs where one is asked for.
        sampler: a name ("auto", the default, looks at the problem and chooses; "twisted", "swor", "smc", "masked", "lcr",
            "rejection", "cars", "exact", …) or an object of `locore.samplers`. "search" draws nothing: it gives the most
            probable texts, of which `info["proven"]` are that for certain.
        budget: LM tokens that may be spent, or seconds of sampling, as `locore.Seconds(5)` or "5s"; None for the sampler's own
            limit.
        seed: makes the run repeatable; None draws one, which is in `info["seed"]`.
        canonical: "alpha" also demands that the canonical tokenisation of the text satisfies the constraint (the paper), "only"
            that the tokens are canonical themselves.
        stop: strings; a text ends before the first of them, which is cut off, and the constraint is about what is left.
        limits: what compiling the constraint may use; see `locore.Limits`.
        temperature: the law that is sampled is the model's at this temperature, token by token, and evidence and probabilities
            are that law's; at 1 it is the model's own. 0 gives the most probable text that was found, and no draws.
        top_p: the likeliest tokens at each place that make up this probability, renormalised.
        top_k: so many of the likeliest tokens at each place; 0 for all.
        min_p: the tokens that are at least so many times as likely as the likeliest.
        frequency_penalty: nats for each time a token has occurred in the text; see `locore.models.Penalised`.
        presence_penalty: nats for tokens that have occurred.
        logit_bias: nats by token id; see `locore.models.Biased`.
        sampling: "model" takes the options above that are not given, or are as by default, from the model's own generation
            configuration, which `model.info.sampling` shows.
        ending: "complete" ends a text, at no cost, once it satisfies the constraint and no longer text that begins with it can,
            at any horizon (`locore.stopping.StopWhenComplete` says it in full); "eos" leaves ending to the model, so that every
            text that ends before the horizon pays for its end. None, the default, is "complete" where the model has an end and
            the constraint is read from left to right, and "eos" elsewhere; `info["ending"]` says which.
        finished: only texts that end before the horizon cuts them off; part of the constraint.
        timeout: seconds, after which what there is comes back: of samplers in blocks ("auto", "twisted", "swor") the blocks
            that are done, which the report says. The clock does not look at what it ends, so weights stay proper.
        progress: is told now and then how far the call is; see `locore.watching.Progress`.

    Returns:
        Particles, the most probable texts first, that all satisfy the constraint. Their weights are proper unless
        `info["guarantee"]` says otherwise.

    Raises:
        Unsatisfiable: nothing of this length satisfies the constraint.
        ZeroWeights: the sampler found nothing.
        TimedOut: the time was up before there was anything to return.
        BudgetExceeded, CannotScore, InvalidArgument, InvalidConstraint, MissingTemplate: as their messages say.
    """
    given = locals()  # every option of a request is an argument
    target = target_of(constraint)
    if target is None:
        raise InvalidConstraint(
            f"generate needs a constraint, got {type(constraint).__name__}; use ban, contains, ends_with or choice, decorate a "
            "Boolean function with @constraint, or read JSON with locore.from_json."
        )
    options = {option.name: given[option.name] for option in fields(Request)}
    request = Request(**options | {"limits": limits or Limits()})
    chosen = sampler_by_name(sampler)
    base = model if isinstance(model, LanguageModel) else load(model)
    with heard(), long_call(progress, timeout, most_spent(request), max(1, max_new_tokens - 1)):
        return asked_for(request, base, prompt, target, chosen)


def sample(
    model: LanguageModel | str | Path,
    prompt: Prompt,
    constraint: Constraint | Term,
    n: int = 1,
    max_new_tokens: int = 20,
    **options: Any,
) -> list[str]:
    """Texts as the model would write them, given that they satisfy the constraint: draws from p(text | constraint).

    They are drawn in proportion to the weights of one call of `generate`, whose evidence `generate` itself gives.

    Args:
        model: see `generate`.
        prompt: see `generate`.
        constraint: see `generate`.
        n: how many; the same text may come several times.
        max_new_tokens: the horizon.
        options: any others of `generate`, such as `temperature`, `stop` or `seed`. With temperature=0 all texts are the most
            probable one, with sampler="search" the most probable ones.

    Raises:
        LocoreError: as `generate`.

    Warns:
        LocoreWarning: the weights say that the draws cannot be trusted, and why.
    """
    require_known(options, [name for name in signature(generate).parameters if name not in OF_EACH], "sample")
    positive(n, "n")
    particles = generate(model, prompt, constraint, max_new_tokens, **options)
    warn_of(particles, stacklevel=2)
    return drawn_from(particles, n).texts


def stream(
    model: LanguageModel | str | Path, prompt: Prompt, constraint: Constraint | Term, max_new_tokens: int = 20, **options: Any
) -> Stream:
    """One text as `sample` draws it, piece by piece: each is what has become certain of the draw, and is never taken back.

    `for piece in locore.stream(…): print(piece, end="")`. The pieces together are the text that `sample` draws with the same
    seed, cut before its stop string. A piece comes when all that can still be drawn goes on like that: with one particle
    (`num_particles=1` and a sampler that goes token by token) after each token; with many when they agree, which mostly is when
    the text is finished; and at once where the constraint leaves no choice. `locore.kernel.certain` says why that is the law.

    Args:
        model: see `generate`.
        prompt: see `generate`.
        constraint: see `generate`.
        max_new_tokens: the horizon.
        options: any others of `generate`, such as `temperature`, `stop` or `seed`.

    Returns:
        An iterator, which has the `particles` that the text was drawn from when it has ended.

    Raises:
        LocoreError: as `generate`, where the first piece is asked for.

    Warns:
        LocoreWarning: at the end, where the weights say that the draw cannot be trusted, and why.
    """
    require_known(options, [name for name in signature(generate).parameters if name not in OF_EACH], "stream")

    def run(tell: Callable[[str], None]) -> Particles:
        from locore.automata.stops import sure_before

        base = model if isinstance(model, LanguageModel) else load(model)
        certain = Certain(base.tokenizer, sure_before(Request(stop=options.get("stop", ())).stop), tell)
        with listening(certain):
            particles = generate(base, prompt, constraint, max_new_tokens, **options)
        certain.end(drawn_from(particles, 1).bytes[0])
        return particles

    return Stream(run)


def holds(
    constraint: Constraint | Term, text: str, tokenizer: Tokenizer | LanguageModel | None = None, prompt: Prompt | None = None
) -> bool:
    """Does a finished text satisfy a constraint? Checked plainly, without automata, on the canonical tokens of the text.

    Of a product with bonuses the constraint is asked; what bonuses are about may hold or not. The prompt is for what speaks of
    it, by `.over("prompt+text")`.
    """
    aim = target_of(constraint)
    if aim is not None and len(aim.factors) == len(aim.bonuses):
        constraint = aim.constraint
    if not isinstance(constraint, Constraint):
        raise InvalidConstraint(f"holds needs a constraint, got {type(constraint).__name__}; of a potential ask its function.")
    if not isinstance(text, str):
        raise InvalidArgument(f"holds needs a text, got {type(text).__name__}.")
    if tokenizer is None:
        raise InvalidArgument(
            "holds needs a tokenizer, as constraints speak of tokens and of how a text ends: holds(constraint, text, model), "
            "or model.tokenizer for the model."
        )
    vocabulary = tokenizer_of(tokenizer, "holds")
    if prompt is not None:
        constraint = with_prompt(Target(constraint, ()), vocabulary, prompt).constraint
    ids = [*vocabulary.encode(text), *vocabulary.eos_ids[:1]]
    return constraint.at(len(ids)).bind(vocabulary).evaluate(ids, vocabulary)


@overload
def generate_many(
    model: LanguageModel | str | Path,
    prompts: Sequence[Prompt],
    constraints: Constraint | Term | Sequence[Constraint | Term],
    max_new_tokens: int = 20,
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
    constraints: Constraint | Term | Sequence[Constraint | Term],
    max_new_tokens: int = 20,
    *,
    seed: int | None = None,
    together: int = TOGETHER,
    errors: Literal["return"],
    **options: Any,
) -> list[Particles | LocoreError]: ...


def generate_many(
    model: LanguageModel | str | Path,
    prompts: Sequence[Prompt],
    constraints: Constraint | Term | Sequence[Constraint | Term],
    max_new_tokens: int = 20,
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
        max_new_tokens: the horizon; a text may end before it.
        seed: request i gets the seed `seed + i`, as `generate(…, seed=seed + i)` would; None draws one.
        together: how many requests run beside each other. Memory grows with it, and not with the number of prompts.
        errors: "raise" stops all requests at the first that fails; "return" puts its error into its place.
        options: any others of `generate`, the same for all: `num_particles`, `sampler`, `budget`, ….

    Returns:
        One answer for each prompt, in their order.

    Raises:
        InvalidArgument: the numbers of prompts and constraints differ, or `together` is below 1.
        LocoreError: as those of `generate`, with errors="raise".
    """
    require_known(options, [name for name in signature(generate).parameters if name not in OF_EACH], "generate_many")
    each = _each(prompts, constraints)
    positive(together, "together")
    if errors not in ("raise", "return"):
        raise InvalidArgument(f"errors must be 'raise' or 'return', got {errors!r}.")
    base = model if isinstance(model, LanguageModel) else load(model)
    first = drawn_seed(seed)

    def answer(number: int, used: LanguageModel) -> Particles | LocoreError:
        try:
            return generate(used, *each[number], max_new_tokens, seed=first + number, **options)
        except LocoreError as error:
            if errors == "raise" or isinstance(error, Interrupted):
                raise
            return error

    return list(run_together(base, (partial(answer, number) for number in range(len(each))), together))


def _each(
    prompts: Sequence[Prompt], constraints: Constraint | Term | Sequence[Constraint | Term]
) -> list[tuple[Prompt, Constraint | Term]]:
    """A constraint with each prompt."""
    if isinstance(prompts, str) or is_chat(prompts):
        raise InvalidArgument("generate_many takes a list of prompts; for one prompt or one chat there is generate.")
    listed = items_of(prompts, "generate_many", "a list of prompts", ordered=True, error=InvalidArgument)
    if isinstance(constraints, Constraint | Term):
        wanted = [constraints] * len(listed)
    else:
        wanted = items_of(constraints, "generate_many", "a constraint, or a list of them", ordered=True, error=InvalidArgument)
    if len(wanted) != len(listed):
        raise InvalidArgument(
            f"there are {len(listed)} prompts and {len(wanted)} constraints; give one for all, or one for each."
        )
    return list(zip(listed, wanted, strict=True))
