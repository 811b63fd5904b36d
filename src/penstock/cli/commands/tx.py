"""Transactions: which there are, how each stands, and ending those that their programs left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import click
import msgspec

from penstock.cli.answers import ListPage
from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import declare_group
from penstock.cli.completions import complete_branch, make_completer
from penstock.cli.id_prefixes import ID_CHARS, complete_id
from penstock.cli.rendering.contents import format_changes
from penstock.cli.rendering.history import first_message_line, shorten_id
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.text_columns import Row, StyledText, align_columns
from penstock.cli.rendering.times import format_age
from penstock.errors import (
    ConflictError,
    RequestError,
    TransactionNotFound,
    TransactionOver,
)
from penstock.lake.answers import Difference
from penstock.lake.lake import Lake
from penstock.lake.transactions.answers import TransactionInfo, TransactionLanded
from penstock.lake.transactions.calls import GetTransaction
from penstock.lake.transactions.steps import list_changes, list_steps
from penstock.model.commits import Commit
from penstock.model.reads import Read
from penstock.model.transactions import PREFIX, TransactionState

ABORTED = (
    "This aborted transaction {id} for good, and nothing of it was committed: run again what wrote in it."
)
SHOWN_MAX = 20
"""So many reads and steps are shown, newest first; --json has all."""
_STYLES = {TransactionState.COMMITTED: "good", TransactionState.ABORTED: "bad"}


class TransactionDetails(TransactionInfo, frozen=True, kw_only=True):
    """A transaction, with what it has done."""

    steps: tuple[Commit, ...]
    """The commits that were made in it, newest first; none of one that was aborted."""
    changes: tuple[Difference, ...]
    """What it changes, or has changed where it landed."""


@declare_group("tx", prints=ListPage[TransactionInfo], examples="$ penstock tx")
@click.pass_context
def tx(ctx: click.Context) -> None:
    """List, show, commit and abort transactions.

    Other readers see the writes of a transaction only when it lands, as one commit. Without a subcommand,
    open transactions are listed.
    """
    if ctx.invoked_subcommand is None:
        _show_transactions(
            ctx.ensure_object(CommandContext),
            _sort_newest_first(ctx.ensure_object(CommandContext).open_lake().transactions()),
        )


@tx.command(
    "list",
    prints=ListPage[TransactionInfo],
    examples="""
$ penstock tx list
$ penstock tx list --all --target main
""",
)
@click.option("--all", "also_ended", is_flag=True, help="Also list transactions that ended in the last days.")
@click.option(
    "--target", metavar="BRANCH", shell_complete=complete_branch, help="Only those with this target branch."
)
@pass_call
def tx_list(call: CommandContext, also_ended: bool, target: str | None) -> None:
    """List open transactions: their target branch, who began them, and when their lease ends."""
    _show_transactions(call, _sort_newest_first(call.open_lake().transactions(target, all=also_ended)))


def _sort_newest_first(transactions: Sequence[TransactionInfo]) -> list[TransactionInfo]:
    return sorted(transactions, key=lambda transaction: (transaction.begun, transaction.id), reverse=True)


def _complete_transaction_ids(lake: Lake, start: str) -> list[str]:
    return [transaction.id for transaction in lake.transactions() if transaction.id.startswith(start)]


@tx.command(
    "show",
    prints=TransactionDetails,
    examples="""
$ python -c "import penstock; penstock.open('lake').transaction(id='3f2a9c10' * 4)"
$ penstock tx show 3f2a9c10
""",
)
@click.argument("id", metavar="ID", shell_complete=make_completer(_complete_transaction_ids))
@pass_call
def tx_show(call: CommandContext, id: str) -> None:  # noqa: A002
    """Show the transaction ID: its state, what it read and changed, and its result.

    Its first 8 digits are enough.
    """
    lake = call.open_lake()
    info = lake.do(GetTransaction(id=_find_transaction_id(lake, id), reads=True))
    steps, changed = list_steps(lake, info), list_changes(lake, info)
    call.print_answer(
        lambda: TransactionDetails(
            **msgspec.structs.asdict(info), steps=tuple(steps), changes=tuple(changed)
        ),
        lambda screen: chain(
            _format_transaction(screen, info), _render_details(screen, info, steps, changed)
        ),
    )


@tx.command(
    "commit",
    prints=TransactionLanded,
    examples="""
$ penstock tx commit 3f2a9c10
""",
)
@click.argument("id", metavar="ID", shell_complete=make_completer(_complete_transaction_ids))
@click.option("-m", "--message", metavar="TEXT", help="Commit message.")
@pass_call
def tx_commit(call: CommandContext, id: str, message: str | None) -> None:  # noqa: A002
    """Commit the transaction ID, or finish a commit that its program began, and show the result.

    The command can be repeated: a transaction lands once.
    """
    lake = call.open_lake()
    transaction = lake.find_transaction(_find_transaction_id(lake, id))
    try:
        landed = transaction.land(message)
    except (ConflictError, RequestError) as refused:
        if not isinstance(refused, TransactionOver) and transaction.info.state is TransactionState.ABORTED:
            refused.message += f"\n  {ABORTED.format(id=transaction.id[:ID_CHARS])}"
        raise
    call.print_answer(lambda: landed, lambda screen: _format_transaction(screen, landed.info))


@tx.command(
    "abort",
    prints=ListPage[TransactionInfo],
    examples="""
$ penstock tx abort --late
""",
)
@click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=make_completer(_complete_transaction_ids))
@click.option("--late", is_flag=True, help="Abort all transactions whose lease has expired.")
@click.option("--why", metavar="TEXT", default="", help="The reason, shown to the program that began it.")
@pass_call
def tx_abort(call: CommandContext, ids: tuple[str, ...], late: bool, why: str) -> None:
    """Abort transactions, so that they never land. The first 8 digits of an ID are enough.

    The target branch does not change, and no reader ever sees the writes of the transaction. A committed
    transaction stays committed. One that is being committed cannot be aborted until 10 minutes after the
    commit began: the command says so, and ends with exit status 3.
    """
    if not ids and not late:
        raise click.UsageError(
            "give the ID of the transaction to abort, or --late to abort all whose lease has expired"
        )
    lake = call.open_lake()
    chosen = dict.fromkeys(_find_transaction_id(lake, start) for start in ids)
    if late:
        chosen |= {transaction.id: None for transaction in lake.transactions() if transaction.is_late}
    ended = [lake.find_transaction(transaction_id).abort(why) for transaction_id in chosen]
    _show_transactions(call, ended)
    if any(transaction.state is TransactionState.COMMITTED for transaction in ended):
        call.print_note("a transaction that has landed cannot be aborted; 'penstock revert' undoes a commit")
    if any(transaction.state is TransactionState.COMMITTING for transaction in ended):
        call.print_note(
            "one that is being committed can be aborted 10 minutes after that began, if it is stuck; "
            "'penstock tx commit ID' finishes it and shows the result"
        )
    if any(transaction.state is not TransactionState.ABORTED for transaction in ended):
        click.get_current_context().exit(ConflictError.exit_code)


def _find_transaction_id(lake: Lake, text: str) -> str:
    return complete_id(
        text.lower().removeprefix(PREFIX),
        "transactions",
        lambda: (transaction.id for transaction in lake.transactions(all=True)),
        lambda: TransactionNotFound(f"there is no transaction '{text}'", transaction=text),
    )


def _show_transactions(call: CommandContext, transactions: Sequence[TransactionInfo]) -> None:
    call.print_answer(
        lambda: ListPage.from_items(transactions),
        lambda screen: _format_transactions(screen, transactions),
    )


def _format_transactions(screen: Screen, transactions: Sequence[TransactionInfo]) -> Iterator[str]:
    if not transactions:
        yield "no transactions"
    yield from align_columns(
        screen, [_format_transaction_row(screen, transaction) for transaction in transactions], flexible=-1
    )


def _format_transaction_row(screen: Screen, transaction: TransactionInfo) -> Row:
    return [
        StyledText(transaction.id[:ID_CHARS], "id"),
        _format_state(transaction),
        StyledText(escape_controls(transaction.target), "name"),
        StyledText(shorten_id(transaction.commit) if transaction.commit else "", "id"),
        StyledText(f"begun {format_age(transaction.begun, screen.now)}", "dim"),
        escape_controls(transaction.who),
        escape_controls(
            transaction.why if transaction.state is TransactionState.ABORTED else transaction.message
        ),
    ]


def _format_state(transaction: TransactionInfo) -> StyledText:
    return StyledText(
        "late" if transaction.is_late else transaction.state.value,
        "warning" if transaction.is_late else _STYLES.get(transaction.state, ""),
    )


def _format_transaction(screen: Screen, transaction: TransactionInfo) -> Iterator[str]:
    by = f" by {escape_controls(transaction.who)}" if transaction.who else ""
    details: list[tuple[str, str | StyledText]] = [
        ("transaction", StyledText(transaction.id, "id")),
        ("state", _format_state(transaction)),
        ("target", StyledText(escape_controls(transaction.target), "name")),
        ("base", StyledText(shorten_id(transaction.base), "id")),
        ("policy", transaction.policy.value),
        ("isolation", transaction.isolation.value),
        ("begun", f"{format_age(transaction.begun, screen.now)}{by}"),
    ]
    if transaction.expires is not None:
        details.append(("idle until", f"{transaction.expires:%Y-%m-%d %H:%M:%S} UTC"))
    if transaction.ended is not None:
        details.append(("ended", format_age(transaction.ended, screen.now)))
    if transaction.state is TransactionState.COMMITTED:
        details.append(
            (
                "commit",
                StyledText(shorten_id(transaction.commit), "id")
                if transaction.commit
                else "none: nothing was written",
            )
        )
    details += [
        (name, escape_controls(text))
        for name, text in (("why", transaction.why), ("message", transaction.message))
        if text
    ]
    details += [
        ("property", f"{escape_controls(name)} = {escape_controls(value)}")
        for name, value in sorted(transaction.properties.items())
    ]
    yield from align_columns(
        screen, [[StyledText(name, "dim"), value] for name, value in details], flexible=-1
    )


def _render_details(
    screen: Screen, transaction: TransactionInfo, steps: Sequence[Commit], changed: Sequence[Difference]
) -> Iterator[str]:
    """What it has read and changed, and by which steps."""
    if transaction.reads:
        yield "read"
        yield from _limit_lines([f"  {_describe_read(read)}" for read in transaction.reads])
    if changed:
        yield "changed"
        yield from format_changes(screen, changed)
    if steps:
        yield "steps"
        yield from _limit_lines([f"  {shorten_id(step.id)}  {first_message_line(step)}" for step in steps])


def _limit_lines(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:SHOWN_MAX]
    if len(lines) > SHOWN_MAX:
        yield f"  and {len(lines) - SHOWN_MAX} more: --json has all"


def _describe_read(read: Read) -> str:
    where = "the lake" if read.key is None else escape_controls(str(read.key))
    if read.is_listing:
        return f"names in {where}" if read.key is None else f"names at {where}"
    return where if read.part is None else f"{where}: {escape_controls(read.part)}"
