"""What was evaluated once is not evaluated again, and the numbers are those of the model."""

import threading

import pytest
import torch
import transformers

from locore.kernel.errors import InvalidArgument
from locore.models import Counted, Remembered, TableModel, remembered

from . import zoo
from .test_huggingface import Recorder
from .test_sharing import GROUPED, model_of, walk


def bytes_of_nodes(model: Remembered) -> int:
    """What one context takes, by its shapes: keys and values in 2 layers of 2 heads of 8, and its distribution."""
    return 4 * (2 * 2 * 2 * 8 + zoo.VOCAB)


@pytest.mark.parametrize(("keeps", "kept"), [("log_probs", zoo.VOCAB), ("hidden", 32)])
def test_walks_read_only_what_is_new(keeps, kept):
    plain = zoo.huggingface(eos_ids=())
    model = Remembered(zoo.huggingface(eos_ids=()), keeps=keeps)
    recorder = Recorder(model.base)
    contexts: set[tuple[int, ...]] = set()
    for seed in (0, 1, 0, 2, 1):
        for (found, histories), (expected, _) in zip(walk(model, seed=seed), walk(plain, seed=seed), strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
            contexts |= {tuple(row) for row in histories.tolist()}
            assert model.contexts == len(contexts)
            assert recorder.tokens == 3 + len(contexts)  # the prompt, and each context once
    assert model.bytes == (3 + len(contexts)) * 4 * 2 * 2 * 2 * 8 + len(contexts) * 4 * kept


@pytest.mark.parametrize("keeps", ["log_probs", "hidden"])
def test_what_was_drawn_is_scored_from_memory(keeps, monkeypatch):
    monkeypatch.setattr(remembered, "_ROWS_AT_ONCE", 7)
    tolerance = 0 if keeps == "log_probs" else 1e-5
    model = Remembered(zoo.huggingface(), keeps=keeps)
    drafts = model.sample(20, 6, seed=1, keep_log_probs=True)
    recorder = Recorder(model.base)
    torch.testing.assert_close(model.token_scores(drafts.tokens), drafts.token_scores, rtol=0, atol=tolerance)
    torch.testing.assert_close(model.log_probs(drafts.tokens).cpu(), drafts.log_probs.cpu(), rtol=0, atol=tolerance)
    again = model.sample(20, 6, seed=1)
    assert torch.equal(again.tokens, drafts.tokens)
    assert recorder.shapes == []
    mixed = torch.cat([drafts.tokens, zoo.ending_sequences(zoo.huggingface(), 6, 6)])
    torch.testing.assert_close(model.token_scores(mixed), zoo.huggingface().token_scores(mixed), rtol=0, atol=1e-4)


@pytest.mark.parametrize("keeps", ["log_probs", "hidden"])
def test_what_was_never_read_is_scored(keeps):
    plain, model = zoo.huggingface(eos_ids=()), Remembered(zoo.huggingface(eos_ids=()), keeps=keeps)
    tokens = torch.tensor([[1, 2, 3], [3, 2, 1]])
    torch.testing.assert_close(model.log_probs(tokens), plain.log_probs(tokens), rtol=0, atol=1e-4)
    torch.testing.assert_close(model.score(tokens), plain.score(tokens), rtol=0, atol=1e-4)
    model.sample(2, 2, seed=0)  # now it remembers others
    others = torch.tensor([[7, 7, 7], [8, 8, 8]])
    torch.testing.assert_close(model.log_probs(others), plain.log_probs(others), rtol=0, atol=1e-4)


@pytest.mark.parametrize("nodes", [0, 1, 5, 9, 17])
def test_a_full_memory_changes_no_number(nodes):
    plain = zoo.huggingface(eos_ids=())
    of_prompt = 3 * 4 * 2 * 2 * 2 * 8
    bound = of_prompt + nodes * bytes_of_nodes(plain)
    model = Remembered(zoo.huggingface(eos_ids=()), max_bytes=bound)
    for seed in (0, 1, 0):
        for (found, _), (expected, _) in zip(walk(model, seed=seed), walk(plain, seed=seed), strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
        assert model.bytes <= bound
    assert model.contexts <= nodes


def test_no_room_for_the_prompt_itself():
    model = Remembered(zoo.huggingface(eos_ids=()), max_bytes=1)
    for (found, _), (expected, _) in zip(walk(model), walk(zoo.huggingface(eos_ids=())), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    assert model.contexts == 0


def test_prompts_that_were_not_asked_for_longest_make_room():
    base = zoo.huggingface(eos_ids=())
    prompts = [base.prompted((token,)) for token in (4, 5, 6)]
    token = torch.tensor([3])
    one = 4 * 4 * 2 * 2 * 2 * 8 + bytes_of_nodes(base)  # a prompt of four tokens and a node
    model = Remembered(base, max_bytes=2 * one)
    first, second, third = (model.prompted((token,)) for token in (4, 5, 6))
    old = first.begin(1)
    old.advance(token)
    second.begin(1).advance(token)
    assert model.contexts == 2
    first.begin(1)
    third.begin(1).advance(token)
    assert model.contexts == 2  # the second is gone
    recorder = Recorder(base)
    first.begin(1).advance(token)
    assert recorder.tokens == 0
    second.begin(1).advance(token)
    assert recorder.tokens == 1
    # A cursor outlives its prompt.
    expected = prompts[0].begin(1).advance(torch.tensor([9])).advance(token).log_probs
    torch.testing.assert_close(old.advance(torch.tensor([9])).advance(token).log_probs, expected, rtol=0, atol=1e-4)


def test_prompted_forms_share_one_memory():
    model = Remembered(zoo.huggingface())
    token = torch.tensor([3])
    model.begin(1).advance(token)
    recorder = Recorder(model.base)
    model.unprompted().prompted((1, 7, 3)).begin(2).advance(token.repeat(2))
    assert recorder.shapes == []


def test_counts_are_those_of_the_model():
    counts = []
    for model in (Counted(zoo.huggingface()), Counted(Remembered(zoo.huggingface()))):
        for seed in (1, 1, 2):
            drafts = model.sample(8, 5, seed)
            model.token_scores(drafts.tokens)
        model.neighbours(drafts.tokens[0], torch.arange(10).view(5, 2))
        counts.append((model.lm_tokens, model.lm_contexts))
    assert counts[0] == counts[1]


def test_threads_share_a_memory():
    plain = zoo.huggingface(eos_ids=())
    expected = {seed: list(walk(plain, 8, seed))[-1][0] for seed in range(4)}
    model = Remembered(zoo.huggingface(eos_ids=()))
    found = {seed: [] for seed in expected}

    def repeat(seed):
        for _ in range(5):
            found[seed].append(list(walk(model, 8, seed))[-1][0])

    threads = [threading.Thread(target=repeat, args=(seed,)) for seed in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, results in found.items():
        assert len(results) == 5
        for result in results:
            torch.testing.assert_close(result, expected[seed], rtol=0, atol=1e-4)


@pytest.mark.parametrize("base", [lambda: TableModel.random(4, 3, seed=0), lambda: zoo.huggingface("sliding")])
def test_other_models_are_refused(base):
    with pytest.raises(InvalidArgument, match="plain attention"):
        Remembered(base())


def test_a_head_that_is_not_all_is_seen():
    """Logits that are scaled after the last layer are not made again by that layer."""
    for scale, whole in ((1.0, True), (2.0, False)):
        model = model_of(transformers.CohereConfig(**GROUPED, logit_scale=scale, pad_token_id=0))
        assert (model.causal.shares, model.causal.recomputes) == (True, whole)
    with pytest.raises(InvalidArgument, match="log_probs"):
        Remembered(model, keeps="hidden")
    for (found, _), (expected, _) in zip(walk(Remembered(model)), walk(model), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_what_is_kept_has_a_name():
    with pytest.raises(InvalidArgument, match="keeps"):
        Remembered(zoo.huggingface(), keeps="everything")


@pytest.mark.parametrize("max_bytes", [0, -1, 1.5])
def test_bytes_are_a_positive_number(max_bytes):
    with pytest.raises(InvalidArgument, match="max_bytes"):
        Remembered(zoo.huggingface(), max_bytes=max_bytes)
