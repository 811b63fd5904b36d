"""Published journals: the newest version of each as a text file, for programs that know no lake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.errors import InvalidRequest, PenstockError
from penstock.kernel.reachable import Progress
from penstock.lake.answers import SweptFiles
from penstock.lake.calls import ListEntries
from penstock.lake.embedded import Embedded
from penstock.model.content import AnyContent
from penstock.storage.buckets import BucketEntry
from penstock.storage.places import Place
from penstock_journal.calls import SweepJournals
from penstock_journal.lines import CONTENT_TYPE, read_lines, state_of

FOLDER: Final = "journals"


class JournalTexts:
    """The texts of a lake's journals. Each version has a file of its own, which is written once."""

    def __init__(self, lake: Embedded) -> None:
        self._lake = lake

    @property
    def place(self) -> Place:
        if not self._lake.warehouse:
            raise InvalidRequest("the lake has no warehouse, where texts of journals are published")
        return self._lake.places.open_place(f"{self._lake.warehouse}/{FOLDER}")

    def publish(self, content: AnyContent) -> None:
        """Write the text of a version. It does no harm to do it again."""
        if self._lake.warehouse:
            lines = read_lines(self._lake.kernel.objects, content)
            self.place.create(name_text(content), "".join(f"{line}\n" for line in lines).encode())

    def newest(self) -> Iterator[tuple[str, AnyContent]]:
        """Every journal of the default branch, as it is."""
        for entry in self._lake.do(ListEntries(limit=None)):
            if entry.content.type == CONTENT_TYPE:
                yield str(entry.key), entry.content

    def missing(self) -> Iterator[tuple[str, AnyContent]]:
        """Journals whose newest version is not published."""
        for key, content in self.newest():
            if self.place.size(name_text(content)) is None:
                yield key, content

    def sweep(self, call: SweepJournals, progress: Progress) -> SweptFiles:
        if not self._lake.warehouse:
            return SweptFiles()
        needed = {name_text(content) for _, content in self.newest()}
        before_us = self._lake.kernel.clock() - self._lake.kernel.graces.find_past_grace().data_us
        kept = waiting = 0
        old: list[BucketEntry] = []
        try:
            for number, entry in enumerate(self.place.entries()):
                progress("texts of journals", number)
                if entry.key in needed:
                    kept += 1
                elif entry.modified_us > before_us:
                    waiting += 1
                else:
                    old.append(entry)
            is_removed = call.remove_data and not call.dry_run
            if is_removed:
                self.place.delete([entry.key for entry in old])
        except PenstockError as problem:
            return SweptFiles(problem=problem.message)
        return SweptFiles(
            data_files=len(old),
            data_bytes=sum(entry.size for entry in old),
            waiting=waiting,
            kept=kept,
            names=tuple(entry.key for entry in old[:100]),
            data_removed=is_removed,
        )


def name_text(content: AnyContent) -> str:
    return f"{content.id}/{state_of(content).version:010}.txt"
