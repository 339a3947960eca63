"""A server for the tests of engines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import engine_server, zoo
from .engine_server import Service


@pytest.fixture
def service() -> Iterator[Service]:
    """A vLLM server of a random model, which has said nothing yet."""
    with engine_server.running(zoo.endless(), known=zoo.KNOWN, max_model_len=32) as running:
        yield running
