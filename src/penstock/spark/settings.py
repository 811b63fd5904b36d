"""What a Spark session is told for a lake's sake. Whatever the user has decided stays as it is."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from penstock.lake.session_settings import parse_mapped_tables
from penstock.model.keys import Key
from penstock.spark.jar import (
    COMMIT_PROTOCOL,
    COMMIT_PROTOCOL_SETTING,
    STREAM_PROTOCOL,
    STREAM_PROTOCOL_SETTING,
)

LAKE: Final = "spark.penstock.lake"
"""The address of the lake that a session works with, without secrets."""
LAKE_ID: Final = "spark.penstock.lake.id"
"""The lake's own id, by which the process that made the session finds the lake it has open."""
TABLES: Final = "spark.penstock.tables"
"""Paths and the tables that writes there are for, as a JSON object."""
REF: Final = "spark.penstock.ref"
"""The revision that SQL reads, and the branch that it writes, where a statement names none."""
CATALOG: Final = "spark.sql.catalog."
"""How the setting begins that makes a name of SQL's stand for a catalog."""
CATALOG_NAME: Final = "lake"
TABLE_CATALOG: Final = "io.penstock.spark.PenstockCatalog"
"""A catalog with tables, in every Spark."""
RELATION_CATALOG: Final = "io.penstock.spark.PenstockRelationCatalog"
"""The same with views, in a Spark that lets catalogs have them."""
_FIRST_WITH_VIEWS: Final = (4, 2)
OF_LAKES: Final = (LAKE, LAKE_ID, TABLES, REF, CATALOG + CATALOG_NAME)
"""What sessions that are made of another one are told."""
SESSION_LAKE: Final = "sessionlake"
"""The option by which ``format("penstock")`` is told which lake its session works with."""

WRITES: Final = {
    # Spark's default is a type of 96 bits that has no usable statistics and that Parquet has given up.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
}
"""How Parquet files are written. May be set at any time, by and over Spark Connect too."""
PROTOCOLS: Final = {COMMIT_PROTOCOL_SETTING: COMMIT_PROTOCOL, STREAM_PROTOCOL_SETTING: STREAM_PROTOCOL}
"""By which writes ask the lake. Spark could not write at all with a protocol that it does not find."""

STARTS: Final = {
    "spark.ui.showConsoleProgress": "false",
}
"""What a Spark is started with. It has no effect on one that runs."""
ERROR_LOGS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Where PySpark writes every error of a query before it raises it, as JSON with a trace of Java's."""

JARS: Final = "spark.jars"
_DRIVER_OPTIONS: Final = "spark.driver.defaultJavaOptions"
_LOG_FILE: Final = "log4j2.configurationFile"


def find_catalog_class() -> str:
    """The class that makes a name of SQL's stand for a lake, in the Spark of this Python."""
    import pyspark

    numbers = tuple(int(number) for number in re.findall(r"\d+", pyspark.__version__)[:2])
    return RELATION_CATALOG if numbers >= _FIRST_WITH_VIEWS else TABLE_CATALOG


def of_writes(given: Mapping[str, str], has_classes: bool) -> dict[str, str]:
    """What a session's writes need beyond what is given; our protocols only where the classes are."""
    of_jar = {**PROTOCOLS, CATALOG + CATALOG_NAME: find_catalog_class()}
    write_settings = WRITES | (of_jar if has_classes else {})
    return {name: value for name, value in write_settings.items() if name not in given}


def of_start(given: Mapping[str, str], jar: Path | None, log_file: Path | None) -> dict[str, str]:
    """What only a Spark that is about to start can be told: its jars, what it logs, how it uses storage.

    Jars and options of the user's stay, ours come beside them. The option for the log goes where
    administrators set theirs, so that one in ``spark.driver.extraJavaOptions`` takes its place.
    """
    start_settings = {name: value for name, value in STARTS.items() if name not in given}
    theirs = [jar_path for jar_path in given.get(JARS, "").split(",") if jar_path]
    # Spark does not start with two jars of one name; the user's copy may lie elsewhere.
    if jar is not None and all(Path(jar_path).name != jar.name for jar_path in theirs):
        start_settings[JARS] = ",".join([*theirs, str(jar)])
    options = given.get(_DRIVER_OPTIONS, "")
    if log_file is not None and _LOG_FILE not in options:
        start_settings[_DRIVER_OPTIONS] = f"{options} -D{_LOG_FILE}={log_file.as_uri()}".strip()
    return start_settings


def settings_of_tables(tables: Mapping[str | os.PathLike[str], str]) -> dict[str, str]:
    """What a session is told of paths that stand for tables. ``InvalidRequest`` if one cannot.

    A path without a scheme that is no whole one is taken from this process's directory.
    """
    table_settings: dict[str, str] = {}
    for path_given, key in tables.items():
        path = os.fspath(path_given)
        whole = path if re.match(r"[A-Za-z][\w+.-]*:", path) else str(Path(path).absolute())
        table_settings[whole] = str(Key.parse(key))
    if not table_settings:
        return {}
    text = json.dumps(table_settings, sort_keys=True)
    parse_mapped_tables(text)
    return {TABLES: text}


def as_text(value: Any) -> str:
    """A value as Spark's settings and options spell it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def keep_errors_off_the_terminal() -> None:
    """Let PySpark raise errors of queries without printing them as well. Handlers of the user's stay.

    Done once in a process: whatever is set on these logs afterwards is the user's choice.
    """
    from pyspark.logger import PySparkLogger

    for name in ERROR_LOGS:
        # PySpark calls them in a way of its own, which the standard library's loggers do not take.
        log = PySparkLogger.getLogger(name)
        if any(type(handler) is logging.NullHandler for handler in log.handlers):
            continue
        for handler in [handler for handler in log.handlers if type(handler) is logging.StreamHandler]:
            log.removeHandler(handler)
        # A log without any handler would be printed all the same.
        log.addHandler(logging.NullHandler())


def given_by_files(spark_home: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What ``spark-defaults.conf`` says. Setting something in a program would take its place unseen."""
    file = _conf_directory(spark_home, environment) / "spark-defaults.conf"
    try:
        text = file.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    lines = (line.strip() for line in text.splitlines())
    pairs = (re.split(r"\s*[=:\s]\s*", line, maxsplit=1) for line in lines if line and line[0] not in "#!")
    return {pair[0]: pair[1] if len(pair) == 2 else "" for pair in pairs}


def has_own_log_file(spark_home: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether somebody has configured Spark's log on this machine."""
    return any(_conf_directory(spark_home, environment).glob("log4j2.*"))


def jars_of_command_line(environment: Mapping[str, str] = os.environ) -> list[str] | None:
    """The jars that ``PYSPARK_SUBMIT_ARGS`` names, which Spark takes instead of those in its settings."""
    words = shlex.split(environment.get("PYSPARK_SUBMIT_ARGS") or "pyspark-shell")
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "--jars":
            return following.split(",")
        if word.startswith("--jars="):
            return word.removeprefix("--jars=").split(",")
    return None


def _conf_directory(spark_home: str, environment: Mapping[str, str]) -> Path:
    return Path(environment.get("SPARK_CONF_DIR") or Path(spark_home, "conf"))
