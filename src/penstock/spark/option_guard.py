"""Options for a lake are refused where nothing would take notice of them, and a source is told its lake.

Penstock's classes in the JVM see the options of reads and writes. A session without them, as over Spark
Connect or of a package that was built without its jar, would write to the path and not to the lake, without a
word: to Spark such an option means nothing. So PySpark's own methods are asked to look at the names first.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from threading import Lock
from typing import Any, Final

from penstock.errors import InvalidRequest
from penstock.lake.session_settings import OPTION
from penstock.spark import jar, settings
from penstock.spark.settings import SESSION_LAKE

SOURCE: Final = "penstock"
_READERS: Final = ("DataFrameReader", "DataStreamReader")
_CLASSES: Final = {
    "pyspark.sql.readwriter": ("DataFrameReader", "DataFrameWriter", "DataFrameWriterV2"),
    "pyspark.sql.streaming.readwriter": ("DataStreamReader", "DataStreamWriter"),
    "pyspark.sql.connect.readwriter": ("DataFrameReader", "DataFrameWriter", "DataFrameWriterV2"),
    "pyspark.sql.connect.streaming.readwriter": ("DataStreamReader", "DataStreamWriter"),
}
_SESSIONS: Final = ("pyspark.sql.session", "pyspark.sql.connect.session")
_IN_SQL: Final = re.compile(r"\b(?:options|with)\s*\([^()]*?[\s(,'\"`](penstock\.\w+)", re.IGNORECASE)
"""An option in ``OPTIONS (…)`` of a statement, or in ``WITH (…)`` of a table."""
_MARK: Final = "__penstock_guarded__"
_GUARDING: Final = Lock()


def guard_options() -> None:
    """Have the classes of PySpark that are loaded refuse such options. Doing it again changes nothing."""
    with _GUARDING:
        for module, names in _CLASSES.items():
            for name in names:
                spark_class = getattr(sys.modules.get(module), name, None)
                if spark_class is not None:
                    _guard_method(spark_class, "option", _of_option)
                    _guard_method(spark_class, "options", _of_options)
                    _announce_lake(spark_class)
        for module in _SESSIONS:
            spark_class = getattr(sys.modules.get(module), "SparkSession", None)
            if spark_class is not None:
                _guard_method(spark_class, "sql", _of_statement)


def _guard_method(owner: type, method: str, names: Callable[..., Iterable[str]]) -> None:
    original = getattr(owner, method)
    if hasattr(original, _MARK):
        return

    @wraps(original)
    def check_options(self: Any, *given: Any, **named: Any) -> Any:
        ours = (name for name in names(*given, **named) if str(name).lower().startswith(OPTION))
        if (first := next(ours, None)) is not None:
            _check_option(self, first)
        return original(self, *given, **named)

    setattr(check_options, _MARK, True)
    setattr(owner, method, check_options)


def _announce_lake(owner: Any) -> None:
    """Have ``format("penstock")`` told which lake the session works with: it runs in other processes."""
    original = getattr(owner, "format", None)
    if original is None or hasattr(original, _MARK):
        return

    @wraps(original)
    def name_lake(self: Any, source: str, *given: Any, **named: Any) -> Any:
        made = original(self, source, *given, **named)
        spark = getattr(self, "_spark", None)
        if str(source).lower() == SOURCE and spark is not None:
            address = spark.conf.get(settings.LAKE, None)
            if address:
                made.option(SESSION_LAKE, address)
        return made

    setattr(name_lake, _MARK, True)
    owner.format = name_lake


def _of_option(key: Any = "", *_: Any, **named: Any) -> Iterable[str]:
    return (named.get("key", key),)


def _of_options(*_: Any, **named: Any) -> Iterable[str]:
    return named


def _of_statement(text: Any = "", *_: Any, **named: Any) -> Iterable[str]:
    return _IN_SQL.findall(str(named.get("sqlQuery", text)))


def _check_option(user: Any, name: str) -> None:
    """``InvalidRequest`` if a session, or a reader or writer of one, would not take notice of an option."""
    spark = user if hasattr(user, "sql") else getattr(user, "_spark", None)
    lack = jar.LACK_OVER_CONNECT
    if spark is not None and jar.is_classic(spark):
        is_reader = type(user).__name__ in _READERS
        if jar.has_reads(spark) if is_reader else jar.has_protocol(spark):
            return
        lack = jar.lack_of_session(spark)
    raise InvalidRequest(
        f"the option '{name}' needs Penstock, but this session does not read and write through Penstock: it "
        f"would use the path only, because {lack.reason}\n  {lack.remedy[0].upper()}{lack.remedy[1:]}, or "
        "use penstock.spark.read and penstock.spark.write.",
        option=name,
    )
