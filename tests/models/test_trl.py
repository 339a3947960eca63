"""TRL's `GRPOTrainer` on draws from p(y | constraint): it learns what it is rewarded for. Run by `make test-trl`."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from locore import json_schema
from locore.rollouts import trl_rollouts

pytestmark = pytest.mark.slow
PROMPT = "Tom has a red ball. JSON: "
DIGIT = {"enum": [1, 2, 3]}
SCHEMA = {"type": "object", "properties": {"a": DIGIT, "b": DIGIT}, "required": ["a", "b"], "additionalProperties": False}


def test_twenty_steps_of_grpo(tmp_path):
    """Every text is valid, ratios of importance are 1, and the reward, some 3.5 at first and 6 at most, rises."""
    trl = pytest.importorskip("trl", reason="make test-trl installs it")
    datasets, transformers = pytest.importorskip("datasets"), pytest.importorskip("transformers")
    folder = str(files("locore") / "assets" / "tiny")
    module = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    means, kept = [], []

    def reward(completions, log_evidence, log_prob_given, **_):
        found = [json.loads(text) for text in completions]  # what is no record raises here
        means.append(sum(each["a"] + each["b"] for each in found) / len(found))
        kept.append((log_evidence[0], max(log_prob_given)))
        return [float(each["a"] + each["b"]) for each in found]

    options = {"loss_type": "dr_grpo", "scale_rewards": "none", "beta": 0.0, "learning_rate": 1e-4, "max_steps": 20}
    config = trl.GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=16,
        num_generations=8,
        max_completion_length=13,
        lr_scheduler_type="constant",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        logging_steps=1,
        report_to=[],
        **options,
    )
    trainer = trl.GRPOTrainer(
        model=module,
        args=config,
        train_dataset=datasets.Dataset.from_dict({"prompt": [PROMPT] * 64}),
        processing_class=tokenizer,
        reward_funcs=reward,
        rollout_func=trl_rollouts(json_schema(SCHEMA, whitespace="compact"), seed=0),
    )
    trainer.train()
    assert len(means) == 20 and sum(means[-5:]) / 5 > sum(means[:2]) / 2 + 1
    assert all(given <= 1e-9 and evidence < 0 for evidence, given in kept)
    ratios = [entry["clip_ratio/region_mean"] for entry in trainer.state.log_history if "clip_ratio/region_mean" in entry]
    assert ratios and max(ratios) == 0
