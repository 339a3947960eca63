"""Requests that meet for a forward pass get what they get alone."""

import threading
import time
from contextlib import nullcontext, suppress

import pytest
import torch

from locore.kernel.errors import CannotScore, Interrupted
from locore.kernel.limits import watched
from locore.kernel.models.language_model import LanguageModel
from locore.models import HuggingFaceModel, joined, meeting
from locore.models.attention import Tails
from locore.models.joined import Part
from locore.models.meeting import Meeting, together

from . import zoo

JOINING = [name for name, (*_, shares) in zoo.ARCHITECTURES.items() if shares]
PROMPTS = ((1, 7, 3), (2,), (5, 5, 5, 1, 0, 4))


def run_beside(given, work) -> None:
    """A thread for each of these."""
    threads = [threading.Thread(target=work, args=(one,), daemon=True) for one in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def parts_of(model: HuggingFaceModel, rows=(3, 1, 4)) -> list[Part]:
    """Rows behind prompts of different lengths."""
    found = []
    for prompt, num in zip(PROMPTS, rows, strict=True):
        tokens = torch.arange(num) % model.vocab_size
        found.append(Part(model.prompted(prompt).prompt_keys, Tails.empty(num, model.causal.device), tokens))
    return found


@pytest.mark.parametrize("gathered", [joined.GATHERED_BYTES, 0], ids=["all rows together", "prompt by prompt"])
@pytest.mark.parametrize("architecture", JOINING)
def test_rows_behind_different_prompts_share_a_pass(architecture, gathered, monkeypatch):
    monkeypatch.setattr(joined, "GATHERED_BYTES", gathered)
    model = zoo.huggingface(architecture, eos_ids=())
    if not model.causal.joins:
        pytest.skip(f"{architecture} is told no positions")
    parts = parts_of(model)
    for _ in range(10):  # more than make a block of steps
        alone = [model.causal.next_step(part.prompt, part.tails, part.tokens) for part in parts]
        met = model.causal.next_steps(parts)
        for one, other in zip(alone, met, strict=True):
            torch.testing.assert_close(one[0], other[0], rtol=0, atol=1e-4)
        # The rows change places, and one of them stops.
        tails = [part.tails.then(step) for part, (_, step) in zip(parts, met, strict=True)]
        orders = [torch.arange(len(part)).flip(0)[: max(1, len(part) - 1)] for part in parts]
        parts = [Part(p.prompt, t.rows(order), p.tokens[order]) for p, t, order in zip(parts, tails, orders, strict=True)]


def test_most_architectures_join():
    assert sum(zoo.huggingface(name, eos_ids=()).causal.joins for name in JOINING) >= len(JOINING) // 2


def test_a_model_that_cannot_join_says_so():
    name = next(name for name, (*_, shares) in zoo.ARCHITECTURES.items() if not shares)
    with pytest.raises(CannotScore, match="several prompts"):
        Meeting(zoo.huggingface(name, eos_ids=()))


def walks(model: HuggingFaceModel, meeting: Meeting, lengths: list[int]) -> list[torch.Tensor]:
    """The last distribution of a walk of each length, in threads that meet."""
    found: list[torch.Tensor | None] = [None] * len(lengths)
    ready = threading.Barrier(len(lengths))

    def walk(number: int) -> None:
        with meeting.attended():
            ready.wait()
            cursor = meeting.model.prompted(PROMPTS[number % 3]).begin(2)
            for step in range(lengths[number]):
                cursor = cursor.advance(torch.tensor([step % zoo.VOCAB, number % zoo.VOCAB]))
            found[number] = cursor.log_probs

    run_beside(range(len(lengths)), walk)
    return [one for one in found if one is not None]


def test_requests_of_different_lengths_come_and_go():
    model = zoo.double_llama()
    meeting = Meeting(model)
    lengths = [5, 1, 9, 3, 0, 7]
    found = walks(model, meeting, lengths)
    assert len(found) == len(lengths)
    assert meeting.passes == max(lengths)  # everyone who is still there is in each
    assert meeting.rows == 2 * sum(lengths)
    for number, length in enumerate(lengths):
        cursor = model.prompted(PROMPTS[number % 3]).begin(2)
        for step in range(length):
            cursor = cursor.advance(torch.tensor([step % zoo.VOCAB, number % zoo.VOCAB]))
        torch.testing.assert_close(found[number], cursor.log_probs)


def test_what_does_not_fit_is_read_in_parts(monkeypatch):
    model = zoo.double_llama()
    meeting = Meeting(model)
    monkeypatch.setattr(model.causal, "memory_bytes", 1)
    assert len(walks(model, meeting, [3, 3])) == 2
    assert meeting.passes == 6


def test_without_memory_for_all_each_is_read_alone(monkeypatch):
    model = zoo.double_llama()
    parts = parts_of(model)
    expected = [model.causal.next_step(part.prompt, part.tails, part.tokens)[0] for part in parts]

    def fails(parts):
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(model.causal, "_joined_steps", fails)
    for one, other in zip(model.causal.next_steps(parts), expected, strict=True):
        torch.testing.assert_close(one[0], other)


def test_a_failure_reaches_everyone_and_leaves_nobody_waiting(monkeypatch):
    model = zoo.double_llama()
    meeting, seen = Meeting(model), []

    def fails(parts):
        raise ValueError("broken")

    monkeypatch.setattr(model.causal, "next_steps", fails)

    def ask(number: int) -> None:
        with meeting.attended():
            ready.wait()
            try:
                meeting.model.prompted(PROMPTS[number]).begin(1).advance(torch.tensor([0]))
            except ValueError as error:
                seen.append(str(error))

    ready = threading.Barrier(3)
    run_beside(range(3), ask)
    assert seen == ["broken"] * 3


def test_who_waits_when_it_is_closed_is_sent_away():
    model = zoo.double_llama()
    meeting, seen, inside = Meeting(model), [], threading.Event()

    def ask() -> None:
        with meeting.attended():
            inside.set()
            try:
                meeting.model.prompted(PROMPTS[0]).begin(1).advance(torch.tensor([0]))
            except Interrupted as error:
                seen.append(error)

    with meeting.attended():  # who never asks for anything
        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        assert inside.wait(60)
        meeting.close()
        thread.join(60)
    assert len(seen) == 1


def test_who_wants_no_more_leaves_nothing_behind():
    model, begun = zoo.double_llama(), []

    def call(number):
        def walk(used: LanguageModel) -> int:
            begun.append(number)
            cursor = used.prompted(PROMPTS[number % 3]).begin(1)
            for step in range(5):
                cursor = cursor.advance(torch.tensor([step]))
            return number

        return walk

    answers = together(model, (call(number) for number in range(1000)), 4)
    assert [next(answers) for _ in range(6)] == list(range(6))
    answers.close()
    assert len(begun) <= 6 + 2 * 4 + 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("locore")]


def test_a_failure_ends_the_others():
    def call(number):
        def walk(used: LanguageModel) -> int:
            cursor = used.prompted(PROMPTS[number % 3]).begin(1)
            for step in range(3):
                cursor = cursor.advance(torch.tensor([step]))
            if number == 2:
                raise KeyboardInterrupt
            return number

        return walk

    with pytest.raises(KeyboardInterrupt):
        list(together(zoo.double_llama(), (call(number) for number in range(50)), 4))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("locore")]


@pytest.mark.parametrize("most_rows", [2, 5, 100])
def test_a_pass_has_so_many_rows_and_everybody_gets_the_same(most_rows):
    """Threads with one to six rows; patience of nearly nothing, so that passes are of whoever is there."""
    name = next(name for name in JOINING if zoo.huggingface(name, eos_ids=()).causal.joins)
    model = zoo.huggingface(name, eos_ids=())
    meeting = Meeting(model, patience=0.01, most_rows=most_rows)
    found: dict[int, torch.Tensor] = {}

    def walk(used: LanguageModel, num: int) -> torch.Tensor:
        cursor = used.prompted(PROMPTS[num % 3]).begin(num)
        for step in range(4):
            cursor = cursor.advance((torch.arange(num) + step) % model.vocab_size)
        return cursor.log_probs

    def attend(num: int) -> None:
        with meeting.attended():
            found[num] = walk(meeting.model, num)

    run_beside(range(1, 7), attend)
    assert meeting.rows <= meeting.passes * most_rows
    for num in range(1, 7):
        torch.testing.assert_close(found[num], walk(model, num), rtol=0, atol=1e-4)


def test_where_batches_are_exact_each_has_the_bits_that_it_has_alone():
    """Whoever is there, of one owner or of several."""
    name = next(name for name in JOINING if zoo.huggingface(name, eos_ids=()).causal.joins)
    model = zoo.huggingface(name, eos_ids=())

    def found(numbers: range, exact: bool) -> dict[int, torch.Tensor]:
        meeting, kept = Meeting(model, 10.0, most_rows=4, exact=exact), {}

        def attend(num: int) -> None:
            with meeting.attended(num % 3):
                cursor = meeting.model.prompted(PROMPTS[num % 3]).begin(num)
                for step in range(6):
                    cursor = cursor.advance((torch.arange(num) + step) % model.vocab_size)
                kept[num] = cursor.log_probs

        run_beside(numbers, attend)
        return kept

    together = found(range(1, 9), exact=True)
    for num in range(1, 9):
        alone = found(range(num, num + 1), exact=True)[num]
        assert torch.equal(alone, together[num])


def test_beside_others_a_large_request_is_read_in_pieces_and_holds_up_no_small_one():
    """Both are read in the same passes; the small one has all its rows long before the large one has."""
    name = next(name for name in JOINING if zoo.huggingface(name, eos_ids=()).causal.joins)
    model = zoo.huggingface(name, eos_ids=())
    meeting, ends = Meeting(model, patience=10.0, most_rows=8), []
    ready = threading.Barrier(2)

    def attend(num: int, steps: int) -> None:
        with meeting.attended(num):
            ready.wait(60)
            cursor = meeting.model.prompted(PROMPTS[num % 3]).begin(num)
            for step in range(steps):
                cursor = cursor.advance((torch.arange(num) + step) % model.vocab_size)
            ends.append((num, meeting.passes))

    run_beside(((1, 3), (64, 3)), lambda args: attend(*args))
    (small, few), (large, all_passes) = ends
    assert (small, large) == (1, 64) and few <= 8 < 20 <= all_passes


def test_rows_are_shared_by_owner_however_many_requests_one_has():
    """Of two owners who always want rows neither has had many more than the other, though one has six threads."""
    name = next(name for name in JOINING if zoo.huggingface(name, eos_ids=()).causal.joins)
    model = zoo.huggingface(name, eos_ids=())
    meeting, seen = Meeting(model, patience=10.0, most_rows=4), []
    ready = threading.Barrier(7)

    def attend(owner: str) -> None:
        with meeting.attended(owner):
            ready.wait(60)
            cursor = meeting.model.prompted(PROMPTS[0]).begin(4)
            for step in range(6):
                cursor = cursor.advance((torch.arange(4) + step) % model.vocab_size)
            seen.append((owner, meeting.rows))

    run_beside(["many"] * 6 + ["one"], attend)
    rows = dict(seen)["one"]
    assert rows <= 3 * 24, seen  # it wanted 24; of 168 in all it would have been among the last


def test_one_thread_computes_at_a_time(monkeypatch):
    monkeypatch.setattr(meeting, "TURN", 60.0)
    turns, inside, most = meeting._Turns(), [], []

    def work(number: int) -> None:
        for _ in range(50):
            turns.take()
            inside.append(number)
            time.sleep(1e-5)
            most.append(len(inside))
            inside.remove(number)
            turns.give()

    run_beside(range(8), work)
    assert len(most) == 400 and max(most) == 1


def test_nobody_waits_long_for_a_thread_that_computes_on_and_on():
    turns, done = meeting._Turns(), []
    turns.take()  # and never gives
    run_beside(range(8), lambda number: (turns.take(), done.append(number), turns.give()))
    assert sorted(done) == list(range(8))


def test_a_turn_ends_with_the_thread_that_has_it(monkeypatch):
    """Stopped, finished, held back, or never there: what comes next has to wait for nobody."""
    monkeypatch.setattr(meeting, "TURN", 60.0)
    model = zoo.double_llama()
    met = Meeting(model)

    def work(number: int) -> None:
        stops = iter([False] * 9 + [True] * 99)

        def check() -> None:
            if number == 2 and next(stops):
                raise Interrupted("enough")

        with nullcontext() if number == 0 else met.attended(), watched(check), suppress(Interrupted):
            cursor = met.model.prompted(PROMPTS[number % 3]).begin(2)
            for _ in range(6):
                with met.missed():
                    pass
                cursor = cursor.advance(torch.zeros(2, dtype=torch.long))
            with met.missed():
                pass

    for number in range(3):
        run_beside([number], work)
        assert met._turns._whose == 0
    run_beside(range(4), work)
    assert met._turns._whose == 0


def test_a_stranger_waits_for_nobodys_turn(monkeypatch):
    """One owner's thread computes for as long as the other's needs for all its steps."""
    monkeypatch.setattr(meeting, "TURN", 60.0)
    met, there, over = Meeting(zoo.double_llama(), patience=0.01), threading.Event(), threading.Event()

    def work(number: int) -> None:
        if number == 0:
            with met.attended("one"):
                there.set()
                assert over.wait(30)
            return
        assert there.wait(30)
        with met.attended("other"):
            cursor = met.model.prompted(PROMPTS[0]).begin(2)
            for _ in range(3):
                cursor = cursor.advance(torch.zeros(2, dtype=torch.long))
        over.set()

    run_beside(range(2), work)
    assert over.is_set() and met._turns._whose == 0


def test_who_stops_one_thread_does_not_stop_the_others():
    name = next(name for name in JOINING if zoo.huggingface(name, eos_ids=()).causal.joins)
    model = zoo.huggingface(name, eos_ids=())
    meeting, stop, ends = Meeting(model, patience=0.01), threading.Event(), []

    class Stopped(BaseException):
        pass

    def check() -> None:
        if stop.is_set():
            raise Stopped

    def attend(number: int) -> None:
        with watched(check if number == 0 else None), meeting.attended():
            cursor = meeting.model.prompted(PROMPTS[number % 3]).begin(2)
            try:
                for step in range(8):
                    if number == 0 and step == 5:
                        stop.set()
                    cursor = cursor.advance(torch.tensor([step % model.vocab_size] * 2))
                ends.append(number)
            except Stopped:
                ends.append("stopped")

    run_beside(range(4), attend)
    assert sorted(map(str, ends)) == ["1", "2", "3", "stopped"]
