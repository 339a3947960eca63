"""`locore reproduce detox`: whole at toy size, resumed, its data, its rows' laws by enumeration, and wrong arguments."""

from __future__ import annotations

import gzip
import itertools
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from locore_lab.detox import command, exact, plan, prompts
from locore_lab.detox.command import run
from locore_lab.detox.judge import judgements, open_judge
from locore_lab.detox.methods import (
    alone,
    by_adaptive_rejection,
    constrained,
    first_token_banning,
    greedy_masking,
    masked,
    word_banning,
)
from locore_lab.detox.plan import ADAPTIVE, EXACT, DetoxPlan, published_row, rows_of, split
from locore_lab.detox.published import Reading, published
from locore_lab.detox.remembered import Memory, Remembered
from locore_lab.detox.report import columns
from locore_lab.detox.scorers.opening import open_scorer
from locore_lab.detox.side_by_side import bill, draw, nucleus
from locore_lab.detox.task import Task
from locore_lab.places import SHARED
from scipy.stats import chisquare
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import locore
from locore.cli import main
from locore.errors import InvalidArgument
from locore.models import Counted, MarkovModel, TopP

FALSE_ALARM = 1e-4  # of each statistical test here
DATA = SHARED / "data" / "detox"
TOY = DetoxPlan(
    length=5,
    generations=2,
    g=(1, 2),
    costly=2,
    tuning=2,
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
    with pytest.MonkeyPatch.context() as patch:
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
    assert (finished / "toxicity.png").stat().st_size > 1000


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
    monkeypatch.setattr(command, "DetoxPlan", lambda: TOY)
    rows = ["model alone", "word banning", "exact"]
    run(tmp_path, data=folder / "data", model=str(folder / "model"), prompts=3, paired=True, rows=rows)
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
    material = prompts.built_in()
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
    material = prompts.load_material(folder / "data")
    assert (len(material.prompts), material.dropped, material.phrases) == (9, 1, PHRASES)
    assert sum(prompt.is_toxic for prompt in material.prompts) == 4  # .5 counts


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"prompt": {"text": "a", "toxicity": 2}}', r"line 1: a toxicity of 2 is no number in \[0, 1\]"),
        ('{"prompt": {"toxicity": 0.2}}', "line 1: there is no"),
        ('\n{"prompt": ', "is not JSONL"),
        ("[1]", "line 1: not an object"),
        ('{"prompt": {"text": "a", "toxicity": null}}', "no prompt with a toxicity score"),
    ],
)
def test_wrong_prompts_are_refused(tmp_path, content, message):
    (tmp_path / "phrases.txt").write_text("bad\n")
    (tmp_path / "prompts.jsonl").write_text(content)
    with pytest.raises(InvalidArgument, match=message):
        prompts.load_material(tmp_path)


def test_a_file_with_another_content_than_its_name_promises_is_refused(tmp_path):
    (tmp_path / "phrases.txt").write_text("bad\n")
    (tmp_path / "rtp_dev.jsonl.gz").write_bytes(gzip.compress(b'{"prompt": {"text": "a", "toxicity": 0.1}}\n'))
    with pytest.raises(InvalidArgument, match="sha256"):
        prompts.load_material(tmp_path)


def test_the_real_files():
    if not DATA.is_dir():
        pytest.skip("the data is not here")
    material = prompts.load_material(DATA)
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


# The laws


def chain(seed: int = 0) -> MarkovModel:
    """Five tokens, of which "ab" may be spelt by two, and an end."""
    generator = np.random.default_rng(seed)
    tokenizer = locore.Tokenizer.from_tokens(["a", "b", "ab", " ", None], eos_ids=[4])
    return MarkovModel(generator.dirichlet(np.ones(5)), generator.dirichlet(np.ones(5), size=5), tokenizer=tokenizer)


TASK = Task(("ab",), length=3, particles=4, pairs=2)


def law_without(phrase: str, law: str = "plain") -> dict[str, float]:
    """p(text | phrase does not occur) after the prompt " ", from all sequences, without any code of the library's samplers."""
    model = chain().prompted(" ")
    model = model if law == "plain" else TopP(model, 0.9)
    rows = [y for y in itertools.product(range(5), repeat=3) if 4 not in y or set(y[y.index(4) :]) == {4}]
    scores = model.score(torch.tensor(rows)).exp().tolist()
    law: Counter[str] = Counter()
    for y, p in zip(rows, scores, strict=True):
        text = model.tokenizer.decode(y)
        if phrase not in text:
            law[text] += p
    total = sum(law.values())
    return {text: p / total for text, p in law.items()}


def assert_law(texts: list[str], law: dict[str, float]) -> None:
    counted = Counter(texts)
    assert set(counted) <= set(law)
    common = [text for text, p in law.items() if p * len(texts) >= 5]
    seen = [counted[text] for text in common]
    wanted = [law[text] * len(texts) for text in common]
    rest = len(texts) - sum(wanted)
    assert chisquare([*seen, len(texts) - sum(seen)], [*wanted, rest]).pvalue > FALSE_ALARM


def texts_of(method, num: int, task: Task = TASK) -> list[str]:
    model = chain()
    answers = method(model, " ", task, list(range(num)))
    assert all(answer.tokens is not None for answer in answers)
    return [model.tokenizer.decode(answer.tokens) for answer in answers]


@pytest.mark.parametrize("level", ["text", "tokens"])
def test_rejection_is_the_exact_law(level):
    """On tokens too: what spells "ab" as "a", "b" is not canonical, and its canonical tokens are banned."""
    assert_law(texts_of(exact.exact(level), 2000), law_without("ab"))


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("law", ["plain", "nucleus"])
def test_rejection_and_the_model_alone_follow_either_law_however_they_draw(law, paired):
    task = replace(TASK, paired=paired)
    assert_law(texts_of(exact.exact("text", law), 1500, task), law_without("ab", law))
    assert_law(texts_of(masked(alone, law), 1500, task), law_without("no such phrase", law))


def test_a_race_with_equal_seeds_changes_only_what_is_banned():
    """A row under a ban draws what the model alone draws wherever that keeps the ban; drawn by inversion it would not."""
    task, model = replace(TASK, paired=True), chain()
    plain, banned = (masked(each)(model, " ", task, list(range(200))) for each in (alone, word_banning))
    kept = [one.tokens == other.tokens for one, other in zip(plain, banned, strict=True)]
    assert kept == [2 not in one.tokens for one in plain]


def test_the_authors_word_banning_bans_first_tokens_whatever_follows():
    answers = masked(first_token_banning)(chain(), " ", replace(TASK, phrases=("b a",)), list(range(300)))
    first = chain().tokenizer.encode(" b a")[0]
    assert first == 3 and not any(first in answer.tokens for answer in answers)  # the space: nothing with it is left


@pytest.mark.parametrize("vocab_size", [7, 2000])
def test_the_quick_nucleus_is_that_of_the_library(vocab_size):
    generator = np.random.default_rng(1)
    flat, sharp = np.ones(vocab_size), np.full(vocab_size, 0.01)  # the likeliest 512 are enough for the second alone
    rows = torch.tensor(np.log(np.array([generator.dirichlet(each) for each in (flat, sharp, flat)]) + 1e-12)).float()
    assert torch.allclose(nucleus(rows), TopP(chain(), 0.9)._reshape(rows.log_softmax(-1)), atol=1e-5)


@pytest.mark.slow
def test_adaptive_rejection_gives_one_exact_draw():
    assert_law(texts_of(by_adaptive_rejection(), 200), law_without("ab"))


def test_one_of_the_particles_of_a_sampler_follows_the_law():
    assert_law(texts_of(constrained("exact"), 150), law_without("ab"))


def test_masking_has_no_leak_and_word_banning_has():
    assert not any("ab" in text for text in texts_of(masked(greedy_masking), 300))
    banned = texts_of(masked(word_banning), 300)
    model = chain()
    answers = masked(word_banning)(model, " ", TASK, list(range(300)))
    assert any("ab" in text for text in banned)  # as "a", "b"
    assert not any(2 in answer.tokens for answer in answers)


def test_each_run_has_its_own_randomness_and_bill():
    model = chain().prompted(" ")
    generators = [torch.Generator().manual_seed(seed) for seed in range(6)]
    together = draw(model, 3, generators)
    for seed in range(6):
        assert draw(model, 3, [torch.Generator().manual_seed(seed)]).tolist() == together[seed : seed + 1].tolist()
    counted = Counted(model)
    counted.score(together)
    assert sum(bill(together, model.tokenizer)) == counted.lm_tokens


def test_rejection_pays_for_every_draw():
    answers = exact.exact("text")(chain(), " ", TASK, list(range(500)))
    accepted = 500 / sum(answer.notes["draws"] for answer in answers)
    model, low = chain().prompted(" "), 0.0
    truth = math.exp(locore.testing.enumerate_posterior(model, locore.compile(TASK.constraint("text"), model, 3)).log_evidence)
    low, high = truth - 4 * math.sqrt(truth / 500), truth + 4 * math.sqrt(truth / 500)
    assert low < accepted < high  # four standard errors at least: a false alarm in 15,000


READINGS = (
    Reading(3, 0.7),
    Reading(2, 0.7, own=True),
    Reading(2, 0.7, own=True, rest=-2.0),
    Reading(1, 1.0, own=True, rest=-300.0),
    Reading(2, 0.7, own=True, rest=-2.0, law="nucleus"),
)


@pytest.mark.parametrize("reading", READINGS, ids=lambda reading: reading.name)
def test_the_published_sampler_by_enumeration(reading):
    """Two pairs of two tokens over four; every pair of pairs is enumerated from the formulas of the paper."""
    rng = np.random.default_rng(3)
    initial, transition = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4), size=4)
    model = MarkovModel(initial, transition)
    alpha = ~locore.constraints.contains_tokens([[0, 0], [1, 2]])
    circuit = locore.compile(alpha, model, 2)
    k, tau = reading.k, reading.tau
    sequences = list(itertools.product(range(4), repeat=2))

    def p(y):
        return initial[y[0]] * transition[y[0], y[1]]

    def nucleus_of(row):
        order = np.argsort(-row)
        kept = order[: int(np.searchsorted(np.cumsum(row[order]), 0.9)) + 1]
        return {int(v): row[v] / row[kept].sum() for v in kept}

    def score(y):
        if reading.law == "plain":
            return p(y)
        return nucleus_of(initial).get(y[0], 0.0) * nucleus_of(transition[y[0]]).get(y[1], 0.0)

    def completed(kept):
        total = sum(kept.values())
        given = {v: max(kept.get(v, 0.0) / total, math.exp(reading.rest)) for v in range(4)}
        return {v: x / sum(given.values()) for v, x in given.items() if x}

    def local(y):
        candidates = [
            [*np.argsort(-row)[:k], *([own] if reading.own else [])] for row, own in ((initial, y[0]), (transition[y[0]], y[1]))
        ]
        first = {int(v): p((v, y[1])) ** (1 / tau) for v in candidates[0]}
        second = {int(v): p((y[0], v)) ** (1 / tau) for v in candidates[1]}
        return [completed(each) for each in (first, second)]

    def q(around, y):
        return around[0].get(y[0], 0.0) * around[1].get(y[1], 0.0)

    pairs = []  # (probability of the pair, y, weight)
    for draft in sequences:
        start = nucleus_of(initial).get(draft[0], 0.0) * nucleus_of(transition[draft[0]]).get(draft[1], 0.0)
        if start:
            good = {y: q(local(draft), y) for y in sequences if y not in ((0, 0), (1, 2))}
            for y, mass in good.items():
                if mass:
                    proposal = mass / sum(good.values())
                    pairs.append((start * proposal, y, score(y) * q(local(y), draft) / (score(draft) * proposal)))
    law: Counter[tuple[int, int]] = Counter()
    zeros = 0.0
    for (a, y, w), (b, z, v) in itertools.product(pairs, pairs):
        share = w / (w + v) if w + v else 0.5
        zeros += a * b * (w + v == 0)
        law[y] += a * b * share
        law[z] += a * b * (1 - share)
    assert sum(law.values()) == pytest.approx(1)
    generator = torch.Generator().manual_seed(0)
    always = lambda y: torch.ones(len(y), dtype=torch.bool)  # noqa: E731
    found = [published(model, circuit, 2, reading, always, generator) for _ in range(400)]
    assert_law([str(tuple(one.tokens)) for one in found], {str(y): mass for y, mass in law.items()})
    none = sum(one.positive == 0 for one in found)
    assert abs(none - 400 * zeros) <= 4 * math.sqrt(400 * zeros * (1 - zeros)) + 1


def test_rows_that_share_their_drafts_answer_and_pay_as_alone(folder):
    model = locore.load(str(folder / "model"))
    task = Task(PHRASES, 5, particles=2, pairs=3)
    memory, settings = Memory(), [Reading(2, 1.0), Reading(4, 1.0), Reading(3, 0.5), Reading(2, 1.0, own=True, rest=-300.0)]
    together = [published_row(each, memory).method(model, "one", task, [5, 6]) for each in settings]
    alone = [published_row(each, Memory()).method(model, "one", task, [5, 6]) for each in settings]
    for ours, own in zip(together, alone, strict=True):
        for one, other in zip(ours, own, strict=True):
            assert (one.tokens, one.lm_tokens, one.notes) == (other.tokens, other.lm_tokens, other.notes)
            assert one.seconds > 0


def test_what_is_remembered_is_what_the_model_says_and_is_read_once(folder):
    model = locore.load(str(folder / "model")).prompted("one")
    tokens = model.sample(1, 5, seed=1).tokens[0]
    candidates = model.log_probs(tokens[None])[0].topk(4).indices
    counted, memory = Counted(model), Memory()
    for some in (slice(0, 2), slice(1, 4), slice(0, 4)):
        found = Remembered(counted, memory).neighbours(tokens, candidates[:, some])
        assert torch.allclose(found, model.neighbours(tokens, candidates[:, some]), atol=1e-4)
    once, base = Counted(model), Counted(model)
    once.neighbours(tokens, candidates)
    base.neighbours(tokens, tokens[:, None])
    assert counted.lm_tokens == once.lm_tokens + 2 * base.lm_tokens  # three calls read the sequence itself
    remembered = Remembered(counted, memory.behind("another prompt"))
    remembered.neighbours(tokens, candidates)
    assert counted.lm_tokens == 2 * once.lm_tokens + 2 * base.lm_tokens
    assert remembered.saved == 0


def test_names_of_rows_are_told_apart():
    names = [row.name for row in rows_of(DetoxPlan(), 0.5)]
    assert len(set(names)) == len(names)
    assert {EXACT["text"], EXACT["tokens"], ADAPTIVE} <= set(names)
    published_rows = [name for name in names if "as published" in name]
    # Every k at the chosen τ, every τ at one k; then the own token, and two k and every τ under two laws.
    assert len(published_rows) == (4 + 6 - 1) + 1 + 2 * (1 + 6)
