"""What movers type by mistake is answered with what they meant, before anything is computed."""

import inspect

import pytest

import locore
from locore.kernel.errors import CannotScore, InvalidArgument
from locore.models import Tempered

from .models import zoo

C = locore.contains_tokens([[4]])


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("max_tokens", "max_new_tokens"),
        ("n", "num_particles"),
        ("repetition_penalty", "no density"),
        ("stop_strings", "did you mean stop"),
        ("num_particle", "did you mean num_particles"),
        ("sampelr", "did you mean sampler"),
        ("zzz", "there are model, prompt, constraint, max_new_tokens"),
    ],
)
def test_an_argument_that_is_not_known_is_told_what_was_meant(slip, meant):
    with pytest.raises(InvalidArgument, match=f"generate has no argument '{slip}'.*{meant}"):
        locore.generate(zoo.huggingface(), (1,), C, **{slip: 3})
    meant = meant.replace("model, prompt, constraint, ", "")
    with pytest.raises(InvalidArgument, match=f"generate_many has no argument '{slip}'.*{meant}"):
        locore.generate_many(zoo.huggingface(), [(1,)], C, errors="return", **{slip: 3})


def test_the_signature_stays():
    names = list(inspect.signature(locore.generate).parameters)
    assert names[:4] == ["model", "prompt", "constraint", "max_new_tokens"] and "options" not in names


def test_many_takes_the_horizon_where_one_does():
    model = zoo.huggingface(eos_ids=())
    by_place = locore.generate_many(model, [(1,), (2,)], C, 3, seed=0, sampler="smc")
    by_name = locore.generate_many(model, [(1,), (2,)], C, max_new_tokens=3, seed=0, sampler="smc")
    assert [p.tokens.tolist() for p in by_place] == [p.tokens.tolist() for p in by_name]
    assert all(p.tokens.shape[1] == 3 for p in by_place)


@pytest.mark.parametrize("sampler", ["auto", "masked", "exact", "lcr"])
def test_a_horizon_beyond_the_context_is_refused_before_anything_is_compiled(sampler, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("compiled")

    monkeypatch.setattr("locore.answering.compile", refuse)
    for model in (zoo.huggingface(), Tempered(zoo.huggingface(), 0.5)):
        with pytest.raises(CannotScore, match="the context of this model ends at 32"):
            locore.generate(model, (1, 2), C, 31, sampler=sampler)
        with pytest.raises(AssertionError, match="compiled"):
            locore.generate(model, (1, 2), C, 27, sampler=sampler)
