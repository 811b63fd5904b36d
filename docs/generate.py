"""Write the reference pages that are made from the code: commands, errors, configuration, metrics.

``make docs`` runs this; a test fails if a page is not what this would write.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import click

from docs.advice import ADVICE
from docs.delta_features import features_page
from docs.delta_pairs import pairs_section
from docs.generate_api import API_STRUCTS, api_page, struct_section, structs_in, type_text
from docs.generate_python import python_page
from penstock import errors
from penstock.cli import environment
from penstock.cli.command_declaration import DeclaredCommand, list_shared_options
from penstock.cli.contents import SHORT_NAMES
from penstock.cli.rendering.times import format_size
from penstock.cli.root import EXIT_STATUSES, SECTIONS, penstock
from penstock.formats.registry import list_format_metrics
from penstock.kernel import commit
from penstock.kernel.grace_periods import GracePeriods
from penstock.kernel.settings import Settings
from penstock.metrics.meter import BRANCHES_MAX, OTHER
from penstock.metrics.table import METRICS, REQUESTS_A_BATCH, SECONDS
from penstock.model import commits, content, keys, names, objects

REFERENCE = Path(__file__).parent / "reference"
GENERATED = "<!-- Written by docs/generate.py: `make docs`. Do not edit. -->\n"


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """A Markdown table, and a blank line after it."""
    titles = list(header)
    yield f"| {' | '.join(titles)} |"
    yield f"|{'---|' * len(titles)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    yield ""


def attribute_docs(module: ModuleType) -> dict[str, dict[str, tuple[str, str]]]:
    """For each class of a module, its own annotated attributes with annotation and docstring."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if not isinstance(node, ast.ClassDef):
            continue
        attributes = found.setdefault(node.name, {})
        for statement, after in zip(node.body, [*node.body[1:], None], strict=True):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                text = ""
                if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                    text = " ".join(str(after.value.value).split())
                attributes[statement.target.id] = (ast.unparse(statement.annotation), text)
    return found


# -- commands ----------------------------------------------------------------------------------------------

API = "api.md"
"""Where the answers of calls are described, which most commands print."""

COMMANDS_INTRODUCTION = """
# Commands

`penstock COMMAND --help` says in a terminal what this page says.

**Which lake.** `--lake PATH`, else `PENSTOCK_LAKE`, else the current directory if it is a lake. PATH is a
directory, the URL of a [store](../guide/stores.md), or the address of a [server](../guide/remote.md). Where
there is no lake yet, the first command that writes makes one, in a new or an empty directory; so do `init`
and `serve --dev`. Commands that read never do.

**Revisions.** Where a revision is asked for: a branch, a tag, a commit id (its first 8 digits are enough),
`main@<commit>`, and any number of steps from there: `main~3` (three commits before), `main^2` (the second
parent, that is what was merged), `main*2026-11-01T00:00:00Z` (the newest commit not after that time). Without
one, the default branch is meant.

**Keys.** `sales.orders`; an element that contains a dot stands in double quotes: `'sales."2026.11"'`.

**For programs.** `--json` answers with one [object](#objects) on standard output. Errors go to standard
error then, as [the API](api.md) writes them: `{"error": …}`. Nothing ever asks a question. Colours and
progress are for terminals only.
"""

EXAMPLES_LAKE = """
## The lake of the examples

The examples below run from top to bottom on this lake:

```console
$ export PENSTOCK_LAKE=$PWD/lake PENSTOCK_AUTHOR=ada
$ penstock put sales.orders --type iceberg metadata_location=s3://bucket/orders/v1.json -m 'first load'
$ penstock put sales.orders --type iceberg metadata_location=s3://bucket/orders/v2.json -m 'nightly load'
$ penstock branch create dev
$ penstock put sales.returns --type delta last_checkpoint=s3://bucket/returns/10 --branch dev -m 'returns'
$ penstock branch create fix --at main~1
$ penstock put sales.orders --type iceberg metadata_location=s3://bucket/orders/v2b.json --branch fix -m mend
$ penstock branch create hotfix
$ penstock put sales.customers --type lance --branch hotfix -m 'customers'
$ penstock delta create shop.items id:long price:double
$ printf 'id,price\\n7,12.5\\n8,3.0\\n' > new-items.csv
```
"""


def commands_page() -> Iterator[str]:
    yield from COMMANDS_INTRODUCTION.strip().splitlines()
    yield ""
    yield "**Exit status.**"
    yield ""
    yield from table(("status", "meaning"), ((str(code), text) for code, text in EXIT_STATUSES.items()))
    yield "130 after Ctrl-C, 141 if whoever reads the output has gone. Of each error: [errors](errors.md)."
    yield ""
    yield "## Options of every command"
    yield ""
    yield "They are accepted before and after the command; the last one counts."
    yield ""
    yield from _options(list_shared_options())
    yield from EXAMPLES_LAKE.strip().splitlines()
    yield ""
    context = click.Context(penstock, info_name="penstock")
    for title, section in SECTIONS.items():
        yield f"## {title}"
        yield ""
        for name in section:
            found = penstock.get_command(context, name)
            assert isinstance(found, DeclaredCommand)
            yield from _command(found, click.Context(found, parent=context, info_name=name))
    yield from _objects()


def _command(command: DeclaredCommand, context: click.Context) -> Iterator[str]:
    yield f"### {context.command_path}"
    yield ""
    usage = " ".join(["`" + context.command_path, *command.collect_usage_pieces(context)]) + "`"
    yield usage
    yield ""
    yield from _help(command)
    taken = {option.name for option in list_shared_options()}
    own = [param for param in command.params if isinstance(param, click.Option) and param.name not in taken]
    if own:
        yield from _options(own)
    if command.examples:
        yield from ("```console", *command.examples.splitlines(), "```", "")
    if command.prints is not None:
        yield f"With `--json`: {type_text(command.prints, API)}."
        yield ""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert isinstance(found, DeclaredCommand)
            yield from _command(found, click.Context(found, parent=context, info_name=name))


def _help(command: click.Command) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
        if paragraph.startswith("\b"):
            yield from ("```text", *paragraph.removeprefix("\b").strip("\n").splitlines(), "```", "")
        else:
            yield " ".join(paragraph.split())
            yield ""


def _options(options: Iterable[click.Option]) -> Iterator[str]:
    rows = []
    for option in options:
        record = option.get_help_record(click.Context(click.Command("any")))
        if record is not None:
            rows.append((f"`{record[0]}`", " ".join(record[1].replace("<", "&lt;").split())))
    return table(("option", "meaning"), rows)


OBJECTS_INTRODUCTION = """
## Objects

Most commands print the answer of a call, just as [the API](api.md#objects) gives it; these are made by the
command line of several of them. Ids are whole, times are ISO 8601 in UTC, keys are written as on the command
line (`sales.orders`). What is not there is `null`. Fields may be added later; ignore those that you do not
know.
"""


def _objects() -> Iterator[str]:
    yield from OBJECTS_INTRODUCTION.strip().splitlines()
    yield ""
    yield from _contents()
    printed = set(structs_in(command.prints for command in _declared(penstock))) - API_STRUCTS
    for struct in sorted(printed, key=lambda struct: struct.__name__):
        yield from struct_section(struct, struct.__name__, API)


def _declared(command: click.Command) -> Iterator[DeclaredCommand]:
    """A command and all below it."""
    assert isinstance(command, DeclaredCommand)
    yield command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _declared(found)


def _contents() -> Iterator[str]:
    yield "### Contents"
    yield ""
    yield (
        'A content is `{"type": "ICEBERG_TABLE", "id": …, "metadata_location": …}`: its type, its id and its '
        "fields. Bytes are written in base64, ids of objects in hexadecimal digits. What is printed can be "
        "put again. A type that this version does not know is kept as it is, with its name in `type_name` "
        "and its bytes in `payload`."
    )
    yield ""
    short = {name: alias for alias, name in SHORT_NAMES.items()}
    rows = []
    for name, kind in content.load_content_types().items():
        fields = [field for field in kind.__struct_fields__ if field != "id"]
        rows.append(
            (f"`{name}`", f"`{short[name]}`" if name in short else "", ", ".join(f"`{f}`" for f in fields))
        )
    yield from table(("type", "short", "fields"), rows)


# -- errors ------------------------------------------------------------------------------------------------


def errors_page() -> Iterator[str]:
    yield "# Errors"
    yield ""
    yield (
        "Every error is a class in `penstock.errors`, grouped by what the caller should do about it. `code` "
        "is stable and meant for programs; the exit status is the command line's, the HTTP one a server's. "
        "`details` hold the facts."
    )
    yield ""
    drawn = dedent((errors.__doc__ or "").split("::")[1].split("\n\n")[1])
    yield from ("```text", *drawn.splitlines(), "```", "")
    for group in _below(errors.PenstockError):
        todo = re.search(rf"^[├└]── {group.__name__} +(.+)$", drawn, re.MULTILINE)
        yield f"## {group.__name__}: {todo[1]}" if todo else f"## {group.__name__}"
        yield ""
        yield _meaning(group)
        yield ""
        yield from table(
            ("error", "code", "exit status", "HTTP status", "meaning"),
            (
                (
                    f"{'↳ ' * depth}`{one.__name__}`",
                    f"`{one.code}`",
                    str(one.exit_code),
                    str(one.http_status),
                    _meaning(one),
                )
                for depth, one in _tree(group)
            ),
        )
    yield from _advice()


ADVICE_INTRODUCTION = """
## What following the advice of a message does

Messages say what to do. Following them loses no row that was acknowledged, unless the tables below say which
go. A test follows each of them. `…` stands for what a message puts in.
"""


def _advice() -> Iterator[str]:
    yield from ADVICE_INTRODUCTION.strip().splitlines()
    yield ""
    for title, entries in ADVICE.items():
        yield f"### {title}"
        yield ""
        yield from table(
            ("a message says", "following it"),
            (
                (
                    "<br>".join(f"“{re.sub(chr(123) + '.*?' + chr(125), '…', part)}”" for part in one.says),
                    one.does,
                )
                for one in entries
            ),
        )


def _tree(
    error: type[errors.PenstockError], depth: int = 0
) -> Iterator[tuple[int, type[errors.PenstockError]]]:
    yield depth, error
    for below in _below(error):
        yield from _tree(below, depth + 1)


def _below(error: type[errors.PenstockError]) -> list[type[errors.PenstockError]]:
    """Its subclasses in the tree; those of tests and plug-ins are not part of the reference."""
    return [below for below in error.__subclasses__() if below.__module__ == errors.__name__]


def _meaning(kind: type) -> str:
    paragraph = (kind.__doc__ or "").strip().partition("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", "`")


# -- configuration -----------------------------------------------------------------------------------------

CONFIGURATION_INTRODUCTION = """
# Configuration

A lake works as it is. What can be chosen is chosen at one of five places:

- **When a lake is made**, for ever: its default branch and its warehouse (`penstock init`).
- **At any time**, for all who use it: further places for tables (`penstock root`; see
  [access](../guide/access.md#where-tables-may-be)), tokens (`penstock token`), how much history is kept
  (`lake.keep_history`, `penstock horizon`; see [care](../guide/care.md#horizons)), and how long sweeps leave
  alone what nothing needs (`lake.set_grace`, `penstock grace`; see [care](../guide/care.md#grace-periods)).
- **When it is opened**, for one process: the settings below.
- **When a server is started**: its [limits](../guide/server.md#limits).
- **In the environment**: the variables below.

## Settings

```python
import penstock

lake = penstock.open("memory:", settings=penstock.Settings(write_timeout_s=30.0, batch_max=64))
assert lake.kernel.settings.batch_max == 64
lake.close()
```

A unit ends each name. `penstock sweep` takes those that a sweep needs as options.
"""

FIXED_LIMITS: list[tuple[ModuleType, str, str]] = [
    (keys, "ELEMENTS_MAX", "Elements of a key."),
    (keys, "LENGTH_MAX_CHARS", "Characters of a key, dots included."),
    (names, "NAME_MAX_CHARS", "Characters of a branch's or tag's name."),
    (content, "CONTENT_MAX_BYTES", "Bytes of a content."),
    (commit, "OPERATIONS_MAX", "Operations of a commit."),
    (commits, "MESSAGE_MAX_CHARS", "Characters of a commit's message."),
    (commits, "PROPERTIES_MAX_CHARS", "Characters of a commit's properties."),
    (commits, "AUTHOR_MAX_CHARS", "Characters of an author."),
    (objects, "OBJECT_MAX_BYTES", "Bytes of an object in the store; larger values are split."),
]


def configuration_page() -> Iterator[str]:
    yield from CONFIGURATION_INTRODUCTION.strip().splitlines()
    yield ""
    settings, module = Settings(), inspect.getmodule(Settings)
    assert module is not None
    described = attribute_docs(module)[Settings.__name__]
    yield from table(
        ("setting", "default", "meaning"),
        ((f"`{name}`", _value(name, getattr(settings, name)), text) for name, (_, text) in described.items()),
    )
    yield "## Environment variables"
    yield ""
    yield "The command line reads all of these; programs in Python read those that a server asks for."
    yield ""
    yield from table(
        ("variable", "read by", "meaning"),
        (
            (
                f"`{name}`",
                "commands, Python" if name in environment.FOR_PROGRAMS_TOO else "commands",
                text,
            )
            for name, text in environment.MEANINGS.items()
        ),
    )
    yield (
        "`penstock serve` takes every option that has a value from a variable as well, if the option is not "
        "given; what they mean is with the [command](cli.md#penstock-serve)."
    )
    yield ""
    yield from table(("variable", "option"), _serve_variables())
    yield (
        "The libraries of the stores read variables of their own, for programs too: passwords, keys, "
        "regions. They are named with each [store](../guide/stores.md)."
    )
    yield ""
    yield "## Limits that are fixed"
    yield ""
    yield "What exceeds one is refused by name, and nothing is written."
    yield ""
    rows = ((text, _value(name, getattr(owner, name))) for owner, name, text in FIXED_LIMITS)
    yield from table(("of what", "at most"), rows)


def _serve_variables() -> Iterator[tuple[str, str]]:
    serve = penstock.get_command(click.Context(penstock), "serve")
    assert serve is not None
    for option in serve.params:
        if isinstance(option.envvar, str):
            yield f"`{option.envvar}`", f"`{option.opts[0]}`"


def _value(name: str, value: Any) -> str:
    """A value as it is written in code, and in words where these are easier to grasp."""
    if value is None:
        return "the lake's" if name in GracePeriods.__struct_fields__ else "`None`"
    if isinstance(value, bool):
        return f"`{value}`"
    if name.lower().endswith("_bytes"):
        return f"{value:,} ({format_size(value)})"
    if name.endswith("_s") and value >= 3600:
        return f"{value:g} ({timedelta(seconds=value) / timedelta(hours=1):g} hours)"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


# -- metrics -----------------------------------------------------------------------------------------------

METRICS_INTRODUCTION = """
# Metrics

What a lake tells a meter. How to hand it one, and what to look at, is in the [guide](../guide/metrics.md).
Names and labels are the same for Prometheus and OpenTelemetry. All figures are those of one process.
"""


_UNITS = {"s": "seconds", "By": "bytes"}


def metrics_page() -> Iterator[str]:
    yield from METRICS_INTRODUCTION.strip().splitlines()
    yield ""
    yield from table(
        ("metric", "type", "unit", "labels", "meaning"),
        (
            (
                f"`{metric.name}`",
                metric.type.value,
                _UNITS.get(metric.unit, metric.unit.strip("{}")),
                ", ".join(f"`{label}`" for label in metric.labels),
                metric.help,
            )
            for metric in (*METRICS, *list_format_metrics())
        ),
    )
    yield (
        f"Of branches, a meter shows the first {BRANCHES_MAX} that it meets by name; counts of all others "
        f"are added up as `{OTHER}`, and their gauges are left out."
    )
    yield ""
    yield "## Buckets"
    yield ""
    yield from table(
        ("of", "upper bounds"),
        (
            ("times", ", ".join(f"{bound:g}" for bound in SECONDS)),
            ("requests of a batch", ", ".join(f"{bound:g}" for bound in REQUESTS_A_BATCH)),
        ),
    )


# -- modules -----------------------------------------------------------------------------------------------

MODULES_INTRODUCTION = """
# Modules

What each module of `src/penstock` is, for those who change it: the first sentences of their own texts. How
they hang together: [architecture](../../ARCHITECTURE.md).
"""


def modules_page() -> Iterator[str]:
    yield from MODULES_INTRODUCTION.strip().splitlines()
    source = Path(errors.__file__).parent
    for folder in sorted({source, *(path.parent for path in source.rglob("__init__.py"))}):
        names = sorted(path for path in folder.glob("*.py") if path.stem != "__init__")
        if not names:
            continue
        yield ""
        yield f"## {folder.relative_to(source.parent).as_posix().removeprefix('penstock/')}"
        yield ""
        yield _first_paragraph(folder / "__init__.py")
        yield ""
        yield from table(("module", "is"), ((f"`{path.stem}`", _first_paragraph(path)) for path in names))


def _first_paragraph(path: Path) -> str:
    """What the docstring of a module begins with."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split()).replace("``", "`")


PAGES: dict[Path, Callable[[], Iterator[str]]] = {
    REFERENCE / "api.md": api_page,
    REFERENCE / "cli.md": commands_page,
    REFERENCE / "delta-features.md": features_page,
    REFERENCE / "errors.md": errors_page,
    REFERENCE / "configuration.md": configuration_page,
    REFERENCE / "metrics.md": metrics_page,
    REFERENCE / "modules.md": modules_page,
    REFERENCE / "python.md": python_page,
}


PARTS: dict[Path, Callable[[], Iterator[str]]] = {REFERENCE / "delta-rules.md": pairs_section}
"""The last section of a page that is written by hand: it begins with its heading."""


def with_part(text: str, part: Callable[[], Iterator[str]]) -> str:
    """A page with its last section as it is written to its file."""
    lines = [*part()]
    return text.partition(lines[0])[0] + "\n".join(lines).rstrip() + "\n"


def text_of(page: Callable[[], Iterator[str]]) -> str:
    """A page as it is written to its file."""
    return GENERATED + "\n" + "\n".join(page()).rstrip() + "\n"


def main() -> None:
    REFERENCE.mkdir(exist_ok=True)
    for path, page in PAGES.items():
        path.write_text(text_of(page), "utf-8")
        print(path.relative_to(Path(__file__).parent.parent))
    for path, part in PARTS.items():
        path.write_text(with_part(path.read_text("utf-8"), part), "utf-8")
        print(path.relative_to(Path(__file__).parent.parent))


if __name__ == "__main__":
    main()
