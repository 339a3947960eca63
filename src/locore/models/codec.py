"""Fast tokenizers of `transformers`: exact spelling of tokens, and encoding as a continuation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from locore.kernel.errors import LocoreError
from locore.kernel.plugins import cached_property
from locore.kernel.tokenizer import Tokenizer
from locore.models.chat_template import ChatTemplate

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE = "\u2581"  # how SentencePiece writes a space


class HuggingFaceCodec:
    """Encodes as a fast tokenizer does, and knows what its tokens spell.

    Attributes:
        source: the tokenizer as JSON; equal sources encode alike.
    """

    def __init__(self, tokenizer: Any) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise LocoreError(
                f"{type(tokenizer).__name__} is not a fast tokenizer, so its tokens have no exact "
                "bytes. Convert it to a tokenizer.json and load that."
            )
        self._tokenizer = tokenizer
        backend = tokenizer.backend_tokenizer
        plain = type(backend).from_str(backend.to_str())
        plain.no_padding()  # both say how the last batch was laid out, not how a text is cut
        plain.no_truncation()
        self.source: str = plain.to_str()
        self._spec: dict[str, Any] = json.loads(self.source)
        spec = dict(self._spec)
        for part in ("normalizer", "pre_tokenizer"):
            spec[part] = _without_dummy_prefix(spec[part])
        # A second tokenizer, so that nobody else's is changed.
        self._continuation = type(backend).from_str(json.dumps(spec))
        self._continuation.encode_special_tokens = True

    def encode(self, text: str) -> list[int]:
        """Ids of a continuation: no BOS, no invented space, "</s>" is four characters."""
        ids: list[int] = self._continuation.encode(text, add_special_tokens=False).ids
        return ids

    def encode_prompt(self, text: str) -> list[int]:
        """Ids of a prompt, with the special tokens that the tokenizer itself adds."""
        return list(self._tokenizer(text, verbose=False)["input_ids"])

    def encode_chat(self, messages: object, options: Mapping[str, Any] | None = None) -> list[int]:
        """Ids of messages as the chat template of the tokenizer writes them; see `Tokenizer.encode_chat`."""
        template = self._template.with_options(options) if options else self._template
        return template.encode(messages)

    @property
    def chat_source(self) -> str | None:
        """What the writing of a chat depends on beside `source`, as JSON; None without a template."""
        template = self._tokenizer.chat_template
        return json.dumps([template, self._tokenizer.special_tokens_map], sort_keys=True, default=str) if template else None

    @cached_property
    def _template(self) -> ChatTemplate:
        return ChatTemplate(self._tokenizer, self._spec)

    def token_bytes(self, size: int) -> list[bytes | None]:
        """Bytes of the tokens 0 … size−1; None for special tokens and ids without a token."""
        added = {t["id"]: t["special"] for t in self._spec["added_tokens"]}
        special = {i for i, is_special in added.items() if is_special}
        special.update(self._tokenizer.all_special_ids)
        unknown = self._spec["model"].get("unk_token")
        byte_level = "ByteLevel" in set(_types(self._spec["decoder"]))
        spell = _byte_level_bytes if byte_level else self._piece_speller()
        table: list[bytes | None] = [None] * size
        for token, i in self._tokenizer.get_vocab().items():
            if i >= size or i in special or token == unknown:
                continue
            table[i] = token.encode() if byte_level and i in added else spell(token)
        return table

    def _piece_speller(self) -> Any:
        """The speller of SentencePiece-like tokens, if that is what they are."""
        kinds = set(_types(self._spec["decoder"]))
        if "Metaspace" not in kinds and _SPACE not in json.dumps(self._spec["decoder"], ensure_ascii=False):
            raise LocoreError(
                f"Locore cannot tell the bytes of the tokens of this tokenizer (decoder: "
                f"{sorted(kinds) or 'none'}). Use a model with a byte-level or a "
                "SentencePiece-like tokenizer."
            )
        falls_back = "ByteFallback" in kinds

        def spell(token: str) -> bytes:
            byte = _BYTE_TOKEN.fullmatch(token) if falls_back else None
            return bytes([int(byte[1], 16)]) if byte else token.replace(_SPACE, " ").encode()

        return spell


def _types(part: Any) -> Iterator[str]:
    """Every `type` inside a part of a tokenizer's JSON."""
    if isinstance(part, dict):
        if isinstance(part.get("type"), str):
            yield part["type"]
        part = list(part.values())
    if isinstance(part, list):
        for item in part:
            yield from _types(item)


def _without_dummy_prefix(part: Any) -> Any:
    """A normaliser or pre-tokenizer without the space that it puts before a text."""
    if isinstance(part, list):
        return [rest for item in part if (rest := _without_dummy_prefix(item)) is not None]
    if not isinstance(part, dict):
        return part
    if part.get("type") == "Prepend":
        return None
    part = {key: _without_dummy_prefix(value) for key, value in part.items()}
    if part.get("type") == "Metaspace":
        part["prepend_scheme"] = "never"
    if "add_prefix_space" in part:
        part["add_prefix_space"] = False
    return part


def _byte_alphabet() -> dict[str, int]:
    """The characters with which GPT-2 writes the 256 bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()


def _byte_level_bytes(token: str) -> bytes:
    if all(c in _BYTE_OF for c in token):
        return bytes(_BYTE_OF[c] for c in token)
    return token.encode()


def of_fast(tokenizer: Any, vocab_size: int | None, eos_ids: Iterable[int]) -> Tokenizer:
    """As `Tokenizer.from_huggingface`."""
    codec = HuggingFaceCodec(tokenizer)
    size = len(tokenizer) if vocab_size is None else vocab_size
    ends = [i for i in (*eos_ids, tokenizer.eos_token_id) if i is not None and i < size]
    starts = [i for i in (tokenizer.bos_token_id,) if i is not None and i < size]
    table = codec.token_bytes(size)
    for end in ends:
        table[end] = None
    return Tokenizer(size, tuple(table), tuple(dict.fromkeys(ends)), tuple(starts), codec)


Tokenizer.made_of_fast = of_fast
