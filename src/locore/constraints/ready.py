r"""Ready patterns: regular expressions for what people look for, each from a standard.

| name | what | from |
|---|---|---|
| `email` | an e-mail address as web forms take it: no quotes, ASCII | that of the HTML Standard (WHATWG), 4.10.5.1.5 |
| `url` | an address with `http://` or `https://` | RFC 3986, appendix A: scheme, authority, path, query, fragment |
| `phone` | an international number, "+" and up to 15 digits, in groups behind single spaces or not | ITU-T E.164 and E.123 |
| `iban` | the form of an account number, in groups of four or not; check digits are not computed | ISO 13616-1 |
| `date` | a calendar day such as 2024-02-29, which must exist | ISO 8601, the full-date of RFC 3339 |
| `emoji` | what is shown as a picture, with skin tones, flags, keycaps and joined ones | Unicode UTS #51, 1.4.9 |

A script's name is any run of its characters: Unicode's property Script (UAX #24).
"""

from __future__ import annotations

from locore.constraints.json_schema.formats import DATE

_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_CODED = r"%[0-9A-Fa-f]{2}"
_PLAIN = r"A-Za-z0-9\-._~!$&'()*+,;="  # unreserved characters and sub-delims
_PATH = rf"(?:[{_PLAIN}:@/]|{_CODED})*"
_MORE = rf"(?:[{_PLAIN}:@/?]|{_CODED})*"
_GROUP = r"(?: ?[0-9A-Z]{4})"
# A character that is shown as a picture by itself, or is told to be, or has a skin tone; then the tags of a flag.
_ONE = (
    r"(?:\p{RI}\p{RI}|[0-9#*]\uFE0F?\u20E3"
    r"|(?:\p{Emoji_Modifier_Base}\p{Emoji_Modifier}|[[\p{Emoji}]--[0-9#*]]\uFE0F|\p{Emoji_Presentation})"
    r"(?:[\U000E0020-\U000E007E]+\U000E007F)?)"
)
_JOINED = r"(?:\p{Emoji_Modifier_Base}\p{Emoji_Modifier}|[[\p{Emoji}]--[0-9#*]]\uFE0F?)"

SCRIPTS = (
    *("arabic", "armenian", "bengali", "cyrillic", "devanagari", "ethiopic", "georgian", "greek", "gujarati", "gurmukhi"),
    *("han", "hangul", "hebrew", "hiragana", "kannada", "katakana", "khmer", "lao", "latin", "malayalam", "myanmar"),
    *("sinhala", "tamil", "telugu", "thai", "tibetan"),
)

READY = {
    "email": rf"[a-zA-Z0-9.!#$%&'*+/=?^_`{{|}}~-]+@{_LABEL}(?:\.{_LABEL})*",
    "url": (
        rf"(?i:https?)://(?:(?:[{_PLAIN}:]|{_CODED})*@)?(?:\[[0-9A-Fa-f:.]+\]|(?:[{_PLAIN}]|{_CODED})+)(?::[0-9]*)?"
        rf"(?:/{_PATH})?(?:\?{_MORE})?(?:#{_MORE})?"
    ),
    "phone": r"(?<![0-9+])\+[1-9](?: ?[0-9]){1,14}(?! ?[0-9])",
    "iban": (
        r"(?<![0-9A-Za-z])[A-Z]{2}(?:0[2-9]|[1-8][0-9]|9[0-8])"
        rf"(?:{_GROUP}{{2}} ?[0-9A-Z]{{3}}|{_GROUP}{{3,6}}(?: ?[0-9A-Z]{{1,3}})?|{_GROUP}{{7}}(?: ?[0-9A-Z]{{1,2}})?)"
        r"(?![0-9A-Za-z])"
    ),
    "date": rf"(?<![0-9])(?a:{DATE})(?![0-9])",
    "emoji": rf"{_ONE}(?:\u200D{_JOINED})*",
    **{script: rf"\p{{Script={script.capitalize()}}}+" for script in SCRIPTS},
}
