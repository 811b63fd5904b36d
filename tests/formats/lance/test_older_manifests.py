"""Manifests as older versions of Lance have written them, and fields that are not known here.

The files in ``older`` are the fifth versions of one table: 300 rows with a scalar and a vector index, two
more rows appended, and one deleted.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.formats.lance.lake.manifest_files import ManifestFiles, UnclearManifest
from penstock.formats.lance.manifests import Manifest, ManifestOperation, make_transaction
from penstock.formats.lance.protobuf import ProtobufMessage
from penstock.formats.lance.relocation import UnknownPlacement, check_movable

OLDER = Path(__file__).parent / "older"
LANCE_13, LANCE_14 = 21, 23
"""The fields that tell the place of a transaction."""


def older(version: str) -> Manifest:
    return Manifest.decode((OLDER / f"lance-{version}.manifest").read_bytes())


def section(packed: bytes, place: int | None) -> bytes:
    assert place is not None
    size = int.from_bytes(packed[place : place + 4], "little")
    return packed[place + 4 : place + 4 + size]


@pytest.mark.parametrize(
    ("version", "operation"),
    [
        ("0.39.0", ManifestOperation.OTHER),
        ("1.0.4", ManifestOperation.DELETE),
        ("13.0.0", ManifestOperation.DELETE),
    ],
)
def test_a_manifest_of_an_older_lance_is_read(version: str, operation: ManifestOperation) -> None:
    found = older(version)
    assert (found.version, found.operation, len(found.fragments)) == (5, operation, 2)
    assert {index.get_text(3) for index in found.indexes} == {"id_idx", "v_idx"}
    assert found.transaction_file.startswith("4-")
    assert found.unknown_fields == []


@pytest.mark.parametrize("version", ["0.39.0", "1.0.4", "13.0.0"])
def test_every_lance_finds_the_new_transaction_of_a_manifest_that_is_made_anew(version: str) -> None:
    said = make_transaction(ManifestOperation.RESTORE, 5, "an-id", ProtobufMessage.from_fields((1, 5)), {})
    packed = older(version).make_version(6, None, said, 1).encode()
    body = Manifest.decode(packed).body
    assert [section(packed, body.get_number(field)) for field in (LANCE_13, LANCE_14)] == [said.encode()] * 2
    assert body.get_text(12) is None


@pytest.mark.parametrize("version", ["1.0.4", "13.0.0"])
def test_a_manifest_that_keeps_its_transaction_is_told_of_it_as_before(version: str) -> None:
    found = older(version)
    packed = found.replace_parts(indexes=found.indexes[:1]).encode()
    again = Manifest.decode(packed)
    assert again.transaction == found.transaction
    assert again.body.get_number(LANCE_14) is None
    assert (
        section(packed, again.body.get_number(LANCE_13)) == (found.transaction or ProtobufMessage()).encode()
    )


def test_a_manifest_without_a_transaction_stays_so() -> None:
    found = Manifest.decode(older("0.39.0").encode())
    assert found.transaction is None
    assert (found.body.get_number(LANCE_13), found.body.get_number(LANCE_14)) == (None, None)


def test_columns_are_the_same_whatever_lance_has_written_them() -> None:
    assert older("0.39.0").schema == older("1.0.4").schema


@pytest.mark.parametrize("field", [17, 22, 27])
def test_a_field_that_may_tell_a_place_is_neither_moved_nor_swept_by(field: int) -> None:
    """17: blobs in a table of their own; 22: fragments that are not in the manifest; 27: of the future."""
    found = older("13.0.0")
    found = found._replace(body=found.body.replace_field(field, 1))
    with pytest.raises(UnknownPlacement, match=rf"fields \[{field}\]"):
        check_movable(found)
    with pytest.raises(UnclearManifest, match=rf"\[{field}\]"):
        list(ManifestFiles().list_new_files(found, "/somewhere"))
