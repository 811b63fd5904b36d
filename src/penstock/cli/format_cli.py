"""What the command line asks of a table format: its tables in words, doctor's checks, a demonstration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from penstock.formats.registry import find_declared, list_table_formats, load_other_formats
from penstock.lake.plugins import find_plugin

if TYPE_CHECKING:
    from penstock.cli.commands.demo import DemoStory
    from penstock.lake.lake import Lake
    from penstock.lake.table import Table
    from penstock.model.content import AnyContent, Content


class DoctorFinding(NamedTuple):
    """What a check of the doctor found."""

    state: str
    """``ok``, ``warning`` or ``failed``."""
    finding: str
    advice: str = ""


DoctorCheck: TypeAlias = tuple[str, Callable[["Lake"], DoctorFinding]]
"""What is looked at, and how."""


class FormatCli:
    """A format on the command line. What a format does not have, it leaves as it is here.

    The contents are tables of the format that the lake manages. ``Damaged`` is raised by whatever reads the
    state of one that cannot be read.
    """

    merges_folders: ClassVar[bool] = False
    """Whether a merge can take one side of a folder of a table."""

    def describe_version(self, content: Any) -> str:
        """The version of a table, as ``v118``, or what stands for one; empty if it has none yet."""
        plugin = find_plugin(content)
        return "" if plugin is None else plugin.describe_version(content)

    def describe_fields(self, content: Any) -> list[tuple[str, str]] | None:  # noqa: ARG002
        """What a table is: names of facts and the facts, of which empty ones are left out. ``None`` if the
        fields of its content tell it."""
        return None

    def describe_change(self, before: Any, after: Any) -> str | None:
        """What became of a table that stays where it is; ``None`` if the fields of its content tell it."""
        old, new = self.describe_version(before), self.describe_version(after)
        return f"{old} → {new}" if new else None

    def describe_commit(self, table: Table, before: AnyContent | None, after: Any) -> str | None:  # noqa: ARG002
        """What a commit did to a table, read from the table; ``None`` if the contents tell all of it."""
        return None

    def describe_merge(self, table: Table, before: AnyContent | None, after: Any) -> str:  # noqa: ARG002
        """What a merge that has landed brought to a table, read from the table."""
        return ""

    def doctor_checks(self, lake: Lake) -> Sequence[DoctorCheck]:  # noqa: ARG002
        """What the doctor looks at, if the lake has tables of the format."""
        return ()

    def show_demo(self, story: DemoStory) -> str:  # noqa: ARG002
        """Tell the part of the demonstration that is about the format, and return a command to try then."""
        return ""


@cache
def format_clis() -> tuple[FormatCli, ...]:
    """The part of every format for the command line, all of them loaded."""
    return tuple(
        _load_format_cli(declared.name) for declared in (*list_table_formats(), *load_other_formats().formats)
    )


def find_format_cli(content: Content | None) -> FormatCli | None:
    """The part of the format of a table that the lake manages; ``None`` for whatever else a key may hold."""
    plugin = find_plugin(content)
    return None if plugin is None else _load_format_cli(plugin.name)


@cache
def _load_format_cli(name: str) -> FormatCli:
    declared = find_declared(lambda declared: declared.name == name)
    assert declared is not None, name
    part: FormatCli = declared.load(declared.cli)()
    return part
