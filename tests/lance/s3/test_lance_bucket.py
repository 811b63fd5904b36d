"""Lance tables in a bucket of a real S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import CommitConflict
from penstock.formats.lance.lake.calls import PromoteLance
from penstock.formats.lance.names import make_manifest_path
from penstock.kernel.settings import Settings
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.testing.threads import at_once
from tests.lance.collecting import Collecting
from tests.servers.s3 import S3Place

lance = pytest.importorskip("lance")

ITEMS = ["vectors", "items"]
OTHERS = ["vectors", "others"]


@pytest.fixture
def lake(s3_place: S3Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_place.endpoint or "")
    monkeypatch.setenv("AWS_REGION", s3_place.region)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    warehouse = f"s3://{s3_place.bucket}/{s3_place.prefix}/wh"
    settings = Settings(promote_wait_s=30.0)
    with penstock.init(tmp_path / "lake", warehouse=warehouse, settings=settings) as lake:
        lake.branch().create_namespace(ITEMS[0])
        yield lake


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array([f"v{key}" for key in keys])})


def write(lake: Lake, table: list[str], *keys: int, ref: str | None = None, mode: str = "append") -> None:
    lance.write_dataset(rows(*keys), namespace_client=lake.lance(ref), table_id=table, mode=mode)


def opened(lake: Lake, table: list[str], ref: str | None = None) -> Any:
    return lance.dataset(namespace_client=lake.lance(ref), table_id=table)


def keys(dataset: Any) -> list[int]:
    return sorted(dataset.to_table(["k"])["k"].to_pylist())


def location(lake: Lake, table: list[str]) -> str:
    found = lake.lance().describe_table({"id": table}).location
    assert found is not None
    return found


def names(place: S3Place, below: str) -> list[str]:
    """Every object of a table, by its name in the table's folder."""
    prefix = below.removeprefix(f"s3://{place.bucket}/") + "/"
    with closing(place.client()) as client:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=place.bucket, Prefix=prefix)
        return [one["Key"].removeprefix(prefix) for page in pages for one in page.get("Contents", ())]


def test_everything_that_lance_does_to_a_table_works_in_a_bucket(lake: Lake, s3_place: S3Place) -> None:
    write(lake, ITEMS, 1, 2, 3, mode="create")
    write(lake, ITEMS, 4)
    table = opened(lake, ITEMS)
    table.delete("k = 2")
    table.merge_insert("k").when_matched_update_all().when_not_matched_insert_all().execute(rows(4, 5))
    table = opened(lake, ITEMS)
    table.create_scalar_index("k", "BTREE")
    table.add_columns({"twice": "k * 2"})
    table = opened(lake, ITEMS)
    table.optimize.compact_files()
    table = opened(lake, ITEMS)
    assert keys(table) == [1, 3, 4, 5]
    assert table.to_table(filter="k = 5").to_pylist() == [{"k": 5, "v": "v5", "twice": 10}]
    where = location(lake, ITEMS)
    assert where.startswith(f"s3://{s3_place.bucket}/{s3_place.prefix}/wh/")
    direct = lance.dataset(where)
    assert (direct.version, keys(direct)) == (table.version, [1, 3, 4, 5])


def test_promotion_leaves_nothing_staged(lake: Lake, s3_place: S3Place) -> None:
    write(lake, ITEMS, 1, mode="create")
    for key in range(2, 5):
        write(lake, ITEMS, key)
    where = location(lake, ITEMS)
    lake.close()  # which ends what is done in the background
    manifests = [name for name in names(s3_place, where) if "manifest" in name]
    assert sorted(manifests) == sorted(make_manifest_path("", "", version) for version in range(1, 5))


def test_a_branch_in_a_bucket_reads_what_it_forked_from_and_merges_back(lake: Lake) -> None:
    write(lake, ITEMS, 1, 2, mode="create")
    lake.branch("dev").create()
    write(lake, ITEMS, 3, ref="dev")
    opened(lake, ITEMS, "dev").delete("k = 1")
    assert keys(opened(lake, ITEMS, "dev")) == [2, 3]
    folder = lake.lance("dev").describe_table({"id": ITEMS}).location or ""
    assert "/_penstock/" in folder
    assert keys(lance.dataset(folder)) == [2, 3], "Lance reads a line without the lake, by its URLs alone"
    assert keys(opened(lake, ITEMS)) == [1, 2]
    write(lake, ITEMS, 4)
    lake.branch("dev").merge_into()
    assert keys(opened(lake, ITEMS)) == [2, 3, 4]
    lake.do(PromoteLance(key=Key(*ITEMS)))
    direct = lance.dataset(location(lake, ITEMS))
    assert keys(direct) == [2, 3, 4]
    assert keys(opened(lake, ITEMS, "dev")) == [2, 3]
    opened(lake, ITEMS).optimize.compact_files()
    write(lake, ITEMS, 5)
    assert keys(opened(lake, ITEMS)) == [2, 3, 4, 5]


def test_a_transaction_in_a_bucket_moves_two_tables_at_once(lake: Lake) -> None:
    write(lake, ITEMS, 1, mode="create")
    write(lake, OTHERS, 1, mode="create")
    with lake.transaction() as transaction:
        write(lake, ITEMS, 2, ref=transaction.branch)
        opened(lake, ITEMS, transaction.branch).delete("k = 1")
        write(lake, OTHERS, 3, ref=transaction.branch)
        assert keys(opened(lake, ITEMS, transaction.branch)) == [2]
        assert keys(opened(lake, ITEMS)) == [1]
        assert keys(lance.dataset(location(lake, ITEMS))) == [1]
    assert [keys(opened(lake, one)) for one in (ITEMS, OTHERS)] == [[2], [1, 3]]
    refused = lake.transaction(policy="snapshot")
    write(lake, ITEMS, 8, ref=refused.branch)
    write(lake, ITEMS, 9)
    with pytest.raises(CommitConflict):
        refused.land()
    assert keys(opened(lake, ITEMS)) == [2, 9]


def test_appends_that_race_in_a_bucket_all_land(lake: Lake) -> None:
    write(lake, ITEMS, 0, mode="create")
    at_once(*(lambda key=key: write(lake, ITEMS, key) for key in range(1, 5)))
    assert keys(opened(lake, ITEMS)) == [0, 1, 2, 3, 4]
    assert opened(lake, ITEMS).version == 5


def test_a_manifest_that_somebody_else_put_is_never_overwritten(lake: Lake, s3_place: S3Place) -> None:
    write(lake, ITEMS, 1, mode="create")
    where = location(lake, ITEMS)
    collecting = Collecting(lake.lance())
    lance.write_dataset(rows(2), namespace_client=collecting, table_id=ITEMS, mode="append")
    lance.write_dataset(rows(666), where, mode="append")  # past the lake, at the place of the same version
    name = f"{where}/{make_manifest_path('', '', 2)}".removeprefix(f"s3://{s3_place.bucket}/")
    with closing(s3_place.client()) as client:
        foreign = client.get_object(Bucket=s3_place.bucket, Key=name)["Body"].read()
        collecting.commit()
        assert client.get_object(Bucket=s3_place.bucket, Key=name)["Body"].read() == foreign
    assert keys(opened(lake, ITEMS)) == [1, 2], "what the lake decided stands"
