"""Context-free grammars as constraints: the whole text is a sentence.

The syntax is Lark's as llguidance reads it, or llama.cpp's GBNF. Every returned text is read again without the machine: by
llguidance, which says what the texts of a grammar in Lark's syntax are, or item by item.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Literal as OneOf

from locore.automata.byte_machine import ByteMachine
from locore.automata.grammar import Engine, GrammarMachine, Sentences, definitions_of, depth_of, productions_of, read_gbnf
from locore.automata.grammar.grammar_machine import Overrun
from locore.automata.grammar.recogniser import as_meant
from locore.automata.walking import Int32
from locore.constraints.text_leaf import MachineLeaf
from locore.kernel.automata.tables import Trie
from locore.kernel.constraints.constraint import Json
from locore.kernel.constraints.sequence import TokenSequence
from locore.kernel.constraints.serial import read_string, register
from locore.kernel.constraints.spelling import quoted
from locore.kernel.errors import InvalidConstraint
from locore.kernel.plugins import cached_property


def grammar(text: str, syntax: OneOf["lark", "gbnf"] = "lark") -> Grammar:
    """The whole text is a sentence of a context-free grammar.

    In Lark's syntax texts begin with the rule `start`. Rules are lowercase and terminals uppercase; a terminal is a regular
    language, of which a text is read as far as it goes. Supported is the syntax as llguidance reads it: strings, `/regular
    expressions/`, ranges, groups, `* + ?`, `~ n..m`, `{n,m}`, `&` between terminals, `%ignore`, `%import common.NAME`, names of
    alternatives, and priorities, which choose among readings of a text and say nothing about texts; not attributes, templates,
    special tokens, or grammars of another kind inside. Needs the extra `locore[grammar]`.

    In GBNF texts begin with the rule `root`, and what counts are characters: nothing is read as far as it goes, and it is one
    whether something stands in a rule of its own or in place. Supported is all of its syntax but tokens (`<think>`, `<[5]>`);
    rules may begin with themselves.

    Args:
        text: the grammar.
        syntax: "lark", or "gbnf" for that of llama.cpp.

    Raises:
        InvalidConstraint: no grammar, or one without any text that ends; the message says where.
        UnsupportedKeyword: a part of the syntax that is not supported.
        MissingExtra: llguidance is not installed, and the syntax is Lark's.
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

    is_utf8 = True
    text: str
    syntax: OneOf["lark", "gbnf"] = "lark"

    def machine(self) -> ByteMachine:
        """The machine of the grammar, once its reader has taken it as well."""
        return self._machine_and_reader[0]

    @cached_property
    def _machine_and_reader(self) -> tuple[_Shared, Engine | Sentences]:
        if self.syntax == "gbnf":
            productions = read_gbnf(self.text)
            return _Shared(GrammarMachine(productions)), Sentences(productions)
        text = as_meant(self.text)
        definitions = definitions_of(text)
        depth = depth_of(definitions)
        return _Shared(GrammarMachine(productions_of(definitions))), Engine(text, depth)

    @property
    def reader(self) -> Engine | Sentences:
        """What reads texts without the machine."""
        return self._machine_and_reader[1]

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """Read without the machine."""
        return self.reader.read(sequence.text)[1]

    def why(self, sequence: TokenSequence) -> str:
        """Where the text leaves the grammar."""
        text = sequence.text
        read, whole = self.reader.read(text)
        if whole:
            return "a whole sentence"
        reason = "ends before the sentence does"
        if read < len(text):
            character = text[read:].decode("utf-8", errors="replace")[:1]
            reason = f"no sentence goes on with {quoted(character)} at character {_characters(text, read)}"
        overrun = self._machine_and_reader[0].overrun(text)
        if overrun is None:
            return reason
        start, end, least = (_characters(text, place) for place in (overrun.start, overrun.end, overrun.least))
        return (
            f"{reason}; a terminal takes all it can, and {' or '.join(overrun.names)} has taken characters {start} to "
            f"{end - 1}: were it to end before character {least}, more of the text could be read"
        )

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "grammar", "text": ...}`."""
        json: Json = {"type": "grammar", "text": self.text}
        return json if self.syntax == "lark" else json | {"syntax": self.syntax}


def _characters(text: bytes, place: int) -> int:
    """How many characters stand before a byte."""
    return len(text[:place].decode("utf-8", errors="replace"))


class _Shared(ByteMachine):
    """A machine that several threads may use at once, and that keeps what it has found out for all of them."""

    def __init__(self, machine: GrammarMachine) -> None:
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

    def overrun(self, content: bytes) -> Overrun | None:
        with self._lock:
            return self._machine.overrun(content)


register("grammar", grammar, {"text": read_string}, {"syntax": read_string})
