"""The picture of a terminal: the first example of `make demo`, from the text of a run that is committed."""

from __future__ import annotations

import re
from html import escape
from typing import NamedTuple

from locore.io import write_whole
from locore_lab.shared import REPOSITORY, RESULTS

TEXT = RESULTS / "demo.txt"
FIGURE = "docs/figures/demo_{theme}.svg"
COMMAND = "make demo"
SIZE, ADVANCE, LEADING, MARGIN, BAR = 13, 7.83, 18, 18, 30  # pixels: of letters, lines, the edge, and the window's bar


class Look(NamedTuple):
    """Colours of a theme."""

    page: str
    bar: str
    text: str
    strong: str
    good: str
    bad: str


LOOKS = {
    "light": Look("#ffffff", "#eaeef2", "#424a53", "#1f2328", "#1a7f37", "#bc4c00"),
    "dark": Look("#0d1117", "#21262d", "#b1bac4", "#f0f6fc", "#3fb950", "#f0883e"),
}
WORDS = re.compile(r"\b(trust)$|\b(biased|don't.trust)\b")
BLANK = "\u00a0"  # a space that no reader of SVG joins with the next


def lines(text: str) -> list[str]:
    """What is shown: the command, and all before the second example."""
    return [f"$ {COMMAND}", *text.split("\n\n2. ")[0].splitlines()]


def coloured(line: str, look: Look) -> str:
    """A line as parts of one text: verdicts have colours."""

    def part(found: re.Match[str]) -> str:
        return f'<tspan fill="{look.good if found[1] else look.bad}">{found[0]}</tspan>'

    return WORDS.sub(part, escape(line, quote=False).replace(" ", BLANK))


def picture(text: str, look: Look) -> str:
    """The window as SVG; it loads no font."""
    shown = lines(text)
    width = 2 * MARGIN + ADVANCE * max(map(len, shown))
    height = BAR + 2 * MARGIN + LEADING * (len(shown) - 1)
    rows = []
    for number, line in enumerate(shown):
        strong = line.startswith(("$", "1."))
        style = f' fill="{look.strong}" font-weight="bold"' if strong else ""
        at, wide = BAR + MARGIN + 4 + LEADING * number, ADVANCE * len(line)
        if line:
            rows.append(f'<text x="{MARGIN}" y="{at}" textLength="{wide:.0f}"{style}>{coloured(line, look)}</text>')
    dots = "".join(f'<circle cx="{MARGIN + 18 * k}" cy="{BAR / 2}" r="5" fill="{look.text}" opacity=".4"/>' for k in range(3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
        f'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="{SIZE}" '
        f'fill="{look.text}">\n<title>{COMMAND}</title>\n'
        f'<rect width="100%" height="100%" rx="8" fill="{look.page}" stroke="{look.bar}"/>\n'
        f'<path d="M0 {BAR}V8a8 8 0 0 1 8-8H{width - 8:.0f}a8 8 0 0 1 8 8V{BAR}z" fill="{look.bar}"/>\n{dots}\n'
        + "\n".join(rows)
        + "\n</svg>\n"
    )


def run() -> None:
    """Draw the terminal of the documentation from the committed text, in light and dark."""
    text = TEXT.read_text()
    for theme, look in LOOKS.items():
        path = REPOSITORY / FIGURE.format(theme=theme)
        write_whole(path, picture(text, look))
        print(path)
