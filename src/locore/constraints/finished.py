"""The constraint that a text ends within its horizon, so that nothing cuts it off."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from locore.constraints.automaton import Automaton, aho_corasick
from locore.constraints.base import Constant, Constraint, Json
from locore.constraints.leaves import AutomatonLeaf
from locore.constraints.sequence import TokenizerLike, TokenSequence
from locore.constraints.serial import register


def finished() -> Finished:
    """The text ends within the horizon: one of the tokens is an end of sequence, which takes a token's place.

    A text of exactly `max_new_tokens` tokens is thus not finished, even if nothing longer could satisfy the rest; ask for a
    token more. Whatever the horizon cuts off satisfies `~finished()`. Of a vocabulary without an end no text is finished.
    """
    return Finished()


@dataclass(frozen=True, eq=False)
class Finished(AutomatonLeaf):
    """An end of sequence is among the tokens.

    `bind` names the ids of the ends; before it the constraint belongs to no tokenizer.
    """

    over = "tokens"
    eos_ids: tuple[int, ...] = ()

    def leaf_bound(self, tokenizer: TokenizerLike) -> Constraint:
        """With the ends of this tokenizer; never true if it has none."""
        return Finished(tuple(tokenizer.eos_ids)) if tokenizer.eos_ids else Constant(False)

    def automaton(self) -> Automaton:
        """Accepts once an end has been read."""
        return aho_corasick([(token,) for token in self.eos_ids])

    def named_ids(self) -> Iterable[int]:
        """The ends."""
        return self.eos_ids

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """Does the first end come before the horizon?"""
        return sequence.end < len(sequence.tokens)

    def why(self, sequence: TokenSequence) -> str:
        """Where the end is, or that there is none."""
        if self.holds_on(sequence, []):
            return f"the end is token {sequence.end} of {len(sequence.tokens)}, counted from 0"
        return f"no end among {len(sequence.tokens)} tokens"

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "finished"}`."""
        return {"type": "finished"}


register("finished", finished)
