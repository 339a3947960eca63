"""The token ids of a chat, by a model's own template.

No message can write more than text: special tokens that it spells are replaced by marks while the template writes.
"""

from __future__ import annotations

import json
import re
import secrets
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from reprlib import repr as shortened
from typing import Any

from locore.kernel.chat import plain_messages
from locore.kernel.errors import InvalidArgument, MissingTemplate
from locore.kernel.plugins import cached_property

_PRIVATE = (range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))  # characters to which Unicode will never give a meaning
Messages = list[dict[str, str]]
RESERVED = (  # what the caller of a template decides, not whoever sends messages
    *("messages", "conversation", "tools", "documents", "chat_template", "add_generation_prompt", "continue_final_message"),
    *("tokenize", "padding", "truncation", "max_length", "return_tensors", "return_dict", "tokenizer_kwargs"),
    *("return_assistant_tokens_mask", "bos_token", "eos_token", "unk_token", "pad_token", "raise_exception"),
)
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized")


class SpecialTokens:
    """The special tokens of a tokenizer, as texts.

    Attributes:
        declared: each with its id and flags, as in tokenizer.json.
        unknown: the one that any character may become where the vocabulary cannot spell it; None if there is none.
        ids: of all but the unknown.
    """

    def __init__(self, spec: dict[str, Any], more: Iterable[int]) -> None:
        """Those of a tokenizer.

        Args:
            spec: its tokenizer.json.
            more: ids that count as special whatever it says.
        """
        special = set(more)
        self.declared = {t["content"]: t for t in spec["added_tokens"] if t["content"] and (t["special"] or t["id"] in special)}
        model = spec["model"]
        of_unigrams = model["vocab"][model["unk_id"]][0] if model.get("unk_id") is not None else None
        self.unknown = model.get("unk_token", of_unigrams)
        self.ids = {t["id"] for content, t in self.declared.items() if content != self.unknown}
        longest_first = sorted(self.declared, key=len, reverse=True)
        self.pattern = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def spelled(self, text: str) -> int:
        """How many a text spells."""
        return sum(token != self.unknown for token in self.pattern.findall(text))

    def among(self, ids: list[int]) -> int:
        """How many ids are special."""
        return sum(i in self.ids for i in ids)

    def first_in(self, messages: Messages) -> str | None:
        """The first that messages spell, and where, for an error."""
        for i, message in enumerate(messages):
            if match := self.pattern.search(message["content"]):
                return f"{match[0]!r} in messages[{i}]"
        return None

    def marked(self, messages: Messages, template: object) -> tuple[Messages, dict[str, str]]:
        """Messages that make no special token, not even with what stands beside them.

        Args:
            messages: with a text each.
            template: that will write them.

        Returns:
            The messages, with an unused character for whatever is, or could be part of, a special token; and what each of these
            characters stands for.
        """
        free = unused(messages, template)
        mark_of: dict[str, str] = {}

        def mark(text: str) -> str:
            if text not in mark_of:
                mark_of[text] = next(free)
            return mark_of[text]

        marked = []
        for message in messages:
            content = self.pattern.sub(lambda token: mark(token[0]), message["content"])
            edges = self._edges(content)
            marked.append({**message, "content": "".join(mark(c) if i in edges else c for i, c in enumerate(content))})
        return marked, {character: text for text, character in mark_of.items()}

    def _edges(self, content: str) -> set[int]:
        """Places of characters without which a message, or an end of it, is no part of a special token."""
        beginnings, ends = self._parts
        start = len(content) - len(content.lstrip())
        text = content.strip()
        sizes = range(1, min(len(text), max(map(len, self.declared), default=0)) + 1)
        heads = {start + size - 1 for size in sizes if text[:size] in ends}
        tails = {start + len(text) - size for size in sizes if text[-size:] in beginnings}
        inside = {start} if text and any(text in token for token in self.declared if len(text) < len(token)) else set()
        return heads | tails | inside

    @cached_property
    def _parts(self) -> tuple[set[str], set[str]]:
        """Beginnings and ends of special tokens."""
        cuts = [(token, cut) for token in self.declared for cut in range(1, len(token))]
        return {token[:cut] for token, cut in cuts}, {token[cut:] for token, cut in cuts}


def restored(text: str, marks: dict[str, str]) -> str:
    """A text with what its marks stand for."""
    return text.translate({ord(character): whole for character, whole in marks.items()}) if marks else text


def unused(messages: Messages, template: object) -> Iterator[str]:
    """Private characters that stand nowhere in the messages nor in the template."""
    used = set(chain(str(template), *(m["content"] for m in messages)))
    yield from (chr(code) for codes in _PRIVATE for code in codes if chr(code) not in used)
    raise InvalidArgument("the messages use up the private characters of Unicode (planes 15 and 16); leave some of them out.")


class ChatTemplate:
    """The chat template of a fast tokenizer.

    `transformers` writes a chat as one text and cuts that into tokens, so what a message spells like a special token would
    become that token: whoever writes a message could end it and begin one of the system. Here special tokens are those that
    the template itself writes, and in a message they are text. A chat that spells none has the ids that `transformers` gives.
    """

    def __init__(self, tokenizer: Any, spec: dict[str, Any], options: Mapping[str, Any] | None = None) -> None:
        """The template of a tokenizer.

        Args:
            tokenizer: a fast tokenizer of `transformers`.
            spec: its tokenizer.json.
            options: values of its own variables.
        """
        self._tokenizer = tokenizer
        self._spec = spec
        self._options = dict(options or {})
        self._special = SpecialTokens(spec, tokenizer.all_special_ids)

    def with_options(self, options: Mapping[str, Any]) -> ChatTemplate:
        """The same template with values for variables of its own, such as `enable_thinking`.

        Raises:
            InvalidArgument: the template knows no such variable, or it is one that decides what is written of a chat.
        """
        for name in options:
            mentioned = re.search(rf"\b{re.escape(name)}\b", str(self._tokenizer.chat_template or ""))
            if name in RESERVED or not mentioned or not name.isidentifier():
                raise InvalidArgument(
                    f"the chat template of this model has no option {shortened(name)}"
                    + (" that a caller may set; leave it out." if name in RESERVED else "; leave it out.")
                )
        return self._again(options)

    def _again(self, options: Mapping[str, Any]) -> ChatTemplate:
        return ChatTemplate(self._tokenizer, self._spec, options)

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
        encoded = self._tokenizer(text, add_special_tokens=False, padding=False, truncation=False, verbose=False)
        return list(encoded["input_ids"])

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
                messages, tokenize=False, add_generation_prompt=not goes_on, continue_final_message=goes_on, **self._options
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
        text, wanted = self._special.pattern.subn(lambda match: twins[match[0]], with_marks)
        ids = backend.encode(restored(text, marks), add_special_tokens=False).ids
        if sum(i in id_of for i in ids) != wanted or self._special.among(ids):
            raise InvalidArgument(
                f"{self._special.first_in(messages) or 'what a message spells'} is a special token of this model, and its "
                "tokenizer cannot read it as text; leave it out."
            )
        return [id_of.get(i, i) for i in ids]
