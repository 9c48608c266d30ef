"""Answer cache in SQLite, so that no query is computed twice.

One SQLite file in WAL mode, keyed by model identity and query digest. Answers are written to disk as they arrive, in
transactions, so a process that is killed loses at most the batch in progress and a second of work.
"""

from __future__ import annotations

import json
import sqlite3
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from undertow._folders import LOCK_TIMEOUT_S, WAIT_NOTICE_S, lock_folder, notify
from undertow.errors import UndertowError
from undertow.types import Answer, ModelIdentity

SCHEMA_VERSION = 7
SYNCHRONOUS = "FULL"
"""SQLite's mode in which a committed transaction survives a power failure."""
LOCK_RETRY_S = 0.5
"""Seconds that SQLite itself waits for a lock; it ignores Ctrl-C meanwhile."""
BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
DISK_FULL_CODES = {
    sqlite3.SQLITE_IOERR_WRITE: "its file cannot grow",
    sqlite3.SQLITE_IOERR_SHMSIZE: "its index cannot grow",
    sqlite3.SQLITE_IOERR_TRUNCATE: "its file cannot be resized",
}
"""SQLite error codes of a full disk or a file size limit, which have no message of their own."""
MAP_FAILED_CODES = (sqlite3.SQLITE_IOERR_SHMMAP, sqlite3.SQLITE_IOERR_MMAP, sqlite3.SQLITE_IOERR_NOMEM)
"""SQLite error codes for memory maps that fail."""

SCHEMA = """
CREATE TABLE models (
    key TEXT PRIMARY KEY, identity TEXT NOT NULL, protocol TEXT NOT NULL, notes TEXT NOT NULL, used REAL NOT NULL,
    facts TEXT NOT NULL DEFAULT '{}'
) WITHOUT ROWID;
CREATE TABLE answers (
    model TEXT NOT NULL, query TEXT NOT NULL, probs BLOB NOT NULL, missing_reason TEXT NOT NULL,
    text TEXT NOT NULL DEFAULT '', bounds BLOB NOT NULL DEFAULT x'', n_dropped_shots INTEGER NOT NULL DEFAULT 0,
    n_tokens BLOB NOT NULL DEFAULT x'', spaced BLOB NOT NULL DEFAULT x'', cut_at_tokens INTEGER NOT NULL DEFAULT 0,
    served_as TEXT NOT NULL DEFAULT '', stored_s REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (model, query)
) WITHOUT ROWID;
"""
STATEMENTS = tuple(filter(None, map(str.strip, SCHEMA.split(";"))))
COLUMNS = "probs, missing_reason, text, bounds, n_dropped_shots, n_tokens, spaced, cut_at_tokens, served_as, stored_s"
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


class UnreadableCacheError(UndertowError):
    """The cache file is corrupt, or was written by something else; it has not been changed.

    Attributes:
        problem: what it is, as in *the answer cache is corrupt*.
        ending: of its name, when it is moved aside.
    """

    def __init__(self, path: Path, problem: str, ending: str) -> None:
        super().__init__(
            f"{path}: the answer cache {problem}; move the file aside, or start a run, which does so and computes its answers again"
        )
        self.problem, self.ending = problem, ending


class AnswerCache:
    """Answers by model identity and query, in one file. A corrupt or foreign file raises on first use; `quarantine` moves it aside.

    Raises:
        UndertowError: the file is corrupt, of another program or schema, cannot be written, is locked for too long, or the disk is full.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connect()

    def _connect(self) -> None:
        self._fault: UnreadableCacheError | None = None
        try:
            with self._clear_errors():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                # Not while another process moves an unreadable file aside: it would move the WAL and index of ours with it.
                with lock_folder(self.path.parent):
                    self._database = sqlite3.connect(self.path, timeout=LOCK_RETRY_S, isolation_level=None)
                    try:
                        self._open()
                    except BaseException:
                        self._database.close()
                        raise
                    finally:  # one that could not be opened too, so that `quarantine` moves no other in its place
                        self._file = _identity(self.path)
        except UnreadableCacheError as error:
            self._fault = error

    def _open(self) -> None:
        # One statement: another process may create the tables between two.
        version, tables = self._rows(
            "SELECT user_version, (SELECT json_group_array(sql) FROM sqlite_master) FROM pragma_user_version"
        )[0]
        if version not in (0, SCHEMA_VERSION):
            raise UnreadableCacheError(self.path, f"has schema {version}, not {SCHEMA_VERSION}", "foreign")
        own = _parse_json(tables)
        if own if version == 0 else not set(STATEMENTS) <= set(own):
            raise UnreadableCacheError(self.path, "has tables of another program", "foreign")
        # Another process that creates the file locks it, and this pragma does not wait.
        self._rows("PRAGMA journal_mode=WAL")
        self._rows(f"PRAGMA synchronous={SYNCHRONOUS}")
        if version != SCHEMA_VERSION:
            with self._transaction():
                for statement in STATEMENTS:
                    self._database.execute(statement)
                self._database.execute(f"PRAGMA user_version={SCHEMA_VERSION}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def quarantine(self) -> None:
        """Move an unreadable file aside, report it, and open a new one (or one that another process has started).

        Raises:
            UndertowError: the file cannot be moved, or no new one can be created.
        """
        fault, aside = self._fault, None
        assert fault is not None, "nothing to move aside"
        self._database.close()
        try:
            with lock_folder(self.path.parent):
                if self._file is not None and _identity(self.path) == self._file:
                    aside = _move_aside(self.path, fault.ending)
        except OSError as error:
            raise UndertowError(
                f"{self.path}: the answer cache {fault.problem} and cannot be moved aside ({error.strerror}); move it by hand, or set "
                "UNDERTOW_CACHE to another folder"
            ) from error
        if aside is not None:
            notify(
                f"{self.path}: the answer cache {fault.problem}; it is now {aside.name}, and its answers are computed again"
            )
        self._connect()

    def get(self, model_key: str, queries: Sequence[str]) -> dict[str, Answer]:
        """The stored answers among these queries, by query digest."""
        answers: dict[str, Answer] = {}
        with self._clear_errors():
            for start in range(0, len(queries), MAX_QUERIES_PER_SELECT):
                batch = queries[start : start + MAX_QUERIES_PER_SELECT]
                marks = ",".join("?" * len(batch))
                rows = self._rows(
                    f"SELECT query, {COLUMNS} FROM answers "  # noqa: S608 - constants and question marks
                    f"WHERE model = ? AND query IN ({marks})",
                    (model_key, *batch),
                )
                for query, *columns in rows:
                    if (answer := _unpack(columns)) is not None:  # a truncated one is computed again
                        answers[query] = answer
        return answers

    def notes_and_facts(self, model_key: str) -> tuple[tuple[str, ...], dict[str, str | float]]:
        """Notes on how the stored answers were read, and facts about the model at that time; empty without answers."""
        with self._clear_errors():
            rows = self._rows("SELECT notes, facts FROM models WHERE key = ?", (model_key,))
            notes, facts = map(_parse_json, rows[0] if rows else ("[]", "{}"))
            return tuple(notes), facts

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
        self._reopen_if_replaced()
        named, noted, known = map(json.dumps, (identity.as_dict(), list(notes), facts or {}))
        row_marks, now_s = ",".join("?" * (COLUMNS.count(",") + 3)), time.time()
        with self._clear_errors(), self._transaction():
            self._database.execute(
                "INSERT INTO models (key, identity, protocol, notes, used, facts) VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (key) DO UPDATE SET notes = excluded.notes, used = excluded.used, facts = excluded.facts",
                (key, named, protocol, noted, now_s, known),
            )
            self._database.executemany(
                f"INSERT OR REPLACE INTO answers (model, query, {COLUMNS}) VALUES ({row_marks})",  # noqa: S608 - constants
                # Sorted by key, so that rows of one page are written together.
                [(key, query, *_pack(answer), now_s) for query, answer in sorted(answers.items())],
            )

    def _reopen_if_replaced(self) -> None:
        """Open the path again if it holds another file than before, or none: nobody would find what is written to the old one."""
        if self._fault is not None:
            raise self._fault
        try:
            if _identity(self.path) == self._file:
                return
        except OSError as error:
            raise UndertowError(
                f"{self.path}: the answer cache cannot be reached any more ({error.strerror}), so the last answers could not be stored; "
                "fix the folder, or set UNDERTOW_CACHE to another one, and run the same command again"
            ) from error
        self.close()
        self._connect()

    def summary(self) -> list[CacheEntry]:
        """The models in the cache, the most recently used first."""
        with self._clear_errors():
            rows = self._rows(
                "SELECT identity, protocol, (SELECT count(*) FROM answers WHERE model = key), used, key FROM models ORDER BY used DESC"
            )
            models = [(_parse_json(identity), *columns) for identity, *columns in rows]
        return [CacheEntry(model["name"], model["revision"], model["dtype"], *columns) for model, *columns in models]

    def prune(self, keys: Sequence[str]) -> int:
        """Delete the answers of these models; returns their number."""
        with self._clear_errors():
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
            # On a full disk SQLite has rolled back already and would report that there is no transaction.
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    def _rows(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """Rows of a statement; waits for a process that locks the file, and reports a long wait once."""
        started, is_announced = time.monotonic(), False
        while True:
            try:
                return self._database.execute(statement, values).fetchall()
            except sqlite3.OperationalError as error:
                waited_s = time.monotonic() - started
                if _code(error) & 0xFF not in BUSY or waited_s > LOCK_TIMEOUT_S:
                    raise
            if waited_s > WAIT_NOTICE_S and not is_announced:
                is_announced = True
                notify(f"{self.path}: waiting for another process that has locked the answer cache")
            time.sleep(0.02)

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        """Turn errors of SQLite and the file system into one sentence that a user can act on."""
        if self._fault is not None:
            raise self._fault
        try:
            yield
        except sqlite3.Error as error:
            # Subclasses mean other problems than corruption: a lock, a full disk, a value that is too large.
            if type(error) is not sqlite3.DatabaseError:
                raise UndertowError(_sqlite_error(self.path, error)) from error
            self._fault = UnreadableCacheError(self.path, f"is corrupt ({error})", "corrupt")
            raise self._fault from error
        except OSError as error:
            raise UndertowError(
                f"{self.path}: the answer cache cannot be created ({error.strerror}); set UNDERTOW_CACHE to a folder you can write to"
            ) from error


def _pack(answer: Answer) -> tuple[bytes, str, str, bytes, int, bytes, bytes, int, str]:
    """The columns of an answer, without the time. A lone surrogate in its text, as a server may send, becomes a question mark."""
    bounds = [answer.truncated_prob, *answer.upper_bound_prob] if answer.upper_bound_prob else []
    return (
        _packed("d", [answer.other_prob, *answer.logprobs_nats]),
        answer.missing_reason,
        answer.text.encode("utf-8", "replace").decode(),
        _packed("d", bounds),
        answer.n_dropped_shots,
        _packed("q", answer.n_tokens),
        _packed("d", answer.spaced_nats),
        answer.cut_at_tokens,
        answer.served_as,
    )


def _packed(kind: str, numbers: Sequence[float]) -> bytes:
    """Numbers in 8 bytes each, little-endian: floats (`d`) or integers (`q`)."""
    return struct.pack(f"<{len(numbers)}{kind}", *numbers)


def _unpack(columns: Sequence[Any]) -> Answer | None:
    """The answer in these columns; None if one of them is truncated."""
    probs, missing_reason, text, bounds, n_dropped_shots, token_counts, spaced, cut_at_tokens, served_as, stored_s = (
        columns
    )
    if not type(probs) is type(bounds) is type(token_counts) is type(spaced) is bytes:
        return None
    size = len(probs)
    is_whole = size % 8 == 0 and size >= (8 if missing_reason else 16) and len(bounds) in (0, size)
    if not is_whole or not {len(token_counts), len(spaced)} <= {0, size - 8}:
        return None
    other_prob, *logprobs = np.frombuffer(probs, dtype="<f8").tolist()
    truncated_prob, *upper_bounds = np.frombuffer(bounds, dtype="<f8").tolist() if bounds else [0.0]
    return Answer(
        tuple(logprobs),
        other_prob,
        missing_reason,
        text,
        tuple(upper_bounds),
        truncated_prob,
        int(n_dropped_shots),
        tuple(np.frombuffer(token_counts, dtype="<i8").tolist()),
        tuple(np.frombuffer(spaced, dtype="<f8").tolist()),
        cut_at_tokens=int(cut_at_tokens),
        served_as=str(served_as),
        stored_s=float(stored_s),
    )


def _parse_json(text: object) -> Any:
    try:
        return json.loads(str(text))
    except ValueError as error:
        raise sqlite3.DatabaseError("a model's notes or facts are not JSON") from error


def _sqlite_error(path: Path, error: sqlite3.Error) -> str:
    """What an error of SQLite means, and what to do."""
    code = _code(error)
    if code == sqlite3.SQLITE_FULL or code in DISK_FULL_CODES:
        reason = DISK_FULL_CODES.get(code, "the disk is full")
        problem = f"{reason}, so the last answers could not be stored; free some space and run the same command again"
    elif code & 0xFF in BUSY:
        problem = f"another process has held the answer cache for {LOCK_TIMEOUT_S:.0f} seconds; wait for it to end and run again"
    elif code in MAP_FAILED_CODES:
        problem = (
            "memory ran out, or the file system cannot map files, so the answer cache cannot be used; free some memory, or set "
            "UNDERTOW_CACHE to another folder"
        )
    else:
        problem = f"the answer cache cannot be used ({error}); check the folder, or set UNDERTOW_CACHE to another one"
    return f"{path}: {problem}"


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


def _move_aside(path: Path, ending: str) -> Path:
    """Move the database before its WAL and index: without it they belong to no answers, and SQLite removes them."""
    aside, number = path.with_name(f"{path.name}.{ending}"), 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.{ending}-{number}")
    path.rename(aside)
    for part in ("-wal", "-shm"):
        beside = path.with_name(path.name + part)
        if beside.exists():
            beside.rename(aside.with_name(aside.name + part))
    return aside
