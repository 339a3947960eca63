"""From a request's prompt or messages to token ids."""

from __future__ import annotations

from typing import Any

from locore.errors import InvalidArgument
from locore.tokenizer import Tokenizer


def prompt_ids(tokenizer: Tokenizer, job: dict[str, Any]) -> list[int]:
    """The ids that the model reads before its text.

    Raises:
        MissingTemplate: messages, for a model that is not for chats.
        InvalidArgument: the template refuses these messages, or an id is out of range.
    """
    if job["messages"] is not None:
        return tokenizer.encode_chat(job["messages"])
    prompt = job["prompt"]
    if isinstance(prompt, str):
        return tokenizer.encode_prompt(prompt)
    wrong = [i for i in prompt if not 0 <= i < tokenizer.vocab_size]
    if wrong:
        raise InvalidArgument(f"prompt has the token id {wrong[0]}, but ids go from 0 to {tokenizer.vocab_size - 1}.")
    return list(prompt)
