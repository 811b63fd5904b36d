"""Opening a table by its place: whom its metadata is believed, and what it is not believed about."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import InvalidRequest, ManagedElsewhere, PenstockError

ROWS = pa.table({"day": ["1"]})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A table of a lake that is closed."""
    with penstock.open(tmp_path / "lake") as lake:
        table = lake.create_table("sales.orders", data=ROWS)
        table.backfill_to_version()
        return Path(table.location)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server that somebody would like to be called."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def names_lake_at(place: Path, address: str) -> None:
    """Let a table's metadata name another address, as whoever can write to its folder could."""
    first = place / "_delta_log" / f"{0:020}.json"
    lake = str(place.parent.parent)
    assert lake in first.read_text()
    first.write_text(first.read_text().replace(lake, address))


def test_a_server_that_only_the_table_names_is_not_called(
    place: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    monkeypatch.setenv("PENSTOCK_TOKEN", "a secret")
    names_lake_at(place, address)
    with pytest.raises(InvalidRequest) as refused:
        penstock.open_table(place)
    assert f"lake={address!r}" in refused.value.message
    with pytest.raises(BlockingIOError):
        listener.accept()


@pytest.mark.parametrize(
    "address", ["postgresql://127.0.0.1:1/x", "s3://bucket/lake", "mongodb://127.0.0.1:1"]
)
def test_a_database_that_only_the_table_names_is_not_called(place: Path, address: str) -> None:
    names_lake_at(place, address)
    with pytest.raises(InvalidRequest, match="lake="):
        penstock.open_table(place)


def test_the_lake_that_the_environment_names_is_followed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # and does not listen: nobody else gets the port meanwhile
        address = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        names_lake_at(place, address)
        monkeypatch.setenv("PENSTOCK_LAKE", f"{address}/")
        with pytest.raises(PenstockError) as problem:
            penstock.open_table(place)
    assert not isinstance(problem.value, InvalidRequest)  # nobody answers there


def test_a_table_leads_to_a_lake_on_this_disk(place: Path) -> None:
    table = penstock.open_table(place)
    with table.lake:
        assert str(table.key) == "sales.orders"


def test_a_copy_of_a_table_is_not_taken_for_it(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place, tmp_path / "copy")
    with pytest.raises(ManagedElsewhere, match="is a copy") as refused:
        penstock.open_table(tmp_path / "copy")
    assert str(place) in refused.value.message


def test_a_link_to_a_table_leads_to_it(place: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(place)
    table = penstock.open_table(tmp_path / "link")
    with table.lake:
        assert table.to_arrow().num_rows == 1
