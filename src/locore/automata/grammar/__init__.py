"""Context-free grammars as machines over bytes that are explored as far as a text goes."""

from __future__ import annotations

from locore.automata.grammar.machine import GrammarMachine

__all__ = ["GrammarMachine"]
