"""Files and branches of jobs: those of a job that may yet land stay, those of one that never will, go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.errors import JobOver, ReferenceExists
from penstock.formats.files.lake.calls import AbortJob, ListJobs
from penstock.kernel.hand_off import CommitSettler
from penstock.kernel.job_attempts import JobAttempts
from penstock.kernel.jobs import JobRows
from penstock.kernel.settings import Settings
from penstock.lake.lake import Lake
from penstock.model.jobs import JobState, make_own_branch_note
from penstock.model.references import Kind
from tests.sweep.pool import Pool, swept
from tests.sweep.tables import LateClock

HOUR = 1 / 24


@pytest.fixture
def lake(tmp_path: Path, later: LateClock) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", create=True, author="tester", clock=later) as lake:
        yield lake


@pytest.fixture
def pool(lake: Lake) -> Pool:
    return Pool(lake)


def abort(lake: Lake, job: str) -> None:
    assert lake.do(AbortJob(id=job)).state is JobState.ABORTED


def state(lake: Lake, job: str) -> JobState:
    (found,) = [one.state for one in lake.do(ListJobs(all=True)) if one.id == job]
    return found


def branches(lake: Lake) -> list[str]:
    return [one.name for one in lake.branches() if one.name != "main"]


def test_a_sweep_never_takes_the_files_of_a_job_that_may_yet_commit(tmp_path: Path, later: LateClock) -> None:
    """Property 50, and 56. Its files look older than the grace time, as by a storage whose clock is behind;
    and whoever sweeps has a clock that is ahead by more than that time."""
    settings = Settings(data_grace_days=2, nobody_writes=True)
    with (
        penstock.open(tmp_path / "lake", create=True, settings=settings, clock=later) as lake,
        penstock.open(tmp_path / "lake", create=True, settings=settings, clock=LateClock(2.9)) as ahead,
    ):
        pool = Pool(lake)
        begun = pool.begin("t")
        written = pool.put(pool.below(begun), "a", "day=1/b", days=30)
        later.days = 0.9
        assert (swept(lake).data_files, swept(ahead).data_files) == (0, 0)
        assert swept(ahead).waiting == 2, "it was looked at"
        assert pool.commit(begun, "a", "day=1/b").commit is not None
        later.days = 30
        assert swept(lake).kept == 2
        assert pool.files() == written


def test_files_of_a_job_that_died_go_a_grace_time_after_its_deadline(
    lake: Lake, pool: Pool, later: LateClock
) -> None:
    """Property 51: when nobody is at it any more, nothing is left."""
    begun = pool.begin("t", timeout_s=3 * 86_400.0, own_branch=True)
    left = pool.put(pool.below(begun), "a")
    for days in (7.5, 9.9):
        later.days = days
        told = swept(lake)
        assert (told.data_files, told.branches, told.jobs_forgotten) == (0, 0, 0)
        assert (pool.files(), branches(lake)) == (left, [f"jobs/{begun.job.id}"])
    later.days = 10.1
    told = swept(lake)
    assert (set(told.names), told.branches, told.jobs_forgotten) == (left, 1, 1)
    assert (pool.files(), branches(lake), lake.do(ListJobs(all=True))) == (set(), [], ())
    with pytest.raises(JobOver):
        pool.commit(begun, "a")


def test_files_of_an_aborted_job_go_an_hour_later(lake: Lake, pool: Pool, later: LateClock) -> None:
    begun = pool.begin("t")
    left = pool.put(pool.below(begun), "a", "b")
    others = pool.put(pool.folder(), "x")
    abort(lake, begun.job.id)
    later.days = 0.9 * HOUR
    assert swept(lake).data_files == 0
    later.days = 1.1 * HOUR
    told = swept(lake)
    assert (set(told.names), told.data_bytes) == (left, 2)
    assert pool.files() == others, "those that no job is known of are as old as before"


def test_what_a_zombie_writes_after_the_abort_goes_at_the_next_sweep(
    lake: Lake, pool: Pool, later: LateClock, tmp_path: Path
) -> None:
    """Property 14: it lands nowhere, and the next job is not touched."""
    begun = pool.begin("t")
    pool.put(pool.below(begun), "a")
    abort(lake, begun.job.id)
    later.days = 1.1 * HOUR
    swept(lake)
    late = pool.put(pool.below(begun), "b", days=-1.0 * HOUR)
    with pytest.raises(JobOver):
        pool.commit(begun, "b")
    after = pool.begin("t", begun.job.id)
    files = pool.put(pool.below(after), "b")
    pool.commit(after, "b")
    assert swept(lake).data_files == 0, "a task may still be writing"
    later.days = 8
    assert set(swept(lake).names) == late
    assert pool.files() == files
    assert pool.read("t") == {"b": b"b"}


def test_files_of_a_superseded_attempt_go_and_those_of_the_newest_stay(
    lake: Lake, pool: Pool, later: LateClock
) -> None:
    first = pool.begin("t", own_branch=True)
    left = pool.put(pool.below(first), "a")
    second = pool.begin("t", first.job.id, own_branch=True)
    files = pool.put(pool.below(second), "a")
    swept(lake)
    assert second.job.own_branch in branches(lake), "the newest attempt needs it"
    assert pool.files() == left | files
    pool.commit(second, "a")
    later.days = 8
    assert set(swept(lake).names) == left
    assert pool.read("t") == {"a": b"a"}


def test_after_an_abort_no_branch_is_left_and_at_last_no_row(
    lake: Lake, pool: Pool, later: LateClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Property 52, also if the process dies between the abort and the branch's end."""
    begun = pool.begin("t", own_branch=True)
    JobAttempts(lake.kernel).jobs.abort(begun.job.id, "by a test")
    assert branches(lake) == [begun.job.own_branch]
    told = swept(lake, dry_run=True)
    assert (told.branches, branches(lake)) == (1, [begun.job.own_branch])
    told = swept(lake, remove_data=False)
    assert (told.branches, branches(lake)) == (1, [])
    assert state(lake, begun.job.id) is JobState.ABORTED
    later.days = 12
    assert swept(lake, remove_data=False).jobs_forgotten == 1
    assert lake.do(ListJobs(all=True)) == ()


def test_a_branch_whose_job_is_not_known_any_more_goes_after_the_grace_time(
    lake: Lake, pool: Pool, later: LateClock
) -> None:
    name = f"jobs/{'0123456789abcdef' * 2}"
    for other in ("jobs/nightly", f"{name}x", f"{name}-2"):
        lake.branch(other).create()
    pool.write("t", "a")
    note = make_own_branch_note("f" * 32)
    lake.kernel.references.create_reference(
        name, Kind.BRANCH, lake.kernel.resolve_revision("main")[0], note=note
    )
    pool.write("t", "b", branch=name)
    later.days = 6
    assert swept(lake).branches == 0
    later.days = 8
    assert swept(lake).branches == 1
    assert branches(lake) == [f"{name}-2", f"{name}x", "jobs/nightly"], "those that people made stay"


def test_a_branch_that_somebody_made_is_never_taken_for_that_of_a_job(
    lake: Lake, pool: Pool, later: LateClock
) -> None:
    """Whatever its name: no attempt works on it, and neither a sweep nor the end of a job removes it."""
    job = "0" * 32
    pool.write("t", "a")
    lake.branch(f"jobs/{job}").create()
    pool.write("t", "mine", branch=f"jobs/{job}")
    with pytest.raises(ReferenceExists):
        pool.begin("t", job, own_branch=True)
    assert state(lake, job) is JobState.ABORTED
    begun = pool.begin("t", job, own_branch=True)
    assert begun.job.own_branch == f"jobs/{job}-2"
    pool.put(pool.below(begun), "b")
    pool.commit(begun, "b")
    for later.days in (1, 8, 30):
        swept(lake)
    assert branches(lake) == [f"jobs/{job}"]
    assert set(pool.read("t", f"jobs/{job}")) == {"a", "mine"}
    assert set(pool.read("t")) == {"a", "b"}


def test_an_attempt_does_not_commit_to_a_branch_that_took_the_place_of_its_own(
    lake: Lake, pool: Pool
) -> None:
    pool.write("t", "a")
    begun = pool.begin("t", own_branch=True)
    pool.put(pool.below(begun), "b")
    lake.branch(begun.job.own_branch).delete()
    lake.branch(begun.job.own_branch).create()
    pool.write("t", "mine", branch=begun.job.own_branch)
    with pytest.raises(JobOver):
        pool.commit(begun, "b")
    assert state(lake, begun.job.id) is JobState.ABORTED
    assert set(pool.read("t")) == {"a"}
    assert set(pool.read("t", begun.job.own_branch)) == {"a", "mine"}


def test_what_a_forgotten_job_left_on_its_branch_is_not_in_a_job_of_the_same_id(
    lake: Lake, pool: Pool, later: LateClock
) -> None:
    first = pool.begin("t", own_branch=True)
    pool.write("t", "old", branch=first.job.own_branch)
    later.days = 30
    jobs = JobAttempts(lake.kernel).jobs
    jobs.abort(first.job.id, "by a test")
    later.days = 60
    jobs.forget_job(first.job.id)
    second = pool.begin("t", first.job.id, own_branch=True)
    assert second.job.own_branch == first.job.own_branch
    pool.put(pool.below(second), "new")
    pool.commit(second, "new")
    assert set(pool.read("t")) == {"new"}
    assert branches(lake) == []


@pytest.mark.parametrize("own_branch", [False, True], ids=["on the branch", "on its own"])
def test_an_id_may_be_used_again_when_its_job_is_forgotten(
    lake: Lake, pool: Pool, later: LateClock, own_branch: bool
) -> None:
    """The receipt of its commit may be there for longer than its row."""
    id = "1" * 32  # noqa: A001
    for round, days in enumerate((0, 30, 60)):  # noqa: A001
        later.days = days
        assert swept(lake, remove_data=False).jobs_forgotten == bool(round)
        begun = pool.begin("t", id, own_branch=own_branch)
        assert begun.job.state is JobState.RUNNING
        pool.put(pool.below(begun), f"{round}")
        written = pool.commit(begun, f"{round}")
        assert written.commit is not None
        again = pool.commit(begun, f"{round}")
        assert again.commit is not None
        assert again.commit.id == written.commit.id
    assert set(pool.read("t")) == {"0", "1", "2"}


def test_a_branch_that_another_attempt_has_taken_up_meanwhile_stays(
    lake: Lake, pool: Pool, later: LateClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = pool.begin("t", own_branch=True)
    jobs = JobAttempts(lake.kernel).jobs
    jobs.abort(begun.job.id, "by a test")
    find, taken = JobRows.find_job, list[bool]()

    def finding(self: JobRows, id: str) -> object:  # noqa: A002
        found = find(self, id)
        if not taken:
            taken.append(True)
            lake.branch(begun.job.own_branch).delete()
            lake.branch(begun.job.own_branch).create()
        return found

    monkeypatch.setattr(JobRows, "find_job", finding)
    assert swept(lake).branches == 0
    assert branches(lake) == [begun.job.own_branch]


@pytest.mark.parametrize("has_landed", [False, True], ids=["it never landed", "it landed"])
def test_a_job_that_died_while_it_committed_is_settled_by_its_branch(
    lake: Lake, pool: Pool, later: LateClock, monkeypatch: pytest.MonkeyPatch, has_landed: bool
) -> None:
    begun = pool.begin("t")
    files = pool.put(pool.below(begun), "a")

    def dying(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if has_landed:
            patch.setattr(CommitSettler, "note_landed", dying)
        else:
            patch.setattr(lake.kernel, "commit", dying)
        with pytest.raises(KeyboardInterrupt):
            pool.commit(begun, "a")
    job = JobAttempts(lake.kernel).jobs.get_job(begun.job.id)
    assert job.state is JobState.COMMITTING
    later.days = 3
    told = swept(lake)
    assert (told.data_files, told.jobs_settled) == (0, int(has_landed)), "it may still be under way"
    later.days = 5
    told = swept(lake)
    assert told.jobs_settled == int(not has_landed)
    assert state(lake, begun.job.id) is (JobState.COMMITTED if has_landed else JobState.ABORTED)
    later.days = 13
    assert swept(lake).data_files == int(not has_landed)
    assert pool.files() == (files if has_landed else set())
    if has_landed:
        assert pool.read("t") == {"a": b"a"}


def test_a_row_is_not_forgotten_while_its_job_is_committing(lake: Lake, pool: Pool, later: LateClock) -> None:
    begun = pool.begin("t")
    pool.put(pool.below(begun), "a")
    later.days = 3.4
    fence = pool.below(begun).rstrip("/").rpartition("/")[2]
    JobAttempts(lake.kernel).send_commit(begun.job.id, fence, "t", "main")
    later.days = 3.5
    assert swept(lake).jobs_forgotten == 0
    assert pool.commit(begun, "a").commit is not None
    later.days = 30
    told = swept(lake)
    assert (told.jobs_forgotten, told.data_files) == (1, 0)
    assert pool.read("t") == {"a": b"a"}
