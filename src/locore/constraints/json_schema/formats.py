"""Values of the keyword `format`, each as the grammar of its standard, in the syntax that Python and ECMA-262 share.

Narrower where the standard asks for more than a grammar can say, never wider: no leap seconds, no internationalised
names, which have to be looked up, host names of up to three labels or ten short ones, local parts of addresses without quotes
and with two dots at most.
"""

from __future__ import annotations

import re

_YEAR, _SHORT = r"\d{4}", r"02-(?:0[1-9]|1\d|2[0-8])"
_LONG = r"(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
_LEAP = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29"
_DATE = rf"(?:{_YEAR}-(?:{_LONG}|{_SHORT})|{_LEAP})"  # RFC 3339, full-date
_HOUR, _MINUTE = r"(?:[01]\d|2[0-3])", r"[0-5]\d"
_TIME = rf"{_HOUR}:{_MINUTE}:{_MINUTE}(?:\.\d+)?(?:[Zz]|[+-]{_HOUR}:{_MINUTE})"  # RFC 3339, full-time

# RFC 3339, appendix A.
_SECONDS = r"\d+S"
_MINUTES = rf"\d+M(?:{_SECONDS})?"
_HOURS = rf"\d+H(?:{_MINUTES})?"
_CLOCK = rf"T(?:{_HOURS}|{_MINUTES}|{_SECONDS})"
_DAYS = r"\d+D"
_MONTHS = rf"\d+M(?:{_DAYS})?"
_YEARS = rf"\d+Y(?:{_MONTHS})?"
_DURATION = rf"P(?:(?:{_YEARS}|{_MONTHS}|{_DAYS})(?:{_CLOCK})?|{_CLOCK}|\d+W)"

_BYTE = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_H16 = r"[0-9A-Fa-f]{1,4}"
_LS32 = rf"(?:{_H16}:{_H16}|{_IPV4})"
_IPV6 = "|".join(  # RFC 4291 as RFC 3986 writes it
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

# RFC 1123; hyphens in the third and fourth place announce an internationalised name (RFC 5891), which nobody checks here.
_L, _H = "[A-Za-z0-9]", "[A-Za-z0-9-]"


def _labels(of_few: int, of_many: int, many: int) -> str:
    """One to three labels of up to so many characters, or up to `many` shorter ones: a length that needs no counting."""
    few, short = (
        rf"(?:{_L}|{_L}{_L}|{_L}{_H}{_L}|{_L}{_H}(?:{_L}{_L}|-{_L})|{_L}{_H}(?:{_L}{_H}|-{_L}){_H}{{0,{most - 5}}}{_L})"
        for most in (of_few, of_many)
    )
    return rf"(?:{few}(?:\.{few}){{0,2}}|{short}(?:\.{short}){{3,{many - 1}}})"


_HOSTNAME = _labels(63, 24, 10)  # 253 characters at most
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
_LOCAL = rf"(?:{_ATOM}{{1,64}}|{_ATOM}{{1,20}}(?:\.{_ATOM}{{1,20}}){{1,2}})"  # 64 at most
_EMAIL = rf"{_LOCAL}@{_labels(62, 24, 7)}"  # RFC 5321, 254 in all

# RFC 3986.
_ESCAPED = "%[0-9A-Fa-f]{2}"
_PCHAR = rf"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|{_ESCAPED})"
_NO_COLON = rf"(?:[A-Za-z0-9._~!$&'()*+,;=@-]|{_ESCAPED})"
_REG_NAME = rf"(?:[A-Za-z0-9._~!$&'()*+,;=-]|{_ESCAPED})*"
_AUTHORITY = rf"(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|{_ESCAPED})*@)?(?:\[(?:{_IPV6})\]|{_REG_NAME})(?::\d*)?"
_SEGMENTS = rf"(?:/{_PCHAR}*)*"
_ABSOLUTE = rf"/(?:{_PCHAR}+{_SEGMENTS})?"
_TAIL = rf"(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
_URI = rf"[A-Za-z][A-Za-z0-9+.-]*:(?://{_AUTHORITY}{_SEGMENTS}|{_ABSOLUTE}|{_PCHAR}+{_SEGMENTS}|){_TAIL}"
_RELATIVE = rf"(?://{_AUTHORITY}{_SEGMENTS}|{_ABSOLUTE}|{_NO_COLON}+{_SEGMENTS}|){_TAIL}"

_POINTER = "(?:/(?:[^~/]|~[01])*)*"  # RFC 6901
_HEX = "[0-9A-Fa-f]"

FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": rf"{_DATE}[Tt]{_TIME}",
    "duration": _DURATION,
    "email": _EMAIL,
    "hostname": _HOSTNAME,
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "uri": _URI,
    "uri-reference": rf"(?:{_URI}|{_RELATIVE})",
    "uuid": rf"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}",
    "json-pointer": _POINTER,
    "relative-json-pointer": rf"(?:0|[1-9]\d*)(?:#|{_POINTER})",
}


REFUSED = frozenset({"idn-email", "idn-hostname", "iri", "iri-reference", "uri-template", "regex"})  # of the standard


def is_of_format(name: str, text: str) -> bool:
    """By Python's `re`: the check of the automata."""
    return re.fullmatch(FORMATS[name], text, re.ASCII | re.DOTALL) is not None
