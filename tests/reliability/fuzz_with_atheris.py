"""Feed one reader with inputs that a coverage-guided fuzzer makes: `python tests/reliability/fuzz_with_atheris.py TARGET -runs=N`.

Names of targets are those of `readers.TARGETS`; other options are libFuzzer's. What is refused in one sentence is no fault; any
other exception is a crash, whose input libFuzzer writes beside the current folder or where `-artifact_prefix` says.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

IS_HERE = importlib.util.find_spec("atheris") is not None
TIMEOUT_S = 20
MOST_MIB = 6144
LONGEST_INPUT = 8192


def main() -> None:
    import atheris

    name = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "")
    with atheris.instrument_imports(include=["undertow", "tomllib", "csv"], enable_loader_override=False):
        import readers
    if name not in readers.BY_NAME:
        sys.exit(f"name one of {', '.join(readers.BY_NAME)}")
    target = readers.BY_NAME[name]
    corpus = readers.scratch() / "corpus"
    corpus.mkdir()
    with atheris.instrument_imports(include=["undertow", "tomllib"], enable_loader_override=False):
        for number, seed in enumerate(target.seeds()):
            (corpus / str(number)).write_bytes(seed)
            target.feed(seed)  # what is imported late is instrumented now, which takes its time

    def one(content: bytes) -> None:
        readers.outcome(target, content)

    limits = [f"-timeout={TIMEOUT_S}", f"-rss_limit_mb={MOST_MIB}", f"-max_len={LONGEST_INPUT}", "-print_final_stats=1"]
    given = [argument for argument in sys.argv[1:] if argument.startswith("-")]
    atheris.Setup([sys.argv[0], *limits, *given, str(corpus)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
