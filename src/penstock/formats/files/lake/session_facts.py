"""What Spark reports of a write by code that knows only its session, and the job that follows from it.

A path or an option names the table. Spark's save mode counts only where it means what the lake would do: the
others are decided by a look at a path where the table has no files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.files.lake import save_job as files_save_job
from penstock.formats.files.lake.answers import TableLayout
from penstock.formats.files.lake.save_job import FilesJob
from penstock.lake.session_settings import OPTION, check_settings, parse_mapped_tables
from penstock.lake.write_jobs import SaveMode
from penstock.model.keys import Key
from penstock.storage.hadoop import HadoopPath, parse_hadoop_path

OPTIONS: Final = (
    *("table", "mode", "partition_overwrite", "branch", "message", "author"),
    *("job_id", "job_branch", "success_file", "timeout_s"),
)

_MODES: Final = {"Append": SaveMode.APPEND, "Overwrite": SaveMode.OVERWRITE}
_CREATES_TABLE: Final = re.compile("TableAsSelect|SaveAs.*Table")


class WriteFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What Spark knows of a write."""

    job: str
    """Spark's id of it, a UUID."""
    attempt: str
    """32 hexadecimal digits, made up for it."""
    path: str
    """Where the code wrote to: the whole URL."""
    home: str = ""
    """The file system that paths without a scheme are in."""
    tables: str = ""
    """The session's setting: an object of JSON, from paths to keys of tables."""
    options: dict[str, str] = {}
    """Of the write, by names in lower case."""
    mode: str = ""
    """Spark's save mode; empty if Spark does not pass on the details of the write."""
    is_skipped: bool = False
    """Whether Spark is about to do nothing, because something is at the path."""
    statement: str = ""
    """The name of the command, in Spark, that the user has started."""
    static_folder: str = ""
    """Of the partitions whose values are fixed, with a slash at its end."""
    if_not_exists: bool = False
    """The statement says IF NOT EXISTS of a partition."""
    partition_overwrite: str = "static"
    partition_by: tuple[str, ...] = ()
    format: str = ""
    schema: str = ""
    read: tuple[str, ...] = ()
    """What its rows come from: each table as `key@commit`, as far as that can be told."""
    application: str = ""
    application_name: str = ""
    settings: tuple[str, ...] = ()
    """The names of all settings of the session that are for the lake."""
    has_reads: bool = True
    """Whether reads of the session ask the lake, too."""


def find_job(facts: WriteFacts) -> FilesJob | None:
    """The job that a write is; ``None`` if it is to no table of the lake.

    ``InvalidRequest`` if it is to one, and Spark cannot be trusted with it.
    """
    check_settings(facts.settings)
    options = select_lake_options(facts.options, "write")
    table = _find_target(facts, options.get("table"))
    if table is None:
        check_table_named(options)
        return None
    key, folder = table
    if not facts.has_reads:
        raise InvalidRequest(
            f"this session could not read '{key}' at {facts.path} after the write: its Spark was started "
            "without Penstock's jar\n  Start Spark with the jar, as penstock.spark.session() does, or "
            "with --jars.",
            table=str(key),
        )
    mode = _parse_mode(facts, key, options.get("mode"))
    return FilesJob(
        key=key,
        branch=options.get("branch"),
        mode=mode,
        is_dynamic=mode is SaveMode.OVERWRITE and _is_dynamic(facts, options.get("partition_overwrite")),
        folder=folder,
        static_folder=facts.static_folder,
        layout=_make_layout(facts, folder),
        own_branch=_parse_boolean_option(options, "job_branch"),
        success_file=_parse_boolean_option(options, "success_file"),
        timeout_s=_parse_seconds(options.get("timeout_s")),
        application=facts.application,
        application_name=facts.application_name,
        message=options.get("message"),
        author=options.get("author"),
        read=facts.read,
    )


def select_lake_options(options: Mapping[str, str], verb: str, *more: str) -> dict[str, str]:
    """Of the options of a read or write those for the lake, by their names without the prefix.

    ``InvalidRequest`` for one that there is not: with a letter wrong, a write would pass the lake by.
    """
    lake_values = {
        name.lower().removeprefix(OPTION): value
        for name, value in options.items()
        if name.lower().startswith(OPTION)
    }
    if unknown := sorted(set(lake_values).difference(OPTIONS, more)):
        names = ", ".join(OPTION + name for name in (*OPTIONS, *more))
        raise InvalidRequest(
            f"unknown option '{OPTION}{unknown[0]}' for a {verb} of a table; the options are {names}"
        )
    return lake_values


def check_table_named(options: Mapping[str, str]) -> None:
    """``InvalidRequest`` if there are options for the lake where neither they nor a path name a table."""
    if options:
        raise InvalidRequest(
            f"the option '{OPTION}{min(options)}' is given, but no table: the path is not mapped to one\n  "
            f"Name the table by the option '{OPTION}table', or map the path: session(lake, "
            f"tables={{path: key}})."
        )


def _parse_mode(facts: WriteFacts, key: Key, mode_name: str | None) -> SaveMode:
    if not facts.mode:
        raise InvalidRequest(
            f"{facts.path} is mapped to '{key}' of the lake, and Spark does not pass on the details of a "
            "write of this kind\n  Write with df.write, batches of a stream too (foreachBatch), or with "
            "INSERT into a table that is not in a format of Hive.",
            table=str(key),
        )
    if _CREATES_TABLE.search(facts.statement):
        raise InvalidRequest(
            f"saveAsTable and CREATE TABLE AS read {facts.path} afterwards, where '{key}' has no files\n"
            "  Create the table with its columns and this location first, and insert into it: "
            "df.write.insertInto(…).",
            table=str(key),
        )
    if facts.if_not_exists:
        raise InvalidRequest(
            f"'{key}' does not support IF NOT EXISTS for a partition: leave it out", table=str(key)
        )
    if mode_name is not None:
        try:
            save_mode = SaveMode(mode_name.lower())
        except ValueError:
            raise InvalidRequest(
                f"unknown penstock.mode '{mode_name}'; the modes are {', '.join(SaveMode)}", table=str(key)
            ) from None
        if not facts.is_skipped:
            return save_mode
    if (mode := _MODES.get(facts.mode)) is not None:
        return mode
    meant = "ignore" if facts.mode == "Ignore" else "error"
    raise InvalidRequest(
        f"Spark decides mode '{meant}' by the files at {facts.path}, where '{key}' has no files\n  "
        f'Use .mode("append"), or .mode("append").option("penstock.mode", "{meant}"), which the '
        "lake decides when the job commits.",
        table=str(key),
    )


def _is_dynamic(facts: WriteFacts, mode_name: str | None) -> bool:
    mode = (mode_name if mode_name is not None else facts.partition_overwrite).lower()
    if mode not in ("static", "dynamic"):
        raise InvalidRequest(f"unknown partition overwrite mode '{mode}'; it must be static or dynamic")
    return mode == "dynamic" and facts.static_folder.count("/") < len(facts.partition_by)


def _make_layout(facts: WriteFacts, folder: str) -> TableLayout:
    above = tuple(part.partition("=")[0] for part in folder.split("/") if "=" in part)
    return TableLayout(
        format=facts.format,
        partition_by=(*above, *facts.partition_by),
        schema=facts.schema,  # without the columns whose values are in the path
        options=files_save_job.select_reader_options(facts.options),
    )


def _parse_boolean_option(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise InvalidRequest(f"{OPTION}{name} must be true or false, got '{options[name]}'")
    return text == "true"


def _parse_seconds(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        raise InvalidRequest(f"{OPTION}timeout_s must be a number of seconds, got '{text}'") from None


# -- which table -------------------------------------------------------------------------------------------


def _find_target(facts: WriteFacts, named: str | None) -> tuple[Key, str] | None:
    """The table that a write is to, and the folder of it."""
    if named is not None:
        return Key.parse(named), ""
    return find_table_at(facts.path, parse_mapped_tables(facts.tables, facts.home), facts.home)


def find_table_at(path: str, tables: Mapping[HadoopPath, Key], home: str = "") -> tuple[Key, str] | None:
    """The table that a path stands for, and the folder of it; the longest path that fits counts."""
    place = parse_hadoop_path(path, home)
    candidates = [
        (len(top.names), key, below)
        for top, key in tables.items()
        if (below := place.find_path_below(top)) is not None
    ]
    _, key, folder = max(candidates, default=(0, None, ""), key=lambda candidate: candidate[0])
    return None if key is None else (key, folder)
