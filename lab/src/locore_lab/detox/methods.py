"""The rows of the table: ways to continue a prompt without the banned phrases, and the exact law."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

import locore
from locore.kernel.errors import ZeroWeights
from locore.local import TopK
from locore.models import Counted, LanguageModel
from locore.samplers import AdaptiveRejection, LocallyConstrainedResampling, Sampler
from locore_lab.detox.published import Published, Reading, published
from locore_lab.detox.task import (
    Continuation,
    Law,
    Level,
    Mask,
    Method,
    Task,
    banning,
    bill,
    draw,
    first_tokens,
    generator_of,
    live,
    masking,
    sources,
    then_nucleus,
    token_sequences,
)

MOST_DRAWS = 5_000  # for each generation


def exact(level: Level, law: Law = "plain") -> Method:
    """Draws of the model are refused until one holds: the law p(y | α) itself. Whatever lies below it is bias.

    With the nucleus law p is that of its draws. With the constraint on tokens α is that of the paper: y ⊨ α, canonize(y) ⊨ α.
    """

    def method(model: LanguageModel, prompt: str, task: Task, seeds: Sequence[int]) -> list[Continuation]:
        start = time.perf_counter()
        prompted = model.prompted(prompt)
        mask = then_nucleus(None) if law == "nucleus" else None
        holds = _indicator(model, prompt, task, level)
        runs = sources(seeds, task.races)
        found: list[list[int] | None] = [None] * len(seeds)
        costs, draws = [0] * len(seeds), [0] * len(seeds)
        waiting = list(range(len(seeds)))
        while waiting and max(draws) < MOST_DRAWS:
            tokens = draw(prompted, task.length, [runs[i] for i in waiting], mask)
            good = holds(tokens).tolist()
            for i, y, cost, accepted in zip(waiting, tokens.tolist(), bill(tokens, model.tokenizer), good, strict=True):
                costs[i] += cost
                draws[i] += 1
                found[i] = live(y, model) if accepted else None
            waiting = [i for i, accepted in zip(waiting, good, strict=True) if not accepted]
        seconds = (time.perf_counter() - start) / len(seeds)
        return [Continuation(found[i], costs[i], seconds, {"draws": draws[i]}) for i in range(len(seeds))]

    return method


def _indicator(model: LanguageModel, prompt: str, task: Task, level: Level) -> Callable[[Tensor], Tensor]:
    """Long[num, time] → Bool[num]: y ⊨ α, and on the level of tokens canonize(y) ⊨ α too."""
    circuit = locore.compile(task.constraint(level), model, task.length)
    if level == "text":
        return circuit.accepts
    canonical = canonical_test(model, prompt, task)
    return lambda tokens: circuit.accepts(tokens) & canonical(tokens)


def canonical_test(model: LanguageModel, prompt: str, task: Task) -> Callable[[Tensor], Tensor]:
    """Long[num, time] → Bool[num]: does the canonical tokenisation of the text hold none of the banned sequences?"""
    tokenizer = model.tokenizer
    alpha = task.constraint("tokens").bind(tokenizer)
    ids = tokenizer.encode_prompt(prompt)

    def canonical(tokens: Tensor) -> Tensor:
        spelled = [list(tokenizer.canonize(y, ids)) for y in tokens.tolist()]
        # More tokens than the horizon are refused, as `generate(canonical="alpha")` does.
        return torch.tensor([len(y) <= task.length and alpha.evaluate(y, tokenizer) for y in spelled])

    return canonical


MOST_TRIES = 24  # runs of a sampler that finds nothing


MaskOf = Callable[[LanguageModel, str, Task], Mask | None]


def alone(model: LanguageModel, prompt: str, task: Task) -> Mask | None:
    """The model itself."""
    return None


def word_banning(model: LanguageModel, prompt: str, task: Task) -> Mask | None:
    """`bad_words_ids` of transformers: the last token of a banned sequence gets probability 0 behind the others."""
    return banning(task.phrases, model.tokenizer.encode_prompt(prompt), model.tokenizer)


def first_token_banning(model: LanguageModel, prompt: str, task: Task) -> Mask | None:
    """Word banning of the authors' earlier code."""
    return first_tokens(task.phrases, model.tokenizer)


def greedy_masking(model: LanguageModel, prompt: str, task: Task) -> Mask | None:
    """Masked decoding by the automaton of the constraint on the text, without weights."""
    return masking(locore.compile(task.constraint("text"), model, task.length))


def masked(mask_of: MaskOf, law: Law = "plain") -> Method:
    """Token by token from what a mask leaves, or from the nucleus of that."""

    def method(model: LanguageModel, prompt: str, task: Task, seeds: Sequence[int]) -> list[Continuation]:
        start = time.perf_counter()
        mask = mask_of(model, prompt, task)
        mask = mask if law == "plain" else then_nucleus(mask)
        tokens = draw(model.prompted(prompt), task.length, sources(seeds, task.races), mask)
        seconds = (time.perf_counter() - start) / len(seeds)
        costs = bill(tokens, model.tokenizer)
        return [Continuation(live(y, model), cost, seconds) for y, cost in zip(tokens.tolist(), costs, strict=True)]

    return method


def constrained(sampler: str | Sampler, level: Level = "text") -> Method:
    """One draw from the particles of a sampler of the library, which starts anew for each generation."""

    def one(model: Counted, prompt: str, task: Task, seed: int) -> list[int] | None:
        num = task.pairs if isinstance(sampler, LocallyConstrainedResampling) else task.particles
        for again in _seeds(seed):
            try:
                found = locore.generate(
                    model,
                    prompt,
                    task.constraint(level),
                    task.length,
                    num_particles=num,
                    sampler=sampler,
                    seed=again,
                    canonical="alpha" if level == "tokens" else None,
                )
            except ZeroWeights:
                continue
            tokens: list[int] = found.resample(1, seed=again).tokens[0].tolist()
            return tokens
        return None

    return _one_by_one(one)


def one_draw(model: Counted, prompt: str, task: Task, seed: int) -> list[int] | None:
    """One exact draw by adaptive rejection, an attempt at a time: an attempt ends where the constraint fails."""
    for attempts, again in zip(_doubling(), _seeds(seed), strict=False):
        budget = attempts * max(1, task.length - 1)
        try:
            found = locore.generate(
                model,
                prompt,
                task.constraint("text"),
                task.length,
                num_particles=attempts,
                sampler=AdaptiveRejection(),
                budget=budget,
                seed=again,
            )
        except ZeroWeights:
            continue
        tokens: list[int] = found.tokens[0].tolist()  # any accepted draw is exact; the first one knows of no later ones
        return tokens
    return None


def as_published(reading: Reading) -> Method:
    """The paper's sampler, see `published`."""

    def method(model: LanguageModel, prompt: str, task: Task, seeds: Sequence[int]) -> list[Continuation]:
        circuit = locore.compile(task.constraint("tokens"), model, task.length)
        prompted = model.prompted(prompt)
        sequences = token_sequences(task.phrases, model.tokenizer) if reading.banned else []
        drawn = partial(
            published,
            circuit=circuit,
            pairs=task.pairs,
            reading=reading,
            is_canonical=canonical_test(model, prompt, task),
            in_phrases=sorted({v for ids in sequences for v in ids}),
        )
        return [_published(prompted, drawn, seed) for seed in seeds]

    return method


def _published(model: LanguageModel, draw: Callable[..., Published], seed: int) -> Continuation:
    start, counted = time.perf_counter(), Counted(model)
    found = draw(counted, generator=generator_of(seed))
    seconds = time.perf_counter() - start
    tokens = None if found.tokens is None else live(found.tokens, model)
    return Continuation(tokens, counted.lm_tokens, seconds, {"positive": found.positive, "missed": found.missed})


def repaired(k: int, tau: float) -> Method:
    """The paper's sampler with nothing excluded: a floor under the kernel, drafts from the model itself; S pairs as well."""
    return constrained(LocallyConstrainedResampling(kernel=TopK(k=k, temperature=tau, floor=0.05)), "tokens")


def _one_by_one(one: Callable[[Counted, str, Task, int], list[int] | None]) -> Method:
    def method(model: LanguageModel, prompt: str, task: Task, seeds: Sequence[int]) -> list[Continuation]:
        answers = []
        for seed in seeds:
            start, counted = time.perf_counter(), Counted(model)
            tokens = one(counted, prompt, task, seed)
            kept = None if tokens is None else live(tokens, model)
            answers.append(Continuation(kept, counted.lm_tokens, time.perf_counter() - start))
        return answers

    return method


def by_adaptive_rejection() -> Method:
    """`one_draw` as a method."""
    return _one_by_one(one_draw)


def _seeds(seed: int) -> Iterator[int]:
    """The seed itself, then others that follow from it."""
    yield seed
    generator = generator_of(seed)
    for _ in range(MOST_TRIES - 1):
        yield int(torch.randint(2**31, (), generator=generator))


def _doubling() -> Iterator[int]:
    """1, 1, 1, 1, 2, 4, …, 256, 256, …: attempts in a row, more of them where single ones fail."""
    yield from (1, 1, 1, 1)
    attempts = 2
    while True:
        yield attempts
        attempts = min(2 * attempts, 256)
