"""The demonstration: it runs, and what it shows as the truth is the truth."""

from __future__ import annotations

import math
import re
import subprocess
import sys

import pytest
import torch

import locore
from locore import demo

EXAMPLE = ("It was", " cold.")


def demonstrate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "locore.demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def test_it_fits_on_one_screen_and_shows_all_ways():
    done = demonstrate()
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    for word in ("truth", "without", "weights", "paper's", "distance", "log p(constraint)", "ESS", "LM tokens"):
        assert word in done.stdout
    assert re.search(r"Masking alone writes .* in [\d.]+%", done.stdout.replace("\n", " "))


def spellings(content: bytes, tokens: dict[bytes, int], most: int) -> list[list[int]]:
    """All ways to write `content` with at most `most` tokens."""
    if not content:
        return [[]]
    cuts = range(1, len(content) + 1) if most else ()
    heads = [cut for cut in cuts if content[:cut] in tokens]
    return [[tokens[content[:cut]], *rest] for cut in heads for rest in spellings(content[cut:], tokens, most - 1)]


def test_the_truth_is_that_of_a_direct_sum():
    """The probability of a text, added up over its tokenisations instead of by the walk over prefixes."""
    model = locore.load("tiny").prompted(EXAMPLE[0])
    truth = demo.enumerate_truth(model, locore.compile(locore.ends_with(EXAMPLE[1]), model, demo.LENGTH))
    known = model.tokenizer.token_bytes
    tokens = {content: token for token, content in enumerate(known) if content}
    assert len(tokens) == sum(content is not None for content in known), "no two tokens spell the same"
    for text in list(truth.posterior)[:5]:
        rows = spellings(text.encode(), tokens, demo.LENGTH)
        end = model.tokenizer.eos_ids[0]
        padded = torch.tensor([row + [end] * (demo.LENGTH - len(row)) for row in rows])
        direct = model.score(padded).logsumexp(0).item() - truth.log_evidence
        assert direct == pytest.approx(math.log(truth.posterior[text]), abs=1e-4)


def test_other_examples_and_errors():
    done = demonstrate("--ending", "an ending that needs more tokens than there are")
    assert done.returncode == 2
    assert done.stderr.startswith("error: no sequence of 3 tokens")
    done = demonstrate("--ending", "")
    assert done.returncode == 2
    assert "empty phrase" in done.stderr
