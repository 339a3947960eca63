"""Addresses of the internet and what refers by them, as the grammars of their standards, for the keyword `format`."""

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
