"""What a module can do is found out by trying, whatever its arguments are called; what it cannot do is said, and why."""

import inspect
import warnings

import pytest
import torch
import transformers

import locore
from locore.kernel.errors import LocoreWarning
from locore.kernel.models.language_model import LanguageModel
from locore.kernel.tokenizer import Tokenizer
from locore.models import HuggingFaceModel, Tempered, load
from locore.models.abilities import NO_CACHE

from . import zoo
from .test_sharing import GROUPED, uncached, walk

CONFIG = transformers.LlamaConfig(**GROUPED)
OWN_NAME = next(
    n for n in ("cache", "past_key_values") if n in inspect.signature(transformers.LlamaForCausalLM.forward).parameters
)


def _called(name: str, wrong: str | None = None):
    """A Llama that takes its cache as `name`; without a name, as whatever is handed on, as wrappers of modules do it."""

    class Renamed(transformers.LlamaForCausalLM):
        def _own(self, cache, **options):
            if cache is not None:
                if wrong == "ignores":
                    cache = None
                if wrong == "raises":
                    raise RuntimeError("out of\nluck")
                if wrong == "misplaces" and cache.get_seq_length():
                    options["position_ids"] = options["position_ids"] * 2 + 1
            return super().forward(**options, **{OWN_NAME: cache})

    body = f"""
def forward(self, input_ids=None, attention_mask=None, position_ids=None, use_cache=None, logits_to_keep=0, {name}=None):
    options = dict(attention_mask=attention_mask, position_ids=position_ids, use_cache=use_cache, logits_to_keep=logits_to_keep)
    return self._own({name}, input_ids=input_ids, **options)
"""
    scope = {}
    exec(body, scope)
    Renamed.forward = scope["forward"]
    return Renamed


class Wrapped(transformers.LlamaForCausalLM):
    """Names none of its arguments."""

    def forward(self, *args, **options):
        return super().forward(*args, **options)


def _model(kind, **options) -> HuggingFaceModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = kind(CONFIG)
    return HuggingFaceModel.from_module(module, Tokenizer.integers(zoo.VOCAB, ()), **options).prompted((1, 7, 3))


@pytest.mark.parametrize("kind", [*map(_called, ("cache", "past_key_values", "memory", "state_so_far")), Wrapped])
def test_a_cache_is_used_whatever_it_is_called(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error", LocoreWarning)
        model = _model(kind)
    assert (model.causal.caches, model.causal.shares, model.causal.joins) == (True, True, True)
    assert model.info.hindrances == () and model.slow_because is None
    plain = _model(transformers.LlamaForCausalLM)
    for log_probs, histories in walk(model):
        expected = uncached(plain, histories)[:, -1]
        torch.testing.assert_close(log_probs.double(), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["cache", "past_key_values", "memory"])
@pytest.mark.parametrize(
    ("wrong", "because", "failed"),
    [("ignores", "stores nothing", False), ("raises", "RuntimeError: out of", True), ("misplaces", "other numbers", False)],
)
def test_what_cannot_be_used_is_said_and_an_error_is_told_from_a_no(name, wrong, because, failed):
    """Once when the model is made, in what is known of it, and in each report; the answers stay right."""
    with pytest.warns(LocoreWarning, match=NO_CACHE) as caught:
        model = _model(_called(name, wrong))
    (hindrance,) = model.causal.hindrances
    assert len(caught) == 1 and because in str(caught[0].message) and "\n" not in str(hindrance)
    assert not model.causal.caches and hindrance.failed == failed
    assert model.info.hindrances == (str(hindrance),) and f"reading       {NO_CACHE}, because" in str(model.info)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p = locore.generate(Tempered(model, 0.9), (1, 7, 3), locore.contains_tokens([[4]]), 4, num_particles=4, seed=0)
    assert f"Note: {hindrance}." in p.report().splitlines() and p.info["slow_because"] == str(hindrance)
    assert all(4 in y for y in p.tokens.tolist())
    plain = _model(transformers.LlamaForCausalLM)
    for log_probs, histories in walk(model, 3):
        expected = uncached(plain, histories)[:, -1]
        torch.testing.assert_close(log_probs.double(), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("architecture", zoo.ARCHITECTURES)
def test_every_shortcut_that_is_not_taken_has_a_reason(architecture):
    model = zoo.huggingface(architecture)
    taken = (model.causal.caches, model.causal.packs, model.causal.shares)
    # Where there is no cache nothing else is tried.
    assert len(model.info.hindrances) == (taken.count(False) if taken[0] else 1)
    assert not any(found.failed for found in model.causal.hindrances), model.causal.hindrances
    assert (model.slow_because is None) == taken[0]


def test_an_error_while_sharing_is_a_warning(monkeypatch):
    """Though all works: it may be a matter of versions."""

    def broken(*_):
        raise KeyError("renamed")

    monkeypatch.setattr("locore.models.attention.SharedCache.keep", broken)
    with pytest.warns(LocoreWarning, match=r"no shared prompt: .*KeyError: 'renamed'"):
        model = _model(transformers.LlamaForCausalLM)
    assert (model.causal.caches, model.causal.shares) == (True, False)


class Switched(torch.nn.Module):
    """A layer with something added that can be switched off, as adapters are."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.on = layer, True
        self.added = torch.nn.Linear(layer.in_features, layer.out_features)

    def forward(self, hidden):
        return self.layer(hidden) + self.added(hidden) if self.on else self.layer(hidden)


@pytest.mark.parametrize("loaded", ["before", "after"])
@pytest.mark.parametrize("place", ["model.layers.1.self_attn.q_proj", "lm_head"])
def test_an_adapter_is_seen_wherever_it_sits_and_whenever_it_came(place, loaded):
    """Also when it is switched off and on."""
    torch.manual_seed(0)
    module = transformers.LlamaForCausalLM(CONFIG)
    parent, name = module.get_submodule(place.rpartition(".")[0]), place.rpartition(".")[2]
    adapter = Switched(getattr(parent, name))
    if loaded == "before":
        setattr(parent, name, adapter)
    model = HuggingFaceModel.from_module(module, Tokenizer.integers(zoo.VOCAB, ()))
    list(walk(model.prompted((1, 2)), 2))
    setattr(parent, name, adapter)
    seen = []
    for on in (True, False, True):
        adapter.on = on
        prompted = model.prompted((1, 7, 3))
        assert prompted.causal.shares
        for log_probs, histories in walk(prompted, 4):
            torch.testing.assert_close(log_probs.double(), uncached(prompted, histories)[:, -1], rtol=0, atol=1e-4)
        seen.append(log_probs)
    assert torch.equal(seen[0], seen[2]) and not torch.allclose(seen[0], seen[1], atol=1e-3)


def positions_read(model: HuggingFaceModel, ask) -> int:
    """How many tokens the module and its twin are fed while this is done, over all rows and passes."""
    fed = []
    hook = model.causal.module.register_forward_pre_hook(lambda _, args, named: fed.append(args[0].numel()), with_kwargs=True)
    ask(model)
    hook.remove()
    return sum(fed)


@pytest.mark.parametrize("sampler", ["auto", "swor", "smc", "masked", "lcr"])
def test_a_step_reads_one_token_of_each_row(sampler):
    """So a call reads its prompt and its LM tokens, once each, with whatever versions are installed."""
    model = load("tiny")
    counted = {}

    def ask(model: LanguageModel) -> None:
        p = locore.generate(model, PROMPT, locore.contains(" sun"), 8, num_particles=8, budget=200, sampler=sampler, seed=0)
        counted.update(p.info)

    read = positions_read(model, ask)
    assert read <= counted["lm_tokens"] + len(model.tokenizer.encode_prompt(PROMPT))


PROMPT = "Once there was a farmer who looked up and said that"
