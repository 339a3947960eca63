"""Values of the keyword `format`, each as the grammar of its standard, in the syntax that Python and ECMA-262 share.

Narrower where the standard asks for more than a grammar can say, never wider: leap seconds at offsets of quarters of an hour,
host names of up to three labels or ten short ones, none that is internationalised, which would have to be looked up, and local
parts of addresses with two dots at most. And no year 0000, which few calendars have.
"""

from __future__ import annotations

import re

from locore.constraints.json_schema.references import IPV4, IPV6, IRI, IRI_REFERENCE, REGEX, URI, URI_REFERENCE, URI_TEMPLATE

_YEAR, _SHORT = r"(?:000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d{3})", r"02-(?:0[1-9]|1\d|2[0-8])"
_LONG = r"(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
_LEAP = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29"
DATE = rf"(?:{_YEAR}-(?:{_LONG}|{_SHORT})|{_LEAP})"  # RFC 3339, full-date
_HOUR, _MINUTE = r"(?:[01]\d|2[0-3])", r"[0-5]\d"
_FRACTION = r"(?:\.\d+)?"
CLOCK = rf"{_HOUR}:{_MINUTE}:{_MINUTE}(?:\.\d{{1,6}})?"  # of Python's datetime
OFFSET = rf"(?:Z|[+-]{_HOUR}:{_MINUTE})"


def _leap_seconds() -> str:
    """The second 60, which is at 23:59 of UTC, wherever the clocks are a whole number of quarters apart from it."""
    ways = [f"23:59:60{_FRACTION}[Zz]"]
    for quarters in range(4 * 24):
        offset = f"{quarters // 4:02}:{quarters % 4 * 15:02}"
        for sign, minutes in (("\\+", 15 * quarters - 1), ("-", -15 * quarters - 1)):
            hour, minute = divmod(minutes % (24 * 60), 60)
            ways.append(f"{hour:02}:{minute:02}:60{_FRACTION}{sign}{offset}")
    return "|".join(ways)


_TIME = rf"(?:{_HOUR}:{_MINUTE}:{_MINUTE}{_FRACTION}(?:[Zz]|[+-]{_HOUR}:{_MINUTE})|{_leap_seconds()})"  # RFC 3339, full-time

# RFC 3339, appendix A.
_SECONDS = r"\d+S"
_MINUTES = rf"\d+M(?:{_SECONDS})?"
_HOURS = rf"\d+H(?:{_MINUTES})?"
_CLOCK = rf"T(?:{_HOURS}|{_MINUTES}|{_SECONDS})"
_DAYS = r"\d+D"
_MONTHS = rf"\d+M(?:{_DAYS})?"
_YEARS = rf"\d+Y(?:{_MONTHS})?"
_DURATION = rf"P(?:(?:{_YEARS}|{_MONTHS}|{_DAYS})(?:{_CLOCK})?|{_CLOCK}|\d+W)"

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

# RFC 5321, 254 characters in all; beyond ASCII RFC 6531.
_BEYOND = r"\u0080-\uFDCF\uFDF0-\uFFFF\U00010000-\U0010FFFF"
# Of the letters that internationalised names may have (RFC 5892): none that is written from right to left, none that decides
# by its neighbours.
_LETTER = "[a-z0-9ß-öø-ÿά-ώа-џぁ-ゖァ-ヺ一-鿋가-힣]"
_NAME = rf"{_LETTER}{{1,10}}"


def _local(beyond: str, most: int) -> str:
    atom = rf"[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~{beyond}-]"
    dotted = rf"{atom}{{1,{most // 3}}}(?:\.{atom}{{1,{most // 3 - 1}}}){{1,2}}"
    text = rf"[ !#-\[\]-~{beyond}]"
    return rf'(?:{atom}{{1,{most}}}|{dotted}|"(?:{text}{{0,{most - 2}}}|(?:{text}|\\[ -~]){{0,{most // 2 - 1}}})")'


_HOST = _labels(62, 24, 7)
_LITERAL = rf"\[(?:{IPV4}|IPv6:(?:{IPV6}))\]"
_INTERNATIONAL = rf"(?:{_HOST}|{_NAME}(?:\.{_NAME}){{0,3}}|{_LITERAL})"
_POINTER = "(?:/(?:[^~/]|~[01])*)*"  # RFC 6901
_HEX = "[0-9A-Fa-f]"

FORMATS = {
    "date": DATE,
    "time": _TIME,
    "date-time": rf"{DATE}[Tt]{_TIME}",
    "duration": _DURATION,
    "email": rf"{_local('', 64)}@(?:{_HOST}|{_LITERAL})",
    "idn-email": rf"(?:{_local('', 64)}|{_local(_BEYOND, 16)})@{_INTERNATIONAL}",  # 64 bytes
    "hostname": _HOSTNAME,
    "ipv4": IPV4,
    "ipv6": IPV6,
    "uri": URI,
    "uri-reference": URI_REFERENCE,
    "iri": IRI,
    "iri-reference": IRI_REFERENCE,
    "uri-template": URI_TEMPLATE,
    "uuid": rf"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}",
    "json-pointer": _POINTER,
    "relative-json-pointer": rf"(?:0|[1-9]\d*)(?:#|{_POINTER})",
    "regex": REGEX,
}


REFUSED = frozenset({"idn-hostname"})  # of the standard


def is_of_format(name: str, text: str) -> bool:
    """By Python's `re`: the check of the automata."""
    return re.fullmatch(FORMATS[name], text, re.ASCII | re.DOTALL) is not None
