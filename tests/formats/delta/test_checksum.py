"""Checksums of versions, and of JSON."""

from __future__ import annotations

import json

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import DeltaTable, write_deltalake

from penstock.formats.delta.log.checksum import json_checksum, write_checksum
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.formats.delta.protocol.actions import DomainMetadata, Txn
from penstock.formats.delta.protocol.names import ChecksumName, CommitName
from tests.formats.delta.logs import Table, add, commit_info, metadata, protocol, remove


def story(table: Table) -> None:
    table.commit(
        0,
        commit_info(1000),
        protocol("inCommitTimestamp"),
        metadata(delta_enableInCommitTimestamps="true"),
        add("a", size=5),
        add("b", size=7),
        Txn(app_id="app", version=3),
        DomainMetadata(domain="d", configuration="{}"),
        DomainMetadata(domain="gone", configuration="", removed=True),
    )
    table.commit(1, commit_info(2000), remove("a"), add("c", size=100))


def test_a_checksum_says_what_the_version_comes_to(table: Table) -> None:
    story(table)
    assert write_checksum(table.place, load_snapshot(table.files))
    found = json.loads((table.root / str(ChecksumName(1))).read_bytes())
    assert found["tableSizeBytes"] == 107
    assert found["numFiles"] == 2
    assert (found["numMetadata"], found["numProtocol"]) == (1, 1)
    assert found["inCommitTimestampOpt"] == 2000
    assert found["setTransactions"] == [{"appId": "app", "version": 3}]
    assert [one["domain"] for one in found["domainMetadata"]] == ["d"]
    assert found["protocol"]["writerFeatures"] == ["inCommitTimestamp"]
    assert found["metadata"]["configuration"] == {"delta.enableInCommitTimestamps": "true"}


def test_a_checksum_is_never_written_over_another(table: Table) -> None:
    story(table)
    table.write(str(ChecksumName(1)), b"theirs")
    assert not write_checksum(table.place, load_snapshot(table.files))
    assert (table.root / str(ChecksumName(1))).read_bytes() == b"theirs"


def test_readers_do_not_mind_our_checksums(table: Table) -> None:
    write_deltalake(str(table.root), pa.table({"id": [1, 2]}))
    assert write_checksum(table.place, load_snapshot(table.files))
    assert DeltaTable(str(table.root)).version() == 0
    assert (table.root / str(CommitName(0))).exists()


def test_the_hash_of_json_is_what_the_protocol_says() -> None:
    value = {
        "k0": "'v 0'",
        "checksum": "adsaskfljadfkjadfkj",
        "k1": {"k2": 2, "k3": ["v3", [1, 2], {"k4": "v4", "k5": ["v5", "v6", "v7"]}]},
    }
    assert json_checksum(value) == "6a92d155a59bf2eecbd4b4ec7fd1f875"


def test_the_hash_of_json_does_not_depend_on_how_it_is_written() -> None:
    one = json.loads('{"a": 10, "b": {"y": null, "x": "https://é.io"}, "c": true}')
    other = json.loads('{"c":true,"b":{"x":"https://\\u00e9.io","y":null},"checksum":"?","a":10}')
    assert json_checksum(one) == json_checksum(other)
    assert json_checksum({**one, "a": 11}) != json_checksum(one)
