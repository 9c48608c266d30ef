from __future__ import annotations

import math
import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow
from helpers.file_refusal import assert_refused

torch = pytest.importorskip("torch", reason="the model extra is not installed")
pytest.importorskip("accelerate", reason="the Trainer of transformers needs it")
from undertow.integrations import transformers as integration  # noqa: E402 - needs both

CHALLENGE = {
    "title": "A test",
    "templates": ["In {w}, {blank} {verb}.", 'In {w}, "{blank}" did it.'],
    "w": {"year": {"values": ["1801", "1850", "1900", "1953"]}},
    "words": "pronouns",
    "slots": {"verb": ["ran", "sat"]},
}


def trainer_of(tmp_path: Path, name: str, **settings: Any) -> Any:
    """A Trainer of a small GPT-2 with dropout, whose texts are shuffled."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

    from helpers.tiny_models import tiny_tokenizer

    (tmp_path / name).mkdir()
    tokenizer = tiny_tokenizer(tmp_path / name)
    tokenizer.pad_token = tokenizer.eos_token
    set_seed(0)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": len(tokenizer)}
    network = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=1))
    tokens = tokenizer("In 1801, she was a child. In 1953, he was an adult")["input_ids"][:24]
    texts = [{"input_ids": (row := tokens[at:] + tokens[:at]), "labels": row} for at in range(24)]
    arguments = TrainingArguments(
        str(tmp_path / name), max_steps=6, per_device_train_batch_size=4, logging_steps=2, save_strategy="no",
        report_to=[], use_cpu=True, disable_tqdm=True, seed=3, learning_rate=0.01, dataloader_pin_memory=False, **settings,
    )  # fmt: skip
    return Trainer(network, arguments, train_dataset=texts, processing_class=tokenizer)


@pytest.mark.parametrize("settings", [{}, {"bf16": True}], ids=["float32", "mixed"])
def test_a_training_is_audited_and_ends_as_without_it(tmp_path: Path, cache: Path, settings: dict[str, Any]) -> None:
    from transformers import set_seed

    plain, audited = (trainer_of(tmp_path, name, **settings) for name in ("plain", "audited"))
    audited.add_callback(
        integration.AuditCallback(
            audited, "spurious-correlation", every_steps=3, challenge=CHALLENGE, w="year", limit=40
        )
    )
    ends = []
    for trainer in (plain, audited):
        set_seed(5)
        trainer.train()
        ends.append((torch.rand(1).item(), random.random(), float(np.random.random())))
    assert ends[0] == ends[1]
    weights = [trainer.model.state_dict() for trainer in (plain, audited)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert all(module.training for module in audited.model.modules())
    assert audited.model.config._attn_implementation == plain.model.config._attn_implementation
    losses = [[entry["loss"] for entry in trainer.state.log_history if "loss" in entry] for trainer in (plain, audited)]
    assert losses[0] == losses[1]
    start = "undertow/spurious-correlation"
    logged = {entry["step"]: entry for entry in audited.state.log_history if f"{start}/significant_findings" in entry}
    assert list(logged) == [3, 6]
    assert logged[3].keys() == logged[6].keys()
    for step, entry in logged.items():
        run = undertow.load_run(tmp_path / "audited" / "undertow" / f"step-{step}")
        assert run.manifest["model"] == f"audited/step-{step}"
        values = dict(zip(run.results["measure"] + "/" + run.results["pronoun"], run.results["value"], strict=True))
        slopes = {name: number for name, number in entry.items() if name.startswith(f"{start}/slope/")}
        assert slopes
        for name, number in slopes.items():
            assert number == values[f"slope/{name.rpartition('/')[2]}"]
            assert math.isfinite(number)
    assert logged[3] != {**logged[6], "step": 3, "epoch": logged[3]["epoch"]}
    assert not (cache / "answers.sqlite").exists()


def test_any_failure_lets_training_go_on_with_the_network_of_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trainer_of(tmp_path, "stale")
    first, seen = trainer.model, []
    callback = integration.AuditCallback(trainer, "spurious-correlation", every_steps=4, challenge=CHALLENGE, w="year")
    trainer.add_callback(callback)
    trainer.model = trainer.model_wrapped = type(first)(first.config)

    def fail(config: Any, *_: Any, **__: Any) -> None:
        seen.append(config.network)
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(integration, "run_audit", fail)
    trainer.train()
    assert trainer.state.global_step == 6
    assert seen == [trainer.model]
    assert seen[0] is not first
    assert "step 4: the audit failed (RuntimeError: the device is gone)" in capsys.readouterr().err


def test_a_mistake_is_told_before_training(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, "plain")
    callback = partial(integration.AuditCallback, trainer, "spurious-correlation")
    assert_refused(("every_steps 0 must be at least 1",), callback, every_steps=0)
    assert_refused(("has no option 'chalenge'",), callback, every_steps=1, chalenge="mgc")
    trainer.is_fsdp_enabled = True
    assert_refused(("split over processes",), callback, every_steps=1)
