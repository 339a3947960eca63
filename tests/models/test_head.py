"""The head of a model by parts: the same numbers, wherever the library's own product would be slow."""

from __future__ import annotations

import pytest
import torch
from torch.nn import Linear

from locore.models import head as module
from locore.models.head import product_of


@pytest.fixture
def lagging(monkeypatch):
    """A processor on which parts are faster."""
    monkeypatch.setattr(module, "mkl_lags", lambda: True)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 6, 7, 50, 128, 129])
@pytest.mark.parametrize("columns", [2**22 // 64, 2**22 // 64 + 1, 2**22 // 64 + 1_023])
def test_parts_give_the_product(lagging, rows, columns):
    torch.manual_seed(rows)
    head = Linear(64, columns, bias=False).requires_grad_(False)
    product, hidden = product_of(head), torch.randn(rows, 1, 64)
    assert product is not head
    with torch.no_grad():
        got, expected = product(hidden), head(hidden)
    assert got.shape == expected.shape
    assert torch.allclose(got, expected, atol=1e-5)


def test_only_large_plain_layers_in_32_bits_on_the_processor(lagging, monkeypatch):
    large = Linear(64, 2**22 // 64, bias=False)
    for other in (
        Linear(64, 100, bias=False),
        Linear(64, 2**22 // 64),
        Linear(64, 2**22 // 64, bias=False, dtype=torch.float64),
        Linear(64, 2**22 // 64, bias=False, device="meta"),
        torch.nn.Sequential(large),
    ):
        assert product_of(other) is other
    monkeypatch.setattr(module, "mkl_lags", lambda: False)
    assert product_of(large) is large


def test_gradients_go_through_the_library(lagging):
    head = Linear(64, 2**22 // 64, bias=False)
    hidden = torch.randn(7, 64, requires_grad=True)
    product_of(head)(hidden).sum().backward()
    assert hidden.grad is not None
