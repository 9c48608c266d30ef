from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from helpers.file_refusal import refusal
from helpers.tiny_models import tiny_gguf
from undertow import models
from undertow.errors import UndertowError
from undertow.models.base import ModelRequest


@pytest.mark.parametrize("name", ["nosuch", "", "blob", "nowhere"])
def test_a_file_that_is_not_there_or_is_another_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"PK\3\4 something else")
    (tmp_path / "nowhere").symlink_to(tmp_path / "nosuch")
    assert refusal(models.resolve, ModelRequest(f"gguf:{tmp_path / name}")).startswith(str(tmp_path / name))


def test_what_is_known_before_loading_takes_no_torch(tmp_path: Path) -> None:
    """Equal files have one revision, whatever they are called; others have another."""
    for name, more in (("blob", "one"), ("copy", "one"), ("other", "two")):
        (tmp_path / name).write_bytes(b"GGUF" + more.encode())
    code = f"""
import sys
from undertow import models
from undertow.models.base import ModelRequest
cards = [models.resolve(ModelRequest(f"gguf:{tmp_path}/{{name}}")).identity for name in ("blob", "copy", "other")]
print(*(card.family for card in cards), cards[0].revision == cards[1].revision, cards[1].revision == cards[2].revision)
print(cards[0].source, len(cards[0].revision), "torch" in sys.modules)
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["causal"] * 3 + ["True", "False", "blob", "64", "False"]


@pytest.mark.slow
def test_weights_are_those_that_transformers_reads_and_a_file_without_its_end_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="the model extra is not installed")
    from transformers import AutoModelForCausalLM

    path = tmp_path / "tiny.gguf"
    tiny_gguf(path)
    ours = models.resolve(ModelRequest(str(path))).open().network
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32)
    expected = theirs.state_dict()
    assert ours.state_dict().keys() == expected.keys()
    assert all(torch.equal(weight, expected[name]) for name, weight in ours.state_dict().items())
    entries = theirs.config.to_diff_dict()
    del entries["quantization_config"]
    assert ours.config.to_diff_dict() == entries
    path.write_bytes(path.read_bytes()[:-64])
    with pytest.raises(UndertowError, match="ends before the end of"):
        models.resolve(ModelRequest(str(path))).open()
