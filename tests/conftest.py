"""What several tests share: a cache of their own, the default model where it is, the reference data where they are, finished runs."""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from helpers import command_line
from helpers import tiny_models as tiny
from helpers.chromium import chromium  # noqa: F401  # a fixture
from helpers.planted_precision import plant  # noqa: F401  # a fixture
from helpers.scripted_model import script  # noqa: F401  # a fixture
from helpers.served_app import ServedApp, serving
from helpers.shared_folders import made_once, named
from undertow import _folders
from undertow.cli import console
from undertow.inference import answer_cache
from undertow.metrics import score_table, specification_detection
from undertow.models.base import ModelHandle, ModelRequest, TokenModel
from undertow.models.loading.download import location
from undertow.runs import pipeline, score  # noqa: F401 - score takes `write_report` by name, before it is replaced
from undertow.runs.compare import compare_folders, comparison_report, differences
from undertow.stats.classification import agreement
from undertow.stats.regression import power_analysis

ROOT = Path(__file__).parent.parent
SMOLLM2 = location("smollm2")
"""Where the default model lies in the user's cache, before any test changes the cache."""

Cli = Callable[..., command_line.Done]

SLOW_FILES = {
    "app": "annotation app app_in_a_browser",
    "audits": (
        "bias_in_text checklist_groups occupation_checklist prompted_runs recorded_tables task_specification text_findings "
        "word_findings"
    ),
    "causal": "identification simulate",
    "cli": ("bad_input bias_in_text_commands commands compare_command finetune_command power_command simulate_command"),
    "data": "answer_reader onet",
    "docs": "docs site tutorial",
    "golden": "golden",
    "inference": "doctor free_replies planner ray_cluster ray_engine",
    "lab": "finetune lab pretrain verification_metrics verification_report",
    "metrics": "checklist_metrics crossed_covariates sentence_scores specification_detection",
    "models": (
        "blanks causal constrained_answers download extractive_qa loading masked openai openai_constrained prompt_encoder "
        "prompted_answers seq2seq seq2seq_answers"
    ),
    "packaging": "broken_plugins wheel",
    "reliability": (
        "concurrency coverage crashes disk_and_memory edited_folders forged_lines fuzz_readers hostile_files missing_values network "
        "power_cut reproducibility round_trips secrets untrusted_input"
    ),
    "report": "every_figure findings_name_results page_in_a_browser",
    "reproduction": "reproduction",
    "runs": (
        "causal_assumptions compare dtype_check gates papers pipeline pytest_plugin replay several_models storage "
        "system_prompt"
    ),
}
"""Files that take more than a few seconds together, by folder, without `test_`; `make fast` leaves them out."""


hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None)
hypothesis.settings.register_profile("random", deadline=None)
hypothesis.settings.load_profile("fixed")  # `make soak` says --hypothesis-profile=random


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="keep the results of today in tests/golden/tables")
    parser.addoption("--gpu", action="store_true", help="let tests use the GPU, which is hidden from them otherwise")


def pytest_configure(config: pytest.Config) -> None:
    """Hide the GPU, so that tests compute the same everywhere; Ctrl-C reaches the commands that tests start.

    A parent may ignore it, as a shell's background jobs do.
    """
    if not config.getoption("gpu"):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    elif not importlib.import_module("torch").cuda.is_available():
        raise pytest.UsageError("--gpu: torch finds no GPU here")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()  # until tests are collected


def pytest_collection_finish() -> None:
    """Look for garbage seldom, and never among what is imported: with torch in memory that takes a sixth of the time of all tests."""
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two workers more than cores, since some tests wait for servers."""
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[object]) -> None:
    """Share the cores out: several workers with a thread for every core each keep one another waiting."""
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // len(specs))))


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of slow files are marked, and those of the default model are the first, so that one worker loads it once."""
    tests = ROOT / "tests"
    slow = {tests / folder / f"test_{name}.py" for folder, names in SLOW_FILES.items() for name in names.split()}
    for item in items:
        if item.path in slow:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: "smollm2" not in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tests' caches lie; pytest itself counts all folders beside a new one."""
    return tmp_path_factory.mktemp("caches")


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test's own folder, where it works."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _use_new_cache(caches: Path, patch: pytest.MonkeyPatch) -> Path:
    """Switch to an empty cache folder with the default model linked into it."""
    patch.setenv("UNDERTOW_CACHE", tempfile.mkdtemp(dir=caches))
    if SMOLLM2.is_file():
        location("smollm2").parent.mkdir(parents=True)
        location("smollm2").symlink_to(SMOLLM2)
    return _folders.cache_folder()


@pytest.fixture(scope="session", autouse=True)
def session_cache(caches: Path) -> Iterator[None]:
    """A cache for fixtures that several tests share, so that none reads or writes the user's; nothing waits for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answer_cache, "SYNCHRONOUS", "OFF")
        patch.setattr(os, "fsync", lambda _: None)
        patch.setattr(console, "LINE_EVERY_S", 3600.0)  # on a busy machine a run says how far it is
        _use_new_cache(caches, patch)
        yield


@pytest.fixture(autouse=True)
def cache(caches: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    return _use_new_cache(caches, monkeypatch)


@pytest.fixture
def measured(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Says a figure that stands in the JUnit file of a long run (`make soak ARGS=--junitxml=FILE`)."""
    return partial(record_property, "measured")


@pytest.fixture(scope="session")
def reference_data() -> Path:
    """Real reference data, which a user's clone does not have."""
    folder = Path(os.environ.get("UNDERTOW_REFERENCE_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"the reference data are not here: no folder {folder} (UNDERTOW_REFERENCE_DATA names another)")
    return folder


@pytest.fixture(scope="session")
def smollm2_found() -> ModelHandle:
    """The default model, not loaded."""
    if not SMOLLM2.is_file():
        pytest.skip("the default model is not here: run `undertow pull smollm2`")
    from undertow.models.families import causal

    found = causal.resolve(ModelRequest(str(SMOLLM2), device="cpu"))
    assert found is not None
    return found


@pytest.fixture(scope="session")
def smollm2(smollm2_found: ModelHandle) -> TokenModel:
    """The default model, loaded once."""
    model: TokenModel = smollm2_found.open()
    return model


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Run the command line in this process, in the test's folder or another (`cwd`); takes the options of `in_process`."""

    def run(*arguments: str, cwd: Path = tmp_path, **options: Any) -> command_line.Done:
        return command_line.in_process(cwd, *arguments, **options)

    return run


@pytest.fixture
def cli_process(tmp_path: Path) -> Cli:
    """Run the command line in an interpreter of its own, as a user does; takes the options of `subprocess.run`."""

    def run(*arguments: str, cwd: Path = tmp_path, **options: Any) -> command_line.Done:
        return command_line.process(cwd, *arguments, **options)

    return run


@pytest.fixture(scope="session")
def shared_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of a test run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def network(shared_base: Path) -> Callable[[str], str]:
    """The folder of a small network, not to be changed: by the name of its builder (tiny.save), as in network("trained_bert")."""
    return lambda builder: str(made_once(shared_base, f"network-{builder}", partial(tiny.save, builder)))


@pytest.fixture(scope="session")
def finished_run(shared_base: Path) -> Callable[..., Path]:
    """The folder of a finished run, not to be changed: finished_run("spurious-correlation", "toy", w="date", page=True)."""

    def folder(
        audit: str, model: Any = "toy", *, page: bool | str = False, resamples: bool = False, **options: Any
    ) -> Path:
        def make(made: Path) -> None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("UNDERTOW_CACHE", str(made / "cache"))
                make_quick(patch, page=page, resamples=resamples)
                pipeline.audit(audit, model, out=made / "run", **options)

        return (
            made_once(shared_base, f"run-{named(audit, model, page, resamples, sorted(options.items()))}", make) / "run"
        )

    return folder


@pytest.fixture(scope="session")
def published_drift(reference_data: Path, shared_base: Path) -> Path:
    """The folder of the published masses of sentences with W, scored as the page of reproductions says."""

    def make(folder: Path) -> None:
        table = str(reference_data / "recorded/mgc_pronoun_mass.csv.gz")
        words = ["score", table, "--audit", "spurious-correlation", "--out", str(folder / "run"), "--json"]
        with pytest.MonkeyPatch.context() as patch:
            make_quick(patch)
            done = command_line.in_process(folder, *words, env={"UNDERTOW_CACHE": str(folder / "cache")})
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["counts"] == {"items": 24_000, "missing": 0}
        assert not (folder / "cache").exists()

    return made_once(shared_base, "published-drift", make) / "run"


@pytest.fixture(scope="module")  # a server that waits for nobody takes time too
def served_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    """The page of `undertow app` with toy models, which takes seconds to start."""
    with serving(tmp_path_factory.mktemp("served"), "toy,toy:pause=0.3,toy:pause=1.3") as served:
        yield served


@pytest.fixture(autouse=True)
def quick_runs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs take few resamples and write no page, unless a test is marked: `resamples`, `page`."""
    make_quick(
        monkeypatch,
        resamples=request.node.get_closest_marker("resamples") is not None,
        page=request.node.get_closest_marker("page") is not None,
    )


def make_quick(
    patch: pytest.MonkeyPatch, *, resamples: bool = False, page: bool | str = False, draws: int = 100, groups: int = 8
) -> None:
    """Unless asked for: few resamples instead of thousands, comparisons of few groups of clusters and without figures, an empty page.

    A page has one figure for phones, since drawing takes most of its time, and small bitmaps, unless it is "whole".
    """
    if not resamples:
        fewer = (power_analysis.simulate_errors.__kwdefaults__ or {}) | {"n_series": draws // 10}
        patch.setattr(power_analysis.simulate_errors, "__kwdefaults__", fewer)
        patch.setattr(power_analysis, "N_SERIES", draws // 10)
        patch.setattr(agreement, "N_DRAWS", draws)
        patch.setattr(specification_detection, "N_DRAWS", draws)
        patch.setattr(score_table, "N_PERMUTATIONS", draws)
        patch.setattr(differences, "MAX_GROUPS", groups)
    patch.setattr(pipeline, "write_report", WRITE_REPORT if page else _write_no_page)
    patch.setattr(compare_folders, "drawings", DRAW_COMPARISONS if page else lambda _: [])
    if page != "whole":
        patch.setattr("undertow.report.inline_svg.MAX_PHONE_FIGURES", 1)
        patch.setattr("undertow.report.style.PNG_DPI", 40)


WRITE_REPORT, DRAW_COMPARISONS = pipeline.write_report, comparison_report.drawings


def _write_no_page(*_: object) -> Callable[[Path], None]:
    """In place of `pipeline.write_report`."""

    def write(folder: Path) -> None:
        (folder / "figures").mkdir(exist_ok=True)
        (folder / "report.html").touch()

    return write
