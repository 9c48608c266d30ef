"""The pipeline as a library user meets it: planted answers are found, runs repeat, nothing is asked twice."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import undertow
from undertow import audit
from undertow.models import toy
from undertow.models.base import Found, Limits, Request
from undertow.types import Floats
from warm import warm


def test_the_public_names_are_there_and_few() -> None:
    assert len(undertow.__all__) <= 21
    for name in undertow.__all__:
        assert getattr(undertow, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = undertow.nothing


def test_every_public_function_is_one_after_a_run_too(tmp_path: Path) -> None:
    code = f"""
import undertow
run = undertow.run("spurious-correlation", model="toy", w="date", limit=90, out={str(tmp_path / "run")!r})
assert all(callable(getattr(undertow, name)) for name in ("run", "score", "retell", "open_run", "pull"))
(run.folder / "report.html").unlink()
print(undertow.retell(run.folder).stat().st_size > 10_000)
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "True"


def test_measuring_anew_with_another_seed_is_another_run_in_the_same_place(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = undertow.run("spurious-correlation", model="toy", w="date", limit=90, out=folder)
    second = undertow.score(folder, seed=5)
    assert second.manifest["run_key"] != first.manifest["run_key"]
    assert undertow.open_run(folder).manifest["seed"] == 5
    with pytest.raises(undertow.UndertowError, match="holds another run"):
        undertow.run("spurious-correlation", model="toy", w="date", limit=90, out=folder)


def test_a_set_measured_otherwise_is_another_run(tmp_path: Path) -> None:
    text = (
        'templates = ["In {w}, {blank} {verb}."]\nw = ["date"]\nwords = "pronouns"\nslots = {verb = ["ran", "sat"]}\n'
    )
    path = tmp_path / "own.toml"
    path.write_text(text)
    undertow.run("spurious-correlation", model="toy", challenge=str(path), out=tmp_path / "run")
    for more in ('clusters = ["template"]\n', 'gaps = [["male", "neutral"]]\n'):
        path.write_text(more + text)
        with pytest.raises(undertow.UndertowError, match="holds another run"):
            undertow.run("spurious-correlation", model="toy", challenge=str(path), out=tmp_path / "run")


def test_a_rewriting_that_was_cut_off_is_no_run_and_is_taken_up(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = undertow.run("spurious-correlation", model="toy", w="date", limit=90, out=folder)
    results = (folder / "results.json").read_bytes()
    (folder / "my notes.txt").write_text("mine")
    (folder / "manifest.json").unlink()
    (folder / ".unfinished").touch()
    with pytest.raises(undertow.UndertowError, match="was not finished"):
        undertow.open_run(folder)
    undertow.run("spurious-correlation", model="toy", w="date", limit=90, out=folder)
    assert (folder / "results.json").read_bytes() == results
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith((".", "my"))) == ["my notes.txt"]
    assert first.manifest["run_key"] == undertow.open_run(folder).manifest["run_key"]


def test_a_w_list_of_the_file_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        'templates = ["In {w}, {blank} ran."]\nwords = "pronouns"\n[w]\nseason = ["spring", "summer", "autumn"]\nday = ["a", "b", "c"]\n'
    )
    run = undertow.run("spurious-correlation", model="toy", challenge=str(path), w="season,date", out=tmp_path / "run")
    assert list(run.observations["w_name"].unique()) == ["season", "date"]


def test_importing_loads_neither_torch_nor_matplotlib_nor_pandas() -> None:
    code = "import undertow, sys; print([m for m in ('torch', 'transformers', 'matplotlib', 'pandas') if m in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


def test_building_asking_and_scoring_need_no_torch(tmp_path: Path) -> None:
    """With the model extra made impossible to import, everything but loading their models works."""
    code = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "huggingface_hub", "gguf", "accelerate"):
            raise ModuleNotFoundError(f"No module named {{name!r}}")
sys.meta_path.insert(0, Absent())
import undertow
assert len(undertow.challenge.load("mgc").items()) == 3000
run = undertow.run("spurious-correlation", model="toy", w="date", limit=90, out={str(tmp_path / "run")!r})
again = undertow.score(run.folder, out={str(tmp_path / "again")!r})
assert again.results.equals(run.results)
print(len(again.results))
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "11"


def test_the_planted_drift_is_found_and_nothing_else(tmp_path: Path) -> None:
    run = undertow.run("spurious-correlation", model="toy", challenge="mgc", out=tmp_path / "run")
    results = run.results
    slopes = {(row["w_name"], row["pronoun"]): row for row in results[results["measure"] == "slope"].to_dict("records")}
    # Ten points a century of 0.80, over 29 steps of 215 years.
    planted = 10 / 100 / 0.80 * 215 / 29
    assert slopes["date", "female"]["value"] == pytest.approx(planted, abs=0.03)
    assert slopes["date", "male"]["value"] == pytest.approx(-planted, abs=0.03)
    assert float(slopes["place", "female"]["q"]) > 0.05
    found = [finding.text for finding in run.findings if finding.found]
    assert len(found) == 3
    assert all("With date from 1801 to 2016" in text for text in found)
    unclaimed = results[(results["measure"] == "mean_mass") & (results["pronoun"] == "unclaimed")]
    assert unclaimed["value"].to_numpy() == pytest.approx([20.0, 20.0])


def test_what_a_run_holds(tmp_path: Path) -> None:
    run = undertow.run("spurious-correlation", model="toy", w="date", limit=120, seed=3, out=tmp_path / "run")
    frame = run.observations
    assert len(frame) == 120
    assert {
        "item",
        "model",
        "challenge",
        "prompt",
        "w_name",
        "w_index",
        "w",
        "verb",
        "stage",
        "cluster",
        "text",
    } <= set(frame)
    assert frame[["female", "male", "neutral"]].sum(axis=1).to_numpy() == pytest.approx(np.full(120, 100.0))
    assert frame["cluster"].nunique() == 4
    assert frame["w"].nunique() == 30
    assert set(run.results["measure"]) == {"mean_mass", "slope", "pearson_r", "slope_gap"}
    assert run.figure().axes
    written = json.loads((run.folder / "results.json").read_text())
    assert (written["schema_version"], written["probe"], written["model"]) == (1, "spurious-correlation", "toy")
    first = next(row for row in written["results"] if row["measure"] == "slope")
    assert list(first["group"]) == ["model", "challenge", "prompt", "w_name", "pronoun"]
    assert {"value", "low", "high", "n", "n_unscored", "unit", "neutral", "p", "q"} <= set(first)
    manifest = run.manifest
    assert manifest["command"] == "undertow run spurious-correlation -m toy --w date --seed 3 --limit 120"
    assert manifest["protocol"] == "exact"
    assert len(manifest["challenge_sha256"]) == 64
    reopened = undertow.open_run(run.folder)
    assert reopened.results.equals(run.results)
    assert [finding.text for finding in reopened.findings] == [finding.text for finding in run.findings]
    for name in (
        "results.csv",
        "observations.parquet",
        "report.html",
        "figures/date_mgc_toy.svg",
        "figures/date_mgc_toy.png",
    ):
        assert (run.folder / name).stat().st_size > 0


@pytest.mark.parametrize(
    "w",
    ["place", *(pytest.param(w, marks=(pytest.mark.slow, pytest.mark.soak)) for w in (["date", "place"], "file"))],
)
def test_the_printed_command_repeats_the_run(w: str | list[str], tmp_path: Path) -> None:
    towns = tmp_path / "my towns.txt"
    towns.write_text("Rome\nParis\nOslo\nBern\n")
    given = towns if w == "file" else w
    run = undertow.run("spurious-correlation", model="toy:slope=-4", w=given, limit=60, seed=1, out=tmp_path / "run")
    words = shlex.split(str(run.manifest["command"]))
    warm(tmp_path, *words[1:], "--out", str(tmp_path / "again")).check_returncode()
    assert (tmp_path / "again/results.json").read_bytes() == (run.folder / "results.json").read_bytes()
    again = undertow.score(run.folder, seed=9, out=tmp_path / "other seed")
    words = shlex.split(str(again.manifest["command"]))
    warm(tmp_path, *words[1:], "--out", str(tmp_path / "fourth")).check_returncode()
    assert (tmp_path / "fourth/results.json").read_bytes() == (again.folder / "results.json").read_bytes()
    namespace: dict[str, object] = {"undertow": undertow}
    call = str(run.manifest["python"]).replace(")", f", out={str(tmp_path / 'third')!r})")
    exec(call, namespace)
    assert (tmp_path / "third/results.json").read_bytes() == (run.folder / "results.json").read_bytes()


def test_a_second_run_computes_nothing_and_another_seed_asks_the_same(tmp_path: Path) -> None:
    first = undertow.run("spurious-correlation", model="toy", out=tmp_path / "a")
    second = undertow.run("spurious-correlation", model="toy", out=tmp_path / "b")
    other = undertow.run("spurious-correlation", model="toy", seed=5, out=tmp_path / "c")
    assert [run.manifest["counts"]["computed"] for run in (first, second, other)] == [3000, 0, 0]
    assert (tmp_path / "a/results.json").read_bytes() == (tmp_path / "b/results.json").read_bytes()
    assert (tmp_path / "a/results.json").read_bytes() != (tmp_path / "c/results.json").read_bytes()


def test_a_larger_run_asks_only_what_is_new(tmp_path: Path) -> None:
    undertow.run("spurious-correlation", model="toy", w="date", limit=300, out=tmp_path / "a")
    larger = undertow.run("spurious-correlation", model="toy", w="date", out=tmp_path / "b")
    assert larger.manifest["counts"]["computed"] == 1500


def test_how_a_model_was_read_is_told_of_stored_answers_too(tmp_path: Path) -> None:
    from undertow.scoring.ask import ask
    from undertow.scoring.store import AnswerStore

    found = toy.find(Request("toy"))
    assert found is not None
    model = found.open()
    assert isinstance(model, toy.Toy)
    model.notes = ("read by ear",)
    queries = [item.query for item in undertow.challenge.load("mgc").items()[:20]]
    for n_computed in (20, 0):
        with AnswerStore(tmp_path / "s") as store:
            asked = ask(Found(found.card, lambda: model), queries, store, "exact", lambda done, total: None)
        assert (asked.n_computed, asked.notes) == (n_computed, ("read by ear",))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"nosuch": 1}, "has no option 'nosuch'; it has challenge, w"),
        ({"date_count": "30"}, "option date_count must be of type int, not '30'"),
        ({"challenge": 3}, "option challenge must be of type str"),
    ],
)
def test_options_are_checked(options: dict[str, object], expected: str) -> None:
    with pytest.raises(undertow.UndertowError, match=expected):
        undertow.run("spurious-correlation", model="toy", **options)  # type: ignore[arg-type]


def test_w_may_be_a_list_of_names(tmp_path: Path) -> None:
    run = undertow.run("spurious-correlation", model="toy", w=["date", "place"], limit=60, out=tmp_path / "run")
    assert set(run.observations["w_name"]) == {"date", "place"}


def test_limits_keep_the_design_balanced(tmp_path: Path) -> None:
    for limit, cells, values in [(120, 2, 30), (45, 1, 22), (3, 1, 3)]:
        run = undertow.run("spurious-correlation", model="toy", w="date,place", limit=limit, out=tmp_path / str(limit))
        date = run.observations[run.observations["w_name"] == "date"]
        assert (date["cluster"].nunique(), date["w"].nunique()) == (cells, values)
        assert (date["w"].iloc[0], date["w"].iloc[-1]) == ("1801", "2016")


def test_a_sentence_that_begins_with_its_blank_is_asked(tmp_path: Path) -> None:
    run = undertow.run("spurious-correlation", model="toy", challenge="mgt", w="date", limit=600, out=tmp_path / "run")
    starts = run.observations[run.observations["text"].str.startswith("___")]
    assert len(starts) > 0
    # Nothing before the blank tells the date, and nothing after it depends on the pronoun: no drift there.
    assert starts.groupby("w_index")["female"].mean().std() == pytest.approx(0, abs=1e-9)


def test_a_dry_run_asks_nothing() -> None:
    estimated = audit.dry_run("spurious-correlation", "toy", w="date", limit=120)
    assert (estimated.n_queries, estimated.n_distinct, estimated.n_stored) == (120, 120, 0)
    assert estimated.n_tokens > 120
    assert estimated.seconds > 0
    assert estimated.memory_bytes > 0
    assert audit.dry_run("spurious-correlation", "toy", w="date", limit=120).n_stored == 0


def test_a_dry_run_of_a_finished_run_needs_no_model(tmp_path: Path) -> None:
    undertow.run("spurious-correlation", model="toy", w="date", limit=120, out=tmp_path / "run")
    left = audit.dry_run("spurious-correlation", "toy", w="date", limit=120)
    assert (left.n_stored, left.n_tokens, left.seconds) == (120, 0, 0.0)


def test_the_toy_reads_trees_and_batches_alike() -> None:
    from undertow.scoring.plan import plan, read_pack

    found = toy.find(Request("toy"))
    assert found is not None
    model = found.open()
    items = undertow.challenge.load("mgc").items()[:50]
    encoded = [one for one in model.encode([item.query for item in items]) if not isinstance(one, Exception)]
    assert len(encoded) == 50
    values: dict[tuple[int, int], list[Floats]] = {}
    for depth in (0, 100):
        limits = Limits(60, depth)
        for pack in plan(encoded, limits):
            members = [encoded[index] for index in pack.queries]
            read = read_pack(members, 60, (model.read_tree, model.read_batch), as_tree=pack.as_tree)
            values |= {(depth, index): reads for index, reads in zip(pack.queries, read, strict=True)}
    for index in range(50):
        for one, other in zip(values[0, index], values[100, index], strict=True):
            assert one.tolist() == other.tolist()
