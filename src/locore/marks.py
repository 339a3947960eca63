"""Special tokens that a message spells, and characters that stand for them while a template writes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import Any

from locore.errors import InvalidArgument

_PRIVATE = (range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))  # characters to which Unicode will never give a meaning

Messages = list[dict[str, str]]


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
        return sum(found != self.unknown for found in self.pattern.findall(text))

    def among(self, ids: list[int]) -> int:
        """How many ids are special."""
        return sum(i in self.ids for i in ids)

    def first_in(self, messages: Messages) -> str | None:
        """The first that messages spell, and where, for an error."""
        for i, message in enumerate(messages):
            if found := self.pattern.search(message["content"]):
                return f"{found[0]!r} in messages[{i}]"
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

        found = []
        for message in messages:
            content = self.pattern.sub(lambda token: mark(token[0]), message["content"])
            edges = self._edges(content)
            found.append({**message, "content": "".join(mark(c) if i in edges else c for i, c in enumerate(content))})
        return found, {character: text for text, character in mark_of.items()}

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
