from __future__ import annotations

import dataclasses
import sqlite3
from pathlib import Path

import pytest

from undertow.errors import UndertowError
from undertow.inference.answer_cache import SCHEMA_VERSION, AnswerCache
from undertow.inference.runner import run_queries
from undertow.models import resolve
from undertow.models.base import ModelRequest
from undertow.types import EXACT, Answer, ClozeQuery, ModelIdentity, Option

CARD = ModelIdentity("m", "causal", "somewhere", "abc123", "float32", "likelihood")
ANSWER = Answer((-1.25, -0.1), 0.5)
UNIFORM = resolve(ModelRequest("uniform"))
QUERY = ClozeQuery(("In 1801, ", " sang."), (Option("female", ("she",)), Option("male", ("he",))))


@pytest.mark.parametrize(
    "change", [{"revision": "abc124"}, {"dtype": "bfloat16"}, {"scoring_method": "prompt"}, {"source": "x"}]
)
def test_no_answer_is_served_for_another_model(change: dict[str, str], tmp_path: Path) -> None:
    with AnswerCache(tmp_path / "s.sqlite") as store:
        store.put(CARD, "exact", {"q": ANSWER})
        other = dataclasses.replace(CARD, **change)
        assert store.get(other.key("exact"), ["q"]) == {}
        assert store.get(CARD.key("paper"), ["q"]) == {}
        assert store.get(dataclasses.replace(CARD, name="another name").key("exact"), ["q"]) == {"q": ANSWER}


def test_all_or_none_of_a_batch_is_kept(tmp_path: Path) -> None:
    with AnswerCache(tmp_path / "s.sqlite") as store:
        broken = {"q1": ANSWER, "q2": dataclasses.replace(ANSWER, missing_reason=None)}  # type: ignore[arg-type]
        with pytest.raises(UndertowError):
            store.put(CARD, "exact", broken)
        assert store.get(CARD.key("exact"), ["q1", "q2"]) == {}


FOREIGN = {
    "older": f"PRAGMA user_version={SCHEMA_VERSION - 1}",
    "newer": f"PRAGMA user_version={SCHEMA_VERSION + 1}",
    "bookmarks": "CREATE TABLE bookmarks (url TEXT)",
    "our number": f"CREATE TABLE bookmarks (url TEXT); PRAGMA user_version={SCHEMA_VERSION}",
    "our names": f"CREATE TABLE models (key TEXT); CREATE TABLE answers (model TEXT); PRAGMA user_version={SCHEMA_VERSION}",
}


@pytest.mark.parametrize("damage", ["text", "page", *FOREIGN])
def test_a_store_that_is_none_of_ours_is_named_and_moved_aside_by_a_run_alone(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.sqlite"
    if damage == "text":
        path.write_text("this is no database, and long enough to be looked at as one " * 20)
    elif damage in FOREIGN:
        with sqlite3.connect(path) as database:
            database.executescript(FOREIGN[damage])
        database.close()
    else:
        with AnswerCache(path) as store:
            store.put(CARD, "exact", {f"q{number}": ANSWER for number in range(500)})
        content = bytearray(path.read_bytes())
        content[4096:] = b"\x5a" * (len(content) - 4096)
        path.write_bytes(bytes(content))
    before = path.read_bytes()
    with pytest.raises(UndertowError, match=r"s\.sqlite"), AnswerCache(path) as store:
        store.get(CARD.key("exact"), [f"q{number}" for number in range(500)])
    assert path.read_bytes() == before
    with AnswerCache(path) as store:
        asked = run_queries(UNIFORM, [QUERY], store, EXACT, lambda done, total: None)
    assert asked.n_computed == 1
    aside = path.with_name(f"s.sqlite.{'foreign' if damage in FOREIGN else 'corrupt'}")
    assert aside.read_bytes() == before
    assert capsys.readouterr().err.count(aside.name) == 1
    with AnswerCache(path) as store:
        assert run_queries(UNIFORM, [QUERY], store, EXACT, lambda done, total: None).n_computed == 0


CUT = [("probs", "x'00ff'"), ("probs", "zeroblob(20)"), ("n_tokens", "x'00ff'")]
CUT += [("bounds", damage) for damage in ("x'00'", "zeroblob(40)", "'abcdefghijklmnop'", "3")]


@pytest.mark.parametrize(("column", "damage"), CUT)
def test_an_answer_that_was_cut_short_is_asked_again_and_the_others_are_there(
    column: str, damage: str, tmp_path: Path
) -> None:
    path, queries = tmp_path / "s.sqlite", [f"q{number}" for number in range(9)]
    whole = dataclasses.replace(ANSWER, n_tokens=(1, 3), upper_bound_prob=(0.1, 0.0), truncated_prob=0.2)
    with AnswerCache(path) as store:
        store.put(CARD, "exact", dict.fromkeys(queries, whole) | {"q8": ANSWER})
    with sqlite3.connect(path) as database:
        database.execute(f"UPDATE answers SET {column} = {damage} WHERE query = 'q7'")
    database.close()
    with AnswerCache(path) as store:
        kept = dict.fromkeys(queries[:7], whole) | {"q8": ANSWER}
        assert store.get(CARD.key("exact"), queries) == kept
        store.put(CARD, "exact", {"q7": whole})
        assert store.get(CARD.key("exact"), queries) == kept | {"q7": whole}
