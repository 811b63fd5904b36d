"""What a lake in this process needs to own Delta tables: made when it first has to do with one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from time import monotonic

from penstock.errors import PenstockError
from penstock.formats.delta.branch_log.branch_log import decode_branch_log
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.ownership import OwnerIdentity
from penstock.formats.delta.format import DeltaFormat
from penstock.formats.delta.ownership.owner import DeltaOwner
from penstock.formats.delta.ownership.resync import DeltaResync
from penstock.formats.delta.ownership.tables import DeltaTableStore
from penstock.formats.delta.publishing.log_check import LogCheck
from penstock.formats.delta.publishing.maintenance import CheckpointMaintenance
from penstock.formats.delta.publishing.publisher import Publisher
from penstock.kernel.description import require_unmoved
from penstock.kernel.kernel import Kernel
from penstock.kernel.leases import Leases
from penstock.model.content import AnyContent
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.storage.places import Places


class DeltaServices:
    """Storage, publisher and owner of a lake's Delta tables. Used by many threads at once."""

    def __init__(
        self,
        kernel: Kernel,
        places: Places,
        identity: OwnerIdentity,
        check_location: Callable[[str], str],
    ) -> None:
        self.places = places
        self.commits = CommitReader(self.places)
        tables = DeltaTableStore(kernel)
        read = tables.read_object
        self.maintenance = CheckpointMaintenance(self.places, read, clock=kernel.clock)
        self.publisher = Publisher(
            self.places,
            read,
            meter=kernel.meter,
            clock=kernel.clock,
            leases=Leases(kernel.store),
            fetch=kernel.objects.find,
            after_publish=self.maintenance.schedule_maintenance,
            has_table=tables.has_table,
        )
        self.publisher.is_erased = tables.is_erased
        self.log_check = LogCheck(
            self.places, self.publisher, tables.find_last, partial(require_unmoved, kernel.store)
        )
        self.publisher.after_look = self.log_check.warn
        self.format = DeltaFormat(
            self.places,
            identity,
            kernel.clock,
            self.publisher,
            self.commits,
            kernel.settings.unpublished_max,
            self.log_check,
        )
        self.owner = DeltaOwner(
            kernel, self.places, self.publisher, self.commits, identity, check_location, self.log_check
        )
        self.resync = DeltaResync(
            self.owner.tables, self.places, self.publisher, self.commits, identity, self.log_check
        )

    def catch_up(self) -> None:
        """Have finished and published, in the background, what earlier processes left."""
        self.publisher.catch_up(self._catch_up)

    def _catch_up(self) -> None:
        self.owner.catch_up(lambda: not self.publisher.is_closing)

    def await_published(self, landed: Iterable[tuple[Key, AnyContent | None]], timeout_s: float) -> None:
        """Give the publisher a moment, so that whoever reads the logs of tables next sees what landed."""
        until_s = monotonic() + timeout_s
        for key, content in landed:
            left_s = until_s - monotonic()
            if left_s > 0 and isinstance(content, DeltaTable) and content.id is not None and content.state:
                self.publisher.table_committed(
                    key, content, is_default=True
                )  # another process may have landed it
                self.publisher.wait_for_version(content.id, decode_branch_log(content).latest, left_s)

    def finish(self, timeout_s: float) -> dict[str, PenstockError | None]:
        """Until what was ratified here, or left by others, is published and has its checkpoints, for at most
        so long; returns what is left, each with what stands against it."""
        ends_s = monotonic() + timeout_s
        if not self.publisher.await_catch_up(timeout_s):
            return {"the versions to be published are still being determined": None}
        unpublished = self.publisher.finish(max(0.0, ends_s - monotonic()))
        problems = {f"'{key}' is not published": problem for key, problem in unpublished.items()}
        waiting = self.maintenance.finish(max(0.0, ends_s - monotonic()))
        return problems | {f"'{key}' has no new checkpoint": None for key in sorted(waiting)}

    def report_metrics(self) -> None:
        """Tell the meter which versions wait to be published."""
        self.publisher.report_metrics()

    def close(self, timeout_s: float) -> None:
        """Publish what was ratified here, for at most so long."""
        ends_s = monotonic() + timeout_s
        self.publisher.close(timeout_s)
        self.maintenance.close(max(0.0, ends_s - monotonic()))
