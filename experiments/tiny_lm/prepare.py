"""Trains the byte-level BPE tokenizer and packs the documents into rows of token ids.

Run `python prepare.py --data DIR`; it writes runs/tokenizer/, runs/train.npy and runs/valid.npy.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
from corpus import COPIES, PARTS, training_documents
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

BOS, EOS = "<s>", "</s>"
BOS_ID, EOS_ID = 0, 1
VOCAB = 2048
CONTEXT = 512
RUNS = Path(__file__).parent / "runs"


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """GPT-2 style: no text is out of vocabulary, and decoding gives back the exact bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with <part>.jsonl.xz")
    parser.add_argument("--out", type=Path, default=RUNS)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    train = {p: training_documents(args.data, p, "train", args.seed) for p in PARTS}
    weighted = [text for part in PARTS for text in train[part] * COPIES[part]]
    tokenizer = train_tokenizer(weighted)
    save_tokenizer(tokenizer, args.out / "tokenizer")
    valid = [t for p in PARTS for t in training_documents(args.data, p, "valid", args.seed)]
    for name, texts in (("train", weighted), ("valid", valid)):
        rows = pack(encode(tokenizer, texts), random.Random(args.seed))
        np.save(args.out / f"{name}.npy", rows)
        size = sum(len(text.encode()) for text in texts)
        print(f"{name}: {len(texts)} documents, {size} bytes, {rows.size} tokens, {len(rows)} rows")
    for part in PARTS:
        count, size = len(train[part]), sum(len(t.encode()) for t in train[part])
        print(f"{part}: {count} documents, {size} bytes, repeated {COPIES[part]} times")


if __name__ == "__main__":
    main()
