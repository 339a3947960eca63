"""A small Whisper that writes digits down: the architecture of transformers with features of its own, trained here.

`python -m locore_lab.spoken.recogniser` trains it anew, in some minutes of one core, and writes the weights that lie here.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.random import Generator, default_rng
from safetensors.torch import load_file, save_file
from torch import Tensor

from locore import Tokenizer
from locore_lab.harness import say
from locore_lab.spoken.voice import RATE, Samples, spoken, with_noise

WINDOW, HOP, BANDS, FRAMES = 256, 128, 32, 288
START, END = 10, 11
BLANK = 10  # of what the encoder says alone
TOKENIZER = Tokenizer.from_tokens([*"0123456789", None, None], eos_ids=(END,))
LONGEST = 9  # digits of a text in training
NOISE = (-2.0, 20.0)  # decibels by which the noise in training is softer than the voice
WEIGHTS = "weights.safetensors"


def network() -> Any:
    """Fresh weights, from the global generator."""
    config = transformers.WhisperConfig(
        vocab_size=TOKENIZER.vocab_size,
        num_mel_bins=BANDS,
        max_source_positions=FRAMES // 2,
        max_target_positions=LONGEST + 3,
        d_model=80,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=160,
        decoder_ffn_dim=160,
        dropout=0.0,
        bos_token_id=START,
        decoder_start_token_id=START,
        eos_token_id=END,
        pad_token_id=END,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    return transformers.WhisperForConditionalGeneration(config)


def features(wave: Samples) -> Tensor:
    """Float[BANDS, FRAMES]: logarithms of loudness in bands of the mel scale, over silence at the end."""
    heard = np.zeros((FRAMES - 1) * HOP + WINDOW)
    heard[: len(wave)] = wave[: len(heard)]
    frames = np.lib.stride_tricks.sliding_window_view(heard, WINDOW)[::HOP] * np.hanning(WINDOW)
    loud = np.abs(np.fft.rfft(frames)) ** 2 @ _bands()
    logs = np.log10(np.maximum(loud, 1e-3))
    return torch.from_numpy((logs - 1.5).T).float()


def _bands() -> Samples:
    """Float[WINDOW / 2 + 1, BANDS]: triangles that are equally wide on the mel scale."""
    mel = np.linspace(0, 2595 * np.log10(1 + RATE / 2 / 700), BANDS + 2)
    edges = 700 * (10 ** (mel / 2595) - 1)
    places = np.fft.rfftfreq(WINDOW, 1 / RATE)[:, None]
    rising, falling = (places - edges[:-2]) / np.diff(edges)[:-1], (edges[2:] - places) / np.diff(edges)[1:]
    return np.maximum(0, np.minimum(rising, falling))


def examples(chance: Generator, number: int) -> list[tuple[str, Samples]]:
    """Digits and how somebody says them, without noise."""
    texts = ["".join(map(str, chance.integers(0, 10, chance.integers(1, LONGEST + 1)))) for _ in range(number)]
    return [(text, spoken(text, chance).astype(np.float16)) for text in texts]


def batches(pool: list[tuple[str, Samples]], size: int, chance: Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Features Float[size, BANDS, FRAMES] and labels Long[size, LONGEST + 1], in noise that is never the same."""
    while True:
        chosen = [pool[index] for index in chance.integers(0, len(pool), size)]
        heard = torch.stack([features(with_noise(wave, chance.uniform(*NOISE), chance)) for _, wave in chosen])
        rows = [[*map(int, text), END, *[-100] * (LONGEST - len(text))] for text, _ in chosen]
        yield heard, torch.tensor(rows)


def train(number: int, steps: int, size: int, rate: float, seed: int) -> Any:
    """A trained network, from a seed."""
    torch.manual_seed(seed)
    chance, start = default_rng(seed), time.perf_counter()
    pool, module = examples(chance, number), network().train()
    say(f"{number} texts are spoken, {time.perf_counter() - start:.0f} s")
    aside = torch.nn.Linear(module.config.d_model, BLANK + 1)  # of the encoder alone, thrown away after training
    learning = [*module.parameters(), *aside.parameters()]
    optimizer = torch.optim.AdamW(learning, lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps, pct_start=0.15)
    seen = []
    for step, (heard, labels) in zip(range(1, steps + 1), batches(pool, size, chance), strict=False):
        found = module(input_features=heard, labels=labels)
        optimizer.zero_grad()
        (found.loss + aligned(aside(found.encoder_last_hidden_state), labels)).backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        seen.append(float(found.loss.detach()))
        if step % 100 == 0:
            say(f"step {step}: {np.mean(seen[-100:]):.3f} nats a token, {time.perf_counter() - start:.0f} s")
    return module.eval()


def aligned(logits: Tensor, labels: Tensor) -> Tensor:
    """Nats a digit of the encoder alone, whose places may each say a digit in this order (CTC): so it soon learns to listen."""
    digits = (labels >= 0) & (labels < START)
    rows = logits.log_softmax(-1).transpose(0, 1)
    heard = torch.full((len(labels),), len(rows))
    return torch.nn.functional.ctc_loss(rows, labels[digits], heard, digits.sum(1), BLANK, zero_infinity=True)


def save(module: torch.nn.Module, path: Path) -> None:
    """Weights in 16 bits; the tables of positions that are computed, and what is shared, are not there twice."""
    save_file({name: value.half().contiguous() for name, value in module.named_parameters()}, path)


def recogniser(path: Path | None = None) -> Any:
    """The trained network."""
    module = network().eval()
    weights = load_file(path or Path(str(files(__package__) / WEIGHTS)))
    module.load_state_dict({name: value.float() for name, value in weights.items()}, strict=False)
    return module


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, usual in {"texts": 10_000, "steps": 1_900, "size": 32, "rate": 2e-3, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=type(usual), default=usual)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name(WEIGHTS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    save(train(given.texts, given.steps, given.size, given.rate, given.seed), given.output)


if __name__ == "__main__":
    _main()
