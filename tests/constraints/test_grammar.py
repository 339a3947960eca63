"""Laws of grammars: masks are llguidance's, readings have the sentences and no others, texts are whole. False alarm: 1e-6."""

from __future__ import annotations

import itertools
import json
import math
import random
import re

import lark
import llguidance
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import locore
from locore import after, ban, choice, contains, finished, from_json, grammar, regex, template, token
from locore.automata.grammar import definitions_of, productions_of
from locore.automata.grammar.recogniser import UNFORCED, as_meant, byte_tokenizer
from locore.automata.grammar.terminals import COMMON
from locore.automata.walking import DEAD
from locore.circuits import reached
from locore.circuits.masks import MaskReader
from locore.compilers import explored
from locore.kernel.errors import BudgetExceeded, InvalidArgument, InvalidConstraint, Unsatisfiable, UnsupportedKeyword
from locore.kernel.tokenizer import Tokenizer
from locore.models import MarkovModel
from locore.samplers import sampler_by_name
from locore.testing import enumerate_posterior, proper_weighting
from tests.effort import THOROUGH, examples, runs, some

from .grammars import ALL, ARITHMETIC, DYCK, EDGES, JSON, SQL

TOKENS = [b"(", b")", b"1", b"+", b"()", b"+1", b"((1", b")", b" ", None]
SMALL = Tokenizer.from_tokens(TOKENS, eos_ids=[len(TOKENS) - 1])


def chain(seed):
    """A Markov chain over the tokens."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(len(TOKENS) + 1, len(TOKENS), generator=generator, dtype=torch.float64).softmax(-1)
    return MarkovModel(rows[0], rows[1:], tokenizer=SMALL)


def engine_of(text):
    """llguidance's own matcher over bytes."""
    lark_text = llguidance.LLMatcher.grammar_from_lark(as_meant(text) + UNFORCED)
    return llguidance.LLMatcher(byte_tokenizer(), lark_text, log_level=0)


def mask_of(matcher):
    """The bytes that llguidance allows."""
    bits = matcher.compute_bitmask()
    return {byte for byte in range(256) if bits[byte // 8] >> byte % 8 & 1}


def walk(text, steps, seeds):
    """Read random texts byte by byte with both, and compare at every step."""
    machine, engine = grammar(text).machine(), engine_of(text)
    for seed in seeds:
        walk_once(machine, engine.deep_copy(), steps, random.Random(seed), text)


def walk_once(machine, matcher, steps, rng, text):
    state = 0
    for _ in range(steps):
        row = machine.row(state)
        allowed = mask_of(matcher)
        assert {byte for byte in range(256) if row[byte] != DEAD} == allowed, text
        assert machine.accepts(state) == matcher.is_accepting()
        likely = [byte for byte in allowed if byte < 128]  # newer characters than this Python knows are not drawn
        if not likely:
            break
        byte = rng.choice(likely)
        assert matcher.consume_token(byte)
        assert machine.least(state) <= machine.least(int(row[byte])) + 1
        state = int(row[byte])


@pytest.mark.parametrize("name", ALL)
def test_masks_are_those_of_llguidance(name):
    walk(ALL[name], 20, range(3 if THOROUGH else 1))


SYMBOLS = st.sampled_from(["x", "y", '"a"', '"b"', '"ab"', "A", "B", '"a"?', "x*", "B+", "(y | A)", '"b"~1..2', "[x]"])
SIDES = st.lists(st.lists(SYMBOLS, max_size=3).map(" ".join), min_size=1, max_size=3).map(" | ".join)


@settings(max_examples=examples(15), deadline=None)
@given(SIDES, SIDES, SIDES, st.booleans(), st.integers(0, 5))
def test_masks_of_random_grammars(start, x, y, ignores, seed):
    """Ambiguous, left-recursive, empty and endless ones among them."""
    text = f"start: {start}\nx: {x}\ny: {y}\nA: /a+b?/\nB: /[bc]/" + ('\n%ignore "c"' if ignores else "")
    try:
        shortest = productions_of(definitions_of(text)).shortest
    except InvalidConstraint as error:
        assert "ever ends" in str(error)
        return
    if math.inf not in shortest:
        walk(text, 8, [seed])


def test_a_rule_that_never_ends_is_not_begun():
    """llguidance would begin it, and then go on forever."""
    machine = grammar('start: x | "b"\nx: "a" x').machine()
    assert machine.after(b"a") == DEAD and machine.accepts(machine.after(b"b"))


# What compiles is what holds, and no prefix leads nowhere.

BASES = {
    "dyck": 'start: p\np: "(" p ")" p |',
    "arithmetic": 'start: e\ne: e "+" e | "(" e ")" | /1+/\n%ignore " "',
    "ends in its own way": 'start: "(1" | "(1)" | "+"+ "1"',
    "no way out": 'start: A B | "1"\nA: /[(]+/\nB: "("',
}


def compounds(base):
    """Constraints with a grammar in them."""
    leaf = grammar(BASES[base])
    yield leaf
    yield ~leaf
    yield leaf & ban(["11", "()("])
    yield leaf & ~contains("+")
    yield leaf | regex(r"\)+")
    yield (leaf | contains("1)")) & token(0, [0, 2, 4, 6])
    yield leaf & finished()
    yield leaf ^ contains("(")
    yield after("+", leaf)
    yield after(regex("[1)]"), ~leaf & ban("+"))
    yield template("({a}+{b}", a=leaf, b=choice(["1", "()"]) | leaf)


@pytest.mark.parametrize(
    "base, number",
    [
        *some(itertools.product(["dyck", "arithmetic"], range(11)), 4, several=True),
        ("ends in its own way", 1),
        ("no way out", 9),
    ],
)
def test_the_reading_has_the_models_of_the_constraint(base, number):
    """Sequences, evidence, and the tokens that may come after every prefix, against all sequences read by llguidance."""
    constraint = next(itertools.islice(compounds(base), number, None))
    length, least = 4 if number in (0, 5) and base == "arithmetic" else 3, number % 3
    model = chain(number)
    every = [y for y in itertools.product(range(len(TOKENS)), repeat=length) if is_padded(y)]
    bound = constraint.at(length).bind(SMALL)
    truth = {y for y in every if bound.evaluate(y, SMALL) and end_of(y) >= least}
    if not truth:
        with pytest.raises(Unsatisfiable):
            locore.compile(constraint, model, length, min_length=least)
        return
    circuit = locore.compile(constraint, model, length, min_length=least)
    found = enumerate_posterior(model, circuit)
    assert {tuple(y) for y in found.tokens.tolist()} == truth
    log_p = model.score(torch.tensor(sorted(truth)))
    assert found.log_evidence == pytest.approx(float(torch.logsumexp(log_p, 0)), abs=1e-9)
    for position in range(length):
        for prefix in {y[:position] for y in truth}:
            allowed = {y[position] for y in truth if y[:position] == prefix}
            mask = circuit.allowed(torch.tensor(prefix, dtype=torch.long))
            assert set(mask.nonzero()[:, 0].tolist()) == allowed
    assert circuit.reader.notes() == ()


def end_of(y):
    """Tokens before the first end."""
    return y.index(len(TOKENS) - 1) if len(TOKENS) - 1 in y else len(y)


def is_padded(y):
    """Does nothing but the end follow the end?"""
    return set(y[end_of(y) :]) <= {len(TOKENS) - 1}


def test_without_an_end_a_text_has_all_its_tokens():
    tokenizer = Tokenizer.from_tokens(TOKENS[:-1], eos_ids=[])
    constraint = grammar(BASES["dyck"]) & ban(["()()"])
    circuit = locore.compile(constraint, tokenizer, 3)
    every = list(itertools.product(range(len(TOKENS) - 1), repeat=3))
    assert circuit.accepts(torch.tensor(every)).tolist() == [constraint.evaluate(y, tokenizer) for y in every]


@pytest.mark.parametrize("name", some(["masked", "smc", "swor", "twisted", "auto"], 5))
def test_samplers_are_proper(name):
    model = chain(3)
    circuit = locore.compile((grammar(BASES["arithmetic"]) & ban("11")) | contains("1"), model, 3)
    assert proper_weighting(sampler_by_name(name), model, circuit, 8, runs(60), seed=1).holds()


def test_a_search_that_runs_out_loses_nothing(monkeypatch):
    """States that are only taken to be completable cost weight, never texts."""
    monkeypatch.setattr(explored, "SEARCHED_AT_ONCE", 0)
    monkeypatch.setattr(explored, "STRAIGHT", 0)
    model = chain(3)
    constraint = grammar(BASES["arithmetic"]) & regex(r"[(]{2}.*[)]{2}")
    circuit = locore.compile(constraint, model, 4)
    assert proper_weighting(sampler_by_name("smc"), model, circuit, 8, runs(60), seed=1).holds()
    assert "taken to be completable" in circuit.reader.notes()[0]
    monkeypatch.undo()
    exact = locore.compile(constraint, model, 4)
    assert set(map(tuple, enumerate_posterior(model, circuit).tokens.tolist())) == set(
        map(tuple, enumerate_posterior(model, exact).tokens.tolist())
    )


def test_a_straight_way_that_is_too_long_leaves_texts_out_and_says_so(monkeypatch):
    """Then every text that is begun can be ended, and has the probability that the model gives it."""
    model = chain(3)
    constraint = grammar(BASES["arithmetic"]) & regex(r"[(]{2}.*[)]{2}")
    exact = enumerate_posterior(model, locore.compile(constraint, model, 4))
    monkeypatch.setattr(explored, "SEARCHED_AT_ONCE", 0)
    circuit = locore.compile(constraint, model, 4)
    found = enumerate_posterior(model, circuit)
    every = dict(zip(map(tuple, exact.tokens.tolist()), exact.log_joint.tolist(), strict=True))
    some = dict(zip(map(tuple, found.tokens.tolist()), found.log_joint.tolist(), strict=True))
    assert some.keys() <= every.keys() and all(value == pytest.approx(every[y]) for y, value in some.items())
    assert circuit.reader.steering.assumed == 0 and "too late for the horizon" in circuit.reader.notes()[0]
    for y in some:
        for position in range(4):
            allowed = circuit.allowed(torch.tensor(y[:position], dtype=torch.long)).nonzero()[:, 0].tolist()
            assert set(allowed) == {other[position] for other in some if other[:position] == y[:position]}


# Whole texts, by a parser of somebody else.


@pytest.mark.parametrize(
    "text, tokens",
    some([(JSON, 10), (ARITHMETIC, 9), (DYCK, 9), (SQL, 12)], several=True),
    ids=["json", "arithmetic", "dyck", "sql"],
)
@pytest.mark.parametrize("sampler", some(["masked", "smc"]))
def test_every_text_is_a_whole_sentence(text, tokens, sampler):
    parser = lark.Lark(text, parser="earley", lexer="dynamic_complete")
    number = 6 if THOROUGH else 3
    found = locore.generate("tiny", "Here: ", grammar(text), tokens, num_particles=number, sampler=sampler, seed=1)
    assert len(found)
    for one in found.texts:
        parser.parse(one)
        if text == JSON:
            json.loads(one)


def test_a_text_is_complete_where_nothing_can_follow():
    """A horizon that leaves no room does not make a text complete."""
    model = chain(5)
    circuit = locore.compile(grammar('start: "(1" | "(1)" | "1"'), model, 2)
    reader = circuit.reader
    for ids, complete in [((0, 2), False), ((2,), True), ((0,), False), ((6,), False)]:
        if ids == (6,):
            assert not bool(circuit.allowed(torch.tensor([], dtype=torch.long))[6])
            continue
        state = reader.read(torch.tensor([ids]))
        assert bool(reader.completed(len(ids), state)) == complete, ids


def test_a_table_of_all_states_says_the_same():
    model = chain(7)
    circuit = locore.compile(grammar(DYCK), model, 4)
    states = circuit.reader.initial(1)
    assert circuit.reader.tabulated
    for position, ids in enumerate([0, 4, 1, 9]):
        row = circuit.reader.rows[position][int(states)]
        mask = circuit.reader.allowed(position, states)[0]
        assert ((row != DEAD) == mask).all()
        states = circuit.reader.step(position, states, torch.tensor([ids]))
        assert int(states) == int(row[ids])


def test_masks_that_follow_one_text_are_those_of_the_circuit():
    circuit = locore.compile(grammar(DYCK) & ban("()()"), SMALL, 4)
    reader, prefix = MaskReader(circuit.reader), []
    for ids in (0, 4, 1, 9):
        assert (reader.mask() == circuit.allowed(torch.tensor(prefix, dtype=torch.long))).all()
        reader.advance(ids)
        prefix.append(ids)
    with pytest.raises(InvalidArgument, match="greater length"):
        reader.mask()


def test_equal_states_are_one():
    """After `1+2+` and after `5+` the same may come; so it is within any string of an object's value."""
    machine = grammar(ARITHMETIC).machine()
    assert machine.after(b"1+2+") == machine.after(b"5 -") == machine.after(b"1*2-7+")
    machine = grammar(JSON).machine()
    assert machine.after(b'{"a": "some') == machine.after('{"b":"o✓'.encode()) != machine.after(b'[{"a": "some')


def test_json_form_and_gbnf():
    for leaf in (grammar(DYCK), grammar('root ::= "(" root ")" | [0-9]+ ("," root)?', "gbnf"), ~grammar(SQL) & ban("x")):
        form = json.loads(json.dumps(leaf.to_json()))
        assert from_json(form) == leaf
    assert locore.holds(from_json({"type": "grammar", "text": 'root ::= "a"+', "syntax": "gbnf"}), "aaa", SMALL_TEXT)


SMALL_TEXT = Tokenizer.from_tokens([b"a", None], eos_ids=[1])


@pytest.mark.parametrize("empty", ["", '""', '| "a" never\nnever: never'])
def test_the_only_text_may_be_the_empty_one(empty):
    found = locore.generate(locore.load("tiny"), "I", grammar(f"start: {empty}"), 3, num_particles=4, seed=0)
    assert set(found.texts) == {""} and found.log_evidence == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    "text, error, message",
    [
        ("", InvalidConstraint, "empty"),
        ('foo: "a"', InvalidConstraint, 'no rule "start"'),
        ("start: x", InvalidConstraint, "'x' at line 1, column 8"),
        ('start: "a" (\n', InvalidConstraint, r"needs '\)' at line 1, column 13"),
        ('start "a"', InvalidConstraint, "needs ':' at line 1, column 7"),
        ("start: 'a'", InvalidConstraint, "line 1, column 8"),
        ('start: x\nx: "(" x ")"', InvalidConstraint, "each text of start, x contains another one"),
        ('start: A\nA: "a" A', InvalidConstraint, "defined by itself"),
        ('start: A\nA: b\nb: "x"', InvalidConstraint, "rule 'b' at line 2"),
        ("start: /[/", InvalidConstraint, "unterminated character set"),
        ('start: "b".."a"', InvalidConstraint, "no range"),
        ('start: "a"~3..2', InvalidConstraint, "3 to 2 times"),
        ('start: "\\ud800"', InvalidConstraint, "no string of JSON"),
        ('start: "a"\nstart: "b"', InvalidConstraint, "a second time at line 2"),
        ("%import common.NOTHING\nstart: NOTHING", InvalidConstraint, "common.NOTHING"),
        ("start: /a(?=b)/", UnsupportedKeyword, "looks around"),
        ("start: /[a-z--b]/", UnsupportedKeyword, "operator of character classes"),
        ("start: <|eot|>", UnsupportedKeyword, "line 1, column 8"),
        ("start: %json {}", UnsupportedKeyword, "%json at line 1"),
        ("start[lazy]: /a/", UnsupportedKeyword, "attributes of 'start'"),
        ('start: "a" & "b"', UnsupportedKeyword, "& between rules"),
        ("%import other.X\nstart: X", UnsupportedKeyword, "'common' only"),
        ('start: "b" sep{x, ","}\nx: "a"', UnsupportedKeyword, "use of the template 'sep' at line 1, column 12"),
        ('start: "a"\nsep{x, d}: x (d x)*', UnsupportedKeyword, "template 'sep' at line 2, column 1"),
    ],
)
def test_bad_grammars(text, error, message):
    with pytest.raises(error, match=message):
        grammar(text)


def test_priorities_choose_among_readings_and_not_among_texts():
    text = 'start.2: ( NAME | pair )*\n!?pair .-1 : NAME "."\nNAME.0: /[a-b.2:]{2}/ // NAME.2: x\n'
    plain = 'start: (NAME | pair)*\npair: NAME "."\nNAME: /[a-b.2:]{2}/'
    leaf, same = grammar(text), grammar(plain)
    assert json.loads(json.dumps(leaf.to_json()))["text"] == text
    for size in range(4):
        for letters in itertools.product(b"a.2:", repeat=size):
            content = bytes(letters)
            assert leaf.reader.read(content) == same.reader.read(content)
            assert leaf.machine().after(content) == same.machine().after(content)
    with pytest.raises(InvalidConstraint, match=r"needs ':' at line 1, column 6"):
        grammar("start.x: /a/")


SIGNS = '"\\\n/*-# \r\t1a.eZ_+'
SHORT = ["".join(random.Random(seed).choices(SIGNS, k=seed % 5)) for seed in range(400 if THOROUGH else 150)] + [
    "1e1",
    ".1e+1",
    "1.",
    "-1",
    "\r\n\n",
]


@pytest.mark.parametrize("name", ["ESCAPED_STRING", *some([name for name in COMMON if name != "ESCAPED_STRING"], 6)])
def test_terminals_in_common_are_those_of_lark(name):
    """What a lexer of Lark's takes, from the start of a text to its end, of all short texts; strings and comments longer."""
    texts = SHORT + [start + text + end for start, end in (('"', '"'), ("/*", "*/")) for text in SHORT]
    imported = f"start: X\n%import common.{name} -> X"
    (terminal,) = lark.Lark(imported, parser="lalr").terminals
    pattern = re.compile(terminal.pattern.to_regexp())
    truth = {
        text for text in texts if (found := pattern.match(text)) and pattern.fullmatch(text) and all_of_it(found, text, name)
    }
    several = ", ".join(dict.fromkeys(("DIGIT", name)))
    for form in (imported, f"%import common ({several})\nstart: {name}"):
        leaf = grammar(form)
        assert {text for text in texts if holds_twice(leaf, text)} == truth


def all_of_it(found, text, name):
    """Does Lark's pattern, where it takes as little as it can, take all of the text?"""
    return name not in ("ESCAPED_STRING", "C_COMMENT") or found.end() == len(text)


def holds_twice(leaf, text):
    """By the machine; and by llguidance, which has to agree."""
    state = leaf.machine().after(text.encode())
    found = state != DEAD and leaf.machine().accepts(state)
    assert found == leaf.reader.read(text.encode())[1]
    return found


def test_what_cannot_be_asked(monkeypatch):
    with monkeypatch.context() as few:
        few.setattr(reached, "MOST_STATES", 6)
        circuit = locore.compile(grammar(DYCK), SMALL, 4)
        with pytest.raises(BudgetExceeded, match="too many states"):
            circuit.marginals(torch.zeros(1, 4, SMALL.vocab_size))
    every = itertools.product(range(SMALL.vocab_size), repeat=2)
    dyck = grammar(DYCK)
    number = sum(dyck.evaluate(ids, SMALL) for ids in every)
    assert locore.compile(dyck, SMALL, 2).count() == number  # where the states fit into a table
    with pytest.raises(InvalidConstraint, match="leave vtree out"):
        locore.compile(grammar(DYCK), SMALL, 2, vtree=(0, 1))
    with pytest.raises(Unsatisfiable, match="at least 40 tokens"):
        locore.compile(grammar('start: "1"~40'), SMALL, 5)
    with pytest.raises(Unsatisfiable, match="nor would it help"):
        locore.compile(grammar(EDGES["a terminal that never ends"]), Tokenizer.from_tokens([b"a", None], eos_ids=[1]), 5)


def chained(number, body, last='"a"', name="r"):
    """Rules, or terminals, each of which needs the next one."""
    rules = [f"{name}{place}: {body.format(f'{name}{place + 1}')}" for place in range(number)]
    return "\n".join([f"start: {name}0", *rules, f"{name}{number}: {last}"])


def below(frames, function):
    """What a function returns or raises where the stack is deep already."""
    return below(frames - 1, function) if frames else function()


DEEP = [  # a grammar, from the number of levels; how many are read; how many are too many
    (lambda n: chained(n, "{}"), 5000, 20_000),
    (lambda n: chained(n, '("b" {})? "a"'), 1000, 5000),
    (lambda n: chained(n, "{}", name="R"), 250, 5000),
    (lambda n: chained(n, '("b" {})? "a"', name="R"), 60, 5000),
    (lambda n: f'start: "a"\n%ignore R0\n{chained(n, "{}", chr(34) + " " + chr(34), "R").partition(chr(10))[2]}', 250, 5000),
    (lambda n: f'start: {"(" * n}"a"{")" * n}', 20, 3000),
    (lambda n: f'start: {"(" * n}"a"{")?" * n}', 10, 60_000),
    (lambda n: f'start: A\nA: {"[" * n}"a"{"]" * n}', 10, 3000),
    (lambda n: f"start: /{'(' * n}a{')' * n}/", 50, 3000),
]


@pytest.mark.parametrize("text, read, refused", some(DEEP[::-1], 3, several=True))
def test_deep_grammars_are_read_or_refused(text, read, refused):
    """Also where few frames are left."""
    leaf = below(250, lambda: grammar(text(read)))
    assert leaf.machine().accepts(leaf.machine().after(b"a")) and leaf.reader.read(b"a") == (1, True)
    with pytest.raises(InvalidConstraint, match="deep"):
        below(250, lambda: grammar(text(refused)))


@pytest.mark.parametrize(
    "text, sentence, reason",
    [
        (
            'start: "<think>" /.+/ "</think>"',
            "<think>é</think>",
            "/.+/ has taken characters 7 to 15: were it to end before character 8",
        ),
        ('start: ("a" | "abq" | "c") "bQ"?', "abQ", '"Q" at character 2; a terminal takes all it can, and "abq" has'),
        ('start: WORD "end"\nWORD: /[a-z]+/', "weekend", "WORD has taken characters 0 to 6"),
        ('start: A "ab"\nA: /a{1,2}/', "aab", "A has taken characters 0 to 1"),
    ],
)
def test_explain_names_a_terminal_that_has_read_on(text, sentence, reason):
    assert reason in locore.explain(grammar(text), sentence, locore.load("tiny")).reason


def test_explain_says_where_a_text_leaves_the_grammar():
    reasons = [locore.explain(grammar(BASES["dyck"]), text, SMALL).reason for text in ("(1)", "(", "()")]
    assert "'1' at character 1" in reasons[0].replace('"', "'")
    assert reasons[1:] == ["ends before the sentence does", "a whole sentence"]
