"""Attempts of jobs: what they tell the lake when they begin, and what becomes of them when they fail.

A job that does not come to its commit is aborted, so that nothing can come of it later, and its files are
removed, as far as it is certain that no commit names them. A sweep finds what is left.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import HistoryExpired, OutcomeUnknown, PenstockError
from penstock.formats.files.files import make_fence
from penstock.formats.files.lake import job_markers as files_beside
from penstock.formats.files.lake import save_job as files_save_job
from penstock.formats.files.lake.answers import FilesWritten, JobBegun
from penstock.formats.files.lake.calls import AbortJob, WriteFiles
from penstock.formats.files.lake.pool import find_pool
from penstock.lake.job_files import is_refusal, remove_files
from penstock.model.commits import EMPTY_COMMIT_ID, Commit
from penstock.model.jobs import TEXT_MAX_CHARS, JobState
from penstock.spark.requests import WriteResult

if TYPE_CHECKING:
    from penstock.formats.files.lake.save_job import FilesJob
    from penstock.lake.lake import Lake
    from penstock.storage.places import Place

_LOG: Final = logging.getLogger("penstock.spark")


class JobAttempt:
    """One try of a job to write a table."""

    def __init__(self, lake: Lake, order: FilesJob, job: str) -> None:
        """Let it begin. ``InvalidRequest`` if the job is one that writes another table."""
        self.lake, self.order, self.job = lake, order, job
        self.fence = make_fence(order.branch or lake.default_branch, order.key)
        self._is_sent = False
        call = msgspec.structs.replace(
            files_save_job.make_begin_call(order, job, self.fence.hex), who=lake.author
        )
        self._begun: JobBegun = lake.do(call)

    @property
    def pool(self) -> Place:
        return self.lake.places.open_place(find_pool(self.lake.warehouse))

    @property
    def branch(self) -> str:
        """That it commits to."""
        return self._begun.job.branch

    @property
    def folder(self) -> str:
        """Its own, below the pool, with a slash at its end."""
        return files_save_job.get_folder_below_pool(self._begun.folder)

    @property
    def began(self) -> datetime:
        return self._begun.job.began

    @property
    def others(self) -> str:
        """What is to be said of jobs that write the same table right now; nothing without any."""
        return files_save_job.write_concurrent_jobs_warning(self.order.key, self._begun.others)

    @property
    def is_over(self) -> bool:
        """Whether an earlier attempt of the job has landed, so that there is nothing left to do."""
        return self._begun.job.state is JobState.COMMITTED

    def find_landed_result(self) -> WriteResult | None:
        """The result of the job's attempt that has landed; ``None`` if it changed nothing."""
        landed = self._begun.job.commit
        if landed in ("", EMPTY_COMMIT_ID):
            return None
        commit: Commit | None = None
        with suppress(HistoryExpired):
            (commit,) = self.lake.log(landed, via=self.branch, limit=1)
        return WriteResult(
            key=self.order.key, branch=self.branch, commit=commit, job=self.job, is_repeated=True
        )

    def commit(self, call: WriteFiles) -> FilesWritten:
        """Send the job's one commit. ``OutcomeUnknown`` names the job, by which it can be asked again."""
        short = msgspec.structs.replace(files_beside.with_file_list(self.pool, call), who=self.lake.author)
        self._is_sent = True
        try:
            return self.lake.do(short)
        except OutcomeUnknown as unknown:
            raise OutcomeUnknown(
                f"{unknown.message}\n  The job is {self.job}. Write again with job_id='{self.job}': a job "
                "is committed at most once. 'penstock jobs list --all' shows its state.",
                **{**unknown.details, "job": self.job},
            ) from None

    @contextmanager
    def abort_on_failure(self) -> Iterator[None]:
        """Abort the attempt if this block raises, and raise the same error."""
        try:
            yield
        except BaseException as error:
            self.abort(f"{type(error).__name__}: {error}".partition("\n")[0])
            if not self._is_sent or is_refusal(error):
                self._remove_files()
            raise

    def abort(self, why: str) -> None:
        """Let it never land, as far as that can be said now; after its time it cannot in any case."""
        with suppress(PenstockError):
            call = AbortJob(id=self.job, fence=self.fence.hex, why=why[:TEXT_MAX_CHARS], who=self.lake.author)
            self.lake.do(call)

    def _remove_files(self) -> None:
        with suppress(PenstockError):
            remove_files(self.pool, [entry.key for entry in self.pool.entries(self.folder)])
