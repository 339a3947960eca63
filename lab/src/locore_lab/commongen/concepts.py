"""Concept sets of CommonGen, and the words that count as each concept.

CommonGen (Lin et al. 2020) asks for a sentence with all concepts of a set, each in any inflection. Which these are is decided
here by the rules of English, a list of irregular forms, and people: a form counts if the rules or the list give it, and one of
the 10,059 sentences that people wrote for the sets has it. The concept itself always counts. `sets.json` holds 200 sets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
SETS = Path(__file__).parent / "sets.json"
SPLIT, SPLITS = "dev", ("dev", "test")
WORD = re.compile(r"[a-z]+")
VOWELS = "aeiou"
# Only what the rules do not make.
IRREGULAR = {
    "axis": "axes",
    "become": "became",
    "begin": "began begun",
    "bend": "bent",
    "bite": "bit bitten",
    "blow": "blew blown",
    "break": "broke broken",
    "bring": "brought",
    "build": "built",
    "buy": "bought",
    "calf": "calves",
    "catch": "caught",
    "child": "children",
    "choose": "chose chosen",
    "come": "came",
    "deal": "dealt",
    "die": "dying",
    "dig": "dug",
    "do": "did done",
    "draw": "drew drawn",
    "drink": "drank drunk",
    "drive": "drove driven",
    "eat": "ate eaten",
    "fall": "fell fallen",
    "feed": "fed",
    "feel": "felt",
    "fight": "fought",
    "find": "found",
    "fly": "flew flown",
    "foot": "feet",
    "get": "got gotten",
    "give": "gave given",
    "go": "went gone",
    "grind": "ground",
    "grow": "grew grown",
    "half": "halves",
    "hang": "hung",
    "have": "had has",
    "hear": "heard",
    "hide": "hid hidden",
    "hold": "held",
    "keep": "kept",
    "knife": "knives",
    "know": "knew known",
    "lay": "laid",
    "lead": "led",
    "leaf": "leaves",
    "lean": "leant",
    "leap": "leapt",
    "leave": "left",
    "lie": "lay lain lying",
    "light": "lit",
    "lose": "lost",
    "make": "made",
    "man": "men",
    "meet": "met",
    "mouse": "mice",
    "pay": "paid",
    "person": "people",
    "ride": "rode ridden",
    "ring": "rang rung",
    "rise": "rose risen",
    "run": "ran",
    "say": "said",
    "see": "saw seen",
    "sell": "sold",
    "send": "sent",
    "shake": "shook shaken",
    "shave": "shaven",
    "shine": "shone",
    "shoot": "shot",
    "show": "shown",
    "sing": "sang sung",
    "sit": "sat",
    "sleep": "slept",
    "slide": "slid",
    "speak": "spoke spoken",
    "spend": "spent",
    "spin": "spun",
    "spring": "sprang sprung",
    "stand": "stood",
    "steal": "stole stolen",
    "stick": "stuck",
    "sweep": "swept",
    "swim": "swam swum",
    "swing": "swung",
    "take": "took taken",
    "teach": "taught",
    "tear": "tore torn",
    "tell": "told",
    "think": "thought",
    "throw": "threw thrown",
    "tie": "tying",
    "tooth": "teeth",
    "wear": "wore worn",
    "weave": "wove woven",
    "wife": "wives",
    "win": "won",
    "wind": "wound",
    "woman": "women",
    "write": "wrote written",
}


@dataclass(frozen=True)
class ConceptSet:
    """What a sentence has to speak of."""

    forms: Mapping[str, tuple[str, ...]]  # concept -> the words that count as it
    reference: str  # the first sentence that somebody wrote for it

    @property
    def name(self) -> str:
        """Its concepts."""
        return " ".join(self.forms)

    def missing(self, text: str) -> list[str]:
        """The concepts that a text does not have, read without automata."""
        there = set(words(text))
        return [concept for concept, forms in self.forms.items() if not there & set(forms)]


def words(text: str) -> list[str]:
    """Runs of letters, in lower case."""
    return WORD.findall(text.lower())


def possible(concept: str) -> set[str]:
    """Inflections by rule and by list; some of them are no words."""
    end, is_y = concept[-1], concept[-1] == "y" and concept[-2] not in VOWELS
    plural = concept[:-1] + "ies" if is_y else concept + "es" if re.search("(s|x|z|o|ch|sh)$", concept) else concept + "s"
    if re.fullmatch(rf"[^{VOWELS}]*[{VOWELS}][^{VOWELS}wxy]", concept):  # of one syllable: bar, barred, and not bared
        stems = {concept + end}
    elif end == "e":
        stems = {concept if re.search("(ee|oe|ye|nge)$", concept) else concept[:-1]}
    else:
        stems = {concept, concept + end}  # begin, beginning
    past = {concept[:-1] + "ied"} if is_y else {stem.removesuffix("e") + "ed" for stem in stems}
    return {concept, plural} | past | {stem + "ing" for stem in stems} | set(IRREGULAR.get(concept, "").split())


def read_sets(folder: Path, split: str = SPLIT) -> list[ConceptSet]:
    """All sets of a split, in its order."""
    columns = [_lines(folder, split, part) for part in ("index", "concepts", "references")]
    first: dict[str, tuple[list[str], str]] = {}
    for index, concepts, sentence in zip(*columns, strict=True):
        first.setdefault(index, (concepts.split(), sentence))
    written = {word for one in SPLITS for sentence in _lines(folder, one, "references") for word in words(sentence)}
    return [
        ConceptSet({concept: tuple(sorted({concept} | possible(concept) & written)) for concept in concepts}, sentence)
        for concepts, sentence in first.values()
    ]


def _lines(folder: Path, split: str, part: str) -> list[str]:
    return (folder / f"{split}.{part}.txt").read_text("utf-8").splitlines()


def chosen(folder: Path, number: int) -> list[ConceptSet]:
    """So many sets, evenly from all of them."""
    return evenly(read_sets(folder), number)


def evenly(every: Sequence[T], number: int) -> list[T]:
    """So many, from all of them."""
    return [every[k * len(every) // number] for k in range(number)]


def stored() -> list[ConceptSet]:
    """Those of the package."""
    record = json.loads(SETS.read_text("utf-8"))
    return [
        ConceptSet({name: tuple(forms) for name, forms in one["forms"].items()}, one["reference"]) for one in record["sets"]
    ]


def store(folder: Path, number: int = 200) -> None:
    """Write `sets.json` anew, a set a line."""
    lines = [json.dumps({"forms": one.forms, "reference": one.reference}) for one in chosen(folder, number)]
    source = "CommonGen (Lin et al. 2020), dev; https://github.com/INK-USC/CommonGen; MIT, see LICENSE"
    body = ",\n  ".join(lines)
    SETS.write_text(f'{{\n "source": {json.dumps(source)},\n "sets": [\n  {body}\n ]\n}}\n', "utf-8")
