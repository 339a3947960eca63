# ruff: noqa: I001
"""The names of `locore`, each with the module that defines it; `__init__.py` reads them from here when one is first used."""

from locore import (
    batch as batch,
    circuits as circuits,
    constraints as constraints,
    errors as errors,
    hf as hf,
    local as local,
    models as models,
    patterns as patterns,
    puzzles as puzzles,
    samplers as samplers,
    server as server,
    testing as testing,
)
from locore.kernel.chat import Message as Message, Prompt as Prompt
from locore.classification import Classification as Classification, classify as classify
from locore.compilers import compile as compile
from locore.constraints import (
    Constraint as Constraint,
    after as after,
    ban as ban,
    before as before,
    char_count as char_count,
    choice as choice,
    constraint as constraint,
    contains as contains,
    contains_tokens as contains_tokens,
    count as count,
    count_tokens as count_tokens,
    ends_with as ends_with,
    finished as finished,
    grammar as grammar,
    json_schema as json_schema,
    pattern as pattern,
    regex as regex,
    sentence_count as sentence_count,
    starts_with as starts_with,
    template as template,
    token as token,
    word_count as word_count,
)
from locore.evidence import Particles as Particles
from locore.explanation import explain as explain
from locore.generate import (
    generate as generate,
    generate_many as generate_many,
    holds as holds,
    sample as sample,
    stream as stream,
)
from locore.kernel.limits import Limits as Limits
from locore.models import load as load
from locore.audit import Audit as Audit, AuditRow as AuditRow, audit as audit
from locore.odds import LogOdds as LogOdds, log_odds as log_odds
from locore.parsing import Answer as Answer, parse as parse, parse_many as parse_many
from locore.rollouts import Rollouts as Rollouts, rollouts as rollouts, trl_rollouts as trl_rollouts
from locore.potentials import (
    bonus as bonus,
    expert as expert,
    from_json as from_json,
    potential as potential,
    predicate as predicate,
)
from locore.puzzles.combinatorial import (
    all_different as all_different,
    all_equal as all_equal,
    at_least as at_least,
    at_most as at_most,
    digit_sum as digit_sum,
    exactly as exactly,
    permutation as permutation,
    sudoku as sudoku,
    token_sum as token_sum,
)
from locore.puzzles.paths import grid as grid, simple_moves as simple_moves, simple_path as simple_path
from locore.kernel.request import Seconds as Seconds
from locore.samplers.twist.ngram import prepare as prepare
from locore.kernel.tokenizer import Tokenizer as Tokenizer

__version__: str
