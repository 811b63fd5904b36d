"""Tables of files in the words of the command line."""

from __future__ import annotations

from penstock.cli.format_cli import FormatCli
from penstock.cli.rendering.screen import escape_controls
from penstock.cli.rendering.times import format_size
from penstock.formats.files.content import FilesTable
from penstock.formats.files.files import decode_state


class FilesCli(FormatCli):
    """A table of files has no versions: how many files it has stands for one."""

    merges_folders = True

    def describe_fields(self, content: FilesTable) -> list[tuple[str, str]]:
        state = decode_state(content)
        return [
            ("id", str(content.id)),
            ("files", f"{state.files:,}"),
            ("size", format_size(state.size)),
            ("format", escape_controls(state.layout.format)),
            ("partitions", escape_controls(", ".join(state.layout.partition_by))),
            ("tree", state.root.hex()),
        ]

    def describe_change(self, before: FilesTable, after: FilesTable) -> str | None:
        if self.describe_version(before) == self.describe_version(after):
            return "files changed"
        return super().describe_change(before, after)
