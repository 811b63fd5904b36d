"""The files that a manifest references: every file that a version of a Lance table is made of.

Files are told by whole paths or URLs. A deletion file is told without its ending, which its manifest does not
spell out, and an index by its folder; so are they looked for (``list_spellings``).
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final
from uuid import UUID

from penstock.errors import InvalidRequest, LocationRefused
from penstock.formats.lance.manifests import Manifest, ManifestFlag
from penstock.formats.lance.names import TRANSACTIONS
from penstock.formats.lance.protobuf import MalformedMessage, ProtobufMessage
from penstock.formats.lance.relocation import DELETION_FILE, FILES, FRAGMENT_ID
from penstock.storage.locations import normalise_location

_PATH: Final = 1
_READ_VERSION: Final = 2
_DELETION_ID: Final = 3
_BASE_OF_FILE: Final = 7
_INDEX_UUID: Final = 1
_BASE_OF_INDEX: Final = 9
_FRAGMENT_FIELDS: Final = frozenset((1, 2, 3, 4, 5, 7, 9))
"""Those that do not name a file, or are read here."""
_DATA: Final = "data/"
INDICES: Final = "_indices/"
_DELETIONS: Final = "_deletions/"


class UnclearManifest(Exception):
    """A manifest may name files in a way that is not known here. The reason continues a sentence."""


class ManifestFiles:
    """Reads what manifests name. What many of them have in common is read once."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def list_new_files(self, manifest: Manifest, folder: str) -> Iterator[str]:
        """What a manifest names that lies in the chain at a folder, as far as no other one did before.

        ``UnclearManifest`` if that cannot be said.
        """
        if manifest.flags & ~ManifestFlag.KNOWN:
            raise UnclearManifest("uses a feature of Lance that this version of Penstock does not know")
        if unknown := manifest.unknown_fields:
            raise UnclearManifest(
                f"has fields in its manifest that this version of Penstock does not know ({unknown})"
            )
        try:
            roots = _read_roots(manifest, folder)
            if name := manifest.transaction_file:
                yield f"{folder}/{TRANSACTIONS}{name}"
            for index in manifest.indexes:
                root = _find_root(roots, index.get_number(_BASE_OF_INDEX))[0]
                yield f"{root}/{INDICES}{_get_index_uuid(index)}"
            context = repr(sorted(roots.items(), key=repr)).encode()
            for packed in manifest.body.get_values(2):
                digest = blake2b(
                    packed, key=blake2b(context, digest_size=32).digest(), digest_size=16
                ).digest()
                if digest not in self._seen:
                    yield from _read_files_of_fragment(ProtobufMessage.decode(packed), roots)
                    self._seen.add(digest)
        except MalformedMessage as problem:
            raise UnclearManifest(f"cannot be read: {problem}") from None


def list_fragments_with_files(
    manifest: Manifest, folder: str
) -> Iterator[tuple[ProtobufMessage, frozenset[str]]]:
    """The fragments of a version that lies in the chain at a folder, each with its data files.
    ``UnclearManifest`` if these cannot be told."""
    roots = _read_roots(manifest, folder)
    for fragment in manifest.fragments:
        plain = fragment.replace_field(DELETION_FILE)
        yield fragment, frozenset(_read_files_of_fragment(plain, roots))


_Roots = dict[int | None, tuple[str, bool]]
"""By the numbers of bases: a folder, and whether it is that of a table, and not only one of data files."""


def _read_roots(manifest: Manifest, folder: str) -> _Roots:
    roots: _Roots = {None: (folder, True)}
    for base in manifest.bases:
        try:
            if "://" in folder and "://" not in base.path:
                raise InvalidRequest(
                    f"the base path {base.path!r} is not a URL, as those of tables in buckets are"
                )
            roots[base.id] = normalise_location(base.path), base.is_root
        except (InvalidRequest, LocationRefused, ValueError):
            raise UnclearManifest(
                f"has files at {base.path!r}, which is not a location of this lake"
            ) from None
    return roots


def _find_root(roots: _Roots, base: int | None) -> tuple[str, bool]:
    if base not in roots:
        raise UnclearManifest(f"refers to the base path {base}, which its manifest does not list")
    return roots[base]


def _read_files_of_fragment(fragment: ProtobufMessage, roots: _Roots) -> Iterator[str]:
    if unknown := {field.number for field in fragment} - _FRAGMENT_FIELDS:
        raise UnclearManifest(f"has fragments that Penstock does not understand (fields {sorted(unknown)})")
    for packed in fragment.get_values(FILES):
        file = ProtobufMessage.decode(packed)
        root, is_table = _find_root(roots, file.get_number(_BASE_OF_FILE))
        yield f"{root}/{_DATA if is_table else ''}{file.get_text(_PATH)}"
    if (deletion := fragment.get_message(DELETION_FILE)) is not None:
        root = _find_root(roots, deletion.get_number(_BASE_OF_FILE))[0]
        number = fragment.get_number(FRAGMENT_ID) or 0
        read, deletion_id = deletion.get_number(_READ_VERSION) or 0, deletion.get_number(_DELETION_ID) or 0
        yield f"{root}/{_DELETIONS}{number}-{read}-{deletion_id}"


def _get_index_uuid(index: ProtobufMessage) -> str:
    message = index.get_message(_INDEX_UUID)
    uuids = message.get_values(1) if message is not None else []
    if not uuids or len(uuids[-1]) != 16:
        raise MalformedMessage("an index has no id")
    return str(UUID(bytes=uuids[-1]))


def list_spellings(path: str) -> Iterator[str]:
    """The names by one of which a manifest tells of a file, if it does: the file's own, or that of what it
    belongs to."""
    yield path
    folder, _, name = path.rpartition("/")
    if folder.endswith("/_deletions"):
        yield f"{folder}/{name.rpartition('.')[0]}"
    if f"/{INDICES}" in path:
        before, _, after = path.rpartition(f"/{INDICES}")
        yield f"{before}/{INDICES}{after.partition('/')[0]}"
    if f"/{_DATA}" in path:  # what is beside a data file, in a folder of its name
        before, _, after = path.rpartition(f"/{_DATA}")
        if "/" in after:
            yield f"{before}/{_DATA}{after.partition('/')[0]}.lance"
