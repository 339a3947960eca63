"""llama.cpp as an engine, on a stand-in for its low-level calls: what is read, kept and forgotten, and what goes wrong."""

from __future__ import annotations

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import locore
from locore.kernel.errors import CannotScore, EngineError, InvalidArgument, MissingExtra, ModelNotFound
from locore.kernel.limits import watched
from locore.models import by_name, load
from locore.models.engines import llamacpp, llamacpp_cells, llamacpp_vocabulary
from locore.models.engines.llamacpp import FIRST_CELLS, LlamaCpp
from locore.models.engines.llamacpp_cells import OUTPUTS, SEQUENCES, TOKENS
from tests.effort import examples

from . import llamacpp_stub as stubs
from . import zoo
from .llamacpp_stub import STUB, StubModel, installed

VOCAB = 7
CELL = 16  # bytes of a stub's keys and values
PROMPT = tuple(i % VOCAB for i in range(40))


@pytest.fixture
def model() -> StubModel:
    return stubs.drawn(VOCAB)


def engine(model: StubModel, folder: Path, cells: int = 4 * FIRST_CELLS) -> LlamaCpp:
    with installed(STUB):
        return LlamaCpp(STUB.file(folder, model), threads=1, memory_bytes=CELL * cells)


def rows(model: StubModel, texts: list[tuple[int, ...]]) -> torch.Tensor:
    return torch.stack([model.row(text).log_softmax(-1) for text in texts])


def read(model: StubModel, work) -> int:
    """How many tokens a piece of work reads."""
    before = model.decoded
    work()
    return model.decoded - before


# What is said, whatever was asked before and however little room there is.

TEXT = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=30).map(tuple)
SHORT = st.lists(st.integers(0, 1), min_size=1, max_size=6).map(tuple)
ASKED = st.lists(st.lists(TEXT | SHORT, min_size=1, max_size=9), min_size=1, max_size=6)


@settings(max_examples=examples(40))
@given(
    asked=ASKED,
    sequences=st.integers(2, 6),
    outputs=st.integers(0, 3),
    cells=st.integers(32, 70),
    window=st.sampled_from([3, 2**31]),
)
def test_any_order_of_asking_with_little_room(tmp_path_factory, asked, sequences, outputs, cells, window):
    """Sharing, evicting, growing and halving change nothing but what is computed."""
    model = stubs.drawn(VOCAB, window=window)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llamacpp_cells, "SEQUENCES", sequences)
        patch.setattr(llamacpp, "SEQUENCES", sequences)
        patch.setattr(llamacpp_cells, "OUTPUTS", sequences + outputs)
        patch.setattr(llamacpp_cells, "TOKENS", 8)
        patch.setattr(llamacpp, "FIRST_CELLS", 32)
        patch.setattr(llamacpp, "LEAST_KEPT", 2)
        there = engine(model, tmp_path_factory.mktemp("stub"), cells)
        for number, texts in enumerate(asked):
            if number % 2:
                assert torch.allclose(there.next_log_probs(texts), rows(model, texts), atol=1e-6)
            else:
                cut = [(text[: 1 + len(text) // 2], text[1 + len(text) // 2 :] or (0,)) for text in texts]
                found = there.tail_scores([prefix for prefix, _ in cut], [tail for _, tail in cut])
                assert found == [pytest.approx(scores, abs=1e-5) for scores in map(lambda both: plain(model, *both), cut)]
        assert sorted(there._cells._free + list(there._cells.read.values())) == list(range(sequences))
    assert model.largest <= cells


def plain(model: StubModel, prefix: tuple[int, ...], tail: tuple[int, ...]) -> list[float]:
    return [float(rows(model, [(*prefix, *tail[:i])])[0, token]) for i, token in enumerate(tail)]


# What is read.


def test_a_prompt_is_read_once(model, tmp_path):
    there = engine(model, tmp_path)
    texts = [(*PROMPT, a, b) for a in range(3) for b in range(3)]
    assert read(model, lambda: there.next_log_probs(texts)) == len(PROMPT) + 2 * len(texts)
    longer = [(*text, 1) for text in texts]
    assert read(model, lambda: there.next_log_probs(longer)) == len(texts)  # one token of each row
    assert (
        read(model, lambda: there.tail_scores([PROMPT] * 2, [(1, 2, 3), (1, 2, 4)])) == 2 * 3
    )  # with the last token of the prompt


def test_a_growing_context_reads_a_prompt_once_again(model, tmp_path):
    there = engine(model, tmp_path)
    long = tuple(i % VOCAB for i in range(FIRST_CELLS - 50))
    there.next_log_probs([long])
    texts = [(*long, a, b) for a in range(VOCAB) for b in range(VOCAB)]
    assert read(model, lambda: there.next_log_probs(texts)) <= 2 * (len(long) + 2 * len(texts))
    assert there._cells.size > FIRST_CELLS and torch.allclose(there.next_log_probs(texts), rows(model, texts), atol=1e-6)


@pytest.mark.parametrize("width", [SEQUENCES - 1, SEQUENCES // 2 + 1])
def test_a_row_reads_one_token_a_step_as_far_as_sequences_go(model, tmp_path, monkeypatch, width):
    monkeypatch.setattr(llamacpp, "FIRST_CELLS", 4_096)
    there = engine(model, tmp_path, 10**6)
    texts = [(*PROMPT, *(row // VOCAB**i % VOCAB for i in range(3))) for row in range(width)]
    there.next_log_probs(texts)
    for step in range(3):
        texts = [(*text, step) for text in texts]
        assert read(model, lambda texts=texts: there.next_log_probs(texts)) == width


def test_more_rows_than_sequences(model, tmp_path):
    there = engine(model, tmp_path, 10**6)
    texts = [(*PROMPT, *(row // VOCAB**i % VOCAB for i in range(4))) for row in range(2 * SEQUENCES + 3)]
    assert torch.allclose(there.next_log_probs(texts), rows(model, texts), atol=1e-6)
    assert len(there._cells.read) <= SEQUENCES


def test_plain_scores_share_nothing(model, tmp_path):
    there = engine(model, tmp_path)
    there.next_log_probs([PROMPT])
    assert read(model, lambda: there.plain_scores([PROMPT, PROMPT], [(1, 2), (3,)])) == 2 * len(PROMPT) + 1
    assert there.plain_scores([PROMPT], [(1, 2)]) == [pytest.approx(plain(model, PROMPT, (1, 2)), abs=1e-5)]


def test_calls_are_of_a_size_that_llama_cpp_takes(model, tmp_path):
    """The stub fails where llama.cpp aborts the process."""
    there = engine(model, tmp_path, 10**6)
    long = tuple(i % VOCAB for i in range(3 * TOKENS + 1))
    assert there.tail_scores([long[:1]], [long[1:]]) == [pytest.approx(plain(model, long[:1], long[1:]), abs=1e-5)]
    calls = model.calls
    there.plain_scores([long[:1]], [long[1:]])
    assert model.calls - calls == (len(long) - 1) // min(TOKENS, OUTPUTS)


# Too little room.


def test_a_text_that_does_not_fit(model, tmp_path):
    there = engine(model, tmp_path, FIRST_CELLS)
    assert there.context == FIRST_CELLS
    with pytest.raises(CannotScore, match=r"513 tokens .* room for 512\. Give more memory_bytes"):
        there.next_log_probs([(1,) * (FIRST_CELLS + 1)])
    assert torch.allclose(there.next_log_probs([PROMPT]), rows(model, [PROMPT]), atol=1e-6)


def test_rows_that_do_not_fit_together_are_read_in_halves(model, tmp_path):
    there = engine(model, tmp_path, FIRST_CELLS)
    texts = [(row, *PROMPT * 5) for row in range(VOCAB)]  # 201 tokens each
    assert torch.allclose(there.next_log_probs(texts), rows(model, texts), atol=1e-6)
    assert model.largest == FIRST_CELLS


def test_where_memory_ends_what_there_is_is_used(model, tmp_path):
    there = engine(model, tmp_path, 10**6)
    model.most_cells = FIRST_CELLS
    texts = [(row, *PROMPT * 5) for row in range(VOCAB)]
    assert torch.allclose(there.next_log_probs(texts), rows(model, texts), atol=1e-6)
    with pytest.raises(CannotScore, match="600 tokens"):
        there.next_log_probs([(1,) * 600])


def test_the_machine_is_asked_before_a_context_grows(model, tmp_path, monkeypatch):
    there = engine(model, tmp_path, 10**6)
    monkeypatch.setattr(llamacpp, "free_bytes", lambda device: 0)
    texts = [(row, *PROMPT * 5) for row in range(VOCAB)]
    assert torch.allclose(there.next_log_probs(texts), rows(model, texts), atol=1e-6)
    assert model.largest == FIRST_CELLS


def test_no_memory_at_all(model, tmp_path):
    model.most_cells = FIRST_CELLS - 1
    with pytest.raises(CannotScore, match="no memory for the keys and values of 512 tokens"):
        engine(model, tmp_path)


def test_memory_is_given_back(model, tmp_path):
    there = engine(model, tmp_path)
    there.next_log_probs([tuple(i % VOCAB for i in range(2 * FIRST_CELLS))])
    assert model.contexts == 1  # the smaller one is gone
    del there
    assert model.contexts == 0


# Broken off, failing, and by many at once.


@pytest.mark.parametrize("call", [1, 2, 3])
@pytest.mark.parametrize("how", [KeyboardInterrupt, -3, 2])
def test_what_is_broken_off_leaves_nothing_behind(model, tmp_path, call, how):
    there = engine(model, tmp_path)
    texts = [(row, *(PROMPT * 2)) for row in range(5)]
    there.next_log_probs([texts[2][:60]])

    def stop() -> None:
        if model.calls + 1 == first + call:
            raise how

    first = model.calls
    if isinstance(how, int):
        model.fails[first + call] = how
        with pytest.raises(EngineError, match=rf"llama_decode returned {how}"):
            there.next_log_probs(texts)
    else:
        model.before = stop
        with pytest.raises(how):
            there.next_log_probs(texts)
        model.before = lambda: None
    assert sorted(there._cells._free + list(there._cells.read.values())) == list(range(SEQUENCES))
    assert torch.allclose(there.next_log_probs(texts), rows(model, texts), atol=1e-6)


@pytest.mark.parametrize("plainly", [False, True])
def test_broken_off_while_a_context_is_exchanged(model, tmp_path, monkeypatch, plainly):
    there = engine(model, tmp_path)
    there.next_log_probs([PROMPT])

    def stop(*_) -> None:
        raise KeyboardInterrupt

    long = tuple(i % VOCAB for i in range(2 * FIRST_CELLS))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(llamacpp, "Cells", stop)
        there.next_log_probs([long])
    if plainly:
        assert there.plain_scores([long], [(1,)]) == [pytest.approx(plain(model, long, (1,)), abs=1e-5)]
    assert torch.allclose(there.next_log_probs([long]), rows(model, [long]), atol=1e-6)


def test_ids_that_do_not_exist(model, tmp_path):
    there = engine(model, tmp_path)
    with pytest.raises(EngineError, match="llama_decode returned -1"):
        there.next_log_probs([(1, VOCAB)])
    assert torch.allclose(there.next_log_probs([PROMPT]), rows(model, [PROMPT]), atol=1e-6)


def test_a_run_can_be_stopped_between_calls(model, tmp_path):
    there = engine(model, tmp_path)
    looks = iter(range(2))

    def check() -> None:
        if next(looks, None) is None:
            raise KeyboardInterrupt

    long = tuple(i % VOCAB for i in range(3 * TOKENS))
    with watched(check), pytest.raises(KeyboardInterrupt):
        there.next_log_probs([long])
    assert model.decoded == 2 * TOKENS
    assert torch.allclose(there.next_log_probs([long]), rows(model, [long]), atol=1e-6)


def test_threads_wait_for_each_other(tmp_path):
    model, inside = stubs.drawn(VOCAB), threading.Lock()

    def alone() -> None:
        assert inside.acquire(blocking=False), "two threads in one context"
        inside.release()

    model.before = alone
    there = engine(model, tmp_path)
    texts = [[(*PROMPT, row, step, row) for row in range(VOCAB)] for step in range(VOCAB)]
    with ThreadPoolExecutor(4) as pool:
        for asked, found in zip(4 * texts, pool.map(there.next_log_probs, 4 * texts), strict=True):
            assert torch.allclose(found, rows(model, asked), atol=1e-6)


# Opening.


def test_a_contradiction_is_found(tmp_path):
    """A context whose copies lose what they copy."""
    model = stubs.drawn(VOCAB)
    lossy = copy.copy(STUB)
    lossy.llama_decode = lambda context, batch: _forgetful(context, batch)

    def _forgetful(context, batch):
        status = STUB.llama_decode(context, batch)
        if any(cell is not None and len(cell[2]) > 1 for cell in context.cells):
            context.out[:] = torch.randn(context.out.shape).numpy() * 9
        return status

    with installed(lossy), pytest.raises(EngineError, match=r"differ from plain ones by .* \(allowed: 1\)"):
        llamacpp.open_file(str(lossy.file(tmp_path, model)))
    assert stubs.opened(model, tmp_path).differences["scores"] < 1e-5


def test_it_says_what_it_is(model, tmp_path):
    there = stubs.opened(model, tmp_path, threads=3)
    assert there.prompted((1,)).info == there.info
    assert (there.info.architecture, there.info.context, there.context) == ("stub", 4_096, 4_096)
    assert (there.info.threads, there.info.origin.provenance) == ("3", "A stub")
    assert "llama.cpp with stub" in repr(there)


def test_the_tokenizer_outlives_the_model_and_travels(model, tmp_path):
    tokenizer = stubs.opened(model, tmp_path).tokenizer
    assert model.contexts == 0
    assert tokenizer.encode("abc") == [0, 1, 2]
    with installed(STUB):
        again = pickle.loads(pickle.dumps(tokenizer))
        assert again.encode("cab") == [2, 0, 1] and again == tokenizer


def test_not_installed(tmp_path, model):
    file = STUB.file(tmp_path, model)
    with installed(None), pytest.raises(MissingExtra, match=r"pip install 'locore\[llamacpp\]'"):
        load(f"llamacpp:{file}")


def test_too_old(tmp_path, model):
    file = STUB.file(tmp_path, model)
    old = SimpleNamespace(__version__="0.2.90", llama_context_params=object)
    with installed(old), pytest.raises(EngineError, match=r"0\.2\.90 is too old: pip install 'llama-cpp-python>=0\.3\.36'"):
        load(f"llamacpp:{file}")


def test_a_library_that_does_not_start(tmp_path, model, monkeypatch):
    file = STUB.file(tmp_path, model)

    def fail(name: str) -> None:
        raise RuntimeError("Failed to load shared library 'libllama.so'")

    with installed(STUB), pytest.raises(EngineError, match="llama-cpp-python does not start: Failed to load"):
        monkeypatch.setattr(llamacpp_vocabulary, "import_module", fail)
        load(f"llamacpp:{file}")


# What transformers does not read.


def stretched(folder: Path) -> Path:
    gguf_files = pytest.importorskip("tests.models.gguf_files", reason="the extra gguf is not installed")
    return gguf_files.write_gguf(folder / "stretched.gguf", gguf_files.random_weights(), llama__rope__scaling__type="yarn")


def test_what_transformers_does_not_read_is_left_to_llama_cpp(tmp_path, monkeypatch):
    file = stretched(tmp_path)
    monkeypatch.setattr(by_name, "find_spec", lambda name: None)
    with pytest.raises(ModelNotFound, match=r"stretches positions .* let llama\.cpp read it: pip install 'locore\[llamacpp\]'"):
        load(file)
    with pytest.raises(ModelNotFound, match=r"stretches positions .* takes no option device, dtype\."):
        load(file, device="cpu", dtype=torch.float32)
    asked = []
    monkeypatch.setattr(by_name, "find_spec", lambda name: "is there")
    monkeypatch.setattr(llamacpp, "open_file", lambda name, **options: asked.append((name, options)))
    load(file, threads=2)
    assert asked == [(str(file), {"threads": 2})]


# Other models, other options, other files.


OTHERS = [
    ({"kinds": ("recurrent",)}, CannotScore, "reads with a state, not with keys and values alone"),
    ({"kinds": ("hybrid",)}, CannotScore, "a state"),
    ({"kinds": ("diffusion",)}, CannotScore, "noise"),
    ({"kinds": ("encoder",)}, CannotScore, "an encoder"),
    ({"memory": False}, CannotScore, "decoder-only"),
]


@pytest.mark.parametrize(("facts", "error", "message"), OTHERS)
def test_models_that_cannot_be_shared(tmp_path, facts, error, message):
    model = stubs.drawn(VOCAB, **facts)
    with pytest.raises(error, match=message):
        stubs.opened(model, tmp_path)
    assert model.contexts == 0


OPTIONS = [
    ({"threads": 0}, "threads is 0"),
    ({"memory_bytes": 0}, "memory_bytes is 0"),
    ({"memory_bytes": CELL * FIRST_CELLS - 1}, r"room for 512 tokens, 8,192 bytes"),
    ({"device": "cuda"}, "no option device, only threads, memory_bytes, tolerance"),
    ({"tolerance": 0}, "tolerance"),
]


@pytest.mark.parametrize(("options", "message"), OPTIONS)
def test_options_that_do_not_fit(model, tmp_path, options, message):
    with pytest.raises(InvalidArgument, match=message):
        stubs.opened(model, tmp_path, **options)


def test_files_that_are_none(tmp_path):
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF nothing")
    text = tmp_path / "text.gguf"
    text.write_text("no")
    with installed(STUB):
        for path, message in (
            (damaged, r"the file is damaged\. Get the file again"),
            (text, "GGUF"),
            (tmp_path / "none.gguf", "no file"),
        ):
            with pytest.raises(ModelNotFound, match=message):
                load(f"llamacpp:{path}")
        with pytest.raises(ModelNotFound, match="no GGUF file"):
            load("llamacpp:tiny")


def test_samplers_on_it(tmp_path):
    """The evidence is that of the model, by enumeration."""
    model = stubs.opened(stubs.saying(zoo.markov(()), ends=(4, 5)), tmp_path)
    every = zoo.all_sequences(6, 3)
    truth = zoo.markov().prompted((0,)).score(every).exp()[(every == 2).any(-1)].sum()
    for sampler in ("exact", "swor"):
        p = locore.generate(model, (0,), locore.contains_tokens([[2]]), 3, num_particles=200, sampler=sampler, seed=0)
        assert p.log_evidence == pytest.approx(float(truth.log()), abs=1e-4)
