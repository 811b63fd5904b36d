#!/usr/bin/env bash
# Install other people's clients, which the interop tests drive against Penstock's server: Nessie's Python client,
# its Java client, and Spark with Iceberg and with Delta. Each goes to a place of its own under build/interop.
# Safe to run any number of times. What cannot be installed is named, and its tests are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

interop=build/interop
complete=yes

say() { printf 'interop: %s\n' "$*"; }
has() { command -v "$1" >/dev/null; }

missing() {
  say "$1 could not be installed; its tests will be skipped"
  complete=no
}

# A Python environment that holds exactly what its file of requirements pins.
install_python() {
  local name=$1 pins=requirements/interop-$1.txt
  cmp --silent "$pins" "$interop/$name/pins.txt" && return
  say "installing the Python environment of $name"
  rm -rf "${interop:?}/$name"
  .venv/bin/uv venv --quiet --no-python-downloads --python .venv/bin/python "$interop/$name" &&
    # Spark comes as a source archive: what builds it is pinned as well.
    .venv/bin/uv pip sync --quiet --require-hashes --build-constraints "$pins" \
      --python "$interop/$name/bin/python" "$pins" &&
    cp "$pins" "$interop/$name/pins.txt"
}

# A directory that holds exactly the libraries that a pom names, with those they need.
install_java() {
  local pom=$1 directory=$2
  cmp --silent "$pom" "$directory/pom.xml" && return
  has mvn || return
  say "fetching the libraries of $pom"
  rm -rf "$directory"
  mkdir -p "$directory"
  mvn --quiet --batch-mode -Dstyle.color=never --file "$pom" \
    org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DincludeScope=runtime "-DoutputDirectory=$PWD/$directory" &&
    cp "$pom" "$directory/pom.xml"
}

compile_scenarios() {
  rm -rf "$interop/scenarios"
  # Clients in the field still call what is deprecated.
  has javac && javac -Werror -Xlint:all,-processing,-classfile,-deprecation -XDsuppressNotes -cp "$interop/java/*" \
    -d "$interop/scenarios" tests/interop/java/*.java
}

mkdir -p "$interop"
install_python pynessie || missing "Nessie's Python client"
{ install_java tests/interop/java/pom.xml "$interop/java" && compile_scenarios; } || missing "Nessie's Java client"
install_python spark || missing "Spark"
install_java tests/interop/spark/pom.xml "$interop/jars" || missing "Iceberg for Spark"
install_java tests/interop/delta/pom.xml "$interop/delta" || missing "Delta for Spark"
install_java tests/interop/s3a/pom.xml "$interop/s3a" || missing "S3 for Spark"
install_java tests/interop/avro/pom.xml "$interop/avro" || missing "Avro for Spark"

# Without this mark the next `make test` tries again.
if [ "$complete" = yes ]; then
  touch "$interop/.up-to-date"
  say "done"
fi
