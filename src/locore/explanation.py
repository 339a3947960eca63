"""`explain`: which parts of a constraint a finished text satisfies, and what in the text makes it so."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from locore.constraints import AutomatonLeaf, BanTokens, Constraint, Count, Literal, Not, Or
from locore.kernel.automata.tables import Automaton
from locore.kernel.chat import Prompt
from locore.kernel.constraints.sequence import TokenSequence
from locore.kernel.constraints.spelling import allowed, quoted, spelled
from locore.kernel.constraints.structure import fold
from locore.kernel.errors import BudgetExceeded, InvalidArgument, InvalidConstraint
from locore.kernel.models.validation import tokenizer_of
from locore.kernel.tokenizer import Tokenizer
from locore.models import LanguageModel
from locore.potentials import Bonus, target_of
from locore.potentials.target import Term
from locore.shaping import with_prompt

MAX_LEVELS, MAX_PARTS = 20, 1000  # beyond, a part is one line
SHOWN = 20  # parts of one node that do not decide about it, in print
CONTEXT = 20  # characters before a place


@runtime_checkable
class GivesReasons(Protocol):
    """A leaf of a constraint that says itself why it holds on a sequence or not."""

    def why(self, sequence: TokenSequence) -> str:
        """What was found, in words; "" if there is nothing to say."""


@dataclass(frozen=True)
class Explanation:
    """A constraint and a text: what holds.

    Attributes:
        clause: the constraint or a part of it; "and", "or" or "not" where it has parts.
        holds: does it hold on the text?
        reason: what was found in the text; characters and tokens are counted from 0. Empty where there are parts.
        of: the same for each part.
    """

    clause: str
    holds: bool
    reason: str = ""
    of: tuple[Explanation, ...] = ()

    def decisive(self) -> list[Explanation]:
        """The leaves that make the constraint hold or fail, in its order; the others could be anything."""
        if not self.of:
            return [self]
        return [leaf for part in self.of if self._is_decided_by(part) for leaf in part.decisive()]

    def to_json(self) -> dict[str, Any]:
        """`{"clause": ..., "holds": ..., "reason": ..., "of": [...]}`; reason and parts are left out where there are none."""
        json: dict[str, Any] = {"clause": self.clause, "holds": self.holds}
        if self.reason:
            json["reason"] = self.reason
        if self.of:
            json["of"] = [part.to_json() for part in self.of]
        return json

    def __str__(self) -> str:
        return "\n".join(self._lines(0))

    def _is_decided_by(self, part: Explanation) -> bool:
        return self.clause == "not" or part.holds == self.holds

    def _lines(self, level: int) -> Iterator[str]:
        reason = f": {self.reason}" if self.reason else ""
        yield f"{'  ' * level}{'yes' if self.holds else 'no ':3}  {self.clause}{reason}"
        idle = 0
        for part in self.of:
            idle += not self._is_decided_by(part)
            if idle <= SHOWN or self._is_decided_by(part):
                yield from part._lines(level + 1)
        if idle > SHOWN:
            yield f"{'  ' * (level + 1)}…    {idle - SHOWN} more that {'fail' if self.holds else 'hold'}"


def explain(
    constraint: Constraint | Term, text: str, tokenizer: Tokenizer | LanguageModel, prompt: Prompt | None = None
) -> Explanation:
    """Which clauses of a constraint hold on a finished text, which fail, and where.

    The answer is that of `locore.holds`, on the canonical tokens of the text. `print` it, or use `to_json()`.

    Args:
        constraint: any constraint; of a product with bonuses also what each of them is worth on the text.
        text: the text, nothing stripped.
        tokenizer: whose tokens; for constraints on the text alone, any tokenizer that can spell it.
        prompt: for what speaks of it, by `.over("prompt+text")`.

    Raises:
        InvalidArgument: `text` is no string, or no tokens spell it.
        InvalidConstraint: the constraint speaks about a position that the tokens of the text do not have.
        BudgetExceeded: a Python function has too many paths.
    """
    if not isinstance(text, str):
        raise InvalidArgument(f"explain needs a text, got {type(text).__name__}.")
    aim = target_of(constraint)
    if aim is not None:
        aim = aim if prompt is None else with_prompt(aim, tokenizer_of(tokenizer, "explain"), prompt)
        if aim.factors and len(aim.factors) == len(aim.bonuses):
            own = explain(aim.constraint, text, tokenizer)
            return Explanation("product", own.holds, of=(own, *(_worth(bonus, text, tokenizer) for bonus in aim.bonuses)))
        constraint = aim if aim.factors else aim.constraint
    if not isinstance(constraint, Constraint):
        raise InvalidConstraint(
            f"explain needs a constraint, got {type(constraint).__name__}; of a potential ask its function."
        )
    own_tokenizer = tokenizer_of(tokenizer, "explain")
    sequence = TokenSequence([*own_tokenizer.encode(text), *own_tokenizer.eos_ids[:1]], own_tokenizer)
    constraint.at(len(sequence.tokens))  # what it says of positions that are not there is an error, also where no path leads
    truth: dict[int, bool] = {}

    def decide(node: Constraint, parts: list[bool]) -> bool:
        truth[id(node)] = node.holds_on(sequence, parts)
        return truth[id(node)]

    fold(constraint, decide)
    return _Explainer(sequence, truth).explanation(constraint)


def _worth(bonus: Bonus, text: str, tokenizer: Tokenizer | LanguageModel) -> Explanation:
    """What a bonus is worth on a text, which never fails for it."""
    inner = explain(bonus.constraint, text, tokenizer)
    reasons = "; ".join(f"{leaf.clause}: {leaf.reason}" for leaf in inner.decisive())
    return Explanation(repr(bonus), True, f"{bonus.nats if inner.holds else 0:+g} nats; {reasons}")


@dataclass
class _Explainer:
    """One run of `explain`: the sequence, the truth of every node, and how many parts may yet be explained."""

    sequence: TokenSequence
    truth: dict[int, bool]
    left: int = MAX_PARTS

    def explanation(self, node: Constraint, level: int = 0) -> Explanation:
        """Of a node, and of the nodes below it as far as there is room."""
        holds = self.truth[id(node)]
        children = node.children()
        self.left -= len(children)
        if not children:
            return Explanation(spelled(node), holds, self._reason(node, holds))
        name = "not" if isinstance(node, Not) else "or" if isinstance(node, Or) else "and"
        if level == MAX_LEVELS or self.left < 0:
            return Explanation(f"{name} of {len(children)}", holds, "too large to be shown")
        return Explanation(name, holds, of=tuple(self.explanation(child, level + 1) for child in children))

    def _reason(self, leaf: Constraint, holds: bool) -> str:
        if isinstance(leaf, GivesReasons):
            return leaf.why(self.sequence)
        if isinstance(leaf, Literal):
            return f"token {leaf.position} is {self._token(leaf.position)}"
        if isinstance(leaf, Count):
            number = sum(self.sequence.tokens[position] in leaf.tokens for position in leaf.positions)
            return f"{number} of the {len(leaf.positions)} positions hold one, {allowed(leaf.at_least, leaf.at_most)}"
        if leaf.is_function:
            return f"the function returned {holds}"
        if isinstance(leaf, BanTokens):
            return self._banned_tokens(leaf.leaf_bound(self.sequence.known_tokenizer), holds)
        return self._automaton_reason(leaf, holds) if isinstance(leaf, AutomatonLeaf) and leaf.is_small else ""

    def _banned_tokens(self, bound: Constraint, holds: bool) -> str:
        """Where the ids of a banned phrase end; `bound` is the negation of "one of them occurs"."""
        if holds or not (isinstance(bound, Not) and isinstance(bound.of, AutomatonLeaf)):
            return ""
        read = _settled_after(bound.of.automaton(), self.sequence.tokens)
        return f"the ids of a phrase end at token {read - 1}, {self._token(read - 1)}" if read else ""

    def _automaton_reason(self, leaf: AutomatonLeaf, holds: bool) -> str:
        """Where the answer of an automaton was settled, whatever the kind of leaf."""
        over_text = leaf.reads == "bytes"
        try:
            automaton = leaf.automaton()
        except BudgetExceeded:  # too large to look into; the answer itself does not need it
            return ""
        read = _settled_after(automaton, self.sequence.text if over_text else self.sequence.tokens)
        if read is None:
            return "" if holds else "ends too early: what could follow may satisfy it"
        if read == 0:
            return f"every {'text' if over_text else 'sequence'} does" if holds else "nothing satisfies it"
        verb = "holds" if holds else "fails"
        if not over_text:
            return f"{verb} from token {read - 1} on, {self._token(read - 1)}"
        place = len(self.sequence.text[:read].decode("utf-8", errors="replace")) - 1
        text = self.sequence.text.decode("utf-8", errors="replace")
        behind = f", after {quoted(text[max(0, place - CONTEXT) : place])}" if place else ""
        return f"{verb} from character {place} on, {quoted(text[place])}{behind}"

    def _token(self, position: int) -> str:
        token = self.sequence.tokens[position]
        content = self.sequence.known_tokenizer.token_bytes[token]
        return f"{token}, {'a special token' if content is None else quoted(content.decode('utf-8', errors='replace'))}"


def _settled_after(automaton: Automaton, symbols: Sequence[int]) -> int | None:
    """After how many symbols nothing that may follow changes the answer; None if after the last one something still can."""
    states = [automaton.start]
    for symbol in symbols:
        states.append(int(automaton.table[states[-1], automaton.column.get(symbol, automaton.default)]))
    opposite = automaton.accepting != automaton.accepting[states[-1]]
    settled = bisect_left(range(len(states)), True, key=lambda read: not _can_reach(automaton.table, states[read], opposite))
    return settled if settled < len(states) else None


def _can_reach(table: NDArray[np.int32], state: int, wanted: NDArray[np.bool_]) -> bool:
    """Does a way lead from a state to a wanted one?"""
    seen = np.zeros(len(table), dtype=np.bool_)
    frontier = np.array([state])
    while frontier.size:
        if wanted[frontier].any():
            return True
        seen[frontier] = True
        following = np.unique(table[frontier])
        frontier = following[~seen[following]]
    return False
