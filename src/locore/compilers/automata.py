"""The automaton leaves of a constraint, merged over bytes as far as possible and then read token by token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce

from locore.automata.automaton import product
from locore.automata.lift import TokenAutomaton, lift_bytes, lift_tokens
from locore.compilers.problem import CompilerLeaf, Ints
from locore.constraints import And, Automaton, AutomatonLeaf, Constraint, Not, Or, conjunction, disjunction, negation
from locore.constraints.structure import fold

Part = Constraint | Automaton


@dataclass(frozen=True, eq=False)
class Lifted(CompilerLeaf):
    """The leaf "this automaton accepts the tokens".

    Attributes:
        over_text: does it read bytes, so that the end of the text stops it?
    """

    automaton: TokenAutomaton
    over_text: bool

    def token_features(self) -> Iterable[Ints]:
        """Which function of the automaton each token is."""
        return (self.automaton.function,)

    def stops_at_end(self, eos_ids: tuple[int, ...]) -> bool:
        """Is its answer settled by the end of the text, whatever padding follows?"""
        automaton = self.automaton
        after = [automaton.accepting[automaton.functions[automaton.function[token]]] for token in eos_ids if not self.over_text]
        return all((flags == automaton.accepting).all() for flags in after)


def with_lifted(constraint: Constraint, token_bytes: tuple[bytes | None, ...]) -> Constraint:
    """The constraint with `Lifted` leaves in the place of its automaton leaves.

    Each maximal Boolean combination of text leaves becomes one: combining over 256 bytes is far cheaper than over the
    vocabulary.
    """

    def lifted(part: Part) -> Constraint:
        return Lifted(lift_bytes(part, token_bytes), True) if isinstance(part, Automaton) else part

    def combined(parts: list[Part], conjunctive: bool) -> Part:
        automata = [part for part in parts if isinstance(part, Automaton)]
        others = [part for part in parts if not isinstance(part, Automaton)]
        if automata:
            merged = reduce(lambda a, b: product(a, b, conjunctive), automata)
            if not others:
                return merged
            others.append(lifted(merged))
        return conjunction(others) if conjunctive else disjunction(others)

    def rule(node: Constraint, parts: list[Part]) -> Part:
        if isinstance(node, AutomatonLeaf):
            automaton = node.automaton()
            return automaton if node.over == "bytes" else Lifted(lift_tokens(automaton, len(token_bytes)), False)
        if isinstance(node, Not):
            part = parts[0]
            return part.complement() if isinstance(part, Automaton) else negation(part)
        return combined(parts, isinstance(node, And)) if isinstance(node, And | Or) else node

    return lifted(fold(constraint, rule))


def as_one_automaton(root: Constraint, eos_ids: tuple[int, ...]) -> TokenAutomaton | None:
    """The automaton that is the whole constraint, if one is and the end of the text settles its answer."""
    leaf = root.of if isinstance(root, Not) else root
    if not isinstance(leaf, Lifted) or not leaf.stops_at_end(eos_ids):
        return None
    automaton = leaf.automaton
    return replace(automaton, accepting=~automaton.accepting) if isinstance(root, Not) else automaton
