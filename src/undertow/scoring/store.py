"""The answer store: what a model said once is not asked again.

One SQLite file in WAL mode, keyed by model card and query. Each forward pass is one transaction, so a process that
is killed loses at most the pass it was in. Knows nothing about models beyond their cards.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from undertow.types import Answer, ModelCard, UndertowError

SCHEMA_VERSION = 3
WAIT_S = 120.0
"""How long another process may hold the store before we give up."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS models (
    key TEXT PRIMARY KEY, card TEXT NOT NULL, protocol TEXT NOT NULL, notes TEXT NOT NULL, used REAL NOT NULL,
    facts TEXT NOT NULL DEFAULT '{}'
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS answers (
    model TEXT NOT NULL, query TEXT NOT NULL, numbers BLOB NOT NULL, unscored TEXT NOT NULL,
    written TEXT NOT NULL DEFAULT '', hidden BLOB NOT NULL DEFAULT x'', dropped INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (model, query)
) WITHOUT ROWID;
"""
FROM_1 = """
ALTER TABLE models ADD COLUMN facts TEXT NOT NULL DEFAULT '{}';
ALTER TABLE answers ADD COLUMN written TEXT NOT NULL DEFAULT '';
ALTER TABLE answers ADD COLUMN hidden BLOB NOT NULL DEFAULT x'';
"""
"""What a file of schema 1 lacks: what models wrote, what they did not show, and what is known of them."""
FROM_2 = "ALTER TABLE answers ADD COLUMN dropped INTEGER NOT NULL DEFAULT 0;"
"""What a file of schema 2 lacks: how many examples had no room before a prompt."""
ASK_AT_ONCE = 500
"""Queries in one SELECT; SQLite allows 32,766 variables, older builds 999."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """What the store holds of one model.

    Attributes:
        model, revision, dtype, protocol: which model, and how it was read.
        n_answers: how many answers.
        used: when it was last written to, in seconds since the epoch.
        key: the model's half of the keys.
    """

    model: str
    revision: str
    dtype: str
    protocol: str
    n_answers: int
    used: float
    key: str


class AnswerStore:
    """Answers by model card and query, in one file.

    Raises:
        UndertowError: the file is damaged, cannot be written, is locked for too long, or the disk is full.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None)
            try:
                self._open()
            except BaseException:
                self._database.close()
                raise

    def _open(self) -> None:
        version = self._database.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise UndertowError(
                f"{self.path}: was written by a newer Undertow (schema {version}); update, or set UNDERTOW_CACHE to another folder"
            )
        self._use_wal()
        self._database.execute("PRAGMA synchronous=FULL")
        if version < SCHEMA_VERSION:
            self._upgrade()

    def _use_wal(self) -> None:
        """Another process that makes the same file holds it for a moment, and this pragma waits for nobody."""
        until = time.monotonic() + WAIT_S
        while True:
            try:
                self._database.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.02)

    def _upgrade(self) -> None:
        """One process does it; another that waited for the file finds it done."""
        with self._transaction():
            columns = {row[1] for row in self._database.execute("PRAGMA table_info(answers)")}
            # Its tables tell more than its number, which is written last.
            script = FROM_1 if "written" not in columns else ""
            script += FROM_2 if "dropped" not in columns else ""
            for statement in filter(str.strip, (script if columns else SCHEMA).split(";")):
                self._database.execute(statement)
            self._database.execute(f"PRAGMA user_version={SCHEMA_VERSION}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def get(self, model_key: str, queries: Sequence[str]) -> dict[str, Answer]:
        """The stored answers among these queries, by query digest."""
        found: dict[str, Answer] = {}
        with self._explained():
            for start in range(0, len(queries), ASK_AT_ONCE):
                asked = queries[start : start + ASK_AT_ONCE]
                marks = ",".join("?" * len(asked))
                rows = self._database.execute(
                    f"SELECT query, numbers, unscored, written, hidden, dropped FROM answers WHERE model = ? AND query IN ({marks})",  # noqa: S608
                    (model_key, *asked),
                )
                found |= {query: self._unpack(query, columns) for query, *columns in rows}
        return found

    def notes(self, model_key: str) -> tuple[str, ...]:
        """How the model was read when its answers were stored; () if none are."""
        with self._explained():
            row = self._database.execute("SELECT notes FROM models WHERE key = ?", (model_key,)).fetchone()
            return tuple(_parsed(row[0])) if row else ()

    def facts(self, model_key: str) -> dict[str, str | float]:
        """What was known of the model when its answers were stored: its parameters and training; {} if nothing."""
        with self._explained():
            row = self._database.execute("SELECT facts FROM models WHERE key = ?", (model_key,)).fetchone()
            return dict(_parsed(row[0])) if row else {}

    def put(
        self,
        card: ModelCard,
        protocol: str,
        answers: Mapping[str, Answer],
        notes: Sequence[str] = (),
        facts: Mapping[str, str | float] | None = None,
    ) -> None:
        """Keep answers, all or none of them, how the model was read to get them, and what is known of it."""
        key = card.key(protocol)
        with self._explained(), self._transaction():
            self._database.execute(
                "INSERT INTO models (key, card, protocol, notes, used, facts) VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (key) DO UPDATE SET notes = excluded.notes, used = excluded.used, facts = excluded.facts",
                (
                    key,
                    json.dumps(asdict(card)),
                    protocol,
                    json.dumps(list(notes)),
                    time.time(),
                    json.dumps(facts or {}),
                ),
            )
            self._database.executemany(
                "INSERT OR REPLACE INTO answers (model, query, numbers, unscored, written, hidden, dropped) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        key,
                        query,
                        _pack(answer),
                        answer.unscored,
                        _whole(answer.text),
                        _pack_hidden(answer),
                        answer.n_dropped,
                    )
                    for query, answer in answers.items()
                ],
            )

    def shelves(self) -> list[Shelf]:
        """What is stored, by model, the most recently used first."""
        with self._explained():
            rows = self._database.execute(
                "SELECT key, card, protocol, used, (SELECT count(*) FROM answers WHERE model = key) FROM models ORDER BY used DESC"
            ).fetchall()
            cards = [(key, _parsed(card), protocol, used, n) for key, card, protocol, used, n in rows]
        return [
            Shelf(card["name"], card["revision"], card["dtype"], protocol, n, used, key)
            for key, card, protocol, used, n in cards
        ]

    def prune(self, keys: Sequence[str]) -> int:
        """Forget the answers of these models; returns how many there were."""
        with self._explained():
            with self._transaction():
                n_answers = 0
                for key in keys:
                    n_answers += self._database.execute("DELETE FROM answers WHERE model = ?", (key,)).rowcount
                    self._database.execute("DELETE FROM models WHERE key = ?", (key,))
            self._database.execute("VACUUM")
        return n_answers

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what SQLite and the file system say into one sentence that a user can act on."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise UndertowError(_operational(self.path, str(error))) from error
        except sqlite3.DatabaseError as error:
            raise UndertowError(
                f"{self.path}: the answer store is damaged ({error}); move the file aside and run again, its answers are asked anew"
            ) from error
        except OSError as error:
            raise UndertowError(
                f"{self.path}: the answer store cannot be made ({error.strerror}); set UNDERTOW_CACHE to a folder you can write to"
            ) from error

    def _unpack(self, query: str, columns: Sequence[Any]) -> Answer:
        numbers, unscored, text, hidden, dropped = columns
        if not isinstance(numbers, bytes) or len(numbers) % 8 or len(numbers) < (8 if unscored else 16):
            raise sqlite3.DatabaseError(f"answer {query[:12]} is cut short")
        if not isinstance(hidden, bytes) or len(hidden) not in (0, len(numbers)):
            raise sqlite3.DatabaseError(f"what answer {query[:12]} does not show is cut short")
        unclaimed, *logprobs = np.frombuffer(numbers, dtype="<f8").tolist()
        unseen, *ceilings = np.frombuffer(hidden, dtype="<f8").tolist() if hidden else [0.0]
        return Answer(tuple(logprobs), unclaimed, unscored, text, tuple(ceilings), unseen, int(dropped))


def _parsed(text: object) -> Any:
    try:
        return json.loads(str(text))
    except ValueError as error:
        raise sqlite3.DatabaseError("what it says of a model is no JSON") from error


def _pack(answer: Answer) -> bytes:
    return np.array([answer.unclaimed_prob, *answer.logprobs_nats], dtype="<f8").tobytes()


def _whole(text: str) -> str:
    """Text that can be written: half a character, as a server may send it, becomes a question mark."""
    return text.encode("utf-8", "replace").decode()


def _pack_hidden(answer: Answer) -> bytes:
    if not answer.ceilings_prob:
        return b""
    return np.array([answer.unseen_prob, *answer.ceilings_prob], dtype="<f8").tobytes()


def _operational(path: Path, error: str) -> str:
    if "full" in error:
        return f"{path}: the disk is full, so the last answers could not be kept; free some space and run the same command again"
    if "locked" in error or "busy" in error:
        return f"{path}: another process has held the answer store for {WAIT_S:.0f} seconds; wait for it to end and run again"
    return f"{path}: the answer store cannot be used ({error}); check the folder, or set UNDERTOW_CACHE to another one"
