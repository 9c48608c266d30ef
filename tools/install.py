"""Prepare `.venv` with Undertow and the packages that a job needs, at the versions of constraints.txt.

    python3 tools/install.py models             # what `make demo` needs
    python3 tools/install.py models docs dev    # more extras of pyproject.toml
    .venv/bin/python tools/install.py --lock    # write constraints.txt from what is installed

Every pin names the extras that need it, so pip has nothing to resolve. What was installed is noted in the environment: a second
call ends at once. Needs Python 3.11 or newer with venv, and nothing else.
"""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
CONSTRAINTS = ROOT / "constraints.txt"
NOTE = VENV / ".undertow-installed"
EXTRAS = ("models", "api", "ray", "app", "docs", "dev")
PIP = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--no-input"]
IMPORTS_OF_COMMANDS = (
    ("-c", "import transformers.modeling_utils, gguf"),
    ("-c", "import undertow.runs.pipeline, pandas, scipy.stats, matplotlib.figure"),
)
"""What the first command imports, in two processes of about equal time."""
IMPORTS_OF_TESTS = (("-m", "pytest", "--collect-only", "-q", "-p", "no:randomly"),)
LIMIT_S = 300
CUDA_BUILD = """\
torch: this package index offers only the build for NVIDIA GPUs (a download of about 3 GB, 5 GB of disk), and there is no such GPU here.
For the processor build (a download of 190 MB) run:  PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make ...
For the GPU build nevertheless run:                  TORCH=cuda make ..."""


class Step:
    """A pip command in the background, with the time it takes and the bytes it has downloaded."""

    def __init__(self, title: str, *arguments: str) -> None:
        self.title, self.began = title, time.monotonic()
        self._folder = tempfile.TemporaryDirectory(prefix="undertow-install-")
        self._output = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed in `end`
        environment = os.environ | {"TMPDIR": self._folder.name}
        self.process = subprocess.Popen(
            [*PIP, *arguments], stdout=self._output, stderr=subprocess.STDOUT, env=environment
        )

    def downloaded_mb(self) -> float:
        """What lies in pip's temporary folder, in megabytes."""
        total = 0
        with contextlib.suppress(OSError):  # pip removes files meanwhile
            total = sum(path.stat().st_size for path in Path(self._folder.name).rglob("*"))
        return total / 1e6

    def end(self) -> str:
        """What pip said. The process is stopped if it still runs."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()
        self._output.seek(0)
        said = self._output.read()
        self._output.close()
        self._folder.cleanup()
        return said


def run_together(*steps: Step) -> None:
    """Wait for all steps; print one line for each as it ends, and pip's own output if it failed."""
    running = list(steps)
    try:
        while running:
            time.sleep(0.1)
            for step in [step for step in running if step.process.poll() is not None]:
                running.remove(step)
                said = step.end()
                if step.process.returncode:
                    sys.exit(
                        f"{said}\nThe installation failed at: {step.title}. Run the same command again to continue."
                    )
                _print(f"{step.title}: {time.monotonic() - step.began:.0f} s")
            if sys.stderr.isatty() and running:
                parts = [f"{step.title} {step.downloaded_mb():.0f} MB" for step in running]
                sys.stderr.write(f"\r\033[K  {', '.join(parts)}"[:200])
    finally:
        for step in running:
            step.end()


def _print(line: str) -> None:
    sys.stderr.write(("\r\033[K" if sys.stderr.isatty() else "") + f"  {line}\n")


def pins(extras: set[str]) -> dict[str, str]:
    """Name and version of each package that is pinned for the core or one of these extras."""
    chosen = {}
    for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines():
        pin, _, needed_by = line.partition("#")
        if pin and {"core", *extras} & set(needed_by.split()):
            name, version = pin.strip().split("==")
            chosen[name] = version
    return chosen


def torch_requirement(version: str) -> list[str]:
    """Arguments for pip: the processor build of torch where there is no NVIDIA GPU and the index in use offers it.

    The build for GPUs is installed with the libraries it names. Without a GPU it is refused unless TORCH=cuda asks for it.
    """
    pin = f"torch=={version}"
    if os.environ.get("TORCH") == "cuda" or shutil.which("nvidia-smi") or Path("/proc/driver/nvidia").exists():
        return ["-c", str(CONSTRAINTS), pin]
    for wanted in (f"{pin}+cpu", pin):
        looked = [*PIP, "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps", "--report", "-", wanted]
        found = subprocess.run(looked, capture_output=True, text=True, check=False)
        if found.returncode == 0:
            needs = json.loads(found.stdout)["install"][0]["metadata"].get("requires_dist", [])
            if sys.platform == "linux" and any(need.startswith(("nvidia-", "cuda-")) for need in needs):
                sys.exit(CUDA_BUILD)
            return ["--no-deps", wanted]
    sys.exit(f"{found.stderr}\npip could not find {pin}: check the network and pip's index settings.")


def install(extras: set[str]) -> None:
    """Install the core, these extras and Undertow itself into `.venv`."""
    inputs = [ROOT / "pyproject.toml", CONSTRAINTS, Path(__file__)]
    fingerprint = hashlib.sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()
    with contextlib.suppress(OSError, ValueError):
        note = json.loads(NOTE.read_text())
        if note["fingerprint"] == fingerprint and extras <= set(note["extras"]) and PYTHON.exists():
            return
        extras = extras | set(note["extras"])
    began = time.monotonic()
    _print(f"Installing into .venv: core {' '.join(sorted(extras))}")
    works = "import pip, sys; sys.exit(sys.version_info < (3, 11))"
    if not PYTHON.exists() or subprocess.run([PYTHON, "-c", works], capture_output=True, check=False).returncode:
        subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=True)
        _print(f"environment: {time.monotonic() - began:.0f} s")
    NOTE.unlink(missing_ok=True)
    chosen = pins(extras)
    steps = []
    torch = chosen.pop("torch", "")
    if torch and not list(VENV.glob(f"lib/*/site-packages/torch-{torch}*.dist-info")):
        arguments = torch_requirement(torch)
        steps.append(Step(arguments[-1].replace("==", " "), "install", "--no-compile", *arguments))
    named = [f"{name}=={version}" for name, version in chosen.items()]
    # Two processes of pip share the packages: unpacking keeps one core busy.
    for half in (named[::2], named[1::2]):
        steps.append(Step(f"{len(half)} packages", "install", "--no-deps", "--no-compile", *half))
    steps.append(Step("undertow", "install", "--no-deps", "--no-compile", "-e", str(ROOT)))
    run_together(*steps)
    # While pip checks what it has installed, modules are compiled to bytecode: for the first command, or once for all workers of the tests.
    compiling = [
        subprocess.Popen(
            [PYTHON, *arguments],
            cwd=ROOT,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": ""},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for arguments in (IMPORTS_OF_TESTS if {"models", "dev"} <= extras else IMPORTS_OF_COMMANDS)
    ]
    complete = subprocess.run([*PIP, "check"], capture_output=True, check=False).returncode == 0
    for process in compiling:
        try:
            process.wait(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()  # what is not compiled now is compiled where it is imported
    if not complete:
        # Another system or Python than that of the pins needs some packages more.
        package = f"{ROOT}[{','.join(sorted(extras))}]" if extras else str(ROOT)
        run_together(Step("packages of this system", "install", "-c", str(CONSTRAINTS), "-e", package))
    NOTE.write_text(json.dumps({"fingerprint": fingerprint, "extras": sorted(extras)}))
    _print(f"ready: {time.monotonic() - began:.0f} s")


def lock() -> str:
    """The text of constraints.txt: what is installed, each package with the extras that need it, directly or not."""
    from importlib.metadata import requires, version

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    needed_by: dict[str, list[str]] = {}
    for group in ("core", *EXTRAS):
        seen: set[tuple[str, str]] = set()
        ahead = [("undertow", "" if group == "core" else group)]
        while ahead:
            name, extra = ahead.pop()
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for requirement in map(Requirement, requires(name) or ()):
                marker, own = requirement.marker, extra and "extra" in str(requirement.marker)
                if name == "undertow" and bool(extra) != bool(own):
                    continue
                if marker is None or marker.evaluate({"extra": extra}):
                    ahead += [(canonicalize_name(requirement.name), part) for part in ("", *requirement.extras)]
        for name in {name for name, _ in seen} - {"undertow", "pip"}:
            needed_by.setdefault(name, []).append(group)
    header = [line for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    rows = [
        f"{name}=={version(name).partition('+')[0]}  # {' '.join(groups)}" for name, groups in sorted(needed_by.items())
    ]
    return "\n".join([*header, *rows]) + "\n"


def main() -> None:
    """Check this Python, then install or lock."""
    if sys.version_info < (3, 11):  # noqa: UP036 - this is what refuses an older one
        here = f"{sys.executable} is {sys.version.split()[0]}"
        sys.exit(f"Undertow needs Python 3.11 or newer, and {here}: name a newer one with make PYTHON=...")
    wanted = sys.argv[1:]
    if wanted == ["--lock"]:
        CONSTRAINTS.write_text(lock(), encoding="utf-8")
        return
    if unknown := set(wanted) - set(EXTRAS):
        sys.exit(f"there is no extra called {', '.join(sorted(unknown))}; there are {', '.join(EXTRAS)}")
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        sys.exit(
            f"{sys.executable} cannot make a virtual environment: install python3-venv, or its like of your system"
        )
    install(set(wanted))


if __name__ == "__main__":
    main()
