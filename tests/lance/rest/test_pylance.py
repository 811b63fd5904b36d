"""Lance's own client, unmodified, on branches, in transactions and at commits of a lake."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import lance
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from lance.namespace import RestNamespace
from lance_namespace import (
    InvalidInputError,
    LanceNamespaceError,
    ListTableVersionsRequest,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from penstock.lake.lake import Lake
from tests.lance.rest.talking import lance_at, some_rows
from tests.server.running import Local

TABLE = ["ws", "items"]


def opened(namespace: RestNamespace, **how: Any) -> lance.LanceDataset:
    return lance.dataset(namespace_client=namespace, table_id=TABLE, **how)


def written(namespace: RestNamespace, *ids: int, mode: str = "create") -> lance.LanceDataset:
    return lance.write_dataset(some_rows(*ids), namespace_client=namespace, table_id=TABLE, mode=mode)


def ids(dataset: lance.LanceDataset) -> list[int]:
    return sorted(dataset.to_table(columns=["id"])["id"].to_pylist())


def test_everything_that_a_dataset_can_do_becomes_a_commit_of_the_lake(
    namespace: RestNamespace, lake: Lake
) -> None:
    written(namespace, 1, 2, 3)
    written(namespace, 4, mode="append")
    dataset = opened(namespace)
    dataset.delete("id = 1")
    dataset.update({"text": "'new'"}, where="id = 2")
    dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(
        some_rows(3, 9)
    )
    dataset.add_columns({"twice": "id * 2"})
    dataset.create_scalar_index("id", "BTREE")
    dataset.optimize.compact_files()
    found = opened(namespace)
    assert ids(found) == [2, 3, 4, 9]
    assert found.to_table(filter="id = 9").to_pylist()[0]["twice"] is not None
    assert found.to_table(filter="text = 'new'")["id"].to_pylist() == [2]
    assert ids(opened(namespace, version=1)) == [1, 2, 3]
    listed = namespace.list_table_versions(ListTableVersionsRequest(id=TABLE))
    assert [one.version for one in listed.versions] == list(range(found.version, 0, -1))
    written_by_lance = [one for one in lake.log() if "items" in one.message]
    assert len(written_by_lance) >= found.version


def test_whoever_reads_the_folder_without_a_server_sees_the_same(
    namespace: RestNamespace, lake: Lake
) -> None:
    dataset = written(namespace, 1, 2)
    written(namespace, 3, mode="append")
    lake.finish_background()
    assert ids(lance.dataset(dataset.uri)) == [1, 2, 3]


def test_a_restored_version_is_the_newest_one(namespace: RestNamespace) -> None:
    written(namespace, 1, 2)
    written(namespace, 3, mode="overwrite")
    opened(namespace, version=1).restore()  # type: ignore[no-untyped-call]
    assert ids(opened(namespace)) == [1, 2]
    assert opened(namespace).version == 3


def test_lances_own_tags_and_branches_work(namespace: RestNamespace) -> None:
    dataset = written(namespace, 1)
    written(namespace, 2, mode="append")
    dataset.tags.create("first", 1)
    assert ids(opened(namespace, version="first")) == [1]
    branch = opened(namespace).create_branch("try")
    branch.insert(some_rows(3))
    assert ids(opened(namespace).checkout_version(("try", None))) == [1, 2, 3]
    assert ids(opened(namespace)) == [1, 2]


def test_a_branch_of_the_lake_is_another_address(namespace: RestNamespace, lake: Lake, server: Local) -> None:
    written(namespace, 1)
    lake.branch("team/try").create()
    there = lance_at(f"{server.url}/lance/branch/team/try")
    written(there, 2, mode="append")
    written(lance_at(f"{server.url}/lance/branch/team%2Ftry"), 3, mode="append")
    assert ids(opened(there)) == [1, 2, 3]
    assert ids(opened(namespace)) == [1]
    lake.merge("team/try", into="main")
    assert ids(opened(namespace)) == [1, 2, 3]


def test_a_commit_of_the_lake_is_an_address_that_never_changes(
    namespace: RestNamespace, lake: Lake, server: Local
) -> None:
    written(namespace, 1)
    head = lake.branch("main").head
    written(namespace, 2, mode="append")
    then = lance_at(f"{server.url}/lance/at/{head}")
    assert ids(opened(then)) == [1]
    with pytest.raises((LanceNamespaceError, OSError)):
        written(then, 3, mode="append")
    now = lance_at(f"{server.url}/lance/at/main")
    assert ids(opened(now)) == [1, 2]
    with pytest.raises((LanceNamespaceError, OSError)):
        written(now, 3, mode="append")
    assert ids(opened(namespace)) == [1, 2]


def test_a_transaction_is_an_address_too_and_lands_all_at_once(
    namespace: RestNamespace, lake: Lake, server: Local
) -> None:
    written(namespace, 1)
    with lake.transaction() as transaction:
        inside = lance_at(f"{server.url}/lance/{transaction.branch}")
        written(inside, 2, mode="append")
        opened(inside).delete("id = 1")
        lance.write_dataset(some_rows(7), namespace_client=inside, table_id=["ws", "other"])
        assert ids(opened(inside)) == [2]
        assert ids(opened(namespace)) == [1]
        with pytest.raises(TableNotFoundError):
            lance.dataset(namespace_client=namespace, table_id=["ws", "other"])
    assert ids(opened(namespace)) == [2]
    assert ids(lance.dataset(namespace_client=namespace, table_id=["ws", "other"])) == [7]


def test_writers_that_race_all_land(namespace: RestNamespace, server: Local) -> None:
    written(namespace, 0)
    barrier, failed = threading.Barrier(4), []

    def append(number: int) -> None:
        client = lance_at(f"{server.url}/lance")
        dataset = opened(client)
        barrier.wait()
        try:
            dataset.insert(some_rows(number))
        except Exception as error:  # shown by the assertion
            failed.append(error)

    threads = [threading.Thread(target=append, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert ids(opened(namespace)) == [0, 1, 2, 3, 4]


def test_what_goes_wrong_is_raised_as_what_it_is(namespace: RestNamespace) -> None:
    written(namespace, 1)
    with pytest.raises(TableAlreadyExistsError):
        written(namespace, 1)
    with pytest.raises(TableNotFoundError):
        lance.dataset(namespace_client=namespace, table_id=["ws", "nope"])
    with pytest.raises(InvalidInputError):
        lance.dataset(namespace_client=namespace, table_id=["ws", "\x01"])


def test_a_version_on_no_branch_is_put_where_lance_finds_it(namespace: RestNamespace) -> None:
    dataset = written(namespace, 1)
    fragments = lance.fragment.write_fragments(some_rows(2), dataset.uri, mode="append")
    apart = lance.LanceDataset.commit(
        dataset,
        lance.LanceOperation.Append(fragments),
        read_version=1,
        detached=True,
        namespace_client=namespace,
        table_id=TABLE,
        namespace_client_managed_versioning=True,
    )
    assert ids(apart) == [1, 2]
    assert ids(opened(namespace)) == [1]
    again = lance.dataset(namespace_client=namespace, table_id=TABLE, version=apart.version)
    assert ids(again) == [1, 2]


def test_old_versions_that_are_cleaned_up_leave_what_the_newest_needs(namespace: RestNamespace) -> None:
    written(namespace, 1)
    written(namespace, 2, mode="append")
    written(namespace, 3, mode="append")
    opened(namespace).cleanup_old_versions(older_than=timedelta(0), error_if_tagged_old_versions=False)
    assert ids(opened(namespace)) == [1, 2, 3]
    assert ids(opened(namespace, version=1)) == [1]
    assert isinstance(opened(namespace).schema, pa.Schema)
