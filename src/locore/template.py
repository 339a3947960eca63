"""Chats as token ids: a model's own template, and no message that can write more than text."""

from __future__ import annotations

import json
import re
import secrets
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from itertools import chain
from typing import Any

from locore.chat import plain_messages
from locore.errors import InvalidArgument, MissingTemplate

_PRIVATE = (range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))  # characters to which Unicode will never give a meaning
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized")

Messages = list[dict[str, str]]


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
        declared = set(tokenizer.all_special_ids)
        self._special = {t["content"]: t for t in spec["added_tokens"] if t["special"] or t["id"] in declared}
        longest_first = sorted(self._special, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        model = spec["model"]
        of_unigrams = model["vocab"][model["unk_id"]][0] if model.get("unk_id") is not None else None
        self._unknown = model.get("unk_token", of_unigrams)  # any character may become it, at no harm
        self._special_ids = {t["id"] for content, t in self._special.items() if content != self._unknown}

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
        with_marks, spelled = self._with_marks(plain, written)
        ids, own = self._ids(written), self._count(with_marks)
        # Mostly nothing but the template makes special tokens, and `transformers` is right.
        if self._count(written) == own and (
            self._specials(ids) == own or not any(self._specials(self._ids(m["content"])) for m in plain)
        ):
            return ids
        return self._guarded(with_marks, spelled, plain)

    def _ids(self, text: str) -> list[int]:
        """As `transformers` reads what a template wrote."""
        return list(
            self._tokenizer(text, add_special_tokens=False, padding=False, truncation=False, verbose=False)["input_ids"]
        )

    def _specials(self, ids: list[int]) -> int:
        return sum(i in self._special_ids for i in ids)

    def _with_marks(self, messages: Messages, written: str) -> tuple[str, dict[str, str]]:
        """What the template writes of messages with marks instead of special tokens, and what each mark spells.

        Raises:
            InvalidArgument: the template looks into a message that spells a special token.
        """
        marked, spelled = self._marked(messages)
        if not spelled:
            return written, {}
        with suppress(Exception):  # of a template that refuses the marks
            with_marks = self._rendered(marked)
            if _restored(with_marks, spelled) == written:
                return with_marks, spelled
        if not any(self._pattern.search(m["content"]) for m in messages):
            return written, {}
        raise InvalidArgument(
            f"{self._found(messages)} is a special token of this model, and its chat template does not treat messages as text, "
            "so it cannot be kept apart from the template's own; leave it out."
        )

    def _count(self, text: str) -> int:
        return sum(found != self._unknown for found in self._pattern.findall(text))

    def _found(self, messages: Messages) -> str:
        """The first special token that messages spell, for an error."""
        for i, message in enumerate(messages):
            if found := self._pattern.search(message["content"]):
                return f"{found[0]!r} in messages[{i}]"
        return "what a message spells"

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
        tails = _unused(messages, self._tokenizer.chat_template)
        changed = [{**m, "content": m["content"] + tail} for m, tail in zip(messages, tails, strict=False)]
        try:
            text = self._rendered(changed)
        except Exception:  # no message of theirs
            return
        for i, message in enumerate(changed):
            alone = [*messages[:i], message, *messages[i + 1 :]]
            if message["content"][-1] not in text and self._rendered(alone) == written:
                raise InvalidArgument(
                    f"the chat template of this model leaves out messages[{i}] (of the {message['role']}); leave it out too, "
                    "or put its text into a message that the model reads."
                )

    # Messages that spell special tokens

    def _marked(self, messages: Messages) -> tuple[Messages, dict[str, str]]:
        """Messages with one unused character for whatever could be (part of) a special token, and what each spells."""
        unused = _unused(messages, self._tokenizer.chat_template)
        mark_of: dict[str, str] = {}

        def mark(text: str) -> str:
            if text not in mark_of:
                mark_of[text] = next(unused)
            return mark_of[text]

        marked = []
        for message in messages:
            content = self._pattern.sub(lambda found: mark(found[0]), message["content"])
            edges = self._edges(content)
            marked.append({**message, "content": "".join(mark(c) if i in edges else c for i, c in enumerate(content))})
        return marked, {character: text for text, character in mark_of.items()}

    def _edges(self, content: str) -> set[int]:
        """Characters without which neither end of a message can make a special token with what stands beside it."""
        start = len(content) - len(content.lstrip())
        text = content.strip()
        sizes = range(1, min(len(text), self._longest) + 1)
        heads = {start + size - 1 for size in sizes if text[:size] in self._parts[1]}
        tails = {start + len(text) - size for size in sizes if text[-size:] in self._parts[0]}
        inside = {start} if text and any(text in token for token in self._special if len(text) < len(token)) else set()
        return heads | tails | inside

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._special), default=1) - 1

    @cached_property
    def _parts(self) -> tuple[set[str], set[str]]:
        """Beginnings and ends of special tokens."""
        cuts = [(token, cut) for token in self._special for cut in range(1, len(token))]
        return {token[:cut] for token, cut in cuts}, {token[cut:] for token, cut in cuts}

    @cached_property
    def _twins(self) -> tuple[Any, dict[str, str], dict[int, int]]:
        """A tokenizer that reads special tokens as text and has a twin of each under a name that nobody knows.

        Returns:
            The tokenizer, the twin of each special token, and the id of the token of each twin's id.
        """
        from tokenizers import AddedToken

        added = [{**t, "special": t["content"] in self._special} for t in self._spec["added_tokens"]]
        spec = {**self._spec, "truncation": None, "padding": None, "added_tokens": added}
        backend = type(self._tokenizer.backend_tokenizer).from_str(json.dumps(spec))
        name = secrets.token_hex(16)
        twins = {content: f"{name}{number:06d}" for number, content in enumerate(self._special)}
        flags = {content: {flag: t[flag] for flag in _FLAGS} for content, t in self._special.items()}
        backend.add_tokens([AddedToken(twin, special=False, **flags[content]) for content, twin in twins.items()])
        backend.encode_special_tokens = True
        ids = {backend.token_to_id(twin): self._special[content]["id"] for content, twin in twins.items()}
        return backend, twins, ids

    def _guarded(self, with_marks: str, spelled: dict[str, str], messages: Messages) -> list[int]:
        """Ids of a text whose special tokens are those outside the marks."""
        backend, twins, id_of = self._twins
        wanted = len(self._pattern.findall(with_marks))
        text = _restored(self._pattern.sub(lambda found: twins[found[0]], with_marks), spelled)
        ids = backend.encode(text, add_special_tokens=False).ids
        if sum(i in id_of for i in ids) != wanted or self._specials(ids):
            raise InvalidArgument(
                f"{self._found(messages)} is a special token of this model, and its tokenizer cannot read it as text; leave it "
                "out."
            )
        return [id_of.get(i, i) for i in ids]


def _restored(text: str, spelled: dict[str, str]) -> str:
    return text.translate({ord(character): whole for character, whole in spelled.items()}) if spelled else text


def _unused(messages: Messages, template: object) -> Iterator[str]:
    """Private characters that stand nowhere in the messages nor in the template."""
    used = set(chain(str(template), *(m["content"] for m in messages)))
    yield from (chr(code) for codes in _PRIVATE for code in codes if chr(code) not in used)
    raise InvalidArgument("the messages use up the private characters of Unicode (planes 15 and 16); leave some of them out.")
