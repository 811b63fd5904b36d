"""Journals in the words of the command line, and what the doctor looks at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.cli.format_cli import DoctorCheck, DoctorFinding, FormatCli
from penstock.lake.embedded import Embedded
from penstock.model.content import AnyContent
from penstock_journal.lines import CONTENT_TYPE, state_of
from penstock_journal.plugin import JournalPlugin

if TYPE_CHECKING:
    from penstock.lake.lake import Lake


class JournalCli(FormatCli):
    def describe_version(self, content: AnyContent) -> str:
        return f"v{state_of(content).version}"

    def describe_fields(self, content: AnyContent) -> list[tuple[str, str]]:
        return [("id", str(content.id)), ("lines", str(len(content.objects)))]

    def doctor_checks(self, lake: Lake) -> Sequence[DoctorCheck]:
        has_journals = any(content.type == CONTENT_TYPE for _, content in lake.at().entries())
        return [("journals", _check_texts)] if has_journals and lake.is_embedded else []


def _check_texts(lake: Lake) -> DoctorFinding:
    assert isinstance(lake.catalogue, Embedded)
    plugin = next(one for one in lake.catalogue.plugins if isinstance(one, JournalPlugin))
    missing = [key for key, _ in plugin.texts.missing()]
    if missing:
        return DoctorFinding(
            "warning", f"not published: {', '.join(missing)}", "open the lake to publish them"
        )
    return DoctorFinding("ok", "the newest version of every journal is published")
