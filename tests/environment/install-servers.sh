#!/bin/sh
# Install the Prometheus, Alertmanager, VictoriaMetrics, Chromium, lintian, rpm and systemd's tools that some tests start,
# from Debian's archive, without letting apt start them.
# Always exits 0: where they cannot be had the tests that need them say so themselves (and fail when CI=true).
set -eu

missing=
for program in prometheus promtool prometheus-alertmanager amtool prometheus-node-exporter \
    systemd-analyze systemd-sysusers lintian rpm chromium victoria-metrics; do
    command -v "$program" >/dev/null 2>&1 || missing="$missing $program"
done
[ -n "$missing" ] || exit 0

say() {
    echo "install-servers: $*" >&2
}

if ! command -v apt-get >/dev/null 2>&1; then
    say "not found:$missing; no apt-get here, so install them by hand to run the tests that need them"
    exit 0
fi
if [ "$(id -u)" -eq 0 ]; then
    as_root=
elif sudo -n true 2>/dev/null; then
    as_root='sudo -n'
else
    say "not found:$missing; installing needs root: apt-get install prometheus prometheus-alertmanager prometheus-node-exporter systemd lintian rpm chromium victoria-metrics"
    exit 0
fi

# dpkg's maintainer scripts ask this file whether they may start a service; without it they would take ports 9090 and 9093.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap '$as_root rm -f "$policy"' EXIT
    trap 'exit 1' INT TERM
    printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
    $as_root chmod 755 "$policy"
fi

apt() {
    # shellcheck disable=SC2086 # as_root is empty or two words on purpose
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 "$@" </dev/null
}

install() {
    apt install --yes --no-install-recommends prometheus prometheus-alertmanager prometheus-node-exporter systemd
}

say "not found:$missing; installing Debian's packages"
# A machine that has never run `apt-get update` knows no packages: the first try fails fast there.
if ! install >/dev/null 2>&1 && ! { apt update && install; }; then
    say "apt-get could not install them"
fi
# Each by itself: some distributions that are like Debian have no such package, and the servers must not go without for that.
for program in chromium lintian rpm victoria-metrics; do
    command -v "$program" >/dev/null 2>&1 || apt install --yes --no-install-recommends "$program" ||
        say "apt-get could not install $program"
done
