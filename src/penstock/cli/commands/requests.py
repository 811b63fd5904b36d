"""Requests: what became of one whose answer never came."""

from __future__ import annotations

from collections.abc import Iterator

import click

from penstock.cli import shapes
from penstock.cli.call import Call, pass_call
from penstock.cli.declaration import branch_option, command
from penstock.cli.rendering.history import short
from penstock.cli.rendering.screen import Screen
from penstock.errors import NotFound, ReferenceNotFound
from penstock.kernel.batch import Outcome, outcome_of
from penstock.kernel.settings import DAY_US
from penstock.lake.lake import Lake


@command(
    "outcome",
    prints="Outcome",
    examples="""
$ penstock put sales.orders --type iceberg metadata_location=s3://bucket/orders/v9.json --key load-9
$ penstock outcome load-9
""",
)
@click.argument("key", metavar="KEY")
@branch_option
@pass_call
def outcome(call: Call, key: str, branch: str | None) -> None:
    """Find out what became of the request with the idempotency key KEY, and the commits it made.

    For a request about a branch or tag itself (create, assign, delete, rebase), --branch is its name. Exit
    status 4 if it was not applied. A request in doubt can also be repeated under the same key.
    """
    lake = call.open()
    name = lake.branch(branch).name
    found = _committed(lake, name, key) or _moved(lake, name, key)
    commits = tuple(one.hex() for one in found.commits) if found is not None else ()

    def text(screen: Screen) -> Iterator[str]:
        if found is None:
            yield f"no request with key {key} was applied to {name}"
        elif not commits:
            yield f"applied to {name}, at {screen.paint(short(found.head.hex()), 'id')} then"
        else:
            yield f"applied to {name} as {', '.join(screen.paint(short(one), 'id') for one in commits)}"

    call.answer(
        lambda: shapes.Outcome(
            key=key,
            branch=name,
            applied=found is not None,
            commits=commits,
            head=found.head.hex() if found is not None else None,
        ),
        text,
    )
    if found is None:
        click.get_current_context().exit(NotFound.exit_code)


def _committed(lake: Lake, name: str, key: str) -> Outcome | None:
    try:
        return lake.kernel.outcome(name, key)
    except ReferenceNotFound:
        return None  # its log may still tell


def _moved(lake: Lake, name: str, key: str) -> Outcome | None:
    """What a request about the reference itself came to: that is in its log, also after it was deleted."""
    kernel = lake.kernel
    oldest_us = kernel.clock() - int(kernel.settings.idempotency_days * DAY_US)
    for _, entry in kernel.references.log(name):
        if entry.key == key:
            return outcome_of(kernel.objects, entry, key)
        if entry.time_us < oldest_us:
            break
    return None
