"""The local law: its entropy, divergence and mass against enumeration; the command at toy size."""

from __future__ import annotations

import itertools

import pytest
import torch
from locore_lab.overview import command
from locore_lab.overview.command import drawn, fidelity, of_tokens, shown

import locore
from locore.constraints import token
from locore.local import Exact
from locore.models import TableModel

VOCAB, LENGTH, DRAWS, ERRORS = 4, 3, 20_000, 5.0  # five standard errors: one false alarm in 1.7 million


@pytest.fixture(scope="module")
def model():
    return TableModel.random(VOCAB, LENGTH, seed=3)


@pytest.fixture(scope="module")
def everything(model):
    return torch.tensor(list(itertools.product(range(VOCAB), repeat=LENGTH)))


@pytest.mark.parametrize("draft", [(0, 1, 2), (3, 3, 0)])
def test_entropy_divergence_and_mass_are_those_of_enumeration(model, everything, draft):
    draft = torch.tensor(draft)
    circuit = locore.compile(~token(1, 2), model, LENGTH)
    local = Exact(floor=0.0).distributions(model, draft[None])[0]
    found = fidelity(model, local, draft, circuit, DRAWS, seed=0)
    logs, scores = of_tokens(local, everything), model.score(everything).double()
    assert found.entropy == pytest.approx(-float((logs.exp() * logs).sum()), rel=1e-6)
    assert abs(found.divergence - float((logs.exp() * (logs - scores)).sum())) < ERRORS * found.error
    assert found.surprise == pytest.approx(-float(model.score(draft[None])))
    assert found.allowed == pytest.approx(float(logs[circuit.accepts(everything)].exp().sum()))


def test_draws_have_the_local_law(model):
    local = Exact(floor=0.0).distributions(model, torch.tensor([[0, 1, 2]]))[0]
    tokens = drawn(local, DRAWS, seed=1)
    for place in range(LENGTH):
        law, share = local[place].exp(), torch.bincount(tokens[:, place], minlength=VOCAB) / DRAWS
        assert bool(((share - law).abs() <= ERRORS * (law * (1 - law) / DRAWS).sqrt() + 1e-12).all())


def test_texts_stand_by_their_distance_and_none_that_is_likely_is_missing(model, everything):
    draft, circuit = torch.tensor([0, 1, 2]), locore.compile(~token(1, 2), model, LENGTH)
    texts, local = shown(model, Exact(floor=0.0), draft, circuit, DRAWS, 0.01, seed=2)
    assert texts.tokens[texts.draft].tolist() == draft.tolist() and texts.distance.tolist() == sorted(texts.distance.tolist())
    likely = torch.maximum(model.score(everything).double(), of_tokens(local, everything)).exp() >= 0.01
    assert {*map(tuple, everything[likely].tolist())} | {tuple(draft.tolist())} == {*map(tuple, texts.tokens.tolist())}
    assert texts.allowed.tolist() == [bool(row[1] != 2) for row in texts.tokens]


def test_the_command_writes_its_table_and_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "QUICK", command.Effort(lengths=((2, 2),), draws=50, least=0.01))
    (row,) = command.run(tmp_path, quick=True)
    assert set(command.COLUMNS) == set(row)
    assert {path.name for path in tmp_path.iterdir()} >= {"table.md", "results.json", "overview.png"}
