"""Circuits for any vtree, through sentential decision diagrams (Darwiche 2011; PySDD, extra `locore[sdd]`).

A position with C classes becomes ceil(log2 C) Boolean variables that stay together in the vtree; reading the diagram back, what
lies inside one position is a set of classes, and what lies above is a decision over positions. PySDD runs in a process of its
own: its calls cannot be interrupted and can crash the interpreter.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from locore.circuits import Builder, Chain, Circuit
from locore.circuits.levels import FALSE
from locore.constraints import And, Constant, Constraint, Count, Literal, Not, Or
from locore.kernel.compilers.problem import CompilerLeaf, Partition, Problem, Vtree, classes_of, gathered, unsatisfiable
from locore.kernel.compilers.ways import BY_VTREE
from locore.kernel.constraints.structure import fold
from locore.kernel.errors import BudgetExceeded, InvalidArgument, InvalidConstraint, MissingExtra

Line = list[object]  # ["lit", variable] | ["not", line] | ["and" | "or", line, ...] | ["true"] | ["false"]
WORKER = Path(__file__).with_name("pysdd_process.py")  # run as a file: as a module it would import torch first


@dataclass
class Diagram:
    """A sentential decision diagram as read from libsdd's file format.

    Attributes:
        root, true, false: node ids; -1 where a constant does not occur.
        literals: node id -> signed variable.
        elements: node id -> (prime, sub) pairs.
    """

    root: int = -1
    true: int = -1
    false: int = -1
    literals: dict[int, int] = field(default_factory=dict)
    elements: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    _scopes: dict[int, frozenset[int]] = field(default_factory=dict)

    def scope(self, node: int, bits: int) -> frozenset[int]:
        """Positions that a node speaks about, with `bits` variables each."""
        if node not in self._scopes:
            if node in self.literals:
                scope = frozenset({(abs(self.literals[node]) - 1) // bits})
            else:
                pairs = self.elements.get(node, [])
                scope = frozenset().union(*(self.scope(x, bits) for pair in pairs for x in pair))
            self._scopes[node] = scope
        return self._scopes[node]


def run_pysdd(formula: list[Line], vtree: list[str], deadline: float) -> Diagram:
    """Compile numbered formula lines for a vtree; the last line is the root.

    Raises:
        BudgetExceeded: no answer within `deadline` seconds, or the process died.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "vtree").write_text("\n".join(vtree) + "\n")
        (folder / "formula").write_text(json.dumps(formula))
        try:
            done = subprocess.run(
                [sys.executable, "-P", str(WORKER), name], timeout=deadline, capture_output=True, text=True, check=False
            )
        except subprocess.TimeoutExpired:
            raise BudgetExceeded(
                f"PySDD did not finish within {deadline:g} s; use a vtree that keeps dependent positions together, or leave "
                "vtree out."
            ) from None
        if done.returncode:
            raise BudgetExceeded(
                f"PySDD failed (exit code {done.returncode}): {done.stderr.strip()[-300:] or 'it crashed'}; the diagram is "
                "too large for it. Leave vtree out, or make the constraint smaller."
            )
        return _parse((folder / "sdd").read_text())


def _parse(text: str) -> Diagram:
    """Read libsdd's format: lines "F id", "T id", "L id vtree literal", "D id vtree n prime sub ..."; the root is last."""
    diagram = Diagram()
    for line in text.splitlines():
        kind, *rest = line.split() or ["c"]
        if kind in ("c", "sdd"):
            continue
        numbers = [int(x) for x in rest]
        diagram.root = numbers[0]
        if kind == "F":
            diagram.false = numbers[0]
        elif kind == "T":
            diagram.true = numbers[0]
        elif kind == "L":
            diagram.literals[numbers[0]] = numbers[2]
        elif kind == "D":
            pairs = numbers[3:]
            diagram.elements[numbers[0]] = list(zip(pairs[0::2], pairs[1::2], strict=True))
    if diagram.true < 0:
        diagram.true = max([diagram.root, diagram.false, *diagram.literals, *diagram.elements]) + 1
    return diagram


def by_vtree(problem: Problem) -> Circuit:
    """Of a problem that has a vtree, whose leaves are written out in literals and counts."""
    assert problem.vtree is not None
    if not all(leaf.is_small for leaf in problem.constraint.leaves()):
        raise InvalidConstraint("a constraint with a grammar or a large schema is read from left to right; leave vtree out.")
    size = problem.tokenizer.vocab_size
    plain = gathered(problem.constraint, size).transform(
        lambda leaf: leaf.spelled_out(size) if isinstance(leaf, CompilerLeaf) else leaf
    )
    return compile_sdd(replace(problem, constraint=plain), problem.vtree)


BY_VTREE.append(by_vtree)


def compile_sdd(problem: Problem, vtree: Vtree) -> Circuit:
    """The circuit of a formula for a vtree of positions. The compiler is killed when the seconds of the problem are over.

    Args:
        vtree: a position, or a pair of vtrees; every position exactly once.

    Raises:
        MissingExtra: PySDD is not installed.
        InvalidConstraint: the constraint has text or other automata, which have no variables.
        BudgetExceeded: the deadline passed, or PySDD crashed.
    """
    if importlib.util.find_spec("pysdd") is None:
        raise MissingExtra("compiling for a vtree needs PySDD; install it with: pip install 'locore[sdd]'")
    vtree = _as_pairs(vtree)
    order = _positions(vtree)
    if sorted(order) != list(range(problem.length)):
        raise InvalidArgument(
            f"the vtree must hold each position 0..{problem.length - 1} exactly once; it holds {sorted(order)}."
        )
    classes = classes_of(problem, problem.constraint)
    writer = _FormulaWriter(problem, classes)
    diagram = run_pysdd(writer.formula(), _vtree_lines(vtree, writer.bits), problem.limits.seconds)
    allowed = [c for c, blocked in enumerate(problem.blocked_tokens()[classes.representative].tolist()) if not blocked]
    reader = _DiagramReader(diagram, Builder(problem.length, classes.num_classes), writer.bits, allowed)
    root = reader.build(diagram.root, vtree)
    if root == FALSE:
        raise unsatisfiable(problem.length)
    token_class = torch.from_numpy(classes.token_class)
    return Circuit(None, Chain.of(reader.builder.finish(root), token_class, classes.num_classes, problem.length))


def _as_pairs(vtree: object) -> Vtree:
    """The vtree with lists as tuples, checked."""
    if isinstance(vtree, int) and not isinstance(vtree, bool):
        return vtree
    if isinstance(vtree, tuple | list) and len(vtree) == 2:
        return _as_pairs(vtree[0]), _as_pairs(vtree[1])
    raise InvalidArgument(f"a vtree is a position or a pair of vtrees, got {vtree!r}.")


def _positions(vtree: Vtree) -> list[int]:
    if isinstance(vtree, int):
        return [vtree]
    return _positions(vtree[0]) + _positions(vtree[1])


def _vtree_lines(vtree: Vtree, bits: int) -> list[str]:
    """The vtree over Boolean variables in libsdd's file format: in-order ids, children before parents.

    Bit j of position i is variable i·bits + j + 1; the bits of a position are a right-linear subtree.
    """
    lines: list[str] = []
    ids = itertools.count()

    def add(tree: Vtree, bit: int = 0) -> int:
        """Append the lines of a subtree; returns the id of its top."""
        if not isinstance(tree, int):
            left, own, right = add(tree[0]), next(ids), add(tree[1])
        else:
            left = next(ids)
            lines.append(f"L {left} {tree * bits + bit + 1}")
            if bit == bits - 1:
                return left
            own, right = next(ids), add(tree, bit + 1)
        lines.append(f"I {own} {left} {right}")
        return own

    add(vtree)
    return [f"vtree {len(lines)}", *lines]


class _FormulaWriter:
    """Writes formulas as numbered lines, each over earlier ones; equal lines are written once."""

    def __init__(self, problem: Problem, classes: Partition) -> None:
        self.problem = problem
        self.classes = classes
        self.bits = max(1, (classes.num_classes - 1).bit_length())
        self.lines: list[Line] = []
        self._numbers: dict[tuple[object, ...], int] = {}

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
        if key not in self._numbers:
            self._numbers[key] = len(self.lines)
            self.lines.append([kind, *args])
        return self._numbers[key]


class _DiagramReader:
    """Reads a diagram into a Builder, smoothing it on the way."""

    def __init__(self, diagram: Diagram, builder: Builder, bits: int, allowed: list[int]) -> None:
        self.diagram = diagram
        self.builder = builder
        self.bits = bits
        self.allowed = allowed
        self._built: dict[tuple[int, Vtree], int] = {}

    def build(self, node: int, vtree: Vtree) -> int:
        """The builder's node for a diagram node, over exactly the positions of `vtree`."""
        key = (node, vtree)
        if key not in self._built:
            self._built[key] = self._build(node, vtree)
        return self._built[key]

    def _build(self, node: int, vtree: Vtree) -> int:
        if node == self.diagram.false:
            return FALSE
        if isinstance(vtree, int):
            classes = [c for c in self.allowed if self._holds(node, vtree, c)]
            return self.builder.leaf(vtree, classes)
        left, right = vtree
        if node == self.diagram.true:
            return self.builder.both(self.build(node, left), self.build(node, right))
        scope = self.diagram.scope(node, self.bits)
        if scope <= set(_positions(left)):
            return self.builder.both(self.build(node, left), self.build(self.diagram.true, right))
        if scope <= set(_positions(right)):
            return self.builder.both(self.build(self.diagram.true, left), self.build(node, right))
        elements = self.diagram.elements[node]
        return self.builder.either([(self.build(p, left), self.build(s, right)) for p, s in elements])

    def _holds(self, node: int, position: int, code: int) -> bool:
        """Is a diagram node over the bits of one position true for a class?"""
        if node in (self.diagram.true, self.diagram.false):
            return node == self.diagram.true
        literal = self.diagram.literals.get(node)
        if literal is not None:
            bit = abs(literal) - 1 - position * self.bits
            return bool(code >> (self.bits - 1 - bit) & 1) == (literal > 0)
        return any(self._holds(p, position, code) and self._holds(s, position, code) for p, s in self.diagram.elements[node])
