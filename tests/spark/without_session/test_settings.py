"""What a session is told: beside what the user said, never instead of it."""

from __future__ import annotations

import logging
import logging.handlers
from pathlib import Path

import pytest

from penstock.spark import settings
from penstock.spark.jar import COMMIT_PROTOCOL, COMMIT_PROTOCOL_SETTING

JAR = Path("/lib/penstock-spark.jar")
LOG = Path("/lib/with space/log4j2.properties")
OPTIONS = "spark.driver.defaultJavaOptions"


def test_a_spark_that_starts_is_given_the_jar_and_a_quiet_log() -> None:
    assert settings.of_start({}, JAR, LOG) == {
        "spark.jars": "/lib/penstock-spark.jar",
        "spark.ui.showConsoleProgress": "false",
        OPTIONS: "-Dlog4j2.configurationFile=file:///lib/with%20space/log4j2.properties",
    }


def test_the_users_jars_and_options_come_first_and_stay() -> None:
    given = {"spark.jars": "/a.jar,s3a://b/b.jar", "spark.ui.showConsoleProgress": "true", OPTIONS: "-Xss4m"}
    told = settings.of_start(given, JAR, LOG)
    assert told["spark.jars"] == "/a.jar,s3a://b/b.jar,/lib/penstock-spark.jar"
    assert told[OPTIONS].startswith("-Xss4m -Dlog4j2")
    assert "spark.ui.showConsoleProgress" not in told


def test_telling_twice_is_telling_once() -> None:
    once = settings.of_start({}, JAR, LOG)
    assert settings.of_start(once, JAR, LOG) == {}


def test_a_copy_of_the_jar_that_the_user_named_is_the_one_taken() -> None:
    assert "spark.jars" not in settings.of_start({"spark.jars": "hdfs://lib/penstock-spark.jar"}, JAR, LOG)


def test_a_log_that_the_user_chose_stays() -> None:
    assert OPTIONS not in settings.of_start({OPTIONS: "-Dlog4j2.configurationFile=mine"}, JAR, LOG)
    assert OPTIONS not in settings.of_start({}, JAR, None)


def test_a_protocol_is_named_only_where_its_classes_are() -> None:
    assert settings.of_writes({}, True)[COMMIT_PROTOCOL_SETTING] == COMMIT_PROTOCOL
    assert COMMIT_PROTOCOL_SETTING not in settings.of_writes({}, False)


def test_the_users_own_protocol_and_codec_stay() -> None:
    own = dict.fromkeys(settings.PROTOCOLS, "org.example.Own")
    catalog = {settings.CATALOG + settings.CATALOG_NAME: "org.example.Catalog"}
    given = {**own, **catalog, "spark.sql.parquet.compression.codec": "snappy"}
    assert settings.of_writes(given, True) == {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}


def test_what_the_administrator_wrote_down_counts_as_given(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# comment\n\nspark.jars   /a.jar\nspark.sql.ansi.enabled=false\n"
        "spark.driver.defaultJavaOptions -Da=b -Dc=d\n  spark.eventLog.enabled : true  \nspark.empty\n",
        "utf-8",
    )
    found = {
        "spark.jars": "/a.jar",
        "spark.sql.ansi.enabled": "false",
        OPTIONS: "-Da=b -Dc=d",
        "spark.eventLog.enabled": "true",
        "spark.empty": "",
    }
    assert settings.given_by_files("/nowhere", {"SPARK_CONF_DIR": str(tmp_path)}) == found
    (tmp_path / "home").mkdir()
    (tmp_path / "spark-defaults.conf").rename(tmp_path / "home" / "spark-defaults.conf")
    (tmp_path / "home").rename(tmp_path / "conf")
    assert settings.given_by_files(str(tmp_path), {}) == found
    assert settings.given_by_files("/nowhere", {}) == {}


def test_a_log_configured_on_the_machine_is_seen(tmp_path: Path) -> None:
    assert not settings.has_own_log_file("/nowhere", {"SPARK_CONF_DIR": str(tmp_path)})
    (tmp_path / "log4j2.xml").touch()
    assert settings.has_own_log_file("/nowhere", {"SPARK_CONF_DIR": str(tmp_path)})


@pytest.mark.parametrize(
    ("arguments", "jars"),
    [
        ("", None),
        ("--packages a:b:1 pyspark-shell", None),
        ("--jars /a.jar,/b.jar pyspark-shell", ["/a.jar", "/b.jar"]),
        ("--master local --jars='/a b.jar' pyspark-shell", ["/a b.jar"]),
    ],
)
def test_jars_of_the_command_line_are_seen(arguments: str, jars: list[str] | None) -> None:
    assert settings.jars_of_command_line({"PYSPARK_SUBMIT_ARGS": arguments}) == jars


def test_a_log_that_was_there_before_loses_only_what_pyspark_gave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.logger import PySparkLogger

    monkeypatch.setattr(settings, "ERROR_LOGS", ("a log of this test",))
    log = PySparkLogger.getLogger("a log of this test")
    assert [type(one) for one in log.handlers] == [logging.StreamHandler], "else nothing is tested here"
    log.addHandler(kept := logging.handlers.BufferingHandler(1))
    settings.keep_errors_off_the_terminal()
    assert [type(one) for one in log.handlers] == [type(kept), logging.NullHandler]
