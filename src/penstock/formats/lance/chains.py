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
from penstock.formats.lance.names import MAIN, MANIFEST, STAGING, manifest_name, staged_name
from penstock.formats.lance.pinning import pin, predecessor
from penstock.formats.lance.reading import Manifests, is_of
from penstock.formats.lance.registering import versions_at
from penstock.formats.lance.state import Version, Versions, state_of
from penstock.formats.lance.tasks import PromoteTask
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


class Waiting(NamedTuple):
    """A version that is not promoted."""

    branch: str
    """Of Lance's own."""
    number: int
    version: Version


class Look(NamedTuple):
    """What was found of a chain."""

    missing: list[Waiting]
    """Versions to be promoted, oldest first."""
    there: list[Waiting]
    """The newest version that is at its place, if it had to be looked up."""


class Chains:
    """Looks into chains, and puts manifests there. Of one chain, one thread at a time may."""

    def __init__(self, places: Places, manifests: Manifests, objects: Objects) -> None:
        self._places, self._manifests, self._objects = places, manifests, objects
        self._known: OrderedDict[tuple[UUID, str, str], tuple[int, ObjectId]] = OrderedDict()
        self._pinned: OrderedDict[tuple[str, str, bytes], None] = OrderedDict()
        """Versions that are pinned, by location, Lance's own branch and id."""
        self._lock = Lock()

    def branches(self, task: PromoteTask) -> tuple[str, ...]:
        """Lance's own branches of a table, its main one first."""
        return MAIN, *self._versions(task).branches()

    def _versions(self, task: PromoteTask) -> Versions:
        return Versions(self._objects, task.state)

    def waiting(self, task: PromoteTask) -> list[Waiting]:
        """Versions that are not known to be promoted: the newest one, if nothing is known."""
        found: list[Waiting] = []
        for branch in self.branches(task):
            known = self._promoted(task, branch)
            for one in self.own(task, branch):
                if one.number <= known:
                    break
                found.append(one)
                if known < 0:
                    break
        return found

    def own(self, task: PromoteTask, branch: str) -> Iterator[Waiting]:
        """The versions of the content's own chain that the lake has ratified, newest first."""
        at_place = 0
        for number, version in self._versions(task).all(branch):
            if version.chain != task.state.chain or at_place > AT_PLACE_MAX:
                return
            at_place = 0 if version.staged else at_place + 1
            if version.staged:
                yield Waiting(branch, number, version)

    def look(self, task: PromoteTask, branch: str) -> Look:
        """What one of Lance's own branches has of the chain. Raises as storage does.

        What is not known is looked up, from the newest backwards: they come in their order, so that all is
        there before one that is there.
        """
        known = self._promoted(task, branch)
        found: list[Waiting] = []
        there: list[Waiting] = []
        place = self._places.at(task.content.location)
        for one in self.own(task, branch):
            if one.number <= known:
                break
            if known < 0:
                (data,) = place.read([one.version.place(branch, one.number)])
                if data is not None and is_of(one.version, data):
                    self._note(task, one)
                    there.append(one)
                    break
            found.append(one)
        return Look(found[::-1], there)

    def compare(self, location: str, content: LanceTable | None) -> SyncState:
        """What a table's own folder has that the lake has not: two files are asked for at once, and those
        before them if the newest version is not at its place.

        ``content`` is the table as the default branch has it; ``None`` if it does not. Lance's main branch is
        looked at.
        """
        newest, task = None, None
        if content is not None:
            state = state_of(content)
            if state.is_private:
                return SyncState(state.newest)
            task = PromoteTask(_NO_KEY, content, state)
            newest = self._versions(task).newest(MAIN)
        known = 0 if newest is None else newest[0]
        is_v1 = newest is not None and newest[1].is_v1 and not newest[1].chain
        names = [manifest_name("", MAIN, known + 1, is_v1=is_v1)]
        one = None if newest is None else Waiting(MAIN, *newest)
        if content is None or one is None or one.version.chain or not one.version.staged:
            one = None
        elif not self.is_promoted(content, one):
            names.append(one.version.place(MAIN, known))
        place = self._places.at(location)
        ahead, *there = place.read(names)
        other = -1
        if task is not None and one is not None and there:
            if there[0] is not None and is_of(one.version, there[0]):
                self._note(task, one)
            else:  # the newest may wait behind one whose place is taken
                other = self._first_other(task, place)
        beyond = -1 if ahead is None else max(versions_at(place, MAIN), default=known + 1)
        return SyncState(known, beyond, other)

    def _first_other(self, task: PromoteTask, place: Place) -> int:
        """The first of the newest versions whose place another manifest has taken."""
        first, known = -1, self._promoted(task, MAIN)
        for one in self.own(task, MAIN):
            if one.number <= known:
                break
            (data,) = place.read([one.version.place(MAIN, one.number)])
            if data is None:
                continue
            if is_of(one.version, data):
                break
            first = one.number
        return first

    def _promoted(self, task: PromoteTask, branch: str) -> int:
        """Up to which version a chain is surely promoted; -1 if that is not known.

        One of Lance's own branches may have gone and come again, with other versions of the same numbers.
        """
        with self._lock:
            number, known = self._known.get((task.table, task.state.chain, branch), (-1, b""))
        if number < 0:
            return -1
        there = self._versions(task).get(branch, number)
        newest = next(self.own(task, branch), None)
        if there is None:  # an older state of the table, or the version was deleted since
            return number if newest is None or newest.number < number else -1
        return number if there.id(number) == known else -1

    def _note(self, task: PromoteTask, one: Waiting) -> None:
        with self._lock:
            known = task.table, task.state.chain, one.branch
            self._known[known] = one.number, one.version.id(one.number)
            self._known.move_to_end(known)
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)

    def is_promoted(self, content: LanceTable, one: Waiting) -> bool:
        """Whether a version is known to be the newest one that is at its place."""
        assert content.id is not None
        with self._lock:
            known = self._known.get((content.id, one.version.chain, one.branch))
        return known is not None and known == (one.number, one.version.id(one.number))

    def put(self, task: PromoteTask, one: Waiting) -> bool:
        """Put a manifest at its place, if nothing is there; whether this very call did.

        ``ForeignCommit`` if something else is there, ``Unavailable`` if it is not known what is.
        """
        location = task.content.location
        place, name = self._places.at(location), one.version.place(one.branch, one.number)
        data = self._manifests.read(location, one.branch, one.number, one.version)
        self.pin_before(task.content, self._versions(task), one)
        is_new = False
        with suppress(OutcomeUnknown):  # what is there tells
            is_new = place.create(name, data)
        if not is_new:
            (there,) = place.read([name])
            if there is None:
                raise Unavailable(f"it is not known whether {name} of {location} was written; try again")
            if there != data:
                raise _foreign(task, one, name)
        self._note(task, one)
        return is_new

    def pin_before(self, content: LanceTable, versions: Versions, one: Waiting) -> None:
        """Keep the version before another one from being cleaned up, before somebody sees that one."""
        place = self._places.at(content.location)
        if (found := predecessor(place, versions, one.branch, one.number)) is None:
            return
        branch, before = found
        key = content.location, branch, before.id
        with self._lock:
            if key in self._pinned:
                return
        pin(place, before, branch, one.version.time_us)
        with self._lock:
            self._pinned[key] = None
            if len(self._pinned) > KNOWN_MAX:
                self._pinned.popitem(last=False)

    def apart(self, content: LanceTable, one: Waiting, transaction: str = "") -> str:
        """Where a version is for who reads it though it cannot be promoted, below the table's folder.

        A client of Lance's that is sent to what a writer staged puts that at its place itself, over whatever
        is there, unless its name ends as that of a manifest which needs nothing more. So it has such a name;
        and not the one that the lake itself has staged it under, which goes as soon as it is promoted. What a
        transaction has staged stays as long as that is open, for readers in the ``transaction``.
        """
        version = one.version
        is_own = bool(transaction) and f"{STAGING}{transaction}" in version.staged
        if version.staged.endswith(MANIFEST) and (is_own or state_of(content).is_private):
            return version.staged
        if (linked := self.linked(content, one)) is not None:
            return linked
        place = self._places.at(content.location)
        attempt = f"apart-{version.sha256.hex()[:16]}"
        name = staged_name(version.chain, one.branch, attempt, one.number)
        if place.size(name) is not None:
            return name
        data = self._manifests.read(content.location, one.branch, one.number, version)
        try:
            place.create(name, data)
        except OutcomeUnknown:
            if place.size(name) is None:
                raise
        return name

    def linked(self, content: LanceTable, one: Waiting) -> str | None:
        """The name of a version that is apart, if what its writer staged could be given it, too.

        Not in a bucket, nor for what the lake itself has staged, nor when it is gone: it was promoted then.
        """
        version = one.version
        if version.staged.endswith(MANIFEST):
            return None
        name = staged_name(version.chain, one.branch, "apart", one.number)
        return name if self._places.at(content.location).link(version.staged, name) else None


def _foreign(task: PromoteTask, one: Waiting, name: str) -> ForeignCommit:
    """The alarm: somebody who does not ask the lake writes to one of its tables."""
    return ForeignCommit(
        f"{task.content.location}/{name} is not the manifest that was ratified as version {one.number} of "
        "the table: something writes to it without asking the lake, or the lake was restored from an older "
        "copy.\n"
        "  Leave the file where it is: its rows may be nowhere else. 'penstock resync' takes the folder's "
        "versions over, and says what becomes of those that only the lake has. Nothing is overwritten.",
        location=task.content.location,
        id=str(task.content.id),
        version=one.number,
        name=name,
    )
