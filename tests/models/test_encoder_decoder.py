"""Encoder–decoders: the law is the module's own, whatever the encoder was given; what is no such model is refused."""

import pytest
import torch

import locore
from locore.kernel.errors import CannotScore, InvalidArgument, ModelNotFound
from locore.kernel.tokenizer import Tokenizer
from locore.models import EncoderDecoder

from . import zoo


@pytest.fixture(params=zoo.ENCODER_DECODERS)
def model(request) -> EncoderDecoder:
    return zoo.encoder_decoder(request.param)


def own_log_probs(model: EncoderDecoder, inputs: dict, tokens: torch.Tensor) -> torch.Tensor:
    """By one pass of the whole module, without a cache."""
    rows = len(tokens)
    before = torch.cat([torch.tensor(model.prompt_ids).expand(rows, -1), tokens[:, :-1]], 1).to(model.device)
    given = {name: value.expand(rows, *value.shape[1:]).to(model.device) for name, value in inputs.items()}
    logits = model.causal.module.whole(**given, decoder_input_ids=before, use_cache=False).logits
    return logits.log_softmax(-1)[:, len(model.prompt_ids) - 1 :].cpu()


def inputs_of(model: EncoderDecoder) -> dict:
    return zoo.ENCODER_DECODERS[model.info.architecture][1]


def another(inputs: dict) -> dict:
    """The same, turned round; of texts the mask stays."""
    return {name: value if name == "attention_mask" else value.flip(-1) for name, value in inputs.items()}


def test_the_law_is_the_module_s_own(model):
    tokens = torch.tensor([[4, 6, 8, 8, 1], [9, 7, 3, 0, 4]])
    expected = own_log_probs(model, inputs_of(model), tokens)
    torch.testing.assert_close(model.log_probs(tokens), expected, rtol=0, atol=1e-4)
    assert model.prompt_ids == (1, 7, 3) and model.unprompted().prompt_ids == (1,)


def test_another_input_is_another_law_with_another_name(model):
    tokens, other = torch.tensor([[4, 6, 8, 8, 1]]), another(inputs_of(model))
    names = {model.fingerprint()}
    found = model.given(**other).prompted((7, 3))
    torch.testing.assert_close(found.log_probs(tokens), own_log_probs(model, other, tokens), rtol=0, atol=1e-4)
    assert not torch.allclose(found.log_probs(tokens), model.log_probs(tokens), atol=1e-3)
    names |= {found.fingerprint(), model.given(**inputs_of(model)).fingerprint()}
    assert len(names) == 2


def test_a_step_reads_one_token(model):
    """The decoder has a cache, and what the encoder gave is not read again."""
    read = []
    cursor = model.begin(3).advance(torch.tensor([4, 6, 8]))
    hook = model.causal.module.whole.get_encoder().register_forward_hook(lambda *_: read.append("encoder"))
    decoder = model.causal.module.whole.get_decoder()
    seen = decoder.register_forward_pre_hook(
        lambda _, __, named: read.append(tuple(named["input_ids"].shape)), with_kwargs=True
    )
    cursor.advance(torch.tensor([1, 0, 3])).log_probs  # noqa: B018
    hook.remove(), seen.remove()
    assert read == [(3, 1)]


def test_a_horizon_beyond_the_decoder_is_refused():
    model = zoo.encoder_decoder("whisper")
    assert model.context == model.info.context == 32
    with pytest.raises(CannotScore, match="32"):
        model.sample(1, 40)


def test_a_text_goes_on_after_the_start():
    module = zoo.encoder_decoder("marian").causal.module.whole
    tokenizer = Tokenizer.from_tokens([*"abcdefghijklmnopqrstuv", None], eos_ids=[22])
    model = EncoderDecoder.of(module, tokenizer, input_ids=torch.tensor([[3, 4]]))
    assert model.prompted("ca").prompt_ids == (1, 2, 0)
    p = locore.generate(model, "ca", locore.choice(["bad", "dad"]), max_new_tokens=4, sampler="exact", ending="eos")
    rows = torch.tensor([[1, 0, 3, 22], [3, 0, 3, 22]])
    expected = model.prompted("ca").score(rows).softmax(0)
    assert [p.posterior()[text] for text in ("bad", "dad")] == pytest.approx(expected.tolist(), abs=1e-6)


@pytest.mark.parametrize("inputs", [{}, {"input_ids": torch.tensor([[3, 4], [5, 6]])}])
def test_one_row_is_given(inputs):
    module = zoo.encoder_decoder("t5").causal.module.whole
    with pytest.raises(InvalidArgument, match="one row"):
        EncoderDecoder.of(module, Tokenizer.integers(zoo.VOCAB), **inputs)


def test_a_decoder_alone_is_refused():
    with pytest.raises(InvalidArgument, match="no encoder–decoder"):
        EncoderDecoder.of(zoo.huggingface().causal.module, Tokenizer.integers(zoo.VOCAB), input_ids=torch.tensor([[1]]))


@pytest.mark.parametrize("architecture", zoo.ENCODER_DECODERS)
def test_a_folder_is_not_read_as_a_decoder_alone(architecture, tmp_path):
    """Transformers would take Whisper's decoder for a causal model, which hears nothing."""
    zoo.encoder_decoder(architecture).causal.module.whole.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelNotFound, match="EncoderDecoder"):
        locore.load(tmp_path)
