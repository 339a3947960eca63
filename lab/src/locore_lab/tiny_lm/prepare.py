"""Trains the byte-level BPE tokenizer, or takes one, and packs the documents into rows of token ids.

Run `python -m locore_lab.tiny_lm.prepare --data DIR --detox DIR`; it writes runs/tokenizer/, runs/train.npy and runs/valid.npy.
"""

from __future__ import annotations

import argparse
import random
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from locore_lab.tiny_lm.corpus import COPIES, DETOX_PARTS, TEXT_PARTS, evaluation_prompts, held_out, training_documents
from locore_lab.tiny_lm.models import BOS_ID, CONTEXT, EOS_ID, RECIPES

BOS, EOS = "<s>", "</s>"


def train_tokenizer(texts: list[str], size: int) -> Tokenizer:
    """GPT-2 style: no text is out of vocabulary, and decoding gives back the exact bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
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


def following(
    documents: list[list[int]],
    used: bytearray,
    by_length: dict[int, list[int]],
    last: int,
    room: int,
) -> int | None:
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
        rows = pack(encode(tokenizer, texts), random.Random(args.seed))
        np.save(args.out / f"{name}.npy", rows)
        size = sum(len(text.encode()) for text in texts)
        print(f"{name}: {len(texts)} documents, {size} bytes, {rows.size} tokens, {len(rows)} rows")
    for part, texts in train.items():
        size = sum(len(t.encode()) for t in texts)
        print(f"{part}: {len(texts)} documents, {size} bytes, repeated {COPIES[part]} times")


if __name__ == "__main__":
    main()
