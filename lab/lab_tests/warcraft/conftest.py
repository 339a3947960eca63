"""Networks of a small part of the published size: no law here is one of the size."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from locore_lab.warcraft import model

from tests.effort import THOROUGH

PUBLISHED = {"WIDTHS": model.WIDTHS, "HIDDEN_SIZE": model.HIDDEN_SIZE}
SMALL = {"WIDTHS": (16, 16, 32, 32), "HIDDEN_SIZE": 128}


@pytest.fixture(scope="package", autouse=True)
def small_networks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (PUBLISHED if THOROUGH else SMALL).items():
            patch.setattr(model, name, value)
        yield


@pytest.fixture
def published_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the module has it."""
    for name, value in PUBLISHED.items():
        monkeypatch.setattr(model, name, value)
