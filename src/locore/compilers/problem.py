"""A constraint made ready for a compiler, and what it sees of the vocabulary.

Automaton leaves are merged over bytes as far as possible and then read token by token. Combinatorial leaves and the literals
beside them become one conjunction: what is known (givens, literals) narrows what the others can be, and a token that no
position can hold is never told apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache, reduce

import numpy as np
from numpy.typing import NDArray

from locore.automata.lift import TokenAutomaton, lift_bytes, lift_tokens
from locore.automata.regex import byte_automaton
from locore.automata.regex.language import ANYTHING
from locore.automata.tables import number_rows, product_of
from locore.constraints import (
    And,
    Automaton,
    AutomatonLeaf,
    Constant,
    Constraint,
    Count,
    Finished,
    Grammar,
    Literal,
    Not,
    Or,
    conjunction,
    disjunction,
    has_text,
    negation,
)
from locore.constraints.base import Json
from locore.constraints.combinatorial import AllDifferent, AllEqual, Combinatorial, TokenSum
from locore.constraints.combinatorial.comparisons import lowered_parts
from locore.constraints.paths import SimplePath
from locore.constraints.regex import LanguageLeaf
from locore.constraints.searches import PatternLeaf
from locore.constraints.sequence import TokenSequence
from locore.constraints.structure import fold, postorder
from locore.constraints.tokens import NestedLeaf
from locore.errors import Unsatisfiable
from locore.limits import Limits
from locore.tokenizer import Tokenizer

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Merged = Constraint | Automaton
Part = Literal | Count | AllDifferent | AllEqual | TokenSum
Domains = dict[int, frozenset[int]]  # tokens that a position can hold; all where it is not named


@dataclass(frozen=True)
class Problem:
    """A constraint made ready for a compiler: traced at its length, bound to its vocabulary.

    Attributes:
        must_end: must the text end within the length, beside satisfying the constraint?
    """

    constraint: Constraint
    tokenizer: Tokenizer
    length: int
    min_length: int
    limits: Limits = field(default_factory=Limits)
    must_end: bool = False

    def with_end_apart(self) -> Problem:
        """The same problem; if the whole constraint demands an end, and more than that, the problem does instead."""
        whole = self.constraint
        if not isinstance(whole, And) or not any(isinstance(part, Finished) for part in whole.of):
            return self
        rest = conjunction(part for part in whole.of if not isinstance(part, Finished))
        return replace(self, constraint=rest, must_end=True)

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
        return _whole_characters()

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """It can be decoded."""
        return not sequence.is_broken

    def json_of(self, parts: list[Json]) -> Json:
        """None: it is implied."""
        raise NotImplementedError


@cache
def _whole_characters() -> Automaton:
    return byte_automaton(ANYTHING)


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
        return isinstance(node, LanguageLeaf | NestedLeaf | PatternLeaf | Grammar) or (
            isinstance(node, Constant) and not node.value
        )

    return bool(fold(constraint, rule))


def no_model(length: int) -> Unsatisfiable:
    """The error of a constraint that nothing satisfies."""
    return Unsatisfiable(f"no sequence of {length} tokens satisfies the constraint")


class CompilerLeaf(Constraint):
    """A leaf that lives inside a compiler only: it is neither evaluated nor written down."""

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
        """None."""
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
        elif isinstance(node, CompilerLeaf | SimplePath):
            sets.extend(node.token_sets())
            features.extend(node.token_features() if isinstance(node, CompilerLeaf) else ())
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
        automaton = self.automaton
        after = [automaton.accepting[automaton.functions[automaton.function[token]]] for token in eos_ids if not self.over_text]
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


@dataclass(frozen=True, eq=False)
class Conjunct(CompilerLeaf):
    """A conjunction of literals, counts and combinatorial leaves."""

    parts: tuple[Part, ...]

    def token_sets(self) -> Iterable[frozenset[int]]:
        """The sets of tokens that it tells apart."""
        for part in self.parts:
            if isinstance(part, TokenSum):
                yield from part.groups().values()
            elif isinstance(part, AllDifferent | AllEqual):
                yield from part.values
            else:
                yield part.tokens


def gather(constraint: Constraint, vocab_size: int) -> Constraint:
    """The constraint with each conjunction of combinatorial leaves, literals and counts as one `Conjunct`."""
    if not any(isinstance(leaf, Combinatorial) for leaf in constraint.leaves()):
        return constraint

    def rule(node: Constraint, parts: list[Constraint]) -> Constraint:
        if isinstance(node, Combinatorial):
            return Conjunct(tuple(node.parts()))  # type: ignore[arg-type]
        if isinstance(node, Not):
            return negation(parts[0])
        if isinstance(node, Or):
            return disjunction(parts)
        return _joined(parts, vocab_size) if isinstance(node, And) else node

    joined = fold(constraint, rule)
    return joined.transform(lambda leaf: _narrowed(leaf, vocab_size) if isinstance(leaf, Conjunct) else leaf)


def without_combinatorial(constraint: Constraint, vocab_size: int) -> Constraint:
    """The constraint over literals and counts alone, for a compiler that knows nothing else."""
    gathered = gather(constraint, vocab_size)  # which narrows the ids that are compared
    return gathered.transform(lambda leaf: lowered_parts(leaf.parts, vocab_size) if isinstance(leaf, Conjunct) else leaf)


def _joined(parts: list[Constraint], vocab_size: int) -> Constraint:
    """A conjunction whose simple parts are one, if there is a combinatorial one among them."""
    if not any(isinstance(part, Conjunct) for part in parts):
        return conjunction(parts)
    simple: list[Part] = []
    others: list[Constraint] = []
    for part in parts:
        if isinstance(part, Conjunct):
            simple += part.parts
        elif isinstance(part, Literal | Count):
            simple.append(part)
        elif isinstance(part, Not) and isinstance(part.of, Literal):
            simple.append(Literal(part.of.position, frozenset(range(vocab_size)) - part.of.tokens))
        else:
            others.append(part)
    return conjunction([Conjunct(tuple(simple)), *others])


def _narrowed(conjunct: Conjunct, vocab_size: int) -> Constraint:
    """The same with the ids that can occur written down wherever ids are compared; never true where none is left."""
    domains: Domains = {}
    for part in conjunct.parts:
        if isinstance(part, Literal):
            domains[part.position] = domains.get(part.position, part.tokens) & part.tokens
    if not all(domains.values()):
        return Constant(False)
    every = frozenset(range(vocab_size))
    parts: list[Part] = []
    for part in conjunct.parts:
        if isinstance(part, AllDifferent | AllEqual) and not part.values:
            join = frozenset.union if isinstance(part, AllDifferent) else frozenset.intersection
            ids = reduce(join, [domains.get(position, every) for position in part.positions])
            if not ids:
                return Constant(False)
            part = replace(part, values=tuple(frozenset({token}) for token in sorted(ids)))
        parts.append(part)
    literals = [Literal(position, tokens) for position, tokens in domains.items()]
    return Conjunct((*literals, *(part for part in parts if not isinstance(part, Literal))))
