#!/bin/sh
# Install what some tests start, from Debian's archive, without letting apt start it: Prometheus, Alertmanager,
# VictoriaMetrics, Chromium, lintian, rpm, Slurm, shells, debootstrap, buildah and systemd's tools.
# Always exits 0: where they cannot be had the tests that need them say so themselves (and fail when CI=true).
set -eu

servers='prometheus prometheus-alertmanager prometheus-node-exporter systemd'
# Programs beyond the servers, each with its package where that has another name.
others='chromium lintian rpm victoria-metrics zsh fish debootstrap buildah slurmctld:slurm-wlm systemd-nspawn:systemd-container'
PATH=$PATH:/usr/sbin:/sbin

missing=
for program in prometheus promtool prometheus-alertmanager amtool prometheus-node-exporter \
    systemd-analyze systemd-sysusers $others; do
    program=${program%:*}
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
    say "not found:$missing; installing needs root: apt-get install $servers$(for other in $others; do printf ' %s' "${other#*:}"; done)"
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

# A machine that has never run `apt-get update` knows no packages: the first try fails fast there.
updated=
install() {
    apt install --yes --no-install-recommends "$@" >/dev/null 2>&1 && return
    [ -n "$updated" ] || apt update
    updated=yes
    apt install --yes --no-install-recommends "$@"
}

say "not found:$missing; installing Debian's packages"
# shellcheck disable=SC2086 # names of packages, separated by spaces
install $servers || say "apt-get could not install them"
# Each by itself: some distributions that are like Debian have no such package, and the servers must not go without for that.
for other in $others; do
    command -v "${other%:*}" >/dev/null 2>&1 || install "${other#*:}" ||
        say "apt-get could not install ${other#*:}"
done
