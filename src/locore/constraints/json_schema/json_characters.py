r"""How characters are written inside a JSON string, byte by byte: as UTF-8, by short escapes, by `\u` escapes.

What has been read of a character is kept as its bytes, its *beginning*. Half a surrogate pair is no character.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

SHORT = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
SHORT_CODES = {ord(letter): ord(meaning) for letter, meaning in SHORT.items()}
ESCAPED = {code: letter for letter, code in SHORT_CODES.items()}
HEX = b"0123456789abcdefABCDEF"
QUOTE, BACKSLASH = 0x22, 0x5C
ASCII = tuple(byte for byte in range(0x20, 0x80) if byte not in (QUOTE, BACKSLASH))  # that stand for themselves
LEADS = tuple(range(0xC2, 0xF5))
SECOND = {
    0xE0: (0xA0, 0xBF),
    0xED: (0x80, 0x9F),
    0xF0: (0x90, 0xBF),
    0xF4: (0x80, 0x8F),
}  # the second byte, where it is narrower
HIGH = "\\ud800"  # the first half of a pair
ALL = (*ASCII, BACKSLASH, *LEADS, QUOTE)  # where a character may begin, or the string may end
Way = tuple[int, int, int]  # bytes still to come, and the range of characters that they can lead to


def bytes_behind(beginning: bytes) -> Collection[int]:
    """Those that may come behind the beginning of a character, and some that may not."""
    if not beginning:
        return ALL
    return range(0x80, 0xC0) if beginning[0] != BACKSLASH else HEX + b"u\\" if len(beginning) > 1 else (*SHORT_CODES, ord("u"))


@lru_cache(maxsize=1 << 16)
def read_on(beginning: bytes, byte: int, minimal: bool) -> bytes | int | None:
    """A longer beginning, the code point of a character that is complete, or None where there is none.

    Args:
        minimal: only the escapes that Python's `json.dumps(..., ensure_ascii=False)` writes.
    """
    if not beginning:
        if byte == BACKSLASH or byte in LEADS:
            return bytes([byte])
        return byte if 0x20 <= byte < 0x80 and byte != QUOTE else None
    if beginning[0] == BACKSLASH:
        return _escape(beginning, byte, minimal)
    low, high = SECOND.get(beginning[0], (0x80, 0xBF)) if len(beginning) == 1 else (0x80, 0xBF)
    if not low <= byte <= high:
        return None
    read = beginning + bytes([byte])
    return ord(read.decode()) if len(read) == _length(beginning[0]) else read


def _length(lead: int) -> int:
    return 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


def _escape(beginning: bytes, byte: int, minimal: bool) -> bytes | int | None:
    place = len(beginning)
    read = beginning + bytes([byte])
    if place in (1, 7):
        if byte == ord("u"):
            return read
        code = SHORT_CODES.get(byte) if place == 1 else None
        return None if minimal and byte == ord("/") else code
    if place == 6:
        return read if byte == BACKSLASH else None
    if byte not in HEX:
        return None
    if minimal:
        allowed = {2: b"0", 3: b"0", 4: b"01", 5: b"0123456789abcdef"}[place]
        if byte not in allowed or (place == 5 and int(read[2:], 16) in ESCAPED):
            return None
    digits = read[8:] if place > 6 else read[2:]
    if place > 6:
        if len(digits) == 1 and byte not in b"dD":
            return None
        if len(digits) == 2 and byte not in b"cdefCDEF":
            return None
        if len(digits) < 4:
            return read
        return 0x10000 + ((int(read[2:6], 16) - 0xD800) << 10) + int(digits, 16) - 0xDC00
    if len(digits) == 2 and digits[:1] in b"dD" and byte in b"cdefCDEF":
        return None
    if len(digits) < 4:
        return read
    code = int(digits, 16)
    return read if 0xD800 <= code <= 0xDBFF else code


@lru_cache(maxsize=1 << 16)
def ways_on(beginning: bytes, minimal: bool) -> tuple[Way, ...]:
    """How a character can be completed."""
    if beginning[0] != BACKSLASH:
        missing = _length(beginning[0]) - len(beginning)
        ends = []
        for place in (0, 1):
            rest = beginning
            while len(rest) < _length(beginning[0]):
                span = SECOND.get(beginning[0], (0x80, 0xBF)) if len(rest) == 1 else (0x80, 0xBF)
                rest += bytes([span[place]])
            ends.append(ord(rest.decode()))
        return ((missing, ends[0], ends[1]),)
    if len(beginning) == 1:
        short = tuple((1, code, code) for letter, code in SHORT_CODES.items() if not (minimal and letter == ord("/")))
        return short + tuple((1 + missing, low, high) for missing, low, high in ways_on(b"\\u", minimal))
    if minimal:
        digits = beginning[2:].decode()
        codes = [code for code in range(0x20) if code not in ESCAPED and f"{code:04x}".startswith(digits)]
        return tuple((4 - len(digits), code, code) for code in codes)
    if len(beginning) >= 6:
        lead = 0x10000 + ((int(beginning[2:6], 16) - 0xD800) << 10)
        digits = beginning[8:].decode()
        low, high = int(digits.ljust(4, "0"), 16), int(digits.ljust(4, "f"), 16)
        low, high = max(low, 0xDC00), min(high, 0xDFFF)
        return ((12 - len(beginning), lead + low - 0xDC00, lead + high - 0xDC00),)
    digits = beginning[2:].decode()
    low, high, missing = int(digits.ljust(4, "0"), 16), int(digits.ljust(4, "f"), 16), 4 - len(digits)
    ways: list[Way] = []
    for first, last in ((0, 0xD7FF), (0xE000, 0xFFFF)):
        if max(first, low) <= min(last, high):
            ways.append((missing, max(first, low), min(last, high)))
    first, last = max(low, 0xD800), min(high, 0xDBFF)
    if first <= last:
        ways.append((missing + 6, 0x10000 + ((first - 0xD800) << 10), 0x10000 + ((last - 0xD800) << 10) + 0x3FF))
    return tuple(ways)


@lru_cache(maxsize=1 << 16)
def alike(beginning: bytes, minimal: bool) -> bytes:
    """A beginning that can go on in the same ways, the same for many, where it does not matter which character it becomes."""
    if beginning[0] != BACKSLASH:
        if len(beginning) > 1:
            return b"\xc2" if _length(beginning[0]) - len(beginning) == 1 else b"\xe1"
        lead = beginning[0]
        return beginning if lead in SECOND else b"\xc2" if lead < 0xE0 else b"\xe1" if lead < 0xF0 else b"\xf1"
    if minimal or len(beginning) <= 2:
        return beginning
    text = beginning.decode().lower()
    if len(text) == 3:
        return text.encode() if text[2] == "d" else b"\\u0"
    if text[2] != "d" or text[3] < "8":
        return b"\\u0000"[: len(text)]
    return (HIGH + text[6:8] + "dc00"[: max(len(text) - 8, 0)])[: len(text)].encode()


@lru_cache(maxsize=1 << 14)
def least_bytes(low: int, high: int) -> float:
    """The fewest bytes that write one of the characters of a range."""
    for code in range(low, min(high, 0x7F) + 1):
        if code >= 0x20 and code not in (QUOTE, BACKSLASH):
            return 1
    lengths = [2 if code in ESCAPED else 6 for code in range(low, min(high, 0x7F) + 1)]
    for least, first, last in ((2, 0x80, 0x7FF), (3, 0x800, 0xFFFF), (4, 0x10000, 0x10FFFF)):
        if max(low, first) <= min(high, last):
            lengths.append(least)
    return min(lengths)
