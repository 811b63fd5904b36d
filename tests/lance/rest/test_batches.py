"""BatchCommitTables by the client that is generated from Lance's specification."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pytest
from lance.namespace import RestNamespace
from lance_namespace import ListTablesRequest, TableNotFoundError
from lance_namespace_urllib3_client.api.transaction_api import TransactionApi
from lance_namespace_urllib3_client.api_client import ApiClient
from lance_namespace_urllib3_client.configuration import Configuration
from lance_namespace_urllib3_client.exceptions import ApiException
from lance_namespace_urllib3_client.models.batch_commit_tables_request import BatchCommitTablesRequest

from penstock.lake.lake import Lake
from tests.lance.rest.talking import Talk, some_rows
from tests.server.running import Local

A, B = ["ws", "a"], ["ws", "b"]


@pytest.fixture
def api(server: Local) -> TransactionApi:
    return TransactionApi(ApiClient(Configuration(host=f"{server.url}/lance")))


def commit(api: TransactionApi, *operations: dict[str, Any]) -> Any:
    return api.batch_commit_tables(BatchCommitTablesRequest.model_validate({"operations": operations}))


def staged(lake: Lake, table: list[str], *ids: int) -> dict[str, Any]:
    """A version that is written, but not committed: its manifest is from a transaction that was given up."""
    folder = Path(str(lake.lance().describe_table({"id": table}).location))
    before = lance.dataset(namespace_client=lake.lance(), table_id=table)
    transaction = lake.transaction()
    inside = lake.lance(transaction.branch)
    lance.write_dataset(some_rows(*ids), namespace_client=inside, table_id=table, mode="append")
    found = inside.describe_table_version({"id": table, "version": before.version + 1}).version
    name = Path("/", found.manifest_path)
    copy = folder / "_versions" / f"{2**64 - 1 - found.version}.manifest-staged"
    copy.write_bytes(name.read_bytes())
    transaction.abort()
    return {
        "id": table,
        "version": found.version,
        "manifest_path": str(copy).lstrip("/"),
        "naming_scheme": "V2",
    }


@pytest.fixture
def tables(namespace: RestNamespace) -> None:
    for table in (A, B):
        lance.write_dataset(some_rows(1), namespace_client=namespace, table_id=table)


def count(namespace: RestNamespace, table: list[str]) -> int:
    return int(lance.dataset(namespace_client=namespace, table_id=table).count_rows())


@pytest.mark.usefixtures("tables")
def test_versions_of_several_tables_and_a_new_table_land_in_one_commit(
    api: TransactionApi, namespace: RestNamespace, lake: Lake
) -> None:
    versions = [staged(lake, A, 2), staged(lake, B, 3, 4)]
    before = lake.branch("main").head
    answer = commit(
        api, *({"create_table_version": one} for one in versions), {"declare_table": {"id": ["ws", "c"]}}
    )
    assert [one.create_table_version.version.version for one in answer.results[:2]] == [2, 2]
    assert answer.results[2].declare_table.managed_versioning
    assert (count(namespace, A), count(namespace, B)) == (2, 3)
    landed = lake.show("main")
    assert landed.parents[0] == before
    assert "c" in (namespace.list_tables(ListTablesRequest(id=["ws"])).tables)


@pytest.mark.usefixtures("tables")
def test_one_operation_that_is_refused_refuses_all_and_is_named(
    api: TransactionApi, namespace: RestNamespace, lake: Lake
) -> None:
    version = staged(lake, A, 2)
    before = lake.branch("main").head
    with pytest.raises(ApiException) as refused:
        commit(api, {"create_table_version": version}, {"deregister_table": {"id": ["ws", "nope"]}})
    assert refused.value.status == 404
    assert "operation 1" in str(refused.value.body)
    assert lake.branch("main").head == before
    assert count(namespace, A) == 1


@pytest.mark.usefixtures("tables")
def test_a_batch_that_is_sent_twice_is_done_once_and_answered_alike(
    api: TransactionApi, namespace: RestNamespace, lake: Lake
) -> None:
    batch = {"create_table_version": staged(lake, A, 2)}
    assert commit(api, batch).to_dict() == commit(api, batch).to_dict()
    assert count(namespace, A) == 2


@pytest.mark.usefixtures("tables")
def test_a_version_that_somebody_else_took_is_refused(
    api: TransactionApi, lake: Lake, namespace: RestNamespace
) -> None:
    version = staged(lake, A, 2)
    lance.write_dataset(some_rows(5), namespace_client=namespace, table_id=A, mode="append")
    with pytest.raises(ApiException) as refused:
        commit(api, {"create_table_version": version}, {"deregister_table": {"id": B}})
    assert (refused.value.status, '"code":14' in str(refused.value.body)) == (409, True)
    assert count(namespace, B) == 1


def test_an_operation_is_exactly_one_thing(api: TransactionApi, talk: Talk) -> None:
    for operation in ({}, {"declare_table": {"id": A}, "deregister_table": {"id": A}}):
        with pytest.raises(ApiException) as refused:
            commit(api, operation)
        assert refused.value.status == 400
    assert talk("/table/ws$a/exists", {}).status == 404


@pytest.mark.usefixtures("tables")
def test_a_key_in_the_header_makes_a_commit_safe_to_send_again(talk: Talk, namespace: RestNamespace) -> None:
    body = {"operations": [{"deregister_table": {"id": A}}]}
    first = talk("/table/batch-commit", body, idempotency_key="once")
    assert first.status == 200
    assert talk("/table/batch-commit", body, idempotency_key="once").body == first.body
    with pytest.raises(TableNotFoundError):
        count(namespace, A)
    other = {"operations": [{"deregister_table": {"id": B}}]}
    assert talk("/table/batch-commit", other, idempotency_key="once").status in (400, 409)
    assert count(namespace, B) == 1
