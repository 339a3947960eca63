"""`locore.hf`: the plug for `model.generate` samples p(text | constraint), and refuses what it could not keep."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
import transformers
from scipy.stats import chisquare
from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessorList, TemperatureLogitsWarper

import locore
from locore import ban, choice, ends_with
from locore.hf import ConstrainedOutput, MaskingLogitsProcessor, custom_generate
from locore.kernel.errors import InvalidArgument, Unsatisfiable
from locore.models import HuggingFaceModel
from locore.models.bundled import _bundled_folder
from tests.effort import THOROUGH

FALSE_ALARM = 1e-6
TEXTS = [" very", " so", " too", " a", " not"]


@pytest.fixture(scope="module")
def parts():
    folder = _bundled_folder("tiny")
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def language_model():
    return locore.load("tiny")


def generate(parts, prompts, **options):
    module, tokenizer = parts
    inputs = tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left")
    usual = {"fast_tokenizer": tokenizer, "max_new_tokens": 4, "seed": 0, "do_sample": True, "top_k": 0}
    given = {name: value for name, value in {**usual, **options}.items() if value is not ...}
    found = module.generate(**inputs, custom_generate=custom_generate, **given)
    return inputs["input_ids"].shape[1], found


def texts_of(found, start, language_model):
    return [language_model.tokenizer.decode(row) for row in found[:, start:].tolist()]


def test_texts_follow_the_posterior(parts, language_model):
    """Chi-square of 2,000 texts, false alarm 1e-6."""
    alpha = choice(TEXTS)
    start, found = generate(parts, ["The weather is"], constraint=alpha, max_new_tokens=2, num_return_sequences=2000)
    counts = Counter(texts_of(found, start, language_model))
    truth = locore.generate(language_model, "The weather is", alpha, max_new_tokens=2, sampler="exact", seed=0).posterior()
    assert set(counts) <= set(truth)
    expected = [2000 * truth[text] for text in truth]
    assert chisquare([counts[text] for text in truth], expected).pvalue > FALSE_ALARM


def test_a_batch_gives_what_each_prompt_gives_alone(parts, language_model):
    """Left padding is no part of a prompt."""
    alpha = ends_with(".") & ban(["happy"])
    prompts = ["The weather is", "I"]
    start, both = generate(parts, prompts, constraint=alpha, num_return_sequences=3, num_particles=16)
    assert both.shape[0] == 6
    for number, prompt in enumerate(prompts):
        p = locore.generate(language_model, prompt, alpha, max_new_tokens=4, num_particles=16, seed=number)
        texts = p.resample(3, seed=number + 1).texts
        assert texts_of(both[3 * number : 3 * number + 3], start, language_model) == texts


def test_the_output_can_be_an_object_with_the_particles(parts):
    _, found = generate(parts, ["I"], constraint=ends_with("."), return_dict_in_generate=True)
    assert isinstance(found, ConstrainedOutput)
    assert len(found.particles) == 1 and math.isfinite(found.particles[0].log_evidence)


def test_texts_are_padded_after_their_end(parts, language_model):
    start, found = generate(parts, ["I"], constraint=choice([" am", " am not here"]), max_new_tokens=8, num_return_sequences=20)
    eos = language_model.tokenizer.eos_ids[0]
    for row in found[:, start:].tolist():
        end = row.index(eos) if eos in row else len(row)
        assert set(row[end:]) <= {eos}
    assert not (found[:, -1] == eos).all() or any(row[-2] != eos for row in found.tolist())


def test_min_new_tokens_is_part_of_the_constraint(parts, language_model):
    with pytest.raises(Unsatisfiable):
        generate(parts, ["I"], constraint=choice([" am"]), min_new_tokens=4)


def test_a_model_in_training_comes_back_as_it_was(parts):
    module, _ = parts
    module.train()
    frozen = next(module.parameters())
    frozen.requires_grad_(False)
    generate(parts, ["I"], constraint=ends_with("."))
    assert module.training and not frozen.requires_grad
    assert all(part.requires_grad for part in module.parameters() if part is not frozen)
    frozen.requires_grad_(True)
    module.eval()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs constraint"),
        ({"constraint": ends_with("."), "fast_tokenizer": None}, "fast_tokenizer"),
        ({"constraint": ends_with("."), "top_k": ...}, "TopKLogitsWarper.*top_k=0"),
        ({"constraint": ends_with("."), "temperature": 0.5}, "TemperatureLogitsWarper"),
        ({"constraint": ends_with("."), "repetition_penalty": 1.5}, "RepetitionPenalty"),
        ({"constraint": ends_with("."), "bad_words_ids": [[5]]}, "logits processor"),
        ({"constraint": ends_with("."), "num_beams": 2}, "num_beams=2"),
        ({"constraint": ends_with("."), "output_scores": True, "return_dict_in_generate": True}, "output_scores"),
        ({"constraint": ends_with("."), "max_time": 5.0}, "stopping criterion MaxTimeCriteria"),
        ({"constraint": ends_with("."), "eos_token_id": 7}, "eos_token_id"),
    ],
    ids=str,
)
def test_what_would_be_dropped_is_refused(parts, options, message):
    with pytest.raises(InvalidArgument, match=message):
        generate(parts, ["I"], **options)


@pytest.fixture
def suggesting():
    """The model with a generation_config such as instruct models have in their files."""
    folder = _bundled_folder("tiny")
    module = AutoModelForCausalLM.from_pretrained(folder)
    module.generation_config.update(do_sample=True, temperature=0.7, top_p=0.8, top_k=20, repetition_penalty=1.05)
    return module, AutoTokenizer.from_pretrained(folder)


NOTHING_PASSED = {"do_sample": ..., "top_k": ...}


def test_what_the_files_suggest_is_ignored_with_one_warning(suggesting, parts):
    """The same texts as of the model without suggestions."""
    alpha = ends_with(".")
    with pytest.warns(UserWarning, match="suggests") as caught:
        _, found = generate(suggesting, ["I"], constraint=alpha, **NOTHING_PASSED)
    said = [str(one.message) for one in caught if "suggests" in str(one.message)]
    assert len(said) == 1
    for setting in ("temperature=0.7", "top_p=0.8", "top_k=20", "repetition_penalty=1.05"):
        assert setting in said[0]
    assert torch.equal(found, generate(parts, ["I"], constraint=alpha)[1])


def test_so_is_what_transformers_adds_to_a_suggestion_to_sample(suggesting):
    module, _ = suggesting
    module.generation_config.top_k = None
    with pytest.warns(UserWarning, match="top_k=50"):
        generate(suggesting, ["I"], constraint=ends_with("."), **NOTHING_PASSED)


def test_a_pipeline_passes_on_what_the_files_suggest(suggesting):
    pipe = transformers.pipeline("text-generation", model=suggesting[0], tokenizer=suggesting[1])
    options = {"custom_generate": custom_generate, "fast_tokenizer": suggesting[1], "max_new_tokens": 4, "seed": 0}
    with pytest.warns(UserWarning, match="suggests"):
        text = pipe("I", constraint=ends_with("."), **options)[0]["generated_text"]
    assert text.startswith("I") and text.endswith(".")


def test_a_pipeline_of_a_model_without_suggestions_is_told_what_to_pass(parts):
    """Its own temperature cannot be told from one that the user passed."""
    pipe = transformers.pipeline("text-generation", model=parts[0], tokenizer=parts[1])
    options = {"custom_generate": custom_generate, "fast_tokenizer": parts[1], "max_new_tokens": 4, "seed": 0}
    with pytest.raises(InvalidArgument, match=r"a pipeline do_sample=True and temperature=0.7.*do_sample=False"):
        pipe("I", constraint=ends_with("."), **options)
    assert pipe("I", constraint=ends_with("."), do_sample=False, **options)[0]["generated_text"].endswith(".")


@pytest.mark.filterwarnings("ignore:the model's generation_config suggests")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.5}, "TemperatureLogitsWarper"),
        ({"top_p": 0.9}, "TopPLogitsWarper"),
        ({"top_k": 5}, "TopKLogitsWarper"),
        ({"repetition_penalty": 1.5}, "RepetitionPenalty"),
        ({"min_p": 0.1}, "MinPLogitsWarper"),
        ({"logits_processor": LogitsProcessorList([TemperatureLogitsWarper(0.5)])}, "TemperatureLogitsWarper"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_what_is_passed_beside_a_suggestion_is_refused_as_ever(suggesting, options, message):
    with pytest.raises(InvalidArgument, match=message):
        generate(suggesting, ["I"], constraint=ends_with("."), **{**NOTHING_PASSED, **options})


def test_the_arguments_of_greedy_decoding_are_allowed_too(parts):
    generate(parts, ["I"], constraint=ends_with("."), do_sample=..., top_k=...)


def test_masking_gives_the_law_of_masking(parts, language_model):
    """Texts of the processor against p^myopic(y) = Π_t p(y_t | y_<t) 1[allowed] / Z_t; false alarm 1e-6."""
    module, tokenizer = parts
    alpha, num = choice([" very happy", " so happy", " too"]), 1500 if THOROUGH else 400
    inputs = tokenizer(["The weather is"] * num, return_tensors="pt")
    start, length = inputs["input_ids"].shape[1], 4
    processor = MaskingLogitsProcessor(alpha, language_model.tokenizer, start, length)
    torch.manual_seed(0)
    found = module.generate(
        **inputs, max_new_tokens=length, do_sample=True, top_k=0, logits_processor=LogitsProcessorList([processor])
    )
    found = torch.nn.functional.pad(found[:, start:], (0, start + length - found.shape[1]), value=1)
    counts = Counter(tuple(row) for row in found.tolist())
    circuit, prompted = locore.compile(alpha, language_model, length), language_model.prompted("The weather is")
    every = torch.tensor(sorted(_models(circuit)))
    rows = prompted.log_probs(every).double()
    myopic = torch.zeros(len(every), dtype=torch.float64)
    for t in range(length):
        masked = rows[:, t].masked_fill(~circuit.allowed(every[:, :t]), -math.inf).log_softmax(-1)
        myopic += masked.gather(1, every[:, t : t + 1])[:, 0]
    assert set(counts) <= {tuple(row) for row in every.tolist()}
    expected = num * myopic.exp()
    often = expected >= 5
    observed = torch.tensor([counts[tuple(row)] for row in every.tolist()], dtype=torch.float64)
    both = [torch.cat([x[often], x[~often].sum()[None]]) for x in (observed, expected)]
    keep = both[1] > 0
    assert chisquare(both[0][keep], both[1][keep] * both[0].sum() / both[1].sum()).pvalue > FALSE_ALARM


def _models(circuit):
    """Every sequence that a circuit accepts, by its own masks."""
    prefixes = [()]
    for _ in range(circuit.length):
        prefixes = [
            (*prefix, token)
            for prefix in prefixes
            for token in circuit.allowed(torch.tensor(prefix, dtype=torch.long)).nonzero()[:, 0].tolist()
        ]
    return prefixes


def test_masking_needs_the_tokenizer_of_the_model(parts):
    processor = MaskingLogitsProcessor(ends_with("."), locore.Tokenizer.from_tokens([b".", b"a"]), 1, 3)
    with pytest.raises(InvalidArgument, match="columns"):
        processor(torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 2048))


def test_a_locore_tokenizer_can_be_given(parts, language_model):
    start, found = generate(parts, ["I"], constraint=ends_with("."), fast_tokenizer=language_model.tokenizer)
    assert texts_of(found, start, language_model)[0].endswith(".")
    assert isinstance(language_model, HuggingFaceModel)
