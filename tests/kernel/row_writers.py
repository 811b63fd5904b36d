"""Everything that changes a row of a store: how to have it done once, on a store that a test can have fail.

Each writer names the function of the source that it proves. ``calls_in_source`` finds all of them, so that a
new one without a writer is noticed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import msgspec

import penstock
from penstock.errors import LakeMoved
from penstock.formats.files.lake.ended_jobs import drop_branch
from penstock.kernel.backup import BackupMaker
from penstock.kernel.backup_points import PREFIX as BACKUP_PREFIX
from penstock.kernel.backup_points import BackupElsewhere, BackupPoint, read_points
from penstock.kernel.backup_registry import (
    complete_registration,
    register_backup,
    take_over_registration,
    unregister_backups,
)
from penstock.kernel.checks import BranchProposal
from penstock.kernel.copy import copy_store
from penstock.kernel.description import (
    HORIZONS_VERSION,
    ROW_NAME,
    LakeDescription,
    Seal,
    change_description,
    raise_version,
    read_description,
    write_description,
)
from penstock.kernel.expectations import add_expectation, remove_expectation
from penstock.kernel.jobs import JobRows
from penstock.kernel.kernel import Kernel
from penstock.kernel.lake_seal import cancel_seal, finish_seal, reopen_lake, seal_lake
from penstock.kernel.leases import Leases
from penstock.kernel.number_ranges import RangeRequest, reserve_numbers
from penstock.kernel.request_outcome import OutcomeLookup, SubmittedRequest
from penstock.kernel.settings import DAY_US, Settings
from penstock.kernel.sweep import sweep_objects
from penstock.kernel.table_horizons import TableHorizon, change_horizon, find_horizon
from penstock.kernel.tokens import list_tokens, put_token, revoke_token
from penstock.kernel.transactions import Transactions
from penstock.lake.backup import backup_lake, restore_backup
from penstock.lake.calls import ChangeRoots, PutSetting
from penstock.lake.lake import Lake
from penstock.lake.root_maps import map_root
from penstock.lake.upgrade import upgrade_lake
from penstock.model.commits import CommitMeta
from penstock.model.encoding import NO_COMMIT
from penstock.model.expectations import Expectation
from penstock.model.jobs import Job, JobState
from penstock.model.keys import Key
from penstock.model.objects import Large, decode_object
from penstock.model.operations import Put
from penstock.model.references import Event, Kind
from penstock.model.tokens import Grant, Role, Token
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store
from penstock.testing.faults import FaultyStore, Point
from tests.queue.hooks import table

QUICK = Settings(tries_max=5, backoff_min_ms=0, grace_s=0, tombstone_days=0, nobody_writes=True)
START_US = 1_800_000_000_000_000
SOURCE = Path(penstock.__file__).parent


class Clock:
    """Goes on by a microsecond each time, and further when it is set."""

    def __init__(self) -> None:
        self.us = START_US

    def __call__(self) -> int:
        self.us += 1
        return self.us


class Prepared(NamedTuple):
    """A change that is about to be made."""

    row: str
    """The name of the row that it changes."""
    change: Callable[[], object]
    """Makes it, and returns what came of it: the same in each new lake."""
    turns_before: int = 0
    """How many turns of the row somebody else has before, within the same call."""


class Writer(NamedTuple):
    """One way to change a row."""

    proves: str
    prepare: Callable[[FaultyStore], Prepared]
    swaps: bool
    """Whether it changes the row at all."""


WRITERS: dict[str, Writer] = {}


def writer(
    proves: str, *, swaps: bool = True
) -> Callable[[Callable[[FaultyStore], Prepared]], Callable[[FaultyStore], Prepared]]:
    def add(prepare: Callable[[FaultyStore], Prepared]) -> Callable[[FaultyStore], Prepared]:
        WRITERS[prepare.__name__.replace("_", " ")] = Writer(proves, prepare, swaps)
        return prepare

    return add


def new_kernel(store: Store) -> Kernel:
    kernel = Kernel(store, settings=QUICK, clock=Clock())
    write_description(store, DESCRIPTION)
    kernel.references.create_reference("main", Kind.BRANCH, NO_COMMIT)
    return kernel


def put(kernel: Kernel, branch: str, key: str) -> bytes:
    return kernel.commit(branch, [Put(Key(key), table())], CommitMeta(message=key)).head


def events(kernel: Kernel, name: str) -> list[str]:
    """What happened to a reference, oldest first."""
    return [entry.kind for _, entry in kernel.references.walk_log(name)][::-1]


def open_lake(store: Store) -> Lake:
    new_kernel(store)
    return penstock.open(store, create=False, settings=QUICK)


# -- the lake's description ------------------------------------------------------------------------------

DESCRIPTION = LakeDescription(id="1" * 32, created_us=START_US)


@writer("kernel.description:write_description")
def make_a_lake(store: FaultyStore) -> Prepared:
    def change() -> object:
        write_description(store, DESCRIPTION)
        return read_description(store)

    return Prepared(ROW_NAME, change)


@writer("kernel.description:raise_version")
def raise_the_format_version(store: FaultyStore) -> Prepared:
    new_kernel(store)

    def change() -> object:
        raise_version(store, QUICK, HORIZONS_VERSION)
        return read_description(store)

    return Prepared(ROW_NAME, change)


@writer("kernel.kernel:Kernel.keep_history")
def keep_history(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)

    def change() -> object:
        kernel.keep_history("*", 5, None)
        return read_description(store).history

    return Prepared(ROW_NAME, change)


@writer("kernel.kernel:Kernel.set_grace")
def set_a_grace(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)
    return Prepared(ROW_NAME, lambda: (kernel.set_grace(7200.0, None), read_description(store)))


@writer("lake.handlers.description:DescriptionHandlers._change_roots")
def change_roots(store: FaultyStore) -> Prepared:
    lake = open_lake(store)
    return Prepared(ROW_NAME, lambda: (lake.do(ChangeRoots(add=("/tmp/a",))), read_description(store).roots))


@writer("lake.root_maps:_rewrite_mapped_roots")
def map_a_root(store: FaultyStore) -> Prepared:
    open_lake(store).do(ChangeRoots(add=("/tmp/a",)))

    def change() -> object:
        return map_root(store, "/tmp/a", "/tmp/b", settings=QUICK), read_description(store).moved_roots

    return Prepared(ROW_NAME, change)


@writer("lake.handlers.description:DescriptionHandlers._put_setting")
def put_a_setting(store: FaultyStore) -> Prepared:
    lake = open_lake(store)
    lake.do(PutSetting(name="a", value="first"))
    return Prepared(
        ROW_NAME, lambda: (lake.do(PutSetting(name="a", value="b")), read_description(store).settings)
    )


@writer("lake.upgrade:upgrade_lake")
def upgrade_a_lake(store: FaultyStore) -> Prepared:
    new_kernel(store)
    return Prepared(ROW_NAME, lambda: upgrade_lake(store, settings=QUICK))


# -- moving a lake ---------------------------------------------------------------------------------------


def sealed(kernel: Kernel) -> int:
    with ThreadPoolExecutor(1) as workers:
        return [*seal_lake(kernel, "copy", "there", "ann", workers)][-1]


def _mark_of(store: FaultyStore) -> str | None:
    mark = read_description(store).sealed
    return None if mark is None else mark.copy


@writer("kernel.lake_seal:seal_lake")
def seal_a_lake(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)
    return Prepared(ROW_NAME, lambda: (sealed(kernel), _mark_of(store)))


@writer("kernel.lake_seal:_seal_reference")
def seal_a_branch(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)
    return Prepared("main", lambda: (sealed(kernel), events(kernel, "main")))


@writer("kernel.lake_seal:finish_seal")
def give_a_lake_away(store: FaultyStore) -> Prepared:
    sealed(new_kernel(store))

    def change() -> object:
        finish_seal(store, QUICK, "copy")
        return read_description(store).sealed

    return Prepared(ROW_NAME, change)


@writer("kernel.lake_seal:reopen_lake")
def take_a_lake_back(store: FaultyStore) -> Prepared:
    sealed(new_kernel(store))
    finish_seal(store, QUICK, "copy")

    def change() -> object:
        reopen_lake(store, QUICK, "copy")
        return read_description(store).sealed

    return Prepared(ROW_NAME, change)


@writer("kernel.lake_seal:cancel_seal")
def cancel_a_move(store: FaultyStore) -> Prepared:
    sealed(new_kernel(store))
    return Prepared(ROW_NAME, lambda: (cancel_seal(store, QUICK).copy, read_description(store).sealed))


def _copy_to(store: FaultyStore) -> Callable[[], object]:
    kernel = new_kernel(MemoryStore())
    put(kernel, "main", "a")

    def change() -> object:
        copied = copy_store(kernel, store, source_place="here", target_place="there")
        branches = [*Kernel(store).references.list_all_references(Kind.BRANCH)]
        return copied.references, copied.objects, [one.name for one in branches]

    return change


@writer("kernel.copy:_LakeCopy._rewrite_description")
def note_how_far_a_copy_is(store: FaultyStore) -> Prepared:
    return Prepared(ROW_NAME, _copy_to(store), turns_before=1)


@writer("kernel.copy:_LakeCopy._put_row")
def copy_a_row(store: FaultyStore) -> Prepared:
    return Prepared("main", _copy_to(store))


# -- sweeps and backups ----------------------------------------------------------------------------------


@writer("kernel.sweep:_note_expired")
def note_expired_commits(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)
    Kernel(store, settings=QUICK, clock=lambda: 0).keep_history("*", 1, None)
    put(kernel, "main", "a")
    put(kernel, "main", "b")
    assert isinstance(kernel.clock, Clock)
    kernel.clock.us += DAY_US
    return Prepared(
        ROW_NAME, lambda: (sweep_objects(kernel).tombstones, len(read_description(store).expired))
    )


@writer("kernel.sweep:_forget_tombstone")
def forget_a_deleted_branch(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)
    kernel.references.create_reference("dev", Kind.BRANCH, NO_COMMIT)
    kernel.references.delete_reference("dev")
    assert isinstance(kernel.clock, Clock)
    kernel.clock.us += DAY_US
    return Prepared("dev", lambda: (sweep_objects(kernel).tombstones, store.reference("dev")))


POINT = BackupPoint(
    id="p", created_us=START_US, description=b"", rows=Large(0, ()), source="here", is_complete=True
)


@writer("kernel.backup_registry:register_backup")
def register_a_backup(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)
    return Prepared(ROW_NAME, lambda: register_backup(kernel, "p", "there", START_US, []).backups)


@writer("kernel.backup_registry:take_over_registration")
def take_over_the_registration_of_a_backup(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)
    (registered,) = register_backup(
        new_kernel(FaultyStore(MemoryStore())), "p", "there", START_US, []
    ).backups
    former = BackupElsewhere(registered, ())
    return Prepared(
        ROW_NAME, lambda: (take_over_registration(kernel, former), read_description(store).backups)
    )


@writer("kernel.backup_registry:complete_registration")
def complete_the_registration_of_a_backup(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)
    register_backup(kernel, "p", "there", START_US, [])

    def change() -> object:
        complete_registration(kernel, POINT)
        return read_description(store).backups

    return Prepared(ROW_NAME, change)


@writer("kernel.backup_registry:unregister_backups")
def unregister_a_backup(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)
    register_backup(kernel, "p", "there", START_US, [])
    return Prepared(ROW_NAME, lambda: (unregister_backups(kernel, ["p"]), read_description(store).backups))


@writer("kernel.backup:BackupMaker._replace_point")
def note_a_backup_at_its_target(store: FaultyStore) -> Prepared:
    maker = BackupMaker(store, QUICK)

    def change() -> object:
        with maker._hold_lease():
            maker._replace_point(None, POINT)
        return read_points(store)

    return Prepared(BACKUP_PREFIX + "p", change)


@writer("lake.backup:_take_over")
def let_a_restored_copy_take_over(store: FaultyStore) -> Prepared:
    source, target = MemoryStore(), MemoryStore()
    put(new_kernel(source), "main", "a")
    backup_lake(source, target, settings=QUICK, register=False)
    restore_backup(target, store, settings=QUICK)

    def change() -> object:
        restore_backup(target, store, settings=QUICK, source_is_gone=True)
        return read_description(store).id, read_description(store).forked_from

    return Prepared(ROW_NAME, change)


# -- references ------------------------------------------------------------------------------------------


@writer("kernel.references:References.create_reference")
def create_a_branch(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)

    def change() -> object:
        made = kernel.references.create_reference("dev", Kind.BRANCH, NO_COMMIT)
        assert made == kernel.references.get_reference("dev")
        return made.position, events(kernel, "dev")

    return Prepared("dev", change)


@writer("kernel.references:References._withdraw_if_moved")
def take_back_a_branch_that_was_made_while_the_lake_was_sealed(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)
    store.at(Point.AFTER_SWAP, lambda: _mark_sealed(store), name="dev")
    return Prepared("dev", lambda: (_refused(lambda: _create(kernel)), store.reference("dev")), 1)


def _create(kernel: Kernel) -> object:
    return kernel.references.create_reference("dev", Kind.BRANCH, NO_COMMIT)


def _refused(change: Callable[[], object]) -> str:
    try:
        change()
    except LakeMoved as refused:
        return refused.message
    raise AssertionError("it was not refused")


def _mark_sealed(store: FaultyStore) -> None:
    """Only the description says so yet, as when a move has just begun."""
    mark = Seal(copy="copy", target="there", since_us=START_US)
    change_description(store.inner, QUICK, lambda lake: msgspec.structs.replace(lake, sealed=mark))


@writer("kernel.references:References.assign_reference")
def assign_a_branch(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)
    to = put(kernel, "main", "a")
    kernel.references.create_reference("dev", Kind.BRANCH, NO_COMMIT)

    def change() -> object:
        moved = kernel.references.assign_reference("dev", to)
        assert moved == kernel.references.get_reference("dev")
        return moved.head == to, events(kernel, "dev")

    return Prepared("dev", change)


@writer("kernel.references:References.delete_reference")
def delete_a_branch(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)
    kernel.references.create_reference("dev", Kind.BRANCH, NO_COMMIT)
    return Prepared("dev", lambda: (kernel.references.delete_reference("dev").kind, events(kernel, "dev")))


@writer("formats.files.lake.ended_jobs:drop_branch")
def drop_the_branch_of_an_attempt(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)
    dev = kernel.references.create_reference("dev", Kind.BRANCH, NO_COMMIT)
    return Prepared("dev", lambda: (drop_branch(kernel, dev), store.reference("dev")))


@writer("kernel.rebase:BranchRebase._rebase_once")
def rebase_a_branch(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)
    kernel.references.create_reference("dev", Kind.BRANCH, NO_COMMIT)
    put(kernel, "dev", "a")
    onto = put(kernel, "main", "b")

    def change() -> object:
        rebased = kernel.rebase("dev", onto, CommitMeta())
        return rebased.applied, len(rebased.commits), events(kernel, "dev")

    return Prepared("dev", change)


@writer("kernel.rebase:BranchRebase.preview_rebase", swaps=False)
def preview_a_rebase(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)
    kernel.references.create_reference("dev", Kind.BRANCH, NO_COMMIT)
    put(kernel, "dev", "a")
    onto = put(kernel, "main", "b")
    return Prepared(
        "dev",
        lambda: (len(kernel.rebase("dev", onto, CommitMeta(), dry_run=True).keys), events(kernel, "dev")),
    )


@writer("kernel.request_outcome:OutcomeLookup.call_off")
def call_a_request_off(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)
    main = kernel.references.get_reference("main")
    sent = SubmittedRequest("1" * 32, "main", main.incarnation, main.position, START_US + DAY_US)

    def change() -> object:
        commit = OutcomeLookup(kernel).call_off(sent)
        entry = decode_object(store.fetch([kernel.references.get_reference("main").log]).popitem()[1])
        return commit, entry.kind == Event.ABORT, events(kernel, "main")

    return Prepared("main", change)


class _Engine:
    def require_available(self) -> None:
        """It can always be asked."""

    def find_violation(self, _: BranchProposal, __: Expectation) -> str | None:
        return None


EXPECTATION = Expectation(name="some", sql="SELECT 1 FROM a", tables=("a",), who="ann", added_us=START_US)


@writer("kernel.expectations:add_expectation")
def add_an_expectation(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)
    kernel.checks.engine = _Engine()
    return Prepared("main", lambda: (add_expectation(kernel, "main", EXPECTATION), events(kernel, "main")))


@writer("kernel.expectations:remove_expectation")
def remove_an_expectation(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)
    kernel.checks.engine = _Engine()
    add_expectation(kernel, "main", EXPECTATION)
    return Prepared("main", lambda: (remove_expectation(kernel, "main", "some"), events(kernel, "main")))


# -- transactions ----------------------------------------------------------------------------------------

ID = "1" * 32
BRANCH = "tx/" + ID


@writer("kernel.transactions:Transactions._begin")
def begin_a_transaction(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)
    return Prepared(
        BRANCH, lambda: (Transactions(kernel).begin_transaction(ID, "main").state, events(kernel, BRANCH))
    )


@writer("kernel.transaction_rows:TransactionRows._move_row")
def abort_a_transaction(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)
    Transactions(kernel).begin_transaction(ID, "main")
    return Prepared(
        BRANCH, lambda: (Transactions(kernel).abort_transaction(ID).state, events(kernel, BRANCH))
    )


@writer("kernel.transaction_commit:TransactionCommits.forget_transaction")
def forget_a_transaction(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)
    Transactions(kernel).begin_transaction(ID, "main")
    ended = Transactions(kernel).abort_transaction(ID)
    assert isinstance(kernel.clock, Clock)
    kernel.clock.us += 30 * DAY_US

    def change() -> object:
        Transactions(kernel).forget_transaction(ended)
        return store.reference(BRANCH)

    return Prepared(BRANCH, change)


# -- tokens ----------------------------------------------------------------------------------------------

TOKEN = Token(
    id="0" * 12,
    name="etl",
    secret_hash=bytes(32),
    created=datetime(2027, 1, 1, tzinfo=UTC),
    grants=(Grant(Role.READ),),
)


@writer("kernel.tokens:put_token")
def put_a_token(store: FaultyStore) -> Prepared:
    new_kernel(store)
    return Prepared("@token/" + TOKEN.id, lambda: (put_token(store, QUICK, TOKEN), list_tokens(store)))


@writer("kernel.tokens:revoke_token")
def revoke_a_token(store: FaultyStore) -> Prepared:
    new_kernel(store)
    put_token(store, QUICK, TOKEN)
    return Prepared("@token/" + TOKEN.id, lambda: (revoke_token(store, QUICK, TOKEN.id), list_tokens(store)))


@writer("kernel.tokens:_withdraw_if_moved")
def take_back_a_token_that_was_put_while_the_lake_was_sealed(store: FaultyStore) -> Prepared:
    new_kernel(store)
    store.at(Point.AFTER_SWAP, lambda: _mark_sealed(store), name="@token/" + TOKEN.id)
    return Prepared(
        "@token/" + TOKEN.id,
        lambda: (_refused(lambda: put_token(store, QUICK, TOKEN)), list_tokens(store)),
        turns_before=1,
    )


# -- jobs ------------------------------------------------------------------------------------------------

JOB = Job(
    id=ID,
    fence="a",
    state=JobState.RUNNING,
    key="raw",
    branch="main",
    incarnation=b"",
    began_us=START_US,
    expires_us=START_US + DAY_US,
    changed_us=START_US,
)


def _jobs(store: FaultyStore) -> JobRows:
    kernel = new_kernel(store)
    return JobRows(store, QUICK, kernel.graces, kernel.clock)


def _sent_job(store: FaultyStore) -> tuple[JobRows, Job]:
    jobs = _jobs(store)
    jobs.begin_attempt(JOB)
    return jobs, jobs.commit_begins(ID, "a", "raw", "main", 1)


@writer("kernel.jobs:JobRows.begin_attempt")
def begin_a_job(store: FaultyStore) -> Prepared:
    jobs = _jobs(store)
    return Prepared("@job/" + ID, lambda: (jobs.begin_attempt(JOB), jobs.get_job(ID)))


@writer("kernel.jobs:JobRows.commit_begins")
def send_the_commit_of_a_job(store: FaultyStore) -> Prepared:
    jobs = _jobs(store)
    jobs.begin_attempt(JOB)

    def change() -> object:
        sent = jobs.commit_begins(ID, "a", "raw", "main", 1)
        assert sent == jobs.get_job(ID)
        return sent.state, sent.position

    return Prepared("@job/" + ID, change)


@writer("kernel.jobs:JobRows.change_committing")
def note_that_the_commit_of_a_job_has_landed(store: FaultyStore) -> Prepared:
    jobs, job = _sent_job(store)

    def change() -> object:
        return jobs.change_committing(
            job, lambda found, now_us: found.mark_landed(NO_COMMIT, now_us)
        ), jobs.get_job(ID)

    return Prepared("@job/" + ID, change)


@writer("kernel.jobs:JobRows.abort")
def abort_a_job(store: FaultyStore) -> Prepared:
    jobs = _jobs(store)
    jobs.begin_attempt(JOB)
    return Prepared("@job/" + ID, lambda: (jobs.abort(ID, "not wanted"), jobs.get_job(ID)))


@writer("kernel.jobs:JobRows.forget_job")
def forget_a_job(store: FaultyStore) -> Prepared:
    kernel = new_kernel(store)
    jobs = JobRows(store, QUICK, kernel.graces, kernel.clock)
    jobs.begin_attempt(JOB)
    assert isinstance(kernel.clock, Clock)
    kernel.clock.us += 1000 * DAY_US

    def change() -> object:
        jobs.forget_job(ID)
        return jobs.find_job(ID)

    return Prepared("@job/" + ID, change)


# -- leases and horizons ---------------------------------------------------------------------------------


@writer("kernel.leases:Leases.take_lease")
def take_a_lease(store: FaultyStore) -> Prepared:
    leases = Leases(store)

    def change() -> object:
        lease = leases.take_lease("table")
        return lease is not None and lease.renew_if_due(), Leases(store).take_lease("table")

    return Prepared("@lease/table", change)


@writer("kernel.number_ranges:reserve_numbers")
def reserve_numbers_of_a_table(store: FaultyStore) -> Prepared:
    """After an unknown outcome other numbers are reserved, so that only what they are not is told."""
    table = UUID(int=7)

    def change() -> object:
        ranges = [
            reserve_numbers(store, Settings(), table, {"id": RangeRequest(1, 1, None, 10)})["id"]
            for _ in range(2)
        ]
        return ranges[1] - ranges[0] >= 10 and all(last % 10 == 0 for last in ranges)

    return Prepared(f"@numbers/{table.hex}", change)


@writer("kernel.leases:Lease._renew_now")
def renew_a_lease(store: FaultyStore) -> Prepared:
    now_s = [0.0]
    lease = Leases(store, good_s=60.0, margin_s=15.0, elapsed_s=lambda: now_s[0]).take_lease("table")
    assert lease is not None
    now_s[0] = 46.0  # it is not good any more, unless it is renewed
    return Prepared("@lease/table", lease.renew_if_due)


@writer("kernel.leases:Lease.release")
def release_a_lease(store: FaultyStore) -> Prepared:
    lease = Leases(store).take_lease("table")
    assert lease is not None

    def change() -> object:
        lease.release()
        return store.reference("@lease/table")

    return Prepared("@lease/table", change)


TABLE = UUID(int=1)
HORIZON = TableHorizon(table=TABLE, key="a", erase="e", who="ann", begun_us=START_US)


@writer("kernel.table_horizons:change_horizon")
def set_the_horizon_of_a_table(store: FaultyStore) -> Prepared:
    new_kernel(store)
    return Prepared(
        "@horizon/" + TABLE.hex,
        lambda: (change_horizon(store, QUICK, TABLE, lambda _: HORIZON), find_horizon(store, TABLE)),
    )


# -- what the source has ---------------------------------------------------------------------------------

WAYS = {
    "kernel.records:RecordType.update_record",
    "kernel.description:change_description",
    "kernel.references:References.swap_reference",
    "kernel.jobs:JobRows._update_job",
    "kernel.transaction_rows:TransactionRows._swap_transaction",
}
"""Ways to change a row that others use. What they are used for are writers."""
METHODS = {"swap_reference", "_update_job", "_swap_transaction"}
CALLED = re.compile(
    r"\b(?:swap_row|change_description|turn|update_record|swap_reference|_update_job|_swap_transaction)\("
)
"""What every call that changes a row, or takes a turn of one, looks like."""


def calls_in_source() -> set[str]:
    """The functions that change a row, in any of the ways."""
    return set(_functions_with(_changes_row)) - WAYS


def turns_in_source() -> set[str]:
    """The functions that take a turn of a row themselves."""
    return set(_functions_with(_takes_turn))


def _functions_with(is_it: Callable[[ast.Call], bool]) -> Iterator[str]:
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        text = path.read_text()
        # Most files call nothing of the kind, and reading them as programs takes long.
        if parts[0] not in ("stores", "testing", "bench") and CALLED.search(text) is not None:
            yield from _in_body(ast.parse(text), ".".join(parts), (), is_it)


def _in_body(
    node: ast.AST, module: str, names: tuple[str, ...], is_it: Callable[[ast.Call], bool]
) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        inner = names
        is_named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if is_named and not (names and names[-1] == "()"):
            is_class = isinstance(child, ast.ClassDef)
            inner = (*names, child.name) if is_class else (*names, child.name, "()")  # type: ignore[attr-defined]
        if isinstance(child, ast.Call) and is_it(child):
            yield f"{module}:{'.'.join(name for name in names if name != '()')}"
        yield from _in_body(child, module, inner, is_it)


def _changes_row(call: ast.Call) -> bool:
    called = call.func
    if isinstance(called, ast.Name):
        return called.id in ("swap_row", "change_description")
    if not isinstance(called, ast.Attribute):
        return False
    is_record = isinstance(called.value, ast.Name) and called.value.id.isupper()
    return called.attr in METHODS or (called.attr == "update_record" and is_record)


def _takes_turn(call: ast.Call) -> bool:
    called = call.func
    if not isinstance(called, ast.Attribute) or called.attr != "turn":
        return False
    owner = called.value
    name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
    return name.lstrip("_") in ("store", "target", "source", "inner", "place")
