"""Tokens as rows of a store: put once, revoked for good, moved with the lake, and never lost on the way."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from penstock.errors import (
    ConflictError,
    Damaged,
    InvalidRequest,
    LakeMoved,
    OutcomeUnknown,
    RetriesExhausted,
    TokenNotFound,
    Unavailable,
)
from penstock.kernel.copy import copy_store
from penstock.kernel.description import FIRST_VERSION, GRANTS_VERSION, read_description
from penstock.kernel.fsck import fsck
from penstock.kernel.kernel import Kernel
from penstock.kernel.lake_seal import cancel_seal
from penstock.kernel.settings import Settings
from penstock.kernel.sweep import sweep_objects
from penstock.kernel.tokens import PREFIX, find_token, list_tokens, put_token, revoke_token
from penstock.model.clock import now_us
from penstock.model.references import Kind
from penstock.model.tokens import FIRST_ROLES, Grant, Role, Token
from penstock.stores import open_store
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Row, Store
from penstock.testing.faults import FaultyStore, Point
from tests.queue.hooks import Caller, new_kernel

QUICK = Settings(backoff_max_ms=2, tries_max=5)
MADE = datetime(2026, 11, 1, tzinfo=UTC)
TOKEN = Token(
    id="0123456789ab",
    name="etl",
    secret_hash=bytes(range(32)),
    grants=(Grant(Role.READ), Grant(Role.WRITE, "dev/*", "sales.*")),
    created=MADE,
    expires=datetime(2027, 11, 1, tzinfo=UTC),
)


def like(**changes: object) -> Token:
    return msgspec.structs.replace(TOKEN, **changes)


def move(source: Kernel, target: Store, *, fork: bool = False) -> None:
    copy_store(source, target, source_place="here", target_place="there", fork=fork)


@pytest.fixture
def store() -> FaultyStore:
    store = FaultyStore(MemoryStore(), locking=False)
    new_kernel(store, settings=QUICK)
    return store


def test_a_token_is_found_until_it_is_revoked(store: FaultyStore) -> None:
    assert list_tokens(store) == []
    assert put_token(store, QUICK, TOKEN) == TOKEN
    assert find_token(store, TOKEN.id) == TOKEN
    other = put_token(store, QUICK, like(id="f" * 12, name="other"))
    assert list_tokens(store) == [TOKEN, other]
    assert revoke_token(store, QUICK, TOKEN.id) == TOKEN
    assert (find_token(store, TOKEN.id), list_tokens(store)) == (None, [other])
    with pytest.raises(TokenNotFound, match=TOKEN.id):
        revoke_token(store, QUICK, TOKEN.id)


def test_a_grant_that_the_first_release_cannot_read_raises_the_version_of_the_lake(
    store: FaultyStore,
) -> None:
    put_token(store, QUICK, TOKEN)
    assert read_description(store).format_version == FIRST_VERSION
    operator = like(id="e" * 12, name="operator", grants=(Grant(Role.READ), Grant(Role.BACKUP)))
    assert put_token(store, QUICK, operator) == put_token(store, QUICK, operator) == operator
    assert read_description(store).format_version == GRANTS_VERSION
    revoke_token(store, QUICK, operator.id)
    assert read_description(store).format_version == GRANTS_VERSION, "history may name what it did"


@pytest.mark.parametrize("role", sorted(set(Role) - FIRST_ROLES))
def test_a_token_with_a_new_role_is_read_as_it_was_put(store: FaultyStore, role: Role) -> None:
    token = put_token(store, QUICK, like(grants=(Grant(role),)))
    assert find_token(store, token.id) == token


def test_roles_include_what_they_say_and_nothing_else() -> None:
    included = {role: {other for other in Role if role.includes_role(other)} for role in Role}
    single = {Role.READ, Role.RESTORE, Role.ERASE, Role.MAINTAIN, Role.BACKUP, Role.MOVE}
    assert included == {
        **{role: {role} for role in single},
        Role.WRITE: {Role.READ, Role.WRITE},
        Role.ADMIN: set(Role),
    }


@pytest.mark.parametrize(
    "grant",
    [
        Grant(Role.BACKUP, "main"),
        Grant(Role.MOVE, "*", "sales.*"),
        Grant(Role.ADMIN, "main"),
        Grant(Role.ERASE, "main"),
        Grant(Role.MAINTAIN, "dev/*", "sales.*"),
    ],
    ids=str,
)
def test_a_grant_that_means_nothing_is_refused(grant: Grant) -> None:
    with pytest.raises(InvalidRequest, match=f"'{grant.role}.*grant"):
        grant.check()


def test_tokens_are_kept_by_a_database(tmp_path: Path) -> None:
    for opening in range(2):
        store = open_store(str(tmp_path), True, now_us)
        new_kernel(store)
        assert put_token(store, QUICK, TOKEN) == TOKEN
        assert list_tokens(store) == [TOKEN], opening
        store.close()


def test_the_same_token_sent_again_is_answered_by_what_is_there(store: FaultyStore) -> None:
    put_token(store, QUICK, TOKEN)
    later = like(created=datetime(2026, 12, 1, tzinfo=UTC))
    assert put_token(store, QUICK, later) == TOKEN
    assert list_tokens(store) == [TOKEN]


@pytest.mark.parametrize(
    "other",
    [
        like(name="somebody else"),
        like(secret_hash=bytes(32)),
        like(grants=(Grant(Role.ADMIN),)),
        like(expires=None),
    ],
)
def test_another_token_under_the_same_id_is_refused(store: FaultyStore, other: Token) -> None:
    put_token(store, QUICK, TOKEN)
    with pytest.raises(ConflictError, match=TOKEN.id):
        put_token(store, QUICK, other)
    assert list_tokens(store) == [TOKEN]


@pytest.mark.parametrize(
    "wrong",
    [
        like(id="../etc"),
        like(id="0123456789AB"),
        like(id=""),
        like(name=" "),
        like(name="a\nb"),
        like(name="x" * 300),
        like(secret_hash=b"short"),
        like(grants=()),
        like(grants=(Grant(Role.READ),) * 101),
        like(grants=(Grant(Role.READ, ""),)),
        like(grants=(Grant(Role.READ, "*", "a\0b"),)),
        like(grants=(Grant(Role.ADMIN, "dev/*"),)),
        like(grants=(Grant(Role.ADMIN, "*", "sales.*"),)),
        like(expires=datetime(2030, 1, 1)),  # noqa: DTZ001 - that is what is wrong with it
    ],
)
def test_a_token_that_cannot_be_is_refused(store: FaultyStore, wrong: Token) -> None:
    with pytest.raises(InvalidRequest):
        put_token(store, QUICK, wrong)
    assert list_tokens(store) == []


def test_of_two_who_put_different_tokens_under_one_id_at_once_one_is_refused(store: FaultyStore) -> None:
    gate = store.pause(Point.BEFORE_SWAP, name=PREFIX + TOKEN.id)
    slow = Caller(lambda: put_token(store, QUICK, TOKEN))
    gate.wait_until_reached()
    quick = put_token(store.inner, QUICK, like(name="quick"))
    gate.open()
    assert isinstance(slow.error, ConflictError)
    assert list_tokens(store) == [quick]


def test_of_two_who_revoke_at_once_one_finds_nothing(store: FaultyStore) -> None:
    put_token(store, QUICK, TOKEN)
    gate = store.pause(Point.BEFORE_SWAP, name=PREFIX + TOKEN.id)
    slow = Caller(lambda: revoke_token(store, QUICK, TOKEN.id))
    gate.wait_until_reached()
    assert revoke_token(store.inner, QUICK, TOKEN.id) == TOKEN
    gate.open()
    assert isinstance(slow.error, TokenNotFound)


def test_a_lost_answer_is_looked_up(store: FaultyStore) -> None:
    store.lose_answer()
    assert put_token(store, QUICK, TOKEN) == TOKEN
    store.lose_answer()
    assert revoke_token(store, QUICK, TOKEN.id) == TOKEN
    assert list_tokens(store) == []


def test_a_store_that_never_says_what_happened_leaves_doubt(store: FaultyStore) -> None:
    store.lose_answer()
    store.fail(Point.TURN, Unavailable("away"), times=None, skip=1)
    with pytest.raises(OutcomeUnknown, match="token list"):
        put_token(store, QUICK, TOKEN)
    store.heal()
    assert put_token(store, QUICK, TOKEN) == TOKEN


def test_a_store_that_is_away_is_unavailable(store: FaultyStore) -> None:
    store.be_unavailable()
    with pytest.raises(Unavailable):
        put_token(store, QUICK, TOKEN)
    store.heal()
    store.lose_swap(times=None)
    with pytest.raises(RetriesExhausted, match=TOKEN.id):
        put_token(store, QUICK, TOKEN)
    store.heal()
    assert list_tokens(store) == []


def test_no_two_tokens_have_one_name_unless_one_replaces_the_other(store: FaultyStore) -> None:
    put_token(store, QUICK, TOKEN)
    other = like(id="f" * 12, secret_hash=bytes(32))
    with pytest.raises(ConflictError, match="'etl' already has a token, 0123456789ab"):
        put_token(store, QUICK, other)
    with pytest.raises(TokenNotFound, match="no token 'eeeeeeeeeeee' of 'etl' to replace"):
        put_token(store, QUICK, other, "e" * 12)
    assert list_tokens(store) == [TOKEN]
    assert put_token(store, QUICK, other, TOKEN.id) == other
    assert put_token(store, QUICK, other) == other, "the same one again is answered"
    revoke_token(store, QUICK, TOKEN.id)
    assert list_tokens(store) == [other]


def test_of_two_tokens_that_come_at_once_with_one_name_the_later_one_goes(store: FaultyStore) -> None:
    rival = like(id="f" * 12)
    store.at(Point.TURN, lambda: put_token(store, QUICK, rival), name=PREFIX + TOKEN.id)
    with pytest.raises(ConflictError, match="'etl' already has a token"):
        put_token(store, QUICK, TOKEN)
    assert list_tokens(store) == [rival]


def test_a_move_takes_tokens_along_and_a_fork_has_none(store: FaultyStore) -> None:
    kernel = Kernel(store, settings=QUICK)
    put_token(store, QUICK, TOKEN)
    forked, moved = MemoryStore(), MemoryStore()
    move(kernel, forked, fork=True)
    move(kernel, moved)
    assert list_tokens(forked) == []
    assert list_tokens(moved) == [TOKEN]
    with pytest.raises(LakeMoved):
        put_token(store, QUICK, like(id="f" * 12, name="other"))
    with pytest.raises(LakeMoved):
        revoke_token(store, QUICK, TOKEN.id)
    revoke_token(moved, QUICK, TOKEN.id)


def test_a_token_that_is_revoked_before_a_cancelled_move_is_repeated_does_not_come_back(
    store: FaultyStore,
) -> None:
    """The first try had copied it, and must not leave it there."""
    kernel, target = Kernel(store, settings=QUICK), FaultyStore(MemoryStore())
    put_token(store, QUICK, TOKEN)
    target.at(Point.AFTER_SWAP, _stop, name=PREFIX + TOKEN.id)
    with pytest.raises(Stopped):
        move(kernel, target)
    assert list_tokens(target) == [TOKEN]
    cancel_seal(store, QUICK)
    revoke_token(store, QUICK, TOKEN.id)
    move(kernel, target)
    assert list_tokens(target) == []


class Stopped(Exception):
    """The copy was stopped."""


def _stop() -> None:
    raise Stopped


@pytest.mark.parametrize("what", ["put", "revoke"])
def test_who_changes_a_token_while_the_lake_moves_away_is_told(store: FaultyStore, what: str) -> None:
    """Found neither by the mover, who has read all tokens, nor by itself, before it lands."""
    kernel, target = Kernel(store.inner, settings=QUICK), MemoryStore()
    if what == "revoke":
        put_token(store, QUICK, TOKEN)
    ways: dict[str, Callable[[], object]] = {
        "put": lambda: put_token(store, QUICK, TOKEN),
        "revoke": lambda: revoke_token(store, QUICK, TOKEN.id),
    }
    gate = store.pause(Point.BEFORE_SWAP, name=PREFIX + TOKEN.id)
    late = Caller(ways[what])
    gate.wait_until_reached()
    move(kernel, target)
    gate.open()
    assert isinstance(late.error, LakeMoved)
    assert list_tokens(store) == []
    assert list_tokens(target) == ([TOKEN] if what == "revoke" else [])


def test_a_repeated_put_takes_nothing_back_while_the_lake_is_being_sealed(store: FaultyStore) -> None:
    put_token(store, QUICK, TOKEN)
    kernel, target = Kernel(store.inner, settings=QUICK), MemoryStore()
    seen = store.pause(Point.REFERENCE, name="@lake")  # on its way, when the description is read
    again = Caller(lambda: put_token(store, QUICK, like(created=datetime(2026, 12, 1, tzinfo=UTC))))
    seen.wait_until_reached()
    move(kernel, target)
    seen.open()
    assert isinstance(again.error, LakeMoved | None)
    assert list_tokens(target) == list_tokens(store) == [TOKEN]


@pytest.mark.parametrize(
    "row",
    [
        Row(PREFIX + TOKEN.id, Kind.TOKEN, b"junk"),
        Row(PREFIX + TOKEN.id, Kind.TOKEN, msgspec.msgpack.encode(like(id="f" * 12))),
        Row(PREFIX + TOKEN.id, Kind.TOKEN, msgspec.msgpack.encode(like(grants=()))),
    ],
)
def test_fsck_names_a_token_that_cannot_be(store: FaultyStore, row: Row) -> None:
    kernel = Kernel(store, settings=QUICK)
    put_token(store, QUICK, TOKEN)
    assert fsck(kernel).damages == ()
    with store.turn(row.name) as turn:
        assert turn.advance({}, row).swapped
    assert [damage.object for damage in fsck(kernel).damages] == [row.name]
    if row.data != msgspec.msgpack.encode(like(grants=())):
        with pytest.raises(Damaged, match=row.name):
            list_tokens(store)


def test_a_sweep_leaves_tokens_alone_and_they_count_as_no_references(store: FaultyStore) -> None:
    kernel = Kernel(store, settings=Settings(grace_s=0, tombstone_days=0, nobody_writes=True))
    put_token(store, QUICK, TOKEN)
    sweep_objects(kernel)
    assert list_tokens(store) == [TOKEN]
    assert fsck(kernel).references == 1
