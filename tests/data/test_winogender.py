"""No published sentence stands here: the small files below are written for these tests."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from helpers.file_refusal import assert_refused
from helpers.published_site import Site, kept, serving
from undertow import data
from undertow.data.sentences import winogender
from undertow.data.sentences.schemas import own_shares
from undertow.data.sentences.winogender import COMMIT, STATISTICS, TEMPLATES, read_winogender

OWN_TEMPLATES = """\
occupation(0)\tother-participant(1)\tanswer\tsentence
roofer\ttenant\t0\tThe $OCCUPATION lent the $PARTICIPANT a rake because $NOM_PRONOUN owned {three}.
roofer\ttenant\t1\tThe $PARTICIPANT lent the $OCCUPATION a rake because $NOM_PRONOUN owned {three}.
sailor\tangler\t0\tThe $OCCUPATION met a $PARTICIPANT on deck and lost $POSS_PRONOUN cap.
sailor\tangler\t1\tAn $PARTICIPANT saw the $OCCUPATION wave, which cheered $ACC_PRONOUN up.
"""
OWN_STATISTICS = """\
occupation\tbergsma_pct_female\tbls_pct_female\tbls_year
roofer\t11.5\t2.25\t2015
sailor\t33\t8\t2016
"""


def write(folder: Path, templates: str = OWN_TEMPLATES, statistics: str = OWN_STATISTICS) -> str:
    (folder / TEMPLATES).write_text(templates, encoding="utf-8")
    (folder / STATISTICS).write_text(statistics, encoding="utf-8")
    return str(folder)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Where the files are fetched from: a server of the test's own, empty at first."""
    with serving(monkeypatch, "undertow.data.sentences.winogender", "/data") as served:
        yield served


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The small files, as if their hashes were the published ones."""
    files = {TEMPLATES: OWN_TEMPLATES.encode(), STATISTICS: OWN_STATISTICS.encode()}
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    monkeypatch.setattr(winogender, "FILES", hashes)
    return files


SHOWN = {
    "roofer/someone/0": "The roofer lent someone a rake because ___ owned {three}.",
    "roofer/someone/1": "Someone lent the roofer a rake because ___ owned {three}.",
    "sailor/someone/0": "The sailor met someone on deck and lost ___ cap.",
    "sailor/someone/1": "Someone saw the sailor wave, which cheered ___ up.",
    "sailor/other/1": "An angler saw the sailor wave, which cheered ___ up.",
    **{f"sailor/{sex}/1": f"A {sex} saw the sailor wave, which cheered ___ up." for sex in ("man", "woman")},
    **{f"sailor/{name}/0": f"The sailor met a {who} on deck and lost ___ cap."
       for name, who in (("man", "man"), ("woman", "woman"), ("other", "angler"))},
}  # fmt: skip


def test_the_design_is_every_schema_with_four_participants(tmp_path: Path) -> None:
    sentences = data.load_sentences("winogender", write(tmp_path)).sentences
    assert len(sentences) == 16
    assert {sentence.id: sentence.query.display_text() for sentence in sentences}.items() >= SHOWN.items()


@pytest.mark.parametrize(
    ("name", "old", "new", "named"),
    [
        # The file, what is replaced by what (everything where nothing is named), and the place that is named.
        (TEMPLATES, "sailor\tangler\t0", "sailor angler\t0", "line 4"),
        (TEMPLATES, "angler\t0", "angler\tsailor", "line 4: answer"),
        (TEMPLATES, "The $OCCUPATION lent", "The roofer lent", "line 2"),
        (TEMPLATES, "An $PARTICIPANT", "No $PARTICIPANT", "line 5"), (TEMPLATES, "$POSS_PRONOUN", "a", "line 4"),
        (TEMPLATES, "on deck", "near $ACC_PRONOUN", "line 4"), (TEMPLATES, "a rake", "a ra\0ke", "line 2"),
        (TEMPLATES, "", OWN_TEMPLATES.splitlines()[0], "no rows"), (STATISTICS, "", "", "empty"),
        (STATISTICS, "\t8\t2016", "", "line 3"), (STATISTICS, "2.25", "few", "line 2: bls_pct_female holds 'few'"),
        (STATISTICS, "sailor", "pilot", "'sailor'"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused_by_its_line(name: str, old: str, new: str, named: str, tmp_path: Path) -> None:
    folder, path = write(tmp_path), tmp_path / name
    whole = path.read_text(encoding="utf-8")
    assert old in whole
    path.write_text(whole.replace(old, new) if old else new, encoding="utf-8")
    assert_refused((path, named), read_winogender, folder)
    path.write_bytes(b"roof\xe9r" + path.read_bytes())
    assert_refused((path, "byte 4"), read_winogender, folder)
    path.unlink()
    assert_refused((path,), read_winogender, folder)


def test_the_files_are_fetched_once_and_kept_and_a_folder_is_read_without_fetching(
    site: Site, published: dict[str, bytes], cache: Path, tmp_path: Path
) -> None:
    site.files = published
    first = data.load_sentences("winogender")
    assert (len(first.sentences), first.notes) == (16, ())
    assert site.asked == [TEMPLATES, STATISTICS]
    assert kept(cache) == {f"winogender/{COMMIT[:12]}/{name}": content for name, content in published.items()}
    site.files = {}
    assert data.load_sentences("winogender") == first
    assert len(data.load_sentences("winogender", write(tmp_path)).sentences) == 16
    assert len(site.asked) == 2
    site.files = published
    changed = cache / "data" / "winogender" / COMMIT[:12] / STATISTICS
    changed.write_text("changed", encoding="utf-8")
    assert data.load_sentences("winogender") == first
    assert site.asked[2:] == [STATISTICS]
    assert changed.read_bytes() == published[STATISTICS]


@pytest.mark.parametrize("name", [TEMPLATES, STATISTICS])
def test_a_file_with_another_hash_is_refused_and_not_kept(
    name: str, site: Site, published: dict[str, bytes], cache: Path
) -> None:
    site.files = published | {name: published[name] + b"\n"}
    assert_refused((f"/data/{name}", "SHA-256", "--data-dir"), data.load_sentences, "winogender")
    assert not [path for path in kept(cache) if name in path]
    site.files = published
    assert len(data.load_sentences("winogender").sentences) == 16
    assert sorted(kept(cache).values()) == sorted(published.values())


def test_the_published_files_have_the_known_hashes_and_their_design(
    reference_data: Path, site: Site, cache: Path
) -> None:
    folder = reference_data / "winogender"
    site.files = {name: (folder / name).read_bytes() for name in (TEMPLATES, STATISTICS)}
    fetched = data.load_sentences("winogender")
    assert fetched == data.load_sentences("winogender", str(folder))
    assert site.asked == [TEMPLATES, STATISTICS]
    assert sorted(kept(cache).values()) == sorted(site.files.values())
    sentences, occupations = fetched.sentences, set(own_shares())
    assert (len({sentence.id for sentence in sentences}), len(sentences), fetched.notes) == (480, 480, ())

    def counts(*names: str) -> Counter[Any]:
        return Counter(tuple(sentence.factors[name] for name in names) for sentence in sentences)

    assert len(occupations) == 60
    cells = product(occupations, ("man", "woman", "someone", "other"), (0, 1))
    assert counts("occupation", "participant_class", "coreferent") == Counter(cells)
    assert counts("pronoun_case") == {("nominative",): 4 * 89, ("possessive",): 4 * 27, ("accusative",): 4 * 4}
    assert Counter(sentence.cluster for sentence in sentences) == dict.fromkeys(occupations, 8)
    for sentence in sentences:
        sex = {"man": "male", "woman": "female"}.get(str(sentence.factors["participant_class"]))
        assert sentence.gold == (sex if sentence.factors["coreferent"] else None)
        assert sentence.factors["well_specified"] is (sentence.gold is not None)
        assert sentence.factors["percent_female"] == own_shares()[sentence.cluster]
    assert (own_shares()["technician"], own_shares()["accountant"]) == (40.34, 59.7)
