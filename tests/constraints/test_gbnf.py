"""Laws of GBNF: the texts of random grammars are those that the grammars' trees have, whatever reads them."""

from __future__ import annotations

import contextlib
import itertools
import random

import pytest
import torch

import locore
from locore import grammar
from locore.automata.walking import DEAD
from locore.kernel.automata.lift import vocabulary_trie
from locore.kernel.errors import BudgetExceeded, InvalidConstraint, Unsatisfiable, UnsupportedKeyword
from locore.kernel.tokenizer import Tokenizer
from locore.models import MarkovModel
from locore.testing import enumerate_posterior
from tests.effort import THOROUGH

from .random_gbnf import is_sentence, random_grammar, some_text, spelled

BYTES = Tokenizer.from_tokens([bytes([byte]) for byte in range(256)] + [None], eos_ids=[256])


def has(leaf, text):
    """Is it a sentence? The machine and the plain reader agree, on every beginning as well."""
    content, machine, state = text.encode(), leaf.machine(), 0
    for place, byte in enumerate(content):
        following = int(machine.row(state)[byte])
        if following == DEAD:
            read = len(text.encode()[:place].decode(errors="ignore").encode())
            assert leaf.reader.read(content) == (read, False), (leaf.text, text)
            return False
        needed = machine.least(state)
        assert 0 < needed <= machine.least(following) + 1 or (needed == 0) == machine.accepts(state), (leaf.text, text)
        state = following
    plain = leaf.reader.read(content)
    assert plain == (len(content), machine.accepts(state)), (leaf.text, text)
    return plain[1]


@pytest.mark.parametrize("block", range(4))
def test_texts_are_those_of_the_tree(block):
    """2,500 grammars and a text of each in a block when there is time; no pair may disagree."""
    true = refused = 0
    number = 2500 if THOROUGH else 40
    for seed in range(block * 10_000, block * 10_000 + number):
        rng = random.Random(seed)
        rules = random_grammar(rng)
        written = spelled(rules, rng)
        try:
            leaf = grammar(written, "gbnf")
        except InvalidConstraint as error:
            assert "ever ends" in str(error) and not any(is_sentence(rules, some_text(rules, rng)) for _ in range(20)), written
            refused += 1
            continue
        text = some_text(rules, rng)
        wanted = is_sentence(rules, text)
        assert has(leaf, text) == wanted, (written, text, wanted)
        true += wanted
    assert number / 4 < true < number * 3 / 4 and refused < number / 3


# What llama.cpp's guide and its users write.

CASES = [
    ('root ::= word "end"\nword ::= [a-z]+', "weekend", True),
    ('root ::= [a-z]+ "end"', "weekend", True),
    ('root ::= "SELECT " cols " FROM " name\ncols ::= [a-zA-Z, ]+\nname ::= [a-z]+', "SELECT a, b FROM t", True),
    ("root ::= area local\narea ::= [0-9]{3,4}\nlocal ::= [0-9]{4}", "1234567", True),
    ("root ::= area local\narea ::= [0-9]{3,4}\nlocal ::= [0-9]{4}", "123456", False),
    ('root ::= pre "<|s|>"\npre ::= ([^<] | "<" [^|])*', "a<b<|s|>", True),
    ('root ::= ("a" | "abq" | "c") "bQ"?', "abQ", True),
    ('root ::= ("a"{2}){3}', "aaaaaa", True),
    ('root ::= ("a"{2}){3}', "aaaaa", False),
    ('root ::= "a"{2}{3}', "aaaaaa", True),
    ('root ::= ("a"+)? "b"', "aab", True),
    ('root ::= ([0-9]+)? "x"', "x", True),
    ('root ::= "ab"*', "abab", True),
    ('root ::= "ab"*', "abb", False),
    (r'root ::= "\u00e9\x41\U0001F600\n\t\"\\\[\]"', 'éA😀\n\t"\\[]', True),
    ("root ::= .*", "a\nb", True),
    ("root ::= [a-c-e]+ [+-] [-x]", "c-e--", True),
    ("root ::= [a-c-e]+", "d", False),
    (r'root ::= [^"\\\x7F\x00-\x1F]{1,5}', "é日 \x80", True),
    (r"root ::= [\U00010000-\U0010FFFF]", "😀", True),
    ('root ::= (\n  # a comment ) |\n  "a" |\n  "b"\n)\n\n# the end', "b", True),
    ('root ::= "a" |\n  "b"\r\n  | "c"', "c", True),
    ('root ::= | "a"', "", True),
    ('root ::= root "+" root | [0-9]', "1+2+3", True),
    ("root ::= thing-1\nthing-1 ::= UPPER_x 2\n2 ::= [2]\nUPPER_x ::= [^2]", "12", True),
    ('root ::= ("" | "b" | c)* "d"\nc ::= "c" |', "bcbd", True),
]


@pytest.mark.parametrize("text, sentence, wanted", CASES)
def test_by_its_own_meaning(text, sentence, wanted):
    leaf = grammar(text, "gbnf")
    assert has(leaf, sentence) == wanted == locore.holds(leaf, sentence, BYTES)


BAD = [
    ('root ::= "a" <think>', "<think> at line 1, column 14"),
    ("root ::= <[5]>", "tokens .* are not supported"),
    ("root ::= !<[5]>+", "!<.5.> at line 1, column 10"),
    ('root ::= "a', 'ends before the " for " at line 1, column 10'),
    ("x ::= [a]\n root ::= [a", "ends before the ] for . at line 2, column 11"),
    ('root ::= ("a" |\n  ("b"', r"or '\)' for the '\(' at line 2, column 3, at line 2, column 7, and there is its end"),
    ('root ::= "a" )', r"line 1, column 14, and there is '\)'"),
    ("root ::= *", "something to repeat before it at line 1, column 10"),
    ("root ::= foo", "uses 'foo' at line 1, column 10"),
    ("root ::= 'a'", "double quotes"),
    ('# é\nroot ::= "é\\q"', r"\\q at line 2, column 12 of the grammar is no escape"),
    ('root ::= "a"\n  "b"', r"goes on in the next line inside parentheses .* at line 2, column 3"),
    ('root ::= "a"{3,2}', "3 to 2 times at line 1, column 13"),
    ('root ::= "a"{,2}', "a number at line 1, column 14"),
    ('x ::= "a"', 'no rule "root"'),
    ('root ::= "a"\nroot ::= "b"', "a second time at line 2, column 1"),
    ('root: "a"', "'::=' at line 1, column 5"),
    ("root ::= [z-a]", "z-a at line 1, column 11 of the grammar is no range"),
    ("root ::= []", "class at line 1, column 10 of the grammar is empty"),
    (r'root ::= "\ud83d\ude00"', "half of a character"),
    (r'root ::= "\U00110000"', "no character"),
    ('root ::= "a" root', "ever ends"),
    ('root ::= "a"{100000000000000000000000}', "more than the limit"),
]


@pytest.mark.parametrize("text, message", BAD)
def test_what_is_wrong_is_said_with_its_place(text, message):
    with pytest.raises((InvalidConstraint, UnsupportedKeyword, BudgetExceeded), match=message):
        grammar(text, "gbnf")


def nested(number, before, behind, inner='"a"'):
    """One thing within another, so many times."""
    return before * number + inner + behind * number


@pytest.mark.parametrize("number", [40, 3000] + [60_000] * THOROUGH)
def test_no_nesting_is_too_deep(number):
    for text, sentence in [
        (f"root ::= {nested(number, '(', ')')}", "a"),
        (f"root ::= {nested(number, '(', ')?')}", ""),
        (f"""root ::= {nested(number, '("b" | ', ")")}""", "a"),
    ]:
        assert has(grammar(text, "gbnf"), sentence) and not has(grammar(text, "gbnf"), "ab")


@pytest.mark.parametrize("body, sentence", [("{}", "a"), ('"b" {}?', "bbb"), ('{} "b"?', "ab"), ('{} | "b"', "b")])
def test_no_chain_is_too_long(body, sentence):
    most = 5000 if THOROUGH else 1500
    rules = [f"r{number} ::= {body.format(f'r{number + 1}')}" for number in range(most)]
    leaf = grammar("\n".join(["root ::= r0", *rules, f'r{most} ::= "a"']), "gbnf")
    assert has(leaf, sentence) and not has(leaf, "c")


def test_long_repetitions_of_either_recursion():
    """Reading stays near linear, whichever way a list is written."""
    for rule in ['"a" root |', 'root "a" |', '"a"{0,3000}', 'x{0,3000}\nx ::= "a" | "a" ""']:
        assert has(grammar(f"root ::= {rule}", "gbnf"), "a" * 1500)


# Tokens.


@pytest.mark.parametrize("seed", range(60 if THOROUGH else 3))
def test_no_token_brings_a_text_nearer_to_its_end_than_is_said(seed):
    rng = random.Random(seed)
    rules = random_grammar(rng)
    tokens = tuple({"".join(rng.choices("ab\n日é", k=rng.randint(1, 4))).encode() for _ in range(30)})
    try:
        machine = grammar(spelled(rules, rng), "gbnf").machine()
    except InvalidConstraint:
        return
    most = machine.progress(vocabulary_trie(tokens))
    for _ in range(20):
        state = 0
        for token in rng.choices(tokens, k=4):
            following = machine.after(token, state)
            if following != DEAD:
                assert machine.least(state) - machine.least(following) <= most
                state = following


TOKENS = [b"a", b"b", b"ab", b"\n", b'"', "é".encode(), "é".encode()[:1], "é".encode()[1:], "日a".encode(), b"a[", None]
SMALL = Tokenizer.from_tokens(TOKENS, eos_ids=[len(TOKENS) - 1])


@pytest.mark.parametrize("seed", range(40 if THOROUGH else 5))
def test_evidence_is_that_of_all_sentences(seed):
    """log p(α) on a table is the sum over all sequences whose text the tree has, and every text drawn is one of them."""
    length = 3 if THOROUGH else 2
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    rows = torch.randn(len(TOKENS) + 1, len(TOKENS), generator=generator, dtype=torch.float64).softmax(-1)
    model = MarkovModel(rows[0], rows[1:], tokenizer=SMALL)
    rules = random_grammar(rng)
    texts = {}
    for size in range(length + 1):
        for ids in itertools.product(range(len(TOKENS) - 1), repeat=size):
            with contextlib.suppress(UnicodeDecodeError):
                texts[ids + (len(TOKENS) - 1,) * (length - size)] = b"".join(TOKENS[one] for one in ids).decode()
    known = {text: is_sentence(rules, text) for text in set(texts.values())}
    truth = sorted(ids for ids, text in texts.items() if known[text])
    try:
        leaf = grammar(spelled(rules, rng), "gbnf")
        circuit = locore.compile(leaf, model, length)
    except (InvalidConstraint, Unsatisfiable):
        assert not truth
        return
    assert enumerate_posterior(model, circuit).log_evidence == pytest.approx(
        float(torch.logsumexp(model.score(torch.tensor(truth)), 0)), abs=1e-9
    )
    drawn = locore.generate(model, "", leaf, max_new_tokens=length, num_particles=8, sampler="smc", seed=seed)
    assert {tuple(ids) for ids in drawn.tokens.tolist()} <= set(truth)
