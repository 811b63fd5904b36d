"""The care of a lake: how long history is kept, where tables may be, sweeps, erases, checks and tokens."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from penstock.kernel.description import HistoryRule
from penstock.kernel.fsck import CheckResult
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.kernel.sweep import SweepResult
from penstock.lake import calls
from penstock.lake.answers import About, ErasedTable, SweptFiles, SweptTable, join_swept
from penstock.lake.call_maker import CallMaker
from penstock.lake.notebook_progress import show_progress
from penstock.lake.plugins import list_sweep_calls
from penstock.lake.resync_calls import Resync, ResyncResult
from penstock.lake.tokens import make_token
from penstock.model.clock import now_us
from penstock.model.keys import Key
from penstock.model.names import parse_moment
from penstock.model.tokens import Token


class LakeMaintenance(CallMaker):
    """The part of a lake that administrators use."""

    @property
    def history_rules(self) -> tuple[HistoryRule, ...]:
        """How much history is kept, by patterns of names. Of several that match, the last one holds."""
        return self.about.history_rules

    def keep_history(
        self, pattern: str = "*", *, max_commits: int | None = None, max_days: float | None = None
    ) -> None:
        """Set how many commits, and commits of which age, are retained for references whose names match a
        pattern.

        Without limits, all history is retained again. Heads and tags always stay. Sweeps may remove older
        commits after one grace period; reading them then raises ``HistoryExpired``.
        """
        self.do(calls.KeepHistory(pattern=pattern, max_commits=max_commits, max_days=max_days))

    def set_grace(self, *, grace_s: float | None = None, data_grace_days: float | None = None) -> About:
        """Set the grace period: how long sweeps keep unreferenced objects, and data files of tables.

        Writers rely on it: a job that takes longer than half of it is refused. A value that is not given does
        not change; ``lake.about`` has the present ones. A shorter period takes effect for sweeps after the
        longer one has passed. ``InvalidRequest`` for less than an hour, or less than 4 days for data files.
        """
        return self.do(calls.SetGrace(grace_s=grace_s, data_grace_days=data_grace_days))

    def add_root(self, *locations: str) -> tuple[str, ...]:
        """Add roots: locations where tables may be; returns all roots."""
        return self.do(calls.ChangeRoots(add=locations)).roots

    def remove_root(self, *locations: str) -> tuple[str, ...]:
        """Remove roots: no further tables may be created there; returns the remaining roots."""
        return self.do(calls.ChangeRoots(remove=locations)).roots

    @show_progress
    def sweep(self, *, dry_run: bool = False, progress: Progress = show_no_progress) -> SweepResult:
        """Remove unreferenced objects that are older than the lake's grace period.

        A lake that was opened with a shorter one, by ``Settings(grace_s=…)``, is swept by it only with
        ``nobody_writes=True``; else that is ``InvalidRequest``.
        """
        return self.do(calls.Sweep(dry_run=dry_run), progress)

    @show_progress
    def sweep_tables(
        self,
        key: str | Key | None = None,
        *,
        remove_data: bool = False,
        dry_run: bool = False,
        progress: Progress = show_no_progress,
    ) -> list[SweptTable]:
        """Remove unneeded files of Delta and Lance tables, of one table or of all; returns what was removed.

        Data files are removed only with ``remove_data``: those that no retained commit references and that
        are older than the setting ``data_grace_days``. If the references to a table's files cannot all be
        read, the table keeps its files, and the result says why.
        """
        call = calls.SweepTables(
            key=None if key is None else Key.parse(key), remove_data=remove_data, dry_run=dry_run
        )
        call = msgspec.structs.replace(call, limit=self.page_max)
        swept: list[SweptTable] = []
        while page := self.do(call, progress):
            swept += page
            if call.limit is None or len(page) < call.limit:
                break
            call = msgspec.structs.replace(call, after=page[-1].location)
        return swept

    @show_progress
    def erase(
        self,
        key: str | Key,
        *,
        older_than: datetime | timedelta | str | None = None,
        all_references: bool = False,
        dropped: bool = False,
        dry_run: bool = False,
        progress: Progress = show_no_progress,
    ) -> ErasedTable:
        """Erase the deleted rows of a table and its history before now; returns what is left to remove.

        Files that hold deleted rows beside others are rewritten; data files, change data, log entries,
        checkpoints and objects of the lake that only earlier versions need are removed. Where writers rely on
        a grace period, the answer says until when the rest stays: call it again then. It can be repeated at
        any time, also after a crash.

        ``EraseRefused`` while branches, tags, transactions or forks hold rows. With ``all_references`` tags,
        and branches without changes of their own to the table, let go what they hold: the table cannot be
        read there any more. Reading what is gone is ``HistoryExpired``.

        With ``older_than``, a time or how long ago that was, only what was deleted before it is made
        unrecoverable: later history of the table can still be read, reverted and restored.

        With ``dropped``, the tables that were dropped at the key are erased completely, and cannot be
        restored.
        """
        call = calls.EraseTable(
            key=Key.parse(key),
            older_than=None if older_than is None else parse_moment(older_than, now_us()),
            all_references=all_references,
            dropped=dropped,
            dry_run=dry_run,
            who=self.author,
        )
        return self.do(call, progress)

    @show_progress
    def sweep_files(
        self, *, remove_data: bool = False, dry_run: bool = False, progress: Progress = show_no_progress
    ) -> SweptFiles:
        """Remove unneeded files that tables of a format share, and files that ended jobs left behind.

        Files go only with ``remove_data``: those that no kept commit names and that are older than the
        setting ``data_grace_days``, or whose job was aborted an hour ago. If anything cannot be read that may
        name one, all stay, and the answer says why.
        """
        swept = [
            self.do(kind(remove_data=remove_data, dry_run=dry_run), progress) for kind in list_sweep_calls()
        ]
        return join_swept(swept)

    @show_progress
    def resync(
        self,
        key: str | Key | None = None,
        *,
        leave_own: bool = False,
        dry_run: bool = False,
        progress: Progress = show_no_progress,
    ) -> ResyncResult:
        """Import the versions that the logs and folders of tables have and the lake lacks, of one table or of
        all: for example after the lake's database was restored from a backup.

        With ``leave_own``, versions that only the lake has, and that cannot be added on top, are left behind:
        they can be read at the commit that the answer names. Otherwise they are ``OutOfSync``.
        """
        call = Resync(
            key=None if key is None else Key.parse(key),
            leave_own=leave_own,
            dry_run=dry_run,
            who=self.author,
        )
        return self.do(call, progress)

    @show_progress
    def fsck(self, progress: Progress = show_no_progress) -> CheckResult:
        """Check every reachable object's hash, order and shape."""
        return self.do(calls.Fsck(), progress)

    def tokens(self) -> tuple[Token, ...]:
        """The tokens that servers of this lake know, without their secrets."""
        return self.do(calls.ListTokens())

    def create_token(
        self, name: str, *grants: str, expires: datetime | None = None, replaces: str | None = None
    ) -> str:
        """Create a token with grants such as ``"read"`` or ``"write:dev/*:sales.*"``, and return its text.

        The text is not stored: the lake keeps only a hash of its secret. Names of tokens are unique, unless
        one ``replaces`` the other, given by its id: both are the same writer until the old one is revoked.
        """
        text, call = make_token(name, grants, expires, replaces)
        self.do(call)
        return text

    def revoke_token(self, token_id: str) -> Token:
        """Revoke a token."""
        return self.do(calls.RevokeToken(id=token_id))
