"""Tables of files and jobs behind tokens: who may read, copy and write what, and who did it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.errors import Denied, InvalidRequest, JobNotFound
from penstock.formats.files.lake.calls import (
    AbortJob,
    BeginJob,
    CopiedFile,
    GetFiles,
    ListFiles,
    ListJobs,
    NewFile,
    WriteFiles,
)
from penstock.formats.files.lake.save_job import get_folder_below_pool
from penstock.lake.call import Call
from penstock.lake.lake import Lake
from penstock.lake.write_jobs import make_job_id
from penstock.model.jobs import JobState
from penstock.model.keys import Key
from penstock.server.access import CheckedCatalogue
from tests.server.access import caller

ORDERS, PAY = Key("sales", "orders"), Key("hr", "pay")


@pytest.fixture
def lake(own: Lake) -> Lake:
    for key in (ORDERS, PAY):
        own.table(key).files.put("x", b"1")
    own.branch("dev/etl").create()
    return own


def as_(lake: Lake, *grants: str) -> CheckedCatalogue:
    return CheckedCatalogue(lake.catalogue, caller(*grants))


def begin(number: int, key: Key = ORDERS, **more: Any) -> BeginJob:
    return BeginJob(id=f"{number:032x}", fence=f"{number + 100:032x}", key=key, **more)


def test_files_of_a_key_are_for_those_who_may_read_it(lake: Lake) -> None:
    reader = as_(lake, "read:main:sales.*")
    assert [one.path for one in reader.do(ListFiles(key=ORDERS, at="main"))] == ["x"]
    for call in (ListFiles(key=PAY, at="main"), GetFiles(key=PAY, at="main", file=("x",))):
        with pytest.raises(Denied):
            reader.do(call)
    with pytest.raises(Denied):
        reader.do(ListFiles(key=ORDERS, at="dev/etl"))
    with pytest.raises(Denied):
        reader.do(ListFiles(key=ORDERS, at=lake.branch().head))
    assert reader.do(ListFiles(key=ORDERS, at=lake.branch().head, via="main"))


def test_a_copy_needs_the_right_to_read_what_is_copied(lake: Lake) -> None:
    writer = as_(lake, "write:dev/*:sales.*")
    own = WriteFiles(key=ORDERS, branch="dev/etl", copied=(CopiedFile(path="y", source="x"),))
    assert writer.do(own).commit is not None
    for key, at in ((PAY, None), (PAY, "dev/etl"), (None, "main"), (None, lake.branch().head)):
        one = CopiedFile(path="z", source="x", key=key, at=at)
        with pytest.raises(Denied):
            writer.do(WriteFiles(key=ORDERS, branch="dev/etl", copied=(one,)))
    reader_too = as_(lake, "write:dev/*:sales.*", "read:main:sales.*")
    one = CopiedFile(path="z", source="x", at="main")
    written = reader_too.do(WriteFiles(key=ORDERS, branch="dev/etl", copied=(one,)))
    assert written.commit is not None
    assert written.commit.committer == "tester"


def test_the_folder_of_another_tables_attempt_is_not_taken(lake: Lake) -> None:
    """Who knows where a file lies cannot have it in a table of theirs: they may not be allowed to read it."""
    [pay] = lake.do(ListFiles(key=PAY, at="main"))
    folder = get_folder_below_pool(pay.address.removesuffix("x"))
    fence = folder.rstrip("/").rpartition("/")[2]
    taken = (NewFile(path="stolen", name="x", size=1),)
    theirs = WriteFiles(key=ORDERS, branch="main", folder=folder, added=taken)
    for grants in (("write:main:sales.*",), ("write",), ("admin",)):
        thief = as_(lake, *grants)
        wanted: tuple[Call[Any], ...] = (
            theirs,
            msgspec.structs.replace(theirs, added=(), put=taken),
            msgspec.structs.replace(theirs, job=f"{9:032x}", fence=fence),
            BeginJob(id=f"{9:032x}", fence=fence, key=ORDERS, branch="main"),
            msgspec.structs.replace(theirs, key=PAY, branch="dev/etl"),
        )
        for call in wanted:
            with pytest.raises((InvalidRequest, Denied), match=r"another table|may not"):
                thief.do(call)
    own = WriteFiles(key=PAY, branch="main", folder=folder, added=(NewFile(path="y", name="x", size=1),))
    assert lake.do(own).commit is not None  # of the same table, it could be copied as well


def test_a_new_table_needs_the_right_to_make_its_namespace(lake: Lake) -> None:
    writer = as_(lake, "write:*:new.x")
    with pytest.raises(Denied, match="create namespace 'new'"):
        writer.do(WriteFiles(key=Key("new", "x")))
    lake.branch().create_namespace("new")
    assert writer.do(WriteFiles(key=Key("new", "x"))).commit is not None


def test_jobs_are_seen_and_aborted_by_those_who_may(lake: Lake) -> None:
    began = as_(lake, "write:main:sales.*").do(begin(1, branch="main", who="somebody else"))
    assert began.job.who == "tester"
    lake.do(begin(2, PAY))
    seller = as_(lake, "read:main:sales.*")
    assert [one.id for one in seller.do(ListJobs())] == [begin(1).id]
    assert [one.id for one in as_(lake, "read").do(ListJobs(limit=1))] == [begin(2, PAY).id]
    assert as_(lake, "read:dev/*").do(ListJobs(all=True)) == ()
    with pytest.raises(Denied):
        seller.do(AbortJob(id=begin(1).id))
    with pytest.raises(JobNotFound):
        as_(lake, "write:main:sales.*").do(AbortJob(id=begin(2).id))
    aborted = as_(lake, "write:main:sales.*").do(AbortJob(id=begin(1).id))
    assert (aborted.state, aborted.why) == (JobState.ABORTED, "by tester")
    assert [one.state for one in lake.do(ListJobs(key=PAY))] == [JobState.RUNNING]


def test_a_branch_of_its_own_needs_all_keys_of_the_target(lake: Lake) -> None:
    with pytest.raises(Denied):
        as_(lake, "write:*:sales.*").do(begin(1, own_branch=True))
    assert as_(lake, "write:main", "read").do(begin(1, branch="main", own_branch=True)).job.own_branch


def test_a_job_commits_what_its_writer_may_write_and_nothing_else(lake: Lake) -> None:
    writer = as_(lake, "write:main:sales.*")
    began = writer.do(begin(1, branch="main"))
    folder = "/".join(began.folder.rstrip("/").split("/")[-2:]) + "/"
    commit = WriteFiles(
        key=ORDERS,
        branch="main",
        folder=folder,
        added=(NewFile(path="new", size=1),),
        job=began.job.id,
        fence=begin(1).fence,
    )
    with pytest.raises(Denied):
        as_(lake, "write:main:hr.*").do(commit)
    first = writer.do(commit)
    assert first.commit is not None
    assert writer.do(commit).commit == first.commit
    assert [one.path for one in lake.table(ORDERS).files.list()] == ["new", "x"]


def test_where_a_job_writes_is_not_told_to_those_who_may_not_see_it(lake: Lake) -> None:
    lake.do(begin(1, PAY))
    with pytest.raises(InvalidRequest, match="give this job another id") as told:
        as_(lake, "write:main:sales.*").do(begin(1, branch="main"))
    assert "hr" not in str(told.value)


def test_a_name_stands_for_another_job_in_another_table_or_branch() -> None:
    named = {make_job_id("nightly", key, branch) for key in (ORDERS, PAY) for branch in ("main", "dev")}
    assert len(named) == 4
    assert make_job_id("nightly", ORDERS, "main") in named
    assert make_job_id("A" * 32, ORDERS, "main") == make_job_id("a" * 32, PAY, "dev") == "a" * 32


def test_a_folder_that_no_attempt_was_given_is_refused() -> None:
    assert get_folder_below_pool("/w/_penstock/data/day/attempt/") == "day/attempt/"
    for folder in ("", "/", "x"):
        with pytest.raises(InvalidRequest, match="not a folder that a job may write to"):
            get_folder_below_pool(folder)
