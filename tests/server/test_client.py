"""What the official client of OpenAI gets, over a real socket."""

from __future__ import annotations

import math
from typing import Literal

import openai
import pytest
from pydantic import BaseModel

import locore
from locore import ends_with
from locore.kernel.numerics import is_end
from locore.server.tools import STYLE

HAPPY = {"type": "ends_with", "text": " happy."}


def ask(client, prompt="The weather is", max_tokens=3, **options):
    standard = {name: options.pop(name) for name in ("n", "seed", "stream", "stream_options", "temperature") if name in options}
    return client.completions.create(
        model="tiny",
        prompt=prompt,
        max_tokens=max_tokens,
        extra_body={"constraint": HAPPY, "effort": "high", **options},
        **standard,
    )


def test_an_answer_is_that_of_the_library(client, tiny):
    answer = ask(client, seed=5, n=3, num_particles=16)
    p = locore.generate(tiny, "The weather is", ends_with(" happy."), max_new_tokens=3, num_particles=16, seed=5)
    assert [choice.text for choice in answer.choices] == p.resample(3, seed=6).texts
    found = answer.model_extra["locore"]
    assert found["log_evidence"] == pytest.approx(p.log_evidence, abs=1e-5)
    assert found["ess"] == pytest.approx(p.ess, rel=1e-4)
    assert (found["verdict"], found["guarantee"], found["seed"]) == (p.verdict.level, "proper", 5)
    assert answer.usage.prompt_tokens == len(tiny.tokenizer.encode_prompt("The weather is"))
    ended = is_end(p.resample(3, seed=6).tokens, tiny.tokenizer.eos_ids)
    assert [choice.finish_reason for choice in answer.choices] == ["stop" if row.any() else "length" for row in ended]
    assert answer.usage.completion_tokens == int((~ended).sum())


def test_a_seed_that_was_drawn_repeats_the_answer(client):
    first = ask(client, num_particles=8)
    again = ask(client, num_particles=8, seed=first.model_extra["locore"]["seed"])
    assert again.choices[0].text == first.choices[0].text


def test_a_text_that_ends_says_so(client):
    answer = client.completions.create(
        model="tiny", prompt="I", max_tokens=6, extra_body={"structured_outputs": {"choice": [" am"]}, "return_particles": True}
    )
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == (" am", "stop")
    assert {particle["text"] for particle in answer.model_extra["locore"]["particles"]} == {" am"}


def test_a_complete_text_that_fills_its_tokens_is_not_cut_off(client, tiny):
    """Nothing longer could satisfy the constraint; where something could, the text was cut off."""
    length = len(tiny.tokenizer.encode(" am"))
    expected = {"complete": ({"choice": [" am"]}, "stop"), "cut off": ({"regex": " am( not)*"}, "length")}
    for given, reason in expected.values():
        for ending in ({}, {"ending": "eos"}):
            answer = client.completions.create(
                model="tiny",
                prompt="I",
                max_tokens=length,
                extra_body={"structured_outputs": given, "min_tokens": length, **ending},
            )
            assert (answer.choices[0].text, answer.choices[0].finish_reason) == (" am", reason)
            assert answer.usage.completion_tokens == length


class Mood(BaseModel):
    """What the client of OpenAI turns into a schema, and an answer back into."""

    mood: Literal["happy", "sad"]


@pytest.mark.parametrize("more", [0, 6])
def test_the_client_parses_what_it_asked_for(client, tiny, more):
    """It refuses an answer whose finish_reason is "length"."""
    length = len(tiny.tokenizer.encode('{"mood":"happy"}')) + more
    asked = {"model": "tiny", "messages": [{"role": "user", "content": "How are you?"}], "max_tokens": length, "seed": 1}
    answer = client.chat.completions.parse(**asked, response_format=Mood)
    assert answer.choices[0].message.parsed.mood in ("happy", "sad")
    assert answer.choices[0].finish_reason == "stop"
    with client.chat.completions.stream(**asked, response_format=Mood) as stream:
        assert "".join(event.delta for event in stream if event.type == "content.delta") == answer.choices[0].message.content
        assert stream.get_final_completion().choices[0].message.parsed == answer.choices[0].message.parsed


def test_token_ids_are_a_prompt_as_they_are(client, tiny):
    ids = tiny.tokenizer.encode_prompt("The weather is")
    assert ask(client, prompt=ids, seed=1).choices[0].text == ask(client, seed=1).choices[0].text


def test_a_chat_is_written_by_the_template(client):
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
    answer = client.chat.completions.create(
        model="tiny", messages=messages, max_completion_tokens=3, seed=2, extra_body={"constraint": HAPPY, "effort": "high"}
    )
    prompt = "system: Be kind.\nuser: Hello\nassistant:"
    same = ask(client, prompt=prompt, seed=2)
    assert answer.choices[0].message.content == same.choices[0].text
    assert answer.usage == same.usage


@pytest.mark.parametrize(
    ("given", "constraint"),
    [
        ({"structured_outputs": {"regex": " [a-z]{3}"}}, {"type": "regex", "pattern": " [a-z]{3}"}),
        ({"structured_outputs": {"choice": [" a", " b"]}}, {"type": "choice", "texts": [" a", " b"]}),
        ({"structured_outputs": {"json": {"enum": [1, 2]}}}, {"type": "json_schema", "schema": {"enum": [1, 2]}, **STYLE}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": [1, 2]}}}},
            {"type": "json_schema", "schema": {"enum": [1, 2]}, **STYLE},
        ),
        ({"response_format": {"type": "text"}}, {"type": "true"}),
        ({}, {"type": "true"}),
    ],
    ids=str,
)
def test_other_names_mean_the_same_constraint(client, given, constraint):
    answers = [
        client.completions.create(model="tiny", prompt="I", max_tokens=4, seed=3, extra_body=body)
        for body in (given, {"constraint": constraint})
    ]
    assert answers[0].choices[0].text == answers[1].choices[0].text


def test_temperature_and_top_p_are_other_models(client, tiny):
    sharp = ask(client, temperature=0.9, top_p=0.99, seed=1, constraint={"type": "ends_with", "text": "."})
    model = locore.models.TopP(locore.models.Tempered(tiny, 0.9), 0.99)
    p = locore.generate(model, "The weather is", ends_with("."), max_new_tokens=3, num_particles=32, seed=1)
    assert sharp.model_extra["locore"]["log_evidence"] == pytest.approx(p.log_evidence, abs=1e-5)


def test_a_stream_brings_the_finished_text(client):
    whole = ask(client, seed=4, n=2)
    chunks = list(ask(client, seed=4, n=2, stream=True, stream_options={"include_usage": True}))
    texts = ["", ""]
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]
    assert chunks[-1].usage == whole.usage
    diagnostics = [chunk.model_extra["locore"] for chunk in chunks if "locore" in chunk.model_extra]
    assert [found["log_evidence"] for found in diagnostics] == [whole.model_extra["locore"]["log_evidence"]]


def test_a_chat_streams_too(client):
    messages = [{"role": "user", "content": "Hello"}]
    options = {"model": "tiny", "messages": messages, "max_tokens": 3, "seed": 4, "extra_body": {"constraint": HAPPY}}
    whole = client.chat.completions.create(**options)
    chunks = list(client.chat.completions.create(**options, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content


def test_a_stream_is_kept_alive_and_ends(server):
    body = b'{"model": "tiny", "prompt": "I", "max_tokens": 30, "stream": true, "sampler": "swor", "num_particles": 128}'
    status, headers, answer = server.request("POST", "/v1/completions", body)
    assert status == 200 and headers["content-type"].startswith("text/event-stream")
    assert answer.startswith(b": keep-alive\n\n")
    assert answer.endswith(b"data: [DONE]\n\n")


def test_a_quick_error_of_a_stream_has_its_status(client):
    with pytest.raises(openai.UnprocessableEntityError):
        list(client.completions.create(model="tiny", prompt="I", stream=True, extra_body={"constraint": {"type": "false"}}))


def test_models_and_where_to_look(client, server):
    assert [model.id for model in client.models.list()] == ["tiny"] == [client.models.retrieve("tiny").id]
    with pytest.raises(openai.NotFoundError, match="it has 'tiny'"):
        client.models.retrieve("some/other")
    assert server.get("/health")[0] == server.get("/ready")[0] == server.get("/metrics")[0] == 200


def test_metrics_count(client, server):
    names = ["locore_requests_total", "locore_lm_tokens_total", "locore_ess_ratio_count", "locore_compile_seconds_count"]
    before = [server.metric(name) for name in names]
    answer = ask(client)
    after = [server.metric(name) for name in names]
    assert after[1] - before[1] == answer.model_extra["locore"]["lm_tokens"]
    assert after[0] - before[0] >= 1 and after[2] - before[2] == 1 and after[3] - before[3] == 1
    assert math.isfinite(server.metric("locore_queue_depth")) and server.metric("locore_workers_ready") == 1
