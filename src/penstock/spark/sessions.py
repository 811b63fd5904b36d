"""Spark sessions that work with a lake: made here, or made by the user and told of it."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from penstock.errors import InvalidRequest
from penstock.lake.lake import Lake
from penstock.lake.session_settings import check_settings
from penstock.spark import driver, jar, settings
from penstock.spark.java import find_java
from penstock.spark.option_guard import guard_options
from penstock.spark.session_lakes import find_lake, keep_lake, lake_identity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_FILE: Final = Path(__file__).parent / "log4j2.properties"

_STARTING: Final = Lock()
_BESIDE: Final[WeakValueDictionary[str, SparkSession]] = WeakValueDictionary()
"""Sessions for further lakes in a Spark that ran already, by the lake's id."""


def session(
    lake: Lake | str | os.PathLike[str],
    *,
    app: str = "penstock",
    master: str | None = None,
    conf: Mapping[str, Any] | None = None,
    tables: Mapping[str | os.PathLike[str], str] | None = None,
) -> SparkSession:
    """Return a Spark session that works with a lake.

    Starts Spark in this process and on all of its cores, or on the cluster that ``master`` names, with a Java
    that is found (see ``find_java``), this Python for its workers, and little in the log. ``conf`` holds
    further settings of Spark; they win over Penstock's. ``tables`` maps paths to tables of files: code that
    does not use Penstock and writes to such a path, or below it, commits to the table, and reads the table's
    rows there.

    If Spark already runs in this process, it is used as it was started: a warning names settings that can no
    longer be changed. The running session is returned, or a new one beside it if the running one works with
    another lake. ``InvalidRequest`` if pyspark or Java is missing, or the lake was closed.
    """
    settings_text = {name: settings.as_text(value) for name, value in (conf or {}).items()}
    check_settings(settings_text)
    if master is not None:
        settings_text["spark.master"] = master
    builder = _spark_session().builder.config(map={"spark.app.name": app, **settings_text})
    opened = keep_lake(lake)
    guard_options()
    with _STARTING:
        running = _running_session()
        if running is not None:
            joined = _join_session(running, opened, settings_text, settings.settings_of_tables(tables or {}))
            driver.register_driver(joined, lake_identity(opened), find_lake)
            return joined
        # Spark imports its own test kit, which has a word on pandas' version; nothing here uses pandas.
        warnings.filterwarnings("ignore", "PySpark does not yet", FutureWarning, r"pyspark\.testing\.")
        with _environment_kept(), warnings.catch_warnings():
            # Lance, where somebody has imported it, warns of forks; this one only runs another program.
            warnings.filterwarnings("ignore", "lance is not fork-safe", UserWarning)
            return configure(builder, opened, tables=tables).getOrCreate()


def configure(
    builder: SparkSession.Builder,
    lake: Lake | str | os.PathLike[str],
    *,
    tables: Mapping[str | os.PathLike[str], str] | None = None,
) -> SparkSession.Builder:
    """Add what a session needs for a lake to a builder. Settings that the builder already has stay.

    ``tables`` names tables of files by paths, as ``session`` does.

    Sets PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON for this process, where they are not set, and JAVA_HOME if
    Spark would not find a Java otherwise: Spark reads them when the session is made. A builder for Spark
    Connect gets only the settings of the lake and of writers, because Spark runs elsewhere.
    """
    opened = keep_lake(lake)
    of_lake = _of_lake(opened) | settings.settings_of_tables(tables or {})
    builder_options: dict[str, Any] = dict(builder._options)
    check_settings(builder_options)
    address = _connect_address(builder_options)
    if address is None or address.startswith("local"):
        _prepare_environment()
    settings.keep_errors_off_the_terminal()
    guard_options()
    if address is not None:
        if tables or builder_options.get(settings.TABLES):
            raise _passed_over(jar.LACK_OVER_CONNECT)
        return builder.config(map={**settings.of_writes(builder_options, has_classes=False), **of_lake})
    from pyspark.find_spark_home import _find_spark_home

    spark_home = _find_spark_home()
    given_settings = (
        _given_to_jvm() if _has_jvm() else settings.given_by_files(spark_home)
    ) | builder_options
    log_file = None if settings.has_own_log_file(spark_home) else LOG_FILE
    has_classes, maps = _has_classes(), bool(tables or given_settings.get(settings.TABLES))
    if maps and not has_classes:
        raise _passed_over(jar.lack_of_start())
    if maps and given_settings.get(jar.COMMIT_PROTOCOL_SETTING, jar.COMMIT_PROTOCOL) != jar.COMMIT_PROTOCOL:
        raise _passed_over(jar.lack_of_protocol(given_settings[jar.COMMIT_PROTOCOL_SETTING]))
    started = settings.of_start(given_settings, jar.find_jar() if has_classes else None, log_file)
    if has_classes:
        driver.register_when_made(builder, lake_identity(opened), find_lake)
    return builder.config(map={**settings.of_writes(given_settings, has_classes), **started, **of_lake})


def _of_lake(lake: Lake) -> dict[str, str]:
    return {settings.LAKE: lake.url, settings.LAKE_ID: lake_identity(lake)}


def _join_session(
    running: SparkSession, lake: Lake, wanted: Mapping[str, str], of_tables: Mapping[str, str]
) -> SparkSession:
    """A session of the Spark that runs, for a lake."""
    settings.keep_errors_off_the_terminal()
    owner = running.conf.get(settings.LAKE_ID, None)
    spark = (
        running
        if owner in (None, lake_identity(lake), lake.url)
        else _session_in_running_spark(running, lake)
    )
    late = [name for name, value in wanted.items() if not _set_if_modifiable(spark, name, value)]
    if late:
        warnings.warn(
            f"Spark is already running; it is too late to set {', '.join(sorted(late))}", stacklevel=3
        )
    chosen = spark._jsparkSession.conf()
    for name, value in settings.of_writes({}, jar.is_jar_loaded(spark._jvm)).items():
        if not chosen.contains(name):
            spark.conf.set(name, value)
    maps = bool(of_tables or spark.conf.get(settings.TABLES, None))
    if maps and not (jar.has_protocol(spark) and jar.has_reads(spark)):
        raise _passed_over(jar.lack_of_session(spark))
    if spark is not running and not of_tables:
        of_tables = {settings.TABLES: ""}  # not those of the lake that Spark was started for
    for name, value in {**_of_lake(lake), **of_tables}.items():
        spark.conf.set(name, value)
    return _handing_on(spark)


def _session_in_running_spark(running: SparkSession, lake: Lake) -> SparkSession:
    """The lake's own session in the Spark that runs for another one too."""
    identity = lake_identity(lake)
    spark_session = _BESIDE.get(identity)
    if spark_session is None or spark_session.sparkContext is not running.sparkContext:
        spark_session = _BESIDE[identity] = type(running).newSession(running)
    return spark_session


def _handing_on(spark: SparkSession) -> SparkSession:
    """The session; those that are made of it from now on work with the same lake.

    Spark itself would give them only what it was started with, which may be for another lake, or for none.
    """

    def new_session() -> SparkSession:
        made = type(spark).newSession(spark)
        for name in (*settings.WRITES, *settings.PROTOCOLS, *settings.OF_LAKES):
            if (value := spark.conf.get(name, None)) is not None:
                made.conf.set(name, value)
        return _handing_on(made)

    spark.newSession = new_session  # type: ignore[method-assign]
    return spark


def _passed_over(lack: jar.MissingJar) -> InvalidRequest:
    """What is raised rather than have writes go to their paths without a word."""
    return InvalidRequest(
        "'tables' would have no effect: this session does not read and write through Penstock, because "
        f"{lack.reason}\n  {lack.remedy[0].upper()}{lack.remedy[1:]}, or leave out 'tables' and write by "
        "penstock.spark.write."
    )


def _set_if_modifiable(spark: SparkSession, name: str, value: str) -> bool:
    """Whether a setting of a running Spark is as wanted now."""
    if spark.conf.isModifiable(name):
        spark.conf.set(name, value)
    return spark.conf.get(name, None) == value


def _running_session() -> SparkSession | None:
    """The session that Spark began with in this process, if it has not been stopped."""
    running = _spark_session()._instantiatedSession
    return running if running is not None and running._sc._jsc is not None else None


def _spark_session() -> type[SparkSession]:
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as missing:
        raise InvalidRequest(
            f"Spark needs the library {missing.name}: pip install 'penstock[spark]'", extra="spark"
        ) from None
    return SparkSession


def _connect_address(told: Mapping[str, Any]) -> str | None:
    """The Spark Connect server that a builder will talk to, ``local`` for one of its own; None if to none."""
    from pyspark.util import default_api_mode, is_remote_only

    mode = str(told.get("spark.api.mode") or os.environ.get("SPARK_API_MODE") or default_api_mode()).lower()
    address = told.get("spark.remote") or os.environ.get("SPARK_REMOTE")
    if address or is_remote_only() or mode == "connect" or "SPARK_CONNECT_MODE_ENABLED" in os.environ:
        return str(address or "local")
    return None


def _given_to_jvm() -> dict[str, str]:
    """The settings that the JVM was started with, as by ``spark-submit``."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _has_classes() -> bool:
    """Whether the JVM that runs, or the one that is about to be started, has Penstock's classes."""
    if _has_jvm():
        from pyspark import SparkContext

        SparkContext._ensure_initialized()
        return jar.is_jar_loaded(SparkContext._jvm)
    named = settings.jars_of_command_line()
    if named is not None:
        return any(Path(file).name == jar.NAME for file in named)
    return jar.find_jar() is not None


def _has_jvm() -> bool:
    """Whether there is a JVM already: Spark ran before in this process, or ``spark-submit`` started both."""
    from pyspark import SparkContext

    return SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ


def _prepare_environment() -> None:
    """Set what Spark reads from the environment when it starts and nowhere else."""
    # Spark would take the first `python3` on the PATH, which need not have what the caller's has.
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(name, sys.executable)
    if not _has_jvm() and (home := find_java().home) is not None:
        os.environ["JAVA_HOME"] = home


@contextmanager
def _environment_kept() -> Iterator[None]:
    """Afterwards, the variables that we set are as before: a Spark that others start later is theirs."""
    before = {name: os.environ.get(name) for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME")}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
