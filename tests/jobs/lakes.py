"""What these tests share: lakes on stores that can fail, and jobs that write tables of files."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, Generic, TypeVar

import msgspec

import penstock
from penstock.errors import JobOver, LakeExists, PenstockError, ReferenceExists
from penstock.formats.files.lake.answers import FilesWritten, JobBegun, JobInfo
from penstock.formats.files.lake.calls import AbortJob, BeginJob, ListFiles, ListJobs, NewFile, WriteFiles
from penstock.kernel.description import make_description, write_description
from penstock.kernel.job_attempts import JobAttempts
from penstock.kernel.kernel import Kernel
from penstock.kernel.settings import Settings
from penstock.lake.lake import Lake
from penstock.model.clock import Clock, now_us
from penstock.model.encoding import NO_COMMIT
from penstock.model.jobs import Job, JobState
from penstock.model.keys import Key
from penstock.model.references import Kind
from penstock.stores.port import Store

T = TypeVar("T")

EVENTS = Key.parse("raw.events")
ID, A, B, C = "1" * 32, "a" * 32, "b" * 32, "c" * 32
WAIT_S = 20.0
START_US = 1_800_000_000_000_000
HOUR_S, DAY_S = 3600.0, 24 * 3600.0


class SetClock:
    """A clock that a test sets."""

    def __init__(self, start_us: int = START_US) -> None:
        self.now_us = start_us

    def __call__(self) -> int:
        self.now_us += 1
        return self.now_us

    def go_on(self, seconds: float) -> None:
        self.now_us += int(seconds * 1_000_000)


def open_lake(store: Store, clock: Clock = now_us, settings: Settings | None = None) -> Lake:
    """A process's view of the lake in a store, which is made if there is none."""
    with suppress(ReferenceExists, LakeExists):
        if store.reference("@lake") is None:
            Kernel(store).references.create_reference("main", Kind.BRANCH, NO_COMMIT)
            write_description(store, make_description(START_US, "main", "/nowhere/warehouse", ()))
    return penstock.open(store, create=False, clock=clock, settings=settings, author="tester")


def begin(lake: Lake, fence: str = A, id: str = ID, **more: Any) -> JobBegun:  # noqa: A002
    return lake.do(BeginJob(id=id, fence=fence, key=more.pop("key", EVENTS), **more))


def commit(lake: Lake, fence: str = A, id: str = ID, **more: Any) -> FilesWritten:  # noqa: A002
    """The commit of an attempt, with one file that has its name."""
    day = penstock.model.clock.to_utc_datetime(START_US)
    folder = f"{day:%Y%m%d}-{lake.id.replace('-', '')[:12]}/{fence}/"
    added = (NewFile(path=f"{fence}.parquet", size=1),)
    call = WriteFiles(
        key=EVENTS, job=id, fence=fence, folder=folder, added=added, idempotency_key=id, who="tester"
    )
    return lake.do(msgspec.structs.replace(call, **more))


def abort(lake: Lake, fence: str | None = None, id: str = ID) -> JobInfo:  # noqa: A002
    return lake.do(AbortJob(id=id, fence=fence, why="not wanted"))


def job(lake: Lake, id: str = ID) -> JobInfo:  # noqa: A002
    (found,) = lake.do(ListJobs(id=id, all=True))
    return found


def row(lake: Lake, id: str = ID) -> Job | None:  # noqa: A002
    return JobAttempts(lake.kernel).jobs.find_job(id)


def files(lake: Lake, branch: str = "main") -> list[str]:
    """The attempts that have landed, by the files that are there."""
    if lake.kernel.references.get_reference(branch).head == NO_COMMIT:
        return []
    if lake.at(branch).get(EVENTS) is None:
        return []
    found = lake.do(ListFiles(key=EVENTS, at=branch, limit=None))
    return [one.path.removesuffix(".parquet") for one in found]


def branches(lake: Lake) -> list[str]:
    return [one.name for one in lake.branches()]


def check_sound(lake: Lake, id: str = ID) -> None:  # noqa: A002
    """What holds of a job at any time: at most one attempt has landed, and its row agrees."""
    landed, known = files(lake), row(lake, id)
    assert len(landed) <= 1, landed
    if known is not None and known.state is JobState.COMMITTED:
        assert landed == [known.fence]
        assert lake.show().id == known.commit.hex()
    if known is not None and known.state in (JobState.ABORTED, JobState.RUNNING):
        assert landed == []


def told(action: Callable[[], object]) -> str:
    """What somebody is told: ``over``, another error by its class, or nothing if it worked."""
    try:
        action()
    except JobOver:
        return "over"
    except PenstockError as problem:
        return type(problem).__name__
    return ""


class Running(Generic[T]):
    """A piece of work in a thread of its own."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result.append(self._work())
        except BaseException as error:
            self._error = error

    def result(self) -> T:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "it hangs"
        if self._error is not None:
            raise self._error
        return self._result[0]
