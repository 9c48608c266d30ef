"""Answers kept in SQLite, so that no query is computed twice.

One SQLite file in WAL mode, keyed by model identity and query digest. Each batch is one transaction, written to
disk before the next batch starts, so a process that is killed loses at most the batch in progress.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np

from undertow._files import SAY_S, WAIT_S, locked, say
from undertow.errors import UndertowError
from undertow.types import Answer, ModelIdentity

T = TypeVar("T")

SCHEMA_VERSION = 4
TRY_S = 0.5
"""How long SQLite waits for another process by itself: meanwhile it hears no Ctrl-C."""
BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
NO_ROOM = {
    sqlite3.SQLITE_IOERR_WRITE: "its file cannot grow",
    sqlite3.SQLITE_IOERR_SHMSIZE: "its index cannot grow",
    sqlite3.SQLITE_IOERR_TRUNCATE: "its file cannot be resized",
}
"""What SQLite says only by number where a file system has no room for one of its files, or a limit of the process has none."""
NOT_MAPPED = (sqlite3.SQLITE_IOERR_SHMMAP, sqlite3.SQLITE_IOERR_MMAP, sqlite3.SQLITE_IOERR_NOMEM)
"""What it says likewise where there is no memory to map a file into."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS models (
    key TEXT PRIMARY KEY, card TEXT NOT NULL, protocol TEXT NOT NULL, notes TEXT NOT NULL, used REAL NOT NULL,
    facts TEXT NOT NULL DEFAULT '{}'
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS answers (
    model TEXT NOT NULL, query TEXT NOT NULL, numbers BLOB NOT NULL, unscored TEXT NOT NULL,
    written TEXT NOT NULL DEFAULT '', hidden BLOB NOT NULL DEFAULT x'', dropped INTEGER NOT NULL DEFAULT 0,
    spelled BLOB NOT NULL DEFAULT x'',
    PRIMARY KEY (model, query)
) WITHOUT ROWID;
"""
MAX_QUERIES_PER_SELECT = 500
"""Queries in one SELECT; SQLite allows 32,766 variables, older builds 999."""


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """The answers of one model in the cache.

    Attributes:
        model, revision, dtype, protocol: the model and how it was read.
        n_answers: number of answers.
        used: time of the last write, in seconds since the epoch.
        key: the model's part of the cache keys.
    """

    model: str
    revision: str
    dtype: str
    protocol: str
    n_answers: int
    used: float
    key: str


class CorruptCacheError(UndertowError):
    """The cache file is corrupt; it has not been changed."""


class AnswerCache:
    """Answers by model identity and query, in one file. A corrupt file raises on first use; `quarantine` moves it aside.

    Raises:
        UndertowError: the file is corrupt, cannot be written, is locked for too long, or the disk is full.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connect()

    def _connect(self) -> None:
        self._damage: CorruptCacheError | None = None
        try:
            with self._explained():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                # Not while another process moves a corrupt file aside: it would move what SQLite puts beside ours with it.
                with locked(self.path.parent):
                    self._database = sqlite3.connect(self.path, timeout=TRY_S, isolation_level=None)
                    try:
                        self._open()
                        self._file = _identity(self.path)
                    except BaseException:
                        # What a file that cannot be opened is has to be known too, so that no other is moved in its place.
                        self._file = _identity(self.path)
                        self._database.close()
                        raise
        except CorruptCacheError as error:
            self._damage = error

    def _open(self) -> None:
        version = self._rows("PRAGMA user_version")[0][0]
        if version not in (0, SCHEMA_VERSION):  # 0 is a file without tables
            raise UndertowError(
                f"{self.path}: was written by another version of Undertow (schema {version}, not {SCHEMA_VERSION}); move it away, "
                "or set UNDERTOW_CACHE to another folder"
            )
        # While another process makes the same file it holds it, and this pragma waits for nobody.
        self._rows("PRAGMA journal_mode=WAL")
        self._rows("PRAGMA synchronous=FULL")
        if version != SCHEMA_VERSION:
            with self._transaction():
                for statement in filter(str.strip, SCHEMA.split(";")):
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

    def quarantine(self) -> None:
        """Move a corrupt file aside, report it, and open a new one (or one that another process has started).

        Raises:
            UndertowError: the file cannot be moved, or no new one can be created.
        """
        damage, aside = self._damage, None
        self._database.close()
        try:
            with locked(self.path.parent):
                if self._file is not None and _identity(self.path) == self._file:
                    aside = _moved_aside(self.path)
        except OSError as error:
            raise UndertowError(
                f"{self.path}: the answer store is corrupt and cannot be moved aside ({error.strerror}); move it by hand, or set "
                "UNDERTOW_CACHE to another folder"
            ) from error
        if aside is not None:
            reason = f" ({damage.__cause__})" if damage and damage.__cause__ else ""
            say(
                f"{self.path}: the answer store is corrupt{reason}; it is now {aside.name}, and its answers are asked again"
            )
        self._connect()

    def get(self, model_key: str, queries: Sequence[str]) -> dict[str, Answer]:
        """The stored answers among these queries, by query digest."""
        answers: dict[str, Answer] = {}
        with self._explained():
            for start in range(0, len(queries), MAX_QUERIES_PER_SELECT):
                batch = queries[start : start + MAX_QUERIES_PER_SELECT]
                marks = ",".join("?" * len(batch))
                rows = self._rows(
                    "SELECT query, numbers, unscored, written, hidden, dropped, spelled FROM answers "  # noqa: S608 - marks alone
                    f"WHERE model = ? AND query IN ({marks})",
                    (model_key, *batch),
                )
                for query, *columns in rows:
                    # One answer that is cut short is asked again; the others are not to be had for nothing.
                    with suppress(sqlite3.DatabaseError):
                        answers[query] = self._unpack(query, columns)
        return answers

    def notes(self, model_key: str) -> tuple[str, ...]:
        """Notes on how the stored answers were read; () without answers."""
        with self._explained():
            rows = self._rows("SELECT notes FROM models WHERE key = ?", (model_key,))
            return tuple(_parsed(rows[0][0])) if rows else ()

    def facts(self, model_key: str) -> dict[str, str | float]:
        """Facts about the model when its answers were stored, such as parameters and training; {} without any."""
        with self._explained():
            rows = self._rows("SELECT facts FROM models WHERE key = ?", (model_key,))
            return dict(_parsed(rows[0][0])) if rows else {}

    def put(
        self,
        identity: ModelIdentity,
        protocol: str,
        answers: Mapping[str, Answer],
        notes: Sequence[str] = (),
        facts: Mapping[str, str | float] | None = None,
    ) -> None:
        """Store answers, notes and facts in one transaction."""
        key = identity.key(protocol)
        with self._explained():
            is_another = self._is_another()
        if is_another:
            # It was moved aside or removed while it was open: what is written to it now, nobody would find again.
            self.close()
            self._connect()
        with self._explained(), self._transaction():
            self._database.execute(
                "INSERT INTO models (key, card, protocol, notes, used, facts) VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (key) DO UPDATE SET notes = excluded.notes, used = excluded.used, facts = excluded.facts",
                (
                    key,
                    json.dumps(asdict(identity)),
                    protocol,
                    json.dumps(list(notes)),
                    time.time(),
                    json.dumps(facts or {}),
                ),
            )
            self._database.executemany(
                "INSERT OR REPLACE INTO answers (model, query, numbers, unscored, written, hidden, dropped, spelled) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        key,
                        query,
                        _pack(answer),
                        answer.missing_reason,
                        _whole(answer.text),
                        _pack_hidden(answer),
                        answer.n_dropped_shots,
                        _pack_tokens(answer),
                    )
                    for query, answer in answers.items()
                ],
            )

    def _is_another(self) -> bool:
        """Whether the path now holds another file than the one that is open, or none."""
        try:
            return _identity(self.path) != self._file
        except OSError as error:
            raise UndertowError(
                f"{self.path}: the answer store cannot be reached any more ({error.strerror}), so the last answers could not be kept; "
                "fix the folder, or set UNDERTOW_CACHE to another one, and run the same command again"
            ) from error

    def summary(self) -> list[CacheEntry]:
        """The models in the cache, the most recently used first."""
        with self._explained():
            rows = self._rows(
                "SELECT key, card, protocol, used, (SELECT count(*) FROM answers WHERE model = key) FROM models ORDER BY used DESC"
            )
            models = [(key, _parsed(identity), protocol, used, n) for key, identity, protocol, used, n in rows]
        return [
            CacheEntry(identity["name"], identity["revision"], identity["dtype"], protocol, n, used, key)
            for key, identity, protocol, used, n in models
        ]

    def prune(self, keys: Sequence[str]) -> int:
        """Delete the answers of these models; returns their number."""
        with self._explained():
            with self._transaction():
                n_answers = 0
                for key in keys:
                    n_answers += self._database.execute("DELETE FROM answers WHERE model = ?", (key,)).rowcount
                    self._database.execute("DELETE FROM models WHERE key = ?", (key,))
            self._rows("VACUUM")
        return n_answers

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._rows("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            # Where there is no room SQLite has rolled back by itself, and would only say that there is nothing to roll back.
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    def _rows(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """Rows of a statement; waits for a process that locks the file."""
        return self._patiently(lambda: self._database.execute(statement, values).fetchall())

    def _patiently(self, action: Callable[[], T]) -> T:
        """Retry while the file is locked; report a long wait once."""
        started, is_announced = time.monotonic(), False
        while True:
            try:
                return action()
            except sqlite3.OperationalError as error:
                waited_s = time.monotonic() - started
                if _code(error) & 0xFF not in BUSY or waited_s > WAIT_S:
                    raise
            if waited_s > SAY_S and not is_announced:
                is_announced = True
                say(f"{self.path}: waiting for another process that holds the answer store")
            time.sleep(0.02)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of SQLite and the file system into one sentence that a user can act on."""
        if self._damage is not None:
            raise self._damage
        try:
            yield
        except sqlite3.Error as error:
            # What SQLite has a kind of its own for is no damage: a lock, a full disk, an answer that it cannot hold.
            if type(error) is not sqlite3.DatabaseError:
                raise UndertowError(_unusable(self.path, error)) from error
            self._damage = CorruptCacheError(
                f"{self.path}: the answer store is corrupt ({error}); move the file aside and run again, its answers are asked again"
            )
            raise self._damage from error
        except OSError as error:
            raise UndertowError(
                f"{self.path}: the answer store cannot be made ({error.strerror}); set UNDERTOW_CACHE to a folder you can write to"
            ) from error

    def _unpack(self, query: str, columns: Sequence[Any]) -> Answer:
        numbers, missing_reason, text, hidden, dropped, spelled = columns
        if not isinstance(numbers, bytes) or len(numbers) % 8 or len(numbers) < (8 if missing_reason else 16):
            raise sqlite3.DatabaseError(f"answer {query[:12]} is cut short")
        if not isinstance(hidden, bytes) or len(hidden) not in (0, len(numbers)):
            raise sqlite3.DatabaseError(f"what answer {query[:12]} does not show is cut short")
        if not isinstance(spelled, bytes) or len(spelled) not in (0, len(numbers) - 8):
            raise sqlite3.DatabaseError(f"how the options of answer {query[:12]} are spelled is cut short")
        other_prob, *logprobs = np.frombuffer(numbers, dtype="<f8").tolist()
        unseen, *ceilings = np.frombuffer(hidden, dtype="<f8").tolist() if hidden else [0.0]
        n_tokens = tuple(np.frombuffer(spelled, dtype="<i8").tolist())
        return Answer(
            tuple(logprobs), other_prob, missing_reason, text, tuple(ceilings), unseen, int(dropped), n_tokens
        )


def _parsed(text: object) -> Any:
    try:
        return json.loads(str(text))
    except ValueError as error:
        raise sqlite3.DatabaseError("what it says of a model is no JSON") from error


def _pack(answer: Answer) -> bytes:
    return np.array([answer.other_prob, *answer.logprobs_nats], dtype="<f8").tobytes()


def _whole(text: str) -> str:
    """Text that can be encoded: a lone surrogate, as a server may send, becomes a question mark."""
    return text.encode("utf-8", "replace").decode()


def _pack_hidden(answer: Answer) -> bytes:
    if not answer.upper_bound_prob:
        return b""
    return np.array([answer.truncated_prob, *answer.upper_bound_prob], dtype="<f8").tobytes()


def _pack_tokens(answer: Answer) -> bytes:
    return np.array(answer.n_tokens, dtype="<i8").tobytes()


def _unusable(path: Path, error: sqlite3.Error) -> str:
    if _code(error) == sqlite3.SQLITE_FULL or _code(error) in NO_ROOM:
        reason = NO_ROOM.get(_code(error), "the disk is full")
        return (
            f"{path}: {reason}, so the last answers could not be kept; free some space and run the same command again"
        )
    if _code(error) & 0xFF in BUSY:
        return f"{path}: another process has held the answer store for {WAIT_S:.0f} seconds; wait for it to end and run again"
    if _code(error) in NOT_MAPPED:
        return (
            f"{path}: memory ran out, or its file system maps no files, so the answer store cannot be used; "
            "free some memory, or set UNDERTOW_CACHE to another folder"
        )
    return f"{path}: the answer store cannot be used ({error}); check the folder, or set UNDERTOW_CACHE to another one"


def _code(error: sqlite3.Error) -> int:
    """SQLite's extended error code; 0 for an error that Python raised."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0)


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file; None if there is no file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _moved_aside(path: Path) -> Path:
    """Move the database before its WAL and index: without it they belong to no answers, and SQLite removes them."""
    aside, number = path.with_name(f"{path.name}.corrupt"), 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.corrupt-{number}")
    path.rename(aside)
    for ending in ("-wal", "-shm"):
        beside = path.with_name(path.name + ending)
        if beside.exists():
            beside.rename(aside.with_name(aside.name + ending))
    return aside
