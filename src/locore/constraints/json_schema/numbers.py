"""Decimal numbers as texts: whole or with a fraction, within bounds, equal to a number; without exponents."""

from __future__ import annotations

from fractions import Fraction

from locore.automata.regex.language import EMPTY, EPSILON, Concat, Language, concat, either, literal, one_of, optional, repeat

DIGIT = one_of("0123456789")
DIGITS = repeat(DIGIT, 0, None)
ZEROS = repeat(literal("0"), 0, None)
POSITIVE = one_of("123456789")
POINT = literal(".")
NATURAL = either([literal("0"), Concat((POSITIVE, DIGITS))])
FRACTION = optional(Concat((POINT, DIGIT, DIGITS)))
NOUGHT = optional(Concat((POINT, literal("0"), ZEROS)))  # a fraction that is worth nothing
MINUS = literal("-")
DECIMAL = Concat((optional(MINUS), NATURAL, FRACTION))
WHOLE = either([literal("0"), Concat((optional(MINUS), POSITIVE, DIGITS))])  # by digits alone
NEGATIVE = Concat((MINUS, NATURAL, FRACTION))


def above(number: Fraction, is_open: bool) -> Language:
    """Numbers of at least (open: above) a number."""
    if number > 0 or (number == 0 and is_open):
        return _more(number, is_open)
    if number == 0:
        return either([_more(number, False), equal_to(number)])
    return either([_more(Fraction(0), False), Concat((MINUS, _less(-number, is_open)))])


def below(number: Fraction, is_open: bool) -> Language:
    """Numbers of at most (open: below) a number."""
    if number < 0 or (number == 0 and is_open):
        return Concat((MINUS, _more(-number, is_open)))
    if number == 0:
        return either([NEGATIVE, equal_to(number)])
    return either([NEGATIVE, _less(number, is_open)])


def equal_to(number: Fraction) -> Language:
    """The ways to write a number."""
    whole, fraction = _digits(abs(number))
    size = Concat((literal(whole), Concat((POINT, literal(fraction), ZEROS)) if fraction else NOUGHT))
    if number == 0:
        return Concat((optional(MINUS), size))
    return Concat((MINUS, size)) if number < 0 else size


def written(number: Fraction) -> Language:
    """A number as it is usually written: without superfluous zeros, and without a point where it is whole."""
    whole, fraction = _digits(abs(number))
    return literal(("-" if number < 0 else "") + whole + ("." + fraction if fraction else ""))


def _digits(size: Fraction) -> tuple[str, str]:
    """The digits before and after the point, without superfluous zeros; the number is a finite decimal."""
    whole, rest = divmod(size.numerator, size.denominator)
    digits = []
    while rest:
        digit, rest = divmod(rest * 10, size.denominator)
        digits.append(str(digit))
    return str(whole), "".join(digits)


def _more(size: Fraction, is_open: bool) -> Language:
    """Numbers without a sign, of at least or above a size."""
    whole, fraction = _digits(size)
    ways: list[Language] = [Concat((naturals(int(whole) + 1, None), FRACTION))]
    if fraction:
        ways.append(Concat((literal(whole), POINT, _fraction_above(fraction, is_open))))
    elif is_open:
        ways.append(Concat((literal(whole), POINT, ZEROS, POSITIVE, DIGITS)))
    else:
        ways.append(Concat((literal(whole), FRACTION)))
    return either(ways)


def _less(size: Fraction, is_open: bool) -> Language:
    """Numbers without a sign, of at most or below a size."""
    whole, fraction = _digits(size)
    ways: list[Language] = []
    if whole != "0":
        ways.append(Concat((naturals(0, int(whole) - 1), FRACTION)))
    if fraction:
        ways.append(Concat((literal(whole), _fraction_below(fraction, is_open))))
    elif not is_open:
        ways.append(Concat((literal(whole), NOUGHT)))
    return either(ways)


def _fraction_above(digits: str, is_open: bool) -> Language:
    ways = [
        concat(literal(digits[:place]), one_of("".join(map(str, range(int(digit) + 1, 10)))), DIGITS)
        for place, digit in enumerate(digits)
        if digit != "9"
    ]
    ways.append(Concat((literal(digits), *((ZEROS, POSITIVE) if is_open else ()), DIGITS)))
    return either(ways)


def _fraction_below(digits: str, is_open: bool) -> Language:
    """With its point; or nothing, which is below all digits."""
    ways: list[Language] = [
        concat(literal(digits[:place]), one_of("".join(map(str, range(int(digit))))), DIGITS)
        for place, digit in enumerate(digits)
        if digit != "0"
    ]
    ways += [literal(digits[:place]) for place in range(1, len(digits))]
    if not is_open:
        ways.append(Concat((literal(digits), ZEROS)))
    return either([EPSILON, Concat((POINT, either(ways)))])


def naturals(low: int, high: int | None) -> Language:
    """Whole numbers of a range that starts at 0 or above, None for no bound."""
    first, last = str(low), None if high is None else str(high)
    if last is not None and len(first) >= len(last):
        return either(_same_length(first, last)) if len(first) == len(last) else EMPTY
    ways = _same_length(first, "9" * len(first))
    if last is None or len(last) - 1 > len(first):
        ways.append(Concat((POSITIVE, repeat(DIGIT, len(first), None if last is None else len(last) - 2))))
    if last is not None:
        ways += _same_length("1" + "0" * (len(last) - 1), last)
    return either(ways)


def _same_length(low: str, high: str) -> list[Language]:
    """Numbers of as many digits as both bounds, by the digit at which they first leave a bound."""
    if low > high:
        return []
    same = next((place for place, (a, b) in enumerate(zip(low, high, strict=True)) if a != b), len(low))
    if same == len(low):
        return [literal(low)]
    rest = len(low) - same - 1
    ways = _leaving(low[:same], range(int(low[same]) + 1, int(high[same])), rest)
    ways += [literal(low), literal(high)]
    for place in range(same + 1, len(low)):
        ways += _leaving(low[:place], range(int(low[place]) + 1, 10), len(low) - place - 1)
        ways += _leaving(high[:place], range(int(high[place])), len(low) - place - 1)
    return ways


def _leaving(start: str, digits: range, rest: int) -> list[Language]:
    chosen = "".join(map(str, digits))
    return [concat(literal(start), one_of(chosen), repeat(DIGIT, rest, rest))] if chosen else []
