"""From an expression to a non-deterministic automaton with look-around.

Thompson, "Regular expression search algorithm", CACM 1968: every expression becomes a few instructions that lead on to a next
one. They are made from the end to the start, so that the next one is always known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from locore.automata.byte_machine import Numbered
from locore.automata.regex.dfa import WORK, Budget, Dfa
from locore.automata.regex.language import (
    Ahead,
    Behind,
    Both,
    Chars,
    CharSet,
    Complement,
    Concat,
    Either,
    Graph,
    Language,
    Repeat,
    Rewritten,
)
from locore.kernel.limits import check_progress

SelfContained = Callable[[Language], Dfa]  # the automaton of a part that is read by itself
Label = Callable[[CharSet], Language]


@dataclass(frozen=True)
class Read:
    """Read one character of set number `chars`, then go on at `next`."""

    chars: int
    next: int


@dataclass
class Split:
    """Go on at each of `targets`, reading nothing."""

    targets: list[int]


@dataclass(frozen=True)
class LookAhead:
    """Go on at `next` if the program at `entry` can (`negative`: cannot) read the rest of the text."""

    entry: int
    negative: bool
    next: int


@dataclass(frozen=True)
class LookBehind:
    """Go on at `next` if search number `search` ends (`negative`: does not end) here."""

    search: int
    negative: bool
    next: int


@dataclass(frozen=True)
class Match:
    """The text may end here."""


@dataclass(frozen=True)
class Rest:
    """Anything may follow."""


Instruction = Read | Split | LookAhead | LookBehind | Match | Rest


@dataclass
class Nfa:
    """A program of instructions.

    Attributes:
        code: the instructions.
        start: where the text begins to be read.
        searches: entries of the programs that look-behinds search for, from every position on; inner ones come first.
        sets: the sets of characters that instructions read.
    """

    code: list[Instruction] = field(default_factory=list)
    start: int = 0
    searches: list[int] = field(default_factory=list)
    sets: Numbered[CharSet] = field(default_factory=Numbered)


def build_nfa(language: Language, budget: Budget, self_contained: SelfContained, open_end: bool = False) -> Nfa:
    """The program of an expression; with an open end anything may follow it.

    Raises:
        BudgetExceeded: repetitions, written out, take more positions than the budget has.
    """
    budget.require("positions", _size(language, {}))
    builder = _Builder(self_contained, budget)
    builder.nfa.start = builder.build(language, builder.add(Rest() if open_end else Match()))
    return builder.nfa


def distances(nfa: Nfa) -> list[float]:
    """For each instruction how many characters lie at least between it and an end; looks are taken to succeed."""
    distance = [math.inf] * len(nfa.code)
    changed = True
    while changed:  # instructions are made from the end to the start, so that one round is enough but for loops
        changed = False
        for place, instruction in enumerate(nfa.code):
            match instruction:
                case Read(_, following):
                    least = 1 + distance[following]
                case Split(targets):
                    least = min((distance[target] for target in targets), default=math.inf)
                case LookAhead(next=following) | LookBehind(next=following):
                    least = distance[following]
                case _:
                    least = 0.0
            if least < distance[place]:
                distance[place], changed = least, True
    return distance


def _size(language: Language, sizes: dict[int, int]) -> int:
    """About how many instructions it takes; parts that are read by themselves count once they are built."""
    if id(language) not in sizes:
        sizes[id(language)] = 1 + _inner_size(language, sizes)
    return sizes[id(language)]


def _inner_size(language: Language, sizes: dict[int, int]) -> int:
    match language:
        case Concat(parts) | Either(parts):
            return sum(_size(part, sizes) for part in parts)
        case Repeat(part, least, most):
            copies = least + 1 if most is None else most
            return copies * (1 + _size(part, sizes))
        case Graph(_, edges, _):
            return sum(_size(label, sizes) for _, label, _ in edges)
        case Ahead(part, _) | Behind(part, _):
            return _size(part, sizes)
    return 0


class _Builder:
    def __init__(self, self_contained: SelfContained, budget: Budget) -> None:
        self.nfa = Nfa()
        self._self_contained = self_contained
        self._budget = budget
        self._search_numbers: dict[Language, int] = {}

    def add(self, instruction: Instruction) -> int:
        self.nfa.code.append(instruction)
        return len(self.nfa.code) - 1

    def build(self, language: Language, following: int) -> int:
        """Instructions that read `language` and then go on at `following`; returns the first of them."""
        match language:
            case Chars(chars):
                return self._read(chars, following)
            case Concat(parts):
                for part in reversed(parts):
                    check_progress(*WORK)
                    following = self.build(part, following)
                return following
            case Either(parts):
                return self.add(Split([self.build(part, following) for part in parts]))
            case Repeat():
                return self._repeat(language, following)
            case Graph():
                return self._graph(language, following)
            case Ahead(part, negative):
                entry = self.build(part, self.add(Rest()))
                return self.add(LookAhead(entry, negative, following))
            case Behind(part, negative):
                return self.add(LookBehind(self._search(part), negative, following))
            case Both() | Complement():
                return self._embed(language, Chars, following)
            case Rewritten(part, write):
                return self._embed(part, write, following)
        raise TypeError(f"not an expression: {language!r}")

    def _read(self, chars: CharSet, following: int) -> int:
        return self.add(Read(self.nfa.sets.number(chars), following))

    def _repeat(self, repeat: Repeat, following: int) -> int:
        entry = following
        if repeat.most is None:
            loop = Split([following])
            entry = self.add(loop)
            loop.targets.append(self.build(repeat.part, entry))
        else:
            for _ in range(repeat.most - repeat.least):
                entry = self.add(Split([self.build(repeat.part, entry), following]))
        for _ in range(repeat.least):
            entry = self.build(repeat.part, entry)
        return entry

    def _graph(self, graph: Graph, following: int) -> int:
        states = [Split([following] if state in graph.final else []) for state in range(graph.num_states)]
        numbers = [self.add(state) for state in states]
        for source, label, target in graph.edges:
            states[source].targets.append(self.build(label, numbers[target]))
        return numbers[0]

    def _search(self, part: Language) -> int:
        if part not in self._search_numbers:
            entry = self.build(part, self.add(Match()))  # its own look-behinds get smaller numbers
            self._search_numbers[part] = len(self.nfa.searches)
            self.nfa.searches.append(entry)
        return self._search_numbers[part]

    def _embed(self, language: Language, label: Label, following: int) -> int:
        graph = as_graph(self._self_contained(language), label)
        self._budget.require("positions", len(self.nfa.code) + _size(graph, {}))
        return self._graph(graph, following)


def as_graph(dfa: Dfa, label: Label) -> Graph:
    """A deterministic automaton as an expression; `label` says how each set of characters is written."""
    number = {0: 0}
    for state in dfa.useful_states():
        number.setdefault(state, len(number))
    labels: dict[CharSet, Language] = {}
    edges = []
    for source in number:
        for target, chars in dfa.successors(source):
            if target not in number:
                continue
            if chars not in labels:
                labels[chars] = label(chars)
            edges.append((number[source], labels[chars], number[target]))
    final = frozenset(number[state] for state in number if dfa.accepting[state])
    return Graph(len(number), tuple(edges), final)
