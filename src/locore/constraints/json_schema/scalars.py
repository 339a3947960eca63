"""The strings and numbers of which facts hold, as automata over characters.

Strings are read by their value, however they are written. Numbers are read as they are written, in decimal notation without an
exponent, and mean what they are worth: 1, 1.0 and 1.00 are one number, and where one that is whole is asked for by digits, 1 is
how it is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce

import numpy as np

from locore.automata.regex.determinise import determinise
from locore.automata.regex.dfa import Budget, Dfa, intersection
from locore.automata.regex.language import ANY_CHAR, ANYTHING, CharSet, Concat, Language, either, partition, repeat
from locore.automata.regex.parse import language_of
from locore.automata.regex.pattern import parse_ecma
from locore.automata.regex.scanner import Scanner
from locore.constraints.json_schema.facts import Bound, Fact, Length, Matches, Multiple, NumberIn, StringIn
from locore.constraints.json_schema.formats import FORMATS
from locore.constraints.json_schema.json_characters import BACKSLASH, least_bytes
from locore.constraints.json_schema.numbers import DECIMAL, WHOLE, above, below, equal_to, written
from locore.kernel.errors import BudgetExceeded

MOST_REMAINDERS = 20_000


@dataclass(frozen=True, eq=False)
class Strings:
    """The strings of which some facts hold.

    Attributes:
        scanner: what their characters have to be; None: anything.
        least, most: how many characters; most may be None.
        are_words: are they the words of a list?
    """

    scanner: Scanner | None
    least: int
    most: int | None
    are_words: bool = False

    def tells(self, beginning: bytes) -> bool:
        """Does it matter which character begins with these bytes?"""
        return self.scanner is not None and (beginning[0] == BACKSLASH or self.scanner.tells_beyond_ascii)

    def accepts(self, text: str) -> bool:
        """Is it one of them?"""
        fits = self.least <= len(text) and (self.most is None or len(text) <= self.most)
        return fits and (self.scanner is None or self.scanner.accepts(text))


def strings(facts: Iterable[Fact]) -> Strings | None:
    """The strings of which all these facts hold; None if it is plain that there are none."""
    least, most, named, automata = 0, None, None, []
    unwanted: frozenset[str] = frozenset()
    for fact in facts:
        if isinstance(fact, Length):
            least = max(least, fact.least)
            most = fact.most if most is None else most if fact.most is None else min(most, fact.most)
        elif isinstance(fact, StringIn) and fact.wanted:
            named = fact.strings if named is None else named & fact.strings
        elif isinstance(fact, StringIn):
            unwanted |= fact.strings
        elif isinstance(fact, Matches):
            dfa = matching(fact.what, fact.name)
            automata.append(dfa if fact.wanted else dfa.complement())
    if most is not None and most < least:
        return None
    if named is not None:
        loose = Strings(None, least, most)
        fitting = {word for word in named - unwanted if loose.accepts(word) and all(dfa.accepts(word) for dfa in automata)}
        return Strings(_scanner_of(frozenset(fitting)), 0, None, True) if fitting else None
    if unwanted:
        automata.append(of_words(sorted(unwanted)).complement())
    if not automata:
        return Strings(None, least, most)
    return Strings(_scanner(tuple(automata)), least, most)


@lru_cache(maxsize=32)  # a reading asks for them several times, and they may be long
def _scanner_of(words: frozenset[str]) -> Scanner:
    return Scanner(of_words(sorted(words)), least_bytes)


@lru_cache(maxsize=512)
def _scanner(automata: tuple[Dfa, ...]) -> Scanner:
    return Scanner(reduce(_both, automata), least_bytes)


def _both(left: Dfa, right: Dfa) -> Dfa:
    return intersection(left, right, Budget.in_force())


@lru_cache(maxsize=512)
def matching(what: str, name: str) -> Dfa:
    """The strings in which a pattern occurs, or those of a format."""
    if what == "format":
        return determinise(language_of(parse_ecma(FORMATS[name])), Budget.in_force())
    return determinise(Concat((ANYTHING, language_of(parse_ecma(name)), ANYTHING)), Budget.in_force())


def of_words(words: Iterable[str]) -> Dfa:
    """The automaton of these words: their trie, and a state from which nothing is accepted."""
    children: list[dict[str, int]] = [{}, {}]  # the start, and the one without hope
    ends = [False, False]
    for word in words:
        node = 0
        for letter in word:
            if letter not in children[node]:
                children[node][letter] = len(children)
                children.append({})
                ends.append(False)
            node = children[node][letter]
        ends[node] = True
    letters = sorted({letter for edges in children for letter in edges})
    classes, members = partition([CharSet.from_text(letter) for letter in letters])
    column = {letter: columns[0] for letter, columns in zip(letters, members, strict=True) if columns}
    table = np.ones((len(children), classes.num_classes), dtype=np.int32)
    for node, edges in enumerate(children):
        for letter, child in edges.items():
            table[node, column[letter]] = child
    return Dfa(table, np.array(ends), classes)


def language_of_strings(words: Strings | None) -> Dfa | None:
    """The same as one automaton, lengths and all."""
    if words is None:
        return None
    lengths = None
    if words.least or words.most is not None:
        lengths = determinise(repeat(ANY_CHAR, words.least, words.most), Budget.in_force())
    if words.scanner is None:
        return lengths if lengths is not None else determinise(ANYTHING, Budget.in_force())
    return words.scanner.dfa if lengths is None else _both(words.scanner.dfa, lengths)


@lru_cache(maxsize=512)
def numbers(facts: frozenset[Fact], digits: bool) -> Scanner:
    """The numbers, as they are written, of which all these facts hold.

    Args:
        digits: numbers that are named, or have to be whole, are written in one way, without a point where they are whole.
    """
    automata = [_decimal()]
    if digits and any(isinstance(fact, Multiple) and fact.wanted and fact.of.denominator == 1 for fact in facts):
        automata.append(_whole())
    for fact in facts:
        if isinstance(fact, Bound):
            language = below(fact.number, fact.is_open) if fact.upper else above(fact.number, fact.is_open)
            automata.append(_determinised(language))
        elif isinstance(fact, Multiple):
            dfa = _multiples(fact.of, fact.digits)
            automata.append(dfa if fact.wanted else dfa.complement())
        elif isinstance(fact, NumberIn):
            write = written if digits and fact.wanted else equal_to
            dfa = _determinised(either([write(number) for number in sorted(fact.numbers)]))
            automata.append(dfa if fact.wanted else dfa.complement())
    return Scanner(reduce(_both, automata), _one_byte)


def _one_byte(low: int, high: int) -> float:
    return 1.0


@lru_cache(maxsize=1)
def _decimal() -> Dfa:
    return _determinised(DECIMAL)


@lru_cache(maxsize=1)
def _whole() -> Dfa:
    return _determinised(WHOLE)


def _determinised(language: Language) -> Dfa:
    return determinise(language, Budget.in_force())


def _multiples(of: Fraction, digits: bool) -> Dfa:
    """Numbers that are whole multiples of a decimal fraction.

    Times 10**places it is a whole number, and a number is read as one with so many places: the remainder so far, and how many
    places have been read. Places beyond have to be zero.
    """
    places = 0
    while (of * 10**places).denominator != 1:
        places += 1
    modulus = int(of * 10**places)
    if modulus * (places + 2) > MOST_REMAINDERS:
        raise BudgetExceeded(f"it has a multipleOf with more than {MOST_REMAINDERS:,} remainders; round it")
    classes, members = partition([CharSet.from_text(numeral) for numeral in "0123456789-."])
    *numerals, sign, point = (columns[0] for columns in members)
    # States: dead, start, after a sign, a lone zero, and first + remainder + modulus · (whole: 0, places read + 1).
    first, remainder = 4, np.arange(modulus)
    table = np.zeros((first + modulus * (places + 2), classes.num_classes), dtype=np.int32)
    accepting = np.zeros(len(table), dtype=np.bool_)
    longer = first + (10 * remainder[:, None] + np.arange(10)) % modulus  # states[remainder, digit] of whole numbers
    table[1, sign] = 2
    table[1:3, numerals] = [3, *longer[0, 1:]]
    table[first : first + modulus, numerals] = longer
    accepting[3] = True
    accepting[first : first + modulus] = remainder * (10**places % modulus) % modulus == 0
    if not digits:
        table[3, point] = first + modulus
        table[first : first + modulus, point] = first + modulus + remainder
        for read in range(places + 1):
            inside = first + modulus * (read + 1) + remainder
            # With no places at all "1." must not be accepted, and "1.0" must: one more state for each remainder would say so;
            # the automaton of all decimals, with which this one is always joined, does.
            accepting[inside] = (read > 0 or places == 0) & (remainder * (10 ** (places - read) % modulus) % modulus == 0)
            if read < places:
                table[inside[:, None], numerals] = longer + modulus * (read + 2)
            else:
                table[inside, numerals[0]] = inside
    order = [1, 0, *range(2, len(table))]  # the start comes first
    number = np.argsort(order)
    return Dfa(number[table][order].astype(np.int32), accepting[order], classes).minimised()
