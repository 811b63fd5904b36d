"""An erase through every door: the command line, and a server with tokens."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path

import lance
import msgspec
import pytest
from click.testing import CliRunner

import penstock
from penstock.cli.root import penstock as root
from penstock.errors import Denied, EraseRefused, HistoryExpired, InvalidName
from penstock.kernel.kernel import Kernel
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from penstock.model.clock import now_us, to_utc_datetime
from penstock.stores import open_store
from penstock.stores.objectstore import ObjectStore
from penstock.stores.port import Store
from tests.erase.tables import MARKER, people, where_is
from tests.remote.serving import serving
from tests.server.access import guarded

POINTER = penstock.IcebergTable(metadata_location="s3://lake/v1.json")


def kernel_of(lake: Lake) -> Kernel:
    assert isinstance(lake.catalogue, Embedded)
    return lake.catalogue.kernel


@pytest.fixture
def deleted(lake: Lake) -> Lake:
    """A lake with a table whose last change was the deletion of a row."""
    table = lake.create_table("t", data=people())
    table.overwrite({"id": [1, 3], "name": ["ada", "zoe"]})
    lake.finish_background()
    return lake


def run(path: Path, *words: str) -> tuple[int, str]:
    found = CliRunner().invoke(root, ["--lake", str(path), *words])
    return found.exit_code, found.output


def test_the_command_line_says_what_would_be_done_waits_and_ends(deleted: Lake, path: Path) -> None:
    deleted.close()
    code, text = run(path, "erase", "t", "--dry-run")
    assert code == 0
    assert "would remove  1 data file" in text
    assert where_is(path)
    code, text = run(path, "erase", "t")
    assert code == 0
    assert "not finished: run this again after" in text
    code, text = run(path, "--json", "erase", "t", "--nobody-writes")
    assert code == 0
    told = msgspec.json.decode(text)
    assert (told["finished"], told["left"], told["key"], told["data_files"]) == (True, [], "t", 1)
    assert where_is(path) == []


def test_the_command_line_is_refused_with_a_list(deleted: Lake, path: Path) -> None:
    deleted.tag("v1").create()
    deleted.close()
    code, text = run(path, "erase", "t")
    assert code == EraseRefused.exit_code == 3
    assert "tag 'v1'" in text
    assert "--all-references" in text


def test_a_server_erases_for_who_may_and_says_by_whom(deleted: Lake) -> None:
    before = deleted.branch().head
    for grants in (("read",), ("write",), ("maintain",)):
        with pytest.raises(Denied):
            Lake(guarded(deleted, *grants)).erase("t")
    with serving(guarded(deleted, "erase", "read")) as server, penstock.open(server.url) as remote:
        erased = remote.erase("t")
        assert (erased.finished, erased.who) == (False, "tester")
        with pytest.raises(HistoryExpired, match="by tester"):
            remote.at(f"{before}~1").table("t").to_arrow()
        with pytest.raises(HistoryExpired, match="by tester"):
            remote.table("t").snapshot(0)
    assert deleted.log("main")[0].authors == ("tester",)


def test_a_moment_goes_through_every_door(deleted: Lake, path: Path) -> None:
    when = to_utc_datetime(now_us())
    deleted.table("t").append({"id": [7], "name": ["younger"]})
    later = deleted.branch().head
    with pytest.raises(Denied):
        Lake(guarded(deleted, "read", "write")).erase("t", older_than=when)
    with serving(guarded(deleted, "erase", "read")) as server, penstock.open(server.url) as remote:
        assert "nothing of 't' is older than" in remote.erase("t", older_than=timedelta(days=9)).left[0]
        assert remote.erase("t", older_than=when).older_than == when
        assert len(remote.at(later).table("t").to_arrow()) == 3
    deleted.close()
    code, text = run(path, "erase", "t", "--older-than", when.isoformat(), "--nobody-writes")
    assert code == 0
    assert f"t is erased: nothing is left of its history from before {when:%Y-%m-%d %H:%M} UTC" in text
    assert where_is(path) == []
    code, text = run(path, "erase", "t", "--older-than", "9d", "--dry-run")
    assert (code, "is older than" in text) == (0, True)
    code, text = run(path, "erase", "t", "--older-than", "lately")
    assert code == InvalidName.exit_code
    with penstock.open(path) as lake:
        assert len(lake.at(later).table("t").to_arrow()) == 3


def test_a_moment_of_a_lance_table_goes_through_every_door(lake: Lake, path: Path) -> None:
    lance.write_dataset(people(), namespace_client=lake.lance(), table_id=["t"])
    lake.table("t").overwrite({"id": [1, 3], "name": ["ada", "zoe"]})
    when = to_utc_datetime(now_us())
    lake.table("t").append({"id": [7], "name": ["younger"]})
    later = lake.branch().head
    with serving(guarded(lake, "erase", "read")) as server, penstock.open(server.url) as remote:
        assert "nothing of 't' is older than" in remote.erase("t", older_than=timedelta(days=9)).left[0]
        assert remote.erase("t", older_than=when).older_than == when
        assert len(remote.at(later).table("t").to_arrow()) == 3
        with pytest.raises(HistoryExpired, match="by tester"):
            remote.table("t").to_lance(version=1)
    lake.close()
    code, text = run(path, "erase", "t", "--older-than", when.isoformat(), "--nobody-writes")
    assert code == 0
    assert f"t is erased: nothing is left of its history from before {when:%Y-%m-%d %H:%M} UTC" in text
    assert where_is(path) == []


@pytest.mark.parametrize("kind", ["memory", "sqlite", "rocksdb", "file"])
def test_a_store_is_scrubbed_and_keeps_what_it_has(tmp_path: Path, kind: str) -> None:
    """What was deleted is in no byte of its files, and what was not is there."""
    places: dict[str, str | Store] = {
        "memory": "memory:",
        "sqlite": str(tmp_path / "s"),
        "rocksdb": f"rocksdb://{tmp_path / 'r'}",
        "file": ObjectStore(f"file://{tmp_path / 'f'}", announce_wait_s=0.5),
    }
    with penstock.open(places[kind], create=True) as lake:
        lake.branch().put("kept", POINTER)
        store = kernel_of(lake).store
        gone = bytes([7]) * 32
        store.store({gone: MARKER.encode() * 50})
        (stored,) = [one for one in store.scan(b"", 1000)[0] if one.id == gone]
        assert store.delete([stored]) == 1
        assert store.scrub() == ""
        assert where_is(tmp_path) == []
        assert [str(key) for key, _ in lake.at("main").entries()] == ["kept"]
        assert lake.fsck().damages == ()


def test_postgresql_is_scrubbed_or_says_what_is_left(postgres_url: str) -> None:
    with closing(open_store(postgres_url, True, now_us)) as store, penstock.open(store, create=True) as lake:
        assert "write-ahead log" in kernel_of(lake).store.scrub()
        lake.branch().put("kept", POINTER)
        assert lake.fsck().damages == ()
