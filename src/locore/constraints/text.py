"""Constraints on the text: phrases that must or must not occur in it.

The text is what the bytes of the tokens before the end of sequence decode to; a text that is no UTF-8 satisfies none.
Every tokenisation counts, and phrases may straddle tokens. Nothing is stripped: `choice(["yes"])` does not match " yes".

`words=True` counts only occurrences that cut no word: at neither of their ends do a character of a word inside and one outside
meet, so "ass" does not occur in "class", while " hate" and "C++" may stand after or before anything that their space or sign
sets apart. Characters of words are letters, digits, "_" and combining marks; the text starts and ends between words, whatever
the prompt was. `ignore_case=True` compares `str.lower` of each character, ς being σ.

`normalise=True` compares what a reader sees alike: "ï" is one character or "i" and a mark (Unicode's canonical equivalence),
and any run of white space, line breaks and no-break spaces included, is one space. Whole letters are compared: "cafe" does
not occur in "café", however that is written.

In the place of a string `ban`, `contains`, `count`, `starts_with` and `ends_with` take a `pattern`, and lists may mix the
two. A pattern says itself where words begin and end; `ignore_case=True` is for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, overload
from typing import Literal as OneOf

from locore.automata.characters import Manner, continues
from locore.constraints.pattern_phrases import PHRASE_SCHEMA, Pattern, Phrase, check_countable, read_phrase
from locore.constraints.phrases import Ban, Choice, Contains, ContainsInOrder, CountStrings, EndsWith, StartsWith
from locore.constraints.searches import (
    BanPatterns,
    ContainsInOrderPatterns,
    ContainsPattern,
    CountPatterns,
    EndsWithPattern,
    StartsWithPattern,
)
from locore.kernel.constraints.constraint import Constraint, conjunction
from locore.kernel.constraints.serial import (
    bounds_of,
    described,
    flag_of,
    list_of,
    read_flag,
    read_integer,
    read_string,
    register,
)
from locore.kernel.constraints.tokens import BanTokens
from locore.kernel.errors import InvalidConstraint
from locore.kernel.lists import items_of


def ban(
    phrases: Phrase | Iterable[Phrase],
    level: OneOf["text", "tokens"] = "text",
    words: bool = False,
    ignore_case: bool = False,
    normalise: bool = False,
) -> Constraint:
    """None of `phrases` occurs.

    Args:
        phrases: one string or pattern or several, none empty.
        level: "text": not in the text, whatever its tokens. "tokens": not as the token ids that the tokenizer gives to the
            phrase, plain or after a space, from any position on, as in Ahmed et al., ICLR 2025; other tokenisations pass.
        words: only occurrences that cut no word are banned; see the module.
        ignore_case: in upper and in lower case.
        normalise: however its letters are composed, and with any white space for its own; see the module. What lists of words
            that nobody is to get around want.

    Raises:
        InvalidConstraint: no phrases, an empty phrase, an unknown level, or an option that the level does not have.
    """
    sought, manner = phrases_of(phrases, "ban", patterns=True), manner_of(words, ignore_case, "ban", normalise)
    strings, patterns = apart(sought, manner, "ban")
    if level == "text":
        leaves = [Ban(checked(strings, manner), words, ignore_case, normalise)] if strings else []
        return conjunction([*leaves, BanPatterns(patterns)]) if patterns else leaves[0]
    if level != "tokens":
        raise InvalidConstraint(f'ban knows the levels "text" and "tokens", not {level!r}')
    if patterns:
        raise InvalidConstraint(f'ban(level="tokens") has no patterns, got {patterns[0]!r}; leave level out')
    if manner != Manner():
        raise InvalidConstraint(
            'ban(level="tokens") compares ids, not characters; words, ignore_case and normalise need level="text"'
        )
    return BanTokens(strings)


def contains(
    text: Phrase | Iterable[Phrase],
    at_least: int = 1,
    at_most: int | None = None,
    exactly: int | None = None,
    ordered: bool = False,
    words: bool = False,
    ignore_case: bool = False,
    normalise: bool = False,
) -> Constraint:
    """`text` occurs; of several texts, each does.

    Args:
        text: one string or pattern or several, none empty.
        at_least: how often (each), overlapping occurrences included; by default once. Matches of a pattern are counted as by
            `count`.
        at_most: no more often.
        exactly: so often.
        ordered: the texts occur one after the other without overlap.
        words: only occurrences that cut no word count; see the module.
        ignore_case: in upper or in lower case.
        normalise: however its letters are composed, and with any white space for its own; see the module.

    Raises:
        InvalidConstraint: no text, an empty one, or bounds that contradict each other or say nothing.
    """
    manner = manner_of(words, ignore_case, "contains", normalise)
    if flag_of(ordered, "ordered", "contains"):
        if (at_least, at_most, exactly) != (1, None, None):
            raise InvalidConstraint("contains(ordered=True) has no at_least, at_most or exactly; repeat a text in the list")
        listed = sequence_of(text, "contains", ordered=True, patterns=True)
        strings, patterns = apart(listed, manner, "contains")
        if not patterns:
            return ContainsInOrder(checked(strings, manner), words, ignore_case, normalise)
        if ignore_case and strings:
            raise InvalidConstraint(
                "contains(ordered=True) with strings and patterns has no ignore_case; give it to the patterns, and write "
                "pattern(..., ignore_case=True) for strings"
            )
        return ContainsInOrderPatterns(_in_manner(listed, manner))
    bounds = limits_of(at_least, at_most, exactly, "contains", default=1)
    sought = _in_manner(phrases_of(text, "contains", patterns=True), manner)
    checked(apart(sought, manner, "contains")[0], manner)
    if bounds != (1, None):
        check_countable(apart(sought, manner, "contains")[1])
    return conjunction(
        Contains(piece, *bounds, words, ignore_case, normalise) if isinstance(piece, str) else ContainsPattern(piece, *bounds)
        for piece in sought
    )


def starts_with(text: Phrase, words: bool = False, ignore_case: bool = False, normalise: bool = False) -> Constraint:
    """The text starts with `text`; options as for `contains`. `InvalidConstraint` when `text` is empty."""
    manner = manner_of(words, ignore_case, "starts_with", normalise)
    if isinstance(text, Pattern):
        return StartsWithPattern(apart((text,), manner, "starts_with")[1][0])
    (phrase,) = checked((phrase_of(text, "starts_with"),), manner)
    return StartsWith(phrase, words, ignore_case, normalise)


def ends_with(text: Phrase, words: bool = False, ignore_case: bool = False, normalise: bool = False) -> Constraint:
    """The finished text ends with `text`; options as for `contains`. `InvalidConstraint` when `text` is empty."""
    manner = manner_of(words, ignore_case, "ends_with", normalise)
    if isinstance(text, Pattern):
        return EndsWithPattern(apart((text,), manner, "ends_with")[1][0])
    (phrase,) = checked((phrase_of(text, "ends_with"),), manner)
    return EndsWith(phrase, words, ignore_case, normalise)


def choice(texts: str | Iterable[str], ignore_case: bool = False, normalise: bool = False) -> Choice:
    """The whole text is one of `texts`. `InvalidConstraint` for no texts or an empty one."""
    manner = manner_of(False, ignore_case, "choice", normalise)
    return Choice(checked(phrases_of(texts, "choice"), manner), ignore_case, normalise)


def count(
    strings: Phrase | Iterable[Phrase],
    at_least: int = 0,
    at_most: int | None = None,
    exactly: int | None = None,
    words: bool = False,
    ignore_case: bool = False,
    normalise: bool = False,
) -> Constraint:
    """So many occurrences of `strings`, all together; occurrences may overlap, also those of different strings.

    Matches of one pattern do not overlap: counted are the leftmost, of those that begin there the longest, and so on behind it
    (as of a POSIX search). So "2024 and 7" has two matches of `pattern(r"[0-9]+")`.

    Args:
        strings: one string or pattern or several, none empty; strings that the options make equal are one.
        at_least: the lower bound; one bound is needed.
        at_most: the upper bound.
        exactly: both.
        words: only occurrences that cut no word count; see the module.
        ignore_case: in upper or in lower case.
        normalise: however its letters are composed, and with any white space for its own; see the module.

    Raises:
        InvalidConstraint: no strings, an empty one, or bounds that contradict each other or say nothing.
    """
    manner = manner_of(words, ignore_case, "count", normalise)
    bounds = limits_of(at_least, at_most, exactly, "count", default=0)
    sought = phrases_of(strings, "count", patterns=True)
    alone, patterns = apart(sought, manner, "count")
    if not patterns:
        return CountStrings(checked(alone, manner), *bounds, words, ignore_case, normalise)
    check_countable(patterns)
    return CountPatterns(_in_manner(sought, manner), *bounds, bool(alone) and ignore_case)


def apart(phrases: tuple[Phrase, ...], manner: Manner, where: str) -> tuple[tuple[str, ...], tuple[Pattern, ...]]:
    """The strings, and the patterns as they are compared.

    Raises:
        InvalidConstraint: an option that patterns do not have.
    """
    patterns = tuple(phrase for phrase in _in_manner(phrases, manner) if isinstance(phrase, Pattern))
    if patterns and (manner.words or manner.normalise):
        option, instead = ("words", r"write \b into it") if manner.words else ("normalise", "write what it is to match")
        raise InvalidConstraint(
            f"{where} got {option}=True and {patterns[0]!r}: {option} is about strings, and a pattern says itself what it "
            f"matches; {instead}, and give strings with {option}=True to another {where}"
        )
    return tuple(phrase for phrase in phrases if isinstance(phrase, str)), patterns


def _in_manner(phrases: tuple[Phrase, ...], manner: Manner) -> tuple[Phrase, ...]:
    return tuple(phrase.without_case() if isinstance(phrase, Pattern) and manner.ignore_case else phrase for phrase in phrases)


@overload
def phrases_of(value: object, where: str) -> tuple[str, ...]: ...
@overload
def phrases_of(value: object, where: str, patterns: bool) -> tuple[Phrase, ...]: ...
def phrases_of(value: object, where: str, patterns: bool = False) -> tuple[Phrase, ...]:
    """One string or several as a tuple of distinct phrases, in the user's order; `patterns`: or patterns."""
    return tuple(dict.fromkeys(sequence_of(value, where, patterns=patterns)))


@overload
def sequence_of(value: object, where: str, ordered: bool = False) -> tuple[str, ...]: ...
@overload
def sequence_of(value: object, where: str, ordered: bool = False, *, patterns: bool) -> tuple[Phrase, ...]: ...
def sequence_of(value: object, where: str, ordered: bool = False, patterns: bool = False) -> tuple[Phrase, ...]:
    """The same with repetitions; `ordered`: a set will not do."""
    alone = isinstance(value, str | Pattern)
    items = [value] if alone else items_of(value, where, "a string or a list of strings", ordered=ordered)
    phrases = tuple(phrase if patterns and isinstance(phrase, Pattern) else phrase_of(phrase, where) for phrase in items)
    if not phrases:
        raise InvalidConstraint(f"{where} got no phrase at all; pass at least one")
    return phrases


def phrase_of(value: object, where: str) -> str:
    """A string that can occur in a text."""
    if isinstance(value, Pattern):
        raise InvalidConstraint(f"{where} takes strings, got {value!r}; a pattern goes into contains, ban, count, or regex")
    if not isinstance(value, str):
        raise InvalidConstraint(f"{where} needs a string, got {value!r}")
    if not value:
        raise InvalidConstraint(f"{where} got an empty phrase, which occurs in every text; remove it")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidConstraint(
            f"{where} got {value!r}, which has no UTF-8 bytes ({error.reason}); remove the lone surrogate"
        ) from error
    return value


def manner_of(words: object, ignore_case: object, where: str, normalise: object = False) -> Manner:
    """How to compare."""
    flags = {"words": words, "ignore_case": ignore_case, "normalise": normalise}
    return Manner(**{name: flag_of(value, name, where) for name, value in flags.items()})


def checked(phrases: tuple[str, ...], manner: Manner) -> tuple[str, ...]:
    """The phrases, which begin with whole letters where letters are compared."""
    for phrase in phrases if manner.normalise else ():
        if continues(manner.form(phrase)[0]):
            raise InvalidConstraint(
                f"{phrase!r} begins with a mark that belongs to the letter before it, and normalise=True compares whole "
                "letters; put the letter before it, or leave normalise out"
            )
    return phrases


def limits_of(at_least: Any, at_most: Any, exactly: Any, where: str, default: int) -> tuple[int, int | None]:
    """Bounds of a number of times; `default` is what `at_least` is where it is not given."""
    if exactly is None:
        return bounds_of(at_least, at_most, ("at_least", "at_most"), where)
    if (at_least, at_most) != (default, None):
        raise InvalidConstraint(f"{where} got exactly={exactly!r} and other bounds; give either the one or the others")
    return bounds_of(exactly, exactly, ("exactly", "exactly"), where)


@described({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})
def read_phrases(value: Any, path: str) -> Any:
    """A string or a list of strings."""
    return (
        [read_string(item, f"{path}[{i}]") for i, item in enumerate(value)]
        if isinstance(value, list)
        else read_string(value, path)
    )


@described({"anyOf": [PHRASE_SCHEMA, {"type": "array", "items": PHRASE_SCHEMA}]})
def read_phrases_or_patterns(value: Any, path: str) -> Any:
    """A string or a pattern, or a list of them."""
    if not isinstance(value, list):
        return read_phrase(value, path)
    return [read_phrase(item, f"{path}[{i}]") for i, item in enumerate(value)]


MANNER: dict[str, Callable[[Any, str], Any]] = dict.fromkeys(("words", "ignore_case", "normalise"), read_flag)
BOUNDS: dict[str, Callable[[Any, str], Any]] = dict.fromkeys(("at_least", "at_most", "exactly"), read_integer)

register("ban", ban, {"phrases": list_of(read_phrase)}, {"level": read_string} | MANNER)
register("contains", contains, {"text": read_phrases_or_patterns}, BOUNDS | {"ordered": read_flag} | MANNER)
register("starts_with", starts_with, {"text": read_phrase}, MANNER)
register("ends_with", ends_with, {"text": read_phrase}, MANNER)
register("choice", choice, {"texts": list_of(read_string)}, {"ignore_case": read_flag, "normalise": read_flag})
register("count", count, {"strings": list_of(read_phrase)}, BOUNDS | MANNER)
