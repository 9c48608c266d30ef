from __future__ import annotations

import itertools
import json
import os
import pickle
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jinja2
import pytest

import undertow
from conftest import SMOLLM2, Cli
from helpers.answering import change_json
from helpers.file_refusal import assert_refused
from undertow import models
from undertow.errors import UndertowError
from undertow.models.base import ModelHandle, ModelRequest
from undertow.models.loading.download import pull

ROOT = Path(__file__).parents[2]
SOURCE = sorted((ROOT / "src").rglob("*.py"))

DANGER = re.compile(
    r"(?<![.\w])(eval|exec|compile|__import__)\(|\b(import|from) (_?c?[pP]ickle|dill|joblib|cloudpickle|marshal|shelve|jsonpickle)\b|"
    r"\btorch\.(hub\.)?(load|save)\(|\byaml\.(unsafe_|full_)?load\(|\bos\.(system|popen)\(|"
    r"\b(read_pickle|to_pickle|fromregex|extractall|getoutput|getstatusoutput)\(|"
    r"\b(shell|allow_pickle|trust_remote_code)[\"']?(=|: )(?!False)|"
    r"\b(weights_only|use_safetensors|verify|autoescape)[\"']?(=|: )(?!True)"
)
"""Calls that run what they read, and keywords and keys with what must not stand behind them."""


def test_no_module_runs_what_it_reads() -> None:
    assert len(SOURCE) > 200
    found = {str(path.relative_to(ROOT)): DANGER.findall(path.read_text(encoding="utf-8")) for path in SOURCE}
    assert {path: what for path, what in found.items() if what} == {}


class Attack:
    def __init__(self, left: Path) -> None:
        self.left = left

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.left),)


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Path]:
    """What an attack leaves behind; at the end of a test it must not be there."""
    folder = tmp_path / "left-behind"
    yield folder
    assert not folder.exists()


@pytest.fixture
def folder(network: Callable[[str], str], tmp_path: Path) -> Path:
    return Path(shutil.copytree(network("tiny_llama"), tmp_path / "model"))


def opened(folder: Path) -> Any:
    return models.resolve(ModelRequest(str(folder))).open()


PICKLES = ("pytorch_model.bin", "training_args.bin", "model.pth", "tokenizer.pkl", "model.ckpt", "adapter_model.bin")


@pytest.mark.parametrize("attack", ["builtins", "subclasses"])
def test_a_template_that_nothing_holds_back_reaches_out(attack: str, tmp_path: Path) -> None:
    """What the others rest on."""
    template = TEMPLATES[attack].format(left=str(tmp_path / "left"))
    jinja2.Environment().from_string(template).render()
    assert (tmp_path / "left").is_dir()


def test_pickles_beside_the_weights_are_not_read_and_alone_are_refused(folder: Path, left: Path) -> None:
    for name in PICKLES:
        (folder / name).write_bytes(pickle.dumps(Attack(left)))
    assert opened(folder).identity.family == "causal"
    (folder / "model.safetensors").unlink()
    assert_refused(("safetensors",), opened, folder)
    (folder / "model.safetensors").write_bytes(pickle.dumps(Attack(left)))
    assert_refused(("model",), opened, folder)


@pytest.mark.parametrize("weights", ["pytorch_model.bin", "../pytorch_model.bin"])
def test_a_list_of_weights_that_names_a_pickle_is_refused(weights: str, folder: Path, left: Path) -> None:
    """The name of the list, and another file, say that there are safetensors."""
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    (folder / weights).write_bytes(pickle.dumps(Attack(left)))
    index = {"metadata": {"total_size": 1}, "weight_map": {"model.embed_tokens.weight": weights}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    assert_refused(("model",), opened, folder)


def test_code_of_a_model_is_not_run(folder: Path, left: Path) -> None:
    """Transformers' own code reads the model all the same; a kind that only its own code knows is refused."""
    for name in ("own", "__init__"):
        (folder / f"{name}.py").write_text(f"import os\nos.mkdir({str(left)!r})\nclass Own: pass\n", encoding="utf-8")
    own = dict.fromkeys(("AutoConfig", "AutoModelForCausalLM", "AutoModel"), "own.Own")
    change_json(folder / "config.json", auto_map=own)
    change_json(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["own.Own", "own.Own"]})
    assert opened(folder).identity.family == "causal"
    change_json(folder / "config.json", model_type="own", architectures=["OwnForCausalLM"])
    assert_refused(("model",), opened, folder)


TEMPLATES = {
    "builtins": "{{{{ cycler.__init__.__globals__.os.mkdir({left!r}) }}}}",
    "subclasses": "{{% for one in ''.__class__.__mro__[1].__subclasses__() %}}{{% if one.__name__ == '_wrap_close' %}}"
    "{{{{ one.__init__.__globals__['mkdir']({left!r}) }}}}{{% endif %}}{{% endfor %}}",
    "a function's globals": "{{{{ raise_exception.__globals__['__builtins__']['__import__']('os').mkdir({left!r}) }}}}",
    "format": "{{{{ '{{0.__class__.__mro__[1].__subclasses__}}'.format('') }}}}{{{{ messages.__class__.__base__.__subclasses__() }}}}",
    "a file": "{{% include '/etc/passwd' %}}{{{{ left }}}}",
}


def assert_chat_is_refused(model: Any) -> None:
    """The prompt comes to a missing answer that says why, and the run goes on."""
    query = undertow.types.GenerateQuery("Say she:", (undertow.types.Option("f", ("she",)),), max_tokens=1, chat=True)
    outcome = next(iter(model.answer([query], "exact")))[0]
    assert isinstance(outcome, models.base.UnsupportedQueryError)
    assert "chat template" in str(outcome)


@pytest.mark.parametrize("attack", TEMPLATES)
def test_a_chat_template_cannot_reach_out(attack: str, folder: Path, left: Path) -> None:
    (folder / "chat_template.jinja").write_text(TEMPLATES[attack].format(left=str(left)), encoding="utf-8")
    assert_chat_is_refused(opened(folder))


@pytest.mark.soak
@pytest.mark.model
@pytest.mark.slow
def test_the_chat_template_of_a_gguf_file_cannot_reach_out(
    smollm2_found: ModelHandle, left: Path, tmp_path: Path
) -> None:
    """The default model's file with another template of the same length, which is a part of its head."""
    # tokenizer.chat_template  8 (a text)  its length  {% for message in messages %} ...
    content = bytearray(SMOLLM2.read_bytes())
    name = b"tokenizer.chat_template"
    at = content.index(name) + len(name) + 12
    n_bytes = int.from_bytes(content[at - 8 : at], "little")
    attack = TEMPLATES["builtins"].format(left=str(left)).encode()
    assert content[at : at + 2] == b"{%"
    content[at : at + n_bytes] = attack.ljust(n_bytes)
    assert len(attack) < n_bytes
    (tmp_path / "model.gguf").write_bytes(content)
    assert_chat_is_refused(opened(tmp_path / "model.gguf"))


NAMES = ("../../escaped", "{above}/escaped", "~/escaped", "escaped\x00")


def outside(tmp_path: Path) -> set[Path]:
    """Files that lie about beside where a command may write."""
    above = (one.glob("*escaped*") for one in (tmp_path.parent, tmp_path.parent.parent))
    beside = itertools.chain(tmp_path.rglob("*escaped*"), *above)
    return {path for path in beside if "inside" not in path.parts}


@pytest.mark.parametrize("kind", ["model", "challenge", "audit", "spectrum", "pull", "graph"])
@pytest.mark.parametrize("name", NAMES)
def test_no_name_is_a_way_out(kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    name = name.replace("{above}", str(tmp_path))
    given: dict[str, Any] = {"audit": "spurious-correlation", "model": "toy", "limit": 4}
    given |= {"w" if kind == "spectrum" else kind: name}
    with pytest.raises(UndertowError) as caught:
        pull(name) if kind == "pull" else undertow.audit(given.pop("audit"), **given)
    assert str(caught.value).isprintable()
    assert list(inside.iterdir()) == []
    assert outside(tmp_path) == set()


HOSTILE = "x/../../escaped\x1b[31m<script>\"';$(touch escaped)`touch escaped`"


def test_words_of_a_challenge_name_no_file_and_run_no_command(tmp_path: Path, cli: Cli) -> None:
    """Of a file whose every text, and whose own name, would be a path or a command."""
    inside = tmp_path / "inside"
    inside.mkdir()
    text = json.dumps(HOSTILE.replace("\x1b", ""))
    own = inside / "..;$(touch escaped)`touch escaped`.toml"
    own.write_text(
        f'title = {text}\nsource = {text}\ntemplates = ["In {{w}}, {{blank}} {{verb}} late."]\nw = ["date"]\nwords = "pronouns"\n'
        f'[slots]\nverb = [{text}, "was"]\n',
        encoding="utf-8",
    )
    done = cli(
        "run", "spurious-correlation", "-m", "toy", "--challenge", own.name, "--w", "date", "--limit", "66", cwd=inside
    )
    assert done.returncode == 0, done.stderr
    assert outside(tmp_path) == set()
    (run,) = (inside / "runs").iterdir()
    for path in run.rglob("*"):
        assert re.fullmatch(r"[\w.-]+", path.name), path
    assert "\x1b" not in done.stdout + done.stderr
