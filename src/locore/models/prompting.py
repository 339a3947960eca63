"""What a model reads before a continuation."""

from __future__ import annotations

from locore.chat import Prompt, is_chat
from locore.errors import CannotScore, InvalidArgument
from locore.models.validation import plain_ids, within_context
from locore.tokenizer import Tokenizer


def prompt_ids(tokenizer: Tokenizer, prompt: Prompt) -> list[int]:
    """The ids that a model reads of a prompt: the one road from texts and chats to ids, wherever they come from.

    Args:
        tokenizer: of the model.
        prompt: a text, which gets the special tokens that the tokenizer puts at a start; messages, which are written by the
            chat template (see `Tokenizer.encode_chat`); or ids, which are taken as they are.

    Raises:
        InvalidArgument: none of these, an id that is not of this vocabulary, or messages that the template does not take.
        MissingTemplate: messages, for a model without a chat template.
    """
    if isinstance(prompt, str):
        return tokenizer.encode_prompt(prompt)
    return plain_ids(tokenizer.encode_chat(prompt) if is_chat(prompt) else prompt, tokenizer.vocab_size)


def joint_prompt(tokenizer: Tokenizer, before: tuple[int, ...] | None, prompt: Prompt, context: int | None) -> tuple[int, ...]:
    """Ids of a prompt after what was read before.

    Args:
        tokenizer: of the model.
        before: ids of an earlier prompt; None if there is none.
        prompt: as `prompt_ids` takes it; but a text after an earlier prompt gets no special tokens.
        context: how many tokens the model can read; None if it has no limit.

    Raises:
        InvalidArgument, MissingTemplate: as `prompt_ids`; or a chat comes after an earlier prompt.
        CannotScore: the prompt fills the context, or it is empty and the model has no token to start from.
    """
    if before is not None and is_chat(prompt):
        raise InvalidArgument(
            "a chat has its own beginning, so it cannot follow an earlier prompt; put that into its messages, or give the chat "
            "to model.unprompted()."
        )
    first = before is None or not isinstance(prompt, str)
    added = prompt_ids(tokenizer, prompt) if first else tokenizer.encode(str(prompt))
    joint = (*(before or ()), *added) or tokenizer.bos_ids
    if not joint:
        raise CannotScore(
            "The prompt is empty and this model has no BOS token to start from. Give a prompt of at least one token."
        )
    within_context(len(joint), 1, context)
    return joint
