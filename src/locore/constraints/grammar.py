"""Context-free grammars as constraints: the whole text is a sentence.

The syntax is Lark's as llguidance reads it. The texts are those of llguidance, too: every returned text is read again by it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from typing import Literal as OneOf

from locore.automata.grammar import GrammarMachine
from locore.automata.lazily import ByteMachine, Int32
from locore.automata.tables import Trie
from locore.constraints.base import Json
from locore.constraints.machine import MachineLeaf
from locore.constraints.sequence import TokenSequence
from locore.constraints.serial import read_string, register
from locore.constraints.spelling import quoted
from locore.errors import BudgetExceeded, InvalidConstraint, MissingExtra

UNFORCED = '\n%llguidance { "no_forcing": true }\n'  # what is forced is of no interest, and may never end


def grammar(text: str, syntax: OneOf["lark", "gbnf"] = "lark") -> Grammar:
    """The whole text is a sentence of a context-free grammar.

    Texts begin with the rule `start`. Rules are lowercase and terminals uppercase; a terminal is a regular language, of which
    a text is read as far as it goes. Supported is Lark's syntax as llguidance reads it: strings, `/regular expressions/`,
    ranges, groups, `* + ?`, `~ n..m`, `{n,m}`, `&` between terminals, `%ignore`, `%import common.NAME`, names of alternatives;
    not what says more than which texts there are (priorities, attributes, templates), special tokens, or grammars of another
    kind inside. Needs the extra `locore[grammar]`.

    Args:
        text: the grammar.
        syntax: "lark", or "gbnf" for that of llama.cpp, whose root rule is `root`.

    Raises:
        InvalidConstraint: no grammar, or one without any text that ends; the message says where.
        UnsupportedKeyword: a part of the syntax that is not supported.
        MissingExtra: llguidance is not installed.
    """
    if not isinstance(text, str):
        raise InvalidConstraint(f"grammar needs the text of a grammar, got {type(text).__name__}")
    if syntax not in ("lark", "gbnf"):
        raise InvalidConstraint(f'grammar knows the syntaxes "lark" and "gbnf", not {syntax!r}')
    if not text.strip():
        raise InvalidConstraint('the grammar is empty; write a rule, such as start: "yes" | "no"')
    leaf = Grammar(text, syntax)
    leaf.machine()
    return leaf


@dataclass(frozen=True, eq=False)
class Grammar(MachineLeaf):
    """The whole text is a sentence of a grammar."""

    text: str
    syntax: OneOf["lark", "gbnf"] = "lark"

    def machine(self) -> ByteMachine:
        """The machine of the grammar, once llguidance has taken it as well."""
        return self._machine

    @cached_property
    def lark(self) -> str:
        """The grammar in Lark's syntax."""
        if self.syntax == "lark":
            return self.text
        llguidance = _llguidance()
        try:
            return str(llguidance.gbnf_to_lark.gbnf_to_lark(self.text))
        except Exception as error:  # the converter raises errors of its own
            raise InvalidConstraint(f"the text is no grammar in GBNF: {error}") from error

    @cached_property
    def _machine(self) -> ByteMachine:
        machine = GrammarMachine(self.lark)
        self._reader  # noqa: B018  (raises where llguidance does not take the grammar)
        return _Shared(machine)

    @cached_property
    def _reader(self) -> Any:
        """llguidance's matcher of the grammar over bytes, before anything is read."""
        llguidance = _llguidance()
        lark = llguidance.LLMatcher.grammar_from_lark(self.lark + UNFORCED)
        matcher = llguidance.LLMatcher(_byte_tokenizer(), lark, log_level=0)
        if matcher.is_error():
            raise InvalidConstraint(f"the grammar is not one for llguidance: {matcher.get_error().strip()}")
        return matcher

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """Read by llguidance, byte by byte."""
        matcher = self._reader.deep_copy()
        read = matcher.try_consume_tokens(list(sequence.text))
        if read == len(sequence.text):
            return bool(matcher.is_accepting())
        if matcher.is_error() and "limit" in matcher.get_error():
            raise BudgetExceeded(f"llguidance gives up on a text of this grammar: {matcher.get_error().splitlines()[0]}")
        return False

    def why(self, sequence: TokenSequence) -> str:
        """Where the text leaves the grammar."""
        text = sequence.text
        read = int(self._reader.deep_copy().try_consume_tokens(list(text)))
        if read < len(text):
            place = len(text[:read].decode("utf-8", errors="replace"))
            found = text[read:].decode("utf-8", errors="replace")[:1]
            return f"no sentence goes on with {quoted(found)} at character {place}"
        return "a whole sentence" if self.holds_on(sequence, []) else "ends before the sentence does"

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "grammar", "text": ...}`."""
        json: Json = {"type": "grammar", "text": self.text}
        return json if self.syntax == "lark" else json | {"syntax": self.syntax}


class _Shared(ByteMachine):
    """A machine that several threads may use at once, and that keeps what it has found out for all of them."""

    def __init__(self, machine: ByteMachine) -> None:
        self._machine = machine
        self._lock = threading.RLock()

    def row(self, state: int) -> Int32:
        with self._lock:
            return self._machine.row(state)

    def accepts(self, state: int) -> bool:
        with self._lock:
            return self._machine.accepts(state)

    def least(self, state: int) -> float:
        with self._lock:
            return self._machine.least(state)

    def progress(self, trie: Trie) -> float:
        return self._machine.progress(trie)


class _Bytes:
    """A vocabulary of the 256 bytes and an end, as llguidance wants it."""

    eos_token_id = 256
    bos_token_id = None
    special_token_ids = (256,)
    tokens = (*(bytes([byte]) for byte in range(256)), b"</s>")

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


def _byte_tokenizer() -> Any:
    llguidance = _llguidance()
    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes()), n_vocab=257, eos_token=256, slices=[])


def _llguidance() -> Any:
    try:
        import llguidance
        import llguidance.gbnf_to_lark
    except ImportError as error:
        raise MissingExtra("grammars need the package llguidance; install it with: pip install 'locore[grammar]'") from error
    return llguidance


register("grammar", grammar, {"text": read_string}, {"syntax": read_string})
