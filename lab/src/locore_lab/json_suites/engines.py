"""Four engines that follow a text token by token and say what may come next; what one cannot take raises `NotTaken`."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any

import torch

from locore_lab.micro.mask_engines import Vocabulary

SPARE = 128  # tokens beyond the longest instance


class NotTaken(Exception):
    """The engine refuses a schema."""


class Follower(ABC):
    """A text that grows."""

    @abstractmethod
    def mask(self) -> Any:
        """What may come next; only the time counts."""

    @abstractmethod
    def read(self, token: int) -> bool:
        """Read a token; False where it may not come."""

    @abstractmethod
    def may_end(self) -> bool:
        """May the text end here?"""


class JsonEngine(ABC):
    """Takes schemas.

    Attributes:
        longest: tokens of the longest instance, for engines that are told a length.
    """

    name: str
    longest = 0

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    @abstractmethod
    def compile(self, schema: Any, formats: bool) -> Any:
        """A schema made ready; formats: is `format` asserted, where the engine lets one choose?"""

    @abstractmethod
    def start(self, compiled: Any) -> Follower:
        """The empty text."""


class _LocoreText(Follower):
    def __init__(self, reader: Any, end: int) -> None:
        from locore.circuits.left_to_right import MaskReader

        self._reader, self._end, self._known = MaskReader(reader), end, None

    def mask(self) -> Any:
        """What may come."""
        self._known = self._reader.mask()
        return self._known

    def read(self, token: int) -> bool:
        """Read a token."""
        allowed = bool(self.mask()[token])
        self._reader.advance(token)
        return allowed

    def may_end(self) -> bool:
        """May the text end?"""
        return bool(self.mask()[self._end])


class Locore(JsonEngine):
    """Compiled for many tokens; `order="any"` with all spellings of the standard, the other one as is the default."""

    def __init__(self, vocabulary: Vocabulary, order: str) -> None:
        super().__init__(vocabulary)
        self.name = f"Locore, order={order}"
        self._options = {"order": order}
        if order == "any":
            self._options |= {"whitespace": "compact", "integers": "any", "escapes": "any"}

    def compile(self, schema: Any, formats: bool) -> Any:
        """A schema made ready."""
        from locore import compile as compile_constraint
        from locore import json_schema
        from locore.errors import LocoreError, Unsatisfiable

        try:
            leaf = json_schema(schema, **self._options, formats="asserted" if formats else "annotations")
            return compile_constraint(leaf, self.vocabulary.tokenizer, self.longest + SPARE, use_cache=False)
        except Unsatisfiable:
            return None  # no text is valid: taken, and everything is refused
        except LocoreError as error:
            raise NotTaken(str(error)) from error

    def start(self, compiled: Any) -> Follower:
        """The empty text."""
        return Nothing() if compiled is None else _LocoreText(compiled.reader, self.vocabulary.end)


class Nothing(Follower):
    """No text at all."""

    def mask(self) -> Any:
        """What may come."""
        return None

    def read(self, token: int) -> bool:
        """Read a token."""
        return False

    def may_end(self) -> bool:
        """May the text end?"""
        return False


class _Guidance(Follower):
    def __init__(self, matcher: Any, size: int) -> None:
        import llguidance.torch

        self._matcher, self._fill = matcher, llguidance.torch.fill_next_token_bitmask
        self._bits = llguidance.torch.allocate_token_bitmask(1, size)

    def mask(self) -> Any:
        """What may come."""
        self._fill(self._matcher, self._bits, 0)
        return self._bits

    def read(self, token: int) -> bool:
        """Read a token."""
        return bool(self._matcher.try_consume_tokens([token]) == 1)

    def may_end(self) -> bool:
        """May the text end?"""
        return bool(self._matcher.is_accepting())


class LLGuidance(JsonEngine):
    """llguidance, compact, with its slices for JSON."""

    name = "llguidance"

    def __init__(self, vocabulary: Vocabulary) -> None:
        import llguidance

        super().__init__(vocabulary)
        plain = llguidance.LLTokenizer(vocabulary.fast.backend_tokenizer.to_str(), vocabulary.size, vocabulary.end)
        self._tokens = plain.with_slices(llguidance.LLTokenizer.json_slices())

    def compile(self, schema: Any, formats: bool) -> Any:
        """A schema made ready."""
        from llguidance import LLMatcher

        options = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
        try:
            grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema), defaults=options)
            matcher = LLMatcher(self._tokens, grammar)
        except ValueError as error:
            raise NotTaken(str(error)) from error
        if matcher.is_error():
            raise NotTaken(matcher.get_error())
        return matcher

    def start(self, compiled: Any) -> Follower:
        """The empty text."""
        return _Guidance(compiled.deep_copy(), self.vocabulary.size)


class _Grammar(Follower):
    def __init__(self, matcher: Any, bits: torch.Tensor) -> None:
        self._matcher, self._bits = matcher, bits

    def mask(self) -> Any:
        """What may come."""
        self._matcher.fill_next_token_bitmask(self._bits)
        return self._bits

    def read(self, token: int) -> bool:
        """Read a token."""
        return bool(self._matcher.accept_token(token))

    def may_end(self) -> bool:
        """May the text end?"""
        return bool(self._matcher.is_completed())


class XGrammar(JsonEngine):
    """xgrammar, compact; strict is its default, in which objects are closed."""

    def __init__(self, vocabulary: Vocabulary, strict: bool) -> None:
        import xgrammar

        super().__init__(vocabulary)
        self.name, self._strict = f"xgrammar{', strict' if strict else ''}", strict
        self._info = xgrammar.TokenizerInfo.from_huggingface(
            vocabulary.fast, vocab_size=vocabulary.size, stop_token_ids=[vocabulary.end]
        )

    def compile(self, schema: Any, formats: bool) -> Any:
        """A schema made ready."""
        import xgrammar

        compiler = xgrammar.GrammarCompiler(self._info, max_threads=1, cache_enabled=False)
        options = {"any_whitespace": False, "separators": (",", ":"), "strict_mode": self._strict}
        try:
            return compiler.compile_json_schema(json.dumps(schema), **options)
        except (RuntimeError, ValueError) as error:
            raise NotTaken(str(error)) from error

    def start(self, compiled: Any) -> Follower:
        """The empty text."""
        import xgrammar

        bits = xgrammar.allocate_token_bitmask(1, self.vocabulary.size)
        return _Grammar(xgrammar.GrammarMatcher(compiled, terminate_without_stop_token=False), bits)


class _Guide(Follower):
    def __init__(self, guide: Any, bits: torch.Tensor) -> None:
        from outlines_core.kernels.torch import fill_next_token_bitmask

        self._guide, self._bits, self._fill = guide, bits, fill_next_token_bitmask

    def mask(self) -> Any:
        """What may come."""
        self._fill(self._guide, self._bits)
        return self._bits

    def read(self, token: int) -> bool:
        """Read a token."""
        try:
            self._guide.advance(token, return_tokens=False)
        except ValueError:
            return False
        return True

    def may_end(self) -> bool:
        """May the text end?"""
        return bool(self._guide.is_finished())


class OutlinesCore(JsonEngine):
    """outlines-core: a regular expression and an index of all its transitions."""

    name = "outlines-core"

    def __init__(self, vocabulary: Vocabulary) -> None:
        from outlines_core import Vocabulary as Words

        super().__init__(vocabulary)
        table: dict[bytes, list[int]] = {}
        for token, content in enumerate(vocabulary.tokenizer.token_bytes):
            if content:
                table.setdefault(content, []).append(token)
        self._words = Words(vocabulary.end, table)

    def compile(self, schema: Any, formats: bool) -> Any:
        """A schema made ready."""
        from outlines_core import Index
        from outlines_core.json_schema import build_regex_from_schema

        try:
            return Index(build_regex_from_schema(json.dumps(schema), whitespace_pattern=""), self._words)
        except (ValueError, TypeError, RuntimeError) as error:
            raise NotTaken(str(error)) from error

    def start(self, compiled: Any) -> Follower:
        """The empty text."""
        from outlines_core import Guide
        from outlines_core.kernels.torch import allocate_token_bitmask

        return _Guide(Guide(compiled), allocate_token_bitmask(self.vocabulary.size))
