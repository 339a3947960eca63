"""From a grammar in Lark's syntax to flat productions."""

from __future__ import annotations

from locore.automata.grammar.productions import START, Builder, Productions, Symbol, Symbols
from locore.automata.grammar.syntax import (
    Choice,
    Common,
    Definitions,
    Expression,
    Literal,
    Name,
    Place,
    Repeated,
    Sequence,
    names_in,
)
from locore.automata.grammar.terminal import Terminal
from locore.automata.grammar.terminals import Terminals
from locore.automata.regex import byte_automaton
from locore.kernel.errors import InvalidConstraint, UnsupportedKeyword

MAX_DEPTH = 20_000  # levels, for llguidance


def productions_of(definitions: Definitions) -> Productions:
    """The productions of a grammar.

    Raises:
        InvalidConstraint: a name that is not defined, no rule `start`, or no text that ever ends.
        UnsupportedKeyword, BudgetExceeded: as their messages say.
    """
    if "start" not in definitions.rules:
        raise InvalidConstraint('the grammar has no rule "start", with which its texts begin; name the first rule so')
    return _Flattening(definitions).productions()


def depth_of(definitions: Definitions) -> int:
    """How many levels of rules and what stands in them are open at once, at most, when each is read where it is first met.

    Raises:
        InvalidConstraint: more than `MAX_DEPTH`.
    """
    every = definitions.terminals | definitions.rules
    roots = [name for expression in definitions.ignored for name in names_in(expression)]
    seen: set[str] = set()
    deepest = 0
    for root in [(Name("start", Place(1, 1)), 1), *roots]:
        path = [(0, iter([root]))]
        while path:
            depth, left = path[-1]
            used, levels = next(left, (None, 0))
            if used is None:
                path.pop()
            elif used.name not in seen and used.name in every:
                seen.add(used.name)
                deepest = max(deepest, depth + levels)
                if deepest > MAX_DEPTH:
                    raise InvalidConstraint(
                        f"the rules of the grammar stand in each other too deep ({used.name!r} at {used.place} is at level "
                        f"{deepest:,} of at most {MAX_DEPTH:,}); leave out rules that only stand for another one, or write the "
                        "grammar in GBNF"
                    )
                path.append((depth + levels, names_in(every[used.name])))
    return deepest


class _Flattening:
    """Turns expressions into productions."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._languages = Terminals(definitions)
        self._optional: dict[int, int] = {}
        self._built = Builder()
        self._number_of: dict[str, int] = {}
        self._pending: list[str] = []

    def productions(self) -> Productions:
        """Of all rules that `start` needs."""
        built = self._built
        built.rules[START].append((self._rule("start"),))
        while self._pending:
            name = self._pending.pop()
            built.rules[self._number_of[name]] += self._sides(self._definitions.rules[name])
        ignored = self._definitions.ignored
        several = Choice(ignored) if len(ignored) > 1 else ignored[0] if ignored else None
        return built.productions(None if several is None else self._terminal(several), self._number_of)

    def _rule(self, name: str) -> Symbol:
        if name not in self._number_of:
            self._number_of[name] = self._built.new()
            self._pending.append(name)
        return self._number_of[name]

    def _sides(self, expression: Expression) -> list[Symbols]:
        parts = expression.parts if isinstance(expression, Choice) else (expression,)
        return list(dict.fromkeys(self._symbols(part) for part in parts))

    def _symbols(self, expression: Expression) -> Symbols:
        if isinstance(expression, Sequence):
            return tuple(symbol for part in expression.parts for symbol in self._symbols(part))
        if isinstance(expression, Choice):
            return (self._built.new(self._sides(expression)),)
        if isinstance(expression, Repeated):
            return self._built.repeated(self._symbols(expression.part), expression.least, expression.most)
        if isinstance(expression, Name) and expression.name in self._definitions.rules:
            return (self._rule(expression.name),)
        if isinstance(expression, Literal) and not expression.text:
            return ()
        if isinstance(expression, Common):
            raise UnsupportedKeyword(
                f"& between rules at {expression.place} of the grammar is not supported; use it in terminals, in uppercase, or "
                "combine two constraints with &"
            )
        return self._terminal_symbols(expression)

    def _terminal_symbols(self, expression: Expression) -> Symbols:
        """A terminal; or nothing, if it can be empty."""
        number = self._terminal(expression)
        if not self._built.terminals[number].nullable:
            return (~number,)
        if number not in self._optional:
            self._optional[number] = self._built.new([(), (~number,)])
        return (self._optional[number],)

    def _terminal(self, expression: Expression) -> int:
        language = self._languages.of(expression)
        return self._built.terminal(language, lambda: Terminal.of(byte_automaton(language), expression.spelled()))
