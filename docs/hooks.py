"""What `mkdocs` does beyond its plugins: pages made from other files, links out of this folder, no request to the outside."""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
REQUEST = re.compile(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


def on_files(files: Any, config: Any) -> Any:
    """Add the changelog, and the notebook as a page."""
    files.append(File.generated(config, "changelog.md", content=(ROOT / "CHANGELOG.md").read_text().replace("](docs/", "](")))
    files.append(File.generated(config, "tour.md", content=notebook_page(ROOT / "docs" / "tour.ipynb")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files of the repository that are no pages become their names; the notebook is a page."""
    folder = posixpath.dirname(page.file.src_uri)

    def named(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[3]))
        return f"{link[2]} (`{target.removeprefix('../')}`)" if target.startswith("../") else link[0]

    return LINK.sub(named, markdown.replace(".ipynb)", ".md)"))


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """A page that loads anything from another place is an error."""
    if found := REQUEST.search(output):
        raise PluginError(f"{page.file.src_uri} loads something from the network: {found[0]}")
    return output


def notebook_page(path: Path) -> str:
    """The cells of a notebook as Markdown, with the outputs that are stored in it."""
    return "\n\n".join(part for cell in json.loads(path.read_text())["cells"] for part in cell_parts(cell)) + "\n"


def cell_parts(cell: dict[str, Any]) -> list[str]:
    """A cell, and what it put out: text, and pictures as they are stored."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    parts = [f"```python\n{source}\n```"]
    for output in cell["outputs"]:
        data = output.get("data", {})
        text = "".join(output.get("text", data.get("text/plain", "")))
        if "image/png" in data:
            parts.append(f"![output](data:image/png;base64,{''.join(data['image/png']).strip()})")
        elif text:
            parts.append(f"```text\n{text.rstrip()}\n```")
    return parts
