"""GGUF files by their path, whatever they are called: `gguf:FILE`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import SMOLLM2
from undertow import models
from undertow.models import gguf
from undertow.models.base import Found, Request
from undertow.scoring.ask import ask
from undertow.scoring.store import AnswerStore
from undertow.types import Continuations, UndertowError

CHILD = Continuations("In 1801,", (" he was a child.", " she was a child.", " they was a child."))
GOLDEN_NATS = (-21.9001, -18.8021, -26.6075)
"""As in tests/models/test_causal.py, where the default model is read by its name."""


def refusal(name: str, revision: str = "") -> str:
    """The one sentence by which this is refused."""
    with pytest.raises(UndertowError) as error:
        models.find(Request(name, revision=revision))
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("name", ["gguf", "toy", "model.gguf", "someone/gguf:x"])
def test_only_a_name_after_the_prefix_is_looked_at(name: str) -> None:
    assert gguf.find(Request(name)) is None


@pytest.mark.parametrize("name", ["gguf:", "gguf:  "])
def test_no_file_is_named(name: str) -> None:
    assert "write gguf:PATH" in refusal(name)


@pytest.mark.parametrize("name", ["nosuch", "", "blob", "empty", "nowhere", "NOSUCH.GGUF"])
def test_a_file_that_is_not_there_or_is_another_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"PK\3\4 something else")
    (tmp_path / "empty").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "nosuch")
    assert refusal(f"gguf:{tmp_path / name}").startswith(str(tmp_path / name))


def test_a_file_has_no_revisions_and_its_folder_a_user(tmp_path: Path) -> None:
    assert "--revision" in refusal(f"gguf:{tmp_path / 'blob'}", revision="main")
    assert "~nosuch-user" in refusal("gguf:~nosuch-user/blob")


def test_a_file_in_the_home_folder_and_one_in_capitals_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No shell writes out a ~ in the middle of a word."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "blob").write_bytes(b"GGUF and more")
    (tmp_path / "MODEL.GGUF").write_bytes(b"GGUF and more")
    for name in ("gguf:~/blob", str(tmp_path / "MODEL.GGUF")):
        assert models.find(Request(name)).card.family == "causal"


def test_what_is_known_before_loading_takes_no_torch(tmp_path: Path) -> None:
    """Equal files have one revision, whatever they are called; others have another."""
    for name, more in (("blob", "one"), ("copy", "one"), ("other", "two")):
        (tmp_path / name).write_bytes(b"GGUF" + more.encode())
    code = f"""
import sys
from undertow import models
from undertow.models.base import Request
cards = [models.find(Request(f"gguf:{tmp_path}/{{name}}")).card for name in ("blob", "copy", "other")]
print(*(card.family for card in cards), cards[0].revision == cards[1].revision, cards[1].revision == cards[2].revision)
print(cards[0].source, len(cards[0].revision), "torch" in sys.modules)
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["causal"] * 3 + ["True", "False", "blob", "64", "False"]


@pytest.mark.slow
def test_a_file_that_was_cut_short_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the model extra is not installed")
    (tmp_path / "blob").write_bytes(b"GGUF\3\0\0\0")
    found = models.find(Request(f"gguf:{tmp_path / 'blob'}"))
    with pytest.raises(UndertowError, match="cannot be loaded") as error:
        found.open()
    assert "\n" not in str(error.value)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.model
def test_the_default_model_under_another_name_gives_the_same_numbers(smollm2_found: Found, tmp_path: Path) -> None:
    (tmp_path / "blob").symlink_to(SMOLLM2)
    found = models.find(Request(f"gguf:{tmp_path / 'blob'}"))
    assert (found.card.family, found.card.revision) == ("causal", smollm2_found.card.revision)
    with AnswerStore(tmp_path / "store") as store:
        (answer,) = ask(found, [CHILD], store, "exact", lambda done, total: None).scores.answers
    assert answer.logprobs_nats == pytest.approx(GOLDEN_NATS, abs=2e-3)
