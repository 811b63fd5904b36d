"""The part of the demonstration that has rows: Delta tables, which other programs read as ever."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.cli.commands.demo import DemoStory
    from penstock.lake.lake import Lake


def show_rows_demo(story: DemoStory) -> bool:
    """Two tables, appended to on a branch, merged at one instant; whether it could be told."""
    if not _is_installed("pyarrow"):
        story.print_line("This goes on with Delta tables that have rows after: pip install 'penstock[delta]'")
        return False
    story.show_chapter("Tables with rows: Delta tables whose commits the lake decides")
    story.run_step(create_tables, pa="pyarrow")
    story.run_command("delta cat shop.orders")
    story.show_chapter("Both get rows on a branch, in one commit")
    story.run_step(append_to_both, pa="pyarrow")
    story.run_command("delta cat shop.orders --ref monday")
    story.run_command("diff main monday")
    story.show_chapter("A merge brings both to main at one instant, and publishes them")
    story.run_command("merge monday --into main")
    story.run_command("delta status")
    if _is_installed("deltalake"):
        story.show_chapter("So programs that know nothing of Penstock see them, too")
        story.run_step(read_elsewhere, deltalake="deltalake")
    return True


def create_tables(lake: Lake, pa: Any) -> None:
    lake.create_table("shop.orders", data=pa.table({"customer": ["ada", "bob"], "amount": [20, 35]}))
    lake.create_table("shop.payments", data=pa.table({"customer": ["ada"], "paid": [20]}))


def append_to_both(lake: Lake, pa: Any) -> None:
    lake.branch("monday").create()
    rows = {
        "shop.orders": pa.table({"customer": ["cyd"], "amount": [50]}),
        "shop.payments": pa.table({"customer": ["bob", "cyd"], "paid": [35, 50]}),
    }
    lake.delta.append(rows, branch="monday", message="orders of monday, and their payments")


def read_elsewhere(lake: Lake, deltalake: Any) -> None:
    for key in ("shop.orders", "shop.payments"):
        content = deltalake.DeltaTable(lake.table(key).location)
        print(f"{key}: version {content.version()}, {content.to_pyarrow_table().num_rows} rows")


def _is_installed(library: str) -> bool:
    return find_spec(library) is not None
