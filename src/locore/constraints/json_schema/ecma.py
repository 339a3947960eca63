r"""The regular expressions of JSON Schema: those of ECMA-262, as far as Python's parser reads them.

Where both know a construct and mean different things, the tree of Python's parser is changed to what ECMA-262 (section 22.2)
says: `$` is the very end of the string, `.` is anything but the four line terminators, `\d`, `\w` and `\b` are about ASCII,
and `\s` is the whitespace of that standard.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from locore.constraints.regular.charset import CharSet
from locore.constraints.regular.pattern import Item, Pattern, op, parse, replace_items

LINE_TERMINATORS = CharSet.from_text("\n\r\u2028\u2029")
WHITESPACE = CharSet.from_text("\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff") | CharSet.of([(0x2000, 0x200A)])


@lru_cache(maxsize=256)
def parse_ecma(text: str) -> Pattern:
    """The tree of the value of `pattern`.

    Raises:
        InvalidConstraint: Python does not accept it.
    """
    pattern = parse(text, re.ASCII)
    replace_items(pattern.tree, _as_ecma_means_it)
    return pattern


def _as_ecma_means_it(item: Item) -> Item:
    code, argument = item
    if code is op.ANY:
        return op.IN, [(op.NEGATE, None), *_items(LINE_TERMINATORS)]
    if code is op.IN:
        return code, [changed for part in argument for changed in _class_item(part)]
    if code is op.AT and argument is op.AT_END:
        return code, op.AT_END_STRING
    return item


def _class_item(item: Item) -> list[Item]:
    """What stands in a class such as `[\\s,;]`."""
    if item == (op.CATEGORY, op.CATEGORY_SPACE):
        return _items(WHITESPACE)
    if item == (op.CATEGORY, op.CATEGORY_NOT_SPACE):
        return _items(~WHITESPACE)
    return [item]


def _items(chars: CharSet) -> list[tuple[Any, Any]]:
    return [(op.RANGE, span) for span in chars.ranges]
