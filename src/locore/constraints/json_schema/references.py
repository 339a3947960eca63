"""Addresses of the internet, what refers by them, and regular expressions, as their standards say, for the keyword `format`.

The regular expressions are those of ECMA-262 with and without the flag `u`, narrower than the standard, which has groups inside
groups without end: two inside each other here, looking around at both ends only, ranges from one end of the letters or of the
digits, and neither names nor references.
"""

from __future__ import annotations

_BYTE = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_H16 = r"[0-9A-Fa-f]{1,4}"
_LS32 = rf"(?:{_H16}:{_H16}|{IPV4})"
IPV6 = "|".join(  # RFC 4291 as RFC 3986 writes it
    (
        rf"(?:{_H16}:){{6}}{_LS32}",
        rf"::(?:{_H16}:){{5}}{_LS32}",
        rf"(?:{_H16})?::(?:{_H16}:){{4}}{_LS32}",
        *(rf"(?:(?:{_H16}:){{0,{most}}}{_H16})?::(?:{_H16}:){{{3 - most + 1}}}{_LS32}" for most in (1, 2, 3)),
        rf"(?:(?:{_H16}:){{0,4}}{_H16})?::{_LS32}",
        rf"(?:(?:{_H16}:){{0,5}}{_H16})?::{_H16}",
        rf"(?:(?:{_H16}:){{0,6}}{_H16})?::",
    )
)

# What characters beyond ASCII an IRI may have (RFC 3987, ucschar), and in its query (iprivate).
_PLANES = "".join(rf"\U000{plane:X}0000-\U000{plane:X}FFFD" for plane in range(1, 0xE)) + r"\U000E1000-\U000EFFFD"
_UCSCHAR = rf"\u00A0-\uD7FF\uF900-\uFDCF\uFDF0-\uFFEF{_PLANES}"
_IPRIVATE = r"\uE000-\uF8FF\U000F0000-\U000FFFFD\U00100000-\U0010FFFD"
_ESCAPED = "%[0-9A-Fa-f]{2}"


def _absolute_and_relative(beyond: str, private: str) -> tuple[str, str]:
    """References with a scheme, and those without (RFC 3986, RFC 3987).

    Args:
        beyond: characters that stand for themselves besides those of ASCII; private: and those of queries.
    """
    of = rf"A-Za-z0-9._~!$&'()*+,;={beyond}"
    pchar, no_colon = rf"(?:[{of}:@-]|{_ESCAPED})", rf"(?:[{of}@-]|{_ESCAPED})"
    future = r"[Vv][0-9A-Fa-f]+\.[A-Za-z0-9._~!$&'()*+,;=:-]+"
    host = rf"(?:\[(?:{IPV6}|{future})\]|(?:[{of}-]|{_ESCAPED})*)"
    authority = rf"(?:(?:[{of}:-]|{_ESCAPED})*@)?{host}(?::\d*)?"
    segments = rf"(?:/{pchar}*)*"
    path = rf"/(?:{pchar}+{segments})?"
    query, fragment = rf"(?:[{of}{private}:@/?-]|{_ESCAPED})*", rf"(?:{pchar}|[/?])*"
    tail = rf"(?:\?{query})?(?:#{fragment})?"
    full = rf"[A-Za-z][A-Za-z0-9+.-]*:(?://{authority}{segments}|{path}|{pchar}+{segments}|){tail}"
    return full, rf"(?://{authority}{segments}|{path}|{no_colon}+{segments}|){tail}"


URI, _RELATIVE = _absolute_and_relative("", "")
URI_REFERENCE = rf"(?:{URI}|{_RELATIVE})"
IRI, _RELATIVE = _absolute_and_relative(_UCSCHAR, _IPRIVATE)
IRI_REFERENCE = rf"(?:{IRI}|{_RELATIVE})"

# RFC 6570 with its errata; the operators that are kept for later are none.
_VARCHAR = rf"(?:[A-Za-z0-9_]|{_ESCAPED})"
_VARIABLE = rf"{_VARCHAR}+(?:\.{_VARCHAR}+)*(?:\*|:[1-9]\d{{0,3}})?"
_EXPRESSION = rf"\{{[+#./;?&]?{_VARIABLE}(?:,{_VARIABLE})*\}}"
URI_TEMPLATE = rf"(?:[!#-;=?-\[\]_a-z~{_UCSCHAR}{_IPRIVATE}]|{_ESCAPED}|{_EXPRESSION})*"

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
