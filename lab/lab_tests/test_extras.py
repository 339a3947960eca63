"""Each extra is tried alone, or another command is named that installs it."""

from __future__ import annotations

import tomllib

import pytest
from locore_lab.extras import ELSEWHERE, REPOSITORY, USES, Row, table

EXTRAS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_every_extra_has_a_use_or_is_installed_elsewhere():
    assert {"", *EXTRAS} == USES.keys() | ELSEWHERE.keys() and not USES.keys() & ELSEWHERE.keys()


@pytest.mark.parametrize("extra", USES)
def test_a_use_is_python(extra):
    compile(USES[extra], extra or "core", "exec")


def test_what_was_not_tried_is_not_said_to_work():
    lines = table([Row("", 10.0, 3, 5, True, "a text"), Row("json", 9.5, None, None, False, "an error"), Row("ray")]).split(
        "\n"
    )
    assert lines[2:] == [
        "| none | 10 | 3 | 5 | yes | a text |",
        "| `json` | 9.5 | – | – | **no** | an error |",
        "| `ray` | – | – | – | not tried |  |",
    ]
