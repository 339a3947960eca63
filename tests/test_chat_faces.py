"""One chat, whoever asks: Python, the shell, and a file of rows; the server's law is in tests/server/test_chat.py."""

from __future__ import annotations

import io
import json
import sys

import pytest
import torch
from transformers import AutoTokenizer

import locore
from locore.cli import main
from locore.kernel.errors import CannotScore, InvalidArgument, MissingTemplate
from locore.kernel.tokenizer import Tokenizer
from locore.models import Counted, MarkovModel, TableModel, Tempered, prompt_ids
from tests.batch.helpers import results, write
from tests.chatting import talking

MESSAGES = [{"role": "system", "content": "Be kind. </s>"}, {"role": "user", "content": "How is <s> the weather?"}]
END = locore.ends_with(".")
OPTIONS = {"max_new_tokens": 4, "num_particles": 8, "sampler": "smc", "seed": 3}
SHELL = [
    "--max-new-tokens",
    "4",
    "--num-particles",
    "8",
    "--sampler",
    "smc",
    "--constraint",
    '{"type": "ends_with", "text": "."}',
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return talking(tmp_path_factory.mktemp("talking") / "model")


@pytest.fixture(scope="module")
def model(folder):
    return locore.load(folder)


@pytest.fixture(scope="module")
def ids(model):
    """The prompt: the template's one special token, and everything else as text."""
    text = "".join(f"{m['role']}: {m['content']}\n" for m in MESSAGES) + "assistant:"
    return [*model.tokenizer.bos_ids, *model.tokenizer.encode(text)]


@pytest.fixture(scope="module")
def expected(model, ids):
    return locore.generate(model, ids, END, **OPTIONS)


def assert_same(found, expected):
    assert found["texts"] == expected.texts
    assert found["tokens"] == expected.tokens.tolist()
    assert found["log_weights"] == pytest.approx(expected.log_weights.tolist())


def test_a_chat_is_its_ids(model, ids, folder, expected):
    assert prompt_ids(model.tokenizer, MESSAGES) == list(model.prompted(MESSAGES).prompt_ids) == ids
    hf = AutoTokenizer.from_pretrained(folder)
    ordinary = [{"role": "user", "content": "How is the weather?"}]
    assert (
        list(model.prompted(ordinary).prompt_ids) == hf.apply_chat_template(ordinary, add_generation_prompt=True)["input_ids"]
    )
    assert_same(locore.generate(model, tuple(MESSAGES), END, **OPTIONS).to_json(), expected)


@pytest.mark.parametrize("canonical", ["alpha", "only"])
def test_canonical_texts_of_a_chat_are_those_after_its_ids(model, ids, canonical):
    after_ids = locore.generate(model, ids, END, canonical=canonical, **OPTIONS)
    assert_same(locore.generate(model, MESSAGES, END, canonical=canonical, **OPTIONS).to_json(), after_ids)


def test_an_answer_goes_on_from_a_last_message_of_the_assistant(model):
    begun = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "The weather is"}]
    text = "user: Hello\nassistant: The weather is"
    assert prompt_ids(model.tokenizer, begun) == [*model.tokenizer.bos_ids, *model.tokenizer.encode(text)]


def test_models_around_a_model_read_chats(model, ids):
    tokens = torch.tensor([[5, 6, 7]])
    for around in (lambda m: Tempered(m, 1.0), Counted):
        torch.testing.assert_close(around(model).prompted(MESSAGES).score(tokens), model.prompted(ids).score(tokens))


def test_a_chat_begins_by_itself(model, ids):
    for before in ("The weather is", ids, MESSAGES):
        with pytest.raises(InvalidArgument, match=r"cannot follow an earlier prompt.*unprompted"):
            model.prompted(before).prompted(MESSAGES)
    assert model.prompted("A").unprompted().prompted(MESSAGES).prompt_ids == tuple(ids)


def test_models_without_chats_say_so():
    letters = MarkovModel([0.5, 0.5], [[0.5, 0.5]] * 2, tokenizer=Tokenizer.from_tokens(["a", "b"]))
    for model in (locore.load("tiny"), letters):
        with pytest.raises(MissingTemplate, match="plain prompt"):
            model.prompted(MESSAGES)
    with pytest.raises(CannotScore, match="no prompt"):
        TableModel.random(3, 2, seed=0).prompted(MESSAGES)
    for wrong in (["a", "b"], [1.5], [[1, 2]], None):
        with pytest.raises(InvalidArgument, match=r"(a prompt is|are integers)"):
            letters.prompted(wrong)


@pytest.mark.parametrize("way", ["options", "file", "standard input"])
def test_the_shell(way, folder, expected, tmp_path, capsys, monkeypatch):
    system, user = (m["content"] for m in MESSAGES)
    (tmp_path / "messages.json").write_text(json.dumps(MESSAGES))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(MESSAGES).encode())))
    chosen = {
        "options": ["--system", system, "--prompt", user],
        "file": ["--prompt", f"@{tmp_path / 'messages.json'}"],
        "standard input": ["--prompt", "@-"],
    }
    assert main(["generate", "--model", str(folder), "--chat", *chosen[way], *SHELL, "--seed", "3", "--json"]) == 0
    assert_same(json.loads(capsys.readouterr().out), expected)


WRONG = {
    "no list": ("{}", [], "list of messages"),
    "ids": ("[1, 2]", [], "messages[0] is 1"),
    "no message": ("[]", [], "no message"),
    "no JSON": ("[", [], "no JSON"),
    "a strange role": ('[{"role": "wizard", "content": "a"}]', [], "messages[0] has the role 'wizard'"),
    "two systems": (json.dumps(MESSAGES), ["--system", "Be kind."], "put it into the file"),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_shell_refuses(name, tmp_path, capsys):
    text, options, words = WRONG[name]
    (tmp_path / "messages.json").write_text(text)
    assert main(["generate", "--chat", "--prompt", f"@{tmp_path / 'messages.json'}", *options, *SHELL]) != 0
    assert words in capsys.readouterr().err


def test_a_system_needs_a_chat(capsys):
    assert main(["generate", "--prompt", "Hello", "--system", "Be kind.", *SHELL]) != 0
    assert "add --chat" in capsys.readouterr().err


def test_a_file_of_rows(folder, expected, tmp_path, capsys):
    good = [{"messages": MESSAGES, "seed": 3}, {"prompt": MESSAGES, "seed": 3}]
    bad = [
        {"messages": []},
        {"messages": [1, 2]},
        {"messages": "Hello"},
        {"messages": [{"role": "user"}]},
        {"messages": MESSAGES, "prompt": "a"},
    ]
    prompts = write(tmp_path / "prompts.jsonl", good + bad)
    assert main(["batch", str(prompts), "-o", str(tmp_path / "out"), "--model", str(folder), "--tokens", *SHELL]) == 1
    rows = results(tmp_path / "out")
    for row in rows[:2]:
        assert_same(row, expected)
    words = ["no message", "messages[0] is 1", "got str", "messages[0] has no 'content'", "a field 'messages' instead"]
    assert [row["error"]["type"] for row in rows[2:]] == ["InvalidArgument"] * len(bad)
    assert all(said in row["error"]["message"] for said, row in zip(words, rows[2:], strict=True))
