"""The constraint language: immutable Boolean values over tokens and text."""

from locore.constraints.automaton import Automaton, minimise
from locore.constraints.base import (
    And,
    Constant,
    Constraint,
    Not,
    Or,
    conjunction,
    disjunction,
    has_text,
    if_then_else,
    negation,
)
from locore.constraints.counting import CharCount, SentenceCount, WordCount, char_count, sentence_count, word_count
from locore.constraints.function import PythonFunction, constraint
from locore.constraints.json_schema import JsonSchema, json_schema
from locore.constraints.leaves import AutomatonLeaf, Count, Literal, check_vocabulary
from locore.constraints.phrases import Ban, Choice, Contains, ContainsInOrder, CountStrings, EndsWith, StartsWith
from locore.constraints.regex import Regex, regex
from locore.constraints.serial import from_json
from locore.constraints.text import ban, choice, contains, count, ends_with, starts_with
from locore.constraints.tokens import (
    BanTokens,
    TokenPhrases,
    contains_tokens,
    count_tokens,
    token,
)

__all__ = [
    "And",
    "Automaton",
    "AutomatonLeaf",
    "Ban",
    "BanTokens",
    "CharCount",
    "Choice",
    "Constant",
    "Constraint",
    "Contains",
    "ContainsInOrder",
    "Count",
    "CountStrings",
    "EndsWith",
    "JsonSchema",
    "Literal",
    "Not",
    "Or",
    "PythonFunction",
    "Regex",
    "SentenceCount",
    "StartsWith",
    "TokenPhrases",
    "WordCount",
    "ban",
    "char_count",
    "check_vocabulary",
    "choice",
    "conjunction",
    "constraint",
    "contains",
    "contains_tokens",
    "count",
    "count_tokens",
    "disjunction",
    "ends_with",
    "from_json",
    "has_text",
    "if_then_else",
    "json_schema",
    "minimise",
    "negation",
    "regex",
    "sentence_count",
    "starts_with",
    "token",
    "word_count",
]
