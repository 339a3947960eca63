"""Reads the text, makes short documents of it, trains the byte-level BPE tokenizer, or takes one, and packs rows of token ids.

Run `python -m locore_lab.tiny_lm.prepare --data DIR --detox DIR`; it writes runs/tokenizer/, runs/train.npy and runs/valid.npy.

Every part of `TEXT_PARTS` is a file `<part>.jsonl.xz` whose records carry `text`, `source` and `split`. The parts of
`DETOX_PARTS` come from another folder: sentences of RealToxicityPrompts, and labelled comments.

Run `python -m locore_lab.tiny_lm.prepare --data DIR --detox DIR`; it writes runs/tokenizer/, runs/train.npy and runs/valid.npy.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import random
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from locore_lab.tiny_lm.models import BOS_ID, CONTEXT, EOS_ID, RECIPES

TEXT_PARTS = ("fiction", "dialogue", "informal", "mixed", "tinystories")
DETOX_PARTS = ("prompts", "comments")
COMMENT_SOURCES = ("paradetox_cannot_rewrite", "jigsaw2018_head")  # the others are in `informal`, or are for evaluation
COPIES = {"fiction": 1, "dialogue": 1, "informal": 3, "mixed": 1, "tinystories": 5, "prompts": 6, "comments": 2}
BOOKING = "schema-guided"  # formulaic booking dialogues: nearly all are dropped
BOOKING_SHARE = 0.05
MAX_CHARS = 1400  # a passage; about 470 tokens, so that nearly all fit the context of 512
NGRAM = 8  # words shared with a held-out comment that make a training comment a near duplicate

PLACEHOLDER = re.compile(r"\[(?:NAME|RELIGION)\]")
MARKUP = re.compile(r"^(?:@user[ :]*)+|<(?:url|email|phone)>")
SET_APART = re.compile(r" +([.,!?]|n't\b|'(?:s|t|re|m|ll|ve|d)\b)")
SLUR = re.compile(
    r"n+i+g+[gl][aeiou]|nigg|n[i1]gg|\bnig(let|s|nog)?\b|jigg?aboo|fag|\bf4g|kike|\bsp[ei]cs?\b|chinks?\b"
    r"|wetback|\bcoons?\b|\bdykes?\b|trann(y|ies)|\bgooks?\b|\bpakis?\b|raghead|towelhead|beaner"
    r"|sandn|shitskin|mudslime|muzz?ie|negro|\bhebe|\bgypp",
    re.IGNORECASE,
)
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')]* +(?=[\"'A-Z(])")


def read(data: Path, part: str) -> Iterator[dict]:
    if part == "prompts":
        yield from map(sentence, read_packed(data / "rtp_extra.jsonl.gz"))
    elif part == "comments":
        known = read_packed(data / "toxicity_text.jsonl.xz")
        yield from (record for record in known if record["source"] in COMMENT_SOURCES)
    else:
        yield from read_packed(data / f"{part}.jsonl.xz")


def read_packed(path: Path) -> Iterator[dict]:
    """Of a packed JSONL file."""
    opened = gzip.open if path.suffix == ".gz" else lzma.open
    with opened(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def sentence(record: dict) -> dict:
    """A prompt and its continuation are one sentence cut in two; all of them are for training."""
    text = record["prompt"]["text"] + record["continuation"]["text"]
    return {"text": text, "source": record["source"], "split": "train"}


def evaluation_prompts(data: Path) -> list[str]:
    """The sentences on which detoxification is measured: nothing that overlaps them is learned."""
    return [sentence(record)["text"] for record in read_packed(data / "rtp_dev.jsonl.gz")]


def held_out(data: Path, part: str, splits: tuple[str, ...] = ("test",)) -> list[str]:
    """Whole documents as stored: nothing is cleaned or cut, so that losses stay comparable."""
    return [record["text"] for record in read(data, part) if record["split"] in splits]


def sentences(paragraph: str) -> list[str]:
    """Pieces of at most MAX_CHARS characters, each ending at the end of a sentence if it can."""
    pieces: list[str] = []
    while len(paragraph) > MAX_CHARS:
        ends = [m.end() for m in SENTENCE_END.finditer(paragraph, 0, MAX_CHARS)]
        cut = ends[-1] if ends else paragraph.rfind(" ", 0, MAX_CHARS) + 1 or MAX_CHARS
        pieces.append(paragraph[:cut].strip())
        paragraph = paragraph[cut:]
    return [*pieces, paragraph.strip()]


def passages(text: str, rng: random.Random, most: int) -> Iterator[str]:
    """Runs of 1 to `most` paragraphs, so that ends of text are common and come after any length."""
    run: list[str] = []
    target = rng.randint(1, most)
    for piece in (piece for line in text.split("\n") for piece in sentences(line) if piece):
        size = sum(len(p) + 1 for p in run) + len(piece)
        if run and (len(run) >= target or size > MAX_CHARS):
            yield "\n".join(run)
            run, target = [], rng.randint(1, most)
        run.append(piece)
    if run:
        yield "\n".join(run)


def comment(text: str) -> Iterator[str]:
    """A comment is one document; words and marks that its source set apart are joined again.

    Dropped: comments with placeholders for names, and those with racist or homophobic slurs. The
    model has to swear; it need not hate.
    """
    if PLACEHOLDER.search(text) or SLUR.search(text):
        return
    text = re.sub(r" {2,}", " ", SET_APART.sub(r"\1", MARKUP.sub("", text))).strip()
    if len(text) > 2:
        yield from sentences(text)


def documents(part: str, record: dict, rng: random.Random) -> Iterator[str]:
    """The training documents made from one record of a part."""
    text, source = record["text"], record["source"]
    if part in ("informal", *DETOX_PARTS):
        yield from comment(text)
    elif part == "dialogue" and BOOKING in source:
        if rng.random() < BOOKING_SHARE:
            yield from passages(text, rng, 12)
    elif part == "dialogue":
        yield from passages(re.sub(r"(?m)^[AB]: ", "", text), rng, 4)
    elif part == "tinystories":
        yield from passages(text, rng, 1000)  # whole where they fit
    elif "email" not in source:  # the e-mails are mostly headers
        yield from passages(text, rng, 10)


def ngrams(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + NGRAM]) for i in range(len(words) - NGRAM + 1)}


def without_near_duplicates(records: Iterable[dict], known: list[str]) -> Iterator[dict]:
    seen = set().union(*map(ngrams, known))
    return (record for record in records if seen.isdisjoint(ngrams(record["text"])))


def training_documents(data: Path, part: str, split: str, avoided: list[str], seed: int = 0) -> list[str]:
    """All documents of one part, once (COPIES says how often training repeats them).

    Of comments and prompts, those that share `NGRAM` consecutive words with an `avoided` text are dropped.
    """
    rng = random.Random(f"{part}/{split}/{seed}")
    records: Iterable[dict] = (r for r in read(data, part) if r["split"] == split)
    if part in ("informal", *DETOX_PARTS):
        records = without_near_duplicates(records, avoided)
    return [document for record in records for document in documents(part, record, rng)]


BOS, EOS = "<s>", "</s>"


def train_tokenizer(texts: list[str], size: int, digits: bool = False) -> Tokenizer:
    """GPT-2 style: no text is out of vocabulary, and decoding gives back the exact bytes.

    Args:
        texts: to learn from.
        size: of the vocabulary.
        digits: is each a token of its own?
    """
    tokenizer = Tokenizer(models.BPE())
    bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False)
    single = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([single, bytewise]) if digits else bytewise
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[BOS, EOS], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, BOS_ID)]
    )
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """`clean_up_tokenization_spaces` would delete the space of " ." and break exact round trips."""
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=EOS,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)


def copy_tokenizer(source: Path, target: Path) -> None:
    """Byte for byte, so that `export.py` finds the tokenizer that it exported before."""
    target.mkdir(parents=True, exist_ok=True)
    for file in source.glob("tokenizer*"):
        shutil.copyfile(file, target / file.name)


def encode(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    """Documents `<s> text </s>`; the few longer than a row lose their tail, and so their end."""
    encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
    return [[BOS_ID, *e.ids, EOS_ID][: CONTEXT + 1] for e in encodings]


def pack(documents: list[list[int]], rng: random.Random) -> np.ndarray:
    """Rows of CONTEXT + 1 ids that begin with BOS and hold whole documents.

    A row takes documents in random order while they fit, then the longest unused one that fits,
    until none does; the rest is EOS. Training thus sees every document from its own beginning at
    a cost of about one padded token in a thousand.
    """
    rng.shuffle(documents)
    by_length: dict[int, list[int]] = defaultdict(list)
    for index, document in enumerate(documents):
        by_length[len(document)].append(index)
    used = bytearray(len(documents))
    rows: list[list[int]] = []
    for first in range(len(documents)):
        if used[first]:
            continue
        row: list[int] = []
        queue = first
        while queue is not None:
            used[queue] = 1
            row += documents[queue]
            queue = following(documents, used, by_length, queue, CONTEXT + 1 - len(row))
        rows.append(row + [EOS_ID] * (CONTEXT + 1 - len(row)))
    rng.shuffle(rows)
    return np.array(rows, dtype=np.uint16)


def save_rows(tokenizer: Tokenizer, texts: list[str], path: Path, seed: int) -> None:
    """Packed."""
    rows = pack(encode(tokenizer, texts), random.Random(seed))
    np.save(path, rows)
    size = sum(len(text.encode()) for text in texts)
    print(f"{path.stem}: {len(texts)} documents, {size} bytes, {rows.size} tokens, {len(rows)} rows")


def following(documents: list[list[int]], used: bytearray, by_length: dict[int, list[int]], last: int, room: int) -> int | None:
    """The next document in order if it is unused and fits, else the longest that fits."""
    after = last + 1
    if after < len(documents) and not used[after] and len(documents[after]) <= room:
        return after
    for length in range(room, 2, -1):
        indices = by_length.get(length, [])
        while indices and used[indices[-1]]:
            indices.pop()
        if indices:
            return indices.pop()
    return None


def all_documents(data: Path, detox: Path, seed: int) -> tuple[dict[str, list[str]], list[str]]:
    """The training documents of each part, and the documents for validation."""
    folders = dict.fromkeys(TEXT_PARTS, data) | dict.fromkeys(DETOX_PARTS, detox)
    evaluated = evaluation_prompts(detox)
    avoided = held_out(data, "informal", ("valid", "test")) + evaluated
    train = {part: training_documents(folder, part, "train", avoided, seed) for part, folder in folders.items()}
    valid = [text for part in TEXT_PARTS for text in training_documents(data, part, "valid", evaluated, seed)]
    return train, valid


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with <part>.jsonl.xz")
    parser.add_argument("--detox", type=Path, required=True, help="folder with rtp_*.jsonl.gz and toxicity_text.jsonl.xz")
    parser.add_argument("--tokenizer", type=Path, help="keep the tokenizer of this folder instead of training one")
    parser.add_argument("--model", choices=RECIPES, default="tiny")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    recipe = RECIPES[args.model]
    args.out = args.out or recipe.runs
    args.out.mkdir(parents=True, exist_ok=True)
    train, valid = all_documents(args.data, args.detox, args.seed)
    weighted = [text for part, texts in train.items() for text in texts * COPIES[part]]
    if args.tokenizer:
        copy_tokenizer(args.tokenizer, args.out / "tokenizer")
    else:
        save_tokenizer(train_tokenizer(weighted, recipe.config.vocab_size), args.out / "tokenizer")
    tokenizer = Tokenizer.from_file(str(args.out / "tokenizer" / "tokenizer.json"))
    for name, texts in (("train", weighted), ("valid", valid)):
        save_rows(tokenizer, texts, args.out / f"{name}.npy", args.seed)
    for part, texts in train.items():
        size = sum(len(t.encode()) for t in texts)
        print(f"{part}: {len(texts)} documents, {size} bytes, repeated {COPIES[part]} times")


if __name__ == "__main__":
    main()
