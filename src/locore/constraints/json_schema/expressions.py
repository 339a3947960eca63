"""Regular expressions of ECMA-262 as a regular language, for the format "regex".

A text of this language is one with and without the flag `u`. It is narrower than the standard, which has groups inside groups
without end: two inside each other here, looking around at both ends only, ranges from one end of the letters or of the digits,
and neither names nor references.
"""

from __future__ import annotations

DEPTH = 2

_HEX = "[0-9A-Fa-f]"
_SPECIAL = r"\^$\\.*+?()\[\]{}|/"
_ESCAPE = rf"\\(?:[dDwWsStnvfr{_SPECIAL}]|c[A-Za-z]|x{_HEX}{{2}}|u{_HEX}{{4}})"


# From one end of the digits or of the letters, so that no range runs backwards.
_RANGES = "0-[0-9]|1-[1-9]|[2-9]-9|a-[a-z]|[b-z]-z|A-[A-Z]|[B-Z]-Z"


def _counts() -> str:
    """`n`, `n,` and `n,m`, where m has more digits, or the same and n is below 10, or two and more tens."""
    ones = "|".join(f"{n},[{n}-9]" for n in range(10))
    tens = "|".join(rf"{n}\d,[{n + 1}-9]\d" for n in range(1, 9))
    return rf"(?:\d+,?|\d,[1-9]\d+|[1-9]\d,[1-9]\d\d+|{ones}|{tens})"


_ITEM = rf"(?:{_RANGES}|[^\]\\^-]|{_ESCAPE})"
_CLASS = rf"\[\^?(?:-?{_ITEM}+-?|-?)\]"
_ATOM = rf"[^\n\r\u2028\u2029{_SPECIAL}]|\.|{_ESCAPE}|{_CLASS}"
_TIMES = rf"(?:[*+?]|\{{{_counts()}\}})\??"


def _nested(depth: int) -> str:
    """Alternatives, with so many groups inside each other at most."""
    atom = _ATOM if not depth else rf"{_ATOM}|\((?:\?:)?{_nested(depth - 1)}\)"
    term = rf"(?:(?:{atom})(?:{_TIMES})?|[\^$]|\\[bB])"
    return rf"{term}*(?:\|{term}*)*"


_LOOK = rf"\(\?<?[=!]{_nested(1)}\)"
REGEX = rf"(?:{_LOOK})*{_nested(DEPTH)}(?:{_LOOK})*"
