"""One request, from the model and the target to particles: what is drawn from, what filters and what weighs is put together;
and what a reader should know of texts that satisfy the constraint all the same: a missing space, a cut end.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from locore.circuits import Circuit
from locore.compilers.compile import compile
from locore.evidence import Particles
from locore.kernel.chat import Prompt
from locore.kernel.constraints.constraint import Constraint
from locore.kernel.errors import InvalidArgument, LocoreError, LocoreWarning
from locore.kernel.numerics import is_end
from locore.kernel.pipeline import Prepared, particles_of
from locore.kernel.request import Ending, Request
from locore.kernel.tokenizer import Tokenizer
from locore.models import Counted, LanguageModel, prompt_ids
from locore.potentials.target import Target
from locore.samplers import Sampler
from locore.samplers.steering import SeeksMode, keeping_all, steered
from locore.stopping import OnlyCanonical, Spelling, ending_of, share_of_others, stopped

if TYPE_CHECKING:
    from locore.potentials.scorer import Scorer

BAD = ("do not trust", "biased")  # verdicts


@dataclass(frozen=True, eq=False)
class Asked:
    """A request and what is asked.

    Attributes:
        base: the model under its law, before the prompt.
        aim: the target.
        complete: with ending="complete" texts end where this constraint is; None: the target's own.
    """

    request: Request
    base: LanguageModel
    prompt: Prompt
    aim: Target
    sampler: Sampler
    complete: Constraint | None = None

    def compiled(self, constraint: Constraint) -> Circuit:
        """The circuit of a constraint on the texts that are asked for."""
        request = self.request
        return compile(constraint, self.base, request.max_new_tokens, min_length=request.min_new_tokens, limits=request.limits)


def answered(asked: Asked) -> Particles:
    """Draw, check, filter, weigh: `generate` after its arguments are checked."""
    ready, before = prepared(asked)
    return described(particles_of(ready), ready, before, asked.base)


def prepared(asked: Asked) -> tuple[Prepared, list[int] | None]:
    """Read the prompt, compile, and tell model and sampler of whatever is filtered and weighed afterwards.

    Returns:
        What is drawn from, and the ids of the prompt; None where it has none.
    """
    request, base, prompt, aim, sampler = asked.request, asked.base, asked.prompt, asked.aim, asked.sampler
    started, constraint = time.perf_counter(), aim.constraint
    prompted = base.prompted(prompt)
    prompted.require_length(request.max_new_tokens)  # before anything is compiled, which may take long
    circuit = asked.compiled(constraint)
    compiled = time.perf_counter() - started
    counted, mode, tokenizer = Counted(prompted), request.canonical, base.tokenizer
    before = _ids_before(tokenizer, prompt) if mode is None else prompt_ids(tokenizer, prompt)
    complete_at = circuit if asked.complete is None else asked.compiled(asked.complete)
    ending = ending_of(request.ending, complete_at, counted)
    law = stopped(counted, complete_at) if ending == "complete" else counted
    spelling = None if mode is None or before is None else Spelling(mode, constraint, tokenizer, before)
    if mode == "only" and circuit.reader is not None and before is not None:
        law = OnlyCanonical(law, circuit.reader, before)
    scorer = _scorer(aim, tokenizer, complete_at, ending)
    if isinstance(sampler, SeeksMode):
        worth = _worth(scorer, spelling, constraint.bind(tokenizer) if circuit.relaxed else None, tokenizer)
        sampler = sampler.seeking(worth, 0.0 if scorer is None else scorer.log_most, request.stop)
    elif scorer is not None:
        sampler, law = steered(sampler, law, circuit, scorer)
    elif mode is not None or circuit.relaxed:
        sampler = keeping_all(sampler)  # nothing is thinned before it is filtered
    ready = Prepared(
        *(request, constraint, circuit, tokenizer, law, counted, sampler, sampler is not asked.sampler),
        *(ending, spelling, scorer, started, compiled),
    )
    return ready, before


def described(particles: Particles, ready: Prepared, before: list[int] | None, base: LanguageModel) -> Particles:
    """With what a reader should know of the texts."""
    request = ready.request
    if before is not None and request.canonical is None:
        particles = replace(particles, record=replace(particles.record, not_canonical=share_of_others(particles, before)))
    space = None if before is None else missing_space(particles, ready.circuit, before, base)
    facts: dict[str, Any] = {
        "cut_off": None if request.min_new_tokens >= request.max_new_tokens else share_cut_off(particles, ready.constraint),
        "hints": particles.record.hints if space is None else (*particles.record.hints, space),
        "tables_mislead": any(leaf.tables_mislead for leaf in ready.constraint.leaves()),
    }
    return replace(particles, record=replace(particles.record, **facts))


def _scorer(aim: Target, tokenizer: Tokenizer, circuit: Circuit, chosen: Ending) -> Scorer | None:
    """The factors of a target for one run; None where there are none."""
    if not aim.factors:
        return None
    from locore.potentials.scorer import Scorer

    return Scorer(aim.factors, tokenizer, lambda model: stopped(model, circuit) if chosen == "complete" else model)


def _worth(
    scorer: Scorer | None, spelling: Spelling | None, exact: Constraint | None, tokenizer: Tokenizer
) -> Callable[[Tensor], Tensor] | None:
    """Log of what sequences are worth beyond their probability: the factors; −inf for those that a filter takes away."""
    if scorer is None and spelling is None and exact is None:
        return None

    def worth(tokens: Tensor) -> Tensor:
        keep = torch.ones(len(tokens), dtype=torch.bool)
        if exact is not None:
            keep &= torch.tensor([exact.evaluate(y, tokenizer) for y in tokens.tolist()], dtype=torch.bool)
        if spelling is not None:
            keep &= spelling.allows(tokens)
        values = torch.full((len(tokens),), -torch.inf, dtype=torch.float64)
        if bool(keep.any()):
            values[keep] = 0.0 if scorer is None else scorer.of(tokens[keep])
        return values

    return worth


def drawn_from(particles: Particles, num: int) -> Particles:
    """So many texts in proportion to the weights: by other random numbers than the sampler's, and as repeatable."""
    seed = particles.run.seed
    return particles.resample(num, seed=None if seed is None else seed + 1)


def warn_of(particles: Particles, stacklevel: int) -> None:
    """Warn whoever gets a draw where the weights say that it cannot be trusted; `stacklevel` counts from the caller."""
    if particles.verdict.level in BAD:
        warnings.warn(particles.report(), LocoreWarning, stacklevel=stacklevel + 1)


def _ids_before(tokenizer: Tokenizer, prompt: Prompt) -> list[int] | None:
    """The ids of a prompt; None where it has none, such as a picture, or where nothing is spelled."""
    if not tokenizer.has_text:
        return None
    try:
        return prompt_ids(tokenizer, prompt)
    except InvalidArgument:  # the model itself has taken it
        return None


RARE = math.log(0.01)  # a likely text goes on with a word that the prompt begins
MOST_ROWS = 256  # the heaviest, of those that are looked at
LIKELIER = math.log(10)  # nats by which two words have to be likelier with a space between them
CONTEXT, LONGEST = 32, 8  # tokens before the last word of a prompt, and of that word, which are read again
SHOWN = 40  # characters


def share_cut_off(particles: Particles, constraint: Constraint) -> float | None:
    """Share of the weight on texts that go on to the last token without need: one token shorter they would satisfy α as well.

    So they are cut where the horizon happens to be. A text whose last token the constraint needs ends as it was asked to.

    Returns:
        None for a vocabulary without texts or without an end.
    """
    tokenizer, tokens = particles.tokenizer, particles.tokens
    if not (tokenizer.eos_ids and tokenizer.has_text):
        return None
    weights = particles.weights
    going = ~is_end(tokens, tokenizer.eos_ids).any(-1)
    rows = going.nonzero()[:, 0]
    rows = rows[weights[rows].argsort(descending=True)][:MOST_ROWS]
    seen = float(weights[rows].sum())
    if seen == 0.0:
        return 0.0
    bound = constraint.bind(tokenizer)
    cut = sum(
        weight
        for y, weight in zip(tokens[rows].tolist(), weights[rows].tolist(), strict=True)
        if bound.evaluate([*y[:-1], tokenizer.eos_ids[0]], tokenizer)
    )
    return float(weights[going].sum() * cut / seen)


def missing_space(particles: Particles, circuit: Circuit, before: Sequence[int], model: LanguageModel) -> str | None:
    """A sentence where a space between prompt and text seems to be missing; None where nothing says so.

    The prompt ends in a letter or a digit, no allowed text begins with white space, what is left is rare, and the model finds
    the two words likelier with a space between them: a prompt that ends inside a word, as "The elep", needs none.

    Args:
        particles: what was found.
        circuit: of the constraint.
        before: the ids of the prompt.
        model: before the prompt; it reads two rows of a few tokens, only where all the rest says that a space is missing.
    """
    tokenizer = particles.tokenizer
    if not before or circuit.reader is None or not particles.log_evidence < RARE or not _is_word(tokenizer, before[-1]):
        return None
    best = particles.texts[int(particles.weights.argmax())]
    if not best[:1].isalnum():
        return None
    allowed = circuit.reader.allowed_tokens(0, circuit.reader.initial(1))[0].nonzero()[:, 0].tolist()
    beginnings = (tokenizer.token_bytes[token] for token in allowed)
    if any(each[:1].isspace() for each in beginnings if each) or not _expects_space(model, before, best.split()[0][:SHOWN]):
        return None
    meant = f" {best[:SHOWN]}{'…' * (len(best) > SHOWN)}"
    return f"the prompt ends in a word and no allowed text begins with a space; did you mean {meant!r}?"


def _expects_space(model: LanguageModel, before: Sequence[int], word: str) -> bool:
    """Is the last word of the prompt likelier with a space before the next word than without, each in its own tokens?

    The last word is spelled anew, as the tokens of its first half are not those of the whole word.
    """
    tokenizer = model.tokenizer
    first = len(before) - 1
    while first and len(before) - first < LONGEST and not (tokenizer.token_bytes[before[first]] or b" ")[:1].isspace():
        first -= 1
    head, last = list(before[max(0, first - CONTEXT) : first]), tokenizer.decode(before[first:])
    try:
        rows = [list(tokenizer.canonize(tokenizer.encode(last + between + word), head)) for between in ("", " ")]
        width = max(map(len, rows))
        tokens = torch.tensor([[*row, *[row[-1]] * (width - len(row))] for row in rows])
        scores = model.prompted(head or "").token_scores(tokens)
    except LocoreError:  # a model that has no space, or cannot read so few tokens: the answer stands without
        return False
    counted = torch.arange(width) < torch.tensor([len(row) for row in rows])[:, None]
    together, apart = torch.where(counted, scores, 0.0).sum(-1).tolist()
    return bool(apart > together + LIKELIER)


def _is_word(tokenizer: Tokenizer, token: int) -> bool:
    """Does a token end in a letter or a digit?"""
    return (tokenizer.token_bytes[token] or b"").decode("utf-8", errors="ignore")[-1:].isalnum()
