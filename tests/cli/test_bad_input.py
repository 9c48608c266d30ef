"""Bad input: each is refused with one sentence that names the file or key, and nothing that was answered is lost."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from workplace import Workplace, shared

from briefly import briefly
from conftest import Cli
from refusal import refused
from undertow.places import store_file

RUN = ["run", "spurious-correlation"]
TOY = [*RUN, "-m", "toy", "--w", "date"]
SMALL = ["--w", "date", "--limit", "90", "--json"]
slow = pytest.mark.slow
soak = pytest.mark.soak
pytestmark = pytest.mark.usefixtures("few_resamples", "untold")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "spurious-corelation", "-m", "toy"], ["'spurious-corelation'", "'spurious-correlation'"]),
        ([*RUN, "-m", "toy", "--challenge", "mcg"], ["'mcg'", "mgc, mgt, mgt-icml", "winogender"]),
        ([*RUN, "-m", "smolm2"], ["did you mean 'smollm2'", "no folder of this name"]),
        (["challenge", "undertow-statement"], ["did you mean 'undertow-statements'", "occupations", "bias-diagnosis"]),
        ([*RUN, "-m", "toy", "--w", "dates"], ["'dates'", "'date'"]),
        ([*RUN, "-m", "toy", "--w", " , "], ["--w"]),
        ([*RUN, "-m", "toy", "--words", "pronuns"], ["'pronouns'"]),
        ([*RUN, "-m", " "], ["model"]),
        ([*RUN, "-m", "toy:slop=1"], ["'slop'", "slope"]),
        ([*TOY, "--limit", "-1"], ["limit -1"]),
        ([*TOY, "--dtype", "int3"], ["'int3'", "float32"]),
        ([*TOY, "--device", "cuda:x"], ["'cuda:x'"]),
        ([*TOY, "--seed", "-1"], ["seed -1"]),
        ([*TOY, "--date-count", "2"], ["date count 2", "at least 3"]),
        ([*TOY, "--protocol", "rough"], ["'rough'", "exact"]),
        (["challenge", "mgc", "--w", "time"], ["'time'", "date, place, subreddit"]),
        (["store", "prune", "--all", "-m", "toy"], ["what to forget"]),
    ],
)
def test_unknown_name_or_value_is_refused(arguments: list[str], words: list[str], cli: Cli, tmp_path: Path) -> None:
    refused(cli(*arguments), *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [[*TOY, "--nosuch"], [*TOY, "--seed", "x"], RUN, ["run"], ["nosuch"], ["challenge"]]
)
def test_misused_command_says_how_it_is_used(arguments: list[str], cli: Cli) -> None:
    done = cli(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: ")


# A user's own files.

GOOD = """
templates = ["In {w}, {blank} was here."]
w = ["date"]
[groups]
xe = ["xe"]
ze = ["ze"]
"""


@pytest.mark.parametrize(
    ("text", "word"),
    [("templates = [", "TOML"), (GOOD.replace("{w}", "1900"), "{w}")],
)
def test_bad_challenge_file_is_refused_and_nothing_is_asked(text: str, word: str, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(text, encoding="utf-8")
    refused(cli("challenge", "own.toml"), word)
    refused(cli(*RUN, "-m", "toy", "--challenge", "own.toml"), word)
    assert [path.name for path in tmp_path.iterdir()] == ["own.toml"]
    assert not store_file().exists()


# Models: GGUF files.


def tiny_gguf(path: Path) -> None:
    """A Llama of two layers with weights drawn at random, in llama.cpp's format."""
    np = pytest.importorskip("numpy")
    gguf = pytest.importorskip("gguf", reason="the model extra is not installed")
    from tiny import tiny_tokenizer

    tiny_tokenizer(path.parent / "tokenizer")
    spelling = json.loads((path.parent / "tokenizer" / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    tokens = sorted(spelling["vocab"], key=spelling["vocab"].get)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(2)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(8)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3] + [1] * (len(tokens) - 2))
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in spelling["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (len(tokens), 32), "output": (len(tokens), 32)}
    shapes["output_norm"] = (32,)
    for layer in ("blk.0.", "blk.1."):
        shapes |= {layer + "attn_norm": (32,), layer + "ffn_norm": (32,), layer + "ffn_down": (32, 64)}
        shapes |= {layer + "attn_q": (32, 32), layer + "attn_k": (16, 32), layer + "attn_v": (16, 32)}
        shapes |= {layer + "attn_output": (32, 32), layer + "ffn_gate": (64, 32), layer + "ffn_up": (64, 32)}
    draw = np.random.default_rng(0)
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", draw.normal(scale=0.3, size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def good_gguf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("gguf")
    tiny_gguf(folder / "tiny.gguf")
    return (folder / "tiny.gguf").read_bytes()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("missing.gguf", None),
        ("text.gguf", b"this is a letter, not a model\n"),
        ("empty.gguf", b""),
        ("model.bin", b"weights"),
    ],
)
def test_file_that_is_no_gguf_is_refused(name: str, content: bytes | None, cli: Cli, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    refused(cli(*RUN, "-m", name, *SMALL), name)


def changed(content: bytes, part: bytes) -> bytes:
    """Ten thousand bytes of the weights replaced."""
    return content[:-60_000] + part + content[-50_000:]


@slow
def test_gguf_cut_in_the_header_is_refused(good_gguf: bytes, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "cut.gguf").write_bytes(good_gguf[:700])
    refused(cli(*RUN, "-m", "cut.gguf", *SMALL), "cut.gguf", "fetch it again")
    assert not (tmp_path / "runs").exists()


@soak
@slow
@pytest.mark.timeout(900)
def test_gguf_with_damaged_weights_is_refused(good_gguf: bytes, cli_process: Cli, tmp_path: Path) -> None:
    """In a process of its own, which says no progress of other packages."""
    for content in (good_gguf[:-5000], changed(good_gguf, b"\xff" * 10_000)):
        (tmp_path / "cut.gguf").write_bytes(content)
        refused(cli_process(*RUN, "-m", "cut.gguf", *SMALL), "cut.gguf", "fetch it again")
        assert not (tmp_path / "runs").exists()


@soak
@slow
@pytest.mark.timeout(900)
def test_gguf_whose_bytes_changed_is_another_model(good_gguf: bytes, cli_process: Cli, tmp_path: Path) -> None:
    """Weights that are wrong but still numbers cannot be told from others: they get none of the good file's answers."""
    cli = cli_process
    (tmp_path / "m.gguf").write_bytes(good_gguf)
    assert computed(cli(*RUN, "-m", "m.gguf", *SMALL)) == 90
    flipped = bytes(byte ^ 0xFF for byte in good_gguf[-60_000:-50_000])
    (tmp_path / "m.gguf").write_bytes(changed(good_gguf, flipped))
    done = cli(*RUN, "-m", "m.gguf", *SMALL)
    if done.returncode:
        refused(done, "m.gguf", "fetch it again")
    else:
        assert computed(done) == 90
    (tmp_path / "m.gguf").write_bytes(good_gguf)
    assert computed(cli(*RUN, "-m", "m.gguf", *SMALL, "--out", "again")) == 0


# Models: folders and hub ids.

LLAMA = '{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}'


@pytest.mark.parametrize(
    ("files", "word"),
    [
        (None, "./model"),
        ({}, "config.json"),
        ({"config.json": '{"architectures": []}'}, "architectures"),
        ({"config.json": "[" * 99_999}, "architectures"),
        ({"config.json": '{"architectures": ["ViTForImageClassification"]}'}, "undertow ls models"),
        ({"config.json": LLAMA, "pytorch_model.bin": "x"}, ".safetensors"),
    ],
)
def test_folder_that_holds_no_model_is_refused(
    files: dict[str, str] | None, word: str, cli: Cli, tmp_path: Path
) -> None:
    if files is not None:
        (tmp_path / "model").mkdir()
        for name, text in files.items():
            (tmp_path / "model" / name).write_text(text, encoding="utf-8")
    refused(cli(*RUN, "-m", "./model", *SMALL), "model", word)


@slow
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", None),
        ("tokenizer.json", b"{"),
        ("config.json", LLAMA.replace('"llama"', '"nosuch"').encode()),
    ],
)
def test_damaged_model_folder_is_refused(
    name: str, content: bytes | None, network: Callable[[str], str], cli: Cli, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(network("tiny_llama"), folder)
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[: len(whole) // 2] if content is None else content)
    refused(cli(*RUN, "-m", "model", *SMALL), "model: cannot be loaded")


@slow
def test_no_network_is_one_sentence(cli_process: Cli, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub", reason="the model extra is not installed")
    environment = os.environ | {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_CACHE": str(tmp_path / "hub")}
    done = cli_process(*RUN, "-m", "someone/no-such-model", *SMALL, env=environment)
    refused(done, "someone/no-such-model", "network")


class Hub(SimpleHTTPRequestHandler):
    """A hub with one model, `someone/tiny`, in a folder; `cut` names a file that it sends half of."""

    protocol_version = "HTTP/1.1"
    commit = "0123456789abcdef0123456789abcdef01234567"
    cut = ""

    def find(self) -> Path | None:
        match = re.fullmatch(r"/someone/tiny/resolve/[^/]+/([\w.]+)", self.path)
        file = Path(self.directory) / match.group(1) if match else None
        return file if file and file.is_file() else None

    def answer(self) -> bytes:
        file = self.find()
        content = file.read_bytes() if file else b"{}"
        self.send_response(200 if file else 404)
        code = "" if self.path.startswith(("/someone/tiny/", "/api/models/someone/tiny")) else "RepoNotFound"
        headers = {"X-Repo-Commit": self.commit, "ETag": f'"{len(content)}"', "Content-Length": str(len(content))}
        if not file:
            headers["X-Error-Code"] = code or "EntryNotFound"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        return content

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        content = self.answer()
        is_cut = bool(self.cut) and self.path.endswith(self.cut)
        self.wfile.write(content[: len(content) // 2] if is_cut else content)
        self.close_connection = is_cut

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def hub(network: Callable[[str], str], tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment in which this hub is the hub."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Hub, directory=network("tiny_llama")))
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.02))
    thread.start()
    yield os.environ | {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}",
        "HF_HUB_CACHE": str(tmp_path / "hub"),
        "HF_HUB_DISABLE_XET": "1",
        "NO_PROXY": "127.0.0.1",
    }
    server.shutdown()
    thread.join()
    server.server_close()


@soak
@slow
@pytest.mark.timeout(1800)
def test_an_interrupted_download_from_the_hub_is_one_sentence_and_goes_on(
    hub: dict[str, str], cli_process: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = cli_process
    refused(cli(*RUN, "-m", "someone/else", *SMALL, env=hub), "no model called 'someone/else' on the hub")
    monkeypatch.setattr(Hub, "cut", "model.safetensors")
    refused(cli(*RUN, "-m", "someone/tiny", *SMALL, env=hub), "someone/tiny", "again")
    monkeypatch.setattr(Hub, "cut", "")
    done = cli(*RUN, "-m", "someone/tiny", *SMALL, env=hub)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["counts"]["computed"] == 90
    offline = hub | {"HF_ENDPOINT": "http://127.0.0.1:9"}
    done = cli(*RUN, "-m", "someone/tiny", "--w", "place", "--limit", "20", "--json", env=offline)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["counts"]["computed"] == 20


# The answer store.


@pytest.fixture
def filled(shared_base: Path, cache: Path, tmp_path: Path) -> None:
    """A finished run of the toy, `filled`, and its answers, in this test's own folders."""

    def make(work: Workplace) -> None:
        assert work.json(*TOY, "--limit", "90", "--out", "filled")["counts"]["computed"] == 90

    folder = shared(shared_base, "filled", make).folder
    shutil.copytree(folder / "filled", tmp_path / "filled")
    shutil.copy(folder / "cache" / store_file().name, cache)


def text_instead(path: Path) -> None:
    path.write_text("this is no database, and long enough to be looked at as one " * 20, encoding="utf-8")


def pages_overwritten(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\x5a" * (len(content) - 4096))


def cells_overwritten(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("UPDATE models SET notes = 'x', card = 'y'")
        database.execute("UPDATE answers SET numbers = x'0011223344556677'")
    database.close()


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    "damage", briefly([cells_overwritten, text_instead, pages_overwritten, partial(os.truncate, length=9000)])
)
def test_damaged_store_is_named_and_moved_aside_by_what_asks(
    damage: Callable[[Path], None], cli: Cli, tmp_path: Path
) -> None:
    damage(store_file())
    damaged = store_file().read_bytes()
    refused(cli("store", "info"), str(store_file()), "damaged")
    assert store_file().read_bytes() == damaged
    done = cli(*TOY, "--limit", "90", "--out", "again", "--json")
    assert done.returncode == 0
    assert done.stderr.startswith(f"undertow: {store_file()}: ")
    assert "answers.sqlite.damaged" in done.stderr
    assert store_file().with_name("answers.sqlite.damaged").read_bytes() == damaged
    assert json.loads(done.stdout)["counts"]["computed"] == 90
    assert (tmp_path / "again/results.json").read_bytes() == (tmp_path / "filled/results.json").read_bytes()


def test_cache_that_is_a_file_is_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    done = cli(*TOY, "--limit", "90", env={"UNDERTOW_CACHE": str(tmp_path / "file")})
    refused(done, str(tmp_path / "file"), "UNDERTOW_CACHE")


def computed(done: subprocess.CompletedProcess[str]) -> int:
    assert (done.returncode, done.stderr) == (0, "")
    return int(json.loads(done.stdout)["counts"]["computed"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_output_onto_a_full_disk_is_one_sentence(cli_process: Cli) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = cli_process("challenge", "mgc", "--csv", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    done.stdout = ""
    refused(done, "the output", "No space left on device")
