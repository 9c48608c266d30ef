"""What comes from elsewhere is read and never run: no pickle, no code of a model's, no template that reaches out, no path that climbs.

Attacks leave a file behind if they succeed; that file is looked for. The source is looked through as well, and by bandit.
"""

from __future__ import annotations

import ast
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2
import pytest

import undertow
from conftest import SMOLLM2, Cli
from undertow import models
from undertow.models.base import Found, Request
from undertow.models.pull import pull
from undertow.types import UndertowError

ROOT = Path(__file__).parents[2]
SOURCE = sorted((ROOT / "src").rglob("*.py"))

# The source.

UNPICKLERS = {"pickle", "_pickle", "cPickle", "dill", "joblib", "cloudpickle", "marshal", "shelve", "jsonpickle"}
RUNNERS = {"eval", "exec", "compile", "__import__"}
CALLS = {
    "torch.load", "torch.save", "torch.hub.load", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "os.system", "os.popen",
    "pd.read_pickle", "pandas.read_pickle", "np.fromregex", "subprocess.getoutput", "subprocess.getstatusoutput",
}  # fmt: skip
METHODS = {"read_pickle", "to_pickle", "extractall"}
KEYWORDS: Mapping[str, tuple[object, ...]] = {
    "shell": (False,),
    "allow_pickle": (False,),
    "trust_remote_code": (False,),
    "weights_only": (True,),
    "use_safetensors": (True,),
    "verify": (True,),
    "autoescape": (True,),
}
"""What may stand behind a keyword, if it is there at all."""


def dangers(code: str) -> Iterator[str]:
    """What a module does that runs what it reads."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in UNPICKLERS)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in UNPICKLERS:
            yield str(node.module)
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            yield from (
                f"{key.value!r}: ..." for key, value in pairs if isinstance(key, ast.Constant) and odd(key.value, value)
            )
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func) if isinstance(node.func, ast.Name | ast.Attribute) else ""
            if (
                name in CALLS
                or (isinstance(node.func, ast.Name) and name in RUNNERS)
                or name.rpartition(".")[2] in METHODS
            ):
                yield name
            yield from (f"{one.arg}=..." for one in node.keywords if odd(one.arg, one.value))


def odd(keyword: object, value: ast.expr) -> bool:
    return keyword in KEYWORDS and not (isinstance(value, ast.Constant) and value.value in KEYWORDS[str(keyword)])


def test_no_module_runs_what_it_reads() -> None:
    assert len(SOURCE) > 200
    found = {str(path.relative_to(ROOT)): list(dangers(path.read_text(encoding="utf-8"))) for path in SOURCE}
    assert {path: what for path, what in found.items() if what} == {}


@pytest.mark.parametrize(
    "code",
    [
        "import pickle", "from joblib.memory import x", "torch.load(path)", "eval(text)", "numpy.load(path, allow_pickle=chosen)",
        "frame.to_pickle(path)", "subprocess.run(line, shell=True)", "options = {'trust_remote_code': True}",
    ],
)  # fmt: skip
def test_what_a_module_must_not_do_is_found(code: str) -> None:
    assert len(list(dangers(code))) == 1


def test_weights_are_loaded_where_safetensors_alone_are_taken() -> None:
    """Every network that is loaded from what a user names; a tokenizer or a configuration has no weights."""
    loads = []
    for path in (ROOT / "src/undertow/models").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and re.search(
                r"(Model|Auto)\w*\)?\.from_pretrained$", ast.unparse(node.func)
            ):
                named = {one.arg for one in node.keywords}
                if not re.search(r"Tokenizer|Config", ast.unparse(node.func)):
                    loads.append((path.name, "use_safetensors" in named))
    assert len(loads) >= 6
    assert [name for name, is_safe in loads if not is_safe] == []


EXPLAINED: Mapping[tuple[str, str], str] = {
    ("gates/junit.py", "B405"): "XML is written, and none is read",
    ("models/_openai_http.py", "B311"): "spreads requests over time, and hides nothing",
    ("models/pull.py", "B404"): "pip is run as a list of arguments, none of which comes from elsewhere",
    ("models/pull.py", "B603"): "pip is run as a list of arguments, none of which comes from elsewhere",
    ("scoring/distributed.py", "B404"): "this interpreter is run as a list of arguments",
    ("scoring/distributed.py", "B603"): "this interpreter is run as a list of arguments",
    ("probes/_documents_told.py", "B105"): "words of a page that say what tokens are",
    ("report/page.py", "B704"): "a script of the package's own, and no text of a run",
    ("scoring/store.py", "B608"): "question marks are counted out, and values are bound to them",
    ("web/annotation.py", "B105"): "the name of a header",
    ("web/door.py", "B105"): "the name under which an address carries the token",
    ("web/app.py", "B104"): "an address that an operator may ask for by name, and is warned of",
}
REVISIONS = "B615"
"""Wants a literal commit beside every name of a model: ours are what the user names, and the commit is found and recorded."""


@pytest.mark.soak
def test_bandit_finds_nothing_that_is_not_explained() -> None:
    pytest.importorskip("bandit", reason="bandit is not installed")
    command = [sys.executable, "-m", "bandit", "-q", "-r", "src", "-f", "json", "-s", REVISIONS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    assert report["errors"] == []
    assert report["metrics"]["_totals"]["loc"] > 30_000
    found = {
        (one["filename"].removeprefix("src/undertow/"), one["test_id"]): one["issue_text"] for one in report["results"]
    }
    assert {what: said for what, said in found.items() if what not in EXPLAINED} == {}
    assert {what for what in EXPLAINED if what not in found} == set()


# Models that would do more than answer.


class Attack:
    """Leaves a folder behind when it is unpickled."""

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
    """A good model of the test's own."""
    return Path(shutil.copytree(network("tiny_llama"), tmp_path / "model"))


def opened(folder: Path) -> Any:
    return models.find(Request(str(folder))).open()


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8")


PICKLES = (
    "pytorch_model.bin", "pytorch_model-00001-of-00001.bin", "training_args.bin", "optimizer.pt", "scheduler.pt", "model.pth",
    "rng_state.pth", "tokenizer.pkl", "vocab.pkl", "model.ckpt", "adapter_model.bin",
)  # fmt: skip


def test_the_attack_is_one(tmp_path: Path) -> None:
    """What the others rest on."""
    pickle.loads(pickle.dumps(Attack(tmp_path / "left")))
    assert (tmp_path / "left").is_dir()


@pytest.mark.parametrize("attack", ["builtins", "subclasses"])
def test_a_template_that_nothing_holds_back_reaches_out(attack: str, tmp_path: Path) -> None:
    """And these."""
    template = TEMPLATES[attack].format(left=str(tmp_path / "left"))
    jinja2.Environment().from_string(template).render()
    assert (tmp_path / "left").is_dir()


def test_a_folder_with_pickled_weights_alone_is_refused(folder: Path, left: Path) -> None:
    (folder / "model.safetensors").unlink()
    for name in PICKLES:
        (folder / name).write_bytes(pickle.dumps(Attack(left)))
    with pytest.raises(UndertowError, match="safetensors"):
        opened(folder)


def test_pickles_beside_the_weights_are_not_read(folder: Path, left: Path) -> None:
    for name in PICKLES:
        (folder / name).write_bytes(pickle.dumps(Attack(left)))
    assert opened(folder).card.family == "causal"


@pytest.mark.parametrize("weights", ["pytorch_model.bin", "../pytorch_model.bin"])
def test_a_list_of_weights_that_names_a_pickle_is_refused(weights: str, folder: Path, left: Path) -> None:
    """The name of the list, and another file, say that there are safetensors."""
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    (folder / weights).write_bytes(pickle.dumps(Attack(left)))
    index = {"metadata": {"total_size": 1}, "weight_map": {"model.embed_tokens.weight": weights}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(UndertowError, match="model"):
        opened(folder)


def test_a_pickle_that_is_called_safetensors_is_refused(folder: Path, left: Path) -> None:
    (folder / "model.safetensors").write_bytes(pickle.dumps(Attack(left)))
    with pytest.raises(UndertowError, match="model"):
        opened(folder)


def test_code_of_a_model_is_not_run(folder: Path, left: Path) -> None:
    """Named for the configuration, the network and the tokenizer: transformers' own code reads the model all the same."""
    code = f"import os\nos.mkdir({str(left)!r})\nclass Own: pass\n"
    for name in ("configuration_own", "modeling_own", "tokenization_own", "__init__"):
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
    own = {
        "AutoConfig": "configuration_own.Own",
        "AutoModelForCausalLM": "modeling_own.Own",
        "AutoModel": "modeling_own.Own",
    }
    change(folder / "config.json", auto_map=own)
    change(
        folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["tokenization_own.Own", "tokenization_own.Own"]}
    )
    assert opened(folder).card.family == "causal"


def test_a_kind_of_model_that_only_its_own_code_knows_is_refused(folder: Path, left: Path) -> None:
    (folder / "modeling_own.py").write_text(f"import os\nos.mkdir({str(left)!r})\n", encoding="utf-8")
    auto = {"AutoConfig": "modeling_own.Own", "AutoModelForCausalLM": "modeling_own.Own"}
    change(folder / "config.json", model_type="own", architectures=["OwnForCausalLM"], auto_map=auto)
    with pytest.raises(UndertowError, match="model"):
        opened(folder)


TEMPLATES = {
    "builtins": "{{{{ cycler.__init__.__globals__.os.mkdir({left!r}) }}}}",
    "subclasses": "{{% for one in ''.__class__.__mro__[1].__subclasses__() %}}{{% if one.__name__ == '_wrap_close' %}}"
    "{{{{ one.__init__.__globals__['mkdir']({left!r}) }}}}{{% endif %}}{{% endfor %}}",
    "a function's globals": "{{{{ raise_exception.__globals__['__builtins__']['__import__']('os').mkdir({left!r}) }}}}",
    "the clock's globals": "{{{{ strftime_now.__globals__['__builtins__']['__import__']('os').mkdir({left!r}) }}}}",
    "format": "{{{{ '{{0.__class__.__mro__[1].__subclasses__}}'.format('') }}}}{{{{ messages.__class__.__base__.__subclasses__() }}}}",
    "an attribute by its name": "{{{{ (''|attr('__class__')|attr('__mro__'))[1]|attr('__subclasses__')() }}}}",
    "a file": "{{% include '/etc/passwd' %}}{{{{ left }}}}",
}


@pytest.mark.parametrize("attack", TEMPLATES)
def test_a_chat_template_cannot_reach_out(attack: str, folder: Path, left: Path, tmp_path: Path) -> None:
    """Each prompt comes to an unscored answer that says why, and the run goes on."""
    (folder / "chat_template.jinja").write_text(TEMPLATES[attack].format(left=str(left)), encoding="utf-8")
    query = undertow.types.Generation(
        "Say she or he:", (undertow.types.Option("f", ("she",)),), max_tokens=1, chat=True
    )
    outcome = first_of(opened(folder), query)
    assert isinstance(outcome, models.base.UnscorableError)
    assert "chat template" in str(outcome)


@pytest.mark.soak
@pytest.mark.model
@pytest.mark.slow
def test_the_chat_template_of_a_gguf_file_cannot_reach_out(smollm2_found: Found, left: Path, tmp_path: Path) -> None:
    """The default model's file with another template of the same length, which is a part of its head.

    ... tokenizer.chat_template  8 (a text)  its length  {% for message in messages %} ...
    """
    content = bytearray(SMOLLM2.read_bytes())
    name = b"tokenizer.chat_template"
    at = content.index(name) + len(name) + 12
    n_bytes = int.from_bytes(content[at - 8 : at], "little")
    attack = TEMPLATES["builtins"].format(left=str(left)).encode()
    assert content[at : at + 2] == b"{%"
    content[at : at + n_bytes] = attack.ljust(n_bytes)
    assert len(attack) < n_bytes
    (tmp_path / "model.gguf").write_bytes(content)
    query = undertow.types.Generation(
        "Say she or he:", (undertow.types.Option("f", ("she",)),), max_tokens=1, chat=True
    )
    outcome = first_of(opened(tmp_path / "model.gguf"), query)
    assert isinstance(outcome, models.base.UnscorableError)
    assert "chat template" in str(outcome)


def first_of(model: Any, query: Any) -> Any:
    for some in model.answer([query], "exact"):
        return some[0]
    return None


# Names that would be paths.

NAMES = ("../../escaped", "{above}/escaped", "~/escaped", "escaped\x00")


def outside(tmp_path: Path) -> set[Path]:
    """Files that lie about beside where a command may write."""
    return {path for path in tmp_path.parent.rglob("*escaped*") if "inside" not in path.parts}


@pytest.mark.parametrize("kind", ["model", "challenge", "probe", "spectrum", "pull", "graph"])
@pytest.mark.parametrize("name", NAMES)
def test_no_name_is_a_way_out(kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    name = name.replace("{above}", str(tmp_path))
    given: dict[str, Any] = {"probe": "spurious-correlation", "model": "toy", "limit": 4}
    given |= {"w" if kind == "spectrum" else kind: name}
    with pytest.raises(UndertowError) as caught:
        pull(name) if kind == "pull" else undertow.run(given.pop("probe"), **given)
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


@pytest.mark.parametrize("kind", ["-m", "--challenge", "--graph", "--out"])
def test_a_terminal_is_told_nothing_that_it_would_obey(kind: str, tmp_path: Path, cli: Cli) -> None:
    """Escape sequences and line ends in a name are written out: no colour, no title, no line that we did not say."""
    name = "\x1b]0;owned\x07\x1b[2J\r\nundertow: forged \x9b31m\u202e"
    arguments = {"-m": "toy", "--limit": "4", kind: name}
    done = cli("run", "spurious-correlation", *(word for pair in arguments.items() for word in pair))
    said = done.stdout + done.stderr
    assert not [sign for sign in said if not sign.isprintable() and sign != "\n"]
    assert not [line for line in said.splitlines() if line.startswith("undertow: forged")]
    assert "owned" in said or kind == "--out"


# What is installed.

CONSTRAINTS = [
    line.partition("#")[0].strip()
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


def test_what_is_installed_is_pinned_to_one_version_from_an_index() -> None:
    """No range, address, path or option: what was audited is what is installed."""
    assert len(CONSTRAINTS) > 100
    assert [line for line in CONSTRAINTS if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.]*", line)] == []
