"""The scene of jobs that write files: what a table of files has, and what lies in the pool beside it."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from penstock.errors import KeyNotFound
from penstock.formats.files.lake.answers import FileEntry, JobInfo
from penstock.formats.files.lake.pool import find_pool
from penstock.lake.lake import Lake
from penstock.lake.write_jobs import make_job_id
from penstock.model.jobs import JobState
from penstock.model.keys import Key
from tests.servers.proxy import Proxy
from tests.spark.cluster.jobs import Job
from tests.spark.cluster.scene import Door, Scene
from tests.sweep.tables import LateClock

LONG_AFTER_DAYS = 90.0


class FilesScene(Scene):
    """A lake without any table at first."""

    def __init__(self, lake: Lake, door: Door, network: Proxy, directory: Path, later: LateClock) -> None:
        super().__init__(lake, door, network, directory)
        self._later = later

    @property
    def head(self) -> str:
        """The id of the branch's last commit."""
        return self.lake.branch().head

    def ids(self, key: str = "orders", branch: str | None = None) -> list[int]:
        try:
            files = self.lake.table(key, branch).files.list()
        except KeyNotFound:
            return []
        return sorted(number for file in files for number in _numbers(file))

    def leftovers(self, task: int | None = None) -> set[str]:
        """Files in the pool that no commit of the branch has: all, or those of a task."""
        pool = Path(find_pool(self.lake.warehouse))
        there = {str(path) for path in pool.rglob("part-*") if path.is_file()}
        for commit in self.lake.log():
            there -= {file.address for file in self.lake.table("orders", commit.id).files.list()}
        return there if task is None else {name for name in there if f"/part-{task:05d}-" in name}

    def job(self, job: Job) -> JobInfo | None:
        """What the lake knows of a job, as anybody may ask."""
        assert job.idempotency_key is not None
        known = {one.id: one for one in self.lake.jobs(all=True)}
        return known.get(make_job_id(job.idempotency_key, Key("orders"), self.lake.default_branch))

    def check_landed(self, commit: str, *jobs: Job) -> None:
        """The branch ends with this commit, the rows of these jobs are there, each once, and all is sound."""
        assert commit == self.head
        assert self.ids() == sorted(number for job in jobs for number in job.ids)
        assert not self.lake.fsck().damages

    def sweep(self) -> None:
        before = self.ids()
        self._later.days = LONG_AFTER_DAYS
        told = self.lake.sweep_files(remove_data=True)
        assert not told.problem
        assert not self.leftovers()
        assert not [one for one in self.lake.jobs(all=True) if one.state is JobState.RUNNING]
        assert [one.name for one in self.lake.branches()] == ["main"]
        assert self.ids() == before


def _numbers(file: FileEntry) -> list[int]:
    if file.path.endswith(".csv"):
        return [int(line.partition(",")[0]) for line in Path(file.address).read_text().splitlines()]
    found: list[int] = pq.read_table(file.address, columns=["id"])["id"].to_pylist()
    return found
