"""Rows that share one copy of the prompt get what they get in rows of their own."""

import threading

import pytest
import torch
import transformers

from locore.kernel.models.language_model import LanguageModel
from locore.kernel.tokenizer import Tokenizer
from locore.models import HuggingFaceModel, attention
from locore.models.attention import Step, Tails
from locore.models.causal import CausalLM
from tests.effort import some

from . import zoo

SHARING = [name for name, (*_, shares) in zoo.ARCHITECTURES.items() if shares]
_PLAIN = {"vocab_size": zoo.VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = _PLAIN | {"num_key_value_heads": 2, "max_position_embeddings": 32, "initializer_range": 0.4}


def model_of(config, dtype: torch.dtype = torch.float32, **options) -> HuggingFaceModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    return HuggingFaceModel.from_module(module, Tokenizer.integers(zoo.VOCAB, ()), **options).prompted((1, 7, 3))


def walk(model: LanguageModel, steps: int = 6, seed: int = 0):
    """Distributions along a walk on which rows repeat, stop and change places, and the tokens that each row has read."""
    generator = torch.Generator().manual_seed(seed)
    cursor, histories = model.begin(4), torch.empty(4, 0, dtype=torch.int64)
    for step in range(steps):
        count = (4, 7, 2, 5)[step % 4]
        parents = torch.randint(0, len(histories), (count,), generator=generator)
        tokens = torch.randint(0, model.vocab_size, (count,), generator=generator)
        cursor = cursor.advance(tokens, parents)
        histories = torch.cat([histories[parents], tokens[:, None]], 1)
        yield cursor.log_probs, histories


def uncached(model: HuggingFaceModel, histories: torch.Tensor) -> torch.Tensor:
    """Log-probabilities after each token, by the module itself."""
    prompt = torch.tensor(model.prompt_ids).expand(len(histories), -1)
    with torch.no_grad():
        logits = model.causal.module(torch.cat([prompt, histories], 1).to(model.device)).logits
    return logits[:, len(model.prompt_ids) :].double().log_softmax(-1).cpu()


def test_tails_are_what_their_rows_have_read():
    """Also where many steps have become blocks, whichever rows went on; equal histories are there once."""
    generator = torch.Generator().manual_seed(0)
    tails, histories = Tails.empty(4, torch.device("cpu")), torch.empty(0, 4, 2, 3)
    for step in range(5 * attention.BLOCK + 3):
        count = (4, 7, 2, 5)[step % 4]
        parents = torch.randint(0, histories.shape[1], (count,), generator=generator)
        new = torch.randn(count, 2, 3, generator=generator)
        tails = tails.rows(parents).then(Step((-new, new), None))
        histories = torch.cat([histories[:, parents], new[None]])
        assert tails.length == step + 1
        for found in (tails, tails.compacted(), tails.part(slice(0, 4))):
            out = torch.empty(found.length, found.places.shape[1], 2, 3)
            found.fill(1, out)
            assert torch.equal(out, histories[:, : out.shape[1]])
    sizes = [block[0].shape[:2] for block in tails.blocks]
    assert [time for time, _ in sizes] == [attention.BLOCK] * 5 + [1] * 3
    assert all(paths <= 7 for _, paths in sizes)


@pytest.mark.parametrize("kept", some([40, attention._SCORES_CPU, 1], 3))
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("architecture", SHARING)
def test_a_walk_is_the_module_itself(architecture, implementation, kept, monkeypatch):
    """In blocks of any number of scores, of one query too."""
    monkeypatch.setattr(attention, "_SCORES_CPU", kept)
    monkeypatch.setattr(attention, "_FEWEST_QUERIES", 1)
    model = zoo.huggingface(architecture, eos_ids=(), attention=implementation)
    assert model.causal.shares
    for log_probs, histories in walk(model, steps=2 * attention.BLOCK + 2):
        torch.testing.assert_close(log_probs.double().cpu(), uncached(model, histories)[:, -1], rtol=0, atol=1e-4)
    rows = model.log_probs(torch.cat([histories, histories[:, :1]], 1))[:, 1:]
    torch.testing.assert_close(rows.double().cpu(), uncached(model, histories), rtol=0, atol=1e-4)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.bfloat16, 0.05)])
def test_of_every_precision(dtype, tolerance):
    model = model_of(transformers.LlamaConfig(**GROUPED), dtype)
    assert model.causal.shares
    for log_probs, histories in walk(model):
        expected = uncached(model, histories)[:, -1].exp()
        assert float((log_probs.double().cpu().exp() - expected).abs().sum(-1).max()) / 2 <= tolerance


def test_little_memory_means_small_steps_and_the_same_numbers():
    roomy = zoo.huggingface(eos_ids=())
    tight = zoo.huggingface(eos_ids=(), memory_bytes=1)
    for (one, _), (other, _) in zip(walk(roomy), walk(tight), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4)


_KINDS = {
    "sinks": lambda: transformers.GptOssConfig(
        **GROUPED, head_dim=8, num_local_experts=2, num_experts_per_tok=1, layer_types=["full_attention"] * 2
    ),
    "a cap on scores": lambda: transformers.Gemma2Config(
        **GROUPED, head_dim=8, attn_logit_softcapping=5.0, layer_types=["full_attention"] * 2
    ),
    "a window longer than the trial": lambda: transformers.MistralConfig(**GROUPED, sliding_window=12),
    "chunks longer than the trial": lambda: transformers.Llama4TextConfig(
        **GROUPED, head_dim=8, attention_chunk_size=12, num_local_experts=2, intermediate_size_mlp=32, pad_token_id=None
    ),
    "positions as biases": lambda: transformers.BloomConfig(vocab_size=zoo.VOCAB, hidden_size=32, n_layer=2, n_head=4),
}


@pytest.mark.parametrize("kind", _KINDS)
def test_other_attention_keeps_its_road(kind):
    model = model_of(_KINDS[kind]())
    assert not model.causal.shares
    for log_probs, histories in walk(model, steps=12):
        torch.testing.assert_close(log_probs.double().cpu(), uncached(model, histories)[:, -1], rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["sinks", "a cap on scores"])
def test_what_is_asked_of_attention_is_seen(kind, monkeypatch):
    """Also if the kinds of layers do not give it away, nor the numbers."""
    monkeypatch.setattr(CausalLM, "keeps_all", lambda _: True)
    monkeypatch.setattr(CausalLM, "agree", lambda *_: True)
    assert not model_of(_KINDS[kind]()).causal.shares
    assert model_of(transformers.LlamaConfig(**GROUPED)).causal.shares


@pytest.mark.parametrize("window", [3, 12])
def test_another_mask_is_seen(window, monkeypatch):
    monkeypatch.setattr(CausalLM, "keeps_all", lambda _: True)
    monkeypatch.setattr(CausalLM, "agree", lambda *_: True)
    assert not model_of(transformers.MistralConfig(**GROUPED, sliding_window=window)).causal.shares
    assert model_of(transformers.MistralConfig(**GROUPED, sliding_window=None)).causal.shares


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_the_module_stays_as_it_was(implementation):
    torch.manual_seed(0)
    module = transformers.AutoModelForCausalLM.from_config(
        transformers.LlamaConfig(**GROUPED), attn_implementation=implementation
    ).eval()
    tokens = torch.arange(12).view(2, 6)
    before = module(tokens).logits
    model = HuggingFaceModel.from_module(module, Tokenizer.integers(zoo.VOCAB, ())).prompted((1, 2))
    list(walk(model))
    assert module.config._attn_implementation == implementation
    assert torch.equal(module(tokens).logits, before)
    assert model.causal.twin is not module
    shared = {id(p) for p in module.parameters()} | {id(b) for b in module.buffers()}
    assert all(id(p) in shared for p in (*model.causal.twin.parameters(), *model.causal.twin.buffers()))


def test_hooks_of_the_module_run():
    model, seen = zoo.huggingface(eos_ids=()), []
    hook = model.causal.module.register_forward_pre_hook(
        lambda _, inputs, named: seen.append(inputs[0].shape), with_kwargs=True
    )
    list(walk(model, 2))
    assert seen == [(1, 3), (4, 1), (7, 1)]
    hook.remove()
    list(walk(model, 1))
    assert len(seen) == 3


def test_threads_do_not_see_each_other():
    """Two walks and the module itself, at once."""
    model = zoo.huggingface(eos_ids=())
    tokens = torch.arange(12).view(2, 6).to(model.device)
    expected = {"module": model.causal.module(tokens).logits, **{seed: list(walk(model, 8, seed))[-1][0] for seed in (1, 2)}}
    found = {key: [] for key in expected}

    def repeat(key):
        for _ in range(10):
            found[key].append(model.causal.module(tokens).logits if key == "module" else list(walk(model, 8, key))[-1][0])

    threads = [threading.Thread(target=repeat, args=(key,)) for key in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for key, results in found.items():
        assert len(results) == 10
        assert all(torch.equal(result, expected[key]) for result in results)
