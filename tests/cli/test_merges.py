"""Merge, transplant, rebase and revert from the command line."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import penstock
from penstock.cli.rendering.merges import MergeSides, format_merge_page
from penstock.cli.rendering.screen import Screen
from tests.cli.conftest import Terminal, anywhere
from tests.cli.test_history import blurred
from tests.formats.delta.sides import Side, create, rows
from tests.formats.files.lakes import address, paths, write

MERGE_FIELDS = ["applied", "base", "commits", "dry_run", "head", "keys", "source"]
KEY_FIELDS = ["after", "before", "change", "conflicts", "key", "mode"]
DRY_RUN = [
    "dev → main   2 commits, 2 tables",
    "  ~ sales.orders   both sides changed it                conflict",
    "      Iceberg tables and views are not merged by the lake: take one side, or write it again.",
    "      main  IDIDIDID  hourly load  etl  just now",
    "      dev   IDIDIDID  mend orders  ada  just now",
    "      To take one side: --take main=sales.orders or --take dev=sales.orders.",
    (
        "      To redo it: penstock rebase dev --onto main --take main=sales.orders,"
        " then the job, under a new id."
    ),
    "  + sales.returns  ICEBERG_TABLE s3://b/returns-1.json  clean",
]


@anywhere
def test_a_dry_run_shows_conflicts_and_changes_nothing(forked: Terminal) -> None:
    before = forked.json("branch")
    assert blurred(forked("merge", "dev", "--into", "main", "--dry-run", status=3).lines) == DRY_RUN
    assert forked.json("branch") == before


@anywhere
def test_a_merge_with_conflicts_shows_what_its_dry_run_shows(forked: Terminal) -> None:
    before = forked.json("branch")
    assert blurred(forked("merge", "dev", status=3).lines) == DRY_RUN
    assert forked.json("branch") == before


@anywhere
def test_a_dry_run_in_json_has_every_key(forked: Terminal) -> None:
    found = forked.json("merge", "dev", "--dry-run", status=3)
    assert sorted(found) == MERGE_FIELDS
    assert (found["dry_run"], found["applied"]) == (True, False)
    assert found["source"] == forked.json("show", "dev")["id"]
    assert found["base"] == forked.json("show", "main~1")["id"]
    orders, returns = found["keys"]
    assert sorted(orders) == KEY_FIELDS
    assert orders["key"] == "sales.orders"
    assert [one["kind"] for one in orders["conflicts"]] == ["VALUE_DIFFERS"]
    assert (returns["key"], returns["conflicts"], returns["before"]) == ("sales.returns", [], None)
    assert returns["after"]["metadata_location"] == "s3://b/returns-1.json"


@anywhere
def test_a_merge_with_conflicts_in_json_is_an_error(forked: Terminal) -> None:
    ran = forked("merge", "dev", "--json", status=3)
    assert ran.out == ""
    assert ran.error["code"] == "merge_conflict"
    assert [one["key"] for one in ran.error["details"]["conflicts"]] == ["sales.orders"]


@anywhere
@pytest.mark.parametrize(
    ("side", "version", "said"), [("dev", "dev", "taken from dev"), ("main", "2", "left as in main")]
)
def test_one_side_can_be_taken(side: str, version: str, said: str, forked: Terminal) -> None:
    ran = forked("merge", "dev", "--take", f"{side}=sales.orders", "-m", "land it")
    head = forked.json("show")
    assert ran.lines[0] == "dev → main   2 commits, 2 tables"
    assert ran.lines[1].endswith(said)
    assert ran.lines[-1] == f"merged as {head['id'][:8]}"
    assert (head["message"], len(head["parents"])) == ("land it", 2)
    found = forked.json("show", "main", "sales.orders")["content"]["metadata_location"]
    assert found == f"s3://b/orders-{version}.json"
    assert forked("merge", "dev").lines == ["main has everything of dev already"]


@anywhere
def test_a_merge_into_a_branch_that_was_empty_counts_every_commit(terminal: Terminal) -> None:
    terminal("branch", "create", "nightly")
    for name in ("a", "b", "c"):
        terminal.put(name, f"{name}-1", "--branch", "nightly")
    heading = "nightly → main   3 commits, 3 tables"
    assert terminal("merge", "nightly", "--dry-run").lines[0] == heading
    assert terminal("merge", "nightly").lines[0] == heading
    terminal.put("a", "a-2", "--branch", "nightly")
    assert terminal("merge", "nightly").lines[0] == "nightly → main   1 commit, 1 table"


@anywhere
@pytest.mark.parametrize(("default", "version"), [("force", "dev"), ("drop", "2")])
def test_all_keys_can_be_settled_at_once(default: str, version: str, forked: Terminal) -> None:
    forked("merge", "dev", "--default", default)
    found = forked.json("show", "main", "sales.orders")["content"]["metadata_location"]
    assert found == f"s3://b/orders-{version}.json"


@anywhere
def test_the_ways_out_work_as_printed(forked: Terminal) -> None:
    lines = forked("merge", "dev", "--dry-run", status=3).lines
    (take,) = (line for line in lines if "To take one side" in line)
    for option in re.findall(r"--take (\S+?)\.?(?= |$)", take):
        forked("merge", "dev", "--take", option, "--dry-run")
    (redo,) = (line for line in lines if "To redo it" in line)
    (command,) = re.findall(r"penstock (.+), then", redo)
    forked(*shlex.split(command))
    forked.put("sales.orders", "orders-again", "--branch", "dev", "--base", "dev")
    forked("merge", "dev")
    found = forked.json("show", "main", "sales.orders")["content"]["metadata_location"]
    assert found == "s3://b/orders-again.json"


@anywhere
def test_several_conflicts_get_their_ways_out_once(forked: Terminal) -> None:
    forked.put("sales.returns", "returns-main", "-m", "returns too")
    lines = forked("merge", "dev", "--dry-run", status=3).lines
    assert lines[0] == "dev → main   2 commits, 2 tables"
    assert "both sides created it" in lines[5]
    assert lines[-2] == (
        "To take one side: --take main=sales.orders or --take dev=sales.orders, and so on for the others."
    )
    assert lines[-1].startswith(
        "To redo it: penstock rebase dev --onto main --take main=sales.orders --take main="
    )


@anywhere
def test_all_conflicts_of_one_key_are_shown(forked: Terminal) -> None:
    forked("namespace", "create", "stock", "--branch", "dev")
    forked.put("stock.items", "items-1", "--branch", "dev")
    forked.put("stock", "stock-1", "-m", "a table of that name")
    taken = ["--take", "dev=sales.orders", "--dry-run"]
    lines = blurred(forked("merge", "dev", *taken, status=3).lines)
    at = next(number for number, line in enumerate(lines) if line.startswith("  ~ stock "))
    assert lines[at].split(maxsplit=2)[2].split("  ")[0] == "both sides created it"
    assert lines[at + 1] == "      and needed as a namespace, but something else in main"
    assert lines[at + 2].startswith("      main  IDIDIDID  a table of that name")
    assert "      To take one side: --take main=stock or --take dev=stock." in lines
    (found,) = [one for one in forked.json("merge", "dev", *taken, status=3)["keys"] if one["conflicts"]]
    assert [one["kind"] for one in found["conflicts"]] == ["KEY_EXISTS", "NOT_A_NAMESPACE"]


@anywhere
def test_a_property_that_both_sides_gave_a_namespace_is_a_conflict(forked: Terminal) -> None:
    forked("namespace", "create", "stock", "--property", "owner=ada", "--property", "tier=gold")
    forked(
        *("namespace", "create", "stock", "--branch", "dev"),
        *("--property", "owner=grace", "--property", "tier=gold"),
    )
    taken = ["--take", "dev=sales.orders"]
    lines = forked("merge", "dev", *taken, status=3).lines
    assert "      it has properties that were changed on both sides: 'owner'" in lines
    (found,) = [
        one for one in forked.json("merge", "dev", *taken, "--dry-run", status=3)["keys"] if one["conflicts"]
    ]
    (conflict,) = found["conflicts"]
    assert (conflict["key"], conflict["kind"], conflict["found"]) == ("stock", "KEY_EXISTS", "owner=ada")
    forked("merge", "dev", *taken, "--take", "dev=stock")
    assert "grace" in forked("show", "main", "stock").out


@anywhere
def test_a_namespace_that_the_target_lacks_can_be_created_as_printed(forked: Terminal) -> None:
    forked("namespace", "create", "stock")
    forked("branch", "create", "filling")
    forked.put("stock.items", "items-1", "--branch", "filling")
    forked("namespace", "delete", "stock")
    lines = forked("merge", "filling", status=3).lines
    assert lines[0] == "filling → main   1 commit, 1 table, 1 namespace"
    (command,) = (line.partition("penstock ")[2] for line in lines if "To have it there" in line)
    assert not any("--take" in line for line in lines), "neither side brings the namespace"
    forked(*shlex.split(command))
    forked("merge", "filling")


@anywhere
def test_a_merge_can_expect_the_target_and_be_repeated(forked: Terminal) -> None:
    refused = forked("merge", "dev", "--if-head", "main~1", "--default", "force", status=3)
    assert "main" in refused.err
    arguments = [
        "merge",
        "dev",
        "--if-head",
        forked.json("show")["id"],
        "--default",
        "force",
        "--key",
        "k",
    ]
    first = forked.json(*arguments)
    assert forked.json(*arguments)["commits"] == first["commits"]


@anywhere
@pytest.mark.parametrize("take", ["sales.orders", "other=sales.orders", "dev=", "=sales.orders"])
def test_a_side_that_is_neither_is_a_usage_error(take: str, forked: Terminal) -> None:
    refused = forked("merge", "dev", "--take", take, status=2)
    assert f"'{take}' is neither main=KEY nor dev=KEY" in refused.err


@anywhere
def test_settling_a_key_that_is_not_part_of_it_is_refused(forked: Terminal) -> None:
    assert "nope" in forked("merge", "dev", "--take", "dev=nope", status=1).err
    assert forked("merge", "nope", status=4).status == 4
    assert forked("merge", "dev", "--into", "nope", status=4).status == 4


@anywhere
def test_commits_are_transplanted_by_one_swap(forked: Terminal) -> None:
    preview = forked("transplant", "dev~1..dev", "--dry-run")
    assert preview.lines == [
        "dev~1..dev → main   1 table",
        "  + sales.returns  ICEBERG_TABLE s3://b/returns-1.json  clean",
    ]
    found = forked.json("transplant", "dev~1..dev", "--onto", "main")
    assert sorted(found) == MERGE_FIELDS
    assert (len(found["commits"]), found["applied"]) == (1, True)
    assert forked.json("show")["message"] == "add returns"
    assert forked.json("show")["author"] == "ada"
    assert forked("transplant", "dev").lines == ["main has all of that already"]


@anywhere
def test_a_transplant_with_conflicts_shows_the_way_out(forked: Terminal) -> None:
    lines = blurred(forked("transplant", "main~1..dev", status=3).lines)
    assert lines[0] == "main~1..dev → main   2 tables"
    assert "      To take one side: --take main=sales.orders or --take main~1..dev=sales.orders." in lines
    ran = forked("transplant", "main~1..dev", "--take", "main~1..dev=sales.orders")
    assert ran.lines[0] == "main~1..dev → main   2 commits, 2 tables"
    assert ran.lines[-1].startswith("transplanted as ")
    found = forked.json("show", "main", "sales.orders")["content"]["metadata_location"]
    assert found == "s3://b/orders-dev.json"


@anywhere
def test_only_what_a_side_changed_since_the_fork_is_shown(terminal: Terminal) -> None:
    terminal.put("t", "1", "-m", "before the fork")
    terminal("branch", "create", "dev")
    terminal.put("t", "2", "--branch", "dev", "-m", "on dev")
    terminal("delete", "t", "-m", "gone from main")
    lines = terminal("transplant", "dev", status=3).lines
    assert "gone from main, changed in dev" in lines[1]
    assert re.fullmatch(r" +main +\w{8} +gone from main .+", lines[2])
    assert re.fullmatch(r" +dev +\w{8} +on dev .+", lines[3])
    assert "before the fork" not in "".join(lines)


@anywhere
def test_a_branch_is_rebased(forked: Terminal) -> None:
    assert blurred(forked("rebase", "dev", "--dry-run", status=3).lines)[0] == "dev → main   2 tables"
    ran = forked("rebase", "dev", "--onto", "main", "--take", "dev=sales.orders")
    head = forked.json("show", "dev")["id"]
    assert ran.lines[-1] == f"dev is at {head[:8]}, 2 commits repeated"
    assert [one["message"] for one in forked.json("log", "dev")["items"]] == [
        "add returns",
        "mend orders",
        "hourly load",
        "first load",
    ]
    forked("branch", "create", "behind", "--at", "main~1")
    moved = forked.json("rebase", "behind")
    assert (moved["commits"], moved["head"]) == ([], forked.json("show", "main")["id"])
    assert moved["applied"] is True
    assert forked.json("rebase", "behind")["applied"] is False
    assert forked("rebase", "behind").lines == ["behind stands on main already"]
    assert "cannot be rebased" in forked("rebase", "main", "--onto", "dev", status=1).err


@anywhere
def test_a_commit_is_reverted(forked: Terminal) -> None:
    wrong = forked.json("show")["id"]
    assert forked("revert", "main", "--dry-run").lines == [
        f"undo {wrong[:8]} on main   1 table",
        "  ~ sales.orders  metadata_location …/orders-2.json → …/orders-1.json  clean",
    ]
    ran = forked("revert", wrong[:8], "--on", "main")
    head = forked.json("show")
    assert ran.lines[-1] == f"reverted {wrong[:8]} as {head['id'][:8]}"
    assert head["message"] == f"revert {wrong[:8]}: hourly load"
    assert forked("revert", wrong).lines == [f"main has nothing left of {wrong[:8]} to undo"]


@anywhere
def test_reverting_what_changed_again_is_a_conflict(forked: Terminal) -> None:
    wrong = forked.json("show")["id"]
    forked.put("sales.orders", "orders-3", "-m", "next load")
    ran = forked("revert", "main~1", status=3)
    assert ran.lines[0] == f"undo {wrong[:8]} on main   1 table"
    assert "      To undo it alone: revert the later commits first, beginning with the newest." in ran.lines
    assert (
        "      To reset the table to its state before main~1, without any later change: --take "
        "main~1=sales.orders. To leave the table as it is: --take main=sales.orders."
    ) in ran.lines
    assert [line.split()[:2] for line in ran.lines[3:5]] == [
        ["main", forked.json("show")["id"][:8]],
        ["main~1", wrong[:8]],
    ]
    forked("revert", "main~1", "--take", "main~1=sales.orders", "-m", "back")
    found = forked.json("show", "main", "sales.orders")["content"]["metadata_location"]
    assert found == "s3://b/orders-1.json"


@anywhere
def test_reverting_a_commit_of_another_branch_is_refused(forked: Terminal) -> None:
    assert "is not in the history of 'main'" in forked("revert", "dev", status=1).err


@anywhere
def test_an_outcome_is_found_by_its_key(forked: Terminal) -> None:
    commit = forked.put("t", "1", "--key", "load-1")
    found = forked.json("outcome", "load-1")
    assert (found["commits"], found["head"], found["commit"]["id"]) == ([commit], commit, commit)
    assert forked("outcome", "load-1").lines == [f"applied to main as {commit[:8]}"]
    assert forked.json("outcome", "load-1", "--branch", "dev", status=4) is None
    assert forked("outcome", "nope", status=4).lines == ["no request with key nope was applied to main"]


@anywhere
def test_the_outcome_of_several_commits_names_them_all(forked: Terminal) -> None:
    made = forked.json("transplant", "main~1..dev", "--default", "force", "--key", "k")["commits"]
    assert len(made) == 2
    assert forked.json("outcome", "k")["commits"] == made
    assert forked("outcome", "k").lines == [f"applied to main as {made[0][:8]}, {made[1][:8]}"]


@anywhere
def test_the_outcome_of_a_request_about_a_branch_is_found_too(forked: Terminal) -> None:
    head = forked.json("show")["id"]
    forked("branch", "create", "other", "--key", "made")
    assert forked("outcome", "made", "--branch", "other").lines == [f"applied to other, at {head[:8]} then"]
    rebased = forked.json("rebase", "dev", "--default", "force", "--key", "rebased")["commits"]
    assert forked.json("outcome", "rebased", "--branch", "dev")["commits"] == rebased
    forked("branch", "delete", "other", "--key", "gone")
    gone = forked.json("outcome", "gone", "--branch", "other")
    assert (gone["commits"], gone["head"]) == ([], head)
    assert forked.json("outcome", "nope", "--branch", "other", status=4) is None
    assert forked.json("outcome", "nope", "--branch", "never", status=4) is None


@anywhere
def test_namespaces_are_counted_apart(terminal: Terminal, tmp_path: Path) -> None:
    terminal("branch", "create", "dev")
    terminal.put("a.b.t", "1", "--branch", "dev")
    assert terminal("merge", "dev", "--dry-run").lines[0] == "dev → main   1 commit, 1 table, 2 namespaces"


def test_a_revert_is_known_again_by_its_key_though_its_revision_names_another_commit(
    forked: Terminal,
) -> None:
    first = forked.json("revert", "main", "--key", "undo")["commits"]
    assert forked.json("revert", "main", "--key", "undo")["commits"] == first


# -- Delta tables ------------------------------------------------------------------------------------------


@pytest.fixture
def forked_delta(terminal: Terminal) -> Terminal:
    """Two branches of which both deleted rows of one file, and one appended to another table."""
    with penstock.open(terminal.place, author="etl") as lake:
        main = create(lake, properties={"delta.enableDeletionVectors": "true"})
        lake.create_table("sales.returns", schema=rows(0).schema, partition_by="day")
        lake.branch("fix").create()
        fix = Side(lake, "fix")
        main.mask(1)
        fix.mask(2)
        for number in (7, 8):
            lake.table("sales.returns", "fix").append(rows(number), message="returns", author="ada")
    return terminal


@anywhere
def test_a_preview_tells_versions_files_and_what_each_side_did(forked_delta: Terminal) -> None:
    before = forked_delta.json("branch")
    lines = blurred(forked_delta("merge", "fix", "--into", "main", "--dry-run", status=3).lines)
    assert forked_delta.json("branch") == before
    assert lines[0] == "fix → main   3 commits, 2 tables"
    assert lines[1] == "  ~ sales.orders   v4       both sides changed it        conflict"
    assert re.fullmatch(
        r" {6}version 4 \(DELETE\) removed day=mon/\S+ in day=mon,"
        r" which fix has read or adds again \(rule 11\)",
        lines[2],
    )
    assert lines[3:] == [
        "      main  IDIDIDID  delete  v4 deleted rows in 1 file of day=mon  etl  just now",
        "      fix   IDIDIDID  delete  v4 deleted rows in 1 file of day=mon  etl  just now",
        "      To take one side: --take main=sales.orders or --take fix=sales.orders.",
        (
            "      To redo it: penstock rebase fix --onto main --take main=sales.orders,"
            " then the job, under a new id."
        ),
        "  ~ sales.returns  v0 → v1  2 files added, 2 rows added  clean",
    ]


@anywhere
def test_a_preview_in_json_has_the_reason_whole(forked_delta: Terminal) -> None:
    orders, returns = forked_delta.json("merge", "fix", "--dry-run", status=3)["keys"]
    assert sorted(orders) == sorted(returns) == KEY_FIELDS
    (conflict,) = orders["conflicts"]
    assert (conflict["kind"], conflict["expected"], conflict["found"]) == ("FORMAT", "version 3", "version 4")
    clash, both, take, redo = conflict["why"].split("; ")
    assert clash.startswith("was changed on both sides: version 4 (DELETE) removed day=mon/")
    assert both == (
        "version 4 deleted rows in 1 file of day=mon,"
        " and since version 3 the other side deleted rows in 1 file of day=mon"
    )
    assert take.startswith("to take one side")
    assert redo.startswith("to redo the work")


@anywhere
def test_a_preview_counts_what_an_overwrite_will_find(terminal: Terminal) -> None:
    with penstock.open(terminal.place) as lake:
        main = create(lake, "fix")
        Side(lake, "fix").overwrite(7, day="mon")
    line = terminal("merge", "fix", "--dry-run").lines[1]
    assert line.endswith("  1 file added, 2 removed, 1 row added, 4 removed  clean")
    with penstock.open(terminal.place) as lake:
        Side(lake, main.branch).append(8)
    line = terminal("merge", "fix", "--dry-run").lines[1]
    assert line == "  ~ sales.orders  v4 → v5  1 file added, 3 removed, 1 row added, 5 removed  clean"
    assert "  1 file added, 3 removed  clean" in terminal("merge", "fix").lines[1]


def test_a_reason_is_told_whole_on_a_narrow_screen(forked_delta: Terminal) -> None:
    with penstock.open(forked_delta.place) as lake:
        result = lake.merge("fix", dry_run=True)
    sides = MergeSides("fix", "main", changes=lambda *_: [], brings=lambda _: "")
    lines = list(format_merge_page(Screen(width=60), "fix → main", sides, result))
    clash = lines[2 : next(at for at, line in enumerate(lines) if "sales.returns" in line)]
    assert len(clash) > 1
    told = " ".join(line.strip() for line in clash)
    assert told.startswith("version 4 (DELETE) removed day=mon/part-")
    assert told.endswith(" in day=mon, which fix has read or adds again (rule 11)")


@anywhere
def test_a_merge_tells_what_it_brought(forked_delta: Terminal) -> None:
    lines = forked_delta("merge", "fix", "--take", "main=sales.orders").lines
    assert lines[1].startswith("  = sales.orders ")
    assert re.fullmatch(r"  ~ sales\.returns  v0 → v1 +2 files added  clean", lines[2])


# -- tables of files ---------------------------------------------------------------------------------------


@pytest.fixture
def forked_files(terminal: Terminal) -> Terminal:
    """Two branches that both changed a file in each of two folders."""
    with penstock.open(terminal.place) as lake:
        write(lake, "day=1/a", "day=2/a")
        lake.branch("dev").create()
        for branch in ("dev", "main"):
            write(lake, f"day=3/{branch}", branch=branch, put=["day=1/a", "day=2/a"])
    return terminal


@anywhere
def test_a_conflict_is_told_by_path(forked_files: Terminal) -> None:
    lines = forked_files("merge", "dev", status=3).lines
    assert lines[1] == "  ~ raw.events  3 files  both sides changed it  conflict"
    assert lines[2:4] == ["      at day=1/a", "      at day=2/a"]
    assert [line.split()[0] for line in lines[4:6]] == ["main", "dev"]
    assert all("2 files → 3 files" in line for line in lines[4:6])
    folder = "raw.events/day=1/"
    assert f"      To take one side of a folder: --ours {folder} or --theirs {folder}." in lines
    (found,) = forked_files.json("merge", "dev", "--dry-run", status=3)["keys"]
    assert [one["path"] for one in found["conflicts"]] == ["day=1/a", "day=2/a"]
    told = forked_files("merge", "dev", "--json", status=3).error["details"]["conflicts"]
    assert [(one["key"], one["path"]) for one in told] == [
        ("raw.events", "day=1/a"),
        ("raw.events", "day=2/a"),
    ]


@anywhere
def test_many_conflicts_of_a_table_are_cut_short_for_people(terminal: Terminal) -> None:
    names = [f"day=1/{number:02}" for number in range(15)]
    with penstock.open(terminal.place) as lake:
        write(lake, "day=1/a")
        lake.branch("dev").create()
        write(lake, *names, branch="dev")
        write(lake, *names)
    lines = terminal("merge", "dev", status=3).lines
    assert sum(line.startswith("      at day=1/") for line in lines) == 10
    assert "      and 5 more; --json shows all" in lines


@anywhere
@pytest.mark.parametrize("command", ["merge", "transplant", "rebase"])
def test_a_side_is_taken_below_a_folder(command: str, forked_files: Terminal) -> None:
    with penstock.open(forked_files.place) as lake:
        before = {ref: [address(lake, f"day={day}/a", ref) for day in (1, 2)] for ref in ("main", "dev")}
    forked_files(command, "dev", "--theirs", "raw.events/day=1/", "--ours", "raw.events/day=2/")
    with penstock.open(forked_files.place) as lake:
        ref = "dev" if command == "rebase" else "main"
        assert paths(lake, ref) == ["day=1/a", "day=2/a", "day=3/dev", "day=3/main"]
        assert address(lake, "day=1/a", ref) == before["dev"][0]
        assert address(lake, "day=2/a", ref) == before["main"][1]


def test_a_side_is_taken_of_a_whole_table(forked_files: Terminal) -> None:
    head = forked_files.json("show")["id"]
    forked_files("merge", "dev", "--theirs", "raw.events", "--if-head", head)
    with penstock.open(forked_files.place) as lake:
        assert paths(lake) == ["day=1/a", "day=2/a", "day=3/dev"]
    refused = forked_files("merge", "dev", "--if-head", head, status=3)
    assert "not at" in refused.err


@pytest.mark.parametrize(
    "options",
    [
        ["--theirs", "raw.events", "--ours", "raw.events"],
        ["--theirs", "raw.events", "--ours", "raw.events/day=1/"],
        ["--theirs", "raw.events/day=1/", "--ours", "raw.events/day=1/"],
        ["--take", "dev=raw.events", "--ours", "raw.events/day=1/"],
    ],
)
def test_a_table_that_is_settled_twice_is_a_usage_error(options: list[str], forked_files: Terminal) -> None:
    refused = forked_files("merge", "dev", *options, status=2)
    assert "'raw.events' is already resolved by another option" in refused.err
