"""Delta tables: bringing them into the lake and out of it, and looking after them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from penstock.cli.answers import ListPage
from penstock.cli.call import Call, pass_call
from penstock.cli.completions import complete_key
from penstock.cli.declaration import (
    branch_option,
    group,
    key_argument,
    key_option,
    message_option,
)
from penstock.cli.rendering.history import short
from penstock.cli.rendering.screen import Screen, printable
from penstock.cli.rendering.statuses import StatusLine, statuses
from penstock.cli.rendering.times import counted
from penstock.errors import PenstockError
from penstock.formats.delta.cli.reading import delta_cat, delta_log
from penstock.formats.delta.cli.recovery import delta_recover
from penstock.formats.delta.lake.answers import CleanedLog, TableMade, TableStatus, WrittenFile
from penstock.lake.answers import Ratified


@group(
    "delta",
    prints=ListPage[TableStatus],
    examples="$ penstock delta",
)
@click.pass_context
def delta(ctx: click.Context) -> None:
    """Create, adopt, read, publish and look after Delta tables whose commits the lake decides.

    Other programs read such a table as ever, and see what is published. Without a subcommand, the tables of
    the default branch are listed, and how far each is published.
    """
    if ctx.invoked_subcommand is None:
        call = ctx.ensure_object(Call)
        _say_status(call, call.open().delta.status())


# -- in and out --------------------------------------------------------------------------------------------

sole_writer_option = click.option(
    "--sole-writer",
    is_flag=True,
    help="Say that nobody else writes there, for storage that lets files be overwritten.",
)


@delta.command(
    "create",
    prints=TableMade,
    examples="""
$ penstock delta create web.orders day:date customer:string amount:double --partition-by day
$ penstock delta create web.visits page:string seconds:double --location ./lake/warehouse/visits
""",
)
@key_argument
@click.argument("columns_", metavar="NAME:TYPE...", nargs=-1, required=True)
@click.option("--partition-by", metavar="NAME", multiple=True, help="A column to keep files apart by.")
@click.option(
    "--property", "properties", metavar="NAME=VALUE", multiple=True, help="Such as delta.appendOnly=true."
)
@click.option("--location", metavar="PATH", help="Where it is to be. [a place of its own in the warehouse]")
@sole_writer_option
@branch_option
@message_option
@key_option
@pass_call
def delta_create(
    call: Call,
    key: str,
    columns_: tuple[str, ...],
    partition_by: tuple[str, ...],
    properties: tuple[str, ...],
    location: str | None,
    sole_writer: bool,
    branch: str | None,
    message: str | None,
    idempotency_key: str | None,
) -> None:
    """Create the empty Delta table KEY with these columns.

    TYPE is one of Delta's: string, long, integer, short, byte, double, float, boolean, date, timestamp,
    timestamp_ntz, binary, decimal(10,2).
    """
    from penstock.formats.rows.schema import Field, StructType

    fields = []
    for column in columns_:
        name, colon, kind = column.rpartition(":")
        if not colon or not name:
            raise click.UsageError(f"{column!r} is not a column; write it as NAME:TYPE")
        fields.append(Field(name=name, type=kind, nullable=True))
    made = call.open().delta.create_empty(
        key,
        StructType(tuple(fields)),
        partition_by=partition_by,
        properties=_properties(properties),
        location=location,
        sole_writer=sole_writer,
        branch=branch,
        message=message,
        author=call.who,
        idempotency_key=idempotency_key,
    )
    _say_made(call, made, "created")


def _properties(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals:
            raise click.UsageError(f"{one!r} is not a property; write it as NAME=VALUE")
        found[name] = value
    return found


@delta.command("release", prints=TableMade, examples="$ penstock delta release web.visits")
@key_argument
@message_option
@key_option
@pass_call
def delta_release(call: Call, key: str, message: str | None, idempotency_key: str | None) -> None:
    """Hand the Delta table KEY back to the file system, with all its versions published.

    The table stays where it is and any Delta writer may commit to it again; the lake does not have it any
    more. Needs the right to administer the lake.
    """
    lake = call.open(catch_up=True)
    made = lake.delta.release(key, message=message, author=call.who, idempotency_key=idempotency_key)
    _say_made(call, made, "released")


@delta.command(
    "adopt",
    prints=TableMade,
    examples="$ penstock delta adopt ./lake/warehouse/visits --table web.visits",
)
@click.argument("path", metavar="PATH")
@click.option(
    "--table",
    "key",
    metavar="KEY",
    shell_complete=complete_key,
    help="What it is to be called in the lake. [the last part of PATH]",
)
@sole_writer_option
@message_option
@key_option
@pass_call
def delta_adopt(
    call: Call,
    path: str,
    key: str | None,
    sole_writer: bool,
    message: str | None,
    idempotency_key: str | None,
) -> None:
    """Take over the Delta table at PATH, which so far got its commits from the file system.

    It stays where it is, with all its versions, and must lie below a root of the lake. From then on, its
    commits go through the lake; programs that do not know this can read it, and are refused as writers.
    """
    made = call.open().delta.adopt(
        path,
        key,
        sole_writer=sole_writer,
        message=message,
        author=call.who,
        idempotency_key=idempotency_key,
    )
    _say_made(call, made, "adopted")


def _say_made(call: Call, made: TableMade, done: str) -> None:
    def text(screen: Screen) -> Iterator[str]:
        name, place = screen.paint(printable(str(made.key)), "strong"), printable(made.location)
        commit = screen.paint(short(made.commit), "id")
        if made.repeated:
            yield f"{name} is {done} already, and at version {made.version}"
        else:
            yield f"{done} {name} with version {made.version} (commit {commit})"
        yield f"  {place}"

    call.answer(lambda: made, text)


# -- publishing --------------------------------------------------------------------------------------------


@delta.command(
    "status", prints=ListPage[TableStatus], examples="$ penstock delta status\n$ penstock delta status --json"
)
@click.argument("key", required=False, metavar="[KEY]", shell_complete=complete_key)
@pass_call
def delta_status(call: Call, key: str | None) -> None:
    """Show how far the Delta tables of the default branch are published: all, or KEY."""
    _say_status(call, call.open().delta.status(key))


def _say_status(call: Call, found: Sequence[TableStatus]) -> None:
    call.answer(
        lambda: ListPage.of(found),
        lambda screen: _statuses(screen, found),
    )


def _statuses(screen: Screen, found: Sequence[TableStatus]) -> Iterator[str]:
    lines = [
        StatusLine(
            table,
            version=f"v{table.latest_version}",
            done="published",
            to_do="publish",
            phase="" if table.phase == "owned" else table.phase,
        )
        for table in found
    ]
    nothing = "no Delta tables. 'penstock delta create' makes one, 'penstock delta adopt' takes one over"
    return statuses(screen, lines, nothing)


@delta.command(
    "publish",
    prints=ListPage[TableStatus],
    examples="$ penstock delta publish\n$ penstock delta publish web.orders",
)
@click.argument("key", required=False, metavar="[KEY]", shell_complete=complete_key)
@pass_call
def delta_publish(call: Call, key: str | None) -> None:
    """Publish what is ratified: all Delta tables of the default branch, or KEY.

    The lake does so by itself; this is for when it was interrupted, or storage was away. A problem with one
    table does not stop the others.
    """
    lake, problems = call.open(), list[PenstockError]()
    if key is not None:
        lake.delta.publish(key)
    else:
        problems = [one for _, one in lake.delta.publish_each() if isinstance(one, PenstockError)]
    found = lake.delta.status(key)
    call.answer(
        lambda: ListPage.of(found),
        lambda screen: _statuses(screen, found),
    )
    for one in problems[1:]:
        call.note(one.message)
    if problems:
        raise problems[0]


# -- looking after the log ---------------------------------------------------------------------------------


@delta.command("checkpoint", prints=WrittenFile, examples="$ penstock delta checkpoint web.orders")
@key_argument
@pass_call
def delta_checkpoint(call: Call, key: str) -> None:
    """Write a checkpoint of KEY's newest published version, so that readers need not read all before it."""
    _say_written(call, call.open().delta.checkpoint(key), "there is a checkpoint of")


@delta.command("compact-log", prints=WrittenFile, examples="$ penstock delta compact-log web.orders")
@key_argument
@click.option(
    "--first", type=int, metavar="VERSION", help="Begin with this one. [the one after the newest checkpoint]"
)
@click.option("--last", type=int, metavar="VERSION", help="End with this one. [the newest that is published]")
@pass_call
def delta_compact_log(call: Call, key: str, first: int | None, last: int | None) -> None:
    """Compact published commits of KEY's log into one file. Data files stay."""
    _say_written(call, call.open().delta.compact_log(key, first, last), "nothing to compact up to")


def _say_written(call: Call, written: WrittenFile, nothing: str) -> None:
    def text(_: Screen) -> Iterator[str]:
        yield f"wrote {written.name}" if written.name else f"{nothing} version {written.version}"

    call.answer(lambda: written, text)


@delta.command("repair", prints=Ratified | None, examples="$ penstock delta repair web.orders")
@key_argument
@branch_option
@message_option
@pass_call
def delta_repair(call: Call, key: str, branch: str | None, message: str | None) -> None:
    """Repair metadata of the Delta table KEY that other engines refuse, if Penstock 0.1 wrote it.

    Its protocol gets the features that its columns and properties enable; without them Delta Spark says
    DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH. Statistics of its files that end at -0.0 end at 0.0, since
    DuckDB leaves out rows otherwise. It is one version more, without rows; none, if nothing is amiss.
    """
    done = call.open().delta.repair(key, branch=branch, message=message, author=call.who)

    def text(screen: Screen) -> Iterator[str]:
        name = screen.paint(printable(key), "strong")
        if done is None:
            yield f"nothing is amiss with {name}"
        else:
            commit = screen.paint(short(done.commit.id), "id")
            yield f"repaired {name} with version {done.version} (commit {commit})"

    call.answer(lambda: done, text)


@delta.command("clean-log", prints=CleanedLog, examples="$ penstock delta clean-log web.orders --dry-run")
@key_argument
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@pass_call
def delta_clean_log(call: Call, key: str, dry_run: bool) -> None:
    """Remove expired versions and unused commit files from the log of the Delta table KEY.

    Data files stay: they are for 'penstock sweep'. What a kept commit of the lake still needs stays, too:
    'penstock horizon' says how many are kept.
    """
    cleaned = call.open().delta.clean_log(key, dry_run=dry_run)

    def text(screen: Screen) -> Iterator[str]:
        word = "would remove" if dry_run else "removed"
        yield f"{word} {counted(len(cleaned.names), 'file')} of {screen.paint(printable(key), 'strong')}"
        yield from (f"  {printable(name)}" for name in cleaned.names)

    call.answer(lambda: cleaned, text)


delta.add_command(delta_log)
delta.add_command(delta_cat)
delta.add_command(delta_recover)
