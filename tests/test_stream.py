"""`stream` shows the draw of `sample` as early as it is certain: its law, what is certain against enumeration, and its end."""

from __future__ import annotations

import itertools
import threading
import warnings
from collections import Counter
from functools import cache

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

import locore
from locore import ban, bonus, choice, contains, ends_with, regex, starts_with, word_count
from locore.automata.stops import sure_before
from locore.compilers import compile
from locore.constraints import Constant, before
from locore.kernel.errors import InvalidArgument, LocoreWarning, Unsatisfiable, ZeroWeights
from locore.kernel.request import cut_before
from locore.kernel.tokenizer import Tokenizer
from locore.models import TableModel
from locore.samplers import BY_NAME, Masking, WithoutReplacement
from locore.streaming import Certain
from tests.effort import THOROUGH

FALSE_ALARM = 1e-6
LENGTH = 5
# "ä" and "😀" in one piece and byte by byte; 7 ends the text.
SPELLED = [b"a", b"ab", b" c", "ä".encode(), b"\xc3", b"\xa4", b"b", None]
TOKENS = Tokenizer.from_tokens(SPELLED, eos_ids=(7,))
CONSTRAINTS = {
    "all": Constant(True),
    "anything": regex("(?s).*"),
    "ban": ban(["bb"]),
    "contains": contains("ab"),
    "begins": starts_with("ab c"),
    "choice": choice(["aä c", "aäb", "aäba"]),
    "ends": ends_with("ä") & word_count(1, 2),
    "bonus": ban(["bb"]) * bonus(contains("c"), 2.0),
}
OPTIONS = {
    "plain": {},
    "stop": {"stop": ["b", " c"]},
    "canonical": {"canonical": "alpha"},
    "eos": {"ending": "eos", "temperature": 0.7},
    "best": {"temperature": 0},
}


@cache
def model_of(seed: int) -> TableModel:
    generator = np.random.default_rng(seed)
    vocab = len(SPELLED)
    tables = [torch.from_numpy(generator.dirichlet(np.full(vocab, 0.4), size=(vocab,) * step) + 1e-6) for step in range(LENGTH)]
    tables = [table.reshape(*(vocab,) * step, vocab) for step, table in enumerate(tables)]
    return TableModel([table / table.sum(-1, keepdim=True) for table in tables], tokenizer=TOKENS)


def outcome(call) -> str:
    """Its text, or its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except (Unsatisfiable, ZeroWeights, InvalidArgument) as error:
            return type(error).__name__


CASES = list(itertools.product(CONSTRAINTS, OPTIONS, (1, 4, 96)))


@pytest.mark.parametrize("sampler", [None, *sorted(BY_NAME)])
def test_the_pieces_are_the_draw_of_sample(sampler):
    """With the same seed, for every sampler; never an empty piece, never half a character."""
    generator, several = np.random.default_rng(len(sampler or "")), 0
    in_pieces = sampler in ("masked", "swor", "smc", "masked-is")
    few = len(CASES) // 4 if THOROUGH else 8 if in_pieces else 1
    for number in generator.permutation(len(CASES))[:few].tolist():
        name, options, num = CASES[number]
        model, alpha = model_of(number % 5), CONSTRAINTS[name]
        asked = {"seed": number, "num_particles": num, "sampler": sampler, "max_new_tokens": LENGTH, **OPTIONS[options]}
        pieces: list[str] = []

        def joined(model=model, alpha=alpha, asked=asked, pieces=pieces) -> str:
            pieces.extend(locore.stream(model, "", alpha, **asked))
            return "".join(pieces)

        whole = outcome(lambda model=model, alpha=alpha, asked=asked: locore.sample(model, "", alpha, **asked)[0])
        assert outcome(joined) == whole, (name, asked)
        assert all(pieces), pieces
        several += len(pieces) > 1
    assert several or not in_pieces


def test_one_particle_comes_token_by_token():
    for sampler in ("masked", "swor", "smc"):
        if sampler == "smc":
            sampler = locore.samplers.SequentialMonteCarlo(blocks=1)
        for seed in range(20 if THOROUGH else 5):
            drawn = locore.stream(model_of(seed), "", ban(["bb"]), LENGTH, num_particles=1, sampler=sampler, seed=seed)
            pieces = [piece for piece in outcome(lambda drawn=drawn: list(drawn))]
            (y,) = drawn.particles.tokens.tolist()
            spelled = [SPELLED[token] for token in y if token != 7]
            whole = sum(content in (b"a", b"ab", b" c", b"b", SPELLED[3], b"\xa4") for content in spelled)
            assert len(pieces) == whole, (pieces, spelled)


@pytest.mark.filterwarnings("ignore::locore.kernel.errors.LocoreWarning")
def test_it_has_the_law_of_the_constraint():
    """Chi-square of streamed draws by rejection, which are exact; a false alarm in a million."""
    model, alpha, num = model_of(3), contains("a"), 3000 if THOROUGH else 150
    truth = locore.generate(model, "", alpha, LENGTH, sampler="exact", num_particles=100_000, seed=0).posterior()
    found = Counter(
        "".join(locore.stream(model, "", alpha, LENGTH, sampler="rejection", num_particles=2, seed=10 * seed))
        for seed in range(num)
    )
    assert set(found) <= set(truth)
    large = [text for text in truth if truth[text] * num >= 5]
    seen = [found[text] for text in large] + [num - sum(found[text] for text in large)]
    expected = [truth[text] * num for text in large] + [num * (1 - sum(truth[text] for text in large))]
    if expected[-1] < 5:
        seen[-2:], expected[-2:] = [sum(seen[-2:])], [sum(expected[-2:])]
    assert (
        len(large) > (5 if THOROUGH else 1) and chisquare(seen, np.array(expected) * num / sum(expected)).pvalue > FALSE_ALARM
    )


def accepted(alpha) -> list[tuple[int, ...]]:
    """All sequences that satisfy a constraint, by its plain reading."""
    bound = alpha.at(LENGTH).bind(TOKENS)
    padded = [y for y in itertools.product(range(len(SPELLED)), repeat=LENGTH) if 7 not in y or set(y[y.index(7) :]) == {7}]
    return [y for y in padded if bound.evaluate(list(y), TOKENS)]


def whole_characters(content: bytes) -> str:
    """Decoded, without half a character at the end."""
    for cut in range(min(4, len(content)) + 1):
        head = content[: len(content) - cut]
        tail = content[len(head) :]
        if not tail or (tail[0] >= 0xC0 and len(tail) < {0xC: 2, 0xD: 2, 0xE: 3, 0xF: 4}[tail[0] >> 4]):
            whole = head.decode(errors="replace")
            if tail or not (head and head[-1] >= 0xC0):
                return whole
    return content.decode(errors="replace")


@pytest.mark.parametrize("name", [name for name in CONSTRAINTS if name != "bonus"])
@pytest.mark.parametrize("stops", [(), ("ca", "bä", "äaa")])
def test_what_is_certain_is_what_all_that_may_come_begin_with(name, stops):
    """Against all sequences that satisfy the constraint and begin with some prefixes, enumerated."""
    alpha = before(list(stops), CONSTRAINTS[name]) if stops else CONSTRAINTS[name]
    good, cuts = accepted(alpha), [stop.encode() for stop in stops]
    reader = compile(alpha, TOKENS, LENGTH).reader
    generator = np.random.default_rng(len(good))
    for _ in range(200 if THOROUGH else 6):
        time, num = int(generator.integers(0, LENGTH + 1)), int(generator.integers(1, 4))
        start = good[generator.integers(len(good))][: int(generator.integers(0, time + 1))]
        near = sorted({y[:time] for y in good if y[: len(start)] == start})
        begun = [near[number] for number in generator.permutation(len(near))[:num]]
        tokens = torch.tensor(begun, dtype=torch.long).reshape(len(begun), time)
        all_that_may_come = [cut_before(TOKENS.text_bytes(y), cuts) for y in good if y[:time] in begun]
        same = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*all_that_may_come, strict=False))
        right = bytes(column[0] for column in same)
        certain = Certain(TOKENS, sure_before(tuple(stops)), lambda piece: None)
        certain.hear(tokens, reader, reader.read(tokens), None)
        assert right.decode(errors="replace").startswith(certain.said) or right.startswith(certain.said.encode())
        if not stops and not any(7 in y for y in begun):
            assert certain.said == whole_characters(right)


def test_what_the_constraint_forces_comes_before_the_model_is_read():
    schema = {"type": "object", "properties": {"city": {"enum": ["Rome", "Riga"]}}, "required": ["city"]}
    alpha = regex(r'\{"city": "R(ome|iga)"\}') & locore.json_schema({**schema, "additionalProperties": False})
    model = locore.load("tiny")
    with locore.stream(model, "I", alpha, 30, seed=0, sampler="swor", num_particles=4) as drawn:
        assert next(drawn).startswith('{"city": "R')


def test_errors_and_warnings_are_those_of_sample():
    model = model_of(0)
    with pytest.raises(InvalidArgument, match="did you mean num_particles"):
        locore.stream(model, "", Constant(True), LENGTH, n=3)
    with pytest.raises(Unsatisfiable):
        next(locore.stream(model, "", contains("xyz"), LENGTH))
    drawn = locore.stream(model, "", contains("ab"), LENGTH, sampler="masked", num_particles=4, seed=0)
    with pytest.raises(InvalidArgument, match="read on"):
        drawn.particles  # noqa: B018
    with pytest.warns(LocoreWarning, match="do not trust"):
        list(drawn)
    assert drawn.particles.verdict.level == "do not trust" and drawn.text in drawn.particles.texts
    assert list(drawn) == []


class Slow(TableModel):
    """Tells how often it was asked, and waits to be allowed to go on."""

    def __init__(self, base: TableModel) -> None:
        super().__init__(base._tables, tokenizer=TOKENS)
        self.asked, self.go_on = 0, threading.Semaphore(0)

    def _log_probs(self, tokens: torch.Tensor) -> torch.Tensor:
        self.asked += 1
        self.go_on.acquire()
        return super()._log_probs(tokens)


def test_a_piece_comes_when_its_token_is_drawn_and_a_stream_that_is_left_ends():
    model, others = Slow(model_of(1)), set(threading.enumerate())
    drawn = locore.stream(model, "", ~contains("b") & regex("a.*"), LENGTH, sampler=Masking(), num_particles=1, seed=0)
    assert threading.active_count() == 1 or model.asked == 0  # nothing runs before it is asked for
    assert next(drawn).startswith("a")
    before = threading.active_count()
    drawn.close()
    for _ in range(20 * LENGTH):
        model.go_on.release()
    for thread in threading.enumerate():
        if thread not in others:
            thread.join(10)
    assert threading.active_count() < before and model.asked <= LENGTH and list(drawn) == []


def test_a_run_inside_a_run_is_not_heard():
    """Neither one that a potential makes, nor those that a sampler of the user's own puts together."""
    model = model_of(2)

    def asks(texts: list[str]) -> list[float]:
        locore.generate(model, "", choice(["bab"]), LENGTH, sampler="masked", num_particles=1, seed=0)
        return [1.0 + text.count("a") for text in texts]

    class Second:
        name = "second"

        def __call__(self, *asked):
            WithoutReplacement(blocks=1)(*asked)
            return WithoutReplacement(blocks=1)(*asked)

    for alpha, sampler in ((ban(["bb"]) * locore.potential(asks, bound=9.0), "swor"), (ban(["bb"]), Second())):
        for seed in range(10 if THOROUGH else 3):
            asked = {"sampler": sampler, "num_particles": 1, "seed": seed, "max_new_tokens": LENGTH}
            whole = outcome(lambda alpha=alpha, asked=asked: locore.sample(model, "", alpha, **asked)[0])
            assert outcome(lambda alpha=alpha, asked=asked: "".join(locore.stream(model, "", alpha, **asked))) == whole
