"""Byte-level BPE vocabularies of 32,000 and 128,000 tokens, trained on local text, for the benchmarks of large vocabularies.

They stand for the vocabularies of large models, which need not be here. The text is what a folder holds (`*.xz`, `*.txt`) and
the sources and documentation of the installed Python packages, so that code and prose are both in it.
"""

import json
import lzma
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from locore_lab.harness import option
from locore_lab.mask_engines import END, SIZES

MOST_BYTES = {"prose": 60_000_000, "code": 40_000_000}
CHUNK = 100_000  # characters of a piece of text
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def prose(folder: Path) -> Iterator[str]:
    """Texts of a folder."""
    for path in sorted(folder.iterdir()):
        if path.suffix not in (".xz", ".txt"):
            continue
        content = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
        for line in content.decode().splitlines(keepends=True):
            yield str(json.loads(line).get("text", "")) if ".jsonl" in path.name else line


def code() -> Iterator[str]:
    """Sources of the installed packages and of Python itself."""
    roots = {Path(p) for p in sys.path if p.endswith("-packages")} | {Path(json.__file__).parents[1]}
    for root in sorted(roots):
        for path in sorted(root.rglob("*")):
            if path.suffix in (".py", ".md", ".rst", ".txt", ".pyi"):
                yield path.read_text(encoding="utf-8", errors="ignore")


def limited(texts: Iterator[str], most: int) -> Iterator[str]:
    """Texts in pieces, until so many characters have come."""
    for text in texts:
        for start in range(0, len(text), CHUNK):
            piece = text[start : start + CHUNK]
            most -= len(piece)
            if most < 0:
                return
            yield piece


def train(folder: Path, size: int) -> Tokenizer:
    """A byte-level BPE of so many tokens; the last one ends a text."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(WORDS), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size - 1, initial_alphabet=alphabet, show_progress=False)

    def texts() -> Iterator[str]:
        yield from limited(prose(folder), MOST_BYTES["prose"])
        yield from limited(code(), MOST_BYTES["code"])

    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.add_special_tokens([END])
    return tokenizer


def run(
    text: Annotated[Path, option("Folder of texts.")],
    output: Annotated[Path, option("Folder of the vocabularies.", "--output", "-o")],
    size: Annotated[list[int] | None, option("Tokens; 32,000 and 128,000 by default.")] = None,
) -> None:
    """Train byte-level BPE vocabularies that are not there yet; 20 minutes."""
    output.mkdir(parents=True, exist_ok=True)
    for tokens in size or SIZES:
        path = output / f"bpe{tokens}.json"
        if not path.exists():
            tokenizer = train(text, tokens)
            tokenizer.save(str(path))
            print(f"{path}: {tokenizer.get_vocab_size():,} tokens")
