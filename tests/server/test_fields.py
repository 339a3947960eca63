"""What fields of OpenAI's and vLLM's API do to texts: each against the library, or against what it promises."""

from __future__ import annotations

import itertools
import json
import math
from enum import Enum
from typing import Annotated, Literal

import pytest
import torch
from pydantic import BaseModel, ConfigDict, Field

import locore
from locore.models import Biased, EndingAt, MinP, Penalised, Tempered, TopK, TopP
from tests.effort import some

SOON = {"type": "regex", "pattern": "[a-z ]{1,20}\\."}
LOW = {"effort": "low"}
USER = [{"role": "user", "content": "Say something."}]


def complete(client, prompt="The weather is", max_tokens=6, **body):
    return client.completions.create(model="tiny", prompt=prompt, max_tokens=max_tokens, extra_body=body)


def chat(client, **options):
    options.setdefault("extra_body", LOW)
    return client.chat.completions.create(**{"model": "tiny", "messages": USER, "max_tokens": 40, **options})


LAWS = {
    "top_k": ({"top_k": 5}, lambda m: TopK(m, 5)),
    "min_p": ({"min_p": 0.2}, lambda m: MinP(m, 0.2)),
    "logit_bias": ({"logit_bias": {"300": 2.5, "17": -1}}, lambda m: Biased(m, {300: 2.5, 17: -1.0})),
    "penalties": ({"frequency_penalty": 1.5, "presence_penalty": -0.5}, lambda m: Penalised(m, 1.5, -0.5)),
    "stop": ({"stop": "e"}, lambda m: EndingAt(m, ["e"])),
    "all": (
        {"temperature": 0.8, "top_p": 0.9, "top_k": 50, "min_p": 0.01, "logit_bias": {"300": 1}, "frequency_penalty": 1},
        lambda m: TopP(TopK(MinP(Tempered(Biased(Penalised(m, 1.0), {300: 1.0}), 0.8), 0.01), 50), 0.9),
    ),
}


@pytest.mark.parametrize("name", LAWS)
def test_a_field_that_changes_the_model_is_a_model_with_its_own_density(client, tiny, name):
    """Texts, and the log-probabilities that are sent with them."""
    body, around = LAWS[name]
    answer = complete(client, sampler="masked", seed=3, n=2, num_particles=4, logprobs=0, **body)
    alpha = locore.from_json({"type": "true"})
    model = around(tiny)
    p = locore.generate(model, "The weather is", alpha, max_new_tokens=6, num_particles=4, sampler="masked", seed=3)
    drawn = p.resample(2, seed=4)
    for choice, tokens, text in zip(answer.choices, drawn.tokens, drawn.texts, strict=True):
        assert choice.text == (text.split("e")[0] if name == "stop" else text)
        expected = float(model.prompted("The weather is").score(tokens[None]))
        assert choice.model_extra["locore"]["log_prob"] == pytest.approx(expected, abs=1e-4)
        if name != "stop":
            ends = torch.isin(tokens, torch.tensor(tiny.tokenizer.eos_ids))  # the end of a text is no token of it
            scores = model.prompted("The weather is").token_scores(tokens[None])[0]
            assert sum(choice.logprobs.token_logprobs) == pytest.approx(float(scores[~ends].sum()), abs=1e-4)


def test_a_text_stops_before_a_string_and_satisfies_its_constraint_there(client):
    body = {"constraint": {"type": "contains", "text": "a"}, "stop": [" the", "."], "n": 8, "num_particles": 16, "seed": 1}
    answer = complete(client, max_tokens=24, **body)
    kept = complete(client, max_tokens=24, include_stop_str_in_output=True, **body)
    for choice, longer in zip(answer.choices, kept.choices, strict=True):
        assert "a" in choice.text and "." not in choice.text and " the" not in choice.text
        stopped = choice.finish_reason == "stop"
        assert not stopped or longer.text in (choice.text + " the", choice.text + ".")
        assert stopped or longer.text == choice.text
    assert any(choice.finish_reason == "stop" for choice in answer.choices)


def test_a_bonus_is_sent_as_json(client, tiny):
    """A product of a constraint and a bonus: the evidence is its normaliser, and so are log-probabilities given it."""
    worth, texts = locore.bonus(locore.contains("so"), 3.0), [" very", " so", " too"]
    target = locore.choice(texts) * worth
    body = {"constraint": target.to_json(), "sampler": "exact", "num_particles": 500, "seed": 1, "n": 8, "logprobs": 0}
    answer = complete(client, max_tokens=3, **body)
    p = locore.generate(tiny, "The weather is", target, 3, sampler="exact", num_particles=500, seed=1)
    assert answer.model_extra["locore"]["log_evidence"] == pytest.approx(p.log_evidence, abs=1e-5)
    for choice in answer.choices:
        told = choice.model_extra["locore"]
        given = told["log_prob"] - p.log_evidence + 3.0 * ("so" in choice.text)
        assert told["log_prob_given_constraint"] == pytest.approx(given, abs=1e-4)


def test_log_probabilities_under_the_model_and_under_the_constraint(client, tiny):
    """log p(y), log p(y | α) and log q of masking, for a constraint that is enumerated."""
    texts = [" very", " so", " too"]
    answer = complete(client, constraint={"type": "choice", "texts": texts}, n=6, num_particles=64, logprobs=3, seed=2)
    p = locore.generate(
        tiny, "The weather is", locore.choice(texts), max_new_tokens=6, num_particles=500, sampler="exact", seed=1
    )
    assert answer.model_extra["locore"]["sampler"] == "exact"
    for choice in answer.choices:
        found = choice.model_extra["locore"]
        given = found["log_prob_given_constraint"]
        assert given == pytest.approx(found["log_prob"] - p.log_evidence, abs=1e-4)
        assert found["log_weight"] == pytest.approx(found["log_prob"] - found["log_prob_masked"], abs=1e-4)
        assert math.exp(given) <= p.posterior()[choice.text] + 1e-6  # of one of its spellings
        logprobs = choice.logprobs
        assert "".join(logprobs.tokens) == choice.text
        assert [len(top) for top in logprobs.top_logprobs] == [3] * len(logprobs.tokens)
        masked = sum(logprobs.model_extra["masked_token_logprobs"])
        assert masked == pytest.approx(found["log_prob_masked"], abs=1e-4)
        best = max(logprobs.top_logprobs[0].values())
        row = tiny.prompted("The weather is").log_probs(torch.tensor([[0]]))[0, 0]
        assert best == pytest.approx(float(row.max()), abs=1e-4)


def test_log_probabilities_of_a_chat(client):
    answer = chat(client, max_tokens=5, logprobs=True, top_logprobs=2, seed=1)
    content = answer.choices[0].logprobs.content
    assert b"".join(bytes(token.bytes) for token in content).decode(errors="replace") == answer.choices[0].message.content
    assert all(len(token.top_logprobs) == 2 and token.logprob <= token.top_logprobs[0].logprob + 1e-6 for token in content)


def test_temperature_0_is_the_most_probable_text_and_repeats(client, tiny):
    texts = [" very good", " not", " warm and dry"]
    answer = complete(client, temperature=0, constraint={"type": "choice", "texts": texts}, n=2)
    p = locore.generate(tiny, "The weather is", locore.choice(texts), max_new_tokens=6, num_particles=500, sampler="exact")
    best = p.texts[int(p.token_scores.sum(-1).argmax())]
    assert [choice.text for choice in answer.choices] == [best, best]
    options = {"sampler": "search", "budget": 500}
    asked = complete(client, n=2, **options, constraint={"type": "choice", "texts": texts})
    found = locore.generate(tiny, "The weather is", locore.choice(texts), 6, num_particles=2, **options)
    assert [choice.text for choice in asked.choices] == found.texts and found.best == best
    free = [complete(client, temperature=0, seed=seed, logprobs=0).choices[0] for seed in (1, 1)]
    assert free[0].text == free[1].text
    greedy = locore.generate(Tempered(tiny, 0.001), "The weather is", locore.from_json({"type": "true"}), 6, num_particles=1)
    assert free[0].model_extra["locore"]["log_prob"] >= float(tiny.prompted("The weather is").score(greedy.tokens)) - 1e-4


@pytest.mark.parametrize(
    "prompts", [["The weather is", "I"], ["I"], [[5, 6, 7], [8]], [5, 6, 7]], ids=["texts", "one", "ids of two", "ids"]
)
def test_each_prompt_of_a_list_has_its_texts(client, prompts):
    answer = complete(client, prompt=prompts, n=2, seed=7, num_particles=4)
    each = [prompts] if isinstance(prompts[0], int) else prompts
    alone = [complete(client, prompt=one, n=2, seed=7 + i, num_particles=4) for i, one in enumerate(each)]
    assert [choice.text for choice in answer.choices] == [choice.text for one in alone for choice in one.choices]
    assert [choice.index for choice in answer.choices] == list(range(2 * len(each)))
    assert answer.usage.total_tokens == sum(one.usage.total_tokens for one in alone)
    assert isinstance(answer.model_extra["locore"], list if len(each) > 1 else dict)


def test_independent_texts_are_runs_of_their_own(client):
    answer = complete(client, n=3, independent=True, seed=5, num_particles=4)
    alone = [complete(client, seed=5 + i, num_particles=4).choices[0].text for i in range(3)]
    assert [choice.text for choice in answer.choices] == alone
    assert [found["seed"] for found in answer.model_extra["locore"]] == [5, 6, 7]


def test_echo_bad_words_and_ids(client, tiny):
    answer = complete(client, echo=True, bad_words=["e"], return_token_ids=True, seed=1, num_particles=4)
    (choice,) = answer.choices
    assert choice.text.startswith("The weather is") and "e" not in choice.text.removeprefix("The weather is")
    assert tiny.tokenizer.decode(choice.model_extra["token_ids"]) == choice.text.removeprefix("The weather is")
    assert choice.model_extra["prompt_token_ids"] == list(tiny.tokenizer.encode_prompt("The weather is"))


def test_effort_says_what_is_spent(client):
    asked = {"constraint": {"type": "contains", "text": "sun"}, "max_tokens": 8, "seed": 1}
    spent = {}
    for effort in ("low", "normal", "high"):
        found = complete(client, effort=effort, **asked).model_extra["locore"]
        assert found["effort"] == effort
        spent[effort] = found["lm_tokens"]
    assert spent["low"] <= 8 * 7 < spent["normal"] <= 32 * 7 < spent["high"]
    assert complete(client, sampler="smc", **asked).model_extra["locore"]["effort"] is None
    few = complete(client, num_particles=8, **asked).model_extra["locore"]["lm_tokens"]
    assert few <= 8 * 7


def test_a_budget_may_be_seconds(client):
    """As many LM tokens as they pay for, at most 1,024 prefixes at a position."""
    found = complete(client, prompt="The weather is", max_tokens=4, num_particles=2, budget="20s").model_extra["locore"]
    assert 3 <= found["lm_tokens"] <= 3 * 1_024


def test_a_large_budget_is_not_spent_on_millions_of_sequences(client):
    """Two tokens without a constraint are millions of sequences, which nobody wants one by one."""
    found = complete(client, prompt="x", max_tokens=2, num_particles=2, budget=100_000).model_extra["locore"]
    assert found["lm_tokens"] < 10_000


# Answers that are parsed.


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Flag(Closed):
    on: bool


class Person(Closed):
    name: str = Field(max_length=8)
    age: Annotated[int, Field(ge=0, le=120)]


class Point(Closed):
    x: Literal[0, 1, 2]
    y: Literal[0, 1, 2]


class Shape(Closed):
    corners: list[Point] = Field(min_length=1, max_length=2)
    colour: Colour


class Reply(Closed):
    text: str | None
    kind: Literal["yes", "no"]


class Switches(Closed):
    a: bool
    b: bool
    c: bool
    d: bool
    e: bool
    f: bool
    g: bool
    h: bool


class Team(Closed):
    lead: Person
    flags: list[Flag] = Field(max_length=2)
    colour: Colour | None


MODELS = [Flag, Shape, *(pytest.param(kind, marks=pytest.mark.slow) for kind in (Person, Point, Reply, Switches, Team))]


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_the_official_client_parses_answers(client, kind):
    asked = {"messages": USER, "response_format": kind, "max_tokens": 80, "seed": 1, "extra_body": LOW}
    answer = client.chat.completions.parse(model="tiny", **asked)
    assert isinstance(answer.choices[0].message.parsed, kind)
    assert answer.choices[0].finish_reason == "stop"


def test_the_official_client_parses_a_stream(client):
    asked = {"messages": USER, "response_format": Team, "max_tokens": 80, "seed": 1, "extra_body": LOW}
    with client.chat.completions.stream(model="tiny", **asked) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert isinstance(final.choices[0].message.parsed, Team)
    assert {"content.done", "chunk"} <= kinds


@pytest.mark.slow
def test_switches_in_any_number_are_taken(client):
    schema = {"type": "json_schema", "json_schema": {"name": "switches", "schema": Switches.model_json_schema()}}
    answer = chat(client, response_format=schema, max_tokens=80)
    assert set(json.loads(answer.choices[0].message.content)) == set("abcdefgh")


# Functions.


def tool(name: str, **properties) -> dict:
    parameters = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


ZONE = {"$ref": "#/$defs/Zone"}
TOOLS = [tool("rain", city={"enum": ["Rome", "Oslo"]}), tool("time", zone=ZONE)]
TOOLS[1]["function"]["parameters"]["$defs"] = {"Zone": {"enum": ["UTC", "CET"]}}
POSSIBLE = {"rain": ({"city": "Rome"}, {"city": "Oslo"}), "time": ({"zone": "UTC"}, {"zone": "CET"})}


@pytest.mark.parametrize(
    ("choice", "stream"),
    some(itertools.product(["required", {"type": "function", "function": {"name": "time"}}], [False, True]), 3, several=True),
    ids=str,
)
def test_a_function_that_must_be_called_is_called_strictly(client, choice, stream):
    asked = {"model": "tiny", "messages": USER, "tools": TOOLS, "tool_choice": choice, "max_tokens": 60, "n": 4, "seed": 1}
    asked["extra_body"] = LOW
    if stream:
        with client.chat.completions.stream(**asked) as events:
            answer = events.get_final_completion()
    else:
        answer = client.chat.completions.create(**asked)
    for one in answer.choices:
        assert (one.finish_reason, one.message.content) == ("tool_calls", None)
        (call,) = one.message.tool_calls
        assert json.loads(call.function.arguments) in POSSIBLE[call.function.name]
        assert choice == "required" or call.function.name == "time"


@pytest.mark.slow
def test_several_calls_are_bounded(client):
    answer = chat(client, tools=TOOLS, tool_choice="required", parallel_tool_calls=True, max_tokens=120, n=4, seed=2)
    for one in answer.choices:
        assert 1 <= len(one.message.tool_calls) <= 4
        assert len({call.id for call in one.message.tool_calls}) == len(one.message.tool_calls)


def test_a_function_that_may_be_called_leaves_text_free(client):
    answer = chat(client, tools=TOOLS, max_tokens=8, n=4, seed=1)
    assert all(one.message.tool_calls is None and one.message.content for one in answer.choices)
    ended = {"type": "ends_with", "text": "!"}
    answer = chat(client, tools=TOOLS, max_tokens=8, n=4, seed=1, extra_body={"constraint": ended, **LOW})
    assert all(one.message.content.endswith("!") for one in answer.choices)


def test_a_chat_tells_of_calls_names_and_results(server):
    """What the model reads: everything that a message says, in words."""
    call = {"id": "c1", "type": "function", "function": {"name": "get_time", "arguments": '{"zone": "UTC"}'}}
    messages = [
        {"role": "user", "content": "What time is it?", "name": "Ann"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "Noon."},
        {"role": "user", "content": [{"type": "text", "text": "Thanks."}]},
    ]
    told = "user: Ann: What time is it?\nassistant: " + '{"name": "get_time", "arguments": {"zone": "UTC"}}\n'
    told += "user: Result of get_time: Noon.\nuser: Thanks.\nassistant:"
    options = {"model": "tiny", "max_tokens": 2, "seed": 1, "num_particles": 2}
    first = server.post({**options, "messages": messages}, "/v1/chat/completions")
    assert first[0] == 200
    same = server.post({**options, "prompt": told})
    assert first[2]["choices"][0]["message"]["content"] == same[2]["choices"][0]["text"]
    assert first[2]["usage"] == same[2]["usage"]
