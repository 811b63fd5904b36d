"""Tables of files, for an open lake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.formats.files.checking import FilesCheck
from penstock.formats.files.format import FilesFormat
from penstock.formats.files.intents import NAME
from penstock.formats.plugin import Flaws, FormatPlugin
from penstock.kernel.format import Format
from penstock.kernel.objects import Objects
from penstock.lake.call import Call
from penstock.lake.files.calls import CALLS
from penstock.lake.files.pool import pool_of
from penstock.model.content import FilesTable

if TYPE_CHECKING:
    from penstock.lake.files.embedded import FilesAnswers


class FilesPlugin(FormatPlugin):
    """Nothing is left to be done once a commit has landed: readers ask the lake for files."""

    name = NAME
    content_type = FilesTable
    calls = CALLS

    @cached_property
    def rules(self) -> Format:
        return FilesFormat(lambda: self.lake.places.at(pool_of(self.lake.warehouse)))

    @cached_property
    def answers(self) -> FilesAnswers:
        from penstock.lake.files.embedded import FilesAnswers

        return FilesAnswers(self.lake, lambda: self.lake.places)

    @property
    def handlers(self) -> Mapping[type[Call[Any]], Callable[[Any], Any]]:
        return self.answers.ways

    def content_check(self, objects: Objects) -> Flaws:
        return FilesCheck(objects).flaws
