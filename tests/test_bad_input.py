"""Bad input, through Python and through the shell: an error of Locore that names the cause and the remedy, and nothing else."""

from __future__ import annotations

import json
import re
import shutil
from importlib.resources import files
from pathlib import Path

import pytest
from transformers import AutoTokenizer

import locore
from locore.cli import main
from locore.kernel.errors import (
    CannotScore,
    InvalidArgument,
    InvalidConstraint,
    LocoreError,
    ModelNotFound,
    Unsatisfiable,
    UnsupportedKeyword,
)

SUN = locore.contains(" sun")
TINY = Path(str(files("locore"))) / "assets" / "tiny"


@pytest.fixture(scope="module")
def model():
    return locore.load("tiny")


def generate(model, constraint=SUN, prompt="The weather is", **options):
    return locore.generate(model, prompt, constraint, **{"max_new_tokens": 4, "num_particles": 2, "seed": 0} | options)


# Python: what is wrong, the error, and words for the cause and the remedy.

BAD_CALLS = {
    "unsatisfiable": (lambda m: generate(m, SUN & locore.ban(" sun")), Unsatisfiable, "no sequence of 4 tokens", "weaken"),
    "phrase longer than the horizon": (
        lambda m: generate(m, locore.contains(" a sunny day at the sea"), max_new_tokens=2),
        Unsatisfiable,
        "no sequence of 2 tokens",
        "fit into the number of tokens",
    ),
    "empty phrase": (lambda m: locore.ban(["awful", ""]), InvalidConstraint, "empty phrase", "remove"),
    "no phrase": (lambda m: locore.choice([]), InvalidConstraint, "no phrase", "at least one"),
    "token id out of range": (
        lambda m: generate(m, locore.token(0, 10**6)),
        InvalidConstraint,
        "1000000 is outside the vocabulary",
        "this model's tokenizer",
    ),
    "negative token id": (lambda m: locore.token(0, -1), InvalidConstraint, "-1", "start at 0"),
    "position past the end": (lambda m: generate(m, locore.token(4, 5)), InvalidConstraint, "position 4", "longer sequence"),
    "prompt longer than the context": (
        lambda m: generate(m, prompt="very " * 5000),
        CannotScore,
        "context",
        "Shorten the prompt",
    ),
    "no tokens": (lambda m: generate(m, max_new_tokens=0), InvalidArgument, "got 0", "at least 1"),
    "negative number of tokens": (lambda m: generate(m, max_new_tokens=-3), InvalidArgument, "got -3", "at least 1"),
    "more at least than at most": (lambda m: generate(m, min_new_tokens=5), InvalidArgument, "got 5", "0..4"),
    "no particles": (lambda m: generate(m, num_particles=0), InvalidArgument, "got 0", "at least 1"),
    "unknown sampler": (lambda m: generate(m, sampler="greddy"), InvalidArgument, "'greddy'", "known are auto"),
    "unknown ending": (lambda m: generate(m, ending="soon"), InvalidArgument, "'soon'", "'eos' or 'complete'"),
    "unknown canonical": (lambda m: generate(m, canonical="yes"), InvalidArgument, "'yes'", "'alpha' or 'only'"),
    "no budget": (lambda m: generate(m, budget=0), InvalidArgument, "got 0", "at least 1"),
    "no constraint": (lambda m: generate(m, lambda tokens: True), InvalidConstraint, "got function", "@constraint"),
    "a function that returns a number": (
        lambda m: generate(m, locore.constraint(lambda tokens: 3)),
        InvalidConstraint,
        "returned.*int",
        "Boolean|condition|bool",
    ),
    "a function that reads past the end": (
        lambda m: generate(m, locore.constraint(lambda tokens: tokens[9] == 1)),
        InvalidConstraint,
        "position 9 of 4",
        "len|loop|range|longer",
    ),
    "missing folder": (lambda m: locore.load("./nowhere"), ModelNotFound, "nowhere is not a folder", "Give a folder"),
    "no model": (lambda m: locore.generate(None, "I", SUN), InvalidArgument, "got NoneType", "load"),
    "a model of transformers": (
        lambda m: locore.generate(m.causal.module, "I", SUN),
        InvalidArgument,
        "got LlamaForCausalLM",
        "HuggingFaceModel.from_module",
    ),
    "no tokenizer": (lambda m: locore.holds(SUN, " sun"), InvalidArgument, "needs a tokenizer", "or model.tokenizer"),
    "a tokenizer of transformers": (
        lambda m: locore.holds(SUN, " sun", AutoTokenizer.from_pretrained(TINY)),
        InvalidArgument,
        "holds needs a model or a tokenizer of Locore",
        "Tokenizer.from_huggingface",
    ),
    "a name where a tokenizer belongs": (lambda m: locore.compile(SUN, "tiny", 4), InvalidArgument, "got str", "load"),
    "explaining without a tokenizer": (lambda m: locore.explain(SUN, "x", None), InvalidArgument, "explain", "got NoneType"),
    "no prompt": (lambda m: generate(m, prompt=None), InvalidArgument, "got None", "a text, a list of token ids"),
    "several prompts": (lambda m: generate(m, prompt=["I", "You"]), InvalidArgument, "one at a time", "locore batch"),
    "a batch of ids": (lambda m: generate(m, prompt=[[5, 6]]), InvalidArgument, "one at a time", "locore batch"),
    "a prompt of bytes": (lambda m: generate(m, prompt=b"I"), InvalidArgument, "got b'I'", "a text, a list of token ids"),
    "fractions of ids": (lambda m: generate(m, prompt=[5.5]), InvalidArgument, "integers", "float"),
    "a sampler that was not made": (
        lambda m: generate(m, sampler=locore.samplers.Masking),
        InvalidArgument,
        "the class Masking",
        r"Masking\(\)",
    ),
    "limits that are none": (lambda m: generate(m, limits={"states": 9}), InvalidArgument, "got dict", r"Limits\(states="),
    "more particles than fit": (lambda m: generate(m, num_particles=10**12), InvalidArgument, "GB", "fewer"),
    "unknown device": (lambda m: locore.load("tiny", device="cdua"), InvalidArgument, "'cdua'", "device='cpu'"),
    "missing accelerator": (lambda m: locore.load("tiny", device="xpu"), InvalidArgument, "'xpu'", "device='cpu'"),
    "unknown dtype": (lambda m: locore.load("tiny", dtype="float99"), InvalidArgument, "'float99'", "torch.float32"),
    "half a particle": (lambda m: generate(m).resample(2.5), InvalidArgument, "got 2.5", "whole number"),
    "a word for a seed": (lambda m: generate(m).resample(2, seed="x"), InvalidArgument, "got 'x'", "whole number"),
    "no resampled particles": (lambda m: generate(m).resample(0), InvalidArgument, "got 0", "at least 1"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_python(model, case):
    call, error, cause, remedy = BAD_CALLS[case]
    with pytest.raises(error, match=cause) as caught:
        call(model)
    assert isinstance(caught.value, LocoreError)
    caught.match(remedy)


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_model_folder_that_lacks_a_file(tmp_path, missing):
    for file in TINY.iterdir():
        if file.name != missing:
            shutil.copy(file, tmp_path)
    with pytest.raises(ModelNotFound, match=r"save_pretrained") as caught:
        locore.load(tmp_path)
    caught.match(missing.split(".")[-1] if missing.endswith("safetensors") else missing.split(".")[0])


# The shell: the arguments, the word that names the cause.

BAN = {"type": "ban", "phrases": ["awful"]}
BASE = ["generate", "--prompt", "x", "--max-new-tokens", "4"]


def given(constraint: object, *more: str) -> list[str]:
    return [*BASE, *more, "--constraint", constraint if isinstance(constraint, str) else json.dumps(constraint)]


BAD_COMMANDS = {
    "unsatisfiable": (given({"type": "false"}), "no sequence of 4 tokens"),
    "phrase longer than the horizon": (given({"type": "contains", "text": " a sunny day at the sea"}), "no sequence of 4"),
    "empty phrase": (given({"type": "and", "of": [BAN, {"type": "ban", "phrases": [""]}]}), r"empty phrase.*of\[1\]"),
    "token id out of range": (given({"type": "token", "position": 0, "in": [10**6]}), "outside the vocabulary"),
    "prompt longer than the context": (["generate", "--prompt", "very " * 5000, "--constraint", json.dumps(BAN)], "context"),
    "no tokens": (given(BAN, "--max-new-tokens", "0"), "at least 1"),
    "unknown sampler": (given(BAN, "--sampler", "greddy"), "known are auto"),
    "missing folder": (given(BAN, "--model", "./nowhere"), "nowhere is not a folder"),
    "unknown type": (given({"type": "and", "of": [BAN, {"type": "bann"}]}), r"'bann' \(at of\[1\].type\); did you mean 'ban'"),
    "unknown field": (given({**BAN, "case": False}), "no field 'case'"),
    "a field twice": (given('{"type": "ban", "phrases": ["a"], "phrases": ["b"]}'), "'phrases' stands twice"),
    "no JSON": (given('{"type": "ban", "phrases": ["a",]}'), r"at column 3\d"),
    "no JSON in several lines": (given('{"type": "ban",\n"phrases": ["a",]}'), r"at line 2, column 1\d"),
    "nested too deeply": (given("[" * 100_000), "nested too deeply|no JSON"),
    "a Python function": (given("lambda tokens: True"), "no JSON"),
    "missing file": (given("@nowhere.json"), "cannot read nowhere.json: No such file"),
    "a file without its @": (given("latin.json"), "or @latin.json"),
    "not UTF-8": (given("@latin.json"), "no UTF-8"),
    "no particles": (given(BAN, "--num-particles", "0"), "at least 1"),
    "no draws": (given(BAN, "--resample", "0"), "at least 1"),
    "no number": (given(BAN, "--num-particles", "many"), "integer"),
    "missing option": (["generate", "--prompt", "x"], "--constraint"),
    "unknown command": (["generat"], "generat"),
    "no vocabulary": (["compile", "--length", "3", "--constraint", json.dumps(BAN)], "either --model or --vocab-size"),
    "vocabulary without tokens": (
        ["compile", "--length", "3", "--constraint", '{"type": "true"}', "--vocab-size", "0"],
        "at least one",
    ),
    "drawing of too much": (
        ["compile", "--length", "500", "--constraint", '{"type": "true"}', "--vocab-size", "9", "--dot", "out.dot"],
        "too many for a drawing",
    ),
    "results where a file is": (["bench", "fidelity", "--quick", "-o", "latin.json"], "cannot use latin.json/truth: Not a dir"),
    "results below a file": (["reproduce", "sudoku", "--quick", "-o", "latin.json/x"], "cannot use latin.json/x: Not a dir"),
    "drawing into a missing folder": (
        ["compile", "--length", "2", "--constraint", '{"type": "true"}', "--vocab-size", "9", "--dot", "nowhere/out.dot"],
        "cannot write nowhere/out.dot",
    ),
}


@pytest.mark.parametrize("case", BAD_COMMANDS)
def test_shell(capsys, tmp_path, monkeypatch, case):
    arguments, cause = BAD_COMMANDS[case]
    (tmp_path / "latin.json").write_bytes(b'{"type": "ban", "phrases": ["\xe9"]}')
    monkeypatch.chdir(tmp_path)
    code = main(arguments)
    captured = capsys.readouterr()
    assert code == 2
    assert captured.out == "", "results only"
    assert re.search(cause, captured.err), captured.err
    assert "rror: " in captured.err
    assert "Traceback" not in captured.err
    assert [path.name for path in tmp_path.iterdir()] == ["latin.json"], "nothing half-written"


def test_errors_of_the_usual_kinds_can_be_caught_as_such():
    """Whoever knows nothing of Locore's errors catches wrong values as ValueError."""
    assert issubclass(InvalidArgument, ValueError)
    assert issubclass(InvalidConstraint, ValueError)
    with pytest.raises(UnsupportedKeyword, match="no field"):
        locore.from_json({**BAN, "case": False})
