from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Cli
from helpers.tiny_models import saved, tiny_llama
from undertow import models
from undertow.errors import UndertowError
from undertow.inference.answer_cache import AnswerCache
from undertow.inference.runner import run_queries
from undertow.models.backend.execution import preserve
from undertow.models.base import ModelRequest
from undertow.types import EXACT, GenerateQuery, Option

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_families_are_the_files_of_the_folder_and_listing_them_loads_no_torch() -> None:
    code = "import sys; from undertow import models; print(*models.families()); assert 'torch' not in sys.modules"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == sorted(printed.split())
    assert {"causal", "masked", "seq2seq", "gguf", "openai", "replay", "toy"} <= set(printed.split())


@pytest.mark.soak
@pytest.mark.slow
def test_a_hub_id_is_read_from_the_hubs_cache_at_its_commit(cli_process: Cli, tmp_path: Path) -> None:
    """The real path of `-m org/name`, with the hub's cache filled by hand, since tests have no network."""
    pytest.importorskip("torch", reason="the model extra is not installed")
    repository = tmp_path / "hub" / "models--someone--tiny"
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    shutil.copytree(saved(tmp_path / "m", tiny_llama()), snapshot, dirs_exist_ok=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    environment = os.environ | {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    arguments = ["run", "spurious-correlation", "-m", "someone/tiny", "--w", "date", "--limit", "90"]
    for revision in ([], ["--revision", COMMIT]):
        done = cli_process(*arguments, *revision, "--out", f"run{len(revision)}", "--json", env=environment)
        assert done.returncode == 0, done.stderr
        card = json.loads((tmp_path / f"run{len(revision)}" / "manifest.json").read_text())["model_identity"]
        assert (card["source"], card["revision"], card["family"]) == ("someone/tiny", COMMIT, "causal")
    assert json.loads(done.stdout)["counts"]["computed"] == 0
    missing = cli_process(*arguments, "--revision", "nosuch", env=environment)
    assert missing.returncode == 1
    assert missing.stderr.count("\n") == 1


def test_a_network_in_memory_is_left_as_it_was(network: Callable[[str], str], tmp_path: Path) -> None:
    """Its answers, its weights and the state of chance are those of tests/runs/test_in_memory.py."""
    torch = pytest.importorskip("torch", reason="the model extra is not installed")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = network("tiny_bloom")  # which answers by `generate`
    mine, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    settings = mine.generation_config.to_dict()
    mine.train()
    mine.transformer.h[1].eval()
    modes = [module.training for module in mine.modules()]
    found = models.resolve_network(mine, tokenizer, "mine")
    assert (found.identity.name, found.identity.family) == ("mine", "causal")
    query = GenerateQuery("It is", (Option("one", ("a",)), Option("other", ("n",))), 3)
    with AnswerCache(tmp_path / "s") as cache, preserve(mine):
        assert run_queries(found, [query], cache, EXACT, lambda done, total: None).n_computed == 1
    assert [module.training for module in mine.modules()] == modes
    assert mine.generation_config.to_dict() == settings
    with torch.no_grad():
        mine.lm_head.weight[3, 3] += 1e-3
    assert models.resolve_network(mine, tokenizer).identity.revision != found.identity.revision
    with pytest.raises(UndertowError, match="no model family supports such a network"):
        models.resolve_network(torch.nn.Linear(2, 2), tokenizer)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("toy", {"retries": "many"}, "retries must be of type int"),
        ("toy", {"retry": 1}, "no model family has the option 'retry'"),
        ("toy:slope=x", {}, "slope"),
        ("toy:slope=nan", {}, "-20 and 20"),
    ],
)
def test_an_option_that_no_family_has_or_of_another_type_is_refused(
    name: str, given: dict[str, str | int], words: str
) -> None:
    with pytest.raises(UndertowError, match=words):
        models.resolve(ModelRequest(name, settings=given))
    assert models.checked_settings({"timeout_s": 9}) == {"timeout_s": 9.0}
