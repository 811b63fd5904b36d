"""What is special about the PostgreSQL store: its schema, its connections, and how it says what is wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from textwrap import dedent
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

import penstock
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
from penstock.stores import postgres, postgres_wire
from penstock.stores.port import AdvanceResult
from penstock.stores.postgres import PostgresStore
from penstock.stores.postgres_sql import MIGRATIONS, SqlStatement
from penstock.stores.urls import hide_secrets
from penstock.testing.contract_rows import swap
from penstock.testing.samples import row, sample, scan_all
from penstock.testing.threads import JOIN_MAX_S, at_once

WAIT_MAX_S = 60.0


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(postgres_url)
    yield opened
    opened.close()


@pytest.fixture
def administrator(postgres_url: str) -> Iterator[psycopg.Connection]:
    """Another client of the same database."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


def with_option(url: str, option: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{option}"


def ask(store: PostgresStore, question: str) -> list[tuple[bytes, ...]]:
    """What a connection of the store's own answers."""
    (result,) = store._run_repeatable(SqlStatement(question)())
    return result.rows


def wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_MAX_S
    while not happened():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.005)


@contextmanager
def in_background(work: Callable[[], object]) -> Iterator[None]:
    """Something that a thread does meanwhile; what it raises is raised at the end."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    yield
    thread.join(JOIN_MAX_S)
    assert not thread.is_alive()
    if errors:
        raise errors[0]


# -- the schema ------------------------------------------------------------------------------------------


def test_a_database_without_a_lake_stays_so_and_the_way_out_is_named(
    postgres_url: str, administrator: psycopg.Connection
) -> None:
    shown = hide_secrets(postgres_url)
    with pytest.raises(LakeNotFound, match=re.escape(f"penstock init '{shown}'")) as refused:
        PostgresStore(postgres_url, create=False)
    assert refused.value.details == {"url": shown}
    found = administrator.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'penstock'").fetchall()
    assert found == []


def test_what_was_made_once_is_opened_without_the_right_to_make_it(postgres_url: str) -> None:
    PostgresStore(postgres_url, create=True).close()
    PostgresStore(postgres_url, create=True).close()
    PostgresStore(postgres_url, create=False).close()


def test_a_lake_is_made_by_init_and_opened_by_its_url(postgres_url: str) -> None:
    with pytest.raises(LakeNotFound):
        penstock.open(postgres_url)
    with penstock.open(PostgresStore(postgres_url)) as made, penstock.open(postgres_url) as opened:
        assert opened.id == made.id
        opened.branch().put("orders", penstock.IcebergTable(metadata_location="somewhere"))
        assert made.branch().head == opened.branch().head


def test_many_who_make_the_same_schema_at_once_make_one(postgres_url: str) -> None:
    for attempt in range(3):
        url = with_option(postgres_url, f"schema=attempt{attempt}")
        opened = at_once(*(partial(PostgresStore, url) for _ in range(8)))
        swap(opened[0], row("main", data=b"%d" % attempt))
        assert {one.reference("main") for one in opened} == {row("main", data=b"%d" % attempt)}
        for one in opened:
            one.close()


def test_a_newer_schema_is_refused_by_its_number(
    store: PostgresStore, postgres_url: str, administrator: psycopg.Connection
) -> None:
    administrator.execute("UPDATE penstock.penstock_schema SET version = 7")
    for create in (True, False):
        with pytest.raises(UnsupportedFormat, match="schema version 7") as refused:
            PostgresStore(postgres_url, create=create)
        assert refused.value.details == {"found": 7, "known": 1}


def test_an_older_schema_is_migrated_by_init_once_and_by_nobody_else(
    store: PostgresStore,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    administrator: psycopg.Connection,
) -> None:
    swap(store, row("main"))
    newer = (*MIGRATIONS, ("ALTER TABLE {0}.refs ADD COLUMN note text", "CREATE TABLE {0}.notes (id bigint)"))
    monkeypatch.setattr(postgres, "MIGRATIONS", newer)
    with pytest.raises(UnsupportedFormat, match=r"penstock init .* to migrate it"):
        PostgresStore(postgres_url, create=False)
    for one in at_once(*(partial(PostgresStore, postgres_url) for _ in range(6))):
        assert one.reference("main") == row("main")
        one.close()
    assert administrator.execute("SELECT version FROM penstock.penstock_schema").fetchall() == [(2,)]
    PostgresStore(postgres_url, create=False).close()


def test_another_programs_tables_are_refused_and_left_as_they_are(
    postgres_url: str, administrator: psycopg.Connection
) -> None:
    administrator.execute("CREATE SCHEMA penstock")
    administrator.execute("CREATE TABLE penstock.songs (title text)")
    for create in (True, False):
        with pytest.raises(InvalidRequest, match="tables of another program; choose another"):
            PostgresStore(postgres_url, create=create)
    listed = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'penstock'"
    assert administrator.execute(listed).fetchall() == [("songs",)]


def test_schemas_of_one_database_are_lakes_of_their_own(store: PostgresStore, postgres_url: str) -> None:
    other = PostgresStore(with_option(postgres_url, "schema=table"))  # a reserved word
    store.store(sample(2))
    swap(store, row("main"))
    assert other.reference("main") is None
    assert scan_all(other) == []
    assert other.url.endswith("?schema=table")
    other.erase()
    assert store.reference("main") == row("main")
    other.close()


@pytest.mark.parametrize(
    "option",
    [
        "schema=",
        "schema=Penstock",
        'schema=a"b',
        "schema=pg_temp",
        f"schema={'a' * 64}",
        "pool_max=0",
        "pool_max=1001",
        "pool_max=many",
        "pool_max=",
        "target_session_attrs=any",
        "target_session_attrs=standby",
        "poolmax=3",
    ],
)
def test_options_that_cannot_be_are_refused_before_anybody_is_asked(option: str) -> None:
    with pytest.raises(InvalidRequest):
        PostgresStore(f"postgresql://127.0.0.1:1/nowhere?{option}")


def test_options_of_the_library_are_passed_on(postgres_url: str) -> None:
    store = PostgresStore(with_option(postgres_url, "application_name=night%20job&pool_max=2"))
    assert ask(store, "SELECT current_setting('application_name')") == [(b"night job",)]
    store.close()


def test_a_place_without_a_host_is_left_to_the_environment(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = psycopg.conninfo.conninfo_to_dict(postgres_url)
    for name, keyword in (("USER", "user"), ("PASSWORD", "password"), ("HOST", "host"), ("PORT", "port")):
        monkeypatch.setenv(f"PG{name}", str(found[keyword]))
    store = PostgresStore(f"postgresql:///{found['dbname']}?schema=elsewhere")
    assert store.url == f"postgresql:///{found['dbname']}?schema=elsewhere"
    store.close()


def test_a_check_names_what_was_changed(store: PostgresStore, administrator: psycopg.Connection) -> None:
    assert store.check() == []
    administrator.execute("ALTER TABLE penstock.objects ALTER referenced_us TYPE integer")
    administrator.execute("ALTER TABLE penstock.refs DROP CONSTRAINT refs_pkey")
    administrator.execute("ALTER TABLE penstock.refs DROP COLUMN data")
    assert store.check() == [
        "objects.referenced_us is missing or not of type bigint",
        "refs.data is missing or not of type bytea",
        "table refs has lost its primary key",
    ]


# -- durability and isolation ----------------------------------------------------------------------------


@pytest.mark.parametrize(("theirs", "ours"), [("off", "on"), ("on", "on"), ("remote_apply", "remote_apply")])
def test_every_connection_waits_for_the_disk_whatever_the_database_says(
    postgres_url: str, administrator: psycopg.Connection, theirs: str, ours: str
) -> None:
    (name,) = administrator.execute("SELECT current_database()").fetchone() or ("",)
    administrator.execute(f"ALTER DATABASE {name} SET synchronous_commit = {theirs}")
    administrator.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    store = PostgresStore(postgres_url)

    def settings() -> list[tuple[bytes, ...]]:
        with store.turn(f"row{time.monotonic_ns()}"):
            return ask(
                store,
                "SELECT current_setting('synchronous_commit'), current_setting('transaction_isolation')",
            )

    assert at_once(*[settings] * 4) == [[(ours.encode(), b"read committed")]] * 4
    store.close()


def test_a_commit_takes_two_round_trips(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    run, trips = postgres_wire.PostgresSession.run_statements, list[int]()

    def counted(session: postgres_wire.PostgresSession, *steps: Any) -> Any:
        trips.append(len(steps))
        return run(session, *steps)

    monkeypatch.setattr(postgres_wire.PostgresSession, "run_statements", counted)
    for number in range(3):
        trips.clear()
        with store.turn("main") as turn:
            objects = sample(20, f"objects {number}")
            assert turn.advance(objects, row("main", data=b"%d" % number), list(objects)[:3]).swapped
        assert trips == [2, 4]


def test_large_objects_go_in_several_statements(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "OBJECTS_MAX_BYTES", 3000)
    objects = sample(20, "large", 1000) | sample(1, "larger", 5000)
    store.store(objects)
    assert store.fetch(list(objects)) == objects
    more = sample(10, "more", 1000)
    with store.turn("main") as turn:
        assert turn.advance(more | objects, row("main"), list(more)[:5]).swapped
    assert store.fetch(list(more)) == more


# -- objects that are stored again -----------------------------------------------------------------------


def test_a_clock_that_is_behind_does_not_hide_that_an_object_was_stored_again(
    store: PostgresStore, postgres_url: str
) -> None:
    late, early = (
        PostgresStore(postgres_url, clock=lambda: 2_000),
        PostgresStore(postgres_url, clock=lambda: 1_000),
    )
    late.store(sample(1))
    scanned = scan_all(late)
    assert [one.referenced_us for one in scanned] == [2_000]
    early.store(sample(1))
    late.store(sample(1))
    assert [one.referenced_us for one in scan_all(late)] == [2_002]
    assert late.delete(scanned) == 0
    late.close()
    early.close()


def test_what_is_just_being_stored_again_is_neither_deleted_nor_waited_for(
    store: PostgresStore, administrator: psycopg.Connection
) -> None:
    objects = sample(3)
    store.store(objects)
    kept = sorted(objects)[1]
    scanned = scan_all(store)
    with administrator.transaction():
        administrator.execute(
            "UPDATE penstock.objects SET referenced_us = referenced_us + 1 WHERE id = %s", [kept]
        )
        assert store.delete(scanned) == 2
    assert [one.id for one in scan_all(store)] == [kept]
    assert store.delete(scanned) == 0


# -- many threads, few connections -----------------------------------------------------------------------


def test_threads_in_turns_read_without_waiting_for_each_others_connections(postgres_url: str) -> None:
    store = PostgresStore(with_option(postgres_url, "pool_max=2"))
    objects = sample(3)
    store.store(objects)

    def move(number: int) -> AdvanceResult:
        with store.turn(f"branch{number}") as turn:
            assert store.fetch(list(objects)) == objects
            assert store.reference(f"branch{number}") == turn.row
            store.references("branch")
            return turn.advance(sample(2, f"of {number}"), row(f"branch{number}"))

    assert at_once(*(partial(move, number) for number in range(64))) == [AdvanceResult(True)] * 64
    assert len(store.references("branch")) == 64
    assert len(store._pool._idle) <= 2
    store.close()


def test_waiting_too_long_for_a_connection_is_unavailable(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_wire, "POOL_WAIT_S", 0.05)
    store = PostgresStore(with_option(postgres_url, "pool_max=1"))
    inside, leave = Event(), Event()

    def hold() -> None:
        with store.turn("main"):
            inside.set()
            leave.wait(WAIT_MAX_S)

    with in_background(hold):
        assert inside.wait(WAIT_MAX_S)
        with pytest.raises(Unavailable, match=r"all 1 connections .* pool_max"):
            store.reference("main")
        with pytest.raises(Unavailable), store.turn("other"):
            pass
        leave.set()
    assert store.reference("main") is None
    assert swap(store, row("main")).swapped
    store.close()


def test_connections_are_given_in_the_order_in_which_they_were_asked_for() -> None:
    slots = postgres_wire._ConnectionSlots(1)
    assert slots.take_slot(0)
    order: list[int] = []

    def queue_up(number: int) -> None:
        assert slots.take_slot(WAIT_MAX_S)
        order.append(number)
        slots.return_slot()

    def is_waiting(count: int) -> bool:
        return len(slots._waiting) == count

    with ExitStack() as all_of_them:
        for number in range(5):
            all_of_them.enter_context(in_background(partial(queue_up, number)))
            wait_for(partial(is_waiting, number + 1))
        assert not slots.take_slot(0.01)
        slots.return_slot()
    assert order == list(range(5))
    assert slots.take_slot(0)
    assert not slots.take_slot(0)


def test_connections_that_nobody_needs_are_closed(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = PostgresStore(postgres_url)
    with store.turn("a"), store.turn("b"), store.turn("c"):
        pass
    assert len(store._pool._idle) == 3
    monkeypatch.setattr(postgres_wire, "IDLE_MAX_S", 0.0)
    time.sleep(0.001)
    store.reference("a")
    assert len(store._pool._idle) == 1
    store.close()


def test_a_store_is_refused_in_a_forked_child(postgres_url: str) -> None:
    code = """
        import os
        from penstock.errors import InvalidRequest
        from penstock.stores.postgres import PostgresStore
        store = PostgresStore(os.environ["PLACE"])
        store.store({b"a" * 32: b"kept"})
        child = os.fork()
        if child == 0:
            def turn():
                with store.turn("main"):
                    pass
            reads = [lambda: store.fetch([b"a" * 32]), lambda: store.scan(b"", 1), turn]
            for use in (*reads, lambda: store.store({})):
                try:
                    use()
                except InvalidRequest as refused:
                    print("fork" in refused.message, flush=True)
            store.close()
            os._exit(0)
        os.waitpid(child, 0)
        print(store.fetch([b"a" * 32])[b"a" * 32].decode())
        store.close()
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PLACE": postgres_url},
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["True"] * 4 + ["kept"]


def test_a_closed_store_says_so(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    with store.turn("main"):
        store.close()
        with pytest.raises(InvalidRequest, match="was closed"):
            store.reference("main")
    for use in (partial(store.fetch, []), partial(store.store, {}), partial(store.delete, []), store.check):
        with pytest.raises(InvalidRequest, match="was closed"):
            use()
    assert not store._pool._idle


# -- locks and time-outs ---------------------------------------------------------------------------------


def test_a_row_that_is_locked_for_too_long_is_unavailable(
    postgres_url: str, administrator: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(postgres_wire._SESSION, "lock_timeout", "50ms")
    store = PostgresStore(postgres_url)
    swap(store, row("main"))
    with administrator.transaction():
        administrator.execute("SELECT 1 FROM penstock.refs WHERE name = 'main' FOR UPDATE")
        with pytest.raises(Unavailable, match="lock timeout"), store.turn("main"):
            pass
        assert store.reference("main") == row("main"), "reading goes on"
        assert swap(store, row("other")).swapped, "and so do other rows"
    assert swap(store, row("main", data=b"2")).swapped
    store.close()


def test_an_answer_that_does_not_come_is_unavailable(
    postgres_url: str, administrator: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(postgres_url)
    swap(store, row("main"))
    monkeypatch.setattr(postgres_wire, "ANSWER_TIMEOUT_S", 0.05)
    with administrator.transaction():
        administrator.execute("SELECT 1 FROM penstock.refs WHERE name = 'main' FOR UPDATE")
        with pytest.raises(Unavailable, match=r"no answer within 0\.05 s"), store.turn("main"):
            pass
    monkeypatch.undo()
    assert swap(store, row("main", data=b"2")).swapped
    store.close()


def test_a_turn_that_takes_too_long_loses_its_lock_and_changes_nothing(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(postgres_wire._SESSION, "idle_in_transaction_session_timeout", "1s")
    slow = PostgresStore(postgres_url)
    monkeypatch.undo()
    other = PostgresStore(postgres_url)
    swap(other, row("main"))
    with slow.turn("main") as turn:
        assert swap(other, row("main", data=b"2")).swapped, "it waited until the server gave up on the first"
        with pytest.raises(Unavailable, match="before anything was sent"):
            turn.advance(sample(1), row("main", data=b"3"))
    assert slow.reference("main") == row("main", data=b"2")
    assert slow.fetch(list(sample(1))) == {}
    slow.close()
    other.close()


# -- connections that are lost ---------------------------------------------------------------------------

OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


def end_connections(administrator: psycopg.Connection) -> int:
    ended = administrator.execute(f"SELECT pg_terminate_backend(pid) {OTHERS}").fetchall()
    wait_for(lambda: not administrator.execute(f"SELECT 1 {OTHERS}").fetchall())
    return len(ended)


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.fetch(list(sample(1))),
        lambda store: store.reference("main"),
        lambda store: store.store(sample(2)),
        lambda store: swap(store, row("main", data=b"2")),
    ],
)
@pytest.mark.parametrize("is_noticed", [True, False])
def test_connections_that_were_ended_are_replaced(
    use: Callable[[PostgresStore], object],
    is_noticed: bool,
    store: PostgresStore,
    administrator: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with store.turn("a"), store.turn("b"), store.turn("c"):
        pass
    assert end_connections(administrator) == 3
    if not is_noticed:  # as if the farewell were still on its way
        monkeypatch.setattr(postgres_wire.PostgresSession, "is_alive", lambda session: session.is_usable)
    use(store)
    assert len(store._pool._idle) == 1


def test_a_connection_ended_before_the_advance_swaps_nothing_for_sure(
    store: PostgresStore, administrator: psycopg.Connection
) -> None:
    swap(store, row("main"))
    with store.turn("main") as turn:
        end_connections(administrator)
        with pytest.raises(Unavailable):
            turn.advance(sample(1), row("main", data=b"2"))
    with store.turn("main") as turn:
        end_connections(administrator)
        with pytest.raises(Unavailable):
            store.fetch(list(sample(1)))
    assert store.reference("main") == row("main")
    assert store.fetch(list(sample(1))) == {}


def at_commit(administrator: psycopg.Connection, action: str) -> None:
    """Have the server do something while it commits a change of a row."""
    administrator.execute(
        f"CREATE FUNCTION penstock.at_commit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN {action}; END'"
    )
    administrator.execute(
        "CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT OR UPDATE ON penstock.refs "
        "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION penstock.at_commit()"
    )


def test_a_connection_ended_within_the_commit_leaves_the_outcome_unknown(
    store: PostgresStore, administrator: psycopg.Connection
) -> None:
    swap(store, row("main"))
    at_commit(administrator, "PERFORM pg_sleep(60); RETURN NULL")

    def cut() -> bool:
        return bool(
            administrator.execute(
                f"SELECT pg_terminate_backend(pid) {OTHERS} AND wait_event = 'PgSleep' AND query = 'COMMIT'"
            ).fetchall()
        )

    with in_background(partial(wait_for, cut)), store.turn("main") as turn, pytest.raises(OutcomeUnknown):
        turn.advance(sample(1), row("main", data=b"2"))
    assert store.reference("main") == row("main")


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("40001", Unavailable),
        ("40P01", Unavailable),
        ("53100", Unavailable),
        ("40003", OutcomeUnknown),
        ("42501", Denied),
        ("XX001", Damaged),
        ("42P01", LakeNotFound),
    ],
)
def test_a_refused_commit_swaps_nothing_and_says_what_to_do(
    state: str, error: type[PenstockError], store: PostgresStore, administrator: psycopg.Connection
) -> None:
    swap(store, row("main"))
    at_commit(administrator, f"RAISE EXCEPTION ''not so'' USING ERRCODE = ''{state}''")
    for _ in range(2):
        with store.turn("main") as turn, pytest.raises(error, match="not so"):
            turn.advance(sample(1), row("main", data=b"2"))
    assert store.reference("main") == row("main")
    assert store.fetch(list(sample(1))) == {}
    administrator.execute("DROP TRIGGER at_commit ON penstock.refs")
    assert swap(store, row("main", data=b"2")).swapped


def test_interrupted_within_an_answer_the_connection_is_not_used_again(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap(store, row("main"))

    def interrupt(session: postgres_wire.PostgresSession, events: int) -> int:
        raise KeyboardInterrupt

    with store.turn("main") as turn:
        monkeypatch.setattr(postgres_wire.PostgresSession, "_wait_for_socket", interrupt)
        with pytest.raises(KeyboardInterrupt):
            turn.advance(sample(1), row("main", data=b"2"))
    monkeypatch.undo()
    assert not store._pool._idle
    assert swap(store, row("main", data=b"3")).swapped, "and its lock is free"


# -- who may not, and what must not be told --------------------------------------------------------------

SECRET = "correct-horse-battery"


def changed(url: str, **parts: str) -> str:
    """The same place with another user, password, host, port or database."""
    old = urlsplit(url)
    found = {
        "user": old.username or "",
        "password": old.password or "",
        "host": old.hostname or "localhost",
        "port": str(old.port or 5432),
        "dbname": old.path.removeprefix("/"),
    } | parts
    place = f"{found['host']}:{found['port']}/{found['dbname']}"
    return f"postgresql://{found['user']}:{found['password']}@{place}{'?' if old.query else ''}{old.query}"


@pytest.fixture
def password(postgres_url: str) -> str:
    """What nobody must be told."""
    found = urlsplit(postgres_url).password
    if not found:
        pytest.skip("the server's address has no password that could be told")
    return found


@pytest.fixture
def stranger(administrator: psycopg.Connection, postgres_url: str) -> Iterator[str]:
    """The URL of a user who may connect, and nothing else."""
    name = f"stranger{os.getpid()}"
    try:
        administrator.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{SECRET}'")
    except psycopg.errors.InsufficientPrivilege:
        pytest.skip("the server's address leads to a user who may not create others")
    yield changed(postgres_url, user=name, password=SECRET)
    administrator.execute(f"DROP OWNED BY {name}")
    administrator.execute(f"DROP ROLE {name}")


def assert_untold(error: BaseException, secrets: list[str]) -> None:
    seen: BaseException | None = error
    while seen is not None:
        said = f"{seen} {seen!r} {seen.args} {getattr(seen, 'details', '')}"
        assert not [secret for secret in secrets if secret in said], said
        seen = seen.__cause__ or seen.__context__


@pytest.mark.parametrize(
    ("parts", "error", "words"),
    [
        ({"password": SECRET}, Denied, "password authentication failed"),
        ({"password": SECRET, "user": "nobody_here"}, Denied, "nobody_here"),
        ({"dbname": "nowhere"}, LakeNotFound, "there is no database .* penstock init"),
        ({"port": "1"}, Unavailable, "cannot be reached"),
        ({"host": "nowhere.invalid"}, Unavailable, "cannot be reached"),
        ({"password": "%zz" + SECRET}, InvalidRequest, "cannot be parsed"),
        ({"port": "1x"}, Unavailable, "port"),
    ],
)
def test_whoever_cannot_connect_is_told_why_and_no_secret(
    parts: dict[str, str],
    error: type[PenstockError],
    words: str,
    postgres_url: str,
    password: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(0)
    for create in (True, False):
        with pytest.raises(error, match=words) as refused:
            PostgresStore(changed(postgres_url, **parts), create=create)
        assert_untold(refused.value, [password, SECRET])
    assert not [word for word in (password, SECRET) if word in caplog.text]


@pytest.mark.parametrize(
    "mark", ["@", "/", "?", "#", ":", "[", "]", "%", "&", "=", " ", "@@", "/@", "?@", "#@"]
)
def test_a_password_that_was_not_escaped_is_not_told(mark: str, postgres_url: str) -> None:
    pieces = ["correcthorse", "batterystaple"]
    url = changed(postgres_url, password=mark.join(pieces), port="1", host="127.0.0.1")
    with pytest.raises(PenstockError) as refused:
        PostgresStore(url)
    assert_untold(refused.value, pieces)


def test_a_store_does_not_show_its_password(
    postgres_url: str, password: str, caplog: pytest.LogCaptureFixture, administrator: psycopg.Connection
) -> None:
    caplog.set_level(0)
    store = PostgresStore(with_option(postgres_url, f"password={password}"))
    swap(store, row("main"))
    assert store.url == hide_secrets(postgres_url)
    with store.turn("main") as turn:
        end_connections(administrator)
        with pytest.raises(Unavailable) as lost:
            turn.advance({}, row("main"))
    assert_untold(lost.value, [password])
    shown = [store, turn, store._pool, store._pool._place, vars(store), vars(store._pool._place), *vars(turn)]
    assert not [one for one in shown if password in f"{one} {one!r}"]
    assert password not in caplog.text
    store.close()


def test_whoever_has_no_rights_is_denied(
    store: PostgresStore, stranger: str, administrator: psycopg.Connection
) -> None:
    with pytest.raises(Denied, match="permission denied"):
        PostgresStore(stranger, create=False)
    with pytest.raises(Denied, match="permission denied"):
        PostgresStore(with_option(stranger, "schema=mine"), create=True)
    name = str(psycopg.conninfo.conninfo_to_dict(stranger)["user"])
    administrator.execute(f"GRANT USAGE ON SCHEMA penstock TO {name}")
    administrator.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA penstock TO {name}")
    reader = PostgresStore(stranger, create=False)
    assert reader.reference("main") is None
    with pytest.raises(Denied):
        reader.store(sample(1))
    with pytest.raises(Denied), reader.turn("main"):
        pass
    reader.close()


def test_a_user_without_the_right_to_make_schemas_can_be_given_one(
    stranger: str, administrator: psycopg.Connection
) -> None:
    name = str(psycopg.conninfo.conninfo_to_dict(stranger)["user"])
    administrator.execute(f"CREATE SCHEMA penstock AUTHORIZATION {name}")
    store = PostgresStore(stranger)
    assert swap(store, row("main")).swapped
    store.close()


def test_a_lake_whose_tables_are_gone_is_not_found(
    store: PostgresStore, administrator: psycopg.Connection
) -> None:
    administrator.execute("DROP SCHEMA penstock CASCADE")
    with pytest.raises(LakeNotFound):
        store.reference("main")
    with pytest.raises(LakeNotFound), store.turn("main"):
        pass
