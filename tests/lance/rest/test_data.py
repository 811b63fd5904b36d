"""Data operations that a namespace does itself: in this process, behind a server, at once or not at all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import lance
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from lance_namespace import (
    InvalidInputError,
    LanceNamespaceError,
    PermissionDeniedError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from penstock.formats.lance.lake.data_types import parse_arrow_type, write_json_type
from penstock.formats.lance.lake.namespace import PenstockNamespace
from penstock.formats.lance.rest.api import LANCE
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.server.access import OpenGate, TokenGate
from penstock.server.native import NATIVE
from tests.lance.rest.talking import Talk, some_rows, stream_of
from tests.server.running import local

TABLE = ["ws", "t"]


@pytest.fixture(params=["embedded", "remote"])
def either(request: pytest.FixtureRequest, lake: Lake) -> Iterator[Lake]:
    """A lake with a namespace ``ws``, in this process or behind a server."""
    lake.branch("main").create_namespace("ws")
    if request.param == "embedded":
        yield lake
        return
    with (
        local(lake.catalogue, [NATIVE], gate=OpenGate(any_location=True)) as server,
        open_lake(server.url) as far,
    ):
        yield far


def count(namespace: PenstockNamespace, **about: Any) -> int | None:
    return namespace.count_table_rows({"id": TABLE, **about}).count


def test_a_namespace_does_the_work_wherever_its_lake_is(either: Lake) -> None:
    namespace = either.lance()
    assert namespace.create_table({"id": TABLE}, stream_of(some_rows(1, 2))).version == 1
    assert namespace.insert_into_table({"id": TABLE}, stream_of(some_rows(3))).version == 2
    merge = {"id": TABLE, "on": ["id"], "when_matched_update_all": True, "when_not_matched_insert_all": True}
    merged = namespace.merge_insert_into_table(merge, stream_of(some_rows(3, 4)))
    assert (merged.num_updated_rows, merged.num_inserted_rows, merged.version) == (1, 1, 3)
    assert namespace.update_table({"id": TABLE, "updates": [["text", "'x'"]]}).updated_rows == 4
    assert namespace.delete_from_table({"id": TABLE, "predicate": "id = 1"}).version == 5
    assert (count(namespace), count(namespace, version=1)) == (3, 2)
    noted = {"id": TABLE, "updates": [{"path": "id", "metadata": {"unit": "m"}}]}
    assert namespace.update_field_metadata(noted).fields == {"id": {"unit": "m"}}
    described = namespace.describe_table({"id": TABLE, "load_detailed_metadata": True})
    assert described.var_schema is not None
    assert [field.name for field in described.var_schema.fields] == ["id", "text", "vector"]
    assert namespace.get_table_stats({"id": TABLE}).num_rows == 3


def test_a_new_table_and_its_rows_are_one_commit(either: Lake) -> None:
    before = either.branch("main").head
    either.lance().create_table({"id": TABLE, "properties": {"a": "b"}}, stream_of(some_rows(1)))
    assert either.show("main").parents[0] == before
    assert either.lance().describe_table({"id": TABLE}).properties == {"a": "b"}


def test_a_table_whose_rows_cannot_be_written_is_not_there(either: Lake) -> None:
    unwritable = pa.table({"x": pa.array([None], pa.month_day_nano_interval())})
    with pytest.raises(LanceNamespaceError):
        either.lance().create_table({"id": TABLE}, stream_of(unwritable))
    with pytest.raises(TableNotFoundError):
        either.lance().describe_table({"id": TABLE})
    assert not either.transactions()


def test_of_those_who_create_a_table_at_once_one_does(either: Lake) -> None:
    barrier, made, refused = threading.Barrier(3), [], []

    def create(number: int) -> None:
        namespace = either.lance()
        barrier.wait()
        try:
            namespace.create_table({"id": TABLE}, stream_of(some_rows(number)))
            made.append(number)
        except TableAlreadyExistsError:
            refused.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), len(refused)) == (1, 2)
    rows = lance.dataset(namespace_client=either.lance(), table_id=TABLE).to_table()
    assert rows["id"].to_pylist() == made


def test_work_on_a_branch_or_in_a_transaction_stays_there_until_it_lands(either: Lake) -> None:
    either.lance().create_table({"id": TABLE}, stream_of(some_rows(1)))
    either.branch("dev").create()
    either.lance("dev").insert_into_table({"id": TABLE}, stream_of(some_rows(2)))
    either.lance("dev").create_table({"id": ["ws", "new"]}, stream_of(some_rows(2)))
    with either.transaction() as transaction:
        transaction.lance.delete_from_table({"id": TABLE, "predicate": "id = 1"})
        transaction.lance.create_table({"id": ["ws", "other"]}, stream_of(some_rows(5)))
        assert (count(transaction.lance), count(either.lance()), count(either.lance("dev"))) == (0, 1, 2)
    assert count(either.lance()) == 0
    assert sorted(str(one.key) for one in either.tables()) == ["ws.other", "ws.t"]


def test_what_cannot_be_read_says_which_field_is_wrong(either: Lake) -> None:
    namespace = either.lance()
    with pytest.raises(InvalidInputError, match="'k' is missing"):
        namespace.query_table({"id": TABLE, "vector": {}})
    with pytest.raises(InvalidInputError, match=r"'updates\[0\]\[0\]' must be text"):
        namespace.update_table({"id": TABLE, "updates": [[1, "1"]]})
    with pytest.raises(InvalidInputError, match="not an Arrow IPC stream"):
        namespace.create_table({"id": TABLE}, b"junk")


def test_who_may_write_some_tables_only_creates_and_changes_those(lake: Lake) -> None:
    lake.branch("main").create_namespace("ws")
    lake.branch("main").create_namespace("other")
    token = lake.create_token("some", "read", "write:main:ws.*")
    with local(lake.catalogue, [LANCE], gate=TokenGate(lake.catalogue)) as server:
        talk, who = Talk(server, "/lance"), f"Bearer {token}"
        assert talk("/table/ws$t/create", some_rows(1), authorization=who).status == 200
        assert talk("/table/ws$t/insert", some_rows(2), authorization=who).body["version"] == 2
        denied = talk("/table/other$t/create", some_rows(1), authorization=who)
        assert (denied.status, denied.code) == (403, PermissionDeniedError.code)


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.int32(), pa.float16(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.binary(7)),
        *(pa.decimal128(10, 2), pa.timestamp("us"), pa.date32(), pa.list_(pa.int8()), pa.list_(pa.int8(), 3)),
        *(pa.large_list(pa.int8()), pa.struct([("a", pa.int8()), ("b", pa.list_(pa.string()))])),
    ],
    ids=str,
)
def test_a_type_that_is_told_can_be_asked_for(kind: pa.DataType) -> None:
    assert parse_arrow_type(write_json_type(kind)) == kind


@pytest.mark.parametrize(
    "said", ["nope", {}, {"type": "list"}, {"type": 5}, {"type": "fixed_size_binary"}, 7, None]
)
def test_a_type_that_is_none_is_refused(said: Any) -> None:
    with pytest.raises(InvalidInputError):
        parse_arrow_type(said)
