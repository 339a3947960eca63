"""Which engine, model and tokenizer are meant, from Python and from the command line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import locore
from locore.kernel.errors import EngineError, InvalidArgument, MissingExtra, ModelNotFound
from locore.kernel.tokenizer import Tokenizer
from locore.models import load

from . import engine_server, zoo
from .engine_server import NAME
from .opened_engines import ENDS, opened, reply, sglang


@pytest.mark.parametrize(
    "options", [{"timeout": 0}, {"retries": -1}, {"connections": 0}, {"tolerance": 0}, {"api_key": "line\nbreak"}]
)
def test_options_out_of_range(service, options):
    with pytest.raises(InvalidArgument):
        opened(service, **options)


def test_options_that_a_server_does_not_take(service):
    for options in ({"threads": 2}, {"device": "cuda", "dtype": "float16"}):
        with pytest.raises(InvalidArgument, match=f"takes no option {', '.join(options)}, only model, api_key"):
            opened(service, **options)
    with pytest.raises(InvalidArgument, match="takes no option model, only api_key"):
        sglang(service, model=NAME)


def test_which_model_is_meant(service):
    with pytest.raises(InvalidArgument, match=f"does not serve 'other'; it serves {NAME}"):
        opened(service, model="other")
    several = {"data": [{"id": NAME, "max_model_len": 32}, {"id": "an-adapter", "max_model_len": 32}]}
    service.spoil = lambda path, body, answer: several if path == "/v1/models" else answer
    with pytest.raises(InvalidArgument, match="an-adapter; name one"):
        opened(service)
    assert opened(service, model=NAME).engine.model == NAME


def test_wrong_tokenizers(service, stories260k):
    with pytest.raises(EngineError, match=f"have {zoo.VOCAB} tokens.*one for 512"):
        opened(service, tokenizer=stories260k)
    with pytest.raises(EngineError, match=f"have {zoo.VOCAB} tokens.*one for 9"):
        opened(service, tokenizer=Tokenizer.integers(9))
    with pytest.raises(ModelNotFound, match="give its folder or name as `tokenizer`"):
        opened(service, tokenizer=None)
    here = load("tiny").tokenizer
    with engine_server.running(engine_server.endless(load(stories260k)), tokenizer=load(stories260k).tokenizer) as other:
        table = Tokenizer(512, here.token_bytes[:512], _codec=here._codec)
        with pytest.raises(EngineError, match="cuts a text into other tokens"):
            opened(other, tokenizer=table)
        with pytest.raises(EngineError, match="the tokenizer here cannot spell"):
            opened(other, tokenizer=Tokenizer.from_tokens([chr(i) for i in range(512)]))


def test_sglang_is_labelled(service):
    assert "not verified against a real server" in repr(sglang(service))
    assert "not verified" not in repr(opened(service))


def test_an_engine_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(MissingExtra, match="pip install vllm"):
        load("vllm:tiny")


def test_without_urllib3(monkeypatch):
    monkeypatch.setitem(sys.modules, "locore.patience", None)
    with pytest.raises(MissingExtra, match=r"locore\[engines\]"):
        load("http://127.0.0.1:9/v1", tokenizer=ENDS)


@pytest.mark.slow
def test_the_command_line_takes_an_engine(stories260k):
    """In a process of its own, as a user has it."""
    here = load(stories260k)
    run = "import sys; from locore.cli import main; sys.exit(main())"
    constraint = locore.contains("time")
    with engine_server.running(engine_server.endless(here), root=str(stories260k)) as service:
        command = [sys.executable, "-c", run, "generate", "--json", "--model", f"{service.address}/v1", "--sampler", "swor"]
        command += [
            "--prompt",
            "Once upon",
            "--max-new-tokens",
            "3",
            "--seed",
            "1",
            "--constraint",
            json.dumps(constraint.to_json()),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        ours = locore.generate(here, "Once upon", constraint, 3, sampler="swor", seed=1)
        assert json.loads(done.stdout)["log_evidence"] == pytest.approx(ours.log_evidence, abs=1e-4)
        service.spoil = lambda *_: reply(404, {"detail": "Not Found"})
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "answered 404" in done.stderr and "Traceback" not in done.stderr
