"""What a model reads before a continuation."""

from __future__ import annotations

from collections.abc import Sequence

from locore.errors import CannotScore
from locore.models.validation import prompt_ids, within_context
from locore.tokenizer import Tokenizer


def joint_prompt(
    tokenizer: Tokenizer, before: tuple[int, ...] | None, prompt: str | Sequence[int], context: int | None
) -> tuple[int, ...]:
    """Ids of a prompt after what was read before.

    Args:
        tokenizer: of the model.
        before: ids of an earlier prompt; None if there is none.
        prompt: a text, which gets the special tokens that the tokenizer puts at a start (and none after an earlier prompt); or
            ids, which are taken as they are.
        context: how many tokens the model can read; None if it has no limit.

    Raises:
        InvalidArgument: the prompt is no text and no list of ids of this vocabulary.
        CannotScore: the prompt fills the context, or it is empty and the model has no token to start from.
    """
    if not isinstance(prompt, str):
        added = prompt_ids(prompt, tokenizer.vocab_size)
    elif before is None:
        added = tokenizer.encode_prompt(prompt)
    else:
        added = tokenizer.encode(prompt)
    joint = (*(before or ()), *added) or tokenizer.bos_ids
    if not joint:
        raise CannotScore(
            "The prompt is empty and this model has no BOS token to start from. Give a prompt of at least one token."
        )
    within_context(len(joint), 1, context)
    return joint
