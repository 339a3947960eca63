"""Tokenizers: exact bytes, encoding as a continuation, canonical tokenisation."""

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as FastTokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from locore.kernel.errors import InvalidArgument, LocoreError
from locore.kernel.tokenizer import Tokenizer
from tests.effort import examples

CORPUS = [
    "Once upon a time there was a little girl. She hated the rain, but the sun was nice.",
    "The weather is nice, the weather is awful; I hate it, we hated it, they hate it.",
    "Zoë ate a naïve jalapeño 🙂🙂 in 東京. Ĝis!",
] * 20
TEXTS = [
    "hate",
    " hate",
    "  hate",
    "",
    " ",
    "\n",
    "\n\n  x\t",
    "a <s> b</s><|endoftext|>",
    "naïve 🙂 東京",
    "e\u0301 is not é",
    "▁ and Ġ are letters",
    "<0x41> is five characters",
]


def byte_level(**options) -> PreTrainedTokenizerFast:
    fast = FastTokenizer(models.BPE())
    fast.normalizer = options.get("normalizer")
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=options.get("add_prefix_space", False))
    fast.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    fast.train_from_iterator(CORPUS, trainer)
    fast.add_tokens([AddedToken("<think>", special=False), AddedToken("naïve x", special=False)])
    return PreTrainedTokenizerFast(tokenizer_object=fast, bos_token="<|endoftext|>", eos_token="<|endoftext|>")


def with_byte_fallback(trained: dict, special: list[str]) -> models.BPE:
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    vocab = {token: i for i, token in enumerate([*special, *byte_tokens, *trained["vocab"]])}
    merges = [tuple(merge) for merge in trained["merges"]]
    return models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)


def sentencepiece(scheme: str, unigram: bool = False) -> PreTrainedTokenizerFast:
    special = ["<unk>", "<s>", "</s>"]
    fast = FastTokenizer(models.Unigram() if unigram else models.BPE())
    kind = trainers.UnigramTrainer if unigram else trainers.BpeTrainer
    options = {"special_tokens": special, "unk_token": "<unk>"} if unigram else {}
    trainer = kind(vocab_size=150, show_progress=False, **options)
    fast.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    fast.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme)])
    fast.train_from_iterator(CORPUS, trainer)
    if not unigram:
        fast.model = with_byte_fallback(json.loads(fast.to_str())["model"], special)
        fast.add_special_tokens(special)
    fast.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", fast.token_to_id("<s>"))])
    return PreTrainedTokenizerFast(tokenizer_object=fast, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


@pytest.fixture(scope="module")
def real(stories260k):
    return AutoTokenizer.from_pretrained(stories260k)


@pytest.fixture(scope="module", params=["byte level", "nfc", "prefix space", "always", "first", "never", "real"])
def hf(request):
    match request.param:
        case "byte level":
            return byte_level()
        case "nfc":
            return byte_level(normalizer=normalizers.NFC())
        case "prefix space":
            return byte_level(add_prefix_space=True)
        case "real":
            return request.getfixturevalue("real")
        case scheme:
            return sentencepiece(scheme)


@pytest.fixture(scope="module")
def tokenizer(hf) -> Tokenizer:
    return Tokenizer.from_huggingface(hf, len(hf) + 3)


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_encoded_spells_the_text(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.text_bytes(ids) == text.encode()
    assert tokenizer.decode(ids) == text
    assert tokenizer.tokenize(text) == ids


@settings(max_examples=examples(100), deadline=None)
@given(text=st.text(max_size=20))
def test_any_text_is_spelled(tokenizer, text):
    assert tokenizer.text_bytes(tokenizer.encode(text)) == text.encode()


def test_every_byte_has_a_token(tokenizer):
    assert {bytes([b]) for b in range(256)} <= set(tokenizer.token_bytes)


def test_specials_and_columns_without_a_token_have_no_bytes(hf, tokenizer):
    assert all(tokenizer.token_bytes[i] is None for i in hf.all_special_ids)
    assert tokenizer.token_bytes[-3:] == (None,) * 3
    others = set(range(len(hf))) - set(hf.all_special_ids)
    assert all(tokenizer.token_bytes[i] for i in others)


def test_bytes_agree_with_decoding(hf, tokenizer):
    # After a letter the tokenizer's own decoder has no leading space to strip.
    letter = tokenizer.encode("x")
    for i, token in enumerate(tokenizer.token_bytes):
        if token is not None and token.decode("utf-8", "replace").isascii():
            decoded = hf.decode([*letter, i], clean_up_tokenization_spaces=False)
            assert decoded == "x" + token.decode()


def test_a_continuation_has_no_invented_space(real):
    tokenizer = Tokenizer.from_huggingface(real, 512)
    assert real.convert_ids_to_tokens(tokenizer.encode(" hate")) == ["▁h", "at", "e"]
    assert real.convert_ids_to_tokens(tokenizer.encode("hate")) == ["h", "at", "e"]


def test_a_prompt_is_encoded_as_the_tokenizer_does(hf, tokenizer):
    assert tokenizer.encode_prompt("The weather") == hf("The weather").input_ids
    assert tokenizer.encode_prompt("") == (hf("").input_ids or [hf.bos_token_id])


def test_added_tokens_spell_their_content():
    hf = byte_level()
    tokenizer = Tokenizer.from_huggingface(hf)
    for content in ("<think>", "naïve x"):
        i = hf.convert_tokens_to_ids(content)
        assert tokenizer.token_bytes[i] == content.encode()
        assert tokenizer.encode(content) == [i]


def test_every_declared_end_ends_the_text():
    hf = byte_level()
    tokenizer = Tokenizer.from_huggingface(hf, 500, eos_ids=[7, 9, 7])
    assert tokenizer.eos_ids == (7, 9, hf.eos_token_id)
    ids = tokenizer.encode("nice")
    for end in tokenizer.eos_ids:
        assert tokenizer.token_bytes[end] is None
        assert tokenizer.decode([*ids, end, *ids]) == "nice"


def test_a_vocabulary_smaller_than_the_tokenizer():
    tokenizer = Tokenizer.from_huggingface(byte_level(), 300)
    assert all(i < 300 for i in tokenizer.encode("The weather is nice <think>"))
    assert tokenizer.decode(tokenizer.encode("The weather is nice <think>")).endswith("<think>")


@pytest.mark.parametrize("text", [" hate it", "hate", ", the rain.", " 東京 🙂"])
@pytest.mark.parametrize("prompt", ["The weather is", "", "I ", "They ha"])
def test_canonical_tokens_are_those_of_prompt_and_text(tokenizer, prompt, text):
    before = tokenizer.encode_prompt(prompt)
    spelled = list(tokenizer._longest_match(text.encode()))
    canonical = tokenizer.canonize(spelled, before)
    assert tokenizer.decode(canonical) == text
    assert tokenizer.canonize(canonical, before) == canonical
    whole = tokenizer.encode_prompt(prompt + text)
    if whole[: len(before)] == before and tokenizer.decode(whole[len(before) :]) == text:
        assert [*before, *canonical] == whole
    else:
        assert list(canonical) == tokenizer.encode(text)


def test_canonical_tokens_of_a_cut_character(tokenizer):
    smile = "🙂".encode()
    cut = list(tokenizer._longest_match(b"nice " + smile[:2]))
    assert tokenizer.text_bytes(tokenizer.canonize(cut)) == b"nice " + smile[:2]
    broken = list(tokenizer._longest_match(smile[1:] + b" nice"))
    assert tokenizer.text_bytes(tokenizer.canonize(broken)) == smile[1:] + b" nice"


def test_canonize_stops_at_the_end(tokenizer):
    ids = tokenizer.encode(" nice")
    end = tokenizer.eos_ids[0]
    assert tokenizer.canonize([*ids, end, end]) == tuple(ids)
    assert tokenizer.canonize([end]) == ()


def test_fingerprints_tell_tokenizers_apart(hf, tokenizer):
    same = Tokenizer.from_huggingface(hf, len(hf) + 3)
    assert same == tokenizer
    assert hash(same) == hash(tokenizer)
    assert len(tokenizer.fingerprint()) == 64
    others = [
        Tokenizer.from_huggingface(hf, len(hf) + 4),
        Tokenizer.from_huggingface(hf, len(hf) + 3, eos_ids=[7]),
        Tokenizer.from_tokens(tokenizer.token_bytes, tokenizer.eos_ids),
    ]
    assert len({tokenizer, *others}) == 4


def test_tokens_of_ones_own():
    tokenizer = Tokenizer.from_tokens([b"a", "ab", b"b", "c", None], eos_ids=(3,))
    assert tokenizer.token_bytes == (b"a", b"ab", b"b", None, None)
    assert tokenizer.encode("abba") == [1, 2, 0]
    assert tokenizer.canonize([0, 2, 2, 0, 3, 1], prompt=[4]) == (1, 2, 0)
    assert tokenizer.decode([4, 0, 3]) == "a"
    assert tokenizer.encode_prompt("") == []
    with pytest.raises(InvalidArgument, match="byte 1") as refused:
        tokenizer.encode("a" + "c" * 10_000)
    assert len(str(refused.value)) < 150


@pytest.mark.parametrize("number", [0, 1, 4])
def test_each_token_has_its_bytes(number):
    with pytest.raises(InvalidArgument, match="token_bytes"):
        Tokenizer(3, (b"a",) * number)


def test_the_boundary_is_respected():
    tokenizer = Tokenizer.from_tokens([b"a", b"b", b"ab"])
    # "a" + "b" as one would be the token "ab", which no continuation of "a" can contain.
    assert tokenizer.canonize([1], prompt=[0]) == (1,)
    assert tokenizer.canonize([0, 1], prompt=[1]) == (2,)


def test_unigrams_without_bytes():
    tokenizer = Tokenizer.from_huggingface(sentencepiece("always", unigram=True))
    assert tokenizer.decode(tokenizer.encode(" hate it")) == " hate it"
    assert tokenizer.decode(tokenizer.encode("hate it")) == "hate it"
    with pytest.raises(InvalidArgument, match="spell"):
        tokenizer.encode("я")


def test_bare_ids_have_no_text():
    tokenizer = Tokenizer.integers(5, eos_ids=(4,))
    assert not tokenizer.has_text
    assert tokenizer.encode_prompt("") == []
    for ask in (
        lambda: tokenizer.encode("a"),
        lambda: tokenizer.decode([1]),
        lambda: tokenizer.canonize([1]),
        lambda: tokenizer.encode_prompt("a"),
    ):
        with pytest.raises(LocoreError, match="bare ids"):
            ask()


def test_tokenizers_without_exact_bytes():
    words = FastTokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    words.decoder = decoders.WordPiece()
    with pytest.raises(LocoreError, match="WordPiece"):
        Tokenizer.from_huggingface(PreTrainedTokenizerFast(tokenizer_object=words))
    with pytest.raises(LocoreError, match="fast"):
        Tokenizer.from_huggingface(object())


def test_wrong_arguments():
    with pytest.raises(InvalidArgument, match="at least one"):
        Tokenizer.integers(0)
    with pytest.raises(InvalidArgument, match="eos_ids"):
        Tokenizer.integers(3, eos_ids=(3,))
    with pytest.raises(InvalidArgument, match="surrogate"):
        Tokenizer.from_tokens([b"a"]).encode("\ud800")
    with pytest.raises(InvalidArgument, match="out of range"):
        Tokenizer.from_tokens([b"a"]).decode([1])


def test_importing_is_light():
    code = "import sys, locore.kernel.tokenizer; sys.exit('transformers' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


ODD = "e\u0301|🙂|東京|Zoë|<think>|naïve x|'|'s|'ll|l|!'|...|12|3| hate|hat| |  |\n|\t"
FRAGMENTS = st.sampled_from(ODD.split("|"))
PIECES = st.lists(st.one_of(FRAGMENTS, st.text(max_size=3)), max_size=8).map("".join)


@settings(max_examples=examples(300))
@given(text=PIECES, prompt=st.sampled_from(["", "The weather is", "I ", "They ha", "It'", "x\n"]))
def test_no_beginning_of_canonical_tokens_is_given_up(tokenizer, text, prompt):
    before = tokenizer.encode_prompt(prompt)
    canonical = list(tokenizer.canonize(list(tokenizer.encode(text)), before))
    for end in range(len(canonical) + 1):
        assert tokenizer.may_be_canonical(canonical[:end], before)


def test_padding_a_batch_makes_no_other_tokenizer():
    """How a batch was laid out last stays in the tokenizer of transformers; what is kept under a fingerprint is still found."""
    fast = byte_level()
    before = Tokenizer.from_huggingface(fast)
    fast.pad_token = fast.eos_token
    fast(["hate", "the weather is nice"], padding=True, truncation=True, max_length=3)
    after = Tokenizer.from_huggingface(fast)
    assert after.fingerprint() == before.fingerprint() and after == before
    assert after.encode("the weather is nice") == before.encode("the weather is nice")
