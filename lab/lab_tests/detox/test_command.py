"""`locore reproduce detox`: whole at toy size, resumed, its data, and wrong arguments."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from locore_lab.detox import command, plan
from locore_lab.detox.command import run
from locore_lab.detox.plan import ADAPTIVE, EXACT, DetoxPlan, rows_of, split
from locore_lab.detox.report import columns
from locore_lab.detox.scorers import open_scorer
from locore_lab.detox.study import judgements, open_judge
from locore_lab.shared import SHARED
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import locore
from locore.cli import main
from locore.kernel.errors import InvalidArgument
from locore.models import MarkovModel
from tests.effort import THOROUGH

from ..small_tables import small_tables

DATA = SHARED / "data" / "detox"
TOY = DetoxPlan(
    length=5,
    generations=2,
    g=(1, 2),
    costly=2 if THOROUGH else 1,
    tuning=2 if THOROUGH else 1,
    pairs=2,
    particles=2,
    ks=(2, 3),
    own_ks=(2,),
    k=3,
    taus=(0.5, 1.0),
    resamples=20,
)
PHRASES = ("e", "th", "a b")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model with random weights over bytes and some pairs of them, and a data folder."""
    place = tmp_path_factory.mktemp("detox")
    pieces = ["<end>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "th", "he"]
    fast = FastTokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[("t", "h"), ("h", "e")]))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens(["<end>"])
    config = GPT2Config(vocab_size=len(pieces), n_positions=64, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = GPT2LMHeadModel(config)
        favoured = fast.encode("ethab the").ids
        network.transformer.wte.weight.data[favoured] += 8 * network.transformer.ln_f.weight.data.abs()
        network.transformer.ln_f.bias.data.fill_(0.02)  # so that these tokens are likely everywhere, and others possible
    network.save_pretrained(place / "model")
    PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="<end>", bos_token="<end>").save_pretrained(place / "model")
    (place / "data").mkdir()
    (place / "data" / "phrases.txt").write_text("\n".join([*PHRASES, ""]))
    lines = [
        {"prompt": {"text": f"prompt {i}", "toxicity": None if i == 9 else i / 10}, "continuation": {"text": " and on"}}
        for i in range(10)
    ]
    (place / "data" / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return place


@pytest.fixture(scope="module")
def finished(folder):
    """A whole run at toy size through the command line."""
    with pytest.MonkeyPatch.context() as patch, small_tables():
        patch.setattr(command, "DetoxPlan", lambda: TOY)
        arguments = ["--data", str(folder / "data"), "--model", str(folder / "model"), "--prompts", "3"]
        assert main(["reproduce", "detox", *arguments, "-o", str(folder / "out")]) == 0
    return folder / "out"


def lines_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


# The command


def test_every_row_and_column_is_there(finished):
    tables = json.loads((finished / "results.json").read_text())["tables"]
    assert len(tables) == len(TOY.g) + 1
    *cheap, sample = tables.values()
    tau = json.loads((finished / "results.json").read_text())["tuning"]
    chosen = min(tau, key=lambda line: line["mean toxicity"])["τ"]
    assert [line["row"] for line in sample] == [row.name for row in rows_of(TOY, chosen)]
    for table in cheap:
        assert [line["row"] for line in table] == [row.name for row in rows_of(TOY, None) if row.everywhere]
    assert set(columns(1)) <= set().union(*sample, *cheap[0])
    text = (finished / "table.md").read_text()
    assert all(f"| {row.name} |" in text for row in rows_of(TOY, chosen))


def test_constrained_rows_never_hold_a_banned_phrase(finished):
    """The model alone does, so the constraint is needed; so does word banning, which knows one tokenisation."""
    levels = {row.name: row.level for row in rows_of(TOY, 1.0)}
    found = Counter()
    for line in lines_of(finished / "generations.jsonl"):
        name = line["key"][0]
        bad = any(phrase in line["text"] for phrase in PHRASES)
        found[name] += bad
        if levels.get(name) == "text":
            assert not bad, line
    assert found["model alone"] > 0


def test_a_run_that_was_killed_goes_on(finished, folder, monkeypatch):
    monkeypatch.setattr(command, "DetoxPlan", lambda: TOY)
    paths = [path for path in finished.glob("*.jsonl")]
    whole = {path: lines_of(path) for path in paths}
    for path in paths:
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * 0.6)])
    run(finished, data=folder / "data", model=str(folder / "model"), prompts=3)
    for path in paths:
        after = lines_of(path)
        assert len({tuple(line["key"]) for line in after}) == len(after)
        kept = ("key", "tokens", "text", "lm_tokens", "scores")
        told = [{name: line.get(name) for name in kept} for line in after]
        assert told == [{name: line.get(name) for name in kept} for line in whole[path]]
    with pytest.raises(InvalidArgument, match="other settings"):
        run(finished, data=folder / "data", model=str(folder / "model"), prompts=3, seed=1)


def test_a_paired_run_reads_less_and_its_rows_differ_by_their_laws_alone(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "DetoxPlan", lambda: replace(TOY, generations=4))
    rows = ["model alone", "word banning", "exact"]
    run(tmp_path, data=folder / "data", model=str(folder / "model"), prompts=4 if THOROUGH else 3, paired=True, rows=rows)
    found = {tuple(line["key"]): line["tokens"] for line in lines_of(tmp_path / "generations.jsonl")}
    clean = [key[1:] for key, tokens in found.items() if key[0] == "model alone" and found[EXACT["text"], *key[1:]] == tokens]
    assert clean  # a draw of the model that holds is the exact row's first
    with pytest.raises(InvalidArgument, match="other settings"):
        run(tmp_path, data=folder / "data", model=str(folder / "model"), prompts=3, rows=rows)


def test_more_prompts_join_what_is_there(finished, folder, monkeypatch):
    monkeypatch.setattr(command, "DetoxPlan", lambda: TOY)
    before = (finished / "generations.jsonl").read_text()
    run(finished, data=folder / "data", model=str(folder / "model"), prompts=4, rows=["model alone"])
    after = (finished / "generations.jsonl").read_text()
    assert after.startswith(before)
    assert len(after.splitlines()) == len(before.splitlines()) + 2 * TOY.generations  # under either law


def test_quick_needs_no_data():
    material = plan.built_in()
    asked = split(material, plan.QUICK, None)
    assert {prompt.is_toxic for prompt in asked.costly} == {True, False}
    assert not set(asked.tuning) & set(asked.final) and set(asked.costly) <= set(asked.final)
    assert len(material.prompts) == len(asked.tuning) + len(asked.final)


def test_wrong_arguments(tmp_path, folder):
    model = str(folder / "model")
    with pytest.raises(InvalidArgument, match="--data, or --quick"):
        run(tmp_path / "a")
    with pytest.raises(InvalidArgument, match="no row 'beam'"):
        run(tmp_path / "a", quick=True, rows=["beam"])
    with pytest.raises(InvalidArgument, match="at least 1"):
        run(tmp_path / "a", quick=True, generations=0)
    with pytest.raises(InvalidArgument, match="the model that writes"):
        run(tmp_path / "a", quick=True, model=model, judge=model)
    with pytest.raises(InvalidArgument, match="no scorer 'magic'"):
        run(tmp_path / "a", quick=True, model=model, scorer="magic")
    assert main(["reproduce", "detox", "-o", str(tmp_path / "a"), "--data", str(tmp_path / "nothing")]) == 2
    assert open_scorer("local", tmp_path).name == "local"


# Data


def test_prompts_without_a_score_are_dropped_and_counted(folder):
    material = plan.load_material(folder / "data")
    assert (len(material.prompts), material.dropped, material.phrases) == (9, 1, PHRASES)
    assert sum(prompt.is_toxic for prompt in material.prompts) == 4  # .5 counts


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"prompt": {"text": "a", "toxicity": 2}}', "line 1: a toxicity of 2"),
        ('{"prompt": {"toxicity": 0.2}}', "line 1"),
        ('{"prompt": {"text": "a", "toxicity": 0.2}}\n{"prompt": ', "line 2"),
        ("[1]", "line 1"),
        ('{"prompt": {"text": "a", "toxicity": null}}', "no prompt with a toxicity score"),
    ],
)
def test_wrong_prompts_are_refused(tmp_path, content, message):
    (tmp_path / "phrases.txt").write_text("bad\n")
    (tmp_path / "prompts.jsonl").write_text(content)
    with pytest.raises(InvalidArgument, match=message):
        plan.load_material(tmp_path)


def test_a_file_with_another_content_than_its_name_promises_is_refused(tmp_path):
    (tmp_path / "phrases.txt").write_text("bad\n")
    (tmp_path / "rtp_dev.jsonl.gz").write_bytes(gzip.compress(b'{"prompt": {"text": "a", "toxicity": 0.1}}\n'))
    with pytest.raises(InvalidArgument, match="sha256"):
        plan.load_material(tmp_path)


def test_the_real_files():
    if not DATA.is_dir():
        pytest.skip("the data is not here")
    material = plan.load_material(DATA)
    assert (len(material.phrases), material.dropped) == (403, 14)
    assert abs(len(material.prompts) - 3986) <= 20  # each text once
    asked = split(material, DetoxPlan(), None)
    assert (len(asked.tuning), len(asked.costly)) == (1000, 300)


# The judge


def test_perplexity_is_the_chain_rule():
    table = np.random.default_rng(0).dirichlet(np.ones(3), size=3)
    judge = MarkovModel(table[0], table, tokenizer=locore.Tokenizer.from_tokens(["a", "b", "c"]))
    nats = -math.log(table[0, 1]) - math.log(table[1, 1])
    (found, nothing, empty) = judgements(judge, "a", ["bb", None, ""])
    assert found is not None and found[1] == 2 and found[0] == pytest.approx(nats)
    assert nothing is None and empty is None
    assert judgements(judge, "a", ["bb", "bbbbab"])[0] == pytest.approx(found)  # what else is judged changes nothing


def test_the_default_judge_reads_english(folder):
    judge = open_judge(None, locore.load("tiny"))
    assert judge.fingerprint() != locore.load("tiny").fingerprint()
    english, shuffled, noise = judgements(judge, "The dog", [" ran to the house.", " house the to. ran", " qx zj vvq wkx pfz"])
    assert english[0] < shuffled[0] < noise[0]


# Rows


def test_names_of_rows_are_told_apart():
    names = [row.name for row in rows_of(DetoxPlan(), 0.5)]
    assert len(set(names)) == len(names)
    assert {EXACT["text"], EXACT["tokens"], ADAPTIVE} <= set(names)
    published_rows = [name for name in names if "as published" in name]
    # Every k at the chosen τ, every τ at one k; then the own token, and two k, every τ and both kinds under two laws.
    assert len(published_rows) == (4 + 6 - 1) + 1 + 2 * (1 + 6 + 1)
