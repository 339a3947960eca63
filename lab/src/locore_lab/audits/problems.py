"""Phrases whose probability is known, spread evenly over 1e-2 … 1e-10: of chains, of hidden chains, and of a real model.

A chain's next token depends on the last one, so dynamic programming over (last token × automaton) is exact. A hidden chain
moves among topics that nobody sees, each with letters of its own: its next token depends on the whole text, as a language
model's does, and a sum over (topic × automaton) is exact too. Of the real model all prefixes are read that are more probable
than a millionth of the answer, see `locore_lab.bench.verdicts.truth`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import locore
from locore import Constraint, Tokenizer, ban
from locore.circuits import Circuit
from locore.kernel.errors import CannotScore, LocoreError
from locore.models import LanguageModel
from locore_lab.bench.verdicts import truth as read_truth
from locore_lab.fidelity.drawn import beginning, words_of
from locore_lab.fidelity.problems import Problem, chain, letters, open_model
from locore_lab.fidelity.truth import first_tokens, transitions
from locore_lab.shared import seed_of

VOCAB, TOPICS, LENGTH = 48, 6, 20
STAYS, SMALLEST = 0.9, 1e-3  # of topics; share of the uniform in what each writes
HIGH, LOW = -2.0, -10.0  # log10 of the probabilities
NEAR = 0.5  # decades from what is wanted
TRIES, CANDIDATES = 400, 60
UNSURE = 0.02  # of an answer that may be larger by this


@dataclass(frozen=True)
class Known:
    """A question, and its answer.

    Attributes:
        name, family: of the problem.
        model: prompted.
        phrases: any of which is asked about.
        length: the horizon, in tokens.
        log_p: the natural log of the answer.
        missing: by how much it may be larger.
    """

    name: str
    family: str
    model: LanguageModel
    phrases: tuple[str, ...]
    length: int
    log_p: float
    missing: float = 0.0

    @property
    def decade(self) -> int:
        """-3 for 1e-3 up to 1e-2."""
        return math.floor(self.log_p / math.log(10))


class HiddenChain(LanguageModel):
    """Topics that follow each other unseen, with f64[topics], f64[topics, topics] and f64[topics, vocab] probabilities."""

    full_support = True

    def __init__(self, initial: Tensor, transition: Tensor, emission: Tensor, tokenizer: Tokenizer) -> None:
        self.initial, self.transition, self.emission, self.tokenizer = initial, transition, emission, tokenizer

    @classmethod
    def random(cls, seed: int) -> HiddenChain:
        """Sticky topics, each with a few letters."""
        generator = np.random.default_rng(seed)
        emission = torch.from_numpy(generator.dirichlet(np.full(VOCAB, 0.2), size=TOPICS))
        stays = torch.eye(TOPICS, dtype=torch.float64) * STAYS
        moves = stays + (1 - STAYS) * torch.from_numpy(generator.dirichlet(np.full(TOPICS, 0.5), size=TOPICS))
        initial = torch.zeros(TOPICS, dtype=torch.float64)
        initial[0] = 1.0
        return cls(initial, moves, (1 - SMALLEST) * emission + SMALLEST / VOCAB, letters(VOCAB))

    def prompted(self, prompt: object) -> HiddenChain:
        """The same for the empty prompt."""
        if len(prompt):  # type: ignore[arg-type]
            raise CannotScore("A hidden chain has no prompt. Use the empty one.")
        return self

    def _log_probs(self, tokens: Tensor) -> Tensor:
        belief, rows = self.initial.expand(len(tokens), -1), []
        for position in range(tokens.shape[1]):
            rows.append(belief @ self.emission)
            seen = belief * self.emission.T[tokens[:, position]]
            belief = (seen / seen.sum(-1, keepdim=True)) @ self.transition
        return torch.stack(rows, 1).log()


def event(phrases: tuple[str, ...]) -> Constraint:
    """That any of them is written."""
    return ~ban(phrases)


def hidden_truth(model: HiddenChain, circuit: Circuit) -> float:
    """log p(α), by a sum over topics and states of the automaton."""
    reader, every = circuit.reader, torch.arange(VOCAB)
    assert reader is not None
    mass = {int(reader.initial(1)): model.initial}
    for position in range(circuit.length):
        following: dict[int, Tensor] = {}
        for state, topics in mass.items():
            allowed = reader.allowed_tokens(position, torch.tensor([state]))[0]
            tokens = every[allowed]
            after = reader.step(position, torch.full_like(tokens, state), tokens)
            for number in sorted(set(after.tolist())):
                moved = (topics * model.emission[:, tokens[after == number]].sum(-1)) @ model.transition
                following[number] = following.get(number, 0.0) + moved
        mass = following
    return math.log(sum(float(topics.sum()) for topics in mass.values()))


def about(model: LanguageModel, phrase: Tensor) -> float:
    """Nearly log10 of how probable it is that a phrase Long[letters] is written; only for finding one."""
    if isinstance(model, HiddenChain):
        belief = torch.linalg.matrix_power(model.transition, LENGTH // 2)[0]
        for token in phrase.tolist():
            belief = (belief * model.emission[:, token]) @ model.transition
        return math.log10(LENGTH * float(belief.sum()))
    start, step = transitions(model)
    middle = start.exp() @ torch.linalg.matrix_power(step.exp(), LENGTH // 2)
    return math.log10(LENGTH * float(middle[phrase[0]])) + float(step[phrase[:-1], phrase[1:]].sum()) / math.log(10)


def of_tables(family: str, seed: int, number: int, wanted: float) -> Known | None:
    """Two phrases about as probable as wanted (log10); None where none is found."""
    drawn = seed_of(family, seed, number)
    generator = torch.Generator().manual_seed(drawn)
    peak = (0.05, 0.1, 0.3, 1.0)[number % 4]
    model: LanguageModel = HiddenChain.random(drawn) if family == "hidden" else chain(VOCAB, drawn, peak)
    found: dict[str, float] = {}
    for _ in range(TRIES):
        phrase = torch.randint(VOCAB, (int(torch.randint(2, 7, (), generator=generator)),), generator=generator)
        if abs(about(model, phrase) - wanted) < NEAR:
            found[model.tokenizer.decode(phrase.tolist())] = 0.0
        if len(found) == 2:
            break
    if not found:
        return None
    phrases = tuple(found)
    circuit = locore.compile(event(phrases), model, LENGTH)
    log_p = hidden_truth(model, circuit) if isinstance(model, HiddenChain) else first_tokens(circuit, model)[0]
    return Known(f"{family}-{number}", family, model, phrases, LENGTH, log_p)


def of_stories(models: Path, seed: int, number: int) -> Known | None:
    """A word of another story, within a few tokens; None where its answer takes too long."""
    generator = torch.Generator().manual_seed(seed_of("stories", seed, number))
    base = open_model("stories260k", models)
    start, length = base.tokenizer.encode_prompt(""), int(torch.randint(3, 7, (), generator=generator))
    model = base.prompted([*start, *beginning(base, generator)])
    elsewhere = base.prompted([*start, *beginning(base, generator)]).sample(64, 12, generator).tokens.tolist()
    words = [word for word in words_of([base.tokenizer.decode(y) for y in elsewhere]) if len(word) > 2]
    phrases = (words[int(torch.randint(len(words), (), generator=generator))],)
    problem = Problem(f"stories-{number}", "stories260k", (), event(phrases), length, "enumerate", 1e-8)
    try:
        with torch.no_grad():
            known = read_truth(problem, model, locore.compile(problem.constraint, model, length))
    except LocoreError:
        return None
    return Known(problem.name, "stories", model, phrases, length, known.log_z, known.missing)


def drawn(family: str, seed: int, number: int, models: Path) -> Iterator[Known]:
    """So many problems of a family, spread evenly over the decades as far as that goes."""
    each = -(-number // round(HIGH - LOW))
    decades: dict[int, int] = {}
    given = 0
    for tried in range(max(number, CANDIDATES) * 2):
        wanted = HIGH - 0.5 - tried % round(HIGH - LOW)
        known = of_stories(models, seed, tried) if family == "stories" else of_tables(family, seed, tried, wanted)
        if known is None or not LOW <= known.log_p / math.log(10) < HIGH or known.missing > UNSURE:
            continue
        decades[known.decade] = decades.get(known.decade, 0) + 1
        if decades[known.decade] > each:
            continue
        yield known
        given += 1
        if given == number:
            return
