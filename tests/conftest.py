"""What several tests share: a cache of their own, the default model where it is, the reference data where they are.

Also how `pytest -n` hands files out, so that its workers end together.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from scripted import script, untold  # noqa: F401  # fixtures
from undertow import places
from undertow.models.base import Found, Request, TokenModel
from undertow.models.pull import location
from warm import OF_MODELS, cold, warm

ROOT = Path(__file__).parent.parent
SMOLLM2 = location("smollm2")
"""Where the default model lies in the user's cache, before any test changes the cache."""

Cli = Callable[..., subprocess.CompletedProcess[str]]

LONGEST_FIRST = (
    "docs/test_tutorial.py",
    "reliability/test_network.py",
    "reliability/test_no_way_in.py",
    "reliability/test_fuzz_readers.py",
    "probes/test_task_specification_of_the_default_model.py",
    "test_ray.py",
    "docs/test_docs.py",
    "docs/test_site.py",
    "test_resume.py",
    "lab/test_lab.py",
    "test_precision.py",
    "test_pytest_plugin.py",
    "report/test_page_in_a_browser.py",
    "web/test_app_in_a_browser.py",
    "web/test_app.py",
    "cli/test_check.py",
    "models/test_openai.py",
    "probes/test_bias_in_text.py",
    "models/test_openai_grammar.py",
    "models/test_seq2seq.py",
    "cli/test_bad_input.py",
    "cli/test_commands.py",
    "packaging/test_wheel.py",
    "records/test_records.py",
    "cli/test_task_specification_commands.py",
    "probes/test_recorded.py",
    "test_audit.py",
    "models/test_masked.py",
    "models/test_catalog.py",
    "models/test_pull.py",
    "models/test_causal.py",
    "models/test_train.py",
    "cli/test_finetune_command.py",
    "test_graph_of_a_run.py",
    "models/test_finetune.py",
    "models/test_writing.py",
    "models/test_seq2seq_writing.py",
    "models/test_decoding.py",
    "test_several_models.py",
    "web/test_annotation.py",
    "cli/test_bias_in_text_commands.py",
    "probes/test_bias_in_text_told.py",
    "test_stopping.py",
    "reliability/test_crashes.py",
    "reliability/test_disk_and_memory.py",
    "reliability/test_side_by_side.py",
    "reliability/test_no_number_unmeasured.py",
    "reliability/test_same_again.py",
)
"""Files that take 15 seconds or more, by what they take; `pytest --durations=0` tells."""


SLOW_FILES = (
    "benchmarks/test_bench.py",
    "causal/test_simulation.py",
    "cli/test_bad_input.py",
    "cli/test_bias_in_text_commands.py",
    "cli/test_check.py",
    "cli/test_check_text.py",
    "cli/test_commands.py",
    "cli/test_compare.py",
    "cli/test_export.py",
    "cli/test_finetune_command.py",
    "cli/test_graph_option.py",
    "cli/test_relate.py",
    "cli/test_simulate.py",
    "cli/test_task_specification_commands.py",
    "docs/test_docs.py",
    "docs/test_site.py",
    "models/test_finetune.py",
    "models/test_labelled.py",
    "models/test_masked.py",
    "models/test_openai.py",
    "models/test_openai_grammar.py",
    "models/test_recorded_runs.py",
    "models/test_seq2seq.py",
    "models/test_seq2seq_writing.py",
    "models/test_train.py",
    "models/test_writing.py",
    "probes/test_bias_in_text_told.py",
    "stats/test_calibration.py",
    "test_audit.py",
    "test_finetuning.py",
    "test_graph_of_a_run.py",
    "test_precision.py",
    "test_pytest_plugin.py",
    "test_ray.py",
    "test_several_models.py",
    "web/test_app.py",
    "web/test_app_in_a_browser.py",
    "reliability/test_power_cut.py",
    "reliability/test_no_number_unmeasured.py",
    "reliability/test_old_folders.py",
    "reliability/test_same_again.py",
)
"""Files whose tests are slow together, though each by itself may not be: more than half of what the fast tests took."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[object]) -> None:
    """Share the cores out, and keep the order in which each worker has collected.

    Several workers with a thread for every core each keep one another waiting. And files are handed out by how many
    tests they have: those of the default model have two or three long ones, and would come when all else is done.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // len(specs))))
    config.option.loadscopereorder = False


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow files are marked. On a worker, long files first; then those with the most slow tests, then of any kind."""
    slow = {ROOT / "tests" / name for name in SLOW_FILES}
    for item in items:
        if item.path in slow:
            item.add_marker(pytest.mark.slow)
    if not hasattr(config, "workerinput"):
        return
    turns = {ROOT / "tests" / name: turn for turn, name in enumerate(LONGEST_FIRST)}
    n_slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    n_tests = Counter(item.path for item in items)
    items.sort(key=lambda item: (turns.get(item.path, len(turns)), -n_slow[item.path], -n_tests[item.path], item.path))


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, with the default model linked into it."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("UNDERTOW_CACHE", str(folder))
    if SMOLLM2.is_file():
        location("smollm2").parent.mkdir(parents=True)
        location("smollm2").symlink_to(SMOLLM2)
    return places.cache_folder()


@pytest.fixture
def measured(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Says a figure that `make soak` writes into docs/soak.md."""
    return partial(record_property, "measured")


@pytest.fixture(scope="session")
def reference_data() -> Path:
    """Real reference data, which a user's clone does not have."""
    folder = Path(os.environ.get("UNDERTOW_REFERENCE_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"the reference data are not here: no folder {folder} (UNDERTOW_REFERENCE_DATA names another)")
    return folder


@pytest.fixture(scope="session")
def smollm2_found() -> Found:
    """The default model, not loaded."""
    if not SMOLLM2.is_file():
        pytest.skip("the default model is not here: run `undertow pull smollm2`")
    from undertow.models import causal

    found = causal.find(Request(str(SMOLLM2)))
    assert found is not None
    return found


@pytest.fixture(scope="session")
def smollm2(smollm2_found: Found) -> TokenModel:
    """The default model, loaded once."""
    model: TokenModel = smollm2_found.open()
    return model


@pytest.fixture
def cold_cli(tmp_path: Path) -> Cli:
    """Run the command line in an interpreter of its own, as a user does."""
    return partial(cold, tmp_path)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Run the command line in a process of its own: cold where a test gives it options of `subprocess.run`."""

    def run(*arguments: str, cwd: Path = tmp_path, **options: object) -> subprocess.CompletedProcess[str]:
        return cold(cwd, *arguments, **options) if options else warm(cwd, *arguments)

    return run


@pytest.fixture
def model_cli(tmp_path: Path) -> Cli:
    """The same for commands that open a model with weights."""
    return partial(warm, tmp_path, packages=OF_MODELS)
