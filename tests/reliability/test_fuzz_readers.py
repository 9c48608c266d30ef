"""Whatever a file, a reply or an option holds, a reader gives a value or one clear sentence: no traceback, no hang, no flood.

Inputs are good ones with something wrong in them. The short tests draw the same ones every time; the long ones (`make soak`) draw
many more, count them and print the counts, and let a coverage-guided fuzzer look for what none of them found.
"""

from __future__ import annotations

import ast
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest
from fuzz_with_atheris import IS_HERE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import drawn_numbers, mutated
from readers import BY_NAME, EXPLAINED, REACHED, TARGETS, Target, has_needs, outcome

PACKAGE = Path(__file__).parents[2] / "src" / "undertow"
SHORT_EXAMPLES = 50
"""Of the cheapest target."""
SOAK_INPUTS = 200_000
SOAK_LIMIT_S = 12 * 60.0
"""Of the processor's time, whoever else uses it."""
ATHERIS_RUNS = 5_000
"""Of the cheapest target; the dear ones run fewer, by their cost."""
NUMBERS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=16)
BY_TARGET = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)


def needed(target: Target) -> None:
    if not has_needs(target):
        pytest.skip(f"{target.needs} is not installed")


@BY_TARGET
def test_good_inputs_are_read(target: Target) -> None:
    needed(target)
    for seed in target.seeds():
        _, said = outcome(target, seed)
        assert said == ""


@BY_TARGET
def test_a_damaged_input_is_read_or_refused_in_a_sentence(target: Target) -> None:
    needed(target)
    seeds = list(target.seeds())

    @settings(
        max_examples=max(4, SHORT_EXAMPLES // target.cost),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(seeds), NUMBERS)
    def fed(seed: bytes, numbers: list[int]) -> None:
        outcome(target, mutated(seed, target.kind, numbers))

    fed()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_two_hundred_thousand_damaged_inputs(measured: Callable[[str], None]) -> None:
    """Each target gets its share, by what one input costs; what is left over goes to the cheapest."""
    targets = [target for target in TARGETS if has_needs(target)]
    shares = {target.name: 1 / target.cost for target in targets}
    start, drawn = time.process_time(), random.Random(20_260)
    n_read, n_refused = dict.fromkeys(shares, 0), dict.fromkeys(shares, 0)
    for target in targets:
        seeds = list(target.seeds())
        for _ in range(int(SOAK_INPUTS * 1.02 * shares[target.name] / sum(shares.values())) + 1):
            _, said = outcome(target, mutated(drawn.choice(seeds), target.kind, drawn_numbers(drawn)))
            counts = n_refused if said else n_read
            counts[target.name] += 1
    took_s = time.process_time() - start
    taken, left = sum(n_read.values()), sum(n_refused.values())
    n_all = taken + left
    for name in shares:
        print(f"{name}: {n_read[name]:,} read, {n_refused[name]:,} refused")
    measured(
        f"{n_all:,} inputs to {len(targets)} readers: {taken:,} read, {left:,} refused, in {took_s:.0f} s of processor time"
    )
    assert n_all >= SOAK_INPUTS
    assert all(n_read.values()), [name for name, n in n_read.items() if not n]
    assert took_s < SOAK_LIMIT_S


@pytest.mark.soak
@pytest.mark.skipif(not IS_HERE, reason="atheris is for Linux on x86-64")
@pytest.mark.timeout(1800)
@BY_TARGET
def test_guided_by_coverage(target: Target, tmp_path: Path, measured: Callable[[str], None]) -> None:
    """A crash, a time-out or too much memory ends the fuzzer with another status than 0, and leaves the input behind."""
    needed(target)
    runs = max(300, ATHERIS_RUNS // target.cost)
    here = Path(__file__).parent
    done = subprocess.run(
        [
            sys.executable,
            str(here / "fuzz_with_atheris.py"),
            target.name,
            f"-runs={runs}",
            "-seed=1",
            f"-artifact_prefix={tmp_path}/",
        ],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"Done {runs} runs" in done.stderr, done.stderr[-2000:]
    assert list(tmp_path.iterdir()) == []
    measured(f"{runs:,} inputs guided by coverage, `{target.name}`")


# No reader is left out.

OPENERS = {"open", "read_text", "read_bytes", "readline", "read_csv", "read_parquet", "read_table", "ParquetFile", "ZipFile", "GzipFile",
           "connect", "safe_open", "urlopen", "reader", "DictReader", "literal_eval", "fromstring", "frombuffer", "memmap"}  # fmt: skip
LOADERS = {"loads", "load"}
OF_LOADERS = {"json", "tomllib", "pickle", "marshal", "np", "torch", "yaml", "gguf"}


def _reads(call: ast.Call) -> bool:
    """Whether a call opens, parses or unpacks; to write is not to read, and what the package brings along is its own."""
    function = call.func
    name = (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
    if name not in OPENERS | LOADERS:
        return False
    said = ast.unparse(function)
    if name in LOADERS:
        return isinstance(function, ast.Attribute) and ast.unparse(function.value) in OF_LOADERS
    modes = [
        one.value for one in (*call.args, *(word.value for word in call.keywords)) if isinstance(one, ast.Constant)
    ]
    if name == "open" and any(mode in ("w", "wb", "a", "xb") for mode in modes):
        return False
    is_model = name == "open" and not call.args and not call.keywords and said == "found.open"
    return name in OPENERS and "resources.files" not in said and not is_model


def places_that_read() -> Iterator[str]:
    """Every function of the package that does, as `file:function`."""

    def within(node: ast.AST, name: str, file: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{name}.{child.name}" if name else child.name
            if isinstance(child, ast.Call) and _reads(child):
                yield f"{file}:{name}"
            yield from within(child, inner, file)

    for path in sorted(PACKAGE.rglob("*.py")):
        yield from within(ast.parse(path.read_text(encoding="utf-8")), "", str(path.relative_to(PACKAGE)))


def reached_by(target: Target) -> set[str]:
    """The functions of the package that good inputs go through."""
    found: set[str] = set()

    def seen(frame: FrameType, event: str, argument: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(str(PACKAGE)):
            name = frame.f_code.co_qualname.replace(".<locals>", "").split(".<")[0]
            found.add(f"{Path(file).relative_to(PACKAGE)}:{name}")

    seeds = list(target.seeds())
    sys.setprofile(seen)
    try:
        for seed in seeds:
            target.feed(seed)
    finally:
        sys.setprofile(None)
    return found


def test_every_reader_is_a_target_or_says_why_not() -> None:
    """A new place that opens or parses something needs a target that reaches it, or a reason; one that is gone leaves the tables."""
    assert set(places_that_read()) == {*REACHED, *EXPLAINED}
    assert not set(REACHED) & set(EXPLAINED)
    assert {name for names in REACHED.values() for name in names} <= set(BY_NAME)
    assert all(EXPLAINED.values())


def test_targets_reach_what_they_are_said_to() -> None:
    wanted = {name for names in REACHED.values() for name in names}
    reached = {name: reached_by(BY_NAME[name]) for name in wanted if has_needs(BY_NAME[name])}
    missed = [
        (place, name)
        for place, names in REACHED.items()
        for name in names
        if name in reached and place not in reached[name]
    ]
    assert missed == []
