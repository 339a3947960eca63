"""Limits of a compile: they are kept wherever the work is done, and a message says which one and what to do."""

from __future__ import annotations

import random
import string
import time

import pytest

import locore
from locore import Limits, ban, compile, contains, count, json_schema, regex
from locore.cli import main
from locore.constraints import Literal
from locore.kernel.errors import BudgetExceeded, InvalidArgument
from locore.kernel.limits import check_progress, held_back, limits_in_force
from locore.kernel.tokenizer import Tokenizer

LETTERS = Tokenizer.from_tokens([*(letter.encode() for letter in string.ascii_lowercase + ' "'), None], eos_ids=(28,))


def words(number: int) -> list[str]:
    rng = random.Random(0)
    return ["".join(rng.choices(string.ascii_lowercase, k=6)) for _ in range(number)]


def equal_halves(pairs: int) -> locore.Constraint:
    parts = [(Literal(i, frozenset({0})), Literal(i + pairs, frozenset({0}))) for i in range(pairs)]
    alpha = (parts[0][0] & parts[0][1]) | (~parts[0][0] & ~parts[0][1])
    for a, b in parts[1:]:
        alpha = alpha & ((a & b) | (~a & ~b))
    return alpha


LARGE = {
    "many phrases": ban(words(3000)),
    "a large count": count(words(50), at_most=300),
    "a product": contains("abcdef") & contains("bcdefg") & contains("cdefgh") & contains("defghi"),
    "a regular expression": regex("(a|b)*a(a|b){8}"),
    "a schema": json_schema({"enum": ["one", "two", "three", "four", "five", "seven", "eight", "nine"]}),
    "positions": equal_halves(10) & ban(["b"]),
}


@pytest.mark.parametrize("alpha", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize("limits", [Limits(states=40), Limits(seconds=1e-9), Limits(nodes=20), Limits(memory=1000)], ids=str)
def test_every_limit_is_kept(alpha, limits):
    """That on nodes where they are asked for."""
    with pytest.raises(BudgetExceeded, match=r"limits=Limits\("):
        assert compile(alpha, LETTERS, 20, limits=limits, use_cache=False).num_nodes


@pytest.mark.parametrize("alpha", LARGE.values(), ids=LARGE)
def test_the_same_constraints_compile_within_the_usual_limits(alpha):
    assert compile(alpha, LETTERS, 20, use_cache=False).length == 20


def test_a_schema_that_is_followed_has_no_automaton_to_limit():
    alpha = json_schema({"type": "string", "maxLength": 500})
    assert compile(alpha, LETTERS, 20, limits=Limits(states=40, nodes=20), use_cache=False).length == 20
    with pytest.raises(BudgetExceeded, match=r"limits=Limits\(seconds"):
        compile(alpha, LETTERS, 20, limits=Limits(seconds=1e-9), use_cache=False)


def test_a_message_names_the_limit_and_a_remedy():
    with pytest.raises(
        BudgetExceeded, match=r"limit of 40; raise it with .*limits=Limits\(states=\.\.\.\), or ask for less: .*phrases"
    ):
        compile(ban(words(100)), LETTERS, 20, limits=Limits(states=40), use_cache=False)
    with pytest.raises(BudgetExceeded, match=r"limit of 1e-09 seconds; raise it with .*limits=Limits\(seconds=\.\.\.\)"):
        compile(ban(words(100)), LETTERS, 20, limits=Limits(seconds=1e-9), use_cache=False)


def test_a_larger_limit_lets_a_large_regular_expression_through():
    alpha = regex("(a|b)*a(a|b){12}")  # 8,192 states are needed
    with pytest.raises(BudgetExceeded, match="Limits"):
        compile(alpha, LETTERS, 30, limits=Limits(states=10_000), use_cache=False)
    assert compile(alpha, LETTERS, 30, limits=Limits(states=400_000), use_cache=False).count() > 0


def test_a_kept_circuit_does_not_get_around_smaller_limits(monkeypatch, tmp_path):
    monkeypatch.setenv("LOCORE_CACHE", str(tmp_path))
    alpha = ban(words(3000))
    compile(alpha, LETTERS, 20)
    with pytest.raises(BudgetExceeded):
        compile(alpha, LETTERS, 20, limits=Limits(states=40))


def test_a_deadline_inside_another_is_never_later():
    with Limits(seconds=1e-9).enforced(), Limits(seconds=100, states=7).enforced():
        assert limits_in_force().states == 7
        time.sleep(0.001)
        with pytest.raises(BudgetExceeded, match="seconds"):
            check_progress("this", "less")
    assert limits_in_force() == Limits()
    check_progress("this", "less")  # without a compile there is no deadline


def test_what_held_a_compile_back_moves_every_deadline():
    with Limits(seconds=0.05).enforced():
        with Limits(seconds=0.05).enforced():
            held_back(100)
            time.sleep(0.06)
            check_progress("this", "less")
        check_progress("this", "less")


@pytest.mark.parametrize(
    "bad",
    [
        {"states": 0},
        {"nodes": -1},
        {"seconds": 0},
        {"seconds": float("nan")},
        {"memory": 1.5},
        {"states": True},
        {"states": 10**400},
        {"seconds": 10**400},
    ],
)
def test_a_limit_is_a_positive_number(bad):
    with pytest.raises(InvalidArgument, match="the limit on"):
        Limits(**bad)


def test_generate_takes_limits():
    with pytest.raises(BudgetExceeded, match="states"):
        locore.generate("tiny", "The", ban(words(100)), max_new_tokens=5, limits=Limits(states=5))


COMMAND = ["compile", "--constraint", '{"type": "ban", "phrases": ["awful"]}', "--length", "5", "--model", "tiny", "--no-cache"]


def test_the_command_line_takes_limits(capsys):
    assert main([*COMMAND, "--limit", "states=1000", "--limit", "seconds=60"]) == 0
    assert main([*COMMAND, "--limit", "states=2"]) == 2
    assert "limit of 2" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["states", "states=", "states=x", "state=5", "states=0", "seconds=nan", "memory=1.5"])
def test_a_wrong_limit_is_a_usage_error(option, capsys):
    assert main([*COMMAND, "--limit", option]) == 2
    assert "limit" in capsys.readouterr().err
