"""Products by oneDNN are those of torch, and nothing else changes."""

from __future__ import annotations

import os

import pytest
import torch
from torch.nn import Linear, Sequential
from transformers import LlamaConfig, LlamaForCausalLM

import locore
from locore.kernel.errors import LocoreError
from locore.models import onednn
from locore.models.huggingface import HuggingFaceModel
from locore.models.onednn import PackedLinear, pack


@pytest.fixture
def wanted(monkeypatch):
    """A processor on which oneDNN is the faster one, whatever this one is."""
    monkeypatch.setattr(onednn, "onednn_is_faster", lambda: True)


@pytest.mark.parametrize(("variable", "packed"), [(None, False), ("0", False), ("1", True)])
def test_loaded_models_are_packed_only_on_demand(wanted, monkeypatch, variable, packed):
    for name in onednn._CACHES:
        monkeypatch.setenv(name, "64")
    monkeypatch.delenv("LOCORE_ONEDNN", raising=False)
    if variable is not None:
        monkeypatch.setenv("LOCORE_ONEDNN", variable)
    module = HuggingFaceModel.load("tiny", device="cpu").causal.module
    assert any(type(layer) is PackedLinear for layer in module.modules()) == packed


def small_llama():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=37,
            hidden_size=24,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=2,
            tie_word_embeddings=True,
        )
        return LlamaForCausalLM(config).eval().requires_grad_(False)


@pytest.mark.parametrize(("rows", "bias"), [(1, True), (3, False), (4, True), (5, False), (64, True)])
def test_a_product_is_that_of_torch(rows, bias):
    layer = Linear(16, 48, bias=bias).requires_grad_(False)
    given = torch.randn(2, rows, 16, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(PackedLinear(layer)(given), layer(given), atol=1e-5)


def test_a_packed_model_says_the_same_and_keeps_its_weights(wanted):
    plain, packed = small_llama(), small_llama()
    pack(packed)
    linears = [module for module in packed.modules() if isinstance(module, Linear)]
    assert linears and all(type(module) is PackedLinear for module in linears)
    tokens = torch.randint(37, (3, 9), generator=torch.Generator().manual_seed(2))
    assert torch.allclose(plain(tokens).logits, packed(tokens).logits, atol=1e-5)
    assert packed.lm_head.weight is packed.model.embed_tokens.weight
    ours, theirs = plain.state_dict(), packed.state_dict()
    assert list(ours) == list(theirs) and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_layers_that_disagree_or_are_not_in_32_bits_stay(wanted, monkeypatch):
    module = Sequential(Linear(4, 4), Linear(4, 4).double())
    pack(module)
    assert [type(layer) for layer in module] == [PackedLinear, Linear]
    monkeypatch.setattr(PackedLinear, "forward", lambda self, rows: rows @ self.weight)
    module = Sequential(Linear(4, 4))
    pack(module)
    assert type(module[0]) is Linear


def test_large_models_and_other_processors_stay(wanted, monkeypatch):
    monkeypatch.setattr(onednn, "_MOST_BYTES", 10)
    module = Sequential(Linear(4, 4))
    pack(module)
    assert type(module[0]) is Linear
    monkeypatch.undo()
    monkeypatch.setattr(onednn, "onednn_is_faster", lambda: False)
    pack(module)
    assert type(module[0]) is Linear


def test_a_module_of_the_users_own_is_left_alone(wanted):
    module = small_llama()
    tokenizer = locore.load("tiny").tokenizer
    with pytest.raises(LocoreError):  # other vocabulary; what matters is that it was read
        HuggingFaceModel.from_module(module, tokenizer)
    assert not any(type(layer) is PackedLinear for layer in module.modules())


def test_few_kernels_are_kept_unless_the_user_says_otherwise(wanted, monkeypatch):
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "9")
    monkeypatch.delenv("LRU_CACHE_CAPACITY", raising=False)
    pack(Sequential(Linear(4, 4)))
    assert (os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"], os.environ["LRU_CACHE_CAPACITY"]) == ("9", "64")
