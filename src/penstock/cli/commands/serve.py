"""Serving a lake to programs on other machines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar, get_type_hints

import click
import msgspec

from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import declare_command
from penstock.cli.rendering.screen import Screen
from penstock.errors import InvalidRequest
from penstock.model import decoders
from penstock.server.limits import Limits
from penstock.server.logs import LogLevel
from penstock.server.options import ServerOptions

F = TypeVar("F", bound=Callable[..., Any])

DEV_LAKE: Final = "./lake"
WORKERS_MAX: Final = 64
DRAIN_MAX_S: Final = 3600
SWEEP_MAX_HOURS: Final = 24 * 366
VARIABLE: Final = "PENSTOCK_SERVE_"
LIMITS: Final = {
    "body_max_bytes": "Bytes of a request's body.",
    "operations_max": "Operations of a request.",
    "page_max": "Items that are asked for at once.",
    "request_timeout_s": "Seconds until a request is answered.",
    "expectation_timeout_s": "Seconds that a query of an expectation takes; 0: two thirds of a request's.",
    "body_timeout_s": "Seconds until a request has arrived.",
    "open_requests_max": "Requests at the same time, in each worker.",
    "row_workers": "Processes that work on rows, for each worker; 0: one more than cores, at least 3.",
    "row_memory_max_bytes": "Bytes of memory of each process that works on rows.",
    "row_timeout_s": "Seconds of work on the rows of a request.",
    "row_queue_max": "Requests that wait for a row worker.",
    "caller_requests_max": "Of these, requests of one caller.",
    "long_reads_max": "Reads that compute for long at the same time, in each worker.",
    "connections_max": "Connections at the same time, in each worker.",
    "address_connections_max": "Of these, connections of one address.",
}


def _require_between(lowest: int, highest: int) -> Callable[[click.Context, click.Parameter, float], float]:
    def check_value(ctx: click.Context, param: click.Parameter, value: float) -> float:
        if not lowest <= value <= highest:
            raise click.BadParameter(f"must be between {lowest} and {highest:,}, got {value}", ctx, param)
        return value

    return check_value


check_port: Final = _require_between(0, 65535)


def _limit_options(f: F) -> F:
    """An option and a variable for every limit."""
    default = Limits()
    for name, what in reversed(LIMITS.items()):
        value = getattr(default, name)
        f = click.option(
            f"--{name.replace('_', '-')}",
            type=type(value),
            default=value,
            envvar=VARIABLE + name.upper(),
            metavar="SECONDS" if name.endswith("_s") else "COUNT",
            help=f"{what} [{value:g}]" if isinstance(value, float) else f"{what} [{value:,}]",
        )(f)
    return f


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server that answers requests."""

    lake: str
    """The lake that it serves, without secrets."""
    url: str
    """Where it is."""
    workers: int
    """How many processes serve."""


@declare_command(
    "serve",
    prints=Server,
    examples="""
$ penstock serve --dev --port 0 &
$ penstock serve --lake ./lake --port 0 --workers 2 --request-timeout-s 60 &
""",
)
@click.option("--dev", is_flag=True, help="Serve this machine only, without tokens. [the lake: ./lake]")
@click.option(
    "--host",
    default="127.0.0.1",
    envvar=f"{VARIABLE}HOST",
    metavar="ADDRESS",
    help="Where to listen. [127.0.0.1]",
)
@click.option(
    "--port",
    type=int,
    callback=check_port,
    default=19120,
    envvar=f"{VARIABLE}PORT",
    metavar="PORT",
    help="The port; 0 chooses a free one. [19120]",
)
@click.option(
    "--workers",
    type=int,
    callback=_require_between(1, WORKERS_MAX),
    default=1,
    envvar=f"{VARIABLE}WORKERS",
    metavar="COUNT",
    help="Processes that serve. [1]",
)
@click.option("--insecure", is_flag=True, help="Allow every caller every operation, without tokens.")
@_limit_options
@click.option(
    "--drain-timeout-s",
    type=float,
    callback=_require_between(0, DRAIN_MAX_S),
    default=30.0,
    envvar=f"{VARIABLE}DRAIN_TIMEOUT_S",
    metavar="SECONDS",
    help="How long to wait for open requests when the server stops. [30]",
)
@click.option(
    "--sweep-every-hours",
    type=float,
    callback=_require_between(0, SWEEP_MAX_HOURS),
    default=24.0,
    envvar=f"{VARIABLE}SWEEP_EVERY_HOURS",
    metavar="HOURS",
    help="How often the lake is swept in the background; 0 for never. [24]",
)
@click.option(
    "--sweep-data",
    is_flag=True,
    envvar=f"{VARIABLE}SWEEP_DATA",
    help="Also remove data files of tables then that no commit names, as 'penstock sweep --remove-data'.",
)
@click.option(
    "--log-level",
    type=click.Choice(("debug", "info", "warning", "error")),
    default="info",
    envvar=f"{VARIABLE}LOG_LEVEL",
    help="What is logged on standard error; a line for every request at 'info'. [info]",
)
@pass_call
def serve(
    call: CommandContext,
    /,
    dev: bool,
    host: str,
    port: int,
    workers: int,
    insecure: bool,
    drain_timeout_s: float,
    sweep_every_hours: float,
    sweep_data: bool,
    log_level: str,
    **limits: Any,
) -> None:
    """Serve a lake over HTTP: Penstock's own API, Nessie's and Lance's.

    Programs connect with 'penstock.open("http://…")', commands with '--lake http://…', Nessie clients with
    /api/v1 and /api/v2, and clients of Lance and LanceDB with /lance. The web page is at /ui/; the address
    itself shows a page that lists all of these. SIGTERM and Ctrl-C let open requests finish; a second one
    ends the server at once.

    Callers need a token, which 'penstock token create' makes, unless the server runs with --dev or
    --insecure. Options with a value can also be set as environment variables: PENSTOCK_SERVE_PORT is --port.
    For TLS, put a proxy in front of the server.
    """
    lake = (call.lake_address or DEV_LAKE) if dev else call.lake_target
    run_server(
        partial(_announce_server, call, host, workers),
        lake=lake,
        host=host,
        port=port,
        workers=workers,
        is_dev=dev,
        is_insecure=insecure,
        limits=_parse_limits(limits),
        drain_timeout_s=drain_timeout_s,
        sweep_every_hours=sweep_every_hours,
        sweep_data=sweep_data,
        log_level=log_level,
    )


def run_server(announce: Callable[[str, str], None], *, log_level: str, **options: Any) -> None:
    """Serve until a signal comes. ``announce`` is told the lake's place and the address of the server."""
    try:
        from penstock.server import run
    except ModuleNotFoundError as missing:
        raise InvalidRequest(
            f"serving needs the library {missing.name}: pip install 'penstock[server]'", extra="server"
        ) from None
    serving = ServerOptions(log_level=LogLevel(log_level), logs_for_people=sys.stderr.isatty(), **options)
    run.serve_lake(serving, announce)


def _parse_limits(options: dict[str, Any]) -> Limits:
    try:
        return decoders.convert_value(options, Limits)
    except msgspec.ValidationError as problem:
        name = str(problem).rpartition("$.")[2].rstrip("`")
        raise click.BadParameter(
            f"{options[name]} is not {_describe_range(name)}", param_hint=f"--{name.replace('_', '-')}"
        ) from None


def _describe_range(name: str) -> str:
    """What a limit may be, in words."""
    [bounds] = get_type_hints(Limits, include_extras=True)[name].__metadata__
    most = f" and up to {bounds.le:,}" if bounds.le is not None else ""
    return f"above {bounds.gt}{most}" if bounds.gt is not None else f"{bounds.ge:,} or more{most}"


def _announce_server(call: CommandContext, host: str, workers: int, place: str, url: str) -> None:
    """Say that it serves, in one line: whoever waits for it reads a line, since the output goes on."""
    if call.json:
        answer = Server(lake=place, url=url, workers=workers)
        print(msgspec.json.encode(answer).decode(), flush=True)
        return
    everywhere = " to every network of this machine, here" if host in ("0.0.0.0", "::") else ""
    where = Screen.of_stream(sys.stdout).style(url, "strong")
    print(f"Penstock serves {place}{everywhere} at {where}", flush=True)
