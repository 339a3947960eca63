"""What has a number for every token stays where the model computes; on a pretended device, which is as strict as a GPU."""

import pytest
import torch
from torch import Tensor

import locore
from locore import Tokenizer, ban, contains
from locore.circuits import Circuit
from locore.kernel.errors import ZeroWeights
from locore.kernel.models.language_model import Wrapper
from locore.local import KERNELS, Lazy, TopK
from locore.models import Cursor, LanguageModel
from locore.models.table import MarkovModel
from locore.samplers import BY_NAME, Twisted
from locore.samplers.twist.ngram import ENTRIES_PER_ROW, NGramCounts
from locore.stopping import stopped
from tests.effort import some
from tests.pretend_device import DEVICE, Pretend, pretended

VOCAB, LENGTH, PARTICLES = 400, 5, 8


class Elsewhere(Wrapper):
    """A model that computes on another device."""

    device = DEVICE

    def prompted(self, prompt: object) -> LanguageModel:
        return self

    def _log_probs(self, tokens: Tensor) -> Tensor:
        return self.base.log_probs(tokens)

    def _begin(self, batch: int) -> Cursor:
        return _ElsewhereCursor(self.base.begin(batch))


class _ElsewhereCursor(Cursor):
    def __init__(self, inner: Cursor) -> None:
        self._inner = inner

    @property
    def log_probs(self) -> Tensor:
        return self._inner.log_probs.to(DEVICE)

    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> Cursor:
        assert not isinstance(tokens, Pretend) and not isinstance(parents, Pretend)
        return _ElsewhereCursor(self._inner.advance(tokens, parents))


@pytest.fixture(scope="module")
def model() -> MarkovModel:
    """A chain over numbers that are spelled out; the last token is the end."""
    generator = torch.Generator().manual_seed(0)
    rows = (3 * torch.randn(VOCAB + 1, VOCAB, generator=generator)).double().softmax(-1)
    tokenizer = Tokenizer.from_tokens([None if i == VOCAB - 1 else f" {i:x}" for i in range(VOCAB)], [VOCAB - 1])
    return MarkovModel(rows[0], rows[1:], tokenizer=tokenizer)


@pytest.fixture(scope="module")
def circuit(model) -> Circuit:
    return locore.compile(ban([" 7", " 1f"]) & contains(" 2"), model, LENGTH)


def drawn(sampler, model: LanguageModel, circuit: Circuit):
    """What it draws, with a seed; the same complaint where it finds nothing."""
    try:
        return sampler(stopped(model, circuit), circuit, PARTICLES, None, torch.Generator().manual_seed(3))
    except ZeroWeights as error:
        return str(error)


SLOW = {
    "best-first",
    "ars",
    "cars",
}  # they ask for thousands of contexts one by one: on a device that counts operations, minutes
WHOLE_TABLES = {"lcr-published"}  # it works on whole tables, which come to the CPU
TOO_LARGE = {"exact"}


@pytest.mark.parametrize("name", some(sorted(set(BY_NAME) - SLOW - WHOLE_TABLES - TOO_LARGE), 6))
def test_a_sampler_draws_the_same_on_any_device(name, model, circuit):
    expected = drawn(BY_NAME[name], model, circuit)
    with pretended():
        same(drawn(BY_NAME[name], Elsewhere(model), circuit), expected)


def same(found, expected) -> None:
    if isinstance(expected, str):
        assert found == expected
        return
    for one, other in ((expected.tokens, found.tokens), (expected.log_weights, found.log_weights)):
        assert type(other) is Tensor
        assert torch.equal(one, other)


@pytest.mark.parametrize("possible", [True, False])
@pytest.mark.parametrize("kernel", [*KERNELS.values(), Lazy(kernel=TopK(own=True))], ids=repr)
def test_a_kernel_works_where_the_forward_distributions_are(kernel, possible, model):
    """The model's own end is a token like others, or nothing but padding follows it: then not all is possible."""
    chain = model if possible else stopped(model, locore.compile(contains(" 2"), model, LENGTH))
    tokens = chain.sample(3, LENGTH, seed=1).tokens[:, : 2 if kernel.price(LENGTH, VOCAB) > 1_000 else LENGTH]
    forward = chain.log_probs(tokens)
    expected = kernel.distributions(chain, tokens, forward=forward)
    with pretended():
        found = kernel.distributions(chain, tokens, forward=forward.to(DEVICE))
        assert type(found) is Pretend
        assert torch.equal(found.cpu(), expected)


@pytest.fixture(scope="module")
def table(model):
    counts = NGramCounts(VOCAB, model.tokenizer.eos_ids)
    counts.draft(model, 60, LENGTH, torch.Generator().manual_seed(1))
    return counts.table()


@pytest.mark.parametrize("kind", ["smc", "swor", "twisted"])
def test_no_row_of_the_vocabulary_goes_to_the_cpu(kind, model, circuit, table):
    sampler = Twisted(table, blocks=1) if kind == "twisted" else BY_NAME[kind]
    expected = drawn(sampler, model, circuit)
    with pretended() as traffic:
        same(drawn(sampler, Elsewhere(model), circuit), expected)
    assert not isinstance(expected, str)
    assert max(traffic.copies) < VOCAB


def test_only_the_likeliest_tokens_are_recorded_on_the_cpu(model):
    with pretended() as traffic:
        counts = NGramCounts(VOCAB, model.tokenizer.eos_ids)
        counts.draft(Elsewhere(model), 5, LENGTH, torch.Generator().manual_seed(1))
    assert max(traffic.copies) <= max(VOCAB, counts.positions * ENTRIES_PER_ROW)
    assert counts.positions * VOCAB > counts.positions * ENTRIES_PER_ROW


def test_the_pretended_device_is_strict():
    with pretended() as traffic:
        elsewhere = torch.ones(3).to(DEVICE)
        with pytest.raises(AssertionError, match="mixes devices"):
            elsewhere + torch.ones(3)
        assert float((elsewhere + 1).sum()) == 6.0
        assert elsewhere.cpu().tolist() == [1.0, 1.0, 1.0]
    assert traffic.copies == [1, 3]
