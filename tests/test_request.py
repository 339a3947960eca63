"""One record says what may be asked for, and every face agrees with it."""

import inspect
from dataclasses import fields
from importlib.metadata import EntryPoint

import numpy as np
import pytest

import locore
from locore.batch.batch_settings import Settings
from locore.kernel.errors import InvalidArgument
from locore.kernel.limits import Limits
from locore.kernel.request import Request, help_of
from locore.samplers import BY_NAME, Rejection, register, sampler_by_name


def test_generate_has_the_options_of_a_request_with_their_defaults():
    options = {option.name: option for option in list(inspect.signature(locore.generate).parameters.values())[3:]}
    assert [options.pop(name).default for name in ("timeout", "progress")] == [None, None]
    assert options.keys() == {option.name for option in fields(Request)}
    assert options.pop("limits").default is None and Request().limits == Limits()
    assert {name: option.default for name, option in options.items()} == {name: getattr(Request, name) for name in options}


def test_every_option_has_help():
    assert all(help_of(option.name) for option in fields(Request))


@pytest.mark.parametrize(
    ("slip", "meant"), [("twistd", "twisted"), ("mask", "masked"), ("SMC", "smc"), ("best_first", "best-first")]
)
def test_a_sampler_that_is_not_known_is_told_what_was_meant(slip, meant):
    with pytest.raises(InvalidArgument, match=f"unknown sampler '{slip}'; did you mean '{meant}'"):
        sampler_by_name(slip)


def test_each_sampler_reports_the_name_that_it_is_called_by():
    assert {name: sampler.name for name, sampler in BY_NAME.items()} == {name: name for name in BY_NAME}


def test_a_sampler_of_another_distribution_has_a_name(monkeypatch):
    """By `register`, or by an entry point that is looked for when the name is asked for."""
    mine = Rejection(name="mine")
    monkeypatch.setattr(locore.samplers.BY_NAME, "_samplers", dict(locore.samplers.BY_NAME._samplers))
    with pytest.raises(InvalidArgument, match="unknown sampler 'mine'"):
        sampler_by_name("mine")
    register("mine", mine)
    assert sampler_by_name("mine") is mine and "mine" in BY_NAME and len(BY_NAME) == len(list(BY_NAME))
    register("mine", mine)  # twice is once
    with pytest.raises(InvalidArgument, match="already"):
        register("mine", Rejection())
    with pytest.raises(InvalidArgument, match="already"):
        register("smc", mine)
    point = EntryPoint("yours", "locore.samplers:SequentialMonteCarlo", "locore.samplers")
    monkeypatch.setattr(locore.samplers, "entry_points", lambda group, name: [point] if name == point.name else [])
    assert sampler_by_name("yours").name == "smc"


@pytest.mark.parametrize("kind", [Request, Settings])
@pytest.mark.parametrize(
    "wrong",
    [
        {"max_new_tokens": 0},
        {"min_new_tokens": -1},
        {"num_particles": True},
        {"num_particles": 2.0},
        {"budget": 0},
        {"seed": 2**63},
        {"temperature": 10**400},
        {"logit_bias": {1: 10**400}},
        {"canonical": "both"},
        {"ending": "never"},
        {"num_particles": 2**20, "max_new_tokens": 2**20},
    ],
)
def test_what_is_out_of_range_is_refused(kind, wrong):
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        kind(**wrong)


def test_strings_that_end_a_text_may_come_in_an_array():
    assert Request(stop=np.array(["\n", "."])).stop == ("\n", ".")
