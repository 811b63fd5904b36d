"""Warehouse and roots: where the tables of a lake may be."""

from pathlib import Path

import pytest

import penstock
from penstock import DeltaTable, FilesTable, IcebergTable, Key, KeyMerge, LanceTable, Put
from penstock.errors import LocationRefused
from penstock.lake.lake import Lake
from penstock.model.content import ManagedTable
from penstock.storage.locations import hide_secrets
from tests.queue.hooks import everything, table


def test_the_warehouse_is_in_the_lake_unless_told_otherwise(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake", create=True) as lake:
        assert lake.warehouse == str(tmp_path / "lake" / "warehouse")
        assert lake.roots == (lake.warehouse,)
    with penstock.init(
        tmp_path / "other", warehouse="s3://bucket/wh/", roots=["s3://More/x", "/data/"]
    ) as lake:
        assert lake.warehouse == "s3://bucket/wh"
        assert lake.roots == ("s3://bucket/wh", "s3://more/x", "/data")
    with penstock.open(tmp_path / "other") as lake:
        assert lake.roots == ("s3://bucket/wh", "s3://more/x", "/data")
    with penstock.open("memory:") as lake:
        assert (lake.warehouse, lake.roots) == ("", ())


def test_a_relative_warehouse_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with penstock.init("lake", warehouse="tables") as lake:
        assert lake.warehouse == str(tmp_path / "tables")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return penstock.init(tmp_path / "lake", warehouse="s3://bucket/wh", roots=["/data/tables", "gs://other"])


@pytest.mark.parametrize(
    "location",
    [
        *[
            "s3://bucket/wh/t",
            "s3://bucket/wh",
            "s3://BUCKET/wh/t/",
            "S3://bucket/wh/a/b/c",
            "s3://bucket//wh//t",
        ],
        *[
            "/data/tables/x",
            "file:///data/tables/x",
            "gs://other/anything",
            "gs://other",
        ],
    ],
)
@pytest.mark.parametrize("kind", [DeltaTable, LanceTable, FilesTable])
def test_a_managed_table_may_be_below_a_root(lake: Lake, kind: type[ManagedTable], location: str) -> None:
    lake.branch().put("a.t", kind(location=location))
    assert lake.table("a.t").exists


OUTSIDE = [
    *["s3://bucket/wh-2/t", "s3://bucket/other", "s3://bucket", "s3://bucket2/wh/t", "gs://bucket/wh/t"],
    *["s3://bucket/wh/../secret", "s3://bucket/wh/./x", "s3://bucket/wh/%2e%2e/x", "s3://bucket/wh/..%2fx"],
    *["s3://user@bucket/wh/t", "s3://user:pw@bucket/wh/t", "s3://bucket/wh/t?x=1", "s3://bucket/wh/t#x"],
    *[
        "/data/tables2/x",
        "/data",
        "/",
        "/data/tables/../x",
        "file:///data/other",
        "file://host/data/tables/x",
    ],
    *["data/tables/x", "s3:/bucket/wh/t", "s3:bucket/wh/t", "s3://", "s3:///wh/t", "https://bucket/wh/t"],
    *[
        "s3://bucket\\wh/t",
        "s3://bucket/wh/a\nb",
        " s3://bucket/wh/t",
        "s3://bucket:443/wh/t",
        "s3a://bucket/wh/t",
    ],
]


@pytest.mark.parametrize("location", OUTSIDE)
def test_a_managed_table_outside_of_all_roots_is_refused_by_name(lake: Lake, location: str) -> None:
    lake.branch().put("a.fine", DeltaTable(location="s3://bucket/wh/fine"))
    before = everything(lake.kernel.store)
    with pytest.raises(LocationRefused) as caught:
        lake.branch().commit(
            [
                Put(Key("a", "other"), DeltaTable(location="s3://bucket/wh/other")),
                Put(Key("a", "t"), DeltaTable(location=location)),
            ]
        )
    assert caught.value.details["location"] == hide_secrets(location)
    assert everything(lake.kernel.store) == before


def test_the_refusal_names_the_roots_and_what_to_do(lake: Lake) -> None:
    with pytest.raises(LocationRefused) as caught:
        lake.branch().put("t", DeltaTable(location="s3://elsewhere/t"))
    text = str(caught.value)
    assert "s3://elsewhere/t" in text
    assert "s3://bucket/wh, /data/tables, gs://other" in text
    assert "root" in text


def test_a_table_without_a_location_and_an_unmanaged_one_are_not_checked(lake: Lake) -> None:
    lake.branch().put("managed", DeltaTable())
    lake.branch().put("pointer", IcebergTable(metadata_location="https://anywhere/metadata.json"))
    assert len(lake.tables()) == 2


def test_a_lake_without_roots_takes_no_locations() -> None:
    with penstock.open("memory:") as lake, pytest.raises(LocationRefused, match="the lake has no roots"):
        lake.branch().put("t", DeltaTable(location="/tmp/t"))


def test_a_merge_cannot_bring_a_given_content_from_outside(lake: Lake) -> None:
    lake.branch().put("t", DeltaTable(location="s3://bucket/wh/t"))
    lake.branch("dev").create()
    lake.branch("dev").put("t", DeltaTable(location="s3://bucket/wh/t", last_checkpoint="dev"))
    lake.branch().put("other", table())
    before = everything(lake.kernel.store)
    outside = KeyMerge(content=DeltaTable(location="s3://elsewhere/t"))
    with pytest.raises(LocationRefused):
        lake.merge("dev", "main", keys={"t": outside})
    with pytest.raises(LocationRefused):
        lake.transplant("dev", "main", keys={"t": outside})
    assert everything(lake.kernel.store) == before
