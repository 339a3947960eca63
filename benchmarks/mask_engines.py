"""The engines that `masks.py` compares, behind one small interface."""

import importlib.metadata
import json
import re
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from tokenizers import Tokenizer as FastTokenizer
from transformers import PreTrainedTokenizerFast

import locore
from locore.circuits.masks import MaskReader

END = "<|end|>"


class NotExpressible(Exception):
    """The engine has no such constraints."""


@dataclass(frozen=True)
class Case:
    """A constraint, texts that satisfy it, and a number of tokens."""

    name: str
    kind: str
    what: Any
    texts: list[str]
    length: int

    def alpha(self) -> locore.Constraint:
        """The constraint for Locore, new at every call."""
        if self.kind == "ban":
            return locore.ban(self.what)
        if self.kind == "regex":
            return locore.regex(self.what)
        # The order and the white space that the others allow.
        return locore.json_schema(self.what, whitespace="single", order="schema")


@dataclass(frozen=True)
class Vocabulary:
    """A byte-level BPE for all engines."""

    path: Path
    fast: PreTrainedTokenizerFast
    tokenizer: locore.Tokenizer
    set_up_seconds: float

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        fast = PreTrainedTokenizerFast(tokenizer_object=FastTokenizer.from_file(str(path)), eos_token=END)
        start = time.process_time()
        tokenizer = locore.Tokenizer.from_huggingface(fast)
        return cls(path, fast, tokenizer, time.process_time() - start)

    @property
    def size(self) -> int:
        return self.tokenizer.vocab_size

    @property
    def end(self) -> int:
        return self.tokenizer.eos_ids[0]


class Walker(ABC):
    """One text, token by token."""

    position = 0

    @abstractmethod
    def mask(self) -> Any:
        """The mask after what was read so far."""

    @abstractmethod
    def read(self, token: int) -> None:
        """Go on by a token."""

    def advance(self, token: int) -> None:
        self.read(token)
        self.position += 1

    def allows(self, mask: torch.Tensor, token: int) -> bool:
        """Is a bit of an Int32[1, words] mask set?"""
        return bool(int(mask[0, token // 32]) >> token % 32 & 1)


class Engine(ABC):
    """Makes walkers from constraints."""

    name: ClassVar[str]
    package: ClassVar[str]
    look_ahead: ClassVar[bool] = False

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        start = time.process_time()
        self.set_up()
        self.set_up_seconds = time.process_time() - start

    @classmethod
    def version(cls) -> str:
        return importlib.metadata.version(cls.package)

    @abstractmethod
    def set_up(self) -> None:
        """Whatever is done once for a vocabulary."""

    @abstractmethod
    def compile(self, case: Case) -> Any:
        """What is done once for a constraint."""

    @abstractmethod
    def start(self, grammar: Any) -> Walker:
        """A new text."""

    @abstractmethod
    def apply(self, logits: torch.Tensor, mask: Any) -> None:
        """Forbid in Float[1, vocab] what the mask forbids."""


class _LocoreWalker(Walker):
    def __init__(self, reader: MaskReader) -> None:
        self.reader = reader
        self.mask = reader.mask  # type: ignore[method-assign]
        self.read = reader.advance  # type: ignore[method-assign]

    mask = read = None  # type: ignore[assignment]

    def allows(self, mask: torch.Tensor, token: int) -> bool:
        return bool(mask[token])


class Locore(Engine):
    """A `MaskReader`: keeps the state and the masks that it made."""

    name = package = "locore"
    look_ahead = True

    def set_up(self) -> None:
        self.set_up_seconds = self.vocabulary.set_up_seconds

    def compile(self, case: Case) -> MaskReader:
        circuit = locore.compile(case.alpha(), self.vocabulary.tokenizer, case.length, use_cache=False)
        assert circuit.reader is not None
        return MaskReader(circuit.reader)

    def start(self, grammar: MaskReader) -> Walker:
        return _LocoreWalker(grammar.copy())

    def apply(self, logits: torch.Tensor, mask: torch.Tensor) -> None:
        logits.masked_fill_(~mask, float("-inf"))


class ComputingLocore(Locore):
    """A `MaskReader` that keeps no masks."""

    name = "locore, none kept"

    def compile(self, case: Case) -> MaskReader:
        circuit = locore.compile(case.alpha(), self.vocabulary.tokenizer, case.length, use_cache=False)
        assert circuit.reader is not None
        return MaskReader(circuit.reader, memory_bytes=0)


class _PlainWalker(Walker):
    def __init__(self, circuit: Any) -> None:
        self.circuit, self.ids = circuit, []

    def mask(self) -> torch.Tensor:
        return self.circuit.allowed(torch.tensor(self.ids, dtype=torch.long))

    def read(self, token: int) -> None:
        self.ids.append(token)

    def allows(self, mask: torch.Tensor, token: int) -> bool:
        return bool(mask[token])


class PlainLocore(Locore):
    """`circuit.allowed(prefix)`: reads the prefix anew each time."""

    name = "locore, plain path"

    def compile(self, case: Case) -> Any:
        return locore.compile(case.alpha(), self.vocabulary.tokenizer, case.length, use_cache=False)

    def start(self, grammar: Any) -> Walker:
        return _PlainWalker(grammar)


class _LLGuidanceWalker(Walker):
    def __init__(self, matcher: Any, bits: torch.Tensor) -> None:
        import llguidance.torch

        self.matcher, self.bits = matcher, bits
        self.fill = llguidance.torch.fill_next_token_bitmask

    def mask(self) -> torch.Tensor:
        self.fill(self.matcher, self.bits, 0)
        return self.bits

    def read(self, token: int) -> None:
        assert self.matcher.consume_token(token)


class LLGuidance(Engine):
    """llguidance's matcher, with its slices for JSON schemas in that case and its general ones else."""

    name = package = "llguidance"

    def set_up(self) -> None:
        import llguidance

        self.general = llguidance.LLTokenizer(
            self.vocabulary.fast.backend_tokenizer.to_str(), self.vocabulary.size, self.vocabulary.end
        )
        self.json = self.general.with_slices(llguidance.LLTokenizer.json_slices())

    def compile(self, case: Case) -> Any:
        from llguidance import LLMatcher, LLParserLimits

        if case.kind == "json":
            options = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
            schema = {**case.what, "x-guidance": options}
            return LLMatcher(self.json, LLMatcher.grammar_from_json_schema(json.dumps(schema)))
        if case.kind == "regex":
            return LLMatcher(self.general, LLMatcher.grammar_from_regex(case.what))
        phrases = "|".join(re.escape(phrase).replace("/", r"\/") for phrase in case.what)
        grammar = f"start: TEXT\nTEXT: /(?s:.*)/ & ~/(?s:.*)({phrases})(?s:.*)/"
        # Its default limits refuse so many phrases.
        limits = LLParserLimits(initial_lexer_fuel=10**9, step_lexer_fuel=10**9)
        matcher = LLMatcher(self.general, LLMatcher.grammar_from_lark(grammar), limits=limits)
        if matcher.is_error():
            raise NotExpressible(matcher.get_error())
        return matcher

    def start(self, grammar: Any) -> Walker:
        import llguidance.torch

        return _LLGuidanceWalker(grammar.deep_copy(), llguidance.torch.allocate_token_bitmask(1, self.vocabulary.size))

    def apply(self, logits: torch.Tensor, mask: torch.Tensor) -> None:
        import llguidance.torch

        llguidance.torch.apply_token_bitmask_inplace(logits, mask)


class _XGrammarWalker(Walker):
    def __init__(self, matcher: Any, bits: torch.Tensor) -> None:
        self.matcher, self.bits = matcher, bits

    def mask(self) -> torch.Tensor:
        self.matcher.fill_next_token_bitmask(self.bits)
        return self.bits

    def read(self, token: int) -> None:
        assert self.matcher.accept_token(token)


class XGrammar(Engine):
    """xgrammar's matcher; grammars are compiled on one thread."""

    name = package = "xgrammar"

    def set_up(self) -> None:
        import xgrammar

        self.info = xgrammar.TokenizerInfo.from_huggingface(
            self.vocabulary.fast, vocab_size=self.vocabulary.size, stop_token_ids=[self.vocabulary.end]
        )

    def compile(self, case: Case) -> Any:
        import xgrammar

        compiler = xgrammar.GrammarCompiler(self.info, max_threads=1, cache_enabled=False)
        if case.kind == "json":
            return compiler.compile_json_schema(json.dumps(case.what), any_whitespace=False)
        if case.kind == "regex":
            return compiler.compile_regex(case.what)
        raise NotExpressible("no complement and no look-around in its regular expressions")

    def start(self, grammar: Any) -> Walker:
        import xgrammar

        return _XGrammarWalker(xgrammar.GrammarMatcher(grammar), xgrammar.allocate_token_bitmask(1, self.vocabulary.size))

    def apply(self, logits: torch.Tensor, mask: torch.Tensor) -> None:
        import xgrammar

        xgrammar.apply_token_bitmask_inplace(logits, mask)


class _OutlinesWalker(Walker):
    def __init__(self, guide: Any, bits: torch.Tensor) -> None:
        from outlines_core.kernels.torch import fill_next_token_bitmask

        self.guide, self.bits, self.fill = guide, bits, fill_next_token_bitmask

    def mask(self) -> torch.Tensor:
        self.fill(self.guide, self.bits)
        return self.bits

    def read(self, token: int) -> None:
        self.guide.advance(token, return_tokens=False)


class OutlinesCore(Engine):
    """outlines-core: an index of all transitions, made at once; JSON schemas become regular expressions."""

    name = package = "outlines-core"

    def set_up(self) -> None:
        from outlines_core import Vocabulary as Words

        table: dict[bytes, list[int]] = {}
        for token, content in enumerate(self.vocabulary.tokenizer.token_bytes):
            if content:
                table.setdefault(content, []).append(token)
        self.words = Words(self.vocabulary.end, table)

    def compile(self, case: Case) -> Any:
        from outlines_core import Index
        from outlines_core.json_schema import build_regex_from_schema

        if case.kind == "ban":
            raise NotExpressible("no complement and no look-around in its regular expressions")
        pattern = build_regex_from_schema(json.dumps(case.what)) if case.kind == "json" else case.what
        return Index(pattern, self.words)

    def start(self, grammar: Any) -> Walker:
        from outlines_core import Guide
        from outlines_core.kernels.torch import allocate_token_bitmask

        return _OutlinesWalker(Guide(grammar), allocate_token_bitmask(self.vocabulary.size))

    def apply(self, logits: torch.Tensor, mask: torch.Tensor) -> None:
        from outlines_core.kernels.torch import apply_token_bitmask_inplace

        apply_token_bitmask_inplace(logits, mask)


ENGINES: tuple[type[Engine], ...] = (Locore, ComputingLocore, PlainLocore, LLGuidance, XGrammar, OutlinesCore)
