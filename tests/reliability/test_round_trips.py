from __future__ import annotations

import atexit
import csv
import gzip
import io
import json
import math
import tempfile
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from helpers.gate_runs import MANIFEST
from undertow.data.challenges import challenge_file
from undertow.data.documents.document_sources import load_documents
from undertow.data.templates.covariates import numbers_of
from undertow.runs.folder.storage import Record, read_record, write_record
from undertow.types import Result

SHORT, LONG = 10, 2000
LINE_SIGNS = st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zs", "Zl", "Zp"])
"""A text whose ends are stripped keeps only what is no white space there."""
WORD = st.text(LINE_SIGNS, min_size=1, max_size=12)
TEXT = st.builds(" ".join, st.lists(WORD, min_size=1, max_size=5))
PLAIN = TEXT.filter(lambda text: not set(text) & set("{}_[]<>") and "MASK" not in text)
NUMBER = st.floats(-1e300, 1e300)  # as far as run folders hold them


def property_of(
    *strategies: st.SearchStrategy[Any], **named: st.SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Any]:
    """A property in two lengths: a few examples that are always the same, and very many (`make soak`)."""

    def both(check: Callable[..., None]) -> Any:
        @pytest.mark.parametrize("n", [SHORT, pytest.param(LONG, marks=pytest.mark.soak)])
        def test(n: int) -> None:
            settings(max_examples=n, database=None, suppress_health_check=list(HealthCheck))(
                given(*strategies, **named)(check)
            )()

        test.__doc__ = check.__doc__
        return test

    return both


@cache
def scratch() -> Path:
    """A folder of this process, gone when it ends."""
    folder = tempfile.TemporaryDirectory(prefix="round-trips-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


def written(name: str, content: bytes) -> Path:
    path = scratch() / name
    path.write_bytes(content)
    return path


def as_table(rows: Sequence[Sequence[str]], separator: str) -> bytes:
    if separator == "\t":
        return "".join("\t".join(row) + "\n" for row in rows).encode()
    out = io.StringIO(newline="")
    csv.writer(out).writerows(rows)
    return out.getvalue().encode()


as_text = partial(json.dumps, ensure_ascii=False)
"""A text or a list of texts as TOML has them: as JSON does, but for signs that are not among these."""


@property_of(
    st.lists(PLAIN, min_size=1, max_size=3, unique=True),
    st.lists(TEXT, min_size=1, max_size=4, unique=True),
    st.lists(WORD, min_size=2, max_size=2, unique=True),
    st.lists(TEXT, min_size=3, max_size=5, unique=True),
)
def test_challenge_files(texts: list[str], levels: list[str], words: list[str], w: list[str]) -> None:
    assume(not numbers_of(w))
    templates = [f"{text} {{w}} {{blank}} {{slot}}" for text in texts]
    text = f"templates = {as_text(templates)}\n[slots]\nslot = {as_text(levels)}\n[w]\nown = {as_text(w)}\n"
    text += f"[groups]\none = [{as_text(words[0])}]\nother = [{as_text(words[1])}]\n"
    found = challenge_file.load(str(written("own.toml", text.encode())))
    assert [template.text for template in found.templates] == templates
    assert found.slots == {"slot": tuple(levels)}
    assert found.covariates[0].values == tuple(w)
    assert found.words.forms == (("one", (words[0],)), ("other", (words[1],)))
    items = found.items()
    assert len(items) == len(texts) * len(levels) * len(w)
    assert {item.factors["slot"] for item in items} == set(levels)


DOCUMENT = st.tuples(PLAIN, PLAIN, PLAIN, st.sampled_from(["age", "gender", "race"]), st.booleans())


@property_of(st.lists(DOCUMENT, min_size=1, max_size=6), st.sampled_from(["tsv", "csv", "tsv.gz", "csv.gz"]))
def test_documents(rows: list[tuple[str, str, str, str, bool]], ending: str) -> None:
    table = [["id", "text", "biased", "dimension", "span", "rephrasing", "split"]]
    for at, (before, span, rephrasing, dimension, biased) in enumerate(rows):
        of_bias = [dimension, span, rephrasing] if biased else ["", "", ""]
        table.append([str(at), f"{before} {span}", "yes" if biased else "no", *of_bias, "evaluation"])
    content = as_table(table, "\t" if "tsv" in ending else ",")
    found = load_documents(
        str(written(f"own.{ending}", gzip.compress(content, 1) if ending.endswith("gz") else content))
    )
    assert [
        [one.id, one.text, "yes" if one.biased else "no", one.dimension, one.span, one.rephrasing]
        for one in found.evaluation
    ] == [row[:-1] for row in table[1:]]


ANY_TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
JSON_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | NUMBER | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)


@property_of(st.data())
def test_runs(data: st.DataObject) -> None:
    number = NUMBER | st.just(math.nan)
    results = [
        Result(
            data.draw(TEXT), data.draw(st.dictionaries(TEXT, TEXT, max_size=3)), data.draw(number), data.draw(number), data.draw(number),
            data.draw(st.integers(0, 2**40)), data.draw(st.integers(0, 9)), data.draw(TEXT), data.draw(number), note=data.draw(TEXT),
        )
        for _ in range(data.draw(st.integers(0, 3)))
    ]  # fmt: skip
    design = data.draw(st.dictionaries(TEXT, JSON_VALUE, max_size=3))
    manifest = {**MANIFEST, "design": design}
    rows = data.draw(st.lists(st.tuples(TEXT, NUMBER), max_size=4))
    table = pd.DataFrame({"item": pd.array([text for text, _ in rows], dtype="str"), "he": [he for _, he in rows]})
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        write_record(Record(manifest, table, results), Path(folder) / "run", lambda place: None)
        found = read_record(Path(folder) / "run")
    assert found.manifest == manifest
    assert repr(found.results) == repr(results)
    assert found.observations["item"].tolist() == table["item"].tolist()
    assert found.observations["he"].tolist() == table["he"].tolist()
