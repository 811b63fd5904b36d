"""LanceDB's own maintenance, and Lance's, leave what the lake needs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import lance
import lancedb
import pytest
from lance_namespace import CreateNamespaceRequest

from penstock.formats.lance.content import LanceTable
from penstock.lake.lake import Lake
from tests.lance.rest.talking import lance_at, some_rows
from tests.server.running import Local

WS = ["ws"]
NOW = timedelta(0)


def optimise(url: str, folder: str) -> None:
    """It stops at versions that are tagged, and says so; rows are compacted by then."""
    table = lancedb.connect_namespace("rest", {"uri": url}).open_table("items", namespace_path=WS)
    with (
        pytest.raises(RuntimeError, match="tagged version"),
        pytest.warns(UserWarning, match="cleanup_older_than"),
    ):
        table.optimize(cleanup_older_than=NOW)


def clean_up(url: str, folder: str) -> None:
    table = lance.dataset(namespace_client=lance_at(url), table_id=["ws", "items"])
    table.optimize.compact_files()
    table = lance.dataset(namespace_client=lance_at(url), table_id=["ws", "items"])
    table.cleanup_old_versions(older_than=NOW, error_if_tagged_old_versions=False)


def clean_up_past_the_lake(url: str, folder: str) -> None:
    """By another spelling of the folder, too, of which Lance thinks that it is another one."""
    for place in (folder, f"file://{folder}"):
        lance.dataset(place).cleanup_old_versions(older_than=NOW, error_if_tagged_old_versions=False)


CLEANERS: dict[str, Callable[[str, str], None]] = {
    "lancedb": optimise,
    "pylance": clean_up,
    "past the lake": clean_up_past_the_lake,
}


@pytest.mark.parametrize("cleaner", CLEANERS)
def test_branches_tags_and_commits_keep_their_rows(lake: Lake, server: Local, cleaner: str) -> None:
    url = f"{server.url}/lance"
    lake.lance().create_namespace(CreateNamespaceRequest(id=WS))
    database = lancedb.connect_namespace("rest", {"uri": url})
    table = database.create_table("items", data=some_rows(1, 2), namespace_path=WS)
    begun = lake.transaction()
    table.add(some_rows(3, 4))
    lake.branch("dev").create()
    lake.tag("v1").create()
    table.update(where="id = 1", values={"id": 100})
    lake.branch("written").create()
    lance.write_dataset(
        some_rows(9), namespace_client=lance_at(f"{url}/branch/written"), table_id=["ws", "items"],
        mode="append",
    )  # fmt: skip
    table.delete("id = 2")
    table.add(some_rows(5))
    known = {commit.id: ids(lake, commit.id) for commit in lake.log() if has_items(lake, commit.id)}
    CLEANERS[cleaner](url, folder_of(lake))
    assert ids(lake, "main") == [3, 4, 5, 100]
    assert ids(lake, "dev") == ids(lake, "v1") == [1, 2, 3, 4]
    assert ids(lake, "written") == [2, 3, 4, 9, 100]
    assert ids(begun, None) == [1, 2]
    begun.abort()
    assert {commit: ids(lake, commit) for commit in known} == known
    table.add(some_rows(6))
    lake.merge("dev", "main")
    assert ids(lake, "main") == [3, 4, 5, 6, 100]


def test_the_settings_of_a_table_that_clean_up_by_themselves_keep_them(lake: Lake, server: Local) -> None:
    where: dict[str, Any] = {
        "namespace_client": lance_at(f"{server.url}/lance"),
        "table_id": ["ws", "items"],
    }
    lake.lance().create_namespace(CreateNamespaceRequest(id=WS))
    table = lance.write_dataset(some_rows(1, 2), **where)
    lake.tag("v1").create()
    table.update_config({"lance.auto_cleanup.interval": "1", "lance.auto_cleanup.older_than": "0s"})
    lance.write_dataset(some_rows(3), **where, mode="overwrite")
    lance.write_dataset(some_rows(4), **where, mode="append")
    assert ids(lake, "v1") == [1, 2]
    assert ids(lake, "main~1") == [3]


def has_items(lake: Lake, at: str) -> bool:
    with suppress(Exception):
        return lake.at(at).get("ws.items") is not None
    return False


def folder_of(lake: Lake) -> str:
    content = lake.table("ws.items").content
    assert isinstance(content, LanceTable)
    return content.location


def ids(lake: Any, at: str | None) -> list[int]:
    table = lake.table("ws.items") if at is None else lake.at(at).table("ws.items")
    return sorted(table.to_arrow()["id"].to_pylist())
