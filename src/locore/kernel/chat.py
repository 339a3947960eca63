"""Prompts: a text, token ids, or a chat; and what a chat may say, whoever sends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from reprlib import repr as shortened
from typing import Literal, TypeAlias, TypedDict, TypeGuard

from locore.kernel.errors import InvalidArgument

ROLES = ("system", "developer", "user", "assistant", "tool")
FIELDS = ("role", "content")
EXAMPLE = '[{"role": "user", "content": "Hello"}]'


class TextPart(TypedDict):
    """A part of a message, as OpenAI has them; the texts of the parts are joined."""

    type: Literal["text"]
    text: str


class Message(TypedDict):
    """One turn of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Sequence[TextPart]


Chat: TypeAlias = Sequence[Message] | Sequence[Mapping[str, object]]
"""Messages; plain dictionaries are checked when they are read."""

Prompt: TypeAlias = str | Sequence[int] | Chat
"""What a model reads before its text: a text, token ids, or messages."""


def is_chat(prompt: object) -> TypeGuard[Chat]:
    """Is this prompt meant as messages, well formed or not? An empty list is one of ids, not a chat."""
    return isinstance(prompt, Mapping) or (isinstance(prompt, list | tuple) and any(isinstance(m, Mapping) for m in prompt))


def plain_messages(messages: object) -> list[dict[str, str]]:
    """The messages of a chat, each with its role and one text.

    Raises:
        InvalidArgument: no list of messages, or one of them has a role, field or content that is not known; its index is named.
    """
    if not isinstance(messages, list | tuple):
        raise InvalidArgument(
            f"a prompt is a text, a list of token ids, or a list of messages such as {EXAMPLE}; got {type(messages).__name__}."
        )
    if not messages:
        raise InvalidArgument(f"the chat has no message; give at least one, such as {EXAMPLE}.")
    plain = [_plain(message, f"messages[{i}]") for i, message in enumerate(messages)]
    if plain[-1]["role"] == "assistant" and not plain[-1]["content"].strip():
        raise InvalidArgument(
            f"messages[{len(plain) - 1}] is how the answer begins, and empty; leave it out, or write the beginning."
        )
    return plain


def _plain(message: object, name: str) -> dict[str, str]:
    if not isinstance(message, Mapping):
        raise InvalidArgument(f"{name} is {shortened(message)}; a message is an object such as {EXAMPLE[1:-1]}.")
    missing = [field for field in FIELDS if field not in message]
    if missing:
        raise InvalidArgument(f"{name} has no {missing[0]!r}; a message is an object such as {EXAMPLE[1:-1]}.")
    unknown = [field for field in message if field not in FIELDS]
    if unknown:
        raise InvalidArgument(f"{name} has a field {unknown[0]!r}, which is not known; a message has role and content alone.")
    role = message["role"]
    if role not in ROLES:
        raise InvalidArgument(
            f"{name} has the role {shortened(role)}; known are {', '.join(ROLES)}. Write any other format as a plain prompt."
        )
    return {"role": str(role), "content": _text(message["content"], name)}


def _text(content: object, name: str) -> str:
    """The text of a message, its parts joined."""
    parts = [content] if isinstance(content, str) else _part_texts(content, name)
    text = "".join(parts)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"the content of {name} has a lone surrogate at character {error.start}, which has no UTF-8; remove it."
        ) from None
    return text


def _part_texts(content: object, name: str) -> list[str]:
    if not isinstance(content, list | tuple):
        raise InvalidArgument(
            f'the content of {name} is {shortened(content)}; give a text, or a list of parts {{"type": "text", "text": "..."}}.'
        )
    for number, part in enumerate(content):
        is_text = isinstance(part, Mapping) and set(part) == {"type", "text"} and part["type"] == "text"
        if not is_text or not isinstance(part["text"], str):
            raise InvalidArgument(
                f"part {number} of the content of {name} is {shortened(part)}; Locore reads text alone: "
                '{"type": "text", "text": "..."}.'
            )
    return [part["text"] for part in content]
