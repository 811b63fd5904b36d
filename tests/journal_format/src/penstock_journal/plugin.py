"""What an open lake asks of journals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.errors import Damaged, KeyNotFound, NotManaged
from penstock.formats.plugin import Flaws, FormatPlugin, Rows, WorkerTable
from penstock.kernel.objects import Objects
from penstock.lake.call import Call, commit_meta, request_digest
from penstock.model.commits import Commit
from penstock.model.content import AnyContent
from penstock.model.keys import Key
from penstock_journal.calls import AppendLines, Journal, ReadJournal, SweepJournals
from penstock_journal.lines import CONTENT_TYPE, read_lines, state_of
from penstock_journal.rules import JournalRules, append
from penstock_journal.texts import JournalTexts

if TYPE_CHECKING:
    from penstock.kernel.checks import BranchProposal
    from penstock.kernel.reachable import Progress
    from penstock.lake.table import Table


class JournalPlugin(FormatPlugin):
    name = "journal"
    content_type = CONTENT_TYPE
    calls = (AppendLines, ReadJournal, SweepJournals)
    sweep_call = SweepJournals
    usage = "a journal: its lines are read by to_arrow() and added by append()"

    @cached_property
    def rules(self) -> JournalRules:
        return JournalRules(self._publish)

    @cached_property
    def texts(self) -> JournalTexts:
        return JournalTexts(self.lake)

    def _publish(self, content: AnyContent) -> None:
        self.texts.publish(content)

    # -- calls ---------------------------------------------------------------------------------------------

    @property
    def handlers(self) -> Mapping[type[Call[Any]], Callable[[Any], Any]]:
        return {AppendLines: self._append, ReadJournal: self._read}

    @property
    def long_handlers(self) -> Mapping[type[Call[Any]], Callable[[Any, Progress], Any]]:
        return {SweepJournals: self.texts.sweep}

    def _append(self, call: AppendLines) -> Commit:
        kernel = self.lake.kernel
        outcome = kernel.commit(
            self.lake.get_branch_or_default(call.branch),
            [append(call.key, call.lines, call.read_version)],
            commit_meta(call.said, call.who, f"append to {call.key}"),
            create_namespaces=True,
            key=call.idempotency_key,
            fingerprint=lambda: request_digest(call),
        )
        commit = outcome.commits[-1]
        return Commit.from_stored(commit, outcome.newest or kernel.history.read_commit(commit))

    def _read(self, call: ReadJournal) -> Journal:
        content = self.lake.read_content_at(self.lake.resolve_commit(call.at), call.key)
        if content is None:
            raise KeyNotFound(f"there is no '{call.key}'", key=str(call.key))
        if not self.manages(content):
            raise NotManaged(f"'{call.key}' is a {content.type} and not a journal", table=str(call.key))
        lines = read_lines(self.lake.kernel.objects, content)
        return Journal(version=state_of(content).version, lines=tuple(lines))

    # -- rows ----------------------------------------------------------------------------------------------

    @classmethod
    def rows_of(cls, table: Table) -> Rows:
        return lambda: _rows(table.lake.do(ReadJournal(key=table.key, at=table.ref, via=table.via)).lines)

    def proposed_rows(self, proposal: BranchProposal, key: Key, content: AnyContent) -> Rows:
        return lambda: _rows(read_lines(proposal.objects, content))

    @classmethod
    def rows_in_worker(cls, table: WorkerTable) -> Rows:
        return lambda: _rows(read_lines(table.objects, table.content))

    # -- in the background, and checks ---------------------------------------------------------------------

    def catch_up(self) -> None:
        """Publish what processes left that ended after a commit had landed."""
        for _, content in self.texts.missing():
            self.texts.publish(content)

    def content_check(self, objects: Objects) -> Flaws:
        def flaws(key: str, content: AnyContent) -> Iterator[tuple[str, str]]:
            if self.manages(content):
                try:
                    if state_of(content).version != len(read_lines(objects, content)):
                        yield key, "is a journal whose version is not the number of its lines"
                except (Damaged, UnicodeDecodeError) as problem:
                    yield key, f"is a journal that cannot be read: {problem}"

        return flaws


def _rows(lines: Any) -> Any:
    from penstock.formats.rows.arrow_types import pa

    columns = {"number": pa.array(range(1, len(lines) + 1), pa.int64()), "line": pa.array(lines, pa.string())}
    return pa.table(columns).to_reader()
