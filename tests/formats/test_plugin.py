"""Plugins of formats: each call has one that answers it; a format that brings nothing is in nobody's way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.errors import NotManaged
from penstock.formats.plugin import FormatPlugin
from penstock.lake import calls
from penstock.lake.audits import calls as audit_calls
from penstock.lake.audits.rows import open_rows_at
from penstock.lake.calls import CALLS
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from penstock.lake.missing_files import list_missing_files
from penstock.lake.needed_files import NeededFiles
from penstock.lake.plugins import find_plugin, make_plugins
from penstock.lake.resync_calls import Resync
from penstock.lake.transactions import calls as transaction_calls
from penstock.model.keys import Key
from penstock.model.nessie import IcebergTable
from penstock.model.operations import Put
from tests.transactions.pipelines import FORMATS, ids, rows

LONG_CALLS = {calls.Sweep, calls.SweepTables, calls.EraseTable, calls.Fsck, Resync}
"""Those that the lake answers itself and that tell how far they are."""


class BarePlugin(FormatPlugin):
    """A format that leaves everything as it is, and has no table."""

    name = "bare"
    content_type = "BARE_TABLE"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """With a table of each format, and a format that brings nothing."""
    with penstock.open(tmp_path / "lake", create=True) as made:
        for kind in FORMATS:
            made.table(f"of.{kind}").write(rows(1, 2), format=kind)
        catalogue = made.catalogue
        assert isinstance(catalogue, Embedded)
        catalogue.loaded_plugins = (BarePlugin(lambda: catalogue), *catalogue.loaded_plugins)
        yield made


def no_lake() -> Embedded:
    raise AssertionError("nothing of a lake is needed to know which calls a format answers")


def test_every_call_of_a_format_is_answered_by_one_plugin(lake: Lake) -> None:
    answered = Counter(kind for plugin in make_plugins(no_lake) for kind in plugin.calls)
    assert set(answered.values()) == {1}
    catalogue = lake.catalogue
    assert isinstance(catalogue, Embedded)
    for plugin in catalogue.plugins:
        assert {*plugin.calls} == {*plugin.handlers, *plugin.long_handlers}, plugin.name
    own = {*catalogue._handlers_by_type, *LONG_CALLS, *transaction_calls.ANSWERED, *audit_calls.CALLS}
    assert not own & answered.keys()
    assert {*CALLS} <= own | answered.keys()


def test_a_format_that_brings_nothing_is_asked_everything_and_changes_nothing(lake: Lake) -> None:
    catalogue = lake.catalogue
    assert isinstance(catalogue, Embedded)
    catalogue.catch_up()
    lake.finish_background()
    catalogue.report_metrics()
    assert lake.fsck().damages == ()
    assert lake.resync(dry_run=True).tables == ()
    assert list(list_missing_files(lake)) == []
    needed = NeededFiles(catalogue)
    assert len([*needed.list_needed_folders()]) == len(FORMATS)
    assert needed.problems == []
    for kind in FORMATS:
        lake.table(f"of.{kind}").write(rows(3))
        assert ids(lake, f"of.{kind}") == [1, 2, 3]
        assert open_rows_at(lake.table(f"of.{kind}")).to_arrow(["id"]).num_rows == 3


def test_what_no_format_keeps_has_no_plugin(lake: Lake) -> None:
    lake.commit([Put(Key("other"), IcebergTable(metadata_location="s3://b/t.json"))])
    assert find_plugin(lake.table("other").content) is None
    assert find_plugin(None) is None
    with pytest.raises(NotManaged, match="'other'"):
        open_rows_at(lake.table("other"))
    with pytest.raises(NotManaged, match="cannot be out of sync"):
        lake.resync("other")
    with pytest.raises(NotManaged, match="cannot erase"):
        lake.erase("other")
