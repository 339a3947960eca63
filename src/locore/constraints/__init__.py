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
from locore.constraints.function import PythonFunction, constraint
from locore.constraints.leaves import AutomatonLeaf, Count, Literal, check_vocabulary
from locore.constraints.serial import from_json
from locore.constraints.text import (
    Ban,
    Choice,
    Contains,
    EndsWith,
    ban,
    choice,
    contains,
    ends_with,
)
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
    "Choice",
    "Constant",
    "Constraint",
    "Contains",
    "Count",
    "EndsWith",
    "Literal",
    "Not",
    "Or",
    "PythonFunction",
    "TokenPhrases",
    "ban",
    "check_vocabulary",
    "choice",
    "conjunction",
    "constraint",
    "contains",
    "contains_tokens",
    "count_tokens",
    "disjunction",
    "ends_with",
    "from_json",
    "has_text",
    "if_then_else",
    "minimise",
    "negation",
    "token",
]
