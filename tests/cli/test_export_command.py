from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import SMOLLM2, Cli
from helpers.cli_refusal import refused, said
from helpers.lm_eval_log import docs_of, write_log

SMALL = ["--w", "date", "--date-count", "4", "--limit", "24"]


def test_an_export_says_what_comes_next(cli: Cli) -> None:
    printed = said(cli("export", "lm-eval", "spurious-correlation", *SMALL, "--out", "tasks"))
    first, run, score, last = printed.splitlines()
    assert first == "24 items of spurious-correlation for lm-eval, named undertow_mgc_date"
    assert run.split()[:3] == ["lm_eval", "--model", "hf"]
    assert score.strip() == "undertow score LOGS --audit spurious-correlation"
    assert last == "Written to tasks"
    made = json.loads(said(cli("export", "datasets", "spurious-correlation", *SMALL, "--json")))
    assert (made["folder"], made["names"], made["n_items"]) == ("spurious-correlation_datasets", ["test"], 24)
    explained = said(cli("export", "lm-eval", "--help"))
    assert [one in explained for one in ("task-specification", "occupation-checklist", "bias-")] == [True, False, False]


def test_a_log_and_a_mapped_table_are_scored(cli: Cli, tmp_path: Path) -> None:
    said(cli("export", "lm-eval", "spurious-correlation", *SMALL, "--out", "tasks"))
    nats = {
        doc["item"]: [-1.0 - 0.1 * at, -1.0, -2.0]
        for docs in docs_of(tmp_path / "tasks").values()
        for at, doc in enumerate(docs)
    }
    write_log(tmp_path / "tasks", tmp_path / "logs", nats, edit=lambda one: one if one["doc_id"] else None)
    told = json.loads(said(cli("score", "logs", "--audit", "spurious-correlation", "--out", "run", "--json")))
    assert told["counts"] == {"items": 24, "missing": 1}
    assert "1 missing: the log has no answer for it" in said(cli("score", "logs", "--out", "run"))
    (tmp_path / "t.csv").write_text("year,she,he\n" + "".join(f"{1900 + at},0.{at + 1},0.5\n" for at in range(4)))
    (tmp_path / "m.toml").write_text(
        'unit = "probability"\n[columns]\nw = "year"\n[groups]\nfemale = "she"\nmale = "he"\n[constants]\nmodel = "gpt-x"\n'
    )
    mapped = said(cli("score", "t.csv", "--audit", "spurious-correlation", "--columns", "m.toml", "--out", "mapped"))
    assert "multiplied by 100: female, male." in mapped
    refused(cli("score", "t.csv", "--audit", "spurious-correlation", "--columns", "nowhere.toml"), "nowhere.toml")


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.model
def test_the_harness_reads_what_a_run_reads(cli: Cli, smollm2_found: object, tmp_path: Path) -> None:
    """The real harness, on the real model: the same log-likelihoods, and the same slopes."""
    pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed")
    assert cli("export", "lm-eval", "spurious-correlation", *SMALL, "--out", "tasks").returncode == 0
    command = [
        sys.executable, "-m", "lm_eval", "--model", "hf", "--model_args",
        f"pretrained={SMOLLM2.parent},gguf_file={SMOLLM2.name},dtype=float32", "--device", "cpu", "--batch_size", "8",
        "--include_path", str(tmp_path / "tasks"), "--tasks", "undertow_mgc_date", "--log_samples", "--output_path", "logs",
    ]  # fmt: skip
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    subprocess.run(command, cwd=tmp_path, env=os.environ | offline, check=True, capture_output=True, timeout=250)
    assert cli("score", "logs", "--out", "scored").returncode == 0
    assert cli("run", "spurious-correlation", "-m", "smollm2", *SMALL, "--out", "run").returncode == 0
    import undertow

    scored, run = undertow.load_run(tmp_path / "scored"), undertow.load_run(tmp_path / "run")
    for logged, read in zip(scored.observations["logprobs_nats"], run.observations["logprobs_nats"], strict=True):
        assert list(logged) == pytest.approx(list(read), abs=2e-3)
    for measure in ("slope", "slope_gap"):
        values = [
            one.loc[(one["measure"] == measure) & (one["pronoun"] != "other_words"), "value"].to_numpy(float)
            for one in (scored.results, run.results)
        ]
        assert values[0] == pytest.approx(values[1], abs=0.02)
