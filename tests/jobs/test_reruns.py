"""A job that is run again after it landed: its new attempt has a folder of its own."""

from __future__ import annotations

import contextlib
from pathlib import Path
from uuid import uuid4

import penstock
from penstock.formats.files.lake.calls import BeginJob, NewFile, WriteFiles
from penstock.formats.files.lake.save_job import get_folder_below_pool
from penstock.model.jobs import JobState
from penstock.model.keys import Key

KEY = Key("raw", "events")


def test_a_rerun_of_a_landed_job_is_not_given_the_folder_that_the_table_names(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        job, fence = uuid4().hex, uuid4().hex
        first = lake.do(BeginJob(id=job, fence=fence, key=KEY))
        folder = get_folder_below_pool(first.folder)
        new = (NewFile(path="a", size=1),)
        lake.do(WriteFiles(key=KEY, folder=folder, added=new, job=job, fence=fence))
        again = lake.do(BeginJob(id=job, fence=uuid4().hex, key=KEY))
        assert again.job.state is JobState.COMMITTED
        assert again.folder != first.folder
        assert lake.table(KEY).files.urls() == [f"{first.folder}a"]


def test_an_own_branch_that_somebody_merged_by_hand_has_landed(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        lake.table(KEY).files.put("old", b"1")
        job, fence = uuid4().hex, uuid4().hex
        begun = lake.do(BeginJob(id=job, fence=fence, key=KEY, own_branch=True))
        call = WriteFiles(
            key=KEY,
            folder=get_folder_below_pool(begun.folder),
            added=(NewFile(path="a", size=1),),
            job=job,
            fence=fence,
        )
        merge = lake.kernel.merge
        killed: list[str] = []

        def dies(*asked: object, **how: object) -> object:
            killed.append("before the merge")
            raise KeyboardInterrupt

        lake.kernel.merge = dies  # type: ignore[assignment, method-assign]
        with contextlib.suppress(KeyboardInterrupt):
            lake.do(call)
        lake.kernel.merge = merge  # type: ignore[method-assign]
        assert killed
        lake.merge(begun.job.own_branch)
        written = lake.do(call)
        assert written.commit is not None
        assert [one.path for one in lake.table(KEY).files.list()] == ["a", "old"]
