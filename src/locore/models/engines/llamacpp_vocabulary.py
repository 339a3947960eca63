"""What llama.cpp knows of a GGUF file beside its weights: how it cuts texts, what tokens spell, how chats are written."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from locore.kernel.errors import EngineError, InvalidArgument, MissingExtra, ModelNotFound
from locore.kernel.plugins import cached_property
from locore.kernel.tokenizer import Tokenizer
from locore.models.chat_template import ChatTemplate, restored
from locore.models.gguf_header import is_gguf

VERSION = "0.3.36"  # of llama-cpp-python, the oldest that was tried
LOG = "LOCORE_LLAMACPP_LOG"  # set in the environment, llama.cpp says all it has to say
_ERROR = 4  # ggml's number of that level
_UNKNOWN, _UNUSED, _CONTROL = 1, 2, 8  # attributes of tokens that spell nothing
_NO_TOKEN = -1
_ENDS = ("eos", "eot", "eom")  # of a text, a turn, a message
_BEGINNING = 2**25  # bytes of a file: more than any vocabulary takes
_WORDPIECE = 3  # a kind of vocabulary
_LINE_FEED = "\n"
_said: list[str] = []  # errors of llama.cpp, which returns nothing but that there was one


@cache
def library() -> ModuleType:
    """The low-level calls.

    Raises:
        MissingExtra: `llama-cpp-python` is not installed.
        EngineError: it is too old.
    """
    try:
        package = import_module("llama_cpp")
    except ImportError as error:
        raise MissingExtra(
            f"GGUF files in llama.cpp need llama-cpp-python: pip install 'locore[llamacpp]', which compiles for some minutes "
            f"({error})."
        ) from error
    except (OSError, RuntimeError) as error:
        raise EngineError(f"llama-cpp-python does not start: {error}. Install it anew.") from error
    api = getattr(package, "llama_cpp", package)
    if not (hasattr(api, "llama_memory_seq_cp") and hasattr(api.llama_context_params, "n_outputs_max")):
        raise EngineError(
            f"llama-cpp-python {getattr(package, '__version__', '?')} is too old: pip install 'llama-cpp-python>={VERSION}'."
        )
    if not os.environ.get(LOG):
        api.llama_log_set(_listener(api), ctypes.c_void_p(0))
    api.llama_backend_init()
    return api


@cache
def _listener(api: ModuleType) -> Any:
    """Keeps errors and drops the rest; llama.cpp calls it as long as the process lives."""

    def listen(level: int, text: bytes, _: Any) -> None:
        if level == _ERROR:
            _said[:] = [*_said[-3:], text.decode(errors="replace").strip()]

    return api.llama_log_callback(listen)


class Opened:
    """A model of llama.cpp; its memory is given back with the last reference.

    Attributes:
        api: llama.cpp's calls.
        file: that it was read from.
        pointer: llama.cpp's own to the model.
        vocabulary: the same to its vocabulary.
    """

    def __init__(self, file: Path, only_vocabulary: bool = False) -> None:
        """Open a file.

        Raises:
            ModelNotFound: there is no such file, it is damaged, or llama.cpp does not read it.
        """
        self.api = api = library()
        if not is_gguf(file):
            raise ModelNotFound(f"{file} is no GGUF file, which is what llama.cpp reads.")
        self.file = file
        wanted = api.llama_model_default_params()
        wanted.vocab_only = only_vocabulary
        _said.clear()
        self.pointer = api.llama_model_load_from_file(os.fsencode(file), wanted)
        if not self.pointer:
            reason = next((line for line in _said if line), "it does not say why").rstrip(".")
            raise ModelNotFound(f"llama.cpp cannot read {file}: {reason}. Get the file again, or a newer llama-cpp-python.")
        weakref.finalize(self, api.llama_model_free, self.pointer).atexit = False
        self.vocabulary = api.llama_model_get_vocab(self.pointer)

    def text(self, key: str) -> str | None:
        """A value of the metadata, as text; None if there is none."""
        size = 256
        while True:
            buffer = ctypes.create_string_buffer(size)
            used = self.api.llama_model_meta_val_str(self.pointer, key.encode(), buffer, size)
            if used < size:
                return buffer.value.decode(errors="replace") if used > 0 else None
            size = used + 1

    def number(self, key: str) -> int | None:
        """A number of the metadata of this architecture; None if there is none."""
        value = self.text(f"{self.text('general.architecture')}.{key}")
        return int(value) if value is not None and value.isdecimal() else None


@dataclass(frozen=True)
class Kinds:
    """Tokens by what they are.

    Attributes:
        silent: those that spell nothing: control tokens, the unknown one, columns without a token.
        special: the texts of control tokens and of the unknown one.
        ends: those that end a text: that the file names, so that a text ends where it does with transformers.
    """

    silent: frozenset[int]
    special: dict[str, int]
    ends: tuple[int, ...]


def _kinds(opened: Opened) -> Kinds:
    api, vocabulary = opened.api, opened.vocabulary
    attribute = {token: api.llama_vocab_get_attr(vocabulary, token) for token in range(api.llama_vocab_n_tokens(vocabulary))}
    special = [token for token, value in attribute.items() if value & (_CONTROL | _UNKNOWN)]
    named = (opened.text(f"tokenizer.ggml.{name}_token_id") for name in _ENDS)
    ends = list(dict.fromkeys(int(token) for token in named if token and token.isdecimal() and int(token) in attribute))
    if not ends:  # by their names, as llama.cpp knows them
        ends = [token for token in attribute if api.llama_vocab_is_eog(vocabulary, token)]
    silent = {token for token, value in attribute.items() if value & (_UNKNOWN | _UNUSED | _CONTROL)}
    texts = {api.llama_vocab_get_text(vocabulary, token).decode(errors="replace"): token for token in special}
    return Kinds(frozenset(silent | set(ends)), texts, tuple(ends))


@lru_cache(maxsize=4)
def _vocabulary(file: Path) -> Opened:
    """A file without its weights: tokenizers outlive models, and travel to other processes."""
    return Opened(file, only_vocabulary=True)


class LlamaCodec:
    """Encodes as llama.cpp does.

    Attributes:
        file: the GGUF file.
        source: equal sources encode alike.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.source = _hash(file)

    def __reduce__(self) -> tuple[Any, ...]:
        return LlamaCodec, (self.file,)

    def encode(self, text: str) -> list[int]:
        """Ids of a continuation: no BOS, no invented space, "</s>" is four characters."""
        if not self._invents_space:
            return self.tokenized(text, specials=False)
        # Behind a line feed, which goes together with nothing, no space is invented.
        head = self.tokenized(_LINE_FEED, specials=False)
        whole = self.tokenized(_LINE_FEED + text, specials=False)
        return whole[len(head) :] if whole[: len(head)] == head else self.tokenized(text, specials=False)

    def encode_prompt(self, text: str) -> list[int]:
        """Ids of a prompt, with the special tokens that the file puts before it."""
        return self.tokenized(text, specials=True, adds=True)

    def encode_chat(self, messages: object, options: Mapping[str, Any] | None = None) -> list[int]:
        """Ids of messages as the file's template writes them; see `Tokenizer.encode_chat`."""
        return (self._chat.with_options(options) if options else self._chat).encode(messages)

    @property
    def chat_source(self) -> str | None:
        """What the writing of a chat depends on; None without a template."""
        template = self._template
        return template and json.dumps([template, self.kinds.special], sort_keys=True)

    def tokenized(self, text: str, specials: bool, adds: bool = False) -> list[int]:
        """Ids of a text; `specials` are read in it, or `adds` before it."""
        data = text.encode()
        most = len(data) + 8
        ids = (ctypes.c_int32 * most)()
        number = self._opened.api.llama_tokenize(self._opened.vocabulary, data, len(data), ids, most, adds, specials)
        if number < 0:
            raise InvalidArgument(
                f"llama.cpp cuts a text of {len(data):,} bytes into {-number:,} tokens, more than it has bytes."
            )
        return list(ids[:number])

    def token_bytes(self) -> list[bytes | None]:
        """Bytes of all tokens; None for those that spell nothing."""
        every = range(self._opened.api.llama_vocab_n_tokens(self._opened.vocabulary))
        spelled = self._pieces([token for token in every if token not in self.kinds.silent])
        return [None if token in self.kinds.silent else next(spelled) or None for token in every]

    def _pieces(self, tokens: Iterable[int]) -> Iterator[bytes]:
        api, vocabulary = self._opened.api, self._opened.vocabulary
        buffer = ctypes.create_string_buffer(256)
        for token in tokens:
            while (used := api.llama_token_to_piece(vocabulary, token, buffer, len(buffer), 0, False)) < 0:
                buffer = ctypes.create_string_buffer(-used)
            yield bytes(memoryview(buffer)[:used])

    @property
    def starts(self) -> tuple[int, ...]:
        """What stands for an empty prompt."""
        begin = self._opened.api.llama_vocab_bos(self._opened.vocabulary)
        return () if begin == _NO_TOKEN else (begin,)

    @cached_property
    def kinds(self) -> Kinds:
        """Tokens by what they are."""
        return _kinds(self._opened)

    @cached_property
    def _opened(self) -> Opened:
        return _vocabulary(self.file)

    @cached_property
    def _invents_space(self) -> bool:
        api, vocabulary = self._opened.api, self._opened.vocabulary
        if api.llama_vocab_type(vocabulary) == _WORDPIECE:
            raise EngineError(f"{self.file.name} has a WordPiece vocabulary, which is that of no model that writes texts.")
        return b"".join(self._pieces(self.tokenized("a", specials=False))) != b"a"

    @cached_property
    def _template(self) -> str | None:
        return self._opened.text("tokenizer.chat_template")

    @cached_property
    def _chat(self) -> ChatTemplate:
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        added = [{"id": token, "content": text, "special": True, **flags} for text, token in self.kinds.special.items()]
        facts = SimpleNamespace(chat_template=self._template, all_special_ids=list(self.kinds.special.values()))
        return _Chat(facts, {"added_tokens": added, "model": {}}, codec=self)

    def named(self) -> dict[str, str]:
        """The special tokens that templates call by name."""
        api, vocabulary = self._opened.api, self._opened.vocabulary
        ids = {"bos_token": api.llama_vocab_bos(vocabulary), "eos_token": api.llama_vocab_eos(vocabulary)}
        texts = {token: text for text, token in self.kinds.special.items()}
        return {name: texts[token] for name, token in ids.items() if token in texts}


class _Chat(ChatTemplate):
    """The chat template of a GGUF file, whose text llama.cpp cuts into tokens."""

    def __init__(
        self, tokenizer: Any, spec: dict[str, Any], options: Mapping[str, Any] | None = None, *, codec: LlamaCodec
    ) -> None:
        super().__init__(tokenizer, spec, options)
        self._codec = codec

    def _again(self, options: Mapping[str, Any]) -> ChatTemplate:
        return _Chat(self._tokenizer, self._spec, options, codec=self._codec)

    def _ids(self, text: str) -> list[int]:
        return self._codec.tokenized(text, specials=True)

    def _rendered(self, messages: list[dict[str, str]]) -> str:
        from transformers.utils.chat_template_utils import render_jinja_template  # it takes seconds to import

        render: Any = render_jinja_template
        goes_on = messages[-1]["role"] == "assistant"
        [text], _ = render(
            [messages],
            chat_template=str(self._tokenizer.chat_template),
            add_generation_prompt=not goes_on,
            continue_final_message=goes_on,
            **self._codec.named(),
            **self._options,
        )
        return str(text)

    def _guarded(self, with_marks: str, marks: dict[str, str], messages: list[dict[str, str]]) -> list[int]:
        """What stands between the special tokens is read as text."""
        ids: list[int] = []
        at = 0
        for match in self._special.pattern.finditer(with_marks):
            ids += self._text_ids(with_marks[at : match.start()], marks)
            ids.append(self._special.declared[match[0]]["id"])
            at = match.end()
        return ids + self._text_ids(with_marks[at:], marks)

    def _text_ids(self, text: str, marks: dict[str, str]) -> list[int]:
        return self._codec.tokenized(restored(text, marks), specials=False) if text else []


def tokenizer_of(file: Path) -> Tokenizer:
    """The vocabulary of a GGUF file, as llama.cpp reads it; errors as `Opened`."""
    codec = LlamaCodec(file.resolve())
    table = codec.token_bytes()
    return Tokenizer(len(table), tuple(table), codec.kinds.ends, codec.starts, codec)


def _hash(file: Path) -> str:
    """Of its beginning, which has the vocabulary."""
    with file.open("rb") as stream:
        return f"llama.cpp {file.stat().st_size} {hashlib.sha256(stream.read(_BEGINNING)).hexdigest()}"
