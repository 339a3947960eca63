"""Spoken digits: the voice, the recogniser, what is known of a text, and that its posterior is what it should be."""

from __future__ import annotations

import datetime

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from locore_lab.bench.spoken import LENGTH, binned, dates, errors, kinds, least_errors, masks, written
from locore_lab.spoken.recogniser import END, FRAMES, START, TOKENIZER, features, recogniser
from locore_lab.spoken.voice import spoken, with_noise
from numpy.random import default_rng

import locore
from locore.models import EncoderDecoder

texts = st.text("0123", max_size=6)


@pytest.fixture(scope="module")
def module():
    return recogniser()


def test_a_seed_says_the_same_and_another_does_not():
    one, same, other = (spoken("4071", default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert len(one) != len(other) or not np.allclose(one, other)
    assert np.sqrt(np.mean(one**2)) == pytest.approx(1)


def test_noise_is_as_loud_as_it_is_said_to_be():
    wave = spoken("29", default_rng(0))
    for decibels in (6.0, -3.0):
        noise = with_noise(wave, decibels, default_rng(1)) - wave
        assert -20 * np.log10(np.sqrt(np.mean(noise**2))) == pytest.approx(decibels)


def test_it_hears_what_is_said_when_it_is_quiet(module):
    """Far beyond chance, which gets one digit in ten."""
    chance, wrong = default_rng(5), 0
    for _ in range(8):
        text = kinds()["eight digits"].draw(chance)
        heard = features(with_noise(spoken(text, chance), 20.0, chance))[None]
        wrong += errors(written(module, heard, None, 1)[0], text)
    assert heard.shape[-1] == FRAMES
    assert wrong <= 0.15 * 64


def test_the_posterior_is_that_of_all_texts(module):
    """Of a list, each scored by one pass of the whole network."""
    chance = default_rng(3)
    listed = [f"{number:08d}" for number in chance.choice(10**8, 40, replace=False)]
    heard = features(with_noise(spoken(listed[0], chance), -6.0, chance))[None]
    model = EncoderDecoder.of(module, TOKENIZER, input_features=heard)
    rows = torch.tensor([[*map(int, text), END] for text in listed])
    before = torch.cat([torch.full((40, 1), START), rows[:, :-1]], 1)
    logits = module(input_features=heard.expand(40, -1, -1), decoder_input_ids=before).logits
    shares = logits.log_softmax(-1).gather(2, rows[..., None])[..., 0].double().sum(1).softmax(0)
    p = locore.generate(model, "", locore.choice(listed), LENGTH, sampler="exact", num_particles=40, ending="eos")
    assert [p.posterior()[text] for text in listed] == pytest.approx(shares.tolist(), abs=1e-5)


def test_what_is_known_holds_of_what_is_said():
    chance = default_rng(0)
    circuits = {name: locore.compile(kind.constraint, TOKENIZER, LENGTH) for name, kind in kinds().items()}
    for name, circuit in circuits.items():
        rows = [[*map(int, kinds()[name].draw(chance)), END, END] for _ in range(5)]
        assert bool(circuit.accepts(torch.tensor(rows)).all()), name
    assert circuits["EAN-8"].count() == 10**7 and circuits["one of 1,000"].count() == 1000
    days = (datetime.date(2030, 1, 1) - datetime.date(1920, 1, 1)).days
    assert len(set(dates())) == days and "29022000" in dates() and "29022001" not in dates()


def test_masks_allow_what_can_still_be_completed():
    allowed = masks(locore.choice(["12345678", "12399999"]))
    assert allowed(0, torch.tensor([START])) == [1]
    assert allowed(0, torch.tensor([START, 1, 2, 3])) == [4, 9]
    assert allowed(0, torch.tensor([START, 1, 2, 3, 9, 9, 9, 9, 9])) == [END]


@settings(max_examples=50)
@given(texts, texts, texts)
def test_errors_are_a_distance(a, b, c):
    assert errors(a, b) == errors(b, a) <= max(len(a), len(b))
    assert (errors(a, b) == 0) == (a == b)
    assert errors(a, c) <= errors(a, b) + errors(b, c)


def test_errors_by_hand():
    assert errors("1234", "234") == errors("234", "2134") == errors("1234", "1934") == 1
    assert errors("", "123") == 3


def test_the_fewest_errors_are_not_those_of_the_most_probable_text():
    assert least_errors({"111": 0.4, "222": 0.35, "223": 0.25}) == "222"
    assert least_errors({"111": 0.7, "222": 0.3}) == "111"


def test_bins_by_hand():
    assert binned([(0.5, 0), (0.6, 1), (0.7, 0), (0.8, 1)], 0.5, 0.7) == {"strings": 2, "mean": 65.0, "right": 50.0}
    assert binned([], 0.5, 0.7)["right"] is None
