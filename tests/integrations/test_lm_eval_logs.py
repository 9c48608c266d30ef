from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import undertow
from conftest import make_quick
from helpers.file_refusal import assert_refused, written
from helpers.json_edits import change
from helpers.lm_eval_log import DATE, Edit, docs_of, write_log
from helpers.shared_folders import made_once
from undertow import integrations
from undertow.integrations.lm_eval_logs import NO_ANSWER, read_log

OPTIONS: dict[str, Any] = {"w": "date", "date_count": 6}
LIMIT = 60
GROUPS = ["female", "male", "neutral"]


@pytest.fixture(scope="module")
def asked(shared_base: Path) -> Path:
    """An export, and the toy's run of the very same questions."""

    def make(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("UNDERTOW_CACHE", str(folder / "cache"))
            make_quick(patch)
            undertow.audit("spurious-correlation", "toy", limit=LIMIT, out=folder / "run", **OPTIONS)
        integrations.export("lm-eval", "spurious-correlation", folder / "tasks", limit=LIMIT, **OPTIONS)

    return made_once(shared_base, "asked-of-lm-eval", make)


@pytest.fixture
def nats(asked: Path) -> dict[str, list[float]]:
    observations = undertow.load_run(asked / "run").observations
    return {row["item"]: list(row["logprobs_nats"]) for row in observations.to_dict("records")}


Log = Callable[..., Path]


@pytest.fixture
def log(asked: Path, nats: dict[str, list[float]], tmp_path: Path) -> Log:
    def write(edit: Edit = lambda sample: sample, **how: Any) -> Path:
        return write_log(asked / "tasks", tmp_path / "logs", nats, edit=edit, **how)

    return write


def changed(name: str, value: Any, at: int = 3) -> Edit:
    """One key of one sample, a path with dots, set to something else."""

    def edit(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["doc_id"] == at:
            change(sample, tuple(name.split(".")), value)
        return sample

    return edit


def carrying(change: Callable[[dict[str, Any]], object], at: int | None = None) -> Edit:
    """The question that each sample carries, or that of one, changed."""

    def edit(sample: dict[str, Any]) -> dict[str, Any]:
        carried = json.loads(sample["doc"]["undertow"])
        if at in (None, sample["doc_id"]):
            change(carried)
        sample["doc"]["undertow"] = json.dumps(carried)
        return sample

    return edit


def items_of(folder: Path) -> list[str]:
    return [doc["item"] for docs in docs_of(folder / "tasks").values() for doc in docs]


def test_a_log_gives_the_results_of_the_run_to_the_letter(log: Log, asked: Path, tmp_path: Path) -> None:
    log()
    scored = undertow.score(tmp_path / "logs", audit="spurious-correlation", out=tmp_path / "scored")
    run = undertow.load_run(asked / "run")
    keep = [one for one in run.record.results if one.group["pronoun"] != "other_words"]
    found = [one for one in scored.record.results if one.group["pronoun"] != "other_words"]
    assert len(keep) == len(found) == 17
    assert [repr(one) for one in found] == [repr(one) for one in keep]
    columns = ["item", "w_name", "w_index", "w", "cluster", "text", *GROUPS, "missing_reason", "model"]
    pd.testing.assert_frame_equal(scored.observations[columns], run.observations[columns])
    assert scored.observations["other_words"].isna().all()
    assert scored.manifest["protocol"] == "exact"
    assert scored.manifest["counts"] == {"items": len(run.observations), "missing": 0}
    # What a log does not hold is not told of it: the probability of other words.
    told = zip(scored.findings, run.findings, strict=True)
    assert all(here.significant == there.significant and there.text.startswith(here.text) for here, there in told)


def test_models_of_several_folders_stand_beside_each_other(log: Log, tmp_path: Path) -> None:
    log(model="org/one", config={"model_num_parameters": 1000, "model_dtype": "torch.bfloat16"})
    log(model="/somewhere/two", config={"model_num_parameters": "unknown"})
    log(model="/elsewhere/two")
    logged = read_log(tmp_path / "logs")
    assert set(logged.observations.frame["model"]) == {"org/one", "two", "/somewhere/two"}
    assert logged.observations.design["models"]["org/one"] == {"parameters": 1000.0}
    assert logged.dtypes == {"org/one": "bfloat16"}
    run = undertow.score(tmp_path / "logs", out=tmp_path / "run")
    assert ["org/one ran in bfloat16" in line for line in run.manifest["precision"]["sentences"]] == [True]


def test_logs_of_other_tasks_are_left_alone_and_those_of_two_exports_are_not_mixed(log: Log, tmp_path: Path) -> None:
    folder = log()
    other = {"doc_id": 0, "doc": {"question": "?"}, "resps": [[["-1", "True"]]]}
    (folder / f"samples_hellaswag_{DATE}.jsonl").write_text(json.dumps(other) + "\n")
    assert set(read_log(tmp_path / "logs").observations.frame["challenge"]) == {"mgc"}
    integrations.export("lm-eval", "spurious-correlation", tmp_path / "tasks", w="date", date_count=3, limit=9)
    write_log(tmp_path / "tasks", tmp_path / "logs", {item: [-1.0] * 3 for item in items_of(tmp_path)}, model="another")
    assert_refused(("logs",), read_log, tmp_path / "logs")
    for path in tmp_path.glob("logs/*/samples_undertow*"):
        path.unlink()
    assert_refused(("logs", "undertow export lm-eval"), read_log, tmp_path / "logs")


@pytest.mark.parametrize("said", [["nan", "-1", "-1"], ["", "-1", "-1"], ["2.5", "-1", "-1"], ["-inf", "-inf", "-inf"]])
def test_answers_without_numbers_are_missing_with_a_reason(said: list[str], log: Log) -> None:
    frame = read_log(log(changed("filtered_resps", [[one, "False"] for one in said], at=4))).observations.frame
    assert [place for place, reason in enumerate(frame["missing_reason"]) if reason] == [4]
    assert math.isnan(frame["female"].iloc[4])
    # a word that is impossible has no mass
    sure = [["-1.5", "True"], ["-inf", "False"], ["-inf", "False"]]
    frame = read_log(log(changed("filtered_resps", sure))).observations.frame
    assert list(frame[GROUPS].iloc[3]) == [100.0, 0.0, 0.0]


def test_capitals_that_a_model_does_not_see_count_once(tmp_path: Path) -> None:
    text = 'templates = ["In {w}, {blank} ran."]\nw = ["date"]\n[groups]\nfemale = ["she", "She"]\nmale = ["he"]'
    challenge = written(tmp_path, text, "own.toml")
    integrations.export("lm-eval", "spurious-correlation", tmp_path / "tasks", challenge=challenge, date_count=3)
    write_log(tmp_path / "tasks", tmp_path / "logs", {item: [-1.0, -1.0, -1.0] for item in items_of(tmp_path)})
    frame = read_log(tmp_path / "logs").observations.frame
    assert frame["female"].to_numpy() == pytest.approx([50.0] * 3)


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (changed("doc.context", "In 1700,"), "text"), (changed("doc.choices", [" she."]), "text"),
        (changed("doc.undertow", "{}"), "question"), (changed("doc.undertow", '{"version": 1}'), "no audit"),
        (changed("doc.undertow", '{"version" : 2}'), "newer Undertow"),
        (changed("arguments.gen_args_0", {"arg_0": "Q: In 1801,", "arg_1": " she"}), "with other text"),
        (changed("filtered_resps", [["-1", "False"]]), "1 log-likelihoods for 3"),
        (changed("filtered_resps", "x"), "log-likelihoods for 3"), (changed("doc", {"question": "?"}), "task"),
    ],
)  # fmt: skip
def test_a_damaged_log_is_refused_by_its_line(edit: Edit, named: str, log: Log) -> None:
    assert_refused(("samples_undertow_mgc_date_", ".jsonl, line 4", named), read_log, log(edit))


def test_a_log_that_was_cut_off_is_refused_until_the_line_is_gone(log: Log) -> None:
    (file,) = log().glob("samples_*")
    lines = file.read_text(encoding="utf-8").splitlines()
    file.write_text("\n".join([*lines[:10], lines[10][:100]]), encoding="utf-8")
    assert_refused((file.name, "line 11"), read_log, file)
    file.write_text("\n".join(lines[:10]), encoding="utf-8")
    frame = read_log(file).observations.frame
    assert (frame["missing_reason"] == NO_ANSWER).sum() == LIMIT - 10


def test_the_same_sentence_twice_is_refused_with_both_places(log: Log, tmp_path: Path) -> None:
    folder = log()
    log(date="2026-02-01T10-00-00.000000")
    assert_refused(("2026-02-01", "2026-01-31", "'mgc/date/1801"), read_log, tmp_path / "logs")
    newer = next(folder.glob("samples_*2026-02-01*"))
    assert len(read_log(newer).observations.frame) == LIMIT


def test_questions_and_another_audit_protocol_or_mapping_are_refused(asked: Path, log: Log, tmp_path: Path) -> None:
    folder, out = log(), tmp_path / "out"
    assert_refused(("tasks",), undertow.score, asked / "tasks", out=out)
    assert_refused(("undertow_mgc_date.jsonl",), undertow.score, asked / "tasks/undertow_mgc_date.jsonl", out=out)
    assert_refused(("task-specification",), undertow.score, folder, audit="task-specification", out=out)
    assert_refused(("paper",), undertow.score, folder, protocol="paper", out=out)
    assert_refused(("--columns",), undertow.score, folder, columns="x.toml", out=out)
    assert not out.exists()


def test_options_of_a_log_open_and_fetch_nothing(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log may come from anywhere."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_text("one\ntwo\nthree\n")
    monkeypatch.setattr("undertow.data.templates.covariates.read_text", lambda path: pytest.fail(f"{path} was opened"))
    folder = log(carrying(lambda carried: carried.update(options={"w": "secret"})))
    assert len(read_log(folder).observations.frame) == LIMIT


def test_a_log_that_lacks_a_part_of_its_design_or_a_place_of_w_is_refused(log: Log) -> None:
    lacking = log(carrying(lambda carried: carried["design"].pop("gaps")))
    assert_refused(("spurious-correlation", "gaps"), read_log, lacking)
    damaged = log(carrying(lambda carried: carried["design"].update(words="x")))
    assert_refused(("samples_undertow_mgc_date_", "words"), read_log, damaged)
    assert_refused(
        ("w_value",), read_log, log(carrying(lambda carried: carried["item"]["factors"].pop("w_value"), at=1))
    )
