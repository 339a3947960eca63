"""Turn the automaton leaves of a constraint into atoms, merging text leaves before they meet the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce

from locore.compilers.atom import State
from locore.compilers.lift import TokenAutomaton, lift_bytes, lift_tokens
from locore.compilers.products import product
from locore.constraints import (
    And,
    Automaton,
    AutomatonLeaf,
    Constraint,
    Not,
    Or,
    conjunction,
    disjunction,
    negation,
)
from locore.constraints.automaton import merge_alike
from locore.constraints.structure import fold

Part = Constraint | Automaton


@dataclass
class Automata:
    """The automata of one constraint, lifted to tokens and numbered.

    Attributes:
        token_bytes: the bytes of each token.
        lifted: the automata.
        ends_with_text: for each, whether the end of the text stops it (it reads bytes).
    """

    token_bytes: tuple[bytes | None, ...]
    lifted: list[TokenAutomaton] = field(default_factory=list)
    ends_with_text: list[bool] = field(default_factory=list)

    def atoms_of(self, constraint: Constraint) -> Constraint:
        """The constraint over literals, counts and `State` atoms.

        Each maximal Boolean combination of text leaves becomes one atom: combining over 256 bytes is far cheaper than over
        the vocabulary.
        """
        return self._placed(fold(constraint, self._rule))

    def stops_at_end(self, number: int, eos_ids: tuple[int, ...]) -> bool:
        """Is the answer of an automaton settled by the end of the text, whatever padding follows?"""
        if self.ends_with_text[number]:
            return True
        automaton = self.lifted[number]
        after = [automaton.accepting[automaton.functions[automaton.function[token]]] for token in eos_ids]
        return all((flags == automaton.accepting).all() for flags in after)

    def _rule(self, node: Constraint, parts: list[Part]) -> Part:
        if isinstance(node, AutomatonLeaf):
            return node.automaton() if node.over == "bytes" else self._place_tokens(node.automaton())
        if isinstance(node, Not):
            part = parts[0]
            return part.complement() if isinstance(part, Automaton) else negation(part)
        if isinstance(node, And | Or):
            return self._combine(parts, isinstance(node, And))
        return node

    def _combine(self, parts: list[Part], conjunctive: bool) -> Part:
        automata = [part for part in parts if isinstance(part, Automaton)]
        others = [part for part in parts if not isinstance(part, Automaton)]
        if automata:
            merged = reduce(lambda a, b: product(a, b, conjunctive), automata)
            if not others:
                return merged
            others.append(self._placed(merged))
        return conjunction(others) if conjunctive else disjunction(others)

    def _placed(self, part: Part) -> Constraint:
        if not isinstance(part, Automaton):
            return part
        return self._add(lift_bytes(merge_alike(part), self.token_bytes), True)

    def _place_tokens(self, automaton: Automaton) -> Constraint:
        return self._add(lift_tokens(automaton, len(self.token_bytes)), False)

    def _add(self, lifted: TokenAutomaton, ends_with_text: bool) -> Constraint:
        self.lifted.append(lifted)
        self.ends_with_text.append(ends_with_text)
        return State(len(self.lifted) - 1, lifted.start)
