"""Live requests of vLLM, on a stand-in with the interfaces of both of its model runners. A real one: test_vllm.py."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import locore
from locore import ends_with
from locore.kernel.errors import EngineError
from locore.kernel.limits import watched
from locore.models.engines.opening import open_engine
from locore.models.engines.vllm_local import VLLMLocal
from tests.effort import examples

from . import llamacpp_stub as stubs
from .vllm_stub import Row, vllm

VOCAB = 7
ROW = stubs.drawn(VOCAB).row
TEXT = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=8).map(tuple)
RUNNERS = pytest.mark.parametrize("runner", [1, 2])


@contextmanager
def local(runner: int, row: Row = ROW, context: int = 64) -> Iterator[VLLMLocal]:
    with vllm(row, runner, context):
        engine = VLLMLocal("tiny")
        assert engine.live is not None
        yield engine


def rows(texts: list[tuple[int, ...]]) -> torch.Tensor:
    return torch.stack([ROW(text).log_softmax(-1) for text in texts])


def work(engine: VLLMLocal, run: Callable[[], object]) -> tuple[int, int]:
    """Steps, and requests that are begun."""
    stub = engine.llm.llm_engine
    before = stub.steps, stub.begun
    run()
    return stub.steps - before[0], stub.begun - before[1]


@settings(max_examples=examples(40))
@given(
    runner=st.sampled_from([1, 2]),
    most=st.integers(1, 9),
    part=st.sampled_from([None, 1, 2]),
    asked=st.lists(
        st.tuples(st.lists(TEXT, max_size=6), st.lists(st.tuples(st.integers(0, 9), st.integers(0, VOCAB - 1)), max_size=9)),
        max_size=7,
    ),
    events=st.lists(st.sampled_from(["nothing", "scores", "set aside", "release"]), min_size=7, max_size=7),
)
def test_any_order_of_asking(runner, most, part, asked, events):
    """Continuing, branching, giving up, what else is asked between, few at a time, prompts in parts: the same numbers."""
    with local(runner) as engine:
        stub = engine.llm.llm_engine
        stub.most, stub.part = most, part if runner == 2 else None  # parts are switched off for the first
        texts: list[tuple[int, ...]] = []
        for (new, longer), event in zip(asked, events, strict=False):
            texts = [*new, *((*texts[at % len(texts)], token) for at, token in longer if texts)]
            if not texts:
                continue
            assert torch.allclose(engine.next_log_probs(texts), rows(texts), atol=1e-5)
            if event == "scores":
                expected = float(rows([texts[0]])[0, 3])
                assert engine.tail_scores([texts[0]], [(3,)]) == [[pytest.approx(expected, abs=1e-5)]]
            elif event == "set aside":
                stub.sets_aside = True
            elif event == "release":
                engine.live.release()
                assert not stub.running


@RUNNERS
def test_rows_that_go_on_read_one_token_each(runner):
    """One step and no new request, whatever the order; of two continuations the second is a new request."""
    with local(runner) as engine:
        texts = [(1, 2), (1, 3), (4, 4)]
        assert work(engine, lambda: engine.next_log_probs(texts)) == (1, 3)
        longer = [(4, 4, 0), (1, 2, 5), (1, 3, 5)]
        assert work(engine, lambda: engine.next_log_probs(longer)) == (1, 0)
        assert work(engine, lambda: engine.next_log_probs(longer[:2])) == (0, 0)  # they are known
        assert work(engine, lambda: engine.next_log_probs([(4, 4, 0, 1), (4, 4, 0, 2)])) == (1, 1)
        assert len(engine.llm.llm_engine.running) == 2  # the others were given up


@RUNNERS
def test_a_call_that_is_stopped_spoils_nothing(runner):
    with local(runner) as engine:
        engine.next_log_probs([(1, 2)])
        waits, goes = threading.Event(), threading.Event()
        stub = engine.llm.llm_engine
        stub.before = lambda: (waits.set(), goes.wait())

        def stop() -> None:
            if waits.is_set():
                raise TimeoutError

        with watched(stop), pytest.raises(TimeoutError):
            engine.next_log_probs([(1, 2, 3), (1, 2, 4)])
        goes.set()
        texts = [(1, 2, 3, 1), (1, 2, 3), (5,)]
        assert torch.allclose(engine.next_log_probs(texts), rows(texts), atol=1e-5)
        assert len(stub.running) == 3


@RUNNERS
def test_an_error_of_vllm_is_said_and_over(runner):
    with local(runner) as engine:
        engine.next_log_probs([(1, 2)])
        stub = engine.llm.llm_engine

        def fail() -> None:
            raise RuntimeError("no room for keys")

        stub.before = fail
        with pytest.raises(EngineError, match="no room for keys"):
            engine.next_log_probs([(1, 2, 3)])
        stub.before = lambda: None
        assert torch.allclose(engine.next_log_probs([(1, 2, 3)]), rows([(1, 2, 3)]), atol=1e-5)
        assert len(stub.running) == 1


@RUNNERS
def test_up_to_the_end_of_the_context(runner):
    with local(runner, context=5) as engine:
        for length in range(1, engine.context + 1):
            text = tuple(range(length))
            assert torch.allclose(engine.next_log_probs([text]), rows([text]), atol=1e-5)
        assert torch.allclose(engine.next_log_probs([(3, 3)]), rows([(3, 3)]), atol=1e-5)


@RUNNERS
def test_samplers_draw_what_they_draw_of_the_model_itself(runner):
    """The bundled model, in the stand-in and as it is; `masked` begins no request that a text does not need."""
    tiny = locore.load("tiny")

    @cache
    def logits(ids: tuple[int, ...]) -> torch.Tensor:
        return tiny.prompted(list(ids)).log_probs(torch.tensor([[0]]))[0, 0]

    with vllm(logits, runner, context=24):  # the check on opening reads texts as long as the context allows
        model = open_engine("vllm:tiny")
        for sampler in ("masked", "smc", "swor"):
            task = ("The weather is", ends_with(" happy."), 3)
            begun = model.engine.llm.llm_engine.begun
            there, here = (locore.generate(m, *task, num_particles=6, sampler=sampler, seed=3) for m in (model, tiny))
            assert torch.equal(there.tokens, here.tokens)
            assert torch.allclose(there.log_weights, here.log_weights, atol=1e-4)
            if sampler == "masked":
                assert model.engine.llm.llm_engine.begun - begun <= 6


def test_where_vllm_has_prompts_in_parts_or_is_elsewhere_rows_are_written():
    """The first runner cannot tell a part of a prompt from all of it; a process of its own hands nothing out."""
    from . import vllm_stub

    class Chunked(vllm_stub.Engine):
        def __init__(self, *given):
            super().__init__(*given)
            self.vllm_config.scheduler_config.enable_chunked_prefill = True

    class Elsewhere(vllm_stub.Engine):
        def _processed(self, logits, rows):
            return logits

    for kind in (Chunked, Elsewhere):
        with pytest.MonkeyPatch.context() as patch, vllm(ROW, 1):
            patch.setattr(vllm_stub, "Engine", kind)
            engine = VLLMLocal("tiny")
            assert engine.live is None
            assert torch.allclose(engine.next_log_probs([(1, 2), (3,)]), rows([(1, 2), (3,)]), atol=1e-5)


@RUNNERS
def test_no_speculative_decoding(runner):
    with vllm(ROW, runner):
        from types import SimpleNamespace

        from locore.models.engines.live import LiveRows

        with pytest.raises(ValueError, match="speculative"):
            LiveRows(SimpleNamespace(speculative_config=object()), None)


@RUNNERS
@pytest.mark.parametrize("waits", [True, False])
def test_what_nobody_has_any_more_is_freed(runner, waits):
    """The thread does not keep vLLM, in a step or between two."""
    with vllm(ROW, runner):
        engine = VLLMLocal("tiny")
        engine.next_log_probs([(1, 2)])
        if not waits:
            engine.live.release()
        thread, stub = engine.live._thread, weakref.ref(engine.llm.llm_engine)
        del engine
        gc.collect()
        thread.join(10)
        gc.collect()
        assert not thread.is_alive() and stub() is None
