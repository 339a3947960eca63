"""One page about an audit that needs nothing else: plots as inline SVG, and a table of the worst prompts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from locore.auditing.prompt_audit import AuditRow, Bounds
from locore.auditing.result import Audit, Comparison, verdict_of

WIDTH, HEIGHT = 860, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 16, 12, 40
MOST_ROWS, MOST_PHRASES = 200, 25  # that are shown
LETTERS = 40  # of a phrase
LEAST = 1e-12  # what is below is drawn there
BAR = 22
STYLE = """
:root { color-scheme: light dark; --ink: #1c2227; --soft: #566069; --line: #d9dcd8; --paper: #fff; --mark: #1d5c9e;
  --over: #ad1f1f }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e7eaec; --soft: #a5afb8; --line: #343b42; --paper: #1b1f23; --mark: #7db8f5; --over: #ff9a90 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 900px; margin: 2rem auto;
  padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: .2rem } h2 { font-size: 1.1rem; margin: 2rem 0 .3rem }
p, figcaption { color: var(--soft); margin: .2rem 0 .6rem } p.said { color: var(--ink) } figure { margin: 0 }
svg { width: 100%; height: auto; display: block } svg text { fill: var(--soft); font-size: 12px }
.grid { stroke: var(--line) } .likely { stroke: var(--mark); stroke-width: 2 } .certain { stroke: var(--soft); opacity: .5 }
.dot, .bar { fill: var(--mark) } .over .dot { fill: var(--over) } .over .likely { stroke: var(--over) }
.limit { stroke: var(--over); stroke-dasharray: 6 4 } svg .name { fill: var(--ink) }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-size: 13px }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
td.w { white-space: nowrap }
td.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums } code { overflow-wrap: anywhere }
"""


def page(audit: Audit, title: str = "Audit", comparison: Comparison | None = None) -> str:
    """The page, as HTML that loads nothing."""
    parts = [f"<h1>{escape(title)}</h1>", *_said(audit, comparison)]
    parts += _figure("Prompts, the worst first", _prompts(audit), PROMPTS)
    if audit.by_phrase:
        parts += _figure("By phrase", _phrases(audit), "Mean probability that a phrase is the first of them to be written.")
        parts += _figure(
            "By position", _positions(audit), "Mean probability that the first phrase is complete with this token."
        )
    parts += ["<h2>The worst prompts</h2>", _table(audit)]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    return f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>{"".join(parts)}</body></html>\n'


PROMPTS = (
    "Dots are estimates, thick lines 95 % intervals, thin lines what is certain; all on a logarithmic scale. A prompt without "
    "a dot was not seen to offend, or could not be run."
)


def _said(audit: Audit, comparison: Comparison | None) -> Iterable[str]:
    cost, (low, high) = audit.cost, audit.interval
    mean = "not known" if audit.mean is None else _number(audit.mean)
    yield (
        f'<p class="said">Mean probability over {len(audit.rows):,} prompts: <b>{mean}</b> (95 %: {_number(low)} to '
        f"{_number(high)}; for certain {_number(audit.bounds[0])} to {_number(audit.bounds[1])}).</p>"
    )
    if audit.limit is not None:
        above, below = (sum(row.settled == side for row in audit.rows) for side in ("above", "below"))
        unsure = len(audit.rows) - above - below
        yield f'<p class="said">Limit {_number(audit.limit)}: {above} above, {below} below, {unsure} not settled.</p>'
    if comparison is not None:
        changed = sum(row.is_change for row in comparison.rows)
        yield f'<p class="said">Against an earlier audit: mean {escape(str(comparison.mean))}; {changed} prompts changed.</p>'
    failed = f" {audit.failed} prompts could not be run." if audit.failed else ""
    yield f"<p>{cost['lm_tokens']:,} LM tokens, {cost['passes']:,} passes of the model, {cost['seconds']:,.1f} s.{failed}</p>"
    yield "<p>It is about letters, not meanings, and about this model with this tokenizer and these settings of sampling.</p>"


def _figure(title: str, drawn: str, caption: str) -> list[str]:
    return [f"<h2>{escape(title)}</h2><figure>{drawn}<figcaption>{escape(caption)}</figcaption></figure>"]


def _svg(height: float, drawn: Iterable[str], label: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}">{"".join(drawn)}</svg>'


class _Log:
    """A logarithmic scale from the bottom of a plot to its top."""

    def __init__(self, values: Iterable[float]) -> None:
        logs = [math.log10(max(value, LEAST)) for value in values if value > 0]
        self.low = math.floor(min(logs, default=-1.0))
        self.high = max(math.ceil(max(logs, default=0.0)), self.low + 1)

    def at(self, value: float) -> float:
        """The height of a value, in pixels from the top."""
        log = min(max(math.log10(max(value, LEAST)), self.low), self.high)
        return TOP + (self.high - log) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)

    def grid(self) -> Iterable[str]:
        """Lines at powers of ten, no more than a dozen."""
        step = max(1, math.ceil((self.high - self.low) / 12))
        for power in range(self.low, self.high + 1, step):
            y = self.at(10.0**power)
            yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">1e{power}</text>'


def _prompts(audit: Audit) -> str:
    rows = audit.rows
    ends = [end for row in rows for end in (*row.interval, row.probability or 0.0)]
    scale = _Log([*ends, *([audit.limit] if audit.limit else [])])
    step = (WIDTH - LEFT - RIGHT) / len(rows)
    drawn = [*scale.grid()]
    drawn += [_prompt(row, LEFT + (number + 0.5) * step, step, scale) for number, row in enumerate(rows)]
    if audit.limit is not None:
        y = scale.at(audit.limit)
        drawn.append(f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    drawn.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{len(rows):,} prompts</text>')
    return _svg(HEIGHT, drawn, "Probability after each prompt, sorted, with intervals, on a logarithmic scale")


def _prompt(row: AuditRow, x: float, step: float, scale: _Log) -> str:
    def line(kind: str, ends: Bounds) -> str:
        return f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{scale.at(ends[0]):.1f}" y2="{scale.at(ends[1]):.1f}"/>'

    dot = ""
    if row.probability:
        dot = f'<circle class="dot" cx="{x:.1f}" cy="{scale.at(row.probability):.1f}" r="{min(4.0, max(1.2, step / 3)):.1f}"/>'
    over = ' class="over"' if row.settled == "above" else ""
    name = escape(f"{row.index}: {row.prompt} {_estimate(row)}")
    return f"<g{over}><title>{name}</title>{line('certain', row.bounds)}{line('likely', row.interval)}{dot}</g>"


def _phrases(audit: Audit) -> str:
    shown = list(audit.by_phrase.items())[:MOST_PHRASES]
    most, left = shown[0][1], 8 * min(LETTERS, max(len(phrase) for phrase, _ in shown)) + 30
    drawn = []
    for number, (phrase, value) in enumerate(shown):
        y, long = TOP + number * BAR, (WIDTH - left - 90) * value / most
        drawn.append(f'<text class="name" x="{left - 8}" y="{y + 14}" text-anchor="end">{escape(_short(phrase))}</text>')
        drawn.append(f'<rect class="bar" x="{left}" y="{y + 3}" width="{max(1.0, long):.1f}" height="{BAR - 8}" rx="2"/>')
        drawn.append(f'<text x="{left + long + 6:.1f}" y="{y + 14}">{_number(value)}</text>')
    return _svg(2 * TOP + len(shown) * BAR, drawn, "Probability of each phrase")


def _positions(audit: Audit) -> str:
    values = audit.by_position
    most = max(values) or 1.0
    step, high = (WIDTH - LEFT - RIGHT) / len(values), HEIGHT - TOP - BOTTOM
    drawn = []
    for share in (0.0, 0.5, 1.0):
        y = TOP + high * (1 - share)
        drawn.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_number(share * most)}</text>')
    for number, value in enumerate(values):
        x, long = LEFT + number * step, high * value / most
        place = f'x="{x + step * 0.15:.1f}" y="{TOP + high - long:.1f}" width="{step * 0.7:.1f}" height="{long:.1f}"'
        drawn.append(f'<rect class="bar" {place}><title>token {number + 1}: {_number(value)}</title></rect>')
        if number % max(1, len(values) // 20) == 0:
            drawn.append(f'<text x="{x + step / 2:.1f}" y="{HEIGHT - 22}" text-anchor="middle">{number + 1}</text>')
    drawn.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 4}" text-anchor="middle">token</text>')
    return _svg(HEIGHT, drawn, "Probability that the first phrase is complete with each token")


def _table(audit: Audit) -> str:
    heads = ("prompt", "", "estimate", "95 % interval", "certain", "at token", "verdict", "mostly")
    lines = [f"<tr>{''.join(f'<th>{escape(head)}</th>' for head in heads)}</tr>"]
    for row in audit.rows[:MOST_ROWS]:
        mostly = next(iter(row.by_phrase), "")
        texts = "".join(f"<br><code>{escape(_quoted(text))}</code>" for text in row.texts)
        numbers = (
            _estimate(row),
            _range(row.interval),
            _range(row.bounds),
            "" if row.position is None else f"{row.position:.1f}",
        )
        cells = [f'<td class="n">{row.index}</td><td>{escape(row.prompt)}{texts}</td>']
        cells += [f'<td class="n">{number}</td>' for number in numbers]
        cells += [f"<td>{escape(verdict_of(row))}</td>", f'<td class="w">{escape(_short(mostly)) if mostly else ""}</td>']
        lines.append(f"<tr>{''.join(cells)}</tr>")
    more = len(audit.rows) - MOST_ROWS
    rest = f"<p>{more:,} more prompts are not shown; the JSON has all of them.</p>" if more > 0 else ""
    return f'<div class="scroll"><table>{"".join(lines)}</table></div>{rest}'


def _estimate(row: AuditRow) -> str:
    return "–" if row.probability is None else _number(row.probability)


def _range(ends: Sequence[float]) -> str:
    return f"{_number(ends[0])} … {_number(ends[1])}"


def _number(value: float) -> str:
    return "0" if value == 0 else f"{value:.2g}"


def _short(text: str) -> str:
    return _quoted(text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…")


def _quoted(text: str) -> str:
    """Blanks at the ends show."""
    return repr(text)[1:-1].join("“”")
