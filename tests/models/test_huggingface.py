"""Hugging Face models: caching, memory, what is evaluated, and how loading fails."""

import copy
import functools
import json
import math
import shutil
import socket

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from locore.kernel.errors import CannotScore, InvalidArgument, ModelNotFound
from locore.kernel.models.language_model import LanguageModel
from locore.models import HuggingFaceModel, causal, load
from locore.models.neighbourhood import pack_tails
from tests.effort import some

from . import zoo

SENTENCE = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park."


def uncached(architecture: str, attention: str | None = None) -> HuggingFaceModel:
    """The same model, reading everything again each time."""
    model = zoo.huggingface(architecture, attention=attention)
    model.causal.caches = False
    return model


@pytest.mark.parametrize("architecture", zoo.ARCHITECTURES)
def test_caches_are_recognised(architecture):
    causal = zoo.huggingface(architecture).causal
    assert (causal.caches, causal.packs, causal.shares) == zoo.ARCHITECTURES[architecture][1:]


ATTENTIONS = [
    (architecture, attention)
    for architecture in zoo.ARCHITECTURES
    for attention in ("eager", "sdpa")
    if attention == "eager" or architecture not in ("bloom", "state space")  # these have no other
]


@pytest.mark.parametrize(("architecture", "attention"), some(ATTENTIONS, several=True))
def test_cached_is_uncached(architecture, attention):
    cached = zoo.huggingface(architecture, attention=attention)
    plain = uncached(architecture, attention=attention)
    tokens = zoo.ending_sequences(plain, num=10, length=9)
    candidates = torch.arange(9 * 6).view(9, 6) % zoo.VOCAB
    for ask in (
        lambda model: model.log_probs(tokens),
        lambda model: model.token_scores(tokens),
        lambda model: model.neighbours(tokens[-1], candidates),
        lambda model: model.begin(10).advance(tokens[:, 0]).advance(tokens[:, 1]).log_probs,
    ):
        torch.testing.assert_close(ask(cached), ask(plain), rtol=0, atol=1e-4)


def test_packed_is_batched():
    packed, batched = zoo.huggingface(), zoo.huggingface()
    batched.causal.packs = False
    candidates = torch.arange(12 * 20).view(12, 20) % zoo.VOCAB
    for tokens in zoo.ending_sequences(packed, num=6, length=12):
        torch.testing.assert_close(
            packed.neighbours(tokens, candidates), batched.neighbours(tokens, candidates), rtol=0, atol=1e-4
        )


def test_agrees_with_the_module_itself():
    model = zoo.huggingface("gpt2", eos_ids=())
    tokens = zoo.ending_sequences(model, num=4, length=6)
    whole = torch.cat([torch.tensor(model.prompt_ids).expand(4, -1), tokens], 1)
    with torch.no_grad():
        rows = model.causal.module(whole.to(model.device)).logits.cpu().log_softmax(-1)[:, 2:-1]
    torch.testing.assert_close(model.log_probs(tokens), rows, rtol=0, atol=1e-5)


@pytest.mark.parametrize("architecture", ["llama", "state space"])
def test_little_memory_means_small_batches_and_the_same_numbers(architecture):
    roomy, tight = zoo.huggingface(architecture), zoo.huggingface(architecture, memory_bytes=1)
    tokens = zoo.ending_sequences(roomy, num=8, length=6)
    candidates = torch.arange(6 * 4).view(6, 4) % zoo.VOCAB
    for ask in (
        lambda model: model.log_probs(tokens),
        lambda model: model.token_scores(tokens),
        lambda model: model.neighbours(tokens[-1], candidates),
    ):
        torch.testing.assert_close(ask(tight), ask(roomy), rtol=0, atol=1e-4)


class Recorder:
    """Stands before the module and its twin, records the shapes they read and has memory for few tokens."""

    def __init__(self, model: HuggingFaceModel, limit: float = math.inf) -> None:
        self.shapes: list[tuple[int, int]] = []
        self.limit = limit
        self.forward = model.causal.module
        self.config = self.forward.config
        self.dtype = self.forward.dtype
        model.causal.module = self
        model.causal.twin = functools.partial(self, forward=model.causal.twin)

    def __call__(self, tokens, forward=None, **options):
        if tokens.numel() > self.limit:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.shapes.append(tuple(tokens.shape))
        return (forward or self.forward)(tokens, **options)

    @property
    def tokens(self) -> int:
        return sum(batch * time for batch, time in self.shapes)


def test_batches_are_halved_when_memory_runs_out():
    model = zoo.huggingface(eos_ids=())
    tokens = zoo.ending_sequences(model, num=16, length=6)
    expected = model.token_scores(tokens)
    recorder = Recorder(model, limit=20)
    torch.testing.assert_close(model.token_scores(tokens), expected, rtol=0, atol=1e-4)
    assert {batch for batch, _ in recorder.shapes} == {4}
    recorder.limit = 4
    with pytest.raises(CannotScore, match="memory"):
        model.token_scores(tokens)


@pytest.mark.parametrize("packs", [True, False])
def test_neighbours_read_at_most_their_tails(packs):
    n, k = 9, 8
    model = zoo.huggingface(eos_ids=())
    model.causal.packs = packs
    tokens = model.sample(1, n, seed=0).tokens[0]
    others = torch.arange(zoo.VOCAB).expand(n, -1)
    candidates = others[others != tokens[:, None]].view(n, -1)[:, :k]
    recorder = Recorder(model)
    model.neighbours(tokens, candidates)
    assert recorder.tokens == k * n * (n - 1) // 2 + n - 1
    recorder.shapes.clear()
    model.neighbours(tokens, tokens[:, None])
    assert recorder.tokens == n - 1


def test_what_ended_is_never_read():
    model = zoo.huggingface(eos_ids=(2, 5))
    tokens = torch.tensor([[3, 5, 2, 2, 2, 2], [2, 2, 2, 2, 2, 2], [3, 4, 3, 4, 2, 2]])
    recorder = Recorder(model)
    model.token_scores(tokens)
    assert recorder.tokens == 3 + 1 + 4  # the prompt, then all but each last live token
    recorder.shapes.clear()
    model.begin(3).advance(tokens[:, 0]).advance(tokens[:2, 1], torch.tensor([0, 1]))
    assert recorder.shapes == [(2, 1)]
    recorder.shapes.clear()
    model.neighbours(tokens[1], torch.tensor([[2, 5]] * 6))
    assert recorder.tokens == 0


def test_the_prompt_is_read_once():
    model = zoo.huggingface().prompted((4, 6))
    recorder = Recorder(model)
    tokens = torch.tensor([[3, 4, 3]])
    model.token_scores(tokens)
    model.log_probs(tokens)
    model.neighbours(tokens[0], torch.tensor([[1], [1], [1]]))
    model.begin(2).advance(torch.tensor([1, 3]))
    assert recorder.shapes.count((1, 5)) == 1


def test_prompts_follow_one_another():
    tokens = torch.tensor([[3, 4, 3]])
    at_once = zoo.huggingface().prompted((4, 6))
    assert at_once.prompt_ids == (1, 7, 3, 4, 6)
    torch.testing.assert_close(
        at_once.score(tokens),
        zoo.huggingface().score(torch.tensor([[4, 6, 3, 4, 3]])) - zoo.huggingface().score(torch.tensor([[4, 6]])),
        rtol=0,
        atol=1e-4,
    )


@pytest.mark.filterwarnings("ignore")  # of torch, about its own future
@pytest.mark.skipif(zoo.huggingface().device.type != "cpu", reason="torch quantises dynamically on CPUs only")
def test_a_dynamically_quantised_module_is_no_one_distribution():
    """Its scale is that of a whole batch; what is refused here would give a text another probability in other company."""
    module = zoo.huggingface("llama").causal.module
    quantised = torch.ao.quantization.quantize_dynamic(copy.deepcopy(module), {torch.nn.Linear}, dtype=torch.qint8)
    tokens = (torch.arange(8) % module.config.vocab_size).to(module.device)
    company = torch.stack([tokens, tokens.flip(0)])
    alone, together = quantised(tokens[None]).logits[0], quantised(company).logits[0]
    assert not torch.allclose(alone, together, atol=1e-4)
    with pytest.raises(CannotScore, match=r"is dynamically quantised.*weights alone"):
        HuggingFaceModel.from_module(quantised, zoo.huggingface("llama").tokenizer)


def test_longer_than_the_context():
    model = zoo.huggingface()
    ok = torch.full((1, 29), 3)
    model.score(ok)
    too_long = torch.full((1, 30), 3)
    for ask in (
        lambda: model.score(too_long),
        lambda: model.log_probs(too_long),
        lambda: model.sample(1, 30, seed=0),
        lambda: model.neighbours(too_long[0], too_long[0][:, None]),
    ):
        with pytest.raises(CannotScore, match=r"3 tokens .* 30, .* 33, .* 32"):
            ask()
    with pytest.raises(CannotScore, match="40"):
        model.prompted([3] * 37)


@pytest.mark.parametrize("tokens", [[[0, zoo.VOCAB]], [[-1, 0]], [[0.5, 1.0]], [0, 1], torch.zeros(1, 0).long()])
def test_wrong_tokens(tokens):
    with pytest.raises(InvalidArgument):
        zoo.huggingface().score(torch.as_tensor(tokens))


def test_no_token_to_start_from():
    model = zoo.huggingface()
    bare = HuggingFaceModel(model.causal, model.tokenizer)
    with pytest.raises(CannotScore, match="BOS"):
        bare.prompted(())
    with pytest.raises(CannotScore, match="BOS"):
        bare.sample(1, 2, seed=0)


def test_stories_has_its_known_loss(stories260k):
    model = load(stories260k)
    ids = model.tokenizer.encode_prompt(SENTENCE)
    loss = -model.prompted(ids[:1]).token_scores(torch.tensor([ids[1:]])).mean()
    assert round(float(loss), 2) == 0.18
    assert model.prompt_ids == (1,)
    assert not model.causal.module.training


def test_stories_agrees_with_plain_scoring(stories260k):
    model = load(stories260k).prompted("Once upon a time, there was a little girl named Lily.")
    drafts = model.sample(8, 12, seed=0)
    torch.testing.assert_close(model.token_scores(drafts.tokens), drafts.token_scores, rtol=0, atol=1e-4)
    candidates = model.log_probs(drafts.tokens[:1])[0].topk(4).indices
    torch.testing.assert_close(
        model.neighbours(drafts.tokens[0], candidates),
        LanguageModel.neighbours(model, drafts.tokens[0], candidates),
        rtol=0,
        atol=1e-4,
    )


def test_loading_is_quiet_and_offline(stories260k, capfd, monkeypatch):
    def refuse(*_):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    load(str(stories260k)).sample(2, 3, seed=0)
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


@pytest.fixture
def folder(tmp_path):
    """A complete model folder with a byte-level tokenizer."""
    module = zoo.huggingface().causal.module
    module.generation_config.eos_token_id = [2, 5]
    module.generation_config.temperature = 0.1
    module.generation_config.do_sample = True
    module.save_pretrained(tmp_path)
    words = {c: i for i, c in enumerate("abcdefghijklmnopqrst")}
    fast = FastTokenizer(models.BPE(vocab=words, merges=[]))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="</s>").save_pretrained(tmp_path)
    return tmp_path


def test_a_folder_gives_model_and_ends(folder):
    model = load(folder)
    assert model.tokenizer.eos_ids == (2, 5, 20)
    assert model.tokenizer.token_bytes[-2:] == (None, None)
    prompted = model.prompted("abd")
    assert prompted.prompt_ids == (0, 1, 3)
    # The sampling temperature in the model's files is none of our business.
    tokens = torch.tensor([[4, 6, 7]])
    rows = zoo.huggingface().causal.read(torch.tensor([[0, 1, 3, 4, 6]]), keep=3).log_softmax(-1).cpu()
    expected = rows.gather(2, tokens[..., None])[..., 0].double()
    torch.testing.assert_close(prompted.token_scores(tokens), expected, rtol=0, atol=1e-5)


def _remove_weights(folder):
    (folder / "model.safetensors").unlink()


def _pickled_weights(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _remove_tokenizer(folder):
    for file in folder.glob("tokenizer*"):
        file.unlink()


def _edit_config(**changes):
    def edit(folder):
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return edit


_needs_code = _edit_config(model_type="mine", auto_map={"AutoConfig": "code.MyConfig"})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_remove_weights, "safetensors"),
        (_pickled_weights, "safetensors"),
        (_remove_tokenizer, "no tokenizer"),
        (lambda folder: (folder / "config.json").unlink(), "config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 50), "weights"),
        (_edit_config(num_hidden_layers=3), "lack"),
        (_edit_config(model_type="t5"), "EncoderDecoder"),
        (_edit_config(model_type="vit"), "causal"),
        (_edit_config(model_type="nothing known"), "config.json"),
        (_needs_code, "code of its own"),
        (shutil.rmtree, "not a folder"),
    ],
)
def test_incomplete_folders(folder, damage, message):
    damage(folder)
    with pytest.raises(ModelNotFound, match=message) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_names_of_nothing(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelNotFound, match="not a folder"):
        load("./no/such/folder")


@pytest.mark.parametrize("past", [3, 22])
def test_packs_of_every_budget_score_what_is_scored_separately(past):
    """After a short prompt each strand of tails has a row, after a long one strands lie side by side; ends cut tails."""
    packed = zoo.huggingface().prompted([1 + i % 7 for i in range(past)])
    assert packed.causal.packs
    tokens = torch.tensor([3, 1, 4, 1, 5, 6, 6])
    candidates = torch.randint(packed.vocab_size, (7, 5), generator=torch.Generator().manual_seed(past))
    expected = LanguageModel.neighbours(packed, tokens, candidates)
    for budget in (1, 30_000, 2**28):
        packed.causal.memory_bytes = budget
        torch.testing.assert_close(packed.neighbours(tokens, candidates), expected, rtol=0, atol=1e-4)


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=60))
def test_tails_pack_tails_do_not_overlap(lengths):
    strand, offset = pack_tails(torch.tensor(lengths), max(lengths))
    places = [(s, o + i) for s, o, n in zip(strand.tolist(), offset.tolist(), lengths, strict=True) for i in range(n)]
    assert len(set(places)) == len(places) and max(column for _, column in places) < max(lengths)
    assert set(strand.tolist()) == set(range(int(strand.max()) + 1))


@pytest.mark.parametrize("width", [1, 2, 5, 19])
def test_as_many_tails_of_each_length_leave_no_place_empty(width):
    lengths = torch.arange(1, width + 1).repeat(3)
    assert int(pack_tails(lengths, width)[0].max()) + 1 == -(-int(lengths.sum()) // width)


@pytest.mark.parametrize("architecture", ["llama", "sliding"])
def test_steps_are_halved_when_memory_runs_out(architecture):
    model = zoo.huggingface(architecture, eos_ids=())
    expected = model.sample(9, 5, seed=0, keep_log_probs=True)
    recorder = Recorder(model, limit=4)
    found = model.sample(9, 5, seed=0, keep_log_probs=True)
    torch.testing.assert_close(found.log_probs, expected.log_probs, rtol=0, atol=1e-4)
    assert torch.equal(found.tokens, expected.tokens)
    assert max(batch for batch, time in recorder.shapes if time == 1) == 4


def test_memory_that_runs_out_behind_a_pass_adds_no_row_twice(monkeypatch):
    model = zoo.huggingface(eos_ids=())
    expected = model.sample(8, 4, seed=0)
    normalise, full = causal.normalised, [True]

    def fails_once(logits):
        if full.pop() if full else False:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return normalise(logits)

    monkeypatch.setattr(causal, "normalised", fails_once)
    found = model.sample(8, 4, seed=0)
    assert not full
    assert torch.equal(found.tokens, expected.tokens)
    torch.testing.assert_close(found.token_scores, expected.token_scores, rtol=0, atol=1e-4)


def test_rows_that_cannot_share_a_prompt_and_do_not_fit_are_refused_with_how_many_do(monkeypatch):
    model = zoo.huggingface("sliding", eos_ids=())
    each = model.causal.bytes_per_token * (len(model.prompt_ids) + 1)
    monkeypatch.setattr(causal, "free_bytes", lambda device: 10 * each)
    with pytest.raises(CannotScore, match=r"11 rows of 4 tokens .* 6 rows fit"):
        model.begin(11).advance(torch.zeros(11, dtype=torch.long))
    assert model.begin(6).advance(torch.zeros(6, dtype=torch.long)).log_probs.shape[0] == 6
    shared = zoo.huggingface(eos_ids=())  # its prompt is there once
    assert shared.begin(11).advance(torch.zeros(11, dtype=torch.long)).log_probs.shape[0] == 11


def test_the_device_of_the_environment_is_where_models_are_loaded(monkeypatch):
    monkeypatch.setenv("LOCORE_DEVICE", "nowhere")
    with pytest.raises(InvalidArgument, match="nowhere"):
        HuggingFaceModel.load("tiny")
    assert HuggingFaceModel.load("tiny", device="cpu").device == torch.device("cpu")
