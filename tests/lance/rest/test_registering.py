"""Registering a table: by its whole path, or by what follows the warehouse, as Lance has it."""

from __future__ import annotations

from pathlib import Path

import lance
import lancedb
import pytest
from lance.namespace import RestNamespace
from lance_namespace import DeregisterTableRequest, DescribeTableRequest, RegisterTableRequest

from penstock.formats.lance.rest.api import LANCE
from penstock.lake.lake import Lake
from penstock.lake.opener import init_lake
from penstock.server.access import OpenGate, TokenGate
from tests.lance.rest.talking import Talk, lance_at, some_rows
from tests.server.running import Local, local

TABLE, AGAIN = ["ws", "items"], ["ws", "again"]


@pytest.mark.parametrize("is_relative", [True, False])
def test_a_table_is_registered_again_by_what_describe_and_deregister_told(
    namespace: RestNamespace, server: Local, lake: Lake, is_relative: bool
) -> None:
    lance.write_dataset(some_rows(1, 2), namespace_client=namespace, table_id=TABLE)
    whole = namespace.describe_table(DescribeTableRequest(id=TABLE)).location or ""
    assert namespace.deregister_table(DeregisterTableRequest(id=TABLE)).location == whole
    location = whole.removeprefix(f"{lake.warehouse}/") if is_relative else whole
    assert "/" not in location if is_relative else location.startswith("/")

    answer = namespace.register_table(RegisterTableRequest(id=AGAIN, location=location))
    assert answer.location == location
    assert namespace.describe_table(DescribeTableRequest(id=AGAIN)).location == whole
    lance.write_dataset(some_rows(3), namespace_client=namespace, table_id=AGAIN, mode="append")
    table = lancedb.connect_namespace("rest", {"uri": f"{server.url}/lance"}).open_table(
        "again", namespace_path=["ws"]
    )
    assert table.count_rows() == 3


def test_a_table_of_another_program_is_registered_by_its_place_below_the_warehouse(
    namespace: RestNamespace, lake: Lake
) -> None:
    place = Path(lake.warehouse, "from elsewhere", "t.lance")
    lance.write_dataset(some_rows(1), place)
    namespace.register_table(RegisterTableRequest(id=AGAIN, location="from elsewhere/t.lance/"))
    assert lance.dataset(namespace_client=namespace, table_id=AGAIN).count_rows() == 1
    assert namespace.describe_table(DescribeTableRequest(id=AGAIN)).location == str(place)


def test_a_table_is_declared_below_the_warehouse_by_itself_and_in_a_batch(talk: Talk, lake: Lake) -> None:
    assert (
        talk("/table/one/declare", {"location": "near/one"}).body["location"] == f"{lake.warehouse}/near/one"
    )
    operations = [{"declare_table": {"id": ["two"], "location": "near/two"}}]
    done = talk("/table/batch-commit", {"operations": operations}).body["results"]
    assert done[0]["declare_table"]["location"] == f"{lake.warehouse}/near/two"


@pytest.mark.parametrize(
    "location",
    [
        *(
            "../outside",
            "a/../../outside",
            "..",
            "%2e%2e/outside",
            "%252e%252e/outside",
            "a/..%2f..%2foutside",
        ),
        *("..\\outside", ".", "", "/", " ", "a\nb", "/etc", "file:///etc", "s3://bucket/t"),
        *("a?b=c/../../d", "x" * 2000),
    ],
)
def test_no_location_leads_out_of_the_roots(talk: Talk, lake: Lake, location: str) -> None:
    outside = Path(lake.warehouse).parent / "outside"
    lance.write_dataset(some_rows(1), outside)
    talk("/namespace/ws/create", {})
    before = lake.resolve()
    operations = [{"declare_table": {"id": ["ws", "t"], "location": location}}]
    for said in (
        talk("/table/ws$t/register", {"location": location}),
        talk("/table/ws$t/register", {"location": location, "mode": "overwrite"}),
        *([] if location == "" else [talk("/table/batch-commit", {"operations": operations})]),
    ):
        assert (said.status, said.code) in {(400, 13), (404, 4)}, said
    assert lake.resolve() == before


def test_what_a_token_may_not_place_by_its_whole_path_it_may_not_place_by_less(
    talk: Talk, lake: Lake
) -> None:
    lance.write_dataset(some_rows(1), Path(lake.warehouse, "near"))
    talk("/namespace/ws/create", {})
    with local(lake.catalogue, [LANCE], gate=TokenGate(lake.catalogue)) as server:
        part, whole = lake.create_token("part", "write:main:ws.*"), lake.create_token("whole", "write")
        for location in ("near", f"{lake.warehouse}/near"):
            body = {"location": location}
            said = Talk(server, "/lance")("/table/ws$t/register", body, authorization=f"Bearer {part}")
            assert (said.status, said.code) == (403, 15)
        far = lance_at(f"{server.url}/lance", **{"headers.Authorization": f"Bearer {whole}"})
        far.register_table(RegisterTableRequest(id=["ws", "t"], location="near"))
        assert lance.dataset(namespace_client=far, table_id=["ws", "t"]).count_rows() == 1


def test_a_lake_without_a_warehouse_takes_whole_paths_only() -> None:
    with (
        init_lake("memory:", author="ada") as lake,
        local(lake.catalogue, [LANCE], gate=OpenGate(any_location=True)) as server,
    ):
        said = Talk(server, "/lance")("/table/t/register", {"location": "near"})
        assert (said.status, said.code) == (400, 13)
        assert said.error == "the lake has no warehouse, so the location 'near' must be a full path or URL"
