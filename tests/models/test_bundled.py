"""`load` by name."""

from __future__ import annotations

import pytest

from locore.kernel.errors import ModelNotFound
from locore.models import load


def test_a_slip_of_the_finger_is_named_before_the_network_is_asked():
    with pytest.raises(ModelNotFound, match="did you mean 'tiny'"):
        load("tinyy")


def test_the_bundled_model_ends_its_texts_and_has_text():
    model = load("tiny")
    drafts = model.prompted("What the").sample(64, 30, seed=0)
    ends = (drafts.tokens == model.tokenizer.eos_ids[0]).any(-1)
    assert ends.double().mean() > 0.3  # a share of 0.6 or so; below 0.3 by chance once in a million
    assert model.full_support and model.tokenizer.decode(model.tokenizer.encode(" sunny")) == " sunny"
