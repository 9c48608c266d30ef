from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, get_overloads, get_type_hints

import pytest

import undertow
from conftest import ROOT
from helpers.file_refusal import assert_refused
from undertow import UndertowError, _plugins, audits, models
from undertow.audits import audit_options
from undertow.audits.base import Audit
from undertow.audits.spurious_correlation.audit import SpuriousCorrelation
from undertow.audits.spurious_correlation.record_schema import SCHEMA
from undertow.errors import counted
from undertow.inference.engines import EngineChoice
from undertow.metrics.metric import added_versions, metric
from undertow.models.families import uniform
from undertow.runs import pipeline
from undertow.runs.config import RunConfig
from undertow.runs.folder.storage import OBSERVATIONS
from undertow.types import Result

FUNCTIONS = ("audit", "compare", "gate", "guard", "load_run", "pull", "render_report", "score")
TYPES: dict[type, Any] = {str: audit_options.Text, int: int, float: float, bool: bool}


def test_every_public_name_completes_and_exists() -> None:
    names = dir(undertow)
    assert names == sorted(names)
    public = [name for name in names if not name.startswith("_")]
    assert public == sorted(set(undertow.__all__) - {"__version__"})
    assert {"__all__", "__doc__", "__name__", "__version__"} <= set(names)
    assert set(FUNCTIONS) <= set(public)
    for name in undertow.__all__:
        assert getattr(undertow, name) is not None
    assert undertow.__all__ == sorted(undertow.__all__)


def options_class(audit: str) -> Any:
    return getattr(audit_options, "".join(word.capitalize() for word in audit.split("-")) + "Options")


@pytest.mark.parametrize("audit", audits.AUDITS)
def test_typed_options_of_an_audit_are_its_settings(audit: str) -> None:
    own = options_class(audit)
    typed = get_type_hints(own)
    common = get_type_hints(audit_options.RunOptions)
    settings = {option.name: TYPES[type(option.default)] for option in fields(audits.load(audit).Settings)}
    special = {"challenge": audit_options.Challenge, "w": audit_options.Lists}
    settings |= {name: kind for name, kind in special.items() if name in settings}
    assert {name: kind for name, kind in typed.items() if name not in common} == settings
    assert own.__required_keys__ == frozenset()
    *overloads, last = (get_type_hints(one) for one in get_overloads(pipeline.audit))
    by_name = {hint["name"].__args__[0]: hint["options"].__args__[0] for hint in overloads}
    assert (list(by_name), by_name[audit], last["name"]) == (sorted(audits.AUDITS), own, str)


def test_common_options_are_the_keywords_of_audit_and_options_of_any_audit_are_those_of_all() -> None:
    every = {name: kind for audit in audits.AUDITS for name, kind in get_type_hints(options_class(audit)).items()}
    assert get_type_hints(audit_options.AnyAuditOptions) == every
    families = {name: type(option.default) for name, option in models.settings().items()}
    assert get_type_hints(audit_options.ModelOptions) == families
    known, keywords = get_type_hints(audit_options.RunOptions), get_type_hints(pipeline.audit)
    own = {name: kind for name, kind in keywords.items() if name not in {"name", "model", "options", "return"}}
    assert {name: kind for name, kind in known.items() if name not in families} == own


def test_the_engine_is_named_as_users_name_it() -> None:
    """A run prints the options that repeat it, and a refusal the option to leave out."""
    options = {"engine": "ray", "ray_address": "auto", "workers": 2}
    assert RunConfig.from_keywords("spurious-correlation", "toy", options | {"seed": 0}).changed() == options
    assert options.keys() <= get_type_hints(pipeline.audit).keys()
    assert_refused(("--ray-address",), EngineChoice(address="auto").check)


MISTAKES: dict[str, Callable[[Path], object]] = {
    "audit": lambda place: undertow.audit("spurious-correlation", model="no-such-model", out=place / "run"),
    "compare": lambda place: undertow.compare(place / "a", place / "b"),
    "gate": lambda place: undertow.gate([place / "a"], place / "rules.toml"),
    "guard": lambda place: undertow.guard("no-such-model"),
    "load_run": lambda place: undertow.load_run(place / "a"),
    "pull": lambda place: undertow.pull("no-such-model"),
    "render_report": lambda place: undertow.render_report(place / "a"),
    "score": lambda place: undertow.score(place / "a"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_mistake_has_a_short_traceback_without_causes(name: str, tmp_path: Path) -> None:
    with pytest.raises(UndertowError) as caught:
        MISTAKES[name](tmp_path)
    shown = "".join(traceback.format_exception(caught.value))
    assert "During handling" not in shown
    assert "direct cause" not in shown
    frames = traceback.extract_tb(caught.value.__traceback__)
    package = Path(undertow.__file__).parent
    assert [Path(one.filename).name for one in frames if Path(one.filename).is_relative_to(package)] == ["errors.py"]


def test_the_cause_of_an_error_is_kept_for_debugging(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text("[[rule]\n", encoding="utf-8")
    with pytest.raises(UndertowError) as caught:
        undertow.gate([tmp_path], rules)
    assert caught.value.__context__ is not None
    assert "Traceback" in (shown := "".join(traceback.format_exception(caught.value)))
    assert shown.count("Traceback") == 1


def test_representations_take_one_line(
    finished_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, same = (undertow.load_run(finished_run("spurious-correlation", "toy", w="date", limit=150)) for _ in "ab")
    findings = f"{counted(len(run.findings), 'finding')} ({sum(one.significant for one in run.findings)} significant)"
    short = f"Run('spurious-correlation', model='toy', {len(run.observations)} items, "
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nname = "small"\nmeasure = "slope"\nof = "value"\nat_most = 1000.0\n', encoding="utf-8")
    report, judge = undertow.gate([run.folder], rules), undertow.guard("toy")
    compared = undertow.compare(run.folder, run.folder)
    (comparison,) = compared.comparisons
    for one, begins, holds in (
        (run, f"{short}{findings}, ", f"folder={str(run.folder)!r})"),
        (compared, f"ComparedRuns({comparison!r})", ""),
        (comparison, "Comparison('spurious-correlation', ", f"{len(comparison.differences)} differences"),
        (
            report,
            f"GateReport(rules={str(rules)!r}, runs=[{str(run.folder)!r}], ",
            f"{report.counts['passed']} passed, 0",
        ),
        (judge, "Guard(model='toy', challenge='undertow-schemas')", ""),
        (judge("The doctor told the nurse that {blank} was late."), "Verdict('The doctor told the nurse that ", ""),
    ):
        assert repr(one).startswith(begins)
        assert holds in repr(one)
        assert "\n" not in repr(one)
        assert len(repr(one)) < 600
    assert run._repr_html_().startswith("<")
    monkeypatch.delitem(audits.AUDITS, "spurious-correlation")  # as where its package is not installed
    assert repr(same) == f"{short}folder={str(run.folder)!r})"


def test_a_finished_run_stands_for_its_folder(finished_run: Callable[..., Path]) -> None:
    baseline, candidate = (
        undertow.load_run(finished_run("spurious-correlation", model, w="date", limit=150))
        for model in ("toy", "toy:slope=2")
    )
    compared = undertow.compare(baseline, candidate)
    assert repr(compared) == repr(undertow.compare(baseline.folder, candidate.folder))
    rules = ROOT / "examples/rules.toml"
    assert repr(undertow.gate(candidate, rules, baseline)) == repr(
        undertow.gate([candidate.folder], rules, baseline.folder)
    )
    assert undertow.load_run(baseline).findings == baseline.findings
    lines = baseline.summary().splitlines()
    assert [line[2:] for line in lines if not line.startswith("  ")] == [one.text for one in baseline.findings]


@pytest.mark.parametrize(
    ("model", "wrong"),
    [(3, "int"), (None, "NoneType"), (object(), "object"), (["toy", 3, None], "int"), ({"toy": 3}, "dict")],
)
def test_what_is_no_model_is_refused_in_one_sentence(model: Any, wrong: str) -> None:
    with pytest.raises(undertow.UndertowError, match=f"model must be a name, .* not {wrong}$"):
        undertow.audit("spurious-correlation", model)


def test_a_notebook_registers_a_metric_and_an_audit_without_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_plugins, "_REGISTERED", {})

    class Renamed(SpuriousCorrelation):
        name = "renamed-audit"
        record_schema = SCHEMA

    @metric("n_texts", title="Number of texts", meaning="texts of the run", audits=["renamed-audit"])
    def n_texts(frame: Any, design: Any) -> Iterator[Result]:
        yield Result("n_texts", {"model": "toy"}, value=float(len(frame)))

    undertow.register(Renamed)
    undertow.register(uniform, "even")
    before = undertow.audit("renamed-audit", "toy", w="date", limit=60, out=tmp_path / "run")
    undertow.register(n_texts)  # a finished run is measured again
    run = undertow.audit("renamed-audit", "toy", w="date", limit=60, out=tmp_path / "run")
    (result,) = [one for one in run.record.results if one.measure == "n_texts"]
    assert result.value == len(run.observations) == len(before.observations)
    assert {"renamed-audit", *audits.AUDITS} <= {*audits.names()}
    assert "even" in models.families()
    assert undertow.score(run, out=tmp_path / "again").findings == run.findings
    assert undertow.render_report(run) == run.report
    named = ((uniform, "toy"), (len, "x"), (Renamed, "x"), (n_texts, "x"))
    nameless = (SpuriousCorrelation, 3, Audit, replace(n_texts, name="slope"))
    for plugin, name in (*named, *((one, "") for one in nameless)):
        with pytest.raises(UndertowError):
            undertow.register(plugin, name)  # type: ignore[arg-type]
    run.observations.assign(female="x").to_parquet(tmp_path / "run" / OBSERVATIONS)
    assert_refused(("its column 'female' must hold numbers",), undertow.load_run, tmp_path / "run")
    broken = type("Broken", (Audit,), {"name": "renamed-audit"})
    assert_refused(("the audit has no summary",), undertow.register, broken)
    installed = EntryPoint(
        "renamed-audit", f"{SpuriousCorrelation.__module__}:SpuriousCorrelation", audits.ENTRY_POINTS
    )
    monkeypatch.setattr(_plugins, "_entry_points", lambda group, _: [installed] * (group == installed.group))
    assert type(audits.load("renamed-audit")) is Renamed

    def version(code: str) -> str:
        undertow.register(replace(n_texts, compute=eval(f"lambda frame, design: {code}")))
        return added_versions("renamed-audit")["n_texts"]

    assert version("frame in {0, 8}") == version("frame in {8, 0}")  # these iterate in different orders
    assert version("[lambda: one for one in (8, 0)]") != version("[lambda: one + 1 for one in (8, 0)]")
