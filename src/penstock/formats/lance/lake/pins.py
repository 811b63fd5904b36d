"""Pins: the tags by which Lance's own clean-up knows what the lake needs, as a sweep leaves them.

A version is pinned before its successor is seen (``formats.lance.version_pins``). The sweep removes a pin
when no kept commit is at its version, and pins what earlier versions of Penstock have not pinned.

A table's history may be long, so that only its newest versions stay pinned one by one, with the oldest one,
and with all that a branch, a tag or a transaction is at. One tag at an old version is enough for Lance's
clean-up to stop, unless it is told to go on all the same. Then what no reference is at may go, and nothing
else: a pin stays, too, by which alone files stay that another chain reads here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from penstock.formats.lance.lake.leftovers import parse_manifest_path
from penstock.formats.lance.lake.manifest_files import UnclearManifest
from penstock.formats.lance.lake.retained_tables import RetainedTable, RetainedTables
from penstock.formats.lance.merge_sides import NumberedVersion
from penstock.formats.lance.names import PINS, REFS_OF_TAGS, VERSIONS, make_branch_folder
from penstock.formats.lance.state import LanceTableVersion
from penstock.formats.lance.version_pins import is_pin, parse_pin, write_pin
from penstock.model.decoders import get_json_decoder
from penstock.storage.buckets import BucketEntry
from penstock.storage.places import Place

PINNED_MAX: Final = 1000
"""So many versions of a chain's history are pinned one by one, the newest ones."""
_SUFFIX: Final = ".json"


class _Pin(NamedTuple):
    """A pin, and the version that it is for."""

    entry: BucketEntry
    branch: str
    number: int


class TablePins:
    """The pins of a table."""

    def __init__(self, retained_tables: RetainedTables, table: RetainedTable, place: Place) -> None:
        self._kept, self._table, self._place = retained_tables, table, place

    def update_pins(self, after_us: int, before_us: int) -> None:
        """Remove pins that were made between two times and are not needed, and make those that are missing.

        The younger ones may be for versions that are about to be committed, the older ones for a fork's.
        """
        for chain in sorted(self._table.lines | {chain for chain, _ in self._table.numbers}):
            pins = list(self._list_pins(chain))
            own = {branch for where, branch in self._table.history if where == chain}
            for branch in sorted(own | {held_pin.branch for held_pin in pins}):
                entries = {held_pin.number: held_pin.entry for held_pin in pins if held_pin.branch == branch}
                old = {at for at, entry in entries.items() if after_us < entry.modified_us < before_us}
                self._remove_pins(chain, branch, entries, old)
                self._add_pins(chain, branch, entries)

    def _list_pins(self, chain: str) -> Iterator[_Pin]:
        folder = f"{chain}{REFS_OF_TAGS}"
        entries = [entry for entry in self._place.list(folder) if entry.key.startswith(f"{folder}{PINS}")]
        for entry, data in zip(entries, self._place.read([entry.key for entry in entries]), strict=True):
            try:
                tag_fields = get_json_decoder(dict[str, Any]).decode(data or b"")
            except msgspec.MsgspecError:
                continue  # nobody knows whose it is
            version = parse_pin(tag_fields)
            if version is not None and is_pin(
                entry.key.removeprefix(folder).removesuffix(_SUFFIX), tag_fields
            ):
                yield _Pin(entry, *version)

    def _remove_pins(self, chain: str, branch: str, pins: Mapping[int, BucketEntry], old: set[int]) -> None:
        """Remove those that are not needed; what was committed meanwhile is looked at before."""
        if not old - self._versions_to_pin(chain, branch).keys():
            return
        self._kept.read_new_commits()
        needed = {*self._versions_to_pin(chain, branch)}
        needed |= self._versions_with_shared_files(chain, branch, needed, sorted(old - needed, reverse=True))
        self._place.delete([pins[number].key for number in sorted(old - needed)])

    def _versions_to_pin(self, chain: str, branch: str) -> dict[int, LanceTableVersion]:
        """The versions of one of Lance's own branches that must be pinned."""
        history = self._table.history.get((chain, branch), {})
        numbers = sorted(history)
        chosen = {*numbers[-PINNED_MAX:], *numbers[:1]}
        return {number: history[number] for number in chosen} | self._table.heads.get((chain, branch), {})

    def _versions_with_shared_files(
        self, chain: str, branch: str, pinned: set[int], others: Sequence[int]
    ) -> set[int]:
        """Which of other versions have files that another chain reads, and that those which are pinned, and
        the newest one, have not."""
        folder = make_branch_folder(chain, branch)
        names = {number: key for key, number in self._list_manifests(folder)}
        stays = [*(number for number in names if number in pinned or number == max(names))]
        judged = [number for number in others if number in names]  # a tag at what is gone keeps nothing
        manifests = [
            *zip(keys := [*stays, *judged], self._place.read([names[key] for key in keys]), strict=True)
        ]
        where = f"{self._table.location}/{folder}".rstrip("/")
        try:
            lent = self._kept.files_of_other_chains(
                where, [data or b"" for _, data in manifests if data is not None]
            )
        except UnclearManifest:
            return {*judged}
        had, needed = set[bytes](), set[int]()
        for (number, _), files in zip(
            (manifest for manifest in manifests if manifest[1] is not None), lent, strict=True
        ):
            if number not in stays and files - had:
                needed.add(number)
            if number in stays or number in needed:
                had |= files
        return needed

    def _add_pins(self, chain: str, branch: str, pins: Iterable[int]) -> None:
        """Pin what is needed and is not the newest one."""
        needed = self._versions_to_pin(chain, branch)
        missing = needed.keys() - {*pins}
        existing = (
            {number for _, number in self._list_manifests(make_branch_folder(chain, branch))}
            if missing
            else set[int]()
        )
        for number in sorted(missing & (existing - {max(existing, default=0)})):
            write_pin(self._place, NumberedVersion(number, needed[number]), branch, needed[number].time_us)

    def _list_manifests(self, folder: str) -> Iterator[tuple[str, int]]:
        """The manifests in a chain's folder, and their numbers."""
        for entry in self._place.list(f"{folder}{VERSIONS}"):
            if (manifest := parse_manifest_path(entry.key)) is not None:
                yield entry.key, manifest.number
