"""A constraint over positions as a Boolean formula over the bits of token classes."""

from __future__ import annotations

from locore.compilers.partition import Partition
from locore.compilers.problem import Problem
from locore.constraints import And, Constant, Constraint, Count, Literal, Not, Or
from locore.constraints.structure import fold
from locore.errors import InvalidConstraint

Line = list[object]  # ["lit", variable] | ["not", line] | ["and" | "or", line, ...] | ["true"] | ["false"]


class FormulaWriter:
    """Writes formulas as numbered lines, each over earlier ones; equal lines are written once."""

    def __init__(self, problem: Problem, classes: Partition) -> None:
        self.problem = problem
        self.classes = classes
        self.bits = max(1, (classes.num_classes - 1).bit_length())
        self.lines: list[Line] = []
        self._known: dict[tuple[object, ...], int] = {}

    def formula(self) -> list[Line]:
        """All lines; the last is the constraint with the rules on the end of the text."""
        root = fold(self.problem.constraint, self._rule)
        # A line of its own, whatever it says: the root must be the last one.
        self.lines.append(["and", root, *self._padding()])
        return self.lines

    def _rule(self, node: Constraint, parts: list[int]) -> int:
        if isinstance(node, Constant):
            return self._emit("true" if node.value else "false")
        if isinstance(node, Literal):
            return self._literal(node.position, node.tokens)
        if isinstance(node, Count):
            return self._count(node)
        if isinstance(node, Not):
            return self._emit("not", *parts)
        if isinstance(node, And | Or):
            return self._emit("and" if isinstance(node, And) else "or", *parts)
        raise InvalidConstraint(
            f"{type(node).__name__} has no variables, so it cannot be compiled for a vtree; leave vtree out and it is "
            "compiled from left to right."
        )

    def _padding(self) -> list[int]:
        """Only the padding follows an end, and no end comes before `min_length`."""
        eos_ids, length = self.problem.tokenizer.eos_ids, self.problem.length
        if not eos_ids:
            return []
        rules = []
        for position in range(length):
            ended = self._literal(position, frozenset(eos_ids))
            if position < self.problem.min_length:
                rules.append(self._emit("not", ended))
            elif position + 1 < length:
                padded = self._literal(position + 1, frozenset(eos_ids[:1]))
                rules.append(self._emit("or", self._emit("not", ended), padded))
        return rules

    def _literal(self, position: int, tokens: frozenset[int]) -> int:
        """y_position in tokens: a disjunction of class codes."""
        codes = [c for c, t in enumerate(self.classes.representative.tolist()) if t in tokens]
        return self._emit("or", *(self._code(position, code) for code in codes))

    def _code(self, position: int, code: int) -> int:
        terms = []
        for bit in range(self.bits):
            variable = self._emit("lit", position * self.bits + bit + 1, raw=True)
            terms.append(variable if code >> (self.bits - 1 - bit) & 1 else self._emit("not", variable))
        return self._emit("and", *terms)

    def _count(self, count: Count) -> int:
        """A counter: line `[j]` says that j of the positions so far are counted (or, last, too many)."""
        cap = count.at_least if count.at_most is None else count.at_most + 1
        reached = [self._emit("true")] + [self._emit("false")] * cap
        for position in count.positions:
            hit = self._literal(position, count.tokens)
            miss = self._emit("not", hit)
            stay = [self._emit("and", r, miss) for r in reached]
            move = [self._emit("and", r, hit) for r in reached]
            top = self._emit("or", stay[-1], move[-1], *([move[-2]] if cap else []))
            middle = [self._emit("or", stay[j], *([move[j - 1]] if j else [])) for j in range(cap)]
            reached = [*middle, top]
        last = cap if count.at_most is None else count.at_most
        return self._emit("or", *reached[count.at_least : last + 1])

    def _emit(self, kind: str, *args: int, raw: bool = False) -> int:
        if kind in ("and", "or") and len(args) == 1 and not raw:
            return args[0]
        if kind in ("and", "or") and not args:
            kind = "true" if kind == "and" else "false"
        key = (kind, *args)
        if key not in self._known:
            self._known[key] = len(self.lines)
            self.lines.append([kind, *args])
        return self._known[key]
