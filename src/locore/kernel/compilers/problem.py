"""A constraint made ready for a compiler, and what it sees of the vocabulary.

Automaton leaves are merged over bytes as far as possible and then read token by token. Kinds of leaves that have a compiler of
their own bring the constraint into its form first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from locore.kernel.automata.lift import TokenAutomaton, lift_bytes, lift_tokens
from locore.kernel.automata.tables import Automaton, number_rows, product_of, utf8
from locore.kernel.circuits.circuit import Circuit
from locore.kernel.constraints.constraint import (
    And,
    Constant,
    Constraint,
    Json,
    Not,
    Or,
    conjunction,
    disjunction,
    has_text,
    negation,
)
from locore.kernel.constraints.sequence import TokenSequence
from locore.kernel.constraints.structure import fold, postorder
from locore.kernel.constraints.tokens import AutomatonLeaf, Count, Finished, Literal
from locore.kernel.errors import Unsatisfiable
from locore.kernel.limits import Limits
from locore.kernel.tokenizer import Tokenizer

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Merged = Constraint | Automaton
Vtree = int | tuple["Vtree", "Vtree"]  # a position, or a pair


@dataclass(frozen=True)
class Problem:
    """A constraint made ready for a compiler: traced at its length, bound to its vocabulary.

    Attributes:
        must_end: must the text end within the length, beside satisfying the constraint?
        vtree: how positions are paired, where they are not read from left to right.
    """

    constraint: Constraint
    tokenizer: Tokenizer
    length: int
    min_length: int
    limits: Limits = field(default_factory=Limits)
    must_end: bool = False
    vtree: Vtree | None = None

    def with_end_apart(self) -> Problem:
        """The same problem; if the whole constraint demands an end, and more than that, the problem does instead."""
        whole = self.constraint
        if not isinstance(whole, And) or not any(isinstance(part, Finished) for part in whole.of):
            return self
        without_end = conjunction(part for part in whole.of if not isinstance(part, Finished))
        return replace(self, constraint=without_end, must_end=True)

    def of_whole_characters(self) -> Problem:
        """The same problem; if the constraint speaks about text, and tokens of the vocabulary cut characters, no text may."""
        cut = any(content is not None and is_cut(content) for content in self.tokenizer.token_bytes)
        if not cut or not has_text(self.constraint) or demands_whole_characters(self.constraint):
            return self
        return replace(self, constraint=conjunction([self.constraint, WholeCharacters()]))

    def blocked_tokens(self) -> Flags:
        """Bool[vocab]: special tokens, if the constraint speaks about text. Ends are handled by the compilers."""
        if not has_text(self.constraint):
            return np.zeros(self.tokenizer.vocab_size, dtype=np.bool_)
        return np.array([content is None for content in self.tokenizer.token_bytes], dtype=np.bool_)


@dataclass(frozen=True, eq=False)
class WholeCharacters(AutomatonLeaf):
    """The text is UTF-8. It is added by the compiler, to whatever speaks about text."""

    reads = "bytes"

    def automaton(self) -> Automaton:
        """Accepts UTF-8."""
        return utf8()

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """It can be decoded."""
        return not sequence.is_broken

    def json_of(self, parts: list[Json]) -> Json:
        """Never asked for: it is implied."""
        raise NotImplementedError


def gathered(constraint: Constraint, vocab_size: int) -> Constraint:
    """The constraint in the form of each compiler that a kind of its leaves brings along; see `Constraint.compiler`."""
    for module in dict.fromkeys(leaf.compiler for leaf in constraint.leaves()):
        if module is not None:
            constraint = import_module(module).gathered(constraint, vocab_size)
    return constraint


def is_cut(content: bytes) -> bool:
    """Are these bytes no UTF-8 by themselves?"""
    try:
        content.decode()
    except UnicodeDecodeError:
        return True
    return False


def demands_whole_characters(constraint: Constraint) -> bool:
    """Is it known that a constraint holds of UTF-8 only?"""

    def rule(node: Constraint, parts: list[bool]) -> bool:
        if isinstance(node, And | Or):
            return any(parts) if isinstance(node, And) else all(parts)
        return node.is_utf8 or (isinstance(node, Constant) and not node.value)

    return bool(fold(constraint, rule))


def unsatisfiable(length: int) -> Unsatisfiable:
    """The error of a constraint that nothing satisfies."""
    return Unsatisfiable(f"no sequence of {length} tokens satisfies the constraint")


class CompilerLeaf(Constraint):
    """A leaf that lives inside a compiler only: it is neither evaluated nor written down.

    A constraint that is nothing but such a leaf has a circuit of its own, if the leaf can make one. Beside others it is an atom
    of residuals.
    """

    def circuit(self, problem: Problem) -> Circuit | None:
        """Of this leaf alone; None where it has to be read from left to right.

        Raises:
            Unsatisfiable, BudgetExceeded.
        """
        return None

    def atom(self, classes: Partition, length: int) -> Constraint:
        """Before anything is read."""
        return self

    def spelled_out(self, vocab_size: int) -> Constraint:
        """The same over literals and counts alone, for a compiler that knows nothing else.

        Raises:
            InvalidConstraint: there is no such form.
        """
        return self

    def token_sets(self) -> Iterable[frozenset[int]]:
        """The sets of tokens that it tells apart."""
        return ()

    def token_features(self) -> Iterable[Ints]:
        """Int64[vocab] each: it tells tokens of different numbers apart."""
        return ()

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """Not known here."""
        raise NotImplementedError

    def json_of(self, parts: list[Json]) -> Json:
        """Never asked for."""
        raise NotImplementedError


@dataclass(frozen=True)
class Partition:
    """Token classes: the coarsest partition of the vocabulary that a constraint can see.

    Attributes:
        token_class: Int64[vocab].
        representative: Int64[classes], a token of each class.
    """

    token_class: Ints
    representative: Ints

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.representative)

    def merged(self, columns: NDArray[np.int32]) -> tuple[Partition, Ints]:
        """Merge classes whose columns agree, and order them so that similar classes are neighbours.

        Args:
            columns: Int32[classes, rows], what each class does in every row of the constraint.

        Returns:
            The coarser partition, and for each of its classes an old class.
        """
        _, first, inverse = np.unique(columns, axis=0, return_index=True, return_inverse=True)
        return Partition(inverse.ravel()[self.token_class], self.representative[first]), first


def classes_of(problem: Problem, root: Constraint) -> Partition:
    """The classes of tokens that token sets, automata, special tokens and ends do not tell apart.

    Args:
        root: the constraint of the problem, as a compiler has changed it.
    """
    tokenizer = problem.tokenizer
    features = [np.array([content is None for content in tokenizer.token_bytes], dtype=np.int64)]
    sets = [frozenset({token}) for token in tokenizer.eos_ids]
    for node in postorder(root):
        if isinstance(node, Literal | Count):
            sets.append(node.tokens)
        elif isinstance(node, CompilerLeaf):
            sets.extend(node.token_sets())
            features.extend(node.token_features())
    numbers, first = number_rows(np.column_stack([*features, _membership(tokenizer.vocab_size, sets)]))
    return Partition(numbers.astype(np.int64), first)


def _membership(vocab_size: int, sets: Iterable[frozenset[int]]) -> Ints:
    """A number for each token: the list of sets it is in. Only members are touched, so many small sets are cheap."""
    member: dict[int, list[int]] = {}
    for number, tokens in enumerate(dict.fromkeys(sets)):
        for token in tokens:
            member.setdefault(token, []).append(number)
    names: dict[tuple[int, ...], int] = {(): 0}
    result = np.zeros(vocab_size, dtype=np.int64)
    for token, numbers in member.items():
        result[token] = names.setdefault(tuple(numbers), len(names))
    return result


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
        if self.over_text:
            return True
        automaton = self.automaton
        after = [automaton.accepting[automaton.functions[automaton.function[token]]] for token in eos_ids]
        return all((flags == automaton.accepting).all() for flags in after)


def with_lifted(constraint: Constraint, token_bytes: tuple[bytes | None, ...]) -> Constraint:
    """The constraint with `Lifted` leaves in the place of its automaton leaves.

    Each maximal Boolean combination of text leaves becomes one: combining over 256 bytes is far cheaper than over the
    vocabulary.
    """

    def lifted(part: Merged) -> Constraint:
        return Lifted(lift_bytes(part, token_bytes), True) if isinstance(part, Automaton) else part

    def combined(parts: list[Merged], conjunctive: bool) -> Merged:
        automata = [part for part in parts if isinstance(part, Automaton)]
        others = [part for part in parts if not isinstance(part, Automaton)]
        if automata:
            merged = product_of(automata, conjunctive)
            if not others:
                return merged
            others.append(lifted(merged))
        return conjunction(others) if conjunctive else disjunction(others)

    def rule(node: Constraint, parts: list[Merged]) -> Merged:
        if isinstance(node, AutomatonLeaf):
            automaton = node.automaton()
            return automaton if node.reads == "bytes" else Lifted(lift_tokens(automaton, len(token_bytes)), False)
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
