"""The constraint language: immutable Boolean values over tokens and text."""

from typing import TYPE_CHECKING

from locore.constraints.after import After, after
from locore.constraints.before import Before, before
from locore.constraints.context_free import Grammar, grammar
from locore.constraints.counting import CharCount, SentenceCount, WordCount, char_count, sentence_count, word_count
from locore.constraints.function import PythonFunction, constraint
from locore.constraints.json_schema import JsonSchema, json_schema
from locore.constraints.over import Over
from locore.constraints.pattern_phrases import Pattern, pattern
from locore.constraints.phrases import Ban, Choice, Contains, ContainsInOrder, CountStrings, EndsWith, StartsWith
from locore.constraints.regular_expression import Regex, regex
from locore.constraints.template import Template, template
from locore.constraints.text import ban, choice, contains, count, ends_with, starts_with
from locore.constraints.text_leaf import MachineLeaf
from locore.kernel.automata.tables import Automaton, minimise
from locore.kernel.constraints.constraint import (
    And,
    Constant,
    Constraint,
    Not,
    Or,
    conjunction,
    decided,
    disjunction,
    has_text,
    if_then_else,
    negation,
)
from locore.kernel.constraints.serial import from_json, json_forms
from locore.kernel.constraints.tokens import (
    AutomatonLeaf,
    BanTokens,
    Count,
    Finished,
    Literal,
    TokenPhrases,
    check_vocabulary,
    contains_tokens,
    count_tokens,
    finished,
    token,
)
from locore.kernel.plugins import lazy_names

__all__ = [
    "After",
    "And",
    "Automaton",
    "AutomatonLeaf",
    "Ban",
    "BanTokens",
    "Before",
    "CharCount",
    "Choice",
    "Constant",
    "Constraint",
    "Contains",
    "ContainsInOrder",
    "Count",
    "CountStrings",
    "EndsWith",
    "Finished",
    "Grammar",
    "JsonSchema",
    "Literal",
    "MachineLeaf",
    "Not",
    "Or",
    "Over",
    "Pattern",
    "PythonFunction",
    "Regex",
    "SentenceCount",
    "StartsWith",
    "Template",
    "TokenPhrases",
    "WordCount",
    "after",
    "ban",
    "before",
    "char_count",
    "check_vocabulary",
    "choice",
    "conjunction",
    "constraint",
    "contains",
    "contains_tokens",
    "count",
    "count_tokens",
    "decided",
    "disjunction",
    "ends_with",
    "finished",
    "from_json",
    "grammar",
    "has_text",
    "if_then_else",
    "json_forms",
    "json_schema",
    "minimise",
    "negation",
    "pattern",
    "regex",
    "sentence_count",
    "starts_with",
    "template",
    "token",
    "word_count",
]

if not TYPE_CHECKING:  # names that moved
    __getattr__ = lazy_names(__name__, {})
