"""As few threads as are not slower, and nobody's number is changed. No test looks at a clock: seconds are made up."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import locore
from locore.kernel.errors import InvalidArgument
from locore.models import hardware as module
from locore.models.hardware import LOOK_SECONDS, SMALL, WORTH, Chooser, measured, pass_seconds
from tests.effort import runs

MOST = 6
FREE = {1: 1.0, 2: 0.6, 4: 0.4, 6: 0.3}


@pytest.fixture
def machine(monkeypatch):
    """One of MOST cores where nothing was set, whose seconds are ours to say."""

    class Machine:
        seconds, now, taken, measured, threads = FREE, 0.0, False, 0, MOST

        def pass_seconds(self, module, number, most=float("inf")):
            self.measured += 1
            return self.seconds[number]

        def set(self, number):
            self.threads = number

    found = Machine()
    for name in module.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "physical_cores", lambda: {*map(str, range(MOST))})
    monkeypatch.setattr(module, "cores", lambda: {*range(MOST)})
    monkeypatch.setattr(module, "pass_seconds", found.pass_seconds)
    monkeypatch.setattr(module, "is_taken", lambda number: found.taken)
    monkeypatch.setattr(module.time, "monotonic", lambda: found.now)
    monkeypatch.setattr(torch, "set_num_threads", found.set)
    monkeypatch.setattr(torch, "get_num_threads", lambda: found.threads)
    return found


class Module:
    """As far as a choice goes."""

    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self, size=SMALL + 1):
        self.size = size

    def parameters(self):
        return [torch.empty(self.size, device="meta")]


def test_the_fewest_that_the_next_ones_do_not_beat(machine):
    rng = random.Random(0)
    for _ in range(runs(1000)):
        machine.seconds = {number: rng.choice([1.0, 0.5, 0.25, rng.uniform(0.1, 1.0)]) for number in FREE}
        numbers = list(machine.seconds)
        beaten = [machine.seconds[b] <= WORTH * machine.seconds[a] for a, b in pairwise(numbers)]
        expected = numbers[beaten.index(False)] if False in beaten else numbers[-1]
        assert measured(Module(), MOST).number == expected


def test_a_choice_is_measured_once_and_said(machine):
    chooser = Chooser()
    first = chooser.settle(Module())
    assert (first.number, machine.threads) == (6, 6)
    assert str(first) == "6, as fewer take 1.3 times as long"
    before = machine.measured
    assert chooser.settle(Module()) == first
    assert machine.measured == before
    assert str(chooser.settle(Module(SMALL))) == "1, as a model of this size gains nothing from more"
    assert (machine.measured, machine.threads) == (before, 1)


def test_what_the_user_has_set_stays(machine, monkeypatch):
    for name in module.VARIABLES:
        with monkeypatch.context() as context:
            context.setenv(name, "3")
            assert Chooser().settle(Module()) is None
    chooser = Chooser()
    machine.threads = 3  # torch.set_num_threads(3)
    assert chooser.settle(Module()) is None
    assert (machine.threads, machine.measured) == (3, 0)
    machine.threads = MOST
    assert chooser.settle(Module()).number == 6
    machine.threads = 5  # said after a model was loaded
    for _ in range(3):
        machine.now += LOOK_SECONDS + 1
        machine.taken = not machine.taken
        chooser.look()
    assert chooser.settle(Module()) is None
    assert machine.threads == 5


def test_a_number_that_was_asked_for_is_taken_and_stays(machine):
    chooser = Chooser()
    assert str(chooser.settle(Module(), 4)) == "4, as it was asked for"
    machine.taken = True
    chooser.look()
    assert (machine.threads, machine.measured) == (4, 0)
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(InvalidArgument, match="threads"):
            chooser.settle(Module(), wrong)


def test_one_computes_while_the_machine_is_taken(machine):
    chooser = Chooser()
    chooser.settle(Module())
    rng = random.Random(1)
    looked = None
    for _ in range(runs(400)):
        machine.taken = rng.random() < 0.5
        machine.now += rng.choice([0.1, 1.0, LOOK_SECONDS])
        if looked is None or machine.now >= looked + LOOK_SECONDS:
            looked, expected = machine.now, 1 if machine.taken else 6
        chooser.look()
        assert machine.threads == expected


def test_a_pass_is_left_where_it_takes_too_long():
    """And the module computes the same afterwards: no hook is left."""
    config = LlamaConfig(
        vocab_size=16, hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2
    )
    module = LlamaForCausalLM(config).eval()
    layers = []
    handle = module.model.layers[-1].register_forward_hook(lambda *_: layers.append(1))
    before = torch.get_num_threads()
    assert pass_seconds(module, before) > 0
    assert layers == [1]
    assert pass_seconds(module, before, most=0.0) > 0
    assert layers == [1]
    handle.remove()
    assert not any(part._forward_pre_hooks or part._forward_hooks for part in module.modules())


def test_load_and_the_shell_take_a_number(capsys):
    from locore.cli import main

    before = torch.get_num_threads()
    try:
        model = locore.load("tiny", threads=2)
        assert torch.get_num_threads() == 2
        assert "threads       2, as it was asked for" in str(model.info)
        asked = ["generate", "The", "--contains", "a", "--max-new-tokens", "3", "--seed", "1"]
        assert main([*asked, "--threads", "1"]) == 0
        assert torch.get_num_threads() == 1
        assert main([*asked, "--threads", "0"]) == 2
        assert "threads is 0" in capsys.readouterr().err
    finally:
        torch.set_num_threads(before)
        module.CHOOSER.__init__()
    with pytest.raises(InvalidArgument, match="threads"):
        locore.load("tiny", threads=0)
