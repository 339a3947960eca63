"""What the report says of a missing space, of texts that the horizon cuts off, and of what was just done."""

import random
import re

import pytest

import locore
from locore.kernel.errors import InvalidConstraint, Unsatisfiable
from locore.samplers import Twisted
from tests.effort import some

SPACE = "no allowed text begins with a space; did you mean"


@pytest.mark.parametrize(
    ("prompt", "constraint", "meant"),
    [
        ("She was", locore.choice(["good", "bad"]), "' good'"),
        ("She was", locore.regex("(happy|glad) today"), "' (happy|glad) today'"),
        ("She was", locore.choice([" good", "bad"]), None),
        ("She was ", locore.choice(["good", "bad"]), None),
        ("She was:", locore.choice(["good", "bad"]), None),
        ("She was", locore.choice([", then"]), None),
    ],
)
def test_a_missing_space_is_noticed(prompt, constraint, meant):
    """In the short report, where nothing else explains what was asked."""
    p = locore.generate("tiny", prompt, constraint, 6, seed=0)
    hints = [line for line in p.report().splitlines() if SPACE in line]
    assert [bool(re.search(rf"did you mean {meant}\?", hint)) for hint in hints] == ([] if meant is None else [True])


@pytest.mark.parametrize("constraint", [locore.ban("x"), locore.regex(r"[^\n]*"), ~locore.contains("z")])
def test_texts_that_the_horizon_cuts_off_are_counted(constraint):
    """As many as have no end, since any beginning of a text satisfies such a constraint."""
    p = locore.generate("tiny", "I", constraint, 6, seed=0)
    ends = [any(token in p.tokenizer.eos_ids for token in y) for y in p.tokens.tolist()]
    share = sum(weight for weight, end in zip(p.weights.tolist(), ends, strict=True) if not end)
    assert p.info.get("cut_off", 0.0) == pytest.approx(share) and share > 0.5
    assert f"Note: {share:.0%} of the weight is on texts that the horizon of 6 tokens cut off" in p.report(full=True)


@pytest.mark.parametrize(
    "constraint", [locore.regex(r"[^.]*\."), locore.ban("x") & locore.finished(), locore.choice([" a man", " a"])]
)
def test_texts_that_end_as_they_were_asked_to_are_not_cut_off(constraint):
    """None of them would satisfy the constraint a token shorter."""
    p = locore.generate("tiny", "I", constraint, 6, seed=0)
    assert "cut_off" not in p.info and "cut off" not in p.report(full=True)


@pytest.mark.parametrize("sampler", [Twisted(table=None), "auto", "swor", "masked"])
def test_no_report_sends_anybody_to_what_was_just_done(sampler):
    for constraint in (locore.contains(" zebra"), locore.json_schema({"type": "array", "items": {"type": "integer"}})):
        p = locore.generate("tiny", "The", constraint, 8, num_particles=2, budget=100, sampler=sampler, seed=1)
        done = {p.info["sampler"], p.info.get("chosen")}
        assert not done & set(re.findall(r"sampler='([a-z-]+)'", p.report()))
        if constraint.to_json()["type"] == "json_schema":
            assert "prepare" not in p.report()


def test_a_contradiction_is_called_one():
    with pytest.raises(Unsatisfiable, match=r"contains\(\"sun\"\) and not contains\(\"sun\"\) cannot hold together"):
        locore.generate("tiny", "I", locore.contains("sun") & ~locore.contains("sun"), 8)


def test_a_function_of_chance_is_called_one():
    @locore.constraint
    def sometimes(tokens):
        return tokens[0] == random.randrange(300, 2000)

    with pytest.raises(InvalidConstraint, match="other answers when it is asked again"):
        for seed in range(20):
            locore.generate("tiny", "I", sometimes, 3, seed=seed)


@pytest.mark.parametrize("ask", [lambda tokens: "sun" in tokens, lambda tokens: tokens[0] == " good"])
def test_a_text_is_no_token(ask):
    with pytest.raises(InvalidConstraint, match=r"tokens are ids; take them from model\.tokenizer\.encode"):
        locore.generate("tiny", "I", locore.constraint(ask), 3)


STORY = (
    "The little girl went to the park with her friend and they played together all afternoon because a big elephant wanted to "
    "become beautiful and happy and Tom liked to sing songs about butterflies and he smiled at everything"
)
WORDS = STORY.split()


@pytest.mark.parametrize("seed", some(range(12), 4))
def test_a_space_is_missing_between_words_and_never_within_one(seed):
    """By how the problem is made: a prompt that ends within a word, which the only text completes, or before the next word."""
    chance = random.Random(seed)
    at = chance.randrange(3, len(WORDS))
    word, before = WORDS[at], " ".join(WORDS[max(0, at - 6) : at])
    whole = locore.generate("tiny", before, locore.choice([word]), 8, seed=0)
    if whole.log_evidence < -15:  # how likely a word is without its space says how sure the model can be
        assert SPACE in whole.report()
    for cut in range(1, len(word)):
        p = locore.generate("tiny", f"{before} {word[:cut]}", locore.choice([word[cut:]]), 8, seed=0)
        assert SPACE not in p.report(), (before, word, cut)
