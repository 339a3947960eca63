"""A model that reads chats: the bundled one with a template."""

from __future__ import annotations

import shutil
from pathlib import Path

from locore.models.bundled import _bundled_folder

TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"


def talking(folder: Path) -> Path:
    """A copy of the bundled model in a new folder, with this template."""
    copy = Path(shutil.copytree(str(_bundled_folder("tiny")), folder))
    (copy / "chat_template.jinja").write_text(TEMPLATE)
    return copy
