"""Laws of constraints over prompt and text: what holds of the text is what the constraint says of the prompt with it behind."""

from __future__ import annotations

import json
import math
import pickle
from functools import reduce
from operator import and_, or_

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import locore
from locore import after, ban, before, choice, contains, count, finished, from_json, grammar, pattern, regex, token, word_count
from locore.constraints import Over
from locore.constraints.text_leaf import machine_of
from locore.kernel.constraints.sequence import TokenSequence
from locore.kernel.errors import InvalidArgument, InvalidConstraint, Unsatisfiable
from locore.kernel.tokenizer import Tokenizer
from locore.models import MarkovModel
from locore.shaping import story_of
from locore.testing import enumerate_posterior
from tests.chatting import ours
from tests.effort import THOROUGH

from .texts import FLAGS

PIECES = ["a", "b", "ab", " a", "ba ", " "]
TOKENIZER = Tokenizer.from_tokens([piece.encode() for piece in PIECES] + [None], eos_ids=(len(PIECES),))
LENGTH = 4
PROMPTS = st.lists(st.sampled_from(PIECES), max_size=4).map("".join)
PHRASE = st.text("ab ", min_size=1, max_size=4)


def model_of(seed: int) -> MarkovModel:
    """A random model over the pieces and an end."""
    size = TOKENIZER.vocab_size
    generator = torch.Generator().manual_seed(seed)
    start, transition = (torch.softmax(torch.randn(*shape, size, generator=generator), -1).double() for shape in ((), (size,)))
    return MarkovModel(start, transition, eos_ids=TOKENIZER.eos_ids, tokenizer=TOKENIZER)


@st.composite
def leaves(draw):
    """Constraints on text of every kind of machine."""
    phrases = draw(st.lists(PHRASE, min_size=1, max_size=2))
    words, ignore_case = draw(FLAGS), draw(FLAGS)
    return draw(
        st.sampled_from(
            [
                ban(phrases, words=words, ignore_case=ignore_case),
                contains(phrases, words=words),
                contains(phrases, ordered=True),
                count(phrases, at_most=2),
                count(pattern("a+"), at_least=1, at_most=3),
                ban(pattern(r"b.{1,12}a.{1,12}b")),
                contains(pattern(r"\bab\b")),
                locore.starts_with(phrases[0]),
                locore.ends_with(phrases[0]),
                word_count(1, 3),
                regex("(a|b )*b?"),
                choice([*phrases, "ab", "a b"]),
                after(phrases[0], ban("aa")),
                before(phrases[0], contains("a")),
                grammar('start: "a" start "b" | "b" " "?'),
            ]
        )
    )


@st.composite
def constraints(draw):
    """Combinations, of which some parts see the prompt and others do not."""
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        part = draw(leaves())
        part = ~part if draw(FLAGS) else part
        parts.append((part.over("prompt+text") if draw(st.integers(0, 3)) else part, part))
    return draw(st.sampled_from(["and", "or"])), parts


def meaning(kind: str, parts, prompt: str, text: str) -> bool:
    """What the constraint says, by the plain reading of each part on the text that it speaks of."""
    values = []
    for part, alone in parts:
        whole = text if part is alone else prompt + text
        leaf = TokenSequence((), TOKENIZER)
        leaf.__dict__["text"] = whole.encode()
        values.append(alone.truth(leaf))
    return all(values) if kind == "and" else any(values)


@settings(max_examples=200 if THOROUGH else 3, suppress_health_check=[HealthCheck.too_slow])
@given(constraints(), PROMPTS, st.integers(0, 3))
def test_what_is_sampled_is_the_law_given_prompt_and_text(drawn, prompt, seed):
    """p(y | prompt, α(prompt + y)), against all texts, with the constraint read plainly on prompt and text."""
    kind, parts = drawn
    model = model_of(seed)
    alpha = reduce(and_ if kind == "and" else or_, [part for part, _ in parts])
    anything = enumerate_posterior(model.prompted(prompt), locore.compile(regex("(?s).*"), model, LENGTH)).texts(TOKENIZER)
    mass = {text: share for text, share in anything.items() if meaning(kind, parts, prompt, text)}
    options = {"num_particles": 10_000, "sampler": "swor", "ending": "eos", "seed": 0}
    if not mass:
        with pytest.raises(Unsatisfiable):
            locore.generate(model, prompt, alpha, LENGTH, **options)
        return
    found, total = locore.generate(model, prompt, alpha, LENGTH, **options), sum(mass.values())
    assert found.log_evidence == pytest.approx(math.log(total), abs=1e-6)
    assert found.posterior() == pytest.approx({text: share / total for text, share in mass.items()}, abs=1e-6)
    again = from_json(json.loads(json.dumps(alpha.to_json())))
    assert again == alpha and pickle.loads(pickle.dumps(alpha)) == alpha
    for text in [*found.texts[:3], "ab a"]:
        assert locore.holds(alpha, text, TOKENIZER, prompt) == meaning(kind, parts, prompt, text)


@settings(max_examples=200 if THOROUGH else 10)
@given(leaves(), PROMPTS, st.lists(PROMPTS, min_size=3, max_size=6))
def test_the_derivative_is_the_machine_behind_the_prompt(leaf, prompt, texts):
    told = leaf.over("prompt+text", prompt)
    machine = machine_of(told)
    for text in texts:
        wanted = meaning("and", [(told, leaf)], prompt, text)
        state = machine.after(text.encode())
        assert (state >= 0 and machine.accepts(state)) == wanted
        if isinstance(told, Over) and told.is_small:
            assert told.automaton().accepts(text.encode()) == wanted
        assert not wanted or machine.least(0) <= len(text)


def test_a_phrase_may_begin_in_the_prompt_and_end_in_the_text():
    model = model_of(0)
    across, inside = ban("ab").over("prompt+text"), ban("ab")
    found = [set(locore.generate(model, " a", c, 2, num_particles=500, sampler="swor").texts) for c in (across, inside)]
    assert found[1] - found[0] == {text for text in found[1] if text.startswith("b")} != set()


def test_the_options_of_a_request_are_about_both():
    """A stop string cuts the text alone; bonuses and odds know the prompt too."""
    model = model_of(1)
    c = ban("aba").over("prompt+text")
    p = locore.generate(model, "ab", c, 3, num_particles=500, sampler="swor", stop=" ", seed=0)
    assert p.texts and not any(("ab" + text).count("aba") or " " in text for text in p.texts)
    p = locore.generate(model, "ab", before(" ", c), 3, num_particles=500, sampler="swor", seed=0)
    assert any("aba" in "ab" + text for text in p.texts)
    assert not any("aba" in ("ab" + text).partition(" ")[0] for text in p.texts)
    odds = locore.log_odds(model, "ab", c, ~c, 3, num_particles=500, sampler="swor", seed=0, ending="eos")
    first = math.exp(odds.first.log_evidence)
    assert first + math.exp(odds.second.log_evidence) == pytest.approx(1)
    weighed = locore.generate(model, "ab", c * locore.bonus(contains("b").over("prompt+text"), 1.0), 3, seed=0)
    assert weighed.log_evidence == pytest.approx(math.log(first) + 1, abs=0.5)  # every text has the b of the prompt


def test_what_the_prompt_alone_breaks_is_an_error_that_says_where():
    model, c = model_of(0), ban(["ba", "ab"]).over("prompt+text")
    for alpha in (c, c & contains("a"), ~(~c), c & (contains("a") | contains("b"))):
        with pytest.raises(Unsatisfiable, match=r'prompt alone breaks.*"ab" occurs at character 1 .*the text begins at 3'):
            locore.generate(model, "aab", alpha, 3)
    assert locore.generate(model, "aab", c | contains("b"), 3, seed=0).texts
    with pytest.raises(Unsatisfiable, match="prompt alone breaks"):
        locore.generate(model, "aab", ban(pattern(r"b.{0,30}|a.{3,30}a")).over("prompt+text"), 3)


def test_the_report_says_what_has_begun_in_the_prompt():
    p = locore.generate(model_of(0), "a b a", ban(["a ba", "a b a b a", "zz"]).over("prompt+text"), 3, seed=0)
    assert '"a b a b a" begins at character 0' in p.report(full=True) and '"zz" begins' not in p.report(full=True)
    p = locore.generate(model_of(0), "a b a", ban(pattern(r"\bb.{2,25}b")).over("prompt+text"), 3, seed=0)
    assert "begins at character 2 of the prompt" in p.report(full=True)


def test_explain_counts_from_the_start_of_the_prompt():
    said = locore.explain(ban("bad news").over("prompt+text"), "d news", TOKENIZER_OF_BYTES, "My ba")
    assert not said.holds and said.clause == 'ban(["bad news"]).over("prompt+text")'
    assert said.reason == '"bad news" occurs at character 3 (counted from the start of the prompt; the text begins at 5)'
    assert locore.explain(regex("a+").over("prompt+text"), "a", TOKENIZER_OF_BYTES, "a").holds
    assert not locore.explain(word_count(1, 2).over("prompt+text"), " c", TOKENIZER_OF_BYTES, "a b").holds


TOKENIZER_OF_BYTES = Tokenizer.from_tokens([bytes([byte]) for byte in range(256)], eos_ids=())


@pytest.mark.parametrize("template", ["chatml", "trimming"])
def test_of_a_chat_it_is_how_the_answer_begins(template):
    tokenizer = ours("byte level", template)
    asked = {"role": "user", "content": "say ab"}
    assert story_of(tokenizer, [asked]) == ""
    assert story_of(tokenizer, [asked, {"role": "assistant", "content": "It ab"}]) == "It ab"
    # What a template cuts off is not read by the model either.
    for begun in ("It ", " It", "It\n\n"):
        chat = [asked, {"role": "assistant", "content": begun}]
        read = b"".join(tokenizer.token_bytes[token] or b"" for token in tokenizer.encode_chat(chat)).decode()
        story = story_of(tokenizer, chat)
        assert read.endswith(story) and story.strip() == "It", (story, read)


def test_of_ids_it_is_what_follows_the_last_special_token():
    tokenizer = Tokenizer.from_tokens([b"a", b"b", None, None], eos_ids=(3,))
    assert story_of(tokenizer, [0, 2, 1, 0]) == "ba"
    assert story_of(tokenizer, [0, 1, 3]) == ""
    assert story_of(tokenizer, []) == story_of(tokenizer, "") == ""
    assert story_of(tokenizer, " as written ") == " as written "


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: ban("a").over("prompt"), 'knows "text" and "prompt\\+text"'),
        (lambda: ban("a").over("prompt+text", prompt=3), "is a string"),
        (lambda: ban("a").over("prompt+text", prompt="\ud800"), "lone surrogate"),
        (lambda: ban("a").over(["prompt+text"]), 'knows "text"'),
        (lambda: token(0, 1).over("prompt+text"), "speaks of the tokens"),
        (lambda: (ban("a") & finished()).over("prompt+text"), "speaks of the tokens"),
        (lambda: ban("a", level="tokens").over("prompt+text"), "speaks of the tokens"),
        (lambda: locore.constraint(lambda tokens: tokens[0] == 1).over("prompt+text"), "Python function"),
        (lambda: after("a", ban("a").over("prompt+text")), "no meaning"),
        (lambda: locore.compile(ban("a").over("prompt+text"), TOKENIZER, 3), "prompt, which is not known"),
        (lambda: locore.holds(ban("a").over("prompt+text"), "a", TOKENIZER), "prompt, which is not known"),
        (lambda: from_json({"type": "over", "what": "all", "of": {"type": "true"}}), "not 'all' \\(at the top"),
    ],
)
def test_mistakes_are_named(make, said):
    with pytest.raises(InvalidConstraint, match=said):
        make()


def test_a_prompt_that_has_no_bytes_is_refused():
    with pytest.raises(InvalidArgument, match="lone surrogate"):
        locore.generate(model_of(0), "\ud800", ban("a").over("prompt+text"), 3)


def test_what_changes_nothing_is_the_same():
    assert ban("a").over("text") == ban("a")
    once = ban("a").over("prompt+text")
    assert once.over("prompt+text") is once
    assert (ban("a") & ~contains("b")).over("prompt+text") == once & ~contains("b").over("prompt+text")


def test_kinds_of_their_own_may_still_say_what_they_read_by_its_old_name():
    class Anything(locore.constraints.AutomatonLeaf):
        over = "bytes"

    assert Anything.reads == "bytes" and Anything.over is locore.Constraint.over
