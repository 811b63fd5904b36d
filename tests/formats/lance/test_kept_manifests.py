"""Manifests that were read are remembered, as bytes and as what they say, within bounds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.formats.lance import manifest_reader
from penstock.formats.lance.manifest_reader import ManifestReader
from penstock.formats.lance.manifests import Manifest, ManifestOperation, make_transaction
from penstock.formats.lance.protobuf import ProtobufMessage
from penstock.formats.lance.state import LanceTableVersion
from penstock.storage.places import Places


@pytest.fixture
def places() -> Iterator[Places]:
    found = Places()
    yield found
    found.close()


def manifest(number: int, note: bytes = b"") -> Manifest:
    said = make_transaction(ManifestOperation.APPEND, number - 1, "u", ProtobufMessage.from_fields(), {})
    return Manifest(ProtobufMessage.from_fields((3, number), (99, note)), transaction=said)


def version_of(data: bytes) -> LanceTableVersion:
    return LanceTableVersion(
        staged="_versions/1.manifest-1", size=len(data), sha256=hashlib.sha256(data).digest()
    )


def test_what_was_parsed_before_is_what_would_be_read(tmp_path: Path, places: Places) -> None:
    data = manifest(1).encode()
    (tmp_path / "_versions").mkdir()
    (tmp_path / "_versions/1.manifest-1").write_bytes(data)
    version, parsed = version_of(data), Manifest.decode(data)
    remembering, reading_anew = ManifestReader(places), ManifestReader(places)
    remembering.cache_manifest(version, data, parsed)
    assert remembering.read_manifest(str(tmp_path), "", 1, version) is parsed
    assert reading_anew.read_manifest(str(tmp_path), "", 1, version) == parsed


def test_a_large_manifest_is_remembered_as_bytes_only(places: Places) -> None:
    data = manifest(1, b"x" * manifest_reader.PARSED_MAX_BYTES).encode()
    manifests, version, parsed = ManifestReader(places), version_of(data), Manifest.decode(data)
    manifests.cache_manifest(version, data, parsed)
    found = manifests.read_manifest("/nowhere", "", 1, version)
    assert found == parsed
    assert found is not parsed


def test_the_oldest_are_forgotten_when_they_take_too_much(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = [manifest(number, b"x" * 1000).encode() for number in range(1, 11)]
    monkeypatch.setattr(
        manifest_reader, "KEPT_MAX_BYTES", 8 * (len(packed[0]) + len(packed[1]) + len(packed[2]))
    )
    manifests = ManifestReader(places)
    for data in packed:
        manifests.cache_manifest(version_of(data), data, Manifest.decode(data))
    known = [manifests.find_cached(version_of(data)) for data in packed]
    assert [one is not None for one in known] == [False] * 7 + [True] * 3


def test_a_version_that_is_known_by_its_place_alone_is_not_remembered(places: Places) -> None:
    registered, manifests = LanceTableVersion(size=3), ManifestReader(places)
    manifests.cache_manifest(registered, b"abc")
    assert manifests.find_cached(registered) is None
