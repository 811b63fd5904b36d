"""Where a server lets tables be: below the lake's roots, in whatever spelling somebody tries."""

from __future__ import annotations

import pytest

from penstock.errors import LocationRefused
from penstock.formats.files.content import FilesTable
from penstock.formats.lance.content import LanceTable
from penstock.lake import calls
from penstock.lake.lake import Lake
from penstock.model.content import AnyContent, Namespace, Unknown
from penstock.model.keys import Key
from penstock.model.merges import KeyMerge, MergeMode
from penstock.model.nessie import DeltaTable, IcebergTable, IcebergView, Udf
from penstock.model.operations import Put
from penstock.server.access import CheckedCatalogue, OpenGate
from penstock.storage.forbidden_hosts import check_host
from tests.server.access import guarded, new_lake

OUTSIDE = "s3://elsewhere/x"

NASTY = [
    # next to a root, above it, out of it
    "s3://lake2/x",
    "s3://elsewhere/x",
    "s3://LAKE.evil/x",
    "s3://lake/../elsewhere/x",
    "s3://lake/a/../../x",
    "s3://lake/%2e%2e/x",
    "s3://lake/%252e%252e/x",
    "s3://lake/./x",
    "s3://lake\\..\\x",
    "s3://lake/a%5c..%5cx",
    "file:///warehouse/../etc/passwd",
    "file:/warehouse/../etc/passwd",
    "/warehouse/../etc/passwd",
    "/warehouse2/x",
    "/etc/passwd",
    "file:///etc/passwd",
    "file:/etc/passwd",
    "file://host/warehouse/x",
    "etc/passwd",
    "file:warehouse/x",
    "warehouse/x",
    "./x",
    "~/x",
    # no place at all without the slashes
    "http:/169.254.169.254/latest",
    "http:169.254.169.254",
    "s3:/lake/x",
    "s3:lake/x",
    "gs:other-bucket/x",
    "hdfs:/etc",
    "jdbc:postgresql:x",
    # another host, or one that hides behind a user
    "https://storage.example.evil/t/x",
    "https://storage.example@evil/t/x",
    "https://evil@storage.example/t/x",
    "https://storage.example:8443/t/x",
    "http://storage.example/t/x",
    "https://storage.example/t/x?redirect=http://evil/",
    "https://storage.example/t/x#/../../y",
    "https://storage.example\\@evil/t/x",
    "https:///t/x",
    "s3:///x",
    "//lake/x",
    # not a location
    "",
    " ",
    " s3://lake/x",
    "s3://lake/x\n",
    "s3://lake/\0x",
    "s3://[/x",
]

METADATA = [
    "http://169.254.169.254/latest/meta-data/",
    "https://169.254.169.254/x",
    "http://169.254.169.254:80/x",
    "http://169.254.169.254./x",
    "http://169.254.0.1/x",
    "http://2852039166/x",
    "http://0xa9fea9fe/x",
    "http://0xA9.0xFE.0xA9.0xFE/x",
    "http://0251.0376.0251.0376/x",
    "http://169.254.43518/x",
    "http://169.16689662/x",
    "http://[::ffff:169.254.169.254]/x",
    "http://[::ffff:a9fe:a9fe]/x",
    "http://[0:0:0:0:0:ffff:a9fe:a9fe]:80/x",
    "http://[::169.254.169.254]/x",
    "http://[64:ff9b::a9fe:a9fe]/x",
    "http://[2002:a9fe:a9fe::1]/x",
    "http://[fe80::1]/x",
    "http://[fe80::1%25eth0]/x",
    "http://[fd00:ec2::254]/x",
    "http://100.100.100.200/x",
    "http://168.63.129.16/x",
    "http://192.0.0.192/x",
    "http://metadata.google.internal/x",
    "http://METADATA.google.internal./x",
    "http://metadata/x",
    "http://user@169.254.169.254/x",
    "http://%31%36%39.254.169.254/x",
    "http://%2531%2536%2539.254.169.254/x",
    "http://１６９.254.169.254/x",
    "http://169。254。169。254/x",
    "s3://169.254.169.254/x",
]

GOOD = [
    "s3://lake",
    "s3://lake/a/b.json",
    "s3a://lake/a/b.json",
    "S3://lake/a",
    "s3://lake/day=2026-11-01/a%20b.json",
    "/warehouse/a",
    "file:///warehouse/a",
    "file:/warehouse/a",
    "file://localhost/warehouse/a",
    "https://storage.example/t/x",
    "s3n://lake/..a/b..c",
]


@pytest.fixture(scope="module")
def lake() -> Lake:
    lake = new_lake()
    lake.add_root("/warehouse", "https://storage.example/t")
    return lake


def contents(location: str) -> list[AnyContent]:
    """Every content that can name a place, and each way in which it can."""
    return [
        IcebergTable(metadata_location=location),
        IcebergView(metadata_location=location),
        Udf(metadata_location=location),
        DeltaTable(location=location),
        DeltaTable(metadata_location_history=("s3://lake/a", location)),
        DeltaTable(checkpoint_location_history=("s3://lake/a", location)),
        LanceTable(location=location),
        FilesTable(location=location),
        Namespace(properties={"location": location}),
    ]


def commit(content: AnyContent) -> calls.CommitOperations:
    return calls.CommitOperations(operations=(Put(Key("t"), content),))


@pytest.mark.parametrize("location", NASTY + METADATA)
def test_a_location_that_is_not_below_a_root_is_refused(lake: Lake, location: str) -> None:
    head = lake.branch().head
    with pytest.raises(LocationRefused):
        guarded(lake, "admin").do(commit(IcebergTable(metadata_location=location)))
    assert lake.branch().head == head


@pytest.mark.parametrize("location", GOOD)
def test_a_location_below_a_root_is_accepted_as_engines_write_it(location: str) -> None:
    lake = new_lake()
    lake.add_root("/warehouse", "https://storage.example/t")
    guarded(lake, "write").do(commit(IcebergTable(metadata_location=location)))
    found = lake.table("t").content
    assert isinstance(found, IcebergTable)
    assert found.metadata_location == location


@pytest.mark.parametrize("location", METADATA)
def test_no_root_is_so_wide_that_it_lets_in_an_address_that_hands_out_secrets(
    lake: Lake, location: str
) -> None:
    with pytest.raises(LocationRefused):
        check_host(location)
    with pytest.raises(LocationRefused):
        guarded(lake, "admin").do(calls.ChangeRoots(add=(location,)))
    assert location not in lake.roots


@pytest.mark.parametrize(
    "location", [*GOOD, "s3://metadata/x", "http://10.0.0.1/x", "https://localhost:9000/b"]
)
def test_other_hosts_may_be_roots(location: str) -> None:
    check_host(location)


@pytest.mark.parametrize("number", range(9))
def test_every_place_that_a_content_names_is_looked_at(lake: Lake, number: int) -> None:
    with pytest.raises(LocationRefused, match="elsewhere"):
        guarded(lake, "write").do(commit(contents(OUTSIDE)[number]))


@pytest.mark.parametrize("number", range(9))
def test_a_content_that_settles_a_conflict_is_looked_at_too(lake: Lake, number: int) -> None:
    given = {"sales.orders": KeyMerge(mode=MergeMode.NORMAL, content=contents(OUTSIDE)[number])}
    mine = guarded(lake, "write")
    ways: list[calls.MergeCall] = [
        calls.Merge(source="dev/etl", keys=given, dry_run=True),
        calls.Transplant(commits=("dev/etl",), keys=given, dry_run=True),
        calls.Revert(commit="main", keys=given, dry_run=True),
        calls.Rebase(branch="dev/etl", keys=given, dry_run=True),
    ]
    for call in ways:
        with pytest.raises(LocationRefused, match="elsewhere"):
            mine.do(call)


def test_contents_that_name_no_place_need_none() -> None:
    lake = new_lake()
    mine = guarded(lake, "write")
    for content in (Namespace(), Udf(sql_text="x + 1"), FilesTable(), Unknown(type_name="X", payload=b"x")):
        mine.do(commit(content))
        lake.branch().drop("t")


def test_on_a_server_for_trials_tables_may_be_anywhere() -> None:
    lake = new_lake()
    with pytest.raises(LocationRefused):
        CheckedCatalogue(lake.catalogue, OpenGate()({})).do(commit(IcebergTable(metadata_location=OUTSIDE)))
    trial = CheckedCatalogue(lake.catalogue, OpenGate(any_location=True)({}))
    trial.do(commit(IcebergTable(metadata_location=OUTSIDE)))


def test_a_root_counts_from_the_moment_it_is_added_until_it_is_removed() -> None:
    lake = new_lake()
    mine = guarded(lake, "write")
    lake.add_root("s3://elsewhere")
    mine.do(commit(IcebergTable(metadata_location=OUTSIDE)))
    lake.remove_root("s3://elsewhere")
    with pytest.raises(LocationRefused, match="add a root"):
        mine.do(commit(IcebergTable(metadata_location=OUTSIDE + "2")))
