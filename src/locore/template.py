"""Chats as token ids: a model's own template, and no message that can write more than text."""

from __future__ import annotations

import json
import secrets
from bisect import bisect_left
from contextlib import suppress
from functools import cached_property
from typing import Any

from locore.chat import plain_messages
from locore.errors import InvalidArgument, MissingTemplate
from locore.marks import Messages, SpecialTokens, restored, unused

_FLAGS = ("single_word", "lstrip", "rstrip", "normalized")


class ChatTemplate:
    """The chat template of a fast tokenizer.

    `transformers` writes a chat as one text and cuts that into tokens, so what a message spells like a special token would
    become that token: whoever writes a message could end it and begin one of the system. Here special tokens are those that
    the template itself writes, and in a message they are text. A chat that spells none has the ids that `transformers` gives.
    """

    def __init__(self, tokenizer: Any, spec: dict[str, Any]) -> None:
        """The template of a tokenizer.

        Args:
            tokenizer: a fast tokenizer of `transformers`.
            spec: its tokenizer.json.
        """
        self._tokenizer = tokenizer
        self._spec = spec
        self._special = SpecialTokens(spec, tokenizer.all_special_ids)

    def encode(self, messages: object) -> list[int]:
        """Ids of a chat, up to where the answer begins or goes on; errors as `Tokenizer.encode_chat`."""
        plain = plain_messages(messages)
        if not self._tokenizer.chat_template:
            raise MissingTemplate(
                "this model has no chat template, so nobody knows how it reads messages. Give a plain prompt, or set "
                "chat_template of its tokenizer (a file chat_template.jinja in the model's folder)."
            )
        written = self._write(plain)
        self._check_nothing_left_out(plain, written)
        with_marks, marks = self._with_marks(plain, written)
        ids, own = self._ids(written), self._special.spelled(with_marks)
        if self._special.spelled(written) == own and (self._special.among(ids) == own or not self._read_in(plain)):
            return ids  # as a rule: nothing but the template makes special tokens, so `transformers` is right
        return self._guarded(with_marks, marks, plain)

    def _ids(self, text: str) -> list[int]:
        """As `transformers` reads what a template wrote."""
        found = self._tokenizer(text, add_special_tokens=False, padding=False, truncation=False, verbose=False)
        return list(found["input_ids"])

    def _read_in(self, messages: Messages) -> bool:
        """Does the tokenizer read a special token in a message, by whatever spelling?"""
        return any(self._special.among(self._ids(message["content"])) for message in messages)

    # The template

    def _write(self, messages: Messages) -> str:
        """The text of a chat; a last message of the assistant is left open.

        Raises:
            InvalidArgument: the template refuses the messages.
        """
        try:
            return self._rendered(messages)
        except Exception as error:  # a template is a program of the model's, and says in any way what it does not take
            # As a rule, what a template refuses it refuses whatever comes later.
            refused = [str(error)].__contains__
            last = bisect_left(range(1, len(messages)), True, key=lambda size: refused(self._complaint(messages[:size])))
            raise InvalidArgument(
                f"the chat template of this model does not take messages[{last}] (of the {messages[last]['role']}): {error}"
            ) from error

    def _rendered(self, messages: Messages) -> str:
        goes_on = messages[-1]["role"] == "assistant"
        return str(
            self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=not goes_on, continue_final_message=goes_on
            )
        )

    def _complaint(self, messages: Messages) -> str | None:
        """What the template says against messages."""
        try:
            self._rendered(messages)
        except Exception as error:
            return str(error)
        return None

    def _check_nothing_left_out(self, messages: Messages, written: str) -> None:
        """Does every message change what is written? Templates pass over roles that they do not know.

        Raises:
            InvalidArgument: one does not.
        """
        tails = unused(messages, self._tokenizer.chat_template)
        changed = [{**m, "content": m["content"] + tail} for m, tail in zip(messages, tails, strict=False)]
        text = self._attempt(changed)
        for i, message in enumerate(changed):
            if text is None or message["content"][-1] in text:
                continue
            if self._attempt([*messages[:i], message, *messages[i + 1 :]]) == written:
                raise InvalidArgument(
                    f"the chat template of this model leaves out messages[{i}] (of the {message['role']}); leave it out too, "
                    "or put its text into a message that the model reads."
                )

    def _attempt(self, messages: Messages) -> str | None:
        """The text of messages that nobody sent; None if the template refuses them."""
        with suppress(Exception):
            return self._rendered(messages)
        return None

    # Messages that spell special tokens

    def _with_marks(self, messages: Messages, written: str) -> tuple[str, dict[str, str]]:
        """What the template writes of messages with marks instead of special tokens, and what the marks stand for.

        Raises:
            InvalidArgument: the template looks into a message that spells a special token.
        """
        marked, marks = self._special.marked(messages, self._tokenizer.chat_template)
        if not marks:
            return written, {}
        with_marks = self._attempt(marked)
        if with_marks is not None and restored(with_marks, marks) == written:
            return with_marks, marks
        spelled = self._special.first_in(messages)
        if spelled is None:
            return written, {}
        raise InvalidArgument(
            f"{spelled} is a special token of this model, and its chat template does not treat messages as text, so it cannot "
            "be kept apart from the template's own; leave it out."
        )

    @cached_property
    def _twins(self) -> tuple[Any, dict[str, str], dict[int, int]]:
        """A tokenizer that reads special tokens as text and has a twin of each under a name that nobody knows.

        Returns:
            The tokenizer, the twin of each special token, and the id of the token of each twin's id.
        """
        from tokenizers import AddedToken

        declared = self._special.declared
        added = [{**t, "special": t["content"] in declared} for t in self._spec["added_tokens"]]
        spec = {**self._spec, "truncation": None, "padding": None, "added_tokens": added}
        backend = type(self._tokenizer.backend_tokenizer).from_str(json.dumps(spec))
        name = secrets.token_hex(16)
        twins = {content: f"{name}{number:06d}" for number, content in enumerate(declared)}
        flags = {content: {flag: t[flag] for flag in _FLAGS} for content, t in declared.items()}
        backend.add_tokens([AddedToken(twin, special=False, **flags[content]) for content, twin in twins.items()])
        backend.encode_special_tokens = True
        return backend, twins, {backend.token_to_id(twin): declared[content]["id"] for content, twin in twins.items()}

    def _guarded(self, with_marks: str, marks: dict[str, str], messages: Messages) -> list[int]:
        """Ids of a text whose special tokens are those outside the marks."""
        backend, twins, id_of = self._twins
        text, wanted = self._special.pattern.subn(lambda found: twins[found[0]], with_marks)
        ids = backend.encode(restored(text, marks), add_special_tokens=False).ids
        if sum(i in id_of for i in ids) != wanted or self._special.among(ids):
            raise InvalidArgument(
                f"{self._special.first_in(messages) or 'what a message spells'} is a special token of this model, and its "
                "tokenizer cannot read it as text; leave it out."
            )
        return [id_of.get(i, i) for i in ids]
