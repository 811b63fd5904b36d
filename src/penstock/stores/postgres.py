"""PostgreSQL: one transaction an advance, many servers on one database.

Of the transactional family: a turn locks its row, so the writers of several processes wait for each other. A
commit takes two round trips: begin and read the row; store the objects, replace the row and commit. What the
second one meets and should not is an error to the server, which then skips the commit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import local
from typing import Final

from penstock.errors import (
    Damaged,
    Denied,
    InvalidRequest,
    LakeNotFound,
    OutcomeUnknown,
    PenstockError,
    Unavailable,
    UnsupportedFormat,
)
from penstock.model.clock import Clock, now_us
from penstock.model.encoding import ObjectId
from penstock.storage.disk_space import storage_full_error
from penstock.stores.port import AdvanceResult, Row, Store, StoredObject, Turn
from penstock.stores.postgres_sql import (
    BEGIN,
    CARELESS,
    COLUMNS,
    COMMIT,
    FOUND_COLUMNS,
    MARK,
    MIGRATIONS,
    NAMESPACE,
    PRIMARY_KEYS,
    RELATIONS,
    ROLLBACK,
    SqlStatement,
    Statements,
    Step,
    decode_integer,
    encode_bytes_array,
    encode_integer_array,
)
from penstock.stores.postgres_wire import (
    ConnectionLost,
    ConnectionPool,
    PostgresPlace,
    PostgresSession,
    StatementRefused,
    StatementResult,
)

CREATE_TIMEOUT_S: Final = 20.0

OBJECTS_MAX: Final = 1000
OBJECTS_MAX_BYTES: Final = 8 * 1024 * 1024
"""Of one statement."""

_MET_ANOTHER: Final = ("23505", "42P06", "42P07", "40001", "40P01", "XX000")
"""What the server says to the second of two who create the same thing at once."""
_IS_THERE: Final = "23505"
_DISK_FULL: Final = "53100"
_UNKNOWN: Final = ("40003", "08007")


class PostgresStore(Store):
    """A lake in one schema of a PostgreSQL database.

    ``postgresql://user@host/database?schema=penstock&pool_max=16``, and whatever else libpq takes. A password
    is best left to ``PGPASSWORD``, ``PGPASSFILE`` or a service file.
    """

    def __init__(self, url: str, *, create: bool = True, clock: Clock = now_us) -> None:
        place = PostgresPlace(url)
        self.url = place.shown
        self._clock = clock
        self._process = os.getpid()
        self._schema = place.schema
        self._sql = Statements(f'"{place.schema}"')
        self._pool = ConnectionPool(place)
        self._in_turn = local()
        try:
            self._create_or_migrate_schema(create)
        except BaseException:
            self.close()
            raise

    # -- the schema --------------------------------------------------------------------------------------

    def _create_or_migrate_schema(self, create: bool) -> None:
        """Make or migrate the schema, whoever comes first; refuse what is not ours or too new."""
        deadline = time.monotonic() + CREATE_TIMEOUT_S
        while (version := self._read_version()) < len(MIGRATIONS):
            if not create:
                raise self._unprepared_error(version)
            session, _ = self._start_on_connection(BEGIN())
            try:
                self._migrate_schema(session, version)
            except (StatementRefused, ConnectionLost) as problem:
                if problem.state not in _MET_ANOTHER or time.monotonic() > deadline:
                    raise self._explain_refusal(problem) from problem
            finally:
                self._pool.return_session(session)

    def _read_version(self) -> int:
        """The schema's version, 0 if there is none; another program's tables are left as they are."""
        (result,) = self._run_repeatable(RELATIONS(self._schema))
        tables = {table.decode() for (table,) in result.rows}
        if MARK not in tables:
            if tables:
                raise InvalidRequest(
                    f"schema '{self._schema}' of {self.url} contains tables of another program; choose "
                    "another schema with ?schema=",
                    schema=self._schema,
                )
            return 0
        (result,) = self._run_repeatable(self._sql.version())
        versions = [decode_integer(version) for (version,) in result.rows]
        if len(versions) != 1:
            raise self._damaged_error(f"table {MARK} has {len(versions)} rows, not one")
        if versions[0] > len(MIGRATIONS):
            raise UnsupportedFormat(
                f"{self.url} has schema version {versions[0]}; this Penstock reads versions up to "
                f"{len(MIGRATIONS)}. Use a newer Penstock.",
                found=versions[0],
                known=len(MIGRATIONS),
            )
        return versions[0]

    def _unprepared_error(self, version: int) -> PenstockError:
        if version:
            return UnsupportedFormat(
                f"{self.url} has schema version {version}, and this Penstock needs {len(MIGRATIONS)}: "
                f"run penstock init '{self.url}' to migrate it",
                found=version,
                known=len(MIGRATIONS),
            )
        return LakeNotFound(
            f"there is no lake at {self.url}: run penstock init '{self.url}' to make one", url=self.url
        )

    def _migrate_schema(self, session: PostgresSession, version: int) -> None:
        """From one version to the newest, within the transaction that has begun; nothing if another did."""
        schema, steps = f'"{self._schema}"', list[str]()
        if version:
            (locked,) = session.run_statements(self._sql.lock_version())
            if decode_integer(locked.rows[0][0]) != version:
                return
        else:
            (namespaces,) = session.run_statements(NAMESPACE(self._schema))
            if not namespaces.rows:
                steps.append(f"CREATE SCHEMA {schema}")
            steps.append(f"CREATE TABLE {schema}.{MARK} (version bigint PRIMARY KEY)")
            steps.append(f"INSERT INTO {schema}.{MARK} VALUES (0)")
        for migration in MIGRATIONS[version:]:
            steps += [step.format(schema) for step in migration]
        steps.append(f"UPDATE {schema}.{MARK} SET version = {len(MIGRATIONS)}")
        session.run_statements(*(SqlStatement(step)() for step in steps), COMMIT())

    def check(self) -> list[str]:
        name = self._schema
        columns, keys, careless = self._run_repeatable(FOUND_COLUMNS(name), PRIMARY_KEYS(name), CARELESS())
        present = {tuple(value.decode() for value in row) for row in columns.rows}
        keyed = {table.decode() for (table,) in keys.rows}
        problems = [
            f"{table}.{column} is missing or not of type {kind}" for table, column, kind in COLUMNS - present
        ]
        problems += [f"table {table} has lost its primary key" for table, *_ in COLUMNS if table not in keyed]
        problems += [
            (f"the server runs with {name.decode()} off: acknowledged commits may be lost in a power failure")
            for (name,) in careless.rows
        ]
        return sorted(set(problems))

    # -- connections and errors --------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._pool.is_closed:
            raise InvalidRequest(f"{self.url} was closed; open the lake again")
        if os.getpid() != self._process:
            raise InvalidRequest("a lake cannot be used across a fork; open it again in the child process")

    def _run_repeatable(self, *steps: Step) -> list[StatementResult]:
        """Run what can be repeated.

        A thread in a turn does so on the turn's connection: threads that hold one never wait for another.
        """
        self._check_open()
        session: PostgresSession | None = getattr(self._in_turn, "session", None)
        if session is not None:
            with self._explain_errors():
                return session.run_statements(*steps)
        session, results = self._start_on_connection(*steps)
        self._pool.return_session(session)
        return results

    def _start_on_connection(self, *steps: Step) -> tuple[PostgresSession, list[StatementResult]]:
        """Run statements on a connection that is the caller's then; on a new one if the first was lost."""
        self._check_open()
        with self._explain_errors():
            try:
                return self._start_once(steps)
            except ConnectionLost:
                self._pool.drop_idle()  # they will have been lost with it
                return self._start_once(steps)

    def _start_once(self, steps: tuple[Step, ...]) -> tuple[PostgresSession, list[StatementResult]]:
        session = self._pool.take_session()
        try:
            return session, session.run_statements(*steps)
        except BaseException:
            session.close()
            self._pool.return_session(session)
            raise

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Turn the server's errors into ours."""
        try:
            yield
        except (StatementRefused, ConnectionLost) as problem:
            raise self._explain_refusal(problem) from problem

    def _explain_refusal(self, problem: StatementRefused | ConnectionLost) -> PenstockError:
        state = problem.state
        if state in ("42501", "25006") or state.startswith("28"):
            return Denied(f"{self.url} denies access: {problem}")
        if state in ("42P01", "3F000"):
            return LakeNotFound(f"there is no longer a lake at {self.url}: {problem}", url=self.url)
        if state in ("42703", "42804", "42883", "XX001", "XX002"):
            return self._damaged_error(str(problem))
        if state == _DISK_FULL:
            return storage_full_error(f"the database server of {self.url}", str(problem), url=self.url)
        return Unavailable(f"{self.url} cannot be used: {problem}")

    def _damaged_error(self, subject: str) -> Damaged:
        return Damaged(f"{self.url} is damaged: {subject}", url=self.url)

    def scrub(self) -> str:
        """Write both tables anew: pages hold what was deleted until something else takes its place."""
        try:
            for statement in self._sql.scrub:
                self._run_repeatable(statement())
        except Unavailable:  # larger than one statement may take, or busy
            commands = "; ".join(statement.text for statement in self._sql.scrub)
            return f"Free space in PostgreSQL's tables holds what was deleted until this is run: {commands}"
        return (
            "PostgreSQL's write-ahead log, and archives of it, hold what was deleted until they are recycled."
        )

    def erase(self) -> None:
        self._run_repeatable(self._sql.erase())

    def close(self) -> None:
        self._pool.close()

    # -- objects -----------------------------------------------------------------------------------------

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        wanted_ids, data_by_id = list(ids), dict[ObjectId, bytes]()
        self._check_open()
        for start in range(0, len(wanted_ids), OBJECTS_MAX):
            (result,) = self._run_repeatable(
                self._sql.fetch(encode_bytes_array(wanted_ids[start : start + OBJECTS_MAX]))
            )
            data_by_id.update((object_id, data) for object_id, data in result.rows)
        return data_by_id

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        self._check_open()
        for step in self._store_steps(self._sql.store, objects.items()):
            self._run_repeatable(step)

    def _store_steps(
        self, statement: SqlStatement, objects: Iterable[tuple[ObjectId, bytes]]
    ) -> Iterator[Step]:
        """Objects in the order in which everybody locks them, so many a statement."""
        now = self._clock()
        for part in _split_objects(sorted(objects)):
            ids, data = zip(*part, strict=True)
            yield statement(encode_bytes_array(ids), encode_bytes_array(data), now)

    def scan(self, after: bytes, limit: int) -> tuple[list[StoredObject], bytes]:
        (result,) = self._run_repeatable(self._sql.scan(after, limit))
        objects = [
            StoredObject(object_id, decode_integer(time_us), decode_integer(size))
            for object_id, time_us, size in result.rows
        ]
        return objects, objects[-1].id if len(objects) == limit else b""

    def delete(self, objects: Sequence[StoredObject]) -> int:
        deleted = 0
        self._check_open()
        for start in range(0, len(objects), OBJECTS_MAX):
            part = objects[start : start + OBJECTS_MAX]
            ids = encode_bytes_array([stored_object.id for stored_object in part])
            times = encode_integer_array([stored_object.referenced_us for stored_object in part])
            (result,) = self._run_repeatable(self._sql.delete(ids, times))
            deleted += result.changed
        return deleted

    # -- rows --------------------------------------------------------------------------------------------

    @contextmanager
    def turn(self, name: str, remembered: Row | None = None) -> Iterator[Turn]:  # noqa: ARG002 - it locks
        session, (_, result) = self._start_on_connection(BEGIN(), self._sql.lock_row(name))
        outer = getattr(self._in_turn, "session", None)
        self._in_turn.session = session
        try:
            yield _PostgresTurn(self, session, name, _decode_first_row(result))
        finally:
            self._in_turn.session = outer
            self._pool.return_session(session)

    def reference(self, name: str) -> Row | None:
        (result,) = self._run_repeatable(self._sql.row(name))
        return _decode_first_row(result)

    def references(self, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[Row]:
        beyond = self._sql.rows_after if after >= prefix else self._sql.rows_from
        first, behind = max(after, prefix).encode(), prefix.encode() + b"\xff"
        (result,) = self._run_repeatable(beyond(kind, first, behind, limit))
        return [_decode_row(*row) for row in result.rows]


class _PostgresTurn(Turn):
    def __init__(self, store: PostgresStore, session: PostgresSession, name: str, row: Row | None) -> None:
        self._store, self._session, self._name, self.row = store, session, name, row

    def advance(
        self, objects: Mapping[ObjectId, bytes], row: Row | None, fresh: Collection[ObjectId] = ()
    ) -> AdvanceResult:
        store, sql, new = self._store, self._store._sql, frozenset(fresh)
        steps = [
            *store._store_steps(sql.insert, ((object_id, objects[object_id]) for object_id in new)),
            *store._store_steps(sql.store, (item for item in objects.items() if item[0] not in new)),
        ]
        replacing = self._replace_steps(row)
        if not self._session.is_alive():
            raise Unavailable(f"{store.url} closed the connection before anything was sent")
        try:
            results = self._session.run_statements(*steps, *replacing, COMMIT())
        except StatementRefused as refused:
            if refused.state in _UNKNOWN:
                raise self._unknown_outcome_error(refused) from refused
            if refused.state != _IS_THERE:
                raise store._explain_refusal(refused) from refused
            return AdvanceResult(False, self._find_present(new))
        except ConnectionLost as lost:
            raise self._unknown_outcome_error(lost) from lost
        if results[-1].tag != b"COMMIT":
            raise Unavailable(f"{store.url} rolled the transaction back")
        return AdvanceResult(not replacing or results[-2].changed == 1)

    def _replace_steps(self, row: Row | None) -> list[Step]:
        sql, name = self._store._sql, self._name
        if row is None:
            return [sql.delete_row(name)] if self.row is not None else []
        statement = sql.insert_row if self.row is None else sql.update_row
        return [statement(name, row.kind, row.data)]

    def _find_present(self, ids: frozenset[ObjectId]) -> frozenset[ObjectId]:
        """Which are there; none if it was the row that somebody else created."""
        with self._store._explain_errors():
            _, result = self._session.run_statements(
                ROLLBACK(), self._store._sql.present(encode_bytes_array(list(ids)))
            )
        return frozenset(object_id for (object_id,) in result.rows)

    def _unknown_outcome_error(self, problem: StatementRefused | ConnectionLost) -> OutcomeUnknown:
        return OutcomeUnknown(f"{self._store.url} was lost while committing: {problem}")


def _decode_first_row(result: StatementResult) -> Row | None:
    rows = result.rows
    return _decode_row(*rows[0]) if rows else None


def _decode_row(name: bytes, kind: bytes, data: bytes) -> Row:
    return Row(name.decode(), kind.decode(), data)


def _split_objects(objects: Sequence[tuple[ObjectId, bytes]]) -> Iterator[list[tuple[ObjectId, bytes]]]:
    """So many at a time, and so many bytes."""
    portion: list[tuple[ObjectId, bytes]] = []
    size_bytes = 0
    for object_id, data in objects:
        if portion and (len(portion) == OBJECTS_MAX or size_bytes + len(data) > OBJECTS_MAX_BYTES):
            yield portion
            portion, size_bytes = [], 0
        portion.append((object_id, data))
        size_bytes += len(data)
    if portion:
        yield portion
