"""Figures of a lake: what they count, who is told of what, and that they are the same behind a server."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import CommitConflict, Denied, InvalidRequest, KeyNotFound, NotManaged, PenstockError
from penstock.formats.rows.arrow_types import pa
from penstock.lake import figures
from penstock.lake.answers import Figures, PublishingLag, RequestCounts
from penstock.lake.calls import FigureKind, GetFigures
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.lake.remote import RemoteCatalogue
from penstock.model.keys import Key
from penstock.model.nessie import IcebergTable
from penstock.server.access import TokenGate
from penstock.server.metrics_endpoint import MetricsEndpoint
from penstock.server.request_counts import count_requests
from penstock.stores.memory import MemoryStore
from tests.lake.test_delta import IMPATIENT, location
from tests.queue.hooks import SetClock, new_lake, table
from tests.remote.serving import serving

DAY_S = 24 * 3600


def rows(count: int) -> Any:
    return pa.table({"id": pa.array(range(count), pa.int64())})


@pytest.fixture
def daily() -> Lake:
    """One commit on the first day, two on the second, and so on, with a day of none after each."""
    clock = SetClock()
    lake = new_lake(MemoryStore(clock), clock)
    for day in range(4):
        for number in range(day + 1):
            lake.branch().put("t", table(f"{day}/{number}"))
        clock.go_on(2 * DAY_S)
    return lake


def test_commits_are_counted_by_day_without_gaps(daily: Lake) -> None:
    days = daily.figures().commits
    assert [count.commits for count in days] == [1, 0, 2, 0, 3, 0, 4]
    assert days[0].day == f"{daily.log()[-1].time:%Y-%m-%d}"
    assert sorted({count.day for count in days}) == [count.day for count in days]
    assert [count.commits for count in daily.figures("main~4").commits] == [1, 0, 2, 0, 3]


def test_a_day_that_is_not_counted_to_its_beginning_is_left_out(
    daily: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "COMMITS_COUNTED", 6)
    assert [count.commits for count in daily.figures().commits] == [4]
    monkeypatch.setattr(figures, "DAYS_MAX", 3)
    monkeypatch.setattr(figures, "COMMITS_COUNTED", 500)
    assert [count.commits for count in daily.figures().commits] == [3, 0, 4]


def test_a_lake_without_commits_has_no_days() -> None:
    with open_lake("memory:") as lake:
        assert lake.figures() == Figures()


@pytest.mark.parametrize("format_name", ["delta", "parquet"])
def test_the_sizes_of_a_table_are_those_of_its_files(
    tmp_path: Path, format_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "SIZE_BOUNDS", (1000, 2000, 100_000))
    with open_lake(str(tmp_path / "lake"), create=True) as lake:
        for count in (1, 2, 20_000):
            lake.table("s.t").write(rows(count), format=format_name, mode="append")
        first = lake.resolve("main~2")
        measured = lake.figures(table="s.t").table
        assert measured is not None
        described = figures.describe_managed_table(lake.table("s.t"))
        sizes = [file.size_bytes or 0 for file in described.list_files()]
        assert (measured.key, measured.files, measured.are_all) == (Key("s", "t"), 3, True)
        assert measured.size_bytes == sum(sizes)
        edges = [0, 1000, 2000, 100_000, 10**12]
        counts = [sum(low <= size < high for size in sizes) for low, high in pairwise(edges)]
        assert [size.files for size in measured.sizes] == counts
        assert [size.below_bytes for size in measured.sizes] == [1000, 2000, 100_000, None]
        if format_name == "delta":
            past = lake.table("s.t").snapshot().past_sizes(30)
            assert {size.version: size.size_bytes for size in measured.growth} == past
            assert [size.version for size in measured.growth] == sorted(past)
        else:
            commits = [commit.id for commit in lake.log(table="s.t")]
            assert [size.commit for size in measured.growth] == commits[::-1]
            past_sizes = [lake.at(commit).table("s.t").files.about().size for commit in commits[::-1]]
            assert [size.size_bytes for size in measured.growth] == past_sizes
            assert [size.version for size in measured.growth] == [None] * 3
        then = lake.figures(first, table="s.t").table
        assert then is not None
        assert then.files == len(then.growth) == 1
        monkeypatch.setattr(figures, "FILES_COUNTED_MAX", 2)
        part = lake.figures(table="s.t").table
        assert part is not None
        assert (part.files, part.are_all) == (2, False)


def test_a_lance_table_grows_by_the_files_that_its_versions_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lance")
    from penstock.formats.lance.lake import table_facts

    with open_lake(str(tmp_path / "lake"), create=True) as lake:
        lake.table("s.t").write(rows(10), format="lance")
        lake.table("s.t").append(rows(1000))
        lake.branch("dev").create()
        lake.table("s.t", "dev").append(rows(20))
        lake.table("s.t").overwrite(rows(3))
        for ref, versions in (("main", [1, 2, 3]), ("dev", [1, 2, 3])):
            measured = lake.figures(ref, table="s.t").table
            assert measured is not None
            assert [size.version for size in measured.growth] == versions
            assert all(size.time is not None for size in measured.growth)
            assert [size.size_bytes for size in measured.growth] == [
                sum(
                    file.file_size_bytes
                    for fragment in lake.table("s.t", ref).to_lance(version=version).get_fragments()
                    for file in fragment.metadata.files
                )
                for version in versions
            ]
        monkeypatch.setattr(table_facts, "MANIFESTS_MAX_BYTES", 0)
        unknown = lake.figures(table="s.t").table
        assert unknown is not None
        assert unknown.growth == (), "no more is read than it may be"


def test_the_growth_of_a_table_of_files_begins_where_it_was_created_last(tmp_path: Path) -> None:
    with open_lake(str(tmp_path / "lake"), create=True) as lake:
        for count in (1, 2):
            lake.table("s.t").write(rows(count), format="parquet")
        lake.branch().drop("s.t")
        lake.table("s.t").write(rows(5), format="parquet")
        measured = lake.figures(table="s.t").table
        assert measured is not None
        assert [size.commit for size in measured.growth] == [lake.branch().head]


def test_a_table_that_the_lake_only_points_at_has_no_sizes(daily: Lake) -> None:
    with pytest.raises(NotManaged, match="does not manage the files of 't'"):
        daily.figures(table="t")
    with pytest.raises(KeyNotFound):
        daily.figures(table="nosuch")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            GetFigures(about=("weather",)),
            "no figures about 'weather'; there are figures about commits, requests",
        ),
        (GetFigures(about=("sizes",)), "give its key as 'table'"),
    ],
)
def test_figures_that_there_are_not_are_refused(daily: Lake, call: GetFigures, message: str) -> None:
    with serving(daily.catalogue) as server, Lake(RemoteCatalogue(server.url)) as remote:
        for lake in (daily, remote):
            with pytest.raises(InvalidRequest, match=message):
                lake.do(call)


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[Lake]:
    """A lake whose requests are counted as a server does it: tables, a conflict, a branch."""
    endpoint = MetricsEndpoint()
    with open_lake(str(tmp_path / "lake"), create=True, meter=endpoint.meter) as lake:
        lake.create_table("sales.orders", data=rows(3))
        lake.create_table("hr.pay", data=rows(5))
        lake.branch().put("t", IcebergTable(metadata_location="s3://x/1"))
        base = lake.branch().head
        lake.branch().put("t", IcebergTable(metadata_location="s3://x/2"))
        with pytest.raises(CommitConflict):
            lake.branch().put("t", IcebergTable(metadata_location="s3://x/3"), base=base)
        lake.branch("secret").create().put("hidden", IcebergTable(metadata_location="s3://x/4"))
        lake.finish_background()
        assert isinstance(lake.catalogue, Embedded)
        lake.catalogue.count_requests = lambda: count_requests(endpoint.render_metrics())
        yield lake


def test_figures_are_the_same_behind_a_server(counted: Lake) -> None:
    found = counted.figures(table="sales.orders")
    assert found.requests == (
        RequestCounts(branch="main", total=5, conflicts=1),
        RequestCounts(branch="secret", total=2),
    )
    assert (found.publishing, found.published_tables) == ((), 2)
    with serving(counted.catalogue) as server, Lake(RemoteCatalogue(server.url)) as remote:
        assert remote.figures(table="sales.orders") == found
        only = remote.do(GetFigures(about=(FigureKind.SIZES,), table=Key("sales", "orders")))
        assert only == Figures(table=found.table)
        assert remote.do(GetFigures(about=("commits",))) == Figures(commits=found.commits)


def test_a_table_that_waits_to_be_published_is_told(tmp_path: Path) -> None:
    with open_lake(str(tmp_path / "lake"), create=True, settings=IMPATIENT) as lake:
        lake.create_table("u", data=rows(1))
        table = lake.create_table("t", data=rows(3))
        table.backfill_to_version()
        log = location(lake) / "_delta_log"
        log.rename(log.with_name("aside"))
        log.write_text("no directory")  # storage that takes no more files
        table.append(rows(1))
        with pytest.raises(PenstockError):
            table.backfill_to_version()
    log.unlink()
    log.with_name("aside").rename(log)
    with open_lake(str(tmp_path / "lake"), catch_up=False) as lake:
        found = lake.figures()
        (lag,) = found.publishing
        assert lag.oldest_s is not None
        assert lag == PublishingLag(
            key=Key("t"), latest_version=1, published=0, backlog=1, oldest_s=lag.oldest_s
        )
        assert found.published_tables == 2


def test_a_token_learns_only_of_what_it_may_read(counted: Lake) -> None:
    with serving(counted.catalogue, gate=TokenGate(counted.catalogue)) as server:
        token = counted.create_token("sales", "read:main:sales.*")
        with Lake(RemoteCatalogue(server.url, token=token)) as mine:
            found = mine.figures(table="sales.orders")
            assert found.table == counted.figures(table="sales.orders").table
            assert found.requests == (RequestCounts(branch="main", total=5, conflicts=1),)
            assert found.published_tables == 1
            for hidden in ("hr.pay", "hr.nosuch", "t"):
                with pytest.raises(Denied):
                    mine.figures(table=hidden)
            with pytest.raises(Denied):
                mine.figures("secret")
        with Lake(RemoteCatalogue(server.url, token=counted.create_token("other", "read:secret"))) as other:
            shown = other.do(GetFigures(ref="secret", about=("commits", "requests")))
            assert shown.requests == (RequestCounts(branch="secret", total=2),)
            assert sum(count.commits for count in shown.commits) == len(counted.log("secret"))
            with pytest.raises(Denied):
                other.figures()
