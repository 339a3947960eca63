"""A small transformer that writes the solution after a puzzle, in the architecture and the files of Hugging Face."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from locore_lab.sudoku.puzzles import OPEN, Puzzle
from locore_lab.sudoku.text import REQUEST

END, LINE = "<end>", "Ċ"  # the second is how byte-level tokenizers write a line end


@dataclass(frozen=True)
class Size:
    """Of a network."""

    box: int = 3
    width: int = 96
    layers: int = 4
    heads: int = 4

    @property
    def cells(self) -> int:
        """Of a grid."""
        return self.box**4


def make_tokenizer(box: int) -> PreTrainedTokenizerFast:
    """One token for each digit, the open cell, the line end, the whole request, and the end."""
    pieces = [END, LINE, OPEN, *(str(d) for d in range(1, box * box + 1))]
    fast = FastTokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[]))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens([END])
    fast.add_tokens([AddedToken(REQUEST, special=False, normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=fast, eos_token=END)  # type: ignore[no-untyped-call]


def make_network(size: Size, vocab_size: int, seed: int) -> GPT2LMHeadModel:
    """A fresh network; its position embeddings say at the start which row, column and box a place belongs to."""
    config = GPT2Config(
        vocab_size=vocab_size,
        n_positions=2 * size.cells + 4,
        n_embd=size.width,
        n_layer=size.layers,
        n_head=size.heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = GPT2LMHeadModel(config)
        places = _places(size, config.n_positions)
        projection = torch.randn(places.shape[1], size.width)
        with torch.no_grad():
            network.transformer.wte.weight.copy_(torch.randn(vocab_size, size.width) * 0.1)
            network.transformer.wpe.weight.copy_(places @ projection * 0.05)
    return network


def encode(puzzles: list[Puzzle], tokenizer: PreTrainedTokenizerFast) -> Tensor:
    """Long[puzzles, 2 · cells + 3]: request, puzzle, line end, solution, end."""
    texts = [f"{REQUEST}{p.givens}\n{p.solution}{END}" for p in puzzles]
    return torch.tensor(tokenizer(texts)["input_ids"])


def _places(size: Size, positions: int) -> Tensor:
    """Float[positions, features]: row, column and box of the cell that stands at a position, and of the one that comes next."""
    side, cells = size.box**2, size.cells
    own, following = torch.zeros(positions, 3 * side + 1), torch.zeros(positions, 3 * side)
    for cell in range(cells):
        row, column = divmod(cell, side)
        box = row // size.box * size.box + column // size.box
        features = torch.tensor([row, side + column, 2 * side + box])
        puzzle, answer = 1 + cell, cells + 2 + cell  # after the request; after the line end
        own[puzzle, features] = own[answer, features] = 1.0
        own[answer, -1] = 1.0
        following[answer - 1, features] = 1.0
    return torch.cat([own, following], 1)
