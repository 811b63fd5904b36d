"""Connections to PostgreSQL: how they are made, shared, and talked to.

Statements go out together and are answered together: a round trip costs more than what is done in it. The
outcome of each is known by its own answer, which tells a refused commit from one whose answer was lost.
"""

from __future__ import annotations

import os
import re
import select
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from threading import Lock
from typing import Final, NamedTuple, TypeAlias

from penstock.errors import Denied, InvalidRequest, LakeNotFound, PenstockError, Unavailable
from penstock.stores.postgres_sql import DURABLE, ROLLBACK, SET, SqlStatement, Step
from penstock.stores.urls import hide_secrets, parse_options, split_url

try:
    import psycopg
    from psycopg import pq
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg.pq.abc import PGresult
except ImportError as missing:
    raise InvalidRequest(
        f"a lake in PostgreSQL needs a library that is not installed ({missing}): pip install "
        "'penstock[postgres]'"
    ) from None

POOL_MAX: Final = 16
POOL_WAIT_S: Final = 10.0
IDLE_MAX_S: Final = 300.0
CONNECT_TIMEOUT_S: Final = 10
LOCK_TIMEOUT_S: Final = 5
STATEMENT_TIMEOUT_S: Final = 20
ANSWER_TIMEOUT_S: Final = 25.0
"""For so long not a byte may move on a connection that owes an answer; the server gives up before."""

_SESSION: Final = {
    "default_transaction_isolation": "read committed",
    "lock_timeout": f"{LOCK_TIMEOUT_S}s",
    "statement_timeout": f"{STATEMENT_TIMEOUT_S}s",
    # The lock of a client that vanished without a word; a turn takes far less.
    "idle_in_transaction_session_timeout": f"{STATEMENT_TIMEOUT_S}s",
}

_CONNECTION: Final[dict[str, str | int]] = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": int(ANSWER_TIMEOUT_S * 1000),
    "target_session_attrs": "read-write",
    "fallback_application_name": "penstock",
}
"""Where the address says nothing else."""

_OURS: Final = ("schema", "pool_max")
_SCHEMA_NAME: Final = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")
_NO_DATABASE: Final = re.compile(r'database "[^"]*" does not exist')
_NO_ENTRY: Final = re.compile(
    r"authentication failed|no password supplied|role .* does not exist|not permitted to log in"
    r"|no pg_hba.conf entry|permission denied"
)


class StatementResult(NamedTuple):
    """What a statement came to: its rows, how many rows it changed, and what it says it was."""

    rows: list[tuple[bytes, ...]]
    changed: int
    tag: bytes


class StatementRefused(Exception):
    """The server refused a statement, and skipped those that were sent with it."""

    def __init__(self, state: str, message: str) -> None:
        super().__init__(message)
        self.state = state


class ConnectionLost(Exception):
    """The connection was lost before all answers came."""

    state = ""


class PostgresPlace:
    """A database and a schema in it. The password is kept where no representation shows it."""

    def __init__(self, url: str) -> None:
        parts = split_url(url)
        if parts.netloc.count("@") > 1:
            raise InvalidRequest("the postgresql:// address cannot be read: write '@' in a password as %40")
        self.shown = hide_secrets(url)
        keywords = [option.keyword.decode() for option in pq.Conninfo.get_defaults()]
        chosen = parse_options(url, *_OURS, *keywords)
        self.schema = chosen.get("schema", "penstock")
        if not _SCHEMA_NAME.fullmatch(self.schema):
            raise InvalidRequest(
                f"'{self.schema}' cannot be the name of a schema: use at most 63 lower-case letters, digits "
                "and '_', not beginning with 'pg_'"
            )
        pool_max = chosen.get("pool_max", str(POOL_MAX))
        if not pool_max.isascii() or not pool_max.isdigit() or not 1 <= int(pool_max) <= 1000:
            raise InvalidRequest(f"pool_max must be between 1 and 1000, got '{pool_max}'")
        self.pool_max = int(pool_max)
        if chosen.get("target_session_attrs", "read-write") not in ("read-write", "primary"):
            raise InvalidRequest("a lake cannot be read from a standby, which may be behind")
        address, _, query = url.partition("?")
        theirs = [part for part in query.split("&") if part.partition("=")[0] not in _OURS]
        self._connect = _make_connector(f"{address}?{'&'.join(theirs)}")

    def open_session(self) -> PostgresSession:
        """A new connection, set up; typed errors say why there is none."""
        try:
            connection = self._connect()
        except psycopg.Error as problem:
            raise self._explain_failed_connection(_join_lines(str(problem))) from None
        session = PostgresSession(connection)
        try:
            session.run_statements(*(SET(name, value) for name, value in _SESSION.items()), DURABLE())
        except BaseException:
            session.close()
            raise
        return session

    def _explain_failed_connection(self, text: str) -> PenstockError:
        """By the server's English words: the library does not hand out the code of a refused connection."""
        if _NO_DATABASE.search(text):
            return LakeNotFound(
                f"there is no database at {self.shown}: create it, then run penstock init '{self.shown}' "
                f"({text})",
                url=self.shown,
            )
        if _NO_ENTRY.search(text):
            return Denied(f"{self.shown} denies access: {text}")
        return Unavailable(f"{self.shown} cannot be reached: {text}")


def _make_connector(url: str) -> Callable[[], psycopg.Connection]:
    """What connects to a URL; in a closure, so that the password is in nobody's attributes."""
    address = ""
    with suppress(psycopg.Error, UnicodeDecodeError):  # which quote what they cannot read
        given_settings = conninfo_to_dict(url)
        address = make_conninfo(
            url, **{name: value for name, value in _CONNECTION.items() if name not in given_settings}
        )
    if not address:
        raise InvalidRequest(
            "the postgresql:// address cannot be parsed; special characters in it must be escaped"
        )
    return lambda: psycopg.connect(address, autocommit=True)


_Prepared: TypeAlias = tuple[SqlStatement, bytes]


class PostgresSession:
    """A connection on which statements go out together, and their results come back together."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection, self._wire = connection, connection.pgconn
        self._prepared: dict[SqlStatement, bytes] = {}
        self._names = 0
        self._poll = select.poll()
        self._poll.register(self._wire.socket, select.POLLIN)
        self._owes_answers = False
        self.idle_since_s = 0.0

    def run_statements(self, *steps: Step) -> list[StatementResult]:
        """The results, one a statement. ``Refused`` if the server refused one, ``Lost`` if it is away."""
        if not self.is_usable:
            raise ConnectionLost("the connection was lost before")
        self._owes_answers = True
        results: list[StatementResult] = []
        try:
            refused = self._receive_results(self._send_statements(steps), results)
            self._wire.exit_pipeline_mode()
        except psycopg.Error as problem:
            if len(results) < len(steps):
                raise ConnectionLost(_join_lines(str(problem))) from None
            return results  # everything was answered, and then it was lost
        self._owes_answers = False
        if refused is not None:
            raise refused
        return results

    def _send_statements(self, steps: tuple[Step, ...]) -> list[_Prepared | None]:
        """Send everything, and say what is to be answered: a statement prepared, or (``None``) a result."""
        wire, names, prepared = self._wire, dict(self._prepared), list[_Prepared | None]()
        wire.enter_pipeline_mode()
        for statement, parameters in steps:
            if statement not in names:
                self._names += 1
                names[statement] = f"penstock{self._names}".encode()
                wire.send_prepare(names[statement], statement.text.encode(), statement.types)
                prepared.append((statement, names[statement]))
            formats = [pq.Format.BINARY] * len(parameters)
            wire.send_query_prepared(names[statement], parameters, formats, pq.Format.BINARY)
            prepared.append(None)
        wire.pipeline_sync()
        while wire.flush():
            if self._wait_for_socket(select.POLLIN | select.POLLOUT) & ~select.POLLOUT:
                wire.consume_input()
        return prepared

    def _receive_results(
        self, statements: list[_Prepared | None], results: list[StatementResult]
    ) -> StatementRefused | None:
        """Collect the results up to the end of the answer, and the first refusal if there is one."""
        wire, refused, position = self._wire, None, 0
        while True:
            while wire.is_busy():
                self._wait_for_socket(select.POLLIN)
                wire.consume_input()
            result = wire.get_result()
            if result is None:  # one statement's results end, or everything
                if wire.status == pq.ConnStatus.BAD:
                    raise psycopg.OperationalError(wire.get_error_message())
                continue
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                return refused
            if result.status == pq.ExecStatus.FATAL_ERROR:
                refused = refused or _statement_error(result)
            elif result.status != pq.ExecStatus.PIPELINE_ABORTED:
                prepared = statements[position]
                if prepared is None:
                    results.append(_read_result(result))
                else:
                    self._prepared[prepared[0]] = prepared[1]
            position += 1

    def _wait_for_socket(self, events: int) -> int:
        """Until a byte can move; which way."""
        self._poll.modify(self._wire.socket, events)
        ready = self._poll.poll(ANSWER_TIMEOUT_S * 1000)
        if not ready:
            raise psycopg.OperationalError(f"no answer within {ANSWER_TIMEOUT_S:g} s")
        return ready[0][1]

    @property
    def is_usable(self) -> bool:
        return not self._owes_answers and self._wire.status == pq.ConnStatus.OK

    def is_alive(self) -> bool:
        """Whether it seems so from here: a server that says something unasked says goodbye."""
        if not self.is_usable:
            return False
        self._poll.modify(self._wire.socket, select.POLLIN)
        return not self._poll.poll(0)

    def end_transaction_or_close(self) -> None:
        """End what transaction there is, so that somebody else can go on here; else close."""
        if self.is_usable and self._wire.transaction_status != pq.TransactionStatus.IDLE:
            with suppress(StatementRefused, ConnectionLost):
                self.run_statements(ROLLBACK())
        if not self.is_usable:
            self.close()

    def close(self) -> None:
        self._connection.close()


class ConnectionPool:
    """So many connections at most, the last used first.

    Of our own, because whoever waits for psycopg's pool, which connects in the background, learns that it
    waited for too long, and never why.
    """

    def __init__(self, address: PostgresPlace) -> None:
        self._place = address
        self._slots = _ConnectionSlots(address.pool_max)
        self._idle: deque[PostgresSession] = deque()
        self._process = os.getpid()
        self.is_closed = False

    def take_session(self) -> PostgresSession:
        """A connection, to be given back."""
        if not self._slots.take_slot(POOL_WAIT_S):
            raise Unavailable(
                f"all {self._place.pool_max} connections to {self._place.shown} were in use for more than "
                f"{POOL_WAIT_S:g} s; a larger pool_max in the address allows more"
            )
        try:
            while True:
                try:
                    session = self._idle.pop()
                except IndexError:
                    return self._place.open_session()
                if session.is_alive():
                    return session
                session.close()
        except BaseException:
            self._slots.return_slot()
            raise

    def return_session(self, session: PostgresSession) -> None:
        try:
            session.end_transaction_or_close()
            session.idle_since_s = time.monotonic()
            if session.is_usable:
                self._idle.append(session)
            self._drop_before(inf if self.is_closed else session.idle_since_s - IDLE_MAX_S)
        except BaseException:
            session.close()
            raise
        finally:
            self._slots.return_slot()

    def _drop_before(self, time_s: float) -> None:
        """Close what nobody has needed since."""
        with suppress(IndexError):
            while self._idle[0].idle_since_s < time_s:
                oldest = self._idle.popleft()
                oldest.close()

    def drop_idle(self) -> None:
        self._drop_before(inf)

    def close(self) -> None:
        self.is_closed = True
        if os.getpid() == self._process:  # else the connections are the parent's
            self.drop_idle()


class _ConnectionSlots:
    """So many at most, first come, first served: a semaphore lets the quick starve those that wait."""

    def __init__(self, count: int) -> None:
        self._free, self._lock = count, Lock()
        self._waiting: deque[Lock] = deque()

    def take_slot(self, timeout_s: float) -> bool:
        """Whether there was one in time."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            turn = Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            if turn.acquire(timeout=timeout_s):
                return True
        except BaseException:
            self._give_up(turn, is_wanted=False)
            raise
        return self._give_up(turn, is_wanted=True)

    def _give_up(self, turn: Lock, *, is_wanted: bool) -> bool:
        """No longer wait; whether a slot came at the last moment, and is kept."""
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return False
        if not is_wanted:
            self.return_slot()
        return is_wanted

    def return_slot(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1


def _statement_error(result: PGresult) -> StatementRefused:
    """What the server said; ``OperationalError`` if it went away with that."""
    field = pq.DiagnosticField
    severity, state, message = (
        (result.error_field(field_code) or b"").decode(errors="replace")
        for field_code in (field.SEVERITY_NONLOCALIZED, field.SQLSTATE, field.MESSAGE_PRIMARY)
    )
    if severity != "ERROR":
        raise psycopg.OperationalError(message or _join_lines(result.get_error_message()))
    return StatementRefused(state, message)


def _join_lines(text: str) -> str:
    return " ".join(text.split())


def _read_result(result: PGresult) -> StatementResult:
    """There are no empty values in what we ask for."""
    fields = range(result.nfields)
    rows = [tuple(result.get_value(row, column) or b"" for column in fields) for row in range(result.ntuples)]
    return StatementResult(rows, result.command_tuples or 0, result.command_status or b"")
