"""One lake in the hands of many threads."""

from functools import partial
from pathlib import Path
from threading import Barrier

import penstock
from penstock.lake.lake import Lake
from penstock.model.nessie import IcebergTable
from tests.queue.hooks import Caller, table


def _work(lake: Lake, start: Barrier, number: int) -> list[str]:
    start.wait()
    made = []
    main = lake.branch()
    for turn in range(10):
        made.append(main.put(f"n{number}.t{turn}", table(f"{number}/{turn}")).id)
        found = lake.at(made[-1]).get(f"n{number}.t{turn}")
        assert isinstance(found, IcebergTable)
        assert found.metadata_location == f"{number}/{turn}"
        assert made[-1] in {commit.id for commit in lake.log(limit=None)}
    dev = lake.branch(f"dev{number}").create()
    dev.put(f"n{number}.dev", table())
    merged = dev.merge_into("main").commit
    assert merged is not None
    lake.tag(f"v{number}").create(at=merged)
    dev.delete()
    return [*made, merged]


def test_many_threads_commit_read_and_merge_through_one_lake(lake: Lake) -> None:
    start = Barrier(8)
    workers = [Caller(partial(_work, lake, start, number)) for number in range(8)]
    made = [commit for worker in workers for commit in worker.result()]
    history = [commit.id for commit in lake.log(limit=None)]
    assert sorted(history) == sorted(made)
    assert len(lake.tables()) == 88
    assert [tag.name for tag in lake.tags()] == [f"v{number}" for number in range(8)]
    assert lake.fsck().damages == ()


def test_readers_see_whole_commits_only(lake: Lake) -> None:
    """A writer keeps two tables equal in every commit; nobody ever sees them differ."""
    keys = [penstock.Key("left"), penstock.Key("right")]
    main = lake.branch()
    main.commit([penstock.Put(key, table("0")) for key in keys])
    start = Barrier(4)

    def write() -> None:
        start.wait()
        for number in range(40):
            main.commit([penstock.Put(key, table(str(number))) for key in keys])

    def read() -> int:
        start.wait()
        seen = set()
        for _ in range(60):
            found = main.snapshot().get_many(keys)
            places = {one.metadata_location for one in found.values() if isinstance(one, IcebergTable)}
            assert len(places) == 1
            seen |= places
        return len(seen)

    callers: list[Caller[object]] = [Caller(write), Caller(read), Caller(read), Caller(read)]
    for caller in callers:
        caller.result()


def test_two_lakes_on_one_directory_see_each_others_commits(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as one, penstock.open(tmp_path) as other:
        for number in range(10):
            one.branch().put(f"one{number}", table())
            other.branch().put(f"other{number}", table())
            assert one.branch().head == other.branch().head
        assert len(one.log()) == len(other.log()) == 20
        one.branch("dev").create()
        assert other.branch("dev").exists
        other.branch("dev").delete()
        assert not one.branch("dev").exists
