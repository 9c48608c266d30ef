"""Logs of Inspect: masses, missing answers and models as they were logged, and refusals by file, sample and field."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest

import undertow
from helpers.command_line import in_process
from helpers.file_refusal import assert_refused
from helpers.inspect_log import log_of, write_eval, write_json
from helpers.json_edits import change
from helpers.shared_folders import made_once
from undertow import integrations
from undertow.errors import UndertowError
from undertow.integrations import inspect_logs

N = 18


@pytest.fixture(scope="module")
def exported(shared_base: Path) -> Path:
    def make(folder: Path) -> None:
        integrations.export("inspect", "spurious-correlation", folder / "out", w="date", date_count=3, limit=N)

    return made_once(shared_base, "asked-of-inspect", make) / "out"


@pytest.fixture
def log(exported: Path) -> dict[str, Any]:
    return log_of(exported)


@pytest.mark.parametrize("how", ["json", "eval", "zstandard", "unfinished", "folder"])
def test_a_log_is_scored(how: str, log: dict[str, Any], tmp_path: Path) -> None:
    log["samples"][0]["scores"] = {}
    log["samples"][1]["scores"]["word_groups"] = {
        "value": dict.fromkeys(("female", "male", "neutral", "other_words"), math.nan), "explanation": "the answer is empty"
    }  # fmt: skip
    logs = tmp_path / "logs"
    logs.mkdir()
    if how == "json":
        path = write_json(log, logs / "log.json")
    else:
        header = "_journal/start.json" if how == "unfinished" else "header.json"
        path = write_eval(log, logs / "log.eval", zstandard=how == "zstandard", header=header)
    run = undertow.score(logs if how == "folder" else path, out=tmp_path / "run")
    assert run.manifest["counts"] == {"items": N, "missing": 2}
    assert run.manifest["model"] == "openai/m"
    rows = run.observations
    assert sorted(set(rows["missing_reason"])) == ["", "the answer is empty", inspect_logs.NO_SCORE]
    scored = rows[rows["missing_reason"] == ""]
    assert (scored["female"] == 30.0 + scored["w_index"]).all()
    assert set(scored["male"]) == {20.0}
    slopes = run.results[(run.results["measure"] == "slope") & (run.results["pronoun"] == "female")]
    assert slopes["value"].dropna().tolist() == pytest.approx([1.0, 1.0])  # of prompt A too little is left


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("eval", "model"), None, "eval.model"),
        (("eval",), ..., "eval"),
        (("samples",), {}, "samples"),
        (("samples", 2), 7, "sample 3"),
        (("samples", 2, "metadata"), ..., "metadata"),
        (("samples", 2, "input"), "Who?", "its input differs from the exported prompt"),
        (("samples", 2, "scores", "word_groups", "value"), 3, "scores.word_groups.value"),
        (("samples", 2, "scores", "word_groups", "value", "female"), "30", "scores.word_groups.value.female"),
        (("samples", 2, "scores", "word_groups", "value", "female"), ..., "'female'"),
        (("samples", 2, "scores", "word_groups", "value", "female"), 10**400, "female"),
        (("samples", 2, "scores", "word_groups", "value", "female"), math.inf, "female is 'inf'"),
        (("samples", 2, "scores", "word_groups", "value", "female"), 101.0, "female is '101.0'"),
        (("samples", 2, "scores", "word_groups", "value", "male"), 99.0, "add up to"),
        (("samples", 2, "metadata", "undertow"), "{}", "its question is corrupt"),
        (("samples", 2, "metadata", "undertow"), "[" * 9000, "its question is corrupt"),
    ],
)
def test_a_changed_field_is_named(
    place: tuple[Any, ...], value: object, said: str, log: dict[str, Any], tmp_path: Path
) -> None:
    change(log, place, value)
    with pytest.raises(UndertowError) as refusal:
        undertow.score(write_json(log, tmp_path / "log.json"), out=tmp_path / "run")
    assert said in str(refusal.value)
    assert "log.json" in str(refusal.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("field", ["w_index", "w_value", "w", "w_name", "challenge"])
@pytest.mark.parametrize("value", ["x" * 40, "", True, 7, 1.5, None])
def test_a_changed_factor_is_read_as_it_is_or_refused(
    field: str, value: object, log: dict[str, Any], tmp_path: Path
) -> None:
    """Names are read as text; a place of W must be a number, and that of the same value in other samples; no name of W is empty."""
    carried = json.loads(log["samples"][2]["metadata"]["undertow"])
    carried["item"]["factors"][field] = value
    log["samples"][2]["metadata"]["undertow"] = json.dumps(carried)
    path = write_json(log, tmp_path / "log.json")
    if field in {"w_index", "w_value", "w"} or value is None or (field, value) == ("w_name", ""):
        assert_refused((path, field), inspect_logs.read_log, path)
    else:
        assert inspect_logs.read_log(path).observations.frame[field].iloc[2] == str(value)


def test_other_tasks_and_a_second_epoch_are_refused(log: dict[str, Any], tmp_path: Path) -> None:
    twice = copy.deepcopy(log)
    twice["samples"].append(twice["samples"][0] | {"epoch": 2})
    with pytest.raises(UndertowError, match="one epoch"):
        inspect_logs.read_log(write_json(twice, tmp_path / "twice.json"))
    for sample in log["samples"]:
        del sample["metadata"]["undertow"]
    with pytest.raises(UndertowError, match="no samples of a task of undertow export inspect"):
        inspect_logs.read_log(write_json(log, tmp_path / "other.json"))


@pytest.mark.parametrize(
    "content", [b"", b"PK", b"{}", b"[]", b"\xff\xfe", b"PK\x03\x04" + b"\0" * 40, b"NaN", b"{" * 5000]
)
@pytest.mark.parametrize("name", ["x.eval", "x.json"])
def test_what_is_no_log_is_refused(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    done = in_process(tmp_path, "score", name)
    assert done.returncode == 1
    assert name in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_task_that_did_not_finish_is_noted_and_a_foreign_sample_is_left_out(
    log: dict[str, Any], tmp_path: Path
) -> None:
    log["status"] = "error"
    del log["samples"][3]["metadata"]["undertow"]
    run = undertow.score(write_json(log, tmp_path / "log.json"), out=tmp_path / "run")
    assert run.manifest["counts"] == {"items": N - 1, "missing": 0}
    assert any("did not finish" in note and "'error'" in note for note in run.manifest["notes"])
