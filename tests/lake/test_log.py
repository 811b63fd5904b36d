"""The log of a lake: filters, pages, merges."""

import random
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from typing import Any
from unittest import mock

import pytest

from penstock import Delete, Key, Put
from penstock.errors import (
    CommitNotFound,
    InvalidKey,
    InvalidName,
    InvalidRequest,
    PenstockError,
    TimedOut,
)
from penstock.kernel import chain as kernel_chain
from penstock.kernel import lake_state
from penstock.kernel.description import read_description
from penstock.kernel.history import History
from penstock.kernel.kernel import Kernel
from penstock.kernel.time_limits import paced_reads
from penstock.lake import log_search
from penstock.lake.answers import LogSearch
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from penstock.lake.log_search import PAGES_KEPT
from penstock.model.commits import Commit
from penstock.model.operations import Operation
from penstock.stores.memory import MemoryStore
from penstock.testing import CountingStore
from tests.queue.hooks import SetClock, new_lake, table

START = datetime.fromtimestamp(1_800_000_000, UTC)


@pytest.fixture
def lake() -> Lake:
    """Thirty commits, one an hour, by three authors, to six tables in two namespaces."""
    clock = SetClock()
    lake = new_lake(MemoryStore(clock), clock)
    for number in range(30):
        name = f"{'ab'[number % 2]}.t{number % 3}"
        author = ["anna", "bert", "cora"][number % 3]
        clock.go_on(3600)
        lake.branch().put(name, table(str(number)), message=f"Commit {number:02}", author=author)
    return lake


def _numbers(commits: list[Commit]) -> list[int]:
    return [int(commit.message.removeprefix("Commit ")) for commit in commits]


def _time(number: int) -> datetime:
    """Between two commits: after this one and before the next."""
    return START + timedelta(hours=number + 1, minutes=30)


def test_the_newest_come_first(lake: Lake) -> None:
    assert _numbers(lake.log()) == list(range(29, -1, -1))
    assert _numbers(lake.log("main~3", limit=2)) == [26, 25]
    assert _numbers(lake.branch().log(limit=1)) == [29]
    assert lake.log(limit=0) == []
    assert len(lake.log(limit=None)) == 30


def test_a_table_or_namespace_chooses_the_commits_that_changed_it(lake: Lake) -> None:
    assert _numbers(lake.log(table="a.t0")) == [24, 18, 12, 6, 0]
    assert _numbers(lake.log(table="b")) == list(range(29, 0, -2))
    assert lake.log(table="nosuch") == []
    lake.branch().drop("a.t0", message="Commit 30")
    assert _numbers(lake.log(table="a.t0", limit=2)) == [30, 24]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"author": "bert"}, range(28, 0, -3)),
        ({"author": "nobody"}, []),
        ({"text": "commit 1"}, range(19, 9, -1)),
        ({"text": "COMMIT 07"}, [7]),
        ({"text": "no such text"}, []),
        ({"since": _time(25)}, [29, 28, 27, 26]),
        ({"until": _time(2)}, [2, 1, 0]),
        ({"since": _time(9), "until": _time(12)}, [12, 11, 10]),
        ({"since": _time(9).isoformat(), "until": _time(12).isoformat()}, [12, 11, 10]),
        ({"since": _time(9).replace(tzinfo=None).isoformat(), "until": _time(12)}, [12, 11, 10]),
        ({"since": str(int(_time(27).timestamp() * 1000))}, [29, 28]),
        ({"since": _time(9).replace(tzinfo=None), "until": _time(11)}, [11, 10]),
        ({"author": "anna", "table": "b", "since": _time(10), "until": _time(22)}, [21, 15]),
        ({"since": _time(40)}, []),
        ({"until": _time(-5)}, []),
    ],
)
def test_filters_choose_what_matches_all_of_them(lake: Lake, chosen: dict[str, Any], expected: Any) -> None:
    assert _numbers(lake.log(**chosen)) == list(expected)
    assert _numbers(lake.log(all_parents=True, **chosen)) == list(expected)


def test_a_day_begins_at_midnight_utc(lake: Lake) -> None:
    day = (START + timedelta(hours=15)).date()
    since = datetime(day.year, day.month, day.day, tzinfo=UTC)
    expected = [number for number in range(30) if START + timedelta(hours=number + 1) >= since]
    assert _numbers(lake.log(since=day.isoformat())) == expected[::-1]
    assert isinstance(day, date)


def test_a_time_that_is_exactly_a_commits_counts_for_both_ends(lake: Lake) -> None:
    commit = lake.log()[10]
    assert lake.log(since=commit.time)[-1] == commit
    assert lake.log(until=commit.time)[0] == commit
    assert lake.log(since=commit.time, until=commit.time) == [commit]


@pytest.mark.parametrize("size", [1, 4, 7, 30, 31])
@pytest.mark.parametrize(
    "chosen",
    [{}, {"author": "cora"}, {"table": "a.t1"}, {"text": "2"}, {"since": _time(7), "until": _time(22)}],
)
def test_pages_follow_each_other_without_gap_or_repetition(
    lake: Lake, size: int, chosen: dict[str, Any]
) -> None:
    found: list[Commit] = []
    while page := lake.log(limit=size, after=found[-1].id if found else None, **chosen):
        assert len(page) <= size
        found += page
    assert found == lake.log(limit=None, **chosen)


def test_a_page_goes_on_where_it_ended_while_commits_come_in(lake: Lake) -> None:
    first = lake.log(limit=5)
    lake.branch().put("new", table(), message="Commit 30")
    assert _numbers(lake.log(limit=2, after=first[-1].id)) == [24, 23]
    assert _numbers(lake.log(limit=2, after="main~3")) == [26, 25]


def test_going_on_after_a_commit_that_is_not_in_the_log_is_refused(lake: Lake) -> None:
    lake.branch("dev").create()
    elsewhere = lake.branch("dev").put("d", table()).id
    with pytest.raises(InvalidRequest, match=elsewhere):
        lake.log("main", after=elsewhere)
    with pytest.raises(CommitNotFound):
        lake.log(after="ab" * 32)


def test_merged_commits_are_shown_if_all_parents_are_wanted(lake: Lake) -> None:
    dev = lake.branch("dev").create(at="main~2")
    mine = [dev.put(f"dev{number}", table(), author="dev") for number in range(3)]
    merged = lake.merge("dev", "main", message="the merge").head
    shown = lake.log(all_parents=True, limit=None)
    assert shown[0].id == merged
    assert {commit.id for commit in mine} <= {commit.id for commit in shown}
    assert not {commit.id for commit in mine} & {commit.id for commit in lake.log(limit=None)}
    assert len({commit.id for commit in shown}) == len(shown) == 34
    generations = [commit.generation for commit in shown]
    assert generations == sorted(generations, reverse=True)
    assert lake.log(all_parents=True, author="dev") == mine[::-1]
    pages: list[Commit] = []
    while page := lake.log(all_parents=True, limit=6, after=pages[-1].id if pages else None):
        pages += page
    assert pages == shown


@pytest.mark.parametrize("chosen", [{}, {"author": "dev"}])
def test_pages_of_a_log_with_all_parents_cost_what_the_log_costs(
    lake: Lake, chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        dev = lake.branch(f"dev{number}").create(at=f"main~{number}")
        for each in range(5):
            dev.put(f"dev{number}-{each}", table(), author="dev")
        lake.merge(f"dev{number}", "main")
    steps = 0
    read = History.read_ancestor

    def link(history: History, one: bytes) -> Any:
        nonlocal steps
        steps += 1
        return read(history, one)

    monkeypatch.setattr(History, "read_ancestor", link)
    shown = lake.log(all_parents=True, limit=None, **chosen)
    whole, steps = steps, 0
    pages: list[Commit] = []
    while page := lake.log(all_parents=True, limit=3, after=pages[-1].id if pages else None, **chosen):
        pages += page
    assert pages == shown
    assert len(shown) >= 30
    assert steps <= whole + 3 * len(pages)


@pytest.mark.parametrize("all_parents", [False, True])
@pytest.mark.parametrize(
    "chosen", [{"table": "a.t0"}, {"table": "b"}, {"author": "cora"}, {"text": "no such"}, {}]
)
def test_a_search_goes_on_where_it_stopped(lake: Lake, chosen: dict[str, Any], all_parents: bool) -> None:
    """It finds what the log has, and no part of it reads more commits than it may."""
    dev = lake.branch("dev").create(at="main~4")
    dev.put("a.t0", table("dev"), message="Commit 30", author="dev")
    lake.merge("dev", "main", message="Commit 31")
    parts: list[LogSearch] = []
    after: str | None = None
    while not parts or after is not None:
        parts.append(
            lake.search_log(limit=4, within=7, after=after, all_parents=all_parents, **chosen),
        )
        after = parts[-1].reached
    commits = [commit for part in parts for commit in part.commits]
    assert commits == lake.log(all_parents=all_parents, limit=None, **chosen)
    assert all(part.searched <= 7 and len(part.commits) <= 4 for part in parts)
    assert sum(part.searched for part in parts) == len(lake.log(all_parents=all_parents, limit=None))


def test_a_search_ends_where_nothing_older_is_wanted(lake: Lake) -> None:
    found = lake.search_log(table="a.t0", since=_time(10), within=100)
    assert _numbers(list(found.commits)) == [24, 18, 12]
    assert (found.searched, found.reached) == (20, None)


@pytest.mark.parametrize("chosen", [{"limit": 0}, {"within": 0}, {"within": -1}])
def test_a_search_reads_one_commit_at_least(lake: Lake, chosen: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"must be 1 or greater, got"):
        lake.search_log(**chosen)


def test_a_search_whose_time_is_over_tells_what_it_found(lake: Lake) -> None:
    """From the second commit on: a part that found nothing and got nowhere would be asked for again."""
    steps = 0

    def take() -> None:
        nonlocal steps
        steps += 1
        if steps > limit:
            raise TimedOut("too long")

    for limit in range(1, 12):
        steps = 0
        with paced_reads(take):
            found = lake.search_log(table="b", within=100)
        assert found.searched == limit
        assert found.reached == lake.log(limit=limit)[-1].id
        assert found.commits == tuple(
            commit for commit in lake.log(table="b") if commit in lake.log(limit=limit)
        )
    limit = steps = 0
    with paced_reads(take), pytest.raises(TimedOut):
        lake.search_log(table="b")


def test_the_log_of_a_table_compares_only_commits_that_wrote_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are told by the changes that they added; two states are not compared for that."""
    compared = 0
    compare = lake_state.diff_commits

    def count(*arguments: Any) -> Any:
        nonlocal compared
        compared += 1
        return compare(*arguments)

    monkeypatch.setattr(log_search, "diff_commits", count)
    assert len(lake.log(table="a.t0")) == 5
    assert compared == 5


def test_the_log_of_a_table_that_is_rarely_changed_takes_few_requests() -> None:
    """Commits are read many at a time, and of their changes only what the newest of many carry."""
    store = CountingStore(MemoryStore())
    lake = new_lake(store, SetClock())
    for number in range(1200):
        lake.branch().put("rare.t" if number % 500 == 0 else f"often.t{number % 7}", table(str(number)))
    lake = Lake(Embedded(Kernel(store), read_description(store), open_lake=Lake), "tester")
    store.reset()
    assert len(lake.log(table="rare.t", limit=None)) == 3
    assert store.counts.requests < 1200 / 4


@pytest.mark.parametrize("fold_after", [0, 3, 8, 512])
def test_the_log_of_a_table_is_that_of_the_changes_of_all_commits(fold_after: int) -> None:
    """Whatever is folded into the tree, in whatever batches; values that stay and that come back included."""
    chance = random.Random(f"folded after {fold_after}")
    with mock.patch.object(kernel_chain, "FOLD_OPERATIONS", fold_after):
        lake = new_lake(MemoryStore(SetClock()), SetClock())
        names = ["a.t0", "a.t1", "a.n.t", "ab", "b.t0"]
        for number in range(80):
            chosen = chance.sample(names, chance.choice([1, 1, 1, 2, 4]))
            operations: list[Operation] = [
                Delete(Key.parse(name))
                if chance.random() < 0.2 and lake.at("main").get(name) is not None
                else Put(Key.parse(name), table(f"{name}/{chance.randrange(2)}"))
                for name in chosen
            ]
            lake.commit(operations, message=f"Commit {number}", create_namespaces=True)
            if number % 20 == 10:
                dev = lake.branch(f"dev{number}").create()
                dev.put(f"b.t{number}", table(str(number)))
                lake.branch().put("b.main", table(str(number)))
                lake.merge(dev.name, "main")
        for name in ("a", "a.t0", "ab", "b"):
            key = Key.parse(name)
            expected = [
                commit.id
                for commit in lake.log(limit=None)
                if any(change.key[: len(key)] == tuple(key) for change in lake.changes(commit.id))
            ]
            assert [commit.id for commit in lake.log(table=name, limit=None)] == expected
            assert expected


def test_a_page_that_is_asked_for_twice_is_the_same(lake: Lake) -> None:
    lake.branch("dev").create(at="main~2").put("d", table())
    lake.merge("dev", "main")
    first = lake.log(all_parents=True, limit=4)
    second = lake.log(all_parents=True, limit=4, after=first[-1].id)
    assert lake.log(all_parents=True, limit=4, after=first[-1].id) == second
    assert lake.log(all_parents=True, limit=8) == first + second


def test_pages_that_many_readers_have_begun_are_read_to_the_end(lake: Lake) -> None:
    """Where more pages are open than are remembered, the next page is looked for from the beginning."""
    lake.branch("dev").create(at="main~2").put("d", table())
    lake.merge("dev", "main")
    firsts = [lake.log(all_parents=True, limit=size) for size in range(1, 20)]
    for number in range(PAGES_KEPT):
        lake.log(f"main~{number % 25}", all_parents=True, limit=1 + number // 25)
    whole = lake.log(all_parents=True, limit=None)
    for first in firsts:
        assert first + lake.log(all_parents=True, limit=None, after=first[-1].id) == whole
    assert isinstance(lake.catalogue, Embedded)
    assert len(lake.catalogue._history._log_pages._ends) <= PAGES_KEPT


def test_going_on_with_all_parents_after_a_commit_that_is_not_in_the_log_reads_no_older_ones(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.branch("dev").create(at="main~3")
    elsewhere = lake.branch("dev").put("d", table()).id
    read: set[bytes] = set()
    reading = History.read_ancestor

    def link(history: History, one: bytes) -> Any:
        read.add(one)
        return reading(history, one)

    monkeypatch.setattr(History, "read_ancestor", link)
    with pytest.raises(InvalidRequest, match=elsewhere):
        lake.log("main", after=elsewhere, all_parents=True)
    assert len(read) <= 8


def test_parents_come_after_their_children_with_all_parents(lake: Lake) -> None:
    for number in range(4):
        lake.branch(f"b{number}").create(at=f"main~{number}")
        lake.branch(f"b{number}").put(f"b{number}", table())
        lake.merge(f"b{number}", "main")
    seen: set[str] = set()
    for commit in lake.log(all_parents=True, limit=None):
        assert not seen & set(commit.parents)
        seen.add(commit.id)


@pytest.mark.parametrize(
    ("chosen", "error"),
    [
        ({"limit": -1}, InvalidRequest),
        ({"since": "yesterday"}, InvalidName),
        ({"until": "2026-13-01"}, InvalidName),
        ({"since": ""}, PenstockError),
        ({"since": "99999999999999999999"}, PenstockError),
        ({"since": "²"}, PenstockError),
        ({"until": "0001-01-01T00:00:00+23:00"}, PenstockError),
        ({"table": ""}, InvalidKey),
        ({"table": "a..b"}, InvalidKey),
        ({"after": ""}, PenstockError),
        ({"after": "not a revision"}, InvalidName),
    ],
)
def test_what_a_log_cannot_be_asked_is_refused(
    lake: Lake, chosen: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        lake.log(**chosen)


def test_a_reflog_cannot_have_fewer_lines_than_none(lake: Lake) -> None:
    assert lake.reflog(limit=0) == []
    assert len(lake.reflog(limit=5)) == 5
    with pytest.raises(InvalidRequest, match="limit"):
        lake.reflog(limit=-1)


def test_every_commit_is_in_exactly_one_page_of_every_author(lake: Lake) -> None:
    found = chain.from_iterable(lake.log(author=author) for author in ("anna", "bert", "cora"))
    assert sorted(commit.id for commit in found) == sorted(commit.id for commit in lake.log())
