"""How the suite is arranged: what only `make verify` runs, which process does what, what is told at the end.

A file's tests run in one process, so that what they share is started once, and what takes long is begun
first, so that no process is left alone with it at the end. The last lines of a run say how each failure is
repeated, and how long each process had nothing to do.
"""

from __future__ import annotations

import gc
import os
import shlex
import shutil
import tempfile
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

VERIFIED = (
    "tests/committer/",
    "tests/interop/",
    "tests/spark/cluster/",
)
"""All that is in there needs other people's JVMs or a cluster. Single tests are marked where they stand."""

SLOW_START = "tests/spark/cluster/"
START_MAX_S = 900.0
"""The first test there starts a cluster and a driver, which counts as its time: minutes on a machine that has
much else to do. What hangs after that is noticed sooner, by who waits for it."""

LONG = (
    "tests/files/test_files_buckets.py",
    "tests/formats/delta/test_other_readers.py::test_a_table_in_a_bucket",
    "tests/journal_format/test_program.py",
    "tests/lake/test_resync.py::test_a_resync_that_is_killed_is_gone_on_with",
    "tests/lance/rest/test_api.py::test_a_server_without_lance_says_how_to_get_it",
    "tests/lance/rest/test_client_package.py",
    "tests/lance/s3/",
    "tests/outages/test_full_disk.py::test_a_server_that_was_started_says_why_it_is_not_ready",
    "tests/reliability/test_postgres.py::test_a_killed_process_leaves_a_whole_lake",
    "tests/server/test_browsers.py::test_a_s",
    "tests/server/test_hostile.py",
    "tests/server/test_imports.py",
    "tests/spark/files/test_adopting.py::test_a_session_is_told_what_it_lacks",
    "tests/spark/files_read/test_partition_types.py",
    "tests/spark/files_session/test_same_as_write.py",
    "tests/spark/test_computed_columns.py::test_what_rows_lack_is_filled_in_and_what_they_have_is_checked",
    "tests/spark/test_error_logs.py",
    "tests/spark/test_footers.py::test_readers_that_prune_by_the_statistics_miss_no_row",
    "tests/spark/test_marked_rows.py::test_only_changed_rows_are_written",
    "tests/spark/test_optimize.py::test_rows_are_sorted_along_a_curve",
    "tests/spark/test_row_tracking.py::test_rows_keep_their_ids_through_updates_deletes_and_merges[false]",
    "tests/spark/test_schema_evolution.py::test_a_merge_by_python_adds_columns_and_loses",
    "tests/spark/test_skipped_files.py::test_no_filter_loses_a_row",
    "tests/spark/test_sql_programs.py",
    "tests/spark/test_sql_streams.py::test_a_stream_reads_one_table_and_writes_another_by_their_names",
    "tests/spark/test_table_features.py::test_no_row_is_written_for_which_a_constraint_is_not_true[false]",
    "tests/stores/test_objectstore.py::TestDirectory::test_thousands_of_objects",
    "tests/stores/test_sqlite_damage.py::test_any_harm_to_the_file_is_a_typed_error",
    "tests/sweep/test_engine_model.py::test_a_broken_engine_is_caught",
)
"""What takes long and rests on parts that `make test` tries by themselves: run by `make verify` too."""

FIRST = (
    "tests/spark/",
    "tests/documents/test_spark_documents.py",
    "tests/documents/",
    "tests/test_benchmarks.py",
    "tests/interop/",
)
"""What takes long: begun last, one process would do it alone while the other has nothing left to do."""

TOGETHER = {
    "the cluster": ("tests/spark/cluster/",),
    "Spark, tables of files": (
        *("tests/spark/files", "tests/spark/lance_tables/"),
        *(f"tests/spark/test_{letter}" for letter in "abcd"),
    ),
    "Delta Spark": ("tests/interop/test_delta_",),
    "Spark, Delta tables": ("tests/spark/test_", "tests/documents/test_spark_documents.py"),
}
"""One process does all of a group, the first one that a file belongs to: what they share is started once. A
Spark takes long until it is warm, so that two processes have one, and not all."""


MEMORY = Path("/dev/shm")
MEMORY_MIN_BYTES = 8 * 2**30


def use_memory_for_temporary_files() -> None:
    """Let lakes, tables and servers of the tests lie in memory, where there is enough of it.

    No test needs a disk that survives the machine: processes are killed, the machine is not. ``TMPDIR`` says
    otherwise.
    """
    if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_MIN_BYTES:
        # pytest reads the second one, everything else the first one, also in processes that tests start.
        os.environ["TMPDIR"] = os.environ["PYTEST_DEBUG_TEMPROOT"] = str(MEMORY)
        tempfile.tempdir = None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what only `make verify` runs, and let the longest begin."""
    for item in items:
        if item.nodeid.startswith(SLOW_START) and config.getoption("timeout", None) is None:
            item.add_marker(pytest.mark.timeout(START_MAX_S))
        if item.nodeid.startswith((*VERIFIED, *LONG)):
            item.add_marker(pytest.mark.verify)
    items.sort(key=lambda item: _place(item.nodeid, FIRST))


def pytest_collection_finish() -> None:
    """Take the tests out of the garbage collector's sight, which would look at all of them each time."""
    gc.freeze()
    _cpu.read()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Hand tests out by file, in the order in which they were collected; long ones one by one."""
    from xdist.scheduler import LoadScopeScheduling

    each_is_long = config.option.markexpr == "reliability"

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            alone = nodeid if each_is_long and not nodeid.startswith(FIRST) else file
            return next((group for group, files in TOGETHER.items() if file.startswith(files)), alone)

    config.option.loadscopereorder = False  # the largest number of tests is not the longest time
    return ByFile(config, log)


def _place(nodeid: str, folders: tuple[str, ...]) -> int:
    return next((at for at, folder in enumerate(folders) if nodeid.startswith(folder)), len(folders))


# --- what is told at the end ----------------------------------------------------------------------------

_last_s: dict[str, float] = {}
"""When each process ended its last test."""


class CpuMeter:
    """The CPU time of this process, and of those that it waited for, since it was asked last."""

    def __init__(self) -> None:
        self._last_s = 0.0

    def read(self) -> float:
        before_s, self._last_s = self._last_s, sum(os.times()[:4])
        return self._last_s - before_s


_cpu = CpuMeter()


class Done:
    """What the cases of a test took, and what they noted by ``record_counts``, summed up."""

    def __init__(self) -> None:
        self.seconds = self.cpu_s = 0.0
        self.counters: Counter[str] = Counter()

    def add(self, report: pytest.TestReport) -> None:
        self.seconds += report.duration
        self.cpu_s += getattr(report, "cpu_s", 0.0)
        if report.when == "call":
            self.counters["cases"] += 1
            for name, value in report.user_properties:
                if isinstance(value, int):
                    self.counters[name] += value

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {name}" for name, count in self.counters.items())
        return f"{self.seconds:,.0f} seconds, {self.cpu_s:,.0f} of CPU, {counts}"


_done: dict[str, Done] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note what was used since the last report: what ends with a test, such as a server, counts for it."""
    report = yield
    report.cpu_s = _cpu.read()  # type: ignore[attr-defined]  # it takes what it is given
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    worker = getattr(report, "worker_id", None)
    if worker is not None:
        _last_s[worker] = max(report.stop, _last_s.get(worker, 0.0))
    _done.setdefault(report.nodeid.partition("[")[0], Done()).add(report)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how to repeat each failure, and how long each process had nothing to do at the end."""
    failed = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
    if failed:
        terminalreporter.section("to repeat")
        for nodeid in dict.fromkeys(report.nodeid for report in failed):
            terminalreporter.write_line(command_that_repeats(nodeid, config.option.markexpr))
    if config.option.markexpr == "reliability":
        terminalreporter.section("what was done")
        for test, done in sorted(_done.items(), key=lambda one: -one[1].seconds):
            terminalreporter.write_line(f"{done}: {test}")
        seconds, cpu_s = (sum(getattr(one, name) for one in _done.values()) for name in ("seconds", "cpu_s"))
        terminalreporter.write_line(f"{seconds:,.0f} seconds, {cpu_s:,.0f} of CPU in all")
    if len(_last_s) > 1:
        end_s = max(_last_s.values())
        idle = ", ".join(f"{worker} {end_s - last_s:.0f} s" for worker, last_s in sorted(_last_s.items()))
        terminalreporter.write_line(f"idle at the end: {idle}")


def command_that_repeats(nodeid: str, marks: str) -> str:
    """The command that runs one test again, as it was run when ``marks`` said which tests to run."""
    return shlex.join([".venv/bin/pytest", *([] if marks.startswith("not ") else ["-m", marks]), nodeid])
