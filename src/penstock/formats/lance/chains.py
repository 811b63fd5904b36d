"""Chains: which of a table's versions are at their place by now, and putting the others there.

How far a chain is promoted is remembered. Where nothing is known it is looked up from the newest version
backwards, so that a table of many versions costs no more than one of few.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from threading import Lock
from typing import Final, NamedTuple
from uuid import UUID

from penstock.errors import ForeignCommit, OutcomeUnknown, Unavailable
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.manifest_reader import ManifestReader, is_manifest_of
from penstock.formats.lance.names import MAIN, MANIFEST, STAGING, make_manifest_path, make_staged_path
from penstock.formats.lance.promotion_tasks import PromoteTask
from penstock.formats.lance.registration import list_versions_at
from penstock.formats.lance.state import LanceTableVersion, LanceVersionReader, decode_state
from penstock.formats.lance.version_pins import find_version_to_pin, write_pin
from penstock.formats.sync import SyncState
from penstock.kernel.objects import Objects
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.storage.places import Place, Places

KNOWN_MAX: Final = 10_000
"""Of how many chains is remembered how far they are promoted."""
_NO_KEY: Final = Key("table")
"""For a look at a table whose key its caller does not give."""
AT_PLACE_MAX: Final = 64
"""Behind so many versions in a row that their writers put at their place themselves, there are no others: the
table was there before the lake knew it."""


class WaitingVersion(NamedTuple):
    """A version that is not promoted."""

    branch: str
    """Of Lance's own."""
    number: int
    version: LanceTableVersion


class ChainState(NamedTuple):
    """What was found of a chain."""

    missing: list[WaitingVersion]
    """Versions to be promoted, oldest first."""
    there: list[WaitingVersion]
    """The newest version that is at its place, if it had to be looked up."""


class ManifestChains:
    """Looks into chains, and puts manifests there. Of one chain, one thread at a time may."""

    def __init__(self, places: Places, manifests: ManifestReader, objects: Objects) -> None:
        self._places, self._manifests, self._objects = places, manifests, objects
        self._known: OrderedDict[tuple[UUID, str, str], tuple[int, ObjectId]] = OrderedDict()
        self._pinned: OrderedDict[tuple[str, str, bytes], None] = OrderedDict()
        """Versions that are pinned, by location, Lance's own branch and id."""
        self._lock = Lock()

    def list_branches(self, task: PromoteTask) -> tuple[str, ...]:
        """Lance's own branches of a table, its main one first."""
        return MAIN, *self._read_versions(task).list_branches()

    def _read_versions(self, task: PromoteTask) -> LanceVersionReader:
        return LanceVersionReader(self._objects, task.state)

    def list_unpromoted_versions(self, task: PromoteTask) -> list[WaitingVersion]:
        """Versions that are not known to be promoted: the newest one, if nothing is known."""
        waiting_versions: list[WaitingVersion] = []
        for branch in self.list_branches(task):
            known_promoted = self._get_last_known_promoted(task, branch)
            for own_version in self.own_versions(task, branch):
                if own_version.number <= known_promoted:
                    break
                waiting_versions.append(own_version)
                if known_promoted < 0:
                    break
        return waiting_versions

    def own_versions(self, task: PromoteTask, branch: str) -> Iterator[WaitingVersion]:
        """The versions of the content's own chain that the lake has ratified, newest first."""
        at_place = 0
        for number, version in self._read_versions(task).list_versions(branch):
            if version.chain != task.state.chain or at_place > AT_PLACE_MAX:
                return
            at_place = 0 if version.staged else at_place + 1
            if version.staged:
                yield WaitingVersion(branch, number, version)

    def read_chain_state(self, task: PromoteTask, branch: str) -> ChainState:
        """What one of Lance's own branches has of the chain. Raises as storage does.

        What is not known is looked up, from the newest backwards: they come in their order, so that all is
        there before one that is there.
        """
        known_promoted = self._get_last_known_promoted(task, branch)
        waiting_versions: list[WaitingVersion] = []
        promoted_versions: list[WaitingVersion] = []
        place = self._places.open_place(task.content.location)
        for own_version in self.own_versions(task, branch):
            if own_version.number <= known_promoted:
                break
            if known_promoted < 0:
                (data,) = place.read([own_version.version.promoted_path(branch, own_version.number)])
                if data is not None and is_manifest_of(own_version.version, data):
                    self._remember_newest(task, own_version)
                    promoted_versions.append(own_version)
                    break
            waiting_versions.append(own_version)
        return ChainState(waiting_versions[::-1], promoted_versions)

    def compare_with_folder(self, location: str, content: LanceTable | None) -> SyncState:
        """What a table's own folder has that the lake has not: two files are asked for at once, and those
        before them if the newest version is not at its place.

        ``content`` is the table as the default branch has it; ``None`` if it does not. Lance's main branch is
        looked at.
        """
        newest, task = None, None
        if content is not None:
            state = decode_state(content)
            if state.is_private:
                return SyncState(state.newest)
            task = PromoteTask(_NO_KEY, content, state)
            newest = self._read_versions(task).find_newest(MAIN)
        newest_known = 0 if newest is None else newest[0]
        is_v1 = newest is not None and newest[1].is_v1 and not newest[1].chain
        names = [make_manifest_path("", MAIN, newest_known + 1, is_v1=is_v1)]
        waiting = None if newest is None else WaitingVersion(MAIN, *newest)
        if content is None or waiting is None or waiting.version.chain or not waiting.version.staged:
            waiting = None
        elif not self.is_promoted(content, waiting):
            names.append(waiting.version.promoted_path(MAIN, newest_known))
        place = self._places.open_place(location)
        ahead, *manifests = place.read(names)
        other = -1
        if task is not None and waiting is not None and manifests:
            if manifests[0] is not None and is_manifest_of(waiting.version, manifests[0]):
                self._remember_newest(task, waiting)
            else:  # the newest may wait behind one whose place is taken
                other = self._find_foreign_version(task, place)
        beyond = -1 if ahead is None else max(list_versions_at(place, MAIN), default=newest_known + 1)
        return SyncState(newest_known, beyond, other)

    def _find_foreign_version(self, task: PromoteTask, place: Place) -> int:
        """The first of the newest versions whose place another manifest has taken."""
        first, promoted = -1, self._get_last_known_promoted(task, MAIN)
        for own_version in self.own_versions(task, MAIN):
            if own_version.number <= promoted:
                break
            (data,) = place.read([own_version.version.promoted_path(MAIN, own_version.number)])
            if data is None:
                continue
            if is_manifest_of(own_version.version, data):
                break
            first = own_version.number
        return first

    def _get_last_known_promoted(self, task: PromoteTask, branch: str) -> int:
        """The version up to which a chain is known to be promoted; -1 if unknown.

        One of Lance's own branches may have gone and come again, with other versions of the same numbers.
        """
        with self._lock:
            number, data = self._known.get((task.table, task.state.chain, branch), (-1, b""))
        if number < 0:
            return -1
        version = self._read_versions(task).get_version(branch, number)
        newest = next(self.own_versions(task, branch), None)
        if version is None:  # an older state of the table, or the version was deleted since
            return number if newest is None or newest.number < number else -1
        return number if version.make_id(number) == data else -1

    def _remember_newest(self, task: PromoteTask, waiting: WaitingVersion) -> None:
        with self._lock:
            identities = task.table, task.state.chain, waiting.branch
            self._known[identities] = waiting.number, waiting.version.make_id(waiting.number)
            self._known.move_to_end(identities)
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)

    def is_promoted(self, content: LanceTable, waiting: WaitingVersion) -> bool:
        """Whether a version is known to be the newest one that is at its place."""
        assert content.id is not None
        with self._lock:
            promoted = self._known.get((content.id, waiting.version.chain, waiting.branch))
        return promoted is not None and promoted == (waiting.number, waiting.version.make_id(waiting.number))

    def put_manifest(self, task: PromoteTask, waiting: WaitingVersion) -> bool:
        """Put a manifest at its place, if nothing is there; whether this very call did.

        ``ForeignCommit`` if something else is there, ``Unavailable`` if it is not known what is.
        """
        location = task.content.location
        place, name = (
            self._places.open_place(location),
            waiting.version.promoted_path(waiting.branch, waiting.number),
        )
        data = self._manifests.read_bytes(location, waiting.branch, waiting.number, waiting.version)
        self.pin_before(task.content, self._read_versions(task), waiting)
        is_new = False
        with suppress(OutcomeUnknown):  # what is there tells
            is_new = place.create(name, data)
        if not is_new:
            (existing,) = place.read([name])
            if existing is None:
                raise Unavailable(f"it is not known whether {name} of {location} was written; try again")
            if existing != data:
                raise _foreign_commit_error(task, waiting, name)
        self._remember_newest(task, waiting)
        return is_new

    def pin_before(self, content: LanceTable, versions: LanceVersionReader, waiting: WaitingVersion) -> None:
        """Keep the version before another one from being cleaned up, before somebody sees that one."""
        place = self._places.open_place(content.location)
        if (
            found_predecessor := find_version_to_pin(place, versions, waiting.branch, waiting.number)
        ) is None:
            return
        branch, before = found_predecessor
        key = content.location, branch, before.id
        with self._lock:
            if key in self._pinned:
                return
        write_pin(place, before, branch, waiting.version.time_us)
        with self._lock:
            self._pinned[key] = None
            if len(self._pinned) > KNOWN_MAX:
                self._pinned.popitem(last=False)

    def make_private_path(self, content: LanceTable, waiting: WaitingVersion, transaction: str = "") -> str:
        """Where a version is for who reads it though it cannot be promoted, below the table's folder.

        A client of Lance's that is sent to what a writer staged puts that at its place itself, over whatever
        is there, unless its name ends as that of a manifest which needs nothing more. So it has such a name;
        and not the one that the lake itself has staged it under, which goes as soon as it is promoted. What a
        transaction has staged stays as long as that is open, for readers in the ``transaction``.
        """
        version = waiting.version
        is_own = bool(transaction) and f"{STAGING}{transaction}" in version.staged
        if version.staged.endswith(MANIFEST) and (is_own or decode_state(content).is_private):
            return version.staged
        if (linked := self.link_privately(content, waiting)) is not None:
            return linked
        place = self._places.open_place(content.location)
        attempt = f"apart-{version.sha256.hex()[:16]}"
        name = make_staged_path(version.chain, waiting.branch, attempt, waiting.number)
        if place.size(name) is not None:
            return name
        data = self._manifests.read_bytes(content.location, waiting.branch, waiting.number, version)
        try:
            place.create(name, data)
        except OutcomeUnknown:
            if place.size(name) is None:
                raise
        return name

    def link_privately(self, content: LanceTable, waiting: WaitingVersion) -> str | None:
        """Link the staged manifest of an unpromoted version to a name apart. Returns the name, or ``None`` if
        that is not possible.

        Not in a bucket, nor for what the lake itself has staged, nor when it is gone: it was promoted then.
        """
        version = waiting.version
        if version.staged.endswith(MANIFEST):
            return None
        name = make_staged_path(version.chain, waiting.branch, "apart", waiting.number)
        return name if self._places.open_place(content.location).link(version.staged, name) else None


def _foreign_commit_error(task: PromoteTask, waiting: WaitingVersion, name: str) -> ForeignCommit:
    """The alarm: somebody who does not ask the lake writes to one of its tables."""
    return ForeignCommit(
        f"{task.content.location}/{name} is not the manifest that was ratified as version {waiting.number} "
        "of the table: another program writes to the table directly, or the lake was restored from an "
        "older copy.\n  Leave the file where it is: its rows may exist nowhere else. 'penstock resync' "
        "imports the versions of the folder, and reports what happens to versions that only the lake has. "
        "Nothing is overwritten.",
        location=task.content.location,
        id=str(task.content.id),
        version=waiting.number,
        name=name,
    )
