"""The copy in 16 bits by which draws are made: when there is one, and whose law comes out."""

from __future__ import annotations

import pytest
import torch
import transformers

from locore import choice, contains, generate, load
from locore.kernel.errors import InvalidArgument
from locore.kernel.tokenizer import Tokenizer
from locore.models import HuggingFaceModel, Remembered, precision
from locore.models.meeting import Meeting
from locore.models.precision import SixteenBits, copied, pays
from tests.models import zoo
from tests.models.test_meeting import run_beside

BY_COPY = "a copy in 16 bits"
_FEW = {"vocab_size": zoo.VOCAB, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
_XGLM = {"d_model": 32, "ffn_dim": 64, "num_layers": 2, "attention_heads": 4, "max_position_embeddings": 64}
WITH_BUFFERS = {
    "XGLM": lambda: transformers.XGLMForCausalLM(transformers.XGLMConfig(vocab_size=zoo.VOCAB, **_XGLM)),
    "OpenAIGPT": lambda: transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig(**_FEW)),
    "GPT2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**_FEW)),
}


@pytest.fixture(scope="module")
def tiny():
    return load("tiny", steer_dtype=torch.bfloat16)


def test_it_is_off_unless_asked_for_and_auto_measures(tiny, monkeypatch):
    assert load("tiny").copied is None and load("tiny", steer_dtype="auto").copied is None  # small models gain nothing
    module = tiny.causal.module
    monkeypatch.setattr(precision, "SMALL", 1000)
    for factor, wanted in ((0.2, True), (0.9, False)):
        monkeypatch.setattr(precision, "_seconds", lambda rows, matrix, f=factor: 1.0 if rows.dtype == torch.float32 else f)
        assert pays(module, torch.bfloat16) is wanted
    monkeypatch.setattr(precision, "_seconds", lambda rows, matrix: 1.0 if rows.dtype == torch.float32 else 0.2)
    assert isinstance(copied(tiny.causal, "auto"), SixteenBits)
    monkeypatch.setattr(precision, "free_bytes", lambda device: 1000)
    assert not pays(module, torch.bfloat16)


def test_products_are_measured_for_what_they_are():
    matrix = torch.randn(512, 512)
    small, large = (precision._seconds(torch.ones(rows, 512), matrix) for rows in (1, 2048))
    assert 0 < small < large


def test_types_have_their_names(tiny):
    for name in ("bfloat16", "float16"):
        assert copied(tiny.causal, name).module.dtype == getattr(torch, name)


@pytest.mark.parametrize("exact", [False, True])
def test_requests_that_meet_are_drawn_by_the_copy_and_weighed_by_the_model(tiny, exact):
    """Passes of both go through the same meeting, and nobody waits for ever."""
    meeting, found = Meeting(tiny, exact=exact), {}
    prompts = ["The weather", "Once upon a time", "My dog"]

    def ask(number):
        options = {"max_new_tokens": 8, "budget": 200, "seed": number, "sampler": "smc" if number == 2 else "swor"}
        with meeting.attended():
            found[number] = generate(meeting.model, prompts[number], contains(" a"), **options)

    run_beside(range(3), ask)
    for number, prompt in enumerate(prompts):
        scores, own = tiny.prompted(prompt).token_scores(found[number].tokens), found[number].token_scores
        torch.testing.assert_close(own[own != 0], scores[own != 0], rtol=0, atol=1e-4)
        assert any(BY_COPY in note for note in found[number].record.notes) == (number < 2)


@pytest.mark.parametrize("dtype", ["int8", torch.float32, torch.int8, 16, True])
def test_other_types_are_refused(dtype, tiny):
    with pytest.raises(InvalidArgument, match="steer_dtype"):
        copied(tiny.causal, dtype)


def test_models_that_have_16_bits_need_none():
    with pytest.raises(InvalidArgument, match="leave it out"):
        load("tiny", dtype=torch.bfloat16, steer_dtype=torch.bfloat16)
    assert load("tiny", dtype=torch.bfloat16, steer_dtype="auto").copied is None


def test_the_copy_is_the_same_model_in_fewer_bits(tiny):
    near = tiny.prompted("Once upon a time").near
    tokens = tiny.prompted("Once upon a time").sample(8, 12, seed=1).tokens
    assert near.causal.module.dtype == torch.bfloat16 and tiny.causal.module.dtype == torch.float32
    assert near.causal.shares and near.fingerprint() == tiny.fingerprint()
    gap = near.score(tokens) - tiny.prompted("Once upon a time").score(tokens)
    assert 0 < float(gap.abs().max()) < 1.0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("architecture", WITH_BUFFERS)
def test_tables_that_are_no_parameters_are_copied_where_they_have_to_be(architecture, dtype):
    """Positions of XGLM, and the mask of the first GPT, are buffers of numbers."""
    torch.manual_seed(1)
    module = WITH_BUFFERS[architecture]()
    model = HuggingFaceModel.from_module(module, Tokenizer.integers(zoo.VOCAB, ()), steer_dtype=dtype).prompted([1, 2])
    tokens = torch.tensor([[3, 4, 5], [5, 4, 3]])
    torch.testing.assert_close(model.near.log_probs(tokens).exp(), model.log_probs(tokens).exp(), rtol=0, atol=0.03)


def test_a_module_that_cannot_compute_in_16_bits_says_so(monkeypatch):
    def fails(*_):
        raise RuntimeError("mixed dtype")

    causal = zoo.huggingface(eos_ids=()).causal
    monkeypatch.setattr(precision, "_converted", fails)
    with pytest.raises(InvalidArgument, match="mixed dtype"):
        copied(causal, torch.bfloat16)
    monkeypatch.setattr(precision, "pays", lambda *_: True)
    assert copied(causal, "auto") is None


@pytest.mark.parametrize("sampler", ["auto", "swor"])
@pytest.mark.parametrize("remembers", [False, True])
def test_texts_have_the_probability_that_the_model_gives_them(tiny, sampler, remembers):
    model = Remembered(tiny) if remembers else tiny
    found = generate(model, "The weather", contains(" sun"), max_new_tokens=8, budget=200, sampler=sampler, seed=2)
    scores = tiny.prompted("The weather").token_scores(found.tokens)
    ended = found.token_scores == 0.0  # free ends
    torch.testing.assert_close(found.token_scores[~ended], scores[~ended], rtol=0, atol=1e-4)
    assert any(BY_COPY in note for note in found.record.notes)


def test_exact_answers_stay_the_models(tiny):
    for sampler in ("exact", "rejection", "auto", "smc"):
        found = generate(tiny, "The", choice([" dog", " cat", " the", " a"]), max_new_tokens=2, sampler=sampler, seed=2)
        assert not any(BY_COPY in note for note in found.record.notes)


def test_another_adapter_in_the_module_is_in_the_copy_too():
    """Parts that are put into a module, as peft does it."""
    model = zoo.huggingface(eos_ids=())
    model.copied = copied(model.causal, torch.bfloat16)
    before = model.prompted([1, 2]).near.log_probs(torch.tensor([[3, 4]]))
    module = model.causal.module
    name, part = next((n, p) for n, p in module.named_modules() if isinstance(p, torch.nn.Linear) and "mlp" in n)
    module.get_submodule(name.rpartition(".")[0]).__setattr__(name.rpartition(".")[2], torch.nn.Sequential(part, Negated()))
    fresh = model.prompted([1, 2])
    after, expected = fresh.near.log_probs(torch.tensor([[3, 4]])), fresh.log_probs(torch.tensor([[3, 4]]))
    assert float((after - before).abs().max()) > 0.01
    torch.testing.assert_close(after.exp(), expected.exp(), rtol=0, atol=0.02)


class Negated(torch.nn.Module):
    def forward(self, x):
        return -3 * x
