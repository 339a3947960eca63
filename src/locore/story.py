"""What a prompt is to constraints that see it: the text that the new text goes on from."""

from __future__ import annotations

from collections.abc import Iterable

from locore.chat import Prompt, is_chat, plain_messages
from locore.constraints import And, Constant, Constraint, Not, Or, Over
from locore.constraints.over import is_written
from locore.constraints.sequence import TokenSequence
from locore.constraints.spelling import spelled
from locore.constraints.structure import fold
from locore.errors import InvalidArgument, Unsatisfiable
from locore.models import prompt_ids
from locore.potentials import Target
from locore.tokenizer import Tokenizer


def story_of(tokenizer: Tokenizer, prompt: Prompt) -> str:
    """The text before the new one, as a reader sees it.

    Of a prompt that is a text it is this text. Of a chat it is how the answer begins, the last message if the assistant's, and
    nothing otherwise: what others said is no part of what the assistant writes. Of token ids it is what follows the last
    special token, in which a rendered chat has the name of the role, too.
    """
    if isinstance(prompt, str):
        if not is_written(prompt):
            raise InvalidArgument("the prompt has a lone surrogate, which has no UTF-8 bytes; remove it.")
        return prompt
    if not is_chat(prompt):
        return _since_special(tokenizer, prompt_ids(tokenizer, prompt))
    last = plain_messages(prompt)[-1]
    if last["role"] != "assistant":
        return ""
    written = _since_special(tokenizer, prompt_ids(tokenizer, prompt))
    begun = last["content"]  # templates cut white space at its end, or at its start
    ways = (begun, begun.rstrip(), begun.lstrip(), begun.strip())
    return next((way for way in ways if written.endswith(way)), begun)


def _since_special(tokenizer: Tokenizer, ids: Iterable[int]) -> str:
    content = b""
    for token in ids:
        piece = tokenizer.token_bytes[token]
        content = b"" if piece is None or token in tokenizer.eos_ids else content + piece
    return content.decode("utf-8", errors="replace")


def sees_prompt(aim: Target) -> bool:
    """Does a constraint of a target speak of a prompt that it does not know yet?"""
    return any(leaf.waits_for_prompt() for part in aim.constraints() for leaf in part.leaves())


def told(aim: Target, tokenizer: Tokenizer, prompt: Prompt) -> Target:
    """The target, in which what speaks of the prompt knows it.

    Raises:
        Unsatisfiable: the prompt alone breaks the constraint, whatever follows.
    """
    known = with_prompt(aim, tokenizer, prompt)
    if known is not aim:
        _check_possible(known.constraint, tokenizer)
    return known


def with_prompt(aim: Target, tokenizer: Tokenizer, prompt: Prompt) -> Target:
    """As `told`, whatever the prompt breaks."""
    if not sees_prompt(aim):
        return aim
    story = story_of(tokenizer, prompt)
    return aim.read_with(lambda constraint: constraint.transform(lambda leaf: leaf.leaf_told(story)))


def _check_possible(constraint: Constraint, tokenizer: Tokenizer) -> None:
    fates: dict[Over, bool] = {}

    def rule(node: Constraint, parts: list[bool | None]) -> bool | None:
        if isinstance(node, Constant):
            return node.value
        if isinstance(node, Over):
            fate = node.fate()
            if fate is not None:
                fates[node] = fate
            return fate
        if isinstance(node, Not):
            return None if parts[0] is None else not parts[0]
        if isinstance(node, And | Or):
            decisive = isinstance(node, Or)
            return decisive if decisive in parts else None if None in parts else not decisive
        return None

    if fold(constraint, rule) is not False or not fates:
        return
    nothing = TokenSequence((), tokenizer)
    said = "; ".join(f"{spelled(leaf)}: {leaf.why(nothing)}" for leaf in fates)
    raise Unsatisfiable(
        f"the prompt alone breaks the constraint, whatever follows it: {said}. Change the prompt, or leave over out."
    )
