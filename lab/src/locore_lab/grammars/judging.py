"""Texts under a grammar, texts that differ from them by one character, and who takes them for sentences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import locore
from locore.constraints.context_free import Grammar
from locore.models import LanguageModel
from locore_lab.grammars.independent import Independent
from locore_lab.harness import Row
from locore_lab.shared import changed


@dataclass(eq=False)
class Compared:
    """Verdicts on texts: two of Locore's beside another's.

    Attributes:
        sentences: texts that the other takes.
        more, less: texts that Locore takes and the other does not, and the reverse.
        apart: texts on which Locore's machine, which draws, and its reader, which checks what was drawn, do not agree.
    """

    texts: int = 0
    sentences: int = 0
    more: list[str] = field(default_factory=list)
    less: list[str] = field(default_factory=list)
    apart: list[str] = field(default_factory=list)

    def add(self, text: str, ours: bool, theirs: bool, read: bool) -> None:
        """One text more."""
        self.texts += 1
        self.sentences += theirs
        for found, differs in ((self.more, ours and not theirs), (self.less, theirs and not ours), (self.apart, ours != read)):
            if differs:
                found.append(text)

    def row(self) -> Row:
        """Numbers, and the shortest text of each kind."""
        row: Row = {"texts": self.texts, "sentences": self.sentences}
        for name in ("more", "less", "apart"):
            found: list[str] = getattr(self, name)
            row |= {name: len(found)} | ({f"{name}_text": min(found, key=len)} if found else {})
        return row


def drawn(model: LanguageModel, grammar: Grammar, length: int, number: int, seed: int) -> list[str]:
    """Distinct texts, as the mask draws them."""
    particles = locore.generate(model, "\n", grammar, length, num_particles=number, sampler="masked", seed=seed)
    return list(dict.fromkeys(particles.texts))


def compared(grammar: Grammar, other: Independent, texts: list[str], use_lalr: bool = False) -> Compared:
    """Both verdicts on each text; by the LALR parser, of which there must be one, where that is asked for."""
    machine, found = grammar.machine(), Compared()
    for text in texts:
        content = text.encode()
        state = machine.after(content)
        ours = state >= 0 and machine.accepts(state)
        theirs = bool(other.lalr(text)) if use_lalr else other.earley(text)
        found.add(text, ours, theirs, grammar.reader.read(content)[1])
    return found


def judged(model: LanguageModel, grammar: Grammar, other: Independent, options: dict[str, Any]) -> Row:
    """A row: what became of texts under a grammar, and of those next to them."""
    texts = drawn(model, grammar, options["length"], options["particles"], options["seed"])
    near = list(changed(texts, options["changes"], options["seed"], grammar.text))
    right, beside = compared(grammar, other, texts), compared(grammar, other, near)
    row: Row = {"drawn": len(texts), "drawn_refused": len(right.more), "drawn_apart": len(right.apart)}
    row |= {"longest": max(map(len, texts)), **beside.row()}
    if right.more:
        row["drawn_refused_text"] = min(right.more, key=len)
    if other.lalr("") is not None:
        lalr = compared(grammar, other, [*texts, *near], use_lalr=True).row()
        row |= {f"lalr_{name}": value for name, value in lalr.items() if not name.startswith(("texts", "apart"))}
    return row
