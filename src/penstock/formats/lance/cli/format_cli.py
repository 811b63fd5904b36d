"""Lance tables in the words of the command line, and what the doctor looks at."""

from __future__ import annotations

from penstock.cli.format_cli import DoctorCheck, DoctorFinding, FormatCli
from penstock.cli.rendering.screen import escape_controls
from penstock.cli.rendering.times import format_count
from penstock.errors import PenstockError
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.lake.readability import LanceReadability
from penstock.formats.lance.lake.retained_tables import list_tables_at
from penstock.formats.lance.state import decode_state
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from penstock.model.encoding import NO_COMMIT
from penstock.model.references import Kind


class LanceCli(FormatCli):
    """A Lance table is told by its newest version."""

    def describe_fields(self, content: LanceTable) -> list[tuple[str, str]]:
        state = decode_state(content)
        return [
            ("id", str(content.id)),
            ("location", escape_controls(content.location)),
            ("version", str(state.newest or "")),
            ("line", escape_controls(state.chain)),
            ("private", "yes" if state.is_private else ""),
            *(
                (escape_controls(name), escape_controls(text))
                for name, text in sorted(state.properties.items())
            ),
        ]

    def describe_change(self, before: LanceTable, after: LanceTable) -> str:
        old = self.describe_version(before) or "declared"
        new = self.describe_version(after) or "declared"
        if old != new:
            return f"{old} → {new}"
        if decode_state(before).chain != decode_state(after).chain:
            return f"{old} → {new} on another branch history; rows may differ"
        return "branches, tags, properties or older versions changed"

    def doctor_checks(self, lake: Lake) -> list[DoctorCheck]:
        return [("Lance tables", check_manifests)] if lake.is_embedded and has_tables(lake) else []


def has_tables(lake: Lake) -> bool:
    """Whether there is a Lance table to look at, at any reference."""
    heads = {
        reference.head
        for kind in (Kind.BRANCH, Kind.TAG)
        for reference in lake.kernel.references.list_all_references(kind)
    }
    try:
        return any(True for head in heads - {NO_COMMIT} for _ in list_tables_at(lake.kernel, head))
    except PenstockError:
        return False  # what is damaged is told by 'penstock fsck'


def check_manifests(lake: Lake) -> DoctorFinding:
    """Whether Lance tables can be read at every reference, as far as their manifests tell."""
    assert isinstance(lake.catalogue, Embedded)
    readability = LanceReadability(lake.kernel, lake.catalogue.places, with_files=False)
    gone = list(readability.find_unreadable_tables())
    if gone:
        more = f" (and {len(gone) - 1} more)" if len(gone) > 1 else ""
        return DoctorFinding(
            "failed", f"at {gone[0].reference_text} {gone[0]}{more}", "'penstock fsck' lists all of them"
        )
    count = format_count(len(readability.tables), "table")
    return DoctorFinding("ok", f"{count}, with the manifests of all versions that branches and tags are at")
