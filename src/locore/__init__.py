"""Locore: sampling from language models under constraints, from the right distribution.

import locore
from locore import ban, contains

model = locore.load("tiny")
p = locore.generate(model, "The weather is", ban(["awful"]) & contains(" sun"), max_new_tokens=20)
print(p.report())
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from locore import errors

if TYPE_CHECKING:
    from locore import samplers
    from locore.chat import Message, Prompt
    from locore.classification import Classification, classify
    from locore.compilers import compile
    from locore.constraints import (
        Constraint,
        after,
        all_different,
        all_equal,
        at_least,
        at_most,
        ban,
        before,
        char_count,
        choice,
        constraint,
        contains,
        contains_tokens,
        count,
        count_tokens,
        digit_sum,
        ends_with,
        exactly,
        finished,
        grammar,
        grid,
        json_schema,
        pattern,
        permutation,
        regex,
        sentence_count,
        simple_moves,
        simple_path,
        starts_with,
        sudoku,
        template,
        token,
        token_sum,
        word_count,
    )
    from locore.evidence import Particles
    from locore.explanation import explain
    from locore.generate import generate, generate_many, holds, sample, stream
    from locore.limits import Limits
    from locore.models import load
    from locore.odds import LogOdds, log_odds
    from locore.potentials import bonus, expert, from_json, potential, predicate
    from locore.samplers.twist.prepared import prepare
    from locore.tokenizer import Tokenizer

__version__ = "0.1.0"

_CONSTRAINTS = (
    "Constraint",
    "after",
    "all_different",
    "all_equal",
    "at_least",
    "at_most",
    "ban",
    "before",
    "char_count",
    "choice",
    "constraint",
    "contains",
    "contains_tokens",
    "count",
    "count_tokens",
    "digit_sum",
    "ends_with",
    "exactly",
    "finished",
    "grammar",
    "grid",
    "json_schema",
    "pattern",
    "permutation",
    "regex",
    "sentence_count",
    "simple_moves",
    "simple_path",
    "starts_with",
    "sudoku",
    "template",
    "token",
    "token_sum",
    "word_count",
)
_HOME = {
    **{name: "locore.constraints" for name in _CONSTRAINTS},
    "compile": "locore.compilers",
    "explain": "locore.explanation",
    "generate": "locore.generate",
    "generate_many": "locore.generate",
    "holds": "locore.generate",
    "sample": "locore.generate",
    "stream": "locore.generate",
    "Limits": "locore.limits",
    "Message": "locore.chat",
    "Prompt": "locore.chat",
    "load": "locore.models",
    "Classification": "locore.classification",
    "classify": "locore.classification",
    "LogOdds": "locore.odds",
    "log_odds": "locore.odds",
    "bonus": "locore.potentials",
    "expert": "locore.potentials",
    "from_json": "locore.potentials",
    "potential": "locore.potentials",
    "predicate": "locore.potentials",
    "Particles": "locore.evidence.particles",
    "prepare": "locore.samplers.twist.prepared",
    "Tokenizer": "locore.tokenizer",
}


def __getattr__(name: str) -> Any:
    # Torch takes a second to import; nothing is loaded before it is used.
    if name in _HOME:
        home = import_module(_HOME[name])
        # All names of this module: importing `locore.generate` has just bound the name `generate` to the module itself.
        globals().update({other: getattr(home, other) for other, where in _HOME.items() if where == _HOME[name]})
        return globals()[name]
    if name in ("batch", "circuits", "constraints", "hf", "local", "models", "patterns", "samplers", "server", "testing"):
        return import_module(f"locore.{name}")
    raise AttributeError(f"module 'locore' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


__all__ = [
    "Classification",
    "Constraint",
    "Limits",
    "LogOdds",
    "Message",
    "Particles",
    "Prompt",
    "Tokenizer",
    "after",
    "all_different",
    "all_equal",
    "at_least",
    "at_most",
    "ban",
    "before",
    "bonus",
    "char_count",
    "choice",
    "classify",
    "compile",
    "constraint",
    "contains",
    "contains_tokens",
    "count",
    "count_tokens",
    "digit_sum",
    "ends_with",
    "errors",
    "exactly",
    "expert",
    "explain",
    "finished",
    "from_json",
    "generate",
    "generate_many",
    "grammar",
    "grid",
    "holds",
    "json_schema",
    "load",
    "log_odds",
    "pattern",
    "permutation",
    "potential",
    "predicate",
    "prepare",
    "regex",
    "sample",
    "samplers",
    "sentence_count",
    "simple_moves",
    "simple_path",
    "starts_with",
    "stream",
    "sudoku",
    "template",
    "token",
    "token_sum",
    "word_count",
]
