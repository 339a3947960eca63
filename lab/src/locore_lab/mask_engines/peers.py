"""llguidance, xgrammar and outlines-core behind the interface of this package; each is imported when it is made."""

from __future__ import annotations

import json
import re
from typing import Any

import torch

from locore_lab.mask_engines import Constrained, Engine, NotTaken, Vocabulary, Walker


class LLGuidanceWalker(Walker):
    """Of llguidance."""

    def __init__(self, matcher: Any, size: int) -> None:
        import llguidance.torch

        self.matcher, self.fill = matcher, llguidance.torch.fill_next_token_bitmask
        self.bits = llguidance.torch.allocate_token_bitmask(1, size)

    def mask(self) -> Any:
        self.fill(self.matcher, self.bits, 0)
        return self.bits

    def read(self, token: int) -> bool:
        return bool(self.matcher.try_consume_tokens([token]) == 1)

    def may_end(self) -> bool:
        return bool(self.matcher.is_accepting())


class LLGuidance(Engine):
    """llguidance's matcher, with its slices for JSON schemas in that case and its general ones else."""

    name = package = "llguidance"

    def __init__(self, vocabulary: Vocabulary) -> None:
        import llguidance

        super().__init__(vocabulary)
        self.general = llguidance.LLTokenizer(vocabulary.fast.backend_tokenizer.to_str(), vocabulary.size, vocabulary.end)
        self.json = self.general.with_slices(llguidance.LLTokenizer.json_slices())

    def compile(self, case: Constrained) -> Any:
        try:
            matcher = self._matcher(case)
        except ValueError as error:
            raise NotTaken(str(error)) from error
        if matcher.is_error():
            raise NotTaken(matcher.get_error())
        return matcher

    def _matcher(self, case: Constrained) -> Any:
        from llguidance import LLMatcher, LLParserLimits

        if case.kind == "json":
            item, key = case.separators
            options: Any = {"whitespace_flexible": False, "item_separator": item, "key_separator": key}
            return LLMatcher(self.json, LLMatcher.grammar_from_json_schema(json.dumps(case.what), defaults=options))
        if case.kind == "regex":
            return LLMatcher(self.general, LLMatcher.grammar_from_regex(case.what))
        if case.kind in ("lark", "gbnf"):
            return LLMatcher(self.general, self._lark(case), log_level=0)
        phrases = "|".join(re.escape(phrase).replace("/", r"\/") for phrase in case.what)
        grammar = f"start: TEXT\nTEXT: /(?s:.*)/ & ~/(?s:.*)({phrases})(?s:.*)/"
        # Its default limits refuse so many phrases.
        limits = LLParserLimits(initial_lexer_fuel=10**9, step_lexer_fuel=10**9)
        return LLMatcher(self.general, LLMatcher.grammar_from_lark(grammar), limits=limits)

    def _lark(self, case: Constrained) -> Any:
        """A grammar; one in GBNF by the converter that comes with it."""
        from llguidance import LLMatcher
        from llguidance.gbnf_to_lark import GbnfToLarkError, gbnf_to_lark

        try:
            return LLMatcher.grammar_from_lark(gbnf_to_lark(case.what) if case.kind == "gbnf" else case.what)
        except GbnfToLarkError as error:
            raise NotTaken(str(error)) from error

    def start(self, compiled: Any) -> Walker:
        return LLGuidanceWalker(compiled.deep_copy(), self.vocabulary.size)

    def apply(self, logits: torch.Tensor, mask: Any) -> None:
        import llguidance.torch

        llguidance.torch.apply_token_bitmask_inplace(logits, mask)


class XGrammarWalker(Walker):
    """Of xgrammar."""

    def __init__(self, matcher: Any, bits: torch.Tensor) -> None:
        self.matcher, self.bits = matcher, bits

    def mask(self) -> Any:
        self.matcher.fill_next_token_bitmask(self.bits)
        return self.bits

    def read(self, token: int) -> bool:
        return bool(self.matcher.accept_token(token))

    def may_end(self) -> bool:
        return bool(self.matcher.is_completed())


class XGrammar(Engine):
    """xgrammar's matcher; grammars are compiled on one thread. Strict is its default, in which objects are closed."""

    package = "xgrammar"

    def __init__(self, vocabulary: Vocabulary, strict: bool = True, name: str = "xgrammar") -> None:
        import xgrammar

        super().__init__(vocabulary)
        self.name, self.strict = name, strict
        self.info = xgrammar.TokenizerInfo.from_huggingface(
            vocabulary.fast, vocab_size=vocabulary.size, stop_token_ids=[vocabulary.end]
        )

    def compile(self, case: Constrained) -> Any:
        import xgrammar

        if case.kind == "ban":
            raise NotTaken("no complement and no look-around in its regular expressions")
        if case.kind == "lark":
            raise NotTaken("no grammars in Lark's syntax")
        compiler = xgrammar.GrammarCompiler(self.info, max_threads=1, cache_enabled=False)
        try:
            if case.kind == "regex":
                return compiler.compile_regex(case.what)
            if case.kind == "gbnf":
                return compiler.compile_grammar(case.what)
            spelling: dict[str, Any] = {"any_whitespace": False, "separators": case.separators, "strict_mode": self.strict}
            return compiler.compile_json_schema(json.dumps(case.what), **spelling)
        except (RuntimeError, ValueError) as error:
            raise NotTaken(str(error)) from error

    def start(self, compiled: Any) -> Walker:
        import xgrammar

        matcher = xgrammar.GrammarMatcher(compiled, terminate_without_stop_token=False)
        return XGrammarWalker(matcher, xgrammar.allocate_token_bitmask(1, self.vocabulary.size))

    def apply(self, logits: torch.Tensor, mask: Any) -> None:
        import xgrammar

        xgrammar.apply_token_bitmask_inplace(logits, mask)


class OutlinesWalker(Walker):
    """Of outlines-core."""

    def __init__(self, guide: Any, bits: torch.Tensor) -> None:
        from outlines_core.kernels.torch import fill_next_token_bitmask

        self.guide, self.bits, self.fill = guide, bits, fill_next_token_bitmask

    def mask(self) -> Any:
        self.fill(self.guide, self.bits)
        return self.bits

    def read(self, token: int) -> bool:
        try:
            self.guide.advance(token, return_tokens=False)
        except ValueError:
            return False
        return True

    def may_end(self) -> bool:
        return bool(self.guide.is_finished())


class OutlinesCore(Engine):
    """outlines-core: an index of all transitions, made at once; JSON schemas become regular expressions."""

    name = package = "outlines-core"

    def __init__(self, vocabulary: Vocabulary) -> None:
        from outlines_core import Vocabulary as Words

        super().__init__(vocabulary)
        known: dict[bytes, list[int]] = {}
        for token, content in enumerate(vocabulary.tokenizer.token_bytes):
            if content:
                known.setdefault(content, []).append(token)
        self.words = Words(vocabulary.end, known)

    def compile(self, case: Constrained) -> Any:
        from outlines_core import Index
        from outlines_core.json_schema import build_regex_from_schema

        if case.kind == "ban":
            raise NotTaken("no complement and no look-around in its regular expressions")
        compact = {"whitespace_pattern": ""} if case.separators == (",", ":") else {}
        try:
            pattern = build_regex_from_schema(json.dumps(case.what), **compact) if case.kind == "json" else case.what
            return Index(pattern, self.words)
        except (ValueError, TypeError, RuntimeError) as error:
            raise NotTaken(str(error)) from error

    def start(self, compiled: Any) -> Walker:
        from outlines_core import Guide
        from outlines_core.kernels.torch import allocate_token_bitmask

        return OutlinesWalker(Guide(compiled), allocate_token_bitmask(self.vocabulary.size))

    def apply(self, logits: torch.Tensor, mask: Any) -> None:
        from outlines_core.kernels.torch import apply_token_bitmask_inplace

        apply_token_bitmask_inplace(logits, mask)
