"""llguidance, xgrammar and outlines-core behind the interface of `mask_engines.py`; each is imported when it is set up."""

import json
import re
from typing import Any

import torch

from locore_lab.micro.mask_cases import Case
from locore_lab.micro.mask_engines import Engine, NotExpressible, Walker


class LLGuidanceWalker(Walker):
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

        return LLGuidanceWalker(grammar.deep_copy(), llguidance.torch.allocate_token_bitmask(1, self.vocabulary.size))

    def apply(self, logits: torch.Tensor, mask: torch.Tensor) -> None:
        import llguidance.torch

        llguidance.torch.apply_token_bitmask_inplace(logits, mask)


class XGrammarWalker(Walker):
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

        return XGrammarWalker(xgrammar.GrammarMatcher(grammar), xgrammar.allocate_token_bitmask(1, self.vocabulary.size))

    def apply(self, logits: torch.Tensor, mask: torch.Tensor) -> None:
        import xgrammar

        xgrammar.apply_token_bitmask_inplace(logits, mask)


class OutlinesWalker(Walker):
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

        return OutlinesWalker(Guide(grammar), allocate_token_bitmask(self.vocabulary.size))

    def apply(self, logits: torch.Tensor, mask: torch.Tensor) -> None:
        from outlines_core.kernels.torch import apply_token_bitmask_inplace

        apply_token_bitmask_inplace(logits, mask)


PEERS: tuple[type[Engine], ...] = (LLGuidance, XGrammar, OutlinesCore)
