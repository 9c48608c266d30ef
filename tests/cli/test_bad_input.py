"""Bad input, one sentence each: what is wrong, where, how to mend it; and nothing that was answered is lost."""

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
from test_commands import Workplace

from conftest import SMOLLM2, Cli
from refusal import refused
from undertow.places import store_file
from undertow.scoring.store import AnswerStore

RUN = ["run", "spurious-correlation"]
TOY = [*RUN, "-m", "toy", "--w", "date"]
SMALL = ["--w", "date", "--limit", "90", "--json"]
slow = pytest.mark.slow


# What is asked for is not known.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "spurious-corelation", "-m", "toy"], ["'spurious-corelation'", "did you mean 'spurious-correlation'"]),
        ([*RUN, "-m", "toy", "--challenge", "mcg"], ["no challenge called 'mcg'", "use mgc, mgt, mgt-icml"]),
        pytest.param([*RUN, "-m", "toy", "--w", "dates"], ["no W called 'dates'", "did you mean 'date'"], marks=slow),
        ([*TOY, "--limit", "-1"], ["limit -1 is negative", "leave it out"]),
        pytest.param([*TOY, "--dtype", "int3"], ["dtype 'int3' is not known", "use float32"], marks=slow),
        ([*TOY, "--device", "nosuch"], ["device 'nosuch' is not known", "cpu", "cuda:1"]),
        pytest.param([*RUN, "-m", "toy", "--words", "pronuns"], ["did you mean 'pronouns'"], marks=slow),
        pytest.param([*TOY, "--seed", "-1"], ["seed -1 is negative", "use 0 or more"], marks=slow),
        pytest.param([*TOY, "--device", "cuda:x"], ["device 'cuda:x' is not known"], marks=slow),
        pytest.param([*RUN, "-m", "toy", "--w", " , "], ["--w names no W list", "--w date,place"], marks=slow),
        pytest.param([*RUN, "-m", "toy", "--w", "date,date"], ["names one list twice"], marks=slow),
        pytest.param([*TOY, "--date-count", "2"], ["date count 2 is too small", "at least 3"], marks=slow),
        pytest.param([*TOY, "--date-start", "2010"], ["30 dates do not fit between 2010 and 2016"], marks=slow),
        pytest.param([*TOY, "--protocol", "rough"], ["protocol 'rough'", "use exact"], marks=slow),
        pytest.param([*RUN, "-m", " "], ["the model has no name", "-m smollm2"], marks=slow),
        pytest.param([*RUN, "-m", "toy:slop=1"], ["no setting 'slop'", "toy:slope=5"], marks=slow),
        pytest.param([*TOY, "--w", "x" * 300], ["x" * 300, "File name too long"], marks=slow),
        (["challenge", "mgc", "--w", "time"], ["no W called 'time'", "use date, place, subreddit"]),
        (["store", "prune"], ["say what to forget", "--all"]),
        (["store", "prune", "--all", "-m", "toy"], ["say what to forget"]),
        (["store", "prune", "-m", "toy"], ["no answers of 'toy' are stored", "none at all"]),
    ],
)
def test_what_is_not_known_is_named(arguments: list[str], words: list[str], cli: Cli, tmp_path: Path) -> None:
    refused(cli(*arguments), *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        [*TOY, "--nosuch"],
        pytest.param([*TOY, "--seed", "x"], marks=slow),
        pytest.param(RUN, marks=slow),
        ["run"],
        ["nosuch"],
        ["challenge"],
    ],
)
def test_a_misused_command_says_how_it_is_used(arguments: list[str], cli: Cli) -> None:
    done = cli(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: ")
    assert "Traceback" not in done.stderr


# A user's own files.

GOOD = """
templates = ["In {w}, {blank} was here."]
w = ["date"]
[groups]
xe = ["xe"]
ze = ["ze"]
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["own.toml", "needs templates"]),
        ("templates = [", ["own.toml", "not valid TOML"]),
        (GOOD.replace("In {w}, {blank} was here.", ""), ["own.toml", "template 1"]),
        (GOOD.replace("{blank} ", ""), ["has no blank", "write {blank}"]),
        (GOOD.replace("{w}", "1900"), ["has no place for W", "write {w}"]),
        (GOOD.replace("{blank}", "{blank"), ["for literal braces"]),
        (GOOD.replace("{blank}", "{blank} {who}"), ["{who} that nothing fills"]),
        (GOOD.replace('ze = ["ze"]', ""), ["at least two groups"]),
        (GOOD.replace('["ze"]', "[]"), ["group 'ze'"]),
        (GOOD.replace('["ze"]', '"ze"'), ["group 'ze'"]),
        (GOOD.replace('["date"]', "[]"), ["own.toml: w"]),
        (GOOD.replace('["date"]', '["no-such-list"]'), ["no W called 'no-such-list'"]),
    ],
)
def test_a_challenge_file_that_describes_nothing(text: str, words: list[str], cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(text, encoding="utf-8")
    refused(cli("challenge", "own.toml"), *words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["holds no W values", "one value a line"]),
        (b"\n\n \n", ["holds no W values"]),
        (b"spring\nautumn\n", ["holds 2 W values", "at least 3"]),
        (b"a\nb\nc\n\nb\n", ["line 5", "repeats 'b' of line 2"]),
        (b"a\xff\nb\nc\n", ["not UTF-8"]),
    ],
)
def test_a_list_that_holds_no_list(content: bytes, words: list[str], cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_bytes(content)
    refused(cli("challenge", "mgc", "--w", "own.txt"), "own.txt", *words)


@slow
def test_a_run_of_a_bad_file_asks_nothing(cli: Cli, tmp_path: Path, cache: Path) -> None:
    (tmp_path / "own.toml").write_text(GOOD.replace("{blank} ", ""), encoding="utf-8")
    refused(cli(*RUN, "-m", "toy", "--challenge", "own.toml"), "own.toml", "write {blank}")
    assert not (tmp_path / "runs").exists()
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


@pytest.fixture(scope="module")
def good_gguf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("gguf")
    tiny_gguf(folder / "tiny.gguf")
    return (folder / "tiny.gguf").read_bytes()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        pytest.param("missing.gguf", None, ["there is no such GGUF file", "check the path"], marks=slow),
        ("text.gguf", b"this is a letter, not a model\n", ["is not a GGUF file", "fetch it again"]),
        pytest.param("empty.gguf", b"", ["is not a GGUF file"], marks=slow),
        pytest.param("model.bin", b"weights", ["is neither a model folder nor a .gguf file"], marks=slow),
    ],
)
def test_a_file_that_is_no_gguf(name: str, content: bytes | None, words: list[str], cli: Cli, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    refused(cli(*RUN, "-m", name, *SMALL), name, *words)


def cut_in_the_header(content: bytes) -> bytes:
    return content[:700]


def cut_in_the_weights(content: bytes) -> bytes:
    return content[:-5000]


def flipped_in_the_weights(content: bytes) -> bytes:
    return content[:-60_000] + bytes(byte ^ 0xFF for byte in content[-60_000:-50_000]) + content[-50_000:]


def not_numbers_in_the_weights(content: bytes) -> bytes:
    return content[:-60_000] + b"\xff" * 10_000 + content[-50_000:]


@slow
@pytest.mark.parametrize("damage", [cut_in_the_header, pytest.param(cut_in_the_weights, marks=pytest.mark.soak)])
def test_a_gguf_that_is_cut_short(
    damage: Callable[[bytes], bytes], good_gguf: bytes, cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "cut.gguf").write_bytes(damage(good_gguf))
    refused(cli(*RUN, "-m", "cut.gguf", *SMALL), "cut.gguf: cannot be loaded", "fetch it again")
    assert not (tmp_path / "runs").exists()


@pytest.mark.soak
@slow
def test_a_gguf_whose_weights_are_not_numbers(good_gguf: bytes, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "flipped.gguf").write_bytes(not_numbers_in_the_weights(good_gguf))
    refused(cli(*RUN, "-m", "flipped.gguf", *SMALL), "flipped.gguf", "not numbers", "fetch it again")
    assert not (tmp_path / "runs").exists()


@pytest.mark.soak
@slow
def test_a_gguf_whose_bytes_changed_is_another_model(good_gguf: bytes, cli: Cli, tmp_path: Path) -> None:
    """Weights that are wrong but still numbers cannot be told from others: they get none of the good file's answers."""
    (tmp_path / "m.gguf").write_bytes(good_gguf)
    assert json.loads(cli(*RUN, "-m", "m.gguf", *SMALL).stdout)["counts"]["computed"] == 90
    (tmp_path / "m.gguf").write_bytes(flipped_in_the_weights(good_gguf))
    done = cli(*RUN, "-m", "m.gguf", *SMALL)
    if done.returncode:
        refused(done, "m.gguf", "fetch it again")
    else:
        assert json.loads(done.stdout)["counts"]["computed"] == 90
    (tmp_path / "m.gguf").write_bytes(good_gguf)
    again = cli(*RUN, "-m", "m.gguf", *SMALL, "--out", "again")
    assert json.loads(again.stdout)["counts"]["computed"] == 0


@pytest.mark.model
@slow
def test_a_cut_copy_of_the_default_model(cli: Cli, tmp_path: Path) -> None:
    if not SMOLLM2.is_file():
        pytest.skip("the default model is not here: run `undertow pull smollm2`")
    with SMOLLM2.open("rb") as file:
        (tmp_path / "cut.gguf").write_bytes(file.read(50_000_000))
    refused(cli(*RUN, "-m", "cut.gguf", *SMALL), "cut.gguf: cannot be loaded", "fetch it again")


# Models: folders and hub ids.

LLAMA = '{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}'


@pytest.mark.parametrize(
    ("files", "words"),
    [
        pytest.param(None, ["./model: there is no such folder or file", "check the path"], marks=slow),
        pytest.param({}, ["holds no config.json"], marks=slow),
        ({"config.json": "{}"}, ["names no architectures"]),
        pytest.param({"config.json": '{"architectures": []}'}, ["names no architectures"], marks=slow),
        pytest.param({"config.json": "[" * 99_999}, ["names no architectures"], marks=slow),
        (
            {"config.json": '{"architectures": ["ViTForImageClassification"]}'},
            ["no model family here reads its architecture", "undertow ls models"],
        ),
        pytest.param({"config.json": LLAMA}, ["holds no .safetensors weights", "save_pretrained"], marks=slow),
        pytest.param({"config.json": LLAMA, "pytorch_model.bin": "x"}, ["holds no .safetensors weights"], marks=slow),
    ],
)
def test_a_folder_that_holds_no_model(files: dict[str, str] | None, words: list[str], cli: Cli, tmp_path: Path) -> None:
    if files is not None:
        (tmp_path / "model").mkdir()
        for name, text in files.items():
            (tmp_path / "model" / name).write_text(text, encoding="utf-8")
    refused(cli(*RUN, "-m", "./model", *SMALL), "model", *words)


@pytest.fixture(scope="module")
def good_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="the model extra is not installed")
    from tiny import saved, tiny_llama

    return Path(saved(tmp_path_factory.mktemp("folder") / "model", tiny_llama()))


@slow
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", None),
        pytest.param("model.safetensors", b"x", marks=pytest.mark.soak),
        pytest.param("tokenizer.json", b"{", marks=pytest.mark.soak),
        ("config.json", LLAMA.replace('"llama"', '"nosuch"').encode()),
    ],
)
def test_a_damaged_model_folder(
    name: str, content: bytes | None, good_folder: Path, cli: Cli, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(good_folder, folder)
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[: len(whole) // 2] if content is None else content)
    refused(cli(*RUN, "-m", "model", *SMALL), "model: cannot be loaded", "fetch it again")


@pytest.mark.parametrize("name", [pytest.param("no-such-model", marks=slow), "someone/no-such-model"])
def test_no_network_is_one_sentence_at_once(name: str, cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub", reason="the model extra is not installed")
    environment = os.environ | {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_CACHE": str(tmp_path / "hub")}
    done = cli(*RUN, "-m", name, *SMALL, env=environment, timeout=30)
    refused(done, f"{name}: is not on this machine and the hub cannot be reached", "check the name", "network")


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
def hub(good_folder: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment in which this hub is the hub."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Hub, directory=str(good_folder)))
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


@pytest.mark.soak
@slow
def test_an_interrupted_download_from_the_hub_is_one_sentence_and_goes_on(
    hub: dict[str, str], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of the toy, `filled`, and the cache that it filled."""
    work = Workplace(tmp_path_factory.mktemp("first run"))
    assert work.json(*TOY, "--limit", "90", "--out", "filled")["counts"]["computed"] == 90
    return work.folder


@pytest.fixture
def filled(first_run: Path, cache: Path, tmp_path: Path) -> None:
    """That run and its answers, in this test's own folders."""
    shutil.copytree(first_run / "filled", tmp_path / "filled")
    shutil.copy(first_run / "cache" / store_file().name, cache)


def text_instead(path: Path) -> None:
    path.write_text("this is no database, and long enough to be looked at as one " * 20, encoding="utf-8")


def pages_overwritten(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\x5a" * (len(content) - 4096))


def cut_short(path: Path) -> None:
    os.truncate(path, 9000)


def cells_overwritten(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("UPDATE models SET notes = 'x', card = 'y'")
        database.execute("UPDATE answers SET numbers = x'0011223344556677'")
    database.close()


@slow
@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    "damage",
    [
        *(pytest.param(one, marks=pytest.mark.soak) for one in (text_instead, pages_overwritten, cut_short)),
        cells_overwritten,
    ],
)
def test_a_damaged_store_is_named_and_moved_aside_by_what_asks(
    damage: Callable[[Path], None], cli: Cli, tmp_path: Path
) -> None:
    damage(store_file())
    damaged = store_file().read_bytes()
    refused(cli("store", "info"), str(store_file()), "is damaged", "move the file aside and run again")
    assert store_file().read_bytes() == damaged
    done = cli(*TOY, "--limit", "90", "--out", "again", "--json")
    assert done.returncode == 0
    assert done.stderr.startswith(f"undertow: {store_file()}: the answer store is damaged (")
    assert done.stderr.endswith("it is now answers.sqlite.damaged, and its answers are asked anew\n")
    assert store_file().with_name("answers.sqlite.damaged").read_bytes() == damaged
    assert json.loads(done.stdout)["counts"]["computed"] == 90
    assert (tmp_path / "again/results.json").read_bytes() == (tmp_path / "filled/results.json").read_bytes()


@slow
def test_a_missing_store_is_made_anew_and_a_cache_that_cannot_be_one_is_named(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not store_file().exists()
    assert computed(cli(*TOY, "--limit", "90", "--out", "filled", "--json")) == 90
    assert store_file().is_file()
    (tmp_path / "file").write_text("x", encoding="utf-8")
    monkeypatch.setenv("UNDERTOW_CACHE", str(tmp_path / "file"))
    refused(cli(*TOY, "--limit", "90"), str(tmp_path / "file"), "set UNDERTOW_CACHE to a folder")


# A full disk.


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    if not mount or subprocess.run([mount, "-t", "tmpfs", "-o", "size=1m", "none", disk], check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    yield disk
    subprocess.run(["umount", disk], check=True)


def computed(done: subprocess.CompletedProcess[str]) -> int:
    assert (done.returncode, done.stderr) == (0, "")
    return int(json.loads(done.stdout)["counts"]["computed"])


def n_stored() -> int:
    with AnswerStore(store_file()) as store:
        return sum(shelf.n_answers for shelf in store.shelves())


@pytest.mark.soak
@slow
def test_a_full_disk_under_the_store_keeps_every_answer(
    small_disk: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERTOW_CACHE", str(small_disk / "cache"))
    command = [*RUN, "-m", "toy", "--json", "--out", str(tmp_path / "run")]
    refused(cli(*command), str(store_file()), "the disk is full", "run the same command again")
    assert not (tmp_path / "run").exists()
    subprocess.run(["mount", "-o", "remount,size=32m", small_disk], check=True)
    kept = n_stored()
    assert 0 < kept < 3000
    assert computed(cli(*command)) == 3000 - kept


@pytest.mark.soak
def test_a_store_that_cannot_grow_keeps_every_answer(cli: Cli, tmp_path: Path) -> None:
    """Where no disk can be mounted: the system refuses any file of more than 120 KB."""
    resource = pytest.importorskip("resource")
    command = [*TOY, "--limit", "900", "--json", "--out", str(tmp_path / "run")]
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (120_000, 120_000))
    refused(cli(*command, preexec_fn=limit), str(store_file()), "its file cannot grow", "free some space")
    assert not (tmp_path / "run").exists()
    kept = n_stored()
    assert 0 < kept < 900
    assert computed(cli(*command)) == 900 - kept


@pytest.mark.soak
@slow
def test_a_full_disk_under_the_run_folder_keeps_the_answers_and_the_run_before(small_disk: Path, cli: Cli) -> None:
    command = [*TOY, "--limit", "90", "--json", "--out", str(small_disk / "run")]
    assert computed(cli(*command)) == 90
    before = {path.name: path.read_bytes() for path in (small_disk / "run").glob("*.*")}
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"), filler.open("wb") as file:  # noqa: PT012 - closing is part of it
        for _ in range(2**10):
            file.write(bytes(2**10))
            file.flush()
    again = [*command, "--overwrite"]
    refused(cli(*again), str(small_disk / "run"), "No space left on device", "all answers are kept", "--out")
    assert {path.name: path.read_bytes() for path in (small_disk / "run").glob("*.*")} == before
    assert sorted(path.name for path in small_disk.iterdir()) == ["filler", "run"]
    filler.unlink()
    assert computed(cli(*again)) == 0


@pytest.mark.soak
@slow
@pytest.mark.usefixtures("filled")
def test_a_run_folder_that_cannot_grow_keeps_the_answers(cli: Cli, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    command = [*TOY, "--limit", "90", "--json", "--out", str(tmp_path / "run")]
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (40_000, 40_000))
    refused(cli(*command, preexec_fn=limit), str(tmp_path / "run"), "File too large", "all answers are kept")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["filled"]
    assert computed(cli(*command)) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", [["ls", "models"], ["challenge", "mgc", "--csv"]])
def test_output_onto_a_full_disk_is_one_sentence(arguments: list[str], cli: Cli) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = cli(*arguments, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    done.stdout = ""
    refused(done, "the output", "No space left on device")
