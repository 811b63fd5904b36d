"""Sweeping in the background: a server removes what nothing needs, now and then, by itself.

When the lake was swept last is noted with the lake. So it is swept as often as was asked for, however many
servers and workers there are and however often they start; a lease keeps two from doing it at once. If one is
killed meanwhile, another takes it up: a sweep that is repeated, or done twice at once, does no harm.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from penstock.errors import PenstockError
from penstock.kernel.leases import Lease, Leases
from penstock.kernel.sweep import SweepResult
from penstock.lake.answers import SweptFiles, SweptTable
from penstock.lake.calls import GetSetting, PutSetting, Sweep, SweepTables
from penstock.lake.embedded import Embedded
from penstock.model.clock import to_utc_datetime
from penstock.server.logs import Log, LogLevel

NOTE: Final = "penstock.swept"
"""Under this name it is noted when a server has swept the lake."""
LEASE: Final = "sweep"
LOOKS_EACH: Final = 24
"""So many times in each period somebody looks whether it is time."""
LOOK_MIN_S: Final = 0.05


class BackgroundSweep:
    """Sweeps a lake every so many hours until it is stopped."""

    def __init__(self, catalogue: Embedded, log: Log, *, every_hours: float, remove_data: bool) -> None:
        self._catalogue, self._log = catalogue, log
        self._every_s, self._remove_data = every_hours * 3600, remove_data
        self._leases = Leases(catalogue.kernel.store)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run_until_stopped, name="penstock-sweep", daemon=True)

    def start(self) -> None:
        if self._every_s > 0:
            self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Begin no further sweep, and wait a while until one that is under way has come to its next step."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run_until_stopped(self) -> None:
        while not self._stopped.wait(max(LOOK_MIN_S, self._every_s / LOOKS_EACH)):
            try:
                self.sweep_if_due()
            except _SweepStopped:
                return
            except PenstockError as problem:
                self._log.log_message(LogLevel.WARNING, f"the lake could not be swept: {problem.message}")

    def sweep_if_due(self) -> bool:
        """Sweep if it is time, and nobody else does; say whether that was done.

        A lake that no server has swept before is swept one period from now.
        """
        if not self._is_time():
            return False
        lease = self._leases.take_lease(LEASE)
        if lease is None:
            return False
        try:
            if not self._is_time():
                return False
            self._sweep_lake(lease)
            self._store_time()
            return True
        finally:
            lease.release()

    def _is_time(self) -> bool:
        noted = self._catalogue.do(GetSetting(name=NOTE))
        try:
            swept_us = datetime.fromisoformat(noted or "").timestamp() * 1e6
        except ValueError:
            self._store_time()
            return False
        return self._catalogue.kernel.clock() - swept_us >= self._every_s * 1e6

    def _store_time(self) -> None:
        now = to_utc_datetime(self._catalogue.kernel.clock())
        self._catalogue.do(PutSetting(name=NOTE, value=now.isoformat()))

    def _sweep_lake(self, lease: Lease) -> None:
        def note_progress(subject: str, count: int) -> None:  # noqa: ARG001
            lease.renew_if_due()  # if it is lost, another may begin, which does no harm
            if self._stopped.is_set():
                raise _SweepStopped

        swept = self._catalogue.do(Sweep(), note_progress)
        tables = self._catalogue.do(SweepTables(remove_data=self._remove_data, limit=None), note_progress)
        pools = [
            self._catalogue.do(plugin.sweep_call(remove_data=self._remove_data, dry_run=False), note_progress)
            for plugin in self._catalogue.plugins
            if plugin.sweep_call is not None
        ]
        self._log_result(swept, tables, pools)

    def _log_result(
        self, swept: SweepResult, tables: Sequence[SweptTable], pools: Sequence[SweptFiles]
    ) -> None:
        all_swept: tuple[SweptTable | SweptFiles, ...] = (*tables, *pools)
        files = sum(table.scratch_files for table in tables) + sum(
            swept_table.data_files for swept_table in all_swept if swept_table.data_removed
        )
        remaining = sum(swept_table.data_files for swept_table in all_swept if not swept_table.data_removed)
        more = (
            f"; {remaining} data files of tables are left to 'penstock sweep --remove-data'"
            if remaining
            else ""
        )
        self._log.log_message(
            LogLevel.INFO, f"swept: {swept.removed} objects and {files} files of tables were removed{more}"
        )
        for table in tables:
            if table.problem:
                self._log.log_message(LogLevel.WARNING, f"'{table.key}' was not swept: {table.problem}")
        for pool in pools:
            if not pool.problem:
                continue
            self._log.log_message(LogLevel.WARNING, f"the files of tables were not all swept: {pool.problem}")


class _SweepStopped(Exception):
    """The server stops; what the sweep has not come to is left for the next one."""
