"""A file of prompts and an unbroken run of it, for each module that names a NUMBER of rows and options of its SHARDS."""

from __future__ import annotations

import pytest

from tests.batch.helpers import batch, many


@pytest.fixture(scope="module")
def prompts(request, tmp_path_factory):
    return many(tmp_path_factory.mktemp("batch") / "prompts.jsonl", request.module.NUMBER)


@pytest.fixture(scope="module")
def done(request, prompts):
    output = prompts.parent / "done"
    assert batch(prompts, output, *request.module.SHARDS) == 1
    return output
