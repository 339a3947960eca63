"""Is what runs say of a product true? Random rewards on random tables, with every sum known: bounds, intervals, verdicts.

A problem is a table of conditionals over six tokens, a constraint, and a reward: letters that are counted, noise (each text its
own), an event that is rare and worth much, that beside small differences, a yes or no, a constant, a phrase that has a bonus,
or nothing at all. Half of those that can have one have a bound, and a third a function of beginnings, which may mislead. Every
sequence is read plainly, so log Z is known. For each family and each sampler:

- certain bounds: how often they were wrong, which must be never;
- the interval: how often it holds log Z, how often it is a point (which only an exact answer may be), and how wide it is;
- "trust": how often it is said, and how often Ẑ is then wrong by more than 30 %. Exact draws are trusted for what they are,
  however few; how far off Ẑ may be is for their interval to say, so these are counted apart.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from statistics import median, quantiles
from typing import Annotated

import torch

import locore
from locore import ban, bonus, choice, contains, ends_with, potential, predicate, regex, starts_with
from locore.kernel.errors import BudgetExceeded, InvalidArgument, ZeroWeights
from locore.kernel.tokenizer import Tokenizer
from locore.models import TableModel
from locore.potentials import Target, target_of
from locore.potentials.target import Term
from locore_lab.harness import Case, Row, Some, measurement, option
from locore_lab.tasks.measures import OFF

TOKENS = ["a", "b", "ab", " ", "c", None]
LENGTH = 4
SAMPLERS = [
    "auto",
    "smc",
    "swor",
    "twisted",
    "rejection",
    "masked",
    "best-first",
    "exact",
    "quick",
    "cars",
    "oversampling",
    "lcr",
]
FAMILIES = ["nothing", "constant", "letters", "noise", "yes or no", "rare event", "rare event beside noise", "bonus"]
PARTICLES = (1, 4, 6, 16, 64)
SLACK = 1e-7  # nats, for rounding
POINT = 1e-9  # nats: an interval of no width
Reward = Callable[[str], float]


@dataclass(frozen=True, eq=False)
class Problem:
    """A target whose normaliser is known."""

    family: str
    model: TableModel
    target: Target  # what is sampled
    log_z: float  # Σ p(y) 1[y ⊨ α] φ(y), by reading every sequence


def table(seed: int) -> TableModel:
    """Conditionals far from uniform."""
    tokenizer = Tokenizer.from_tokens(TOKENS, eos_ids=[len(TOKENS) - 1])
    sharp = random.Random(seed).choice([0.3, 0.6, 1.5])
    drawn = TableModel.random(len(TOKENS), LENGTH, seed=seed, eos=True, concentration=sharp)
    return TableModel(drawn._tables, tokenizer=tokenizer)


def drawn_constraint(chance: random.Random) -> locore.Constraint:
    """One that a share of the texts satisfies."""
    kinds = [
        locore.from_json({"type": "true"}),
        ban(chance.choice(["c", "ba", "bb", " "])),
        contains(chance.choice(["a", "b", "ab", "c"])),
        choice(["a", "ab", "abab", "ca"]),
        ends_with(chance.choice(["a", "b", "c"])),
        regex("[abc]*"),
        starts_with(chance.choice(["a", "b"])) & ~contains("c"),
    ]
    return chance.choice(kinds)


def sequences(model: TableModel) -> tuple[torch.Tensor, torch.Tensor]:
    """Long[num, length] of positive probability, and f64[num] their log p."""
    every = torch.cartesian_prod(*[torch.arange(len(TOKENS))] * LENGTH)
    scores = model.score(every)
    return every[scores > -math.inf], scores[scores > -math.inf]


def drawn(number: int, seed: int, families: Iterable[str] = FAMILIES) -> Iterator[Problem]:
    """`number` of them, families in turn; those that nothing satisfies are drawn again."""
    chance, names, made = random.Random(seed), list(families), 0
    while made < number:
        model, constraint = table(chance.randrange(10**6)), drawn_constraint(chance)
        tokens, scores = sequences(model)
        holds = torch.tensor([constraint.evaluate(y, model.tokenizer) for y in tokens.tolist()])
        if not bool(holds.any()):
            continue
        law: dict[str, float] = defaultdict(float)
        for y, log in zip(tokens[holds].tolist(), scores[holds].tolist(), strict=True):
            law[model.tokenizer.decode(y)] += math.exp(log)
        family = names[made % len(names)]
        factor, reward = drawn_reward(family, law, chance)
        log_z = math.log(sum(mass * math.exp(reward(text)) for text, mass in law.items()) or 1e-320)
        if log_z < -700:
            continue
        known = target_of(constraint) if factor is None else constraint * factor
        assert known is not None
        yield Problem(family, model, known, log_z)
        made += 1


def drawn_reward(family: str, law: dict[str, float], chance: random.Random) -> tuple[Term | None, Reward]:
    """A factor and its logarithm; texts come with their probabilities, so that an event can be rare."""
    if family == "nothing":
        return None, lambda text: 0.0
    if family == "bonus":
        phrase, nats = chance.choice(["ab", "bb", "c", "ca", "a b", "cc"]), chance.uniform(-4.0, 9.0)
        return bonus(contains(phrase), nats), lambda text: nats * (phrase in text)
    if family == "yes or no":
        right = chance.choice(list(law))[:2]
        asked = predicate(
            lambda text: text.startswith(right),
            prefix=(lambda text: right.startswith(text[:2])) if chance.random() < 0.3 else None,
        )
        return asked, lambda text: 0.0 if text.startswith(right) else -math.inf
    reward = _reward(family, law, chance)
    most = max(map(reward, law))
    bound = most + chance.choice([0.0, 0.0, 0.5]) if chance.random() < 0.5 else None
    sign = chance.choice([1.0, 1.0, -1.0])
    ahead = (lambda texts: [sign * reward(text) for text in texts]) if chance.random() < 0.33 else None
    return potential(lambda texts: [reward(text) for text in texts], prefix=ahead, bound=bound), reward


def _reward(family: str, law: dict[str, float], chance: random.Random) -> Reward:
    scale, salt = chance.uniform(0.3, 1.5), str(chance.random())
    by_letter = {letter: chance.gauss(0, 1) for letter in "abc "}

    def letters(text: str) -> float:
        return scale * sum(by_letter[letter] for letter in text)

    def noise(text: str) -> float:
        return scale * random.Random(sha256((salt + text).encode()).digest()).gauss(0, 1)

    rarity, total = math.exp(chance.uniform(math.log(3e-4), math.log(3e-2))), sum(law.values())
    event = min(law, key=lambda text: abs(math.log(law[text] / total / rarity)))
    worth = chance.uniform(2.0, 9.0)
    level = chance.uniform(-2.0, 2.0)
    rewards: dict[str, Reward] = {
        "constant": lambda text: level,
        "letters": letters,
        "noise": noise,
        "rare event": lambda text: worth * (text == event),
        "rare event beside noise": lambda text: noise(text) + worth * (text == event),
    }
    return rewards[family]


@dataclass
class Tally:
    """Runs of one kind."""

    runs: int = 0
    failed: int = 0
    wrong_bounds: int = 0
    intervals: int = 0
    covered: int = 0
    points: int = 0
    trusted: int = 0
    off: int = 0
    exact_draws_off: int = 0
    widths: list[float] = field(default_factory=list)

    def add(self, p: locore.Particles, log_z: float) -> None:
        """One run."""
        self.runs += 1
        for low, high in (p.log_evidence_bounds,):
            self.wrong_bounds += not low - SLACK <= log_z <= high + SLACK
        low, high = p.log_evidence_interval
        known = p.record.enumerated or p.log_evidence_bounds[1] - p.log_evidence_bounds[0] < SLACK
        if not math.isnan(low):
            self.intervals += 1
            self.covered += low - SLACK <= log_z <= high + SLACK
            self.points += high - low < POINT and not known
            self.widths.append(high - low)
        if p.verdict.level == "trust":
            is_off = abs(math.expm1(p.log_evidence - log_z)) > OFF
            self.trusted += not p.record.exact_draws
            self.off += is_off and not p.record.exact_draws
            self.exact_draws_off += is_off and p.record.exact_draws

    def row(self) -> Row:
        """As written down."""
        plain = {name: value for name, value in asdict(self).items() if name != "widths"}
        rate = self.covered / self.intervals if self.intervals else None
        finite = [width for width in self.widths if width < math.inf]
        return {
            **plain,
            "coverage": rate,
            "trust_off": self.off / self.trusted if self.trusted else None,
            "median_width": median(self.widths) if self.widths else None,
            "upper_decile_of_finite_widths": quantiles(finite, n=10)[-1] if len(finite) > 1 else None,
        }


def measured(
    cases: Iterable[Problem], samplers: Iterable[str], particles: Iterable[int], seeds: int = 1
) -> dict[tuple[str, str, int], Tally]:
    """By family, sampler and number of particles."""
    tallies: dict[tuple[str, str, int], Tally] = defaultdict(Tally)
    names, sizes = list(samplers), list(particles)
    for number, problem in enumerate(cases):
        for name in names:
            for size in sizes:
                for repeat in range(seeds):
                    tally, seed = tallies[problem.family, name, size], 1000 * number + repeat
                    try:
                        p = locore.generate(
                            problem.model, "", problem.target, LENGTH, num_particles=size, sampler=name, seed=seed, ending="eos"
                        )
                    except (ZeroWeights, BudgetExceeded, InvalidArgument):
                        tally.failed += 1
                        continue
                    tally.add(p, problem.log_z)
    return tallies


def together(tallies: dict[tuple[str, str, int], Tally], place: int | None) -> dict[str, Tally]:
    """Summed over all but one part of the key; over all of it for None."""
    found: dict[str, Tally] = defaultdict(Tally)
    for key, tally in tallies.items():
        whole = found["all" if place is None else str(key[place])]
        for name, value in vars(tally).items():
            setattr(whole, name, getattr(whole, name) + value)
    return dict(found)


def views(tallies: dict[tuple[str, str, int], Tally]) -> list[Row]:
    """By family, by sampler, by number of particles, of all, and each cell."""
    places = {"family": 0, "sampler": 1, "particles": 2, "all": None}
    rows = [
        {"view": view, "what": what, **tally.row()}
        for view, place in places.items()
        for what, tally in together(tallies, place).items()
    ]
    return rows + [{"view": "cell", "what": "/".join(map(str, key)), **tally.row()} for key, tally in tallies.items()]


@measurement(
    "view | what | runs | none | wrong bounds | interval holds | points | width | trust | off | exact draws off",
    "{view} | {what} | {runs} | {failed} | {wrong_bounds} | {coverage:.1%} | {points} | {median_width:.2g} | {trusted} | {off} "
    "| {exact_draws_off}",
    quick={"problems": 8, "samplers": ["smc"], "particles": [4]},
)
def run(
    problems: int = 200,
    seed: int = 1,
    seeds: Annotated[int, "runs of each cell"] = 1,
    samplers: Annotated[Some, option("Only these.", "--sampler")] = None,
    families: Annotated[Some, option("Only these.", "--family")] = None,
    particles: list[int] = PARTICLES,
) -> Iterator[Case]:
    known = drawn(problems, seed, families or FAMILIES)
    yield {}, lambda: views(measured(known, samplers or SAMPLERS, particles, seeds))
