"""Context-free grammars as machines over bytes that are explored as far as a text goes."""

from __future__ import annotations

from locore.automata.grammar.gbnf import read_gbnf
from locore.automata.grammar.grammar_machine import GrammarMachine, Overrun
from locore.automata.grammar.lark import depth_of, productions_of
from locore.automata.grammar.recogniser import Engine
from locore.automata.grammar.sentences import Sentences
from locore.automata.grammar.syntax import definitions_of

__all__ = ["Engine", "GrammarMachine", "Overrun", "Sentences", "definitions_of", "depth_of", "productions_of", "read_gbnf"]
