# shellcheck shell=bash disable=SC2034,SC2154
# Sourced by the scripts beside it: parts of an installation that run at the same time, and the system's packages.
# The script that sources it has set `name`, which begins every line that it prints.

logs=build/logs
parts=()
begun=
packages_part=

say() { printf '%s: %s\n' "$name" "$*"; }
die() { say "$*" >&2; exit 1; }
has() { command -v "$1" >/dev/null; }

# Run a command beside this script: begin "the clients" LOG COMMAND… Its output goes to a log in build/logs, of
# which the end is shown if it fails. One part that fails does not stop the others.
begin() {
  local what=$1 log=$logs/$name-$2.log
  shift 2
  mkdir -p "$logs"
  say "installing $what"
  # A process group of its own, so that whatever it starts can be ended with it.
  set -m
  (
    set +em
    (set -e; "$@") >"$log" 2>&1 </dev/null
    status=$?
    if [ "$status" = 0 ]; then
      say "installed $what ($SECONDS s after the start)"
    else
      printf '%s\n' "$(
        say "$what could not be installed; the end of $log:"
        tail -n 15 "$log" | sed "s/^/$name:     /"
      )"
    fi
    exit "$status"
  ) &
  set +m
  begun=$!
  parts+=("$begun")
}

# Wait for all parts that have begun; fails if one of them failed.
finish() {
  local part status=0
  for part in ${parts[@]+"${parts[@]}"}; do
    wait "$part" || status=1
  done
  parts=()
  return "$status"
}

interrupted() {
  trap - INT TERM
  say "interrupted; waiting for what is under way to end"
  local part
  for part in $(jobs -p); do
    kill -TERM -- "-$part" 2>/dev/null || true
  done
  wait
  exit 130
}
trap interrupted INT TERM

# A part that is not interrupted: packages that are half installed are in the way of everything else on the machine.
begin_uninterrupted() {
  trap '' INT TERM # which parts inherit
  begin "$@"
  trap interrupted INT TERM
}

has_javac() { has javac || [ -x "${JAVA_HOME:-/nowhere}/bin/javac" ]; }

# Which of the system's packages are still missing for these: jdk, postgresql, maven, wrk, chromium.
missing_packages() {
  local want
  for want in "$@"; do
    case $want in
      jdk) has_javac || echo default-jdk-headless ;;
      postgresql) compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || echo postgresql ;;
      maven) has mvn || echo maven ;;
      wrk) has wrk || echo wrk ;;
      chromium) { has chromium && has chromedriver; } || echo chromium chromium-driver ;;
      *) die "no package is known for $want" ;;
    esac
  done
}

# Begin to install what is missing of these, where that is allowed. Afterwards tell_missing says what is missing still.
begin_packages() {
  local packages
  packages=$(missing_packages "$@" | tr '\n' ' ')
  if [ -n "$packages" ] && [ "$(id -u)" = 0 ] && has apt-get; then
    # shellcheck disable=SC2086  # names without spaces
    begin_uninterrupted "${packages% } from the system's packages (apt-get)" packages install_packages $packages
    packages_part=$begun
  fi
}

# Fails if something is missing.
tell_missing() {
  local packages
  packages=$(missing_packages "$@" | tr '\n' ' ')
  [ -z "$packages" ] && return
  say "not installed: ${packages% }; the tests that need it will be skipped"
  say "to run them: apt-get install --no-install-recommends ${packages% }, as root, then make $name"
  return 1
}

install_packages() {
  case " $* " in *" postgresql "*)
    # The tests start a PostgreSQL of their own; the system's would only run beside it.
    mkdir -p /etc/postgresql-common/createcluster.d
    echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.d/penstock.conf
  esac
  # For what an installation that was cut short has left behind.
  dpkg --configure -a
  # The lists of packages are fetched only if there are none, or old ones.
  apt_install "$@" && return
  apt-get update -qq
  apt_install "$@" && return
  # One that cannot be installed does not keep the others from it.
  local package status=0
  for package in "$@"; do
    apt_install "$package" || status=1
  done
  return "$status"
}

apt_install() {
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 "$@"
}
