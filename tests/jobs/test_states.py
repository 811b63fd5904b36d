"""A job's states and what can happen to it: every state with every event, and many orders of events."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import msgspec
import pytest

from penstock import Namespace, Put
from penstock.errors import InvalidRequest, JobNotFound, JobOver
from penstock.formats.files.lake.calls import WriteFiles
from penstock.kernel.job_attempts import JobAttempts
from penstock.kernel.jobs import JOBS
from penstock.kernel.records import ReplaceRow
from penstock.lake.lake import Lake
from penstock.model.jobs import JobState
from penstock.model.keys import Key
from penstock.stores.memory import MemoryStore
from tests.jobs import lakes
from tests.jobs.lakes import DAY_S, EVENTS, ID, A, B, C, SetClock, check_sound, open_lake, told


class World(NamedTuple):
    """A lake, and what time it is there."""

    lake: Lake
    clock: SetClock


def new_world() -> World:
    clock = SetClock()
    return World(open_lake(MemoryStore(), clock), clock)


def reach(world: World, state: str) -> None:
    """Bring the job into a state of the table below."""
    lake = world.lake
    if state != "none":
        lakes.begin(lake, timeout_s=60)
    if state == "expired":
        world.clock.go_on(61)
    elif state == "superseded":
        lakes.begin(lake, B)
    elif state == "committing":
        sent(lake)
    elif state == "landed":
        landed_unnoted(lake)
    elif state == "committed":
        lakes.commit(lake)
    elif state == "aborted":
        lakes.abort(lake)


def forget(lake: Lake) -> None:
    JobAttempts(lake.kernel).jobs.forget_job(ID)


def forget_later(lake: Lake) -> None:
    clock = lake.kernel.clock
    assert isinstance(clock, SetClock)
    clock.go_on(12 * DAY_S)
    forget(lake)


EVENTS_OF: dict[str, Callable[[Lake], object]] = {
    "begin again": lambda lake: lakes.begin(lake, A),
    "begin anew": lambda lake: lakes.begin(lake, C),
    "commit": lambda lake: lakes.commit(lake, A),
    "abort": lakes.abort,
    "forget": forget,
    "forget later": forget_later,
}
TABLE = {
    # state: begin again, begin anew, commit, abort, forget, forget later
    "none": ("running A", "running C", "over", "JobNotFound", "", ""),
    "running": ("running A", "running C", "committed A", "aborted A", "running A", ""),
    "expired": ("running A", "running C", "over running A", "aborted A", "running A", ""),
    "superseded": ("over running B", "running C", "over running B", "aborted B", "running B", ""),
    "committing": (
        "committing A",
        "running C",
        "committed A",
        "committing A",
        "committing A",
        "committing A",
    ),
    "landed": ("committing A", "committed A", "committed A", "committed A", "committing A", "committing A"),
    "committed": ("committed A", "committed A", "committed A", "committed A", "committed A", ""),
    "aborted": ("aborted A", "running C", "over aborted A", "aborted A", "aborted A", ""),
}
CASES = [
    pytest.param(state, event, expected, id=f"{state}, {event}")
    for state, row in TABLE.items()
    for event, expected in zip(EVENTS_OF, row, strict=True)
]


def sent(lake: Lake, fence: str = A) -> None:
    """An attempt whose process died right after it noted that it commits."""
    JobAttempts(lake.kernel).send_commit(ID, fence, str(EVENTS), "main")


def landed_unnoted(lake: Lake) -> None:
    """An attempt whose process died when its commit had landed, and nobody noted it."""
    before = lakes.row(lake)
    lakes.commit(lake)
    after = lakes.row(lake)
    assert before is not None
    assert after is not None
    back = msgspec.structs.replace(
        before, state=JobState.COMMITTING, sends=1, changed_us=after.changed_us, position=after.position
    )
    JOBS.update_record(lake.kernel.store, lake.kernel.settings, ID, lambda _: ReplaceRow(back))


@pytest.mark.parametrize(("state", "event", "expected"), CASES)
def test_every_event_leads_from_every_state_to_one_state_or_one_refusal(
    state: str, event: str, expected: str
) -> None:
    world = new_world()
    lake = world.lake
    reach(world, state)
    refusal = told(lambda: EVENTS_OF[event](lake))
    row = lakes.row(lake)
    found = "" if row is None else f"{row.state} {row.fence[0].upper()}"
    assert f"{refusal} {found}".strip() == expected
    check_sound(lake)


MOVES: dict[str, Callable[[World], object]] = {
    "begin A": lambda world: lakes.begin(world.lake, A),
    "begin B": lambda world: lakes.begin(world.lake, B),
    "sent A": lambda world: sent(world.lake, A),
    "sent B": lambda world: sent(world.lake, B),
    "commit A": lambda world: lakes.commit(world.lake, A),
    "commit B": lambda world: lakes.commit(world.lake, B),
    "abort": lambda world: lakes.abort(world.lake),
    "abort A": lambda world: lakes.abort(world.lake, A),
    "time passes": lambda world: world.clock.go_on(4 * DAY_S),
}


def follow(moves: Sequence[str]) -> None:
    """Whatever the order: one attempt lands at most, and who was told so is the one that did."""
    world = new_world()
    lake = world.lake
    for move in moves:
        refusal = told(partial(MOVES[move], world))
        if move.startswith("commit") and not refusal:
            assert lakes.files(lake) == [(A, B)[move.endswith("B")]], moves
        elif move.startswith("commit"):
            assert (A, B)[move.endswith("B")] not in lakes.files(lake), moves
        check_sound(lake)


@pytest.mark.parametrize("first", MOVES)
def test_property_23_in_every_order_of_three_events_one_attempt_lands_at_most(first: str) -> None:
    for others in product(MOVES, repeat=2):
        follow(("begin A", first, *others))


def test_property_25_in_long_orders_of_events_one_attempt_lands_at_most(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(150):
        follow(chance.choices(list(MOVES), k=9))


def test_property_25_a_late_beginning_of_an_older_attempt_does_not_end_the_newer_one() -> None:
    lake = open_lake(MemoryStore())
    lakes.begin(lake, A)
    lakes.begin(lake, B)
    with pytest.raises(JobOver, match="newer attempt"):
        lakes.begin(lake, A)
    assert lakes.commit(lake, B).commit is not None


def test_an_id_is_one_jobs_for_one_table_and_one_branch() -> None:
    lake = open_lake(MemoryStore())
    lake.branch("dev").create()
    lakes.begin(lake, A)
    for other in ({"key": Key.parse("raw.clicks")}, {"branch": "dev"}):
        with pytest.raises(InvalidRequest, match="give this job another id"):
            lakes.begin(lake, B, **other)
    assert lakes.commit(lake, A).commit is not None


@pytest.mark.parametrize(
    "other", [{"key": Key.parse("raw.clicks")}, {"branch": "dev"}], ids=["key", "branch"]
)
def test_a_commit_to_another_table_or_branch_is_refused_and_leaves_the_job_as_it_is(
    other: dict[str, Any],
) -> None:
    lake = open_lake(MemoryStore())
    lake.branch("dev").create()
    lakes.begin(lake)
    with pytest.raises(InvalidRequest, match=r"writes 'raw\.events' on 'main'"):
        lakes.commit(lake, **other)
    assert lakes.job(lake).state is JobState.RUNNING
    assert lakes.commit(lake).commit is not None


def test_property_39_a_refused_commit_is_noted_as_aborted_and_the_job_can_run_again() -> None:
    lake = open_lake(MemoryStore())
    lakes.begin(lake, C, id="2" * 32)
    first = lakes.commit(lake, C, id="2" * 32)
    lakes.begin(lake)
    assert told(lambda: lakes.commit(lake, when="empty")) == "CommitConflict"
    assert (lakes.job(lake).state, lake.show().id) == (JobState.ABORTED, first.head)
    assert told(lambda: lakes.commit(lake, when="empty")) == "over"
    lakes.begin(lake, B)
    assert lakes.commit(lake, B).commit is not None
    assert lakes.files(lake) == [B, C]


def test_property_22_aborting_twice_says_the_same_and_an_unknown_job_is_told_so() -> None:
    lake = open_lake(MemoryStore())
    with pytest.raises(JobNotFound):
        lakes.abort(lake)
    lakes.begin(lake)
    first, second = lakes.abort(lake), lakes.abort(lake)
    assert (first.state, first.why) == (second.state, second.why) == (JobState.ABORTED, "not wanted")


def test_property_24_two_jobs_of_one_moment_have_folders_apart_and_both_land() -> None:
    lake = open_lake(MemoryStore(), lambda: lakes.START_US)
    one, other = lakes.begin(lake, A), lakes.begin(lake, B, id="2" * 32)
    assert one.folder != other.folder
    assert [job.id for job in other.others] == [ID]
    lakes.commit(lake, A)
    lakes.commit(lake, B, id="2" * 32)
    assert lakes.files(lake) == [A, B]


@pytest.mark.parametrize("own_branch", [False, True], ids=["on the branch", "on its own branch"])
@pytest.mark.parametrize("what", ["made anew", "moved back"])
def test_property_46_nothing_lands_on_a_branch_that_was_made_anew_or_moved_back(
    what: str, own_branch: bool
) -> None:
    lake = open_lake(MemoryStore())
    dev = lake.branch("dev").create()
    lake.commit([Put(Key.parse("other"), Namespace())], branch="dev")
    lakes.begin(lake, branch="dev", own_branch=own_branch)
    if what == "made anew":
        head = dev.head
        dev.delete()
        lake.branch("dev").create(at=head)
    else:
        dev.assign("main")
    assert told(lambda: lakes.commit(lake, branch="dev")) == "ReferenceChanged"
    assert lakes.job(lake).state is JobState.ABORTED
    assert lakes.branches(lake) == ["dev", "main"]


def test_a_commit_needs_the_folder_of_its_attempt() -> None:
    lake = open_lake(MemoryStore())
    lakes.begin(lake)
    call = WriteFiles(key=EVENTS, job=ID, fence=A, folder=f"20270115-{lake.id[:12]}/{B}/")
    with pytest.raises(InvalidRequest, match="folder"):
        lake.do(call)
    assert lakes.job(lake).state is JobState.RUNNING


@pytest.mark.parametrize("end", ["abort", "commit"])
def test_property_14_a_process_that_goes_on_after_its_job_has_ended_changes_nothing(end: str) -> None:
    lake = open_lake(MemoryStore())
    lakes.begin(lake, A)
    lakes.begin(lake, B)
    if end == "abort":
        lakes.abort(lake)
    else:
        lakes.commit(lake, B)
    before = lake.kernel.references.get_reference("main")
    assert told(lambda: lakes.commit(lake, A)) == "over"
    assert told(lambda: lakes.begin(lake, A)) == "over"
    assert lakes.abort(lake, A).state is (JobState.ABORTED if end == "abort" else JobState.COMMITTED)
    assert lake.kernel.references.get_reference("main") == before
    lakes.begin(lake, C, id="2" * 32)
    assert lakes.commit(lake, C, id="2" * 32).commit is not None
    assert lakes.files(lake) == ([C] if end == "abort" else [B, C])
