#!/bin/sh
# Install programs from Debian's archive that are not part of this project, without starting or enabling their services:
#   install-servers.sh demo    Prometheus and Alertmanager, and only with INSTALL=1; exit code 1 while one is missing
#   install-servers.sh test    what the tests of `make test` start
#   install-servers.sh full    what all tests start
# The last two say first what they install, and always exit 0: where it cannot be had, the tests that need it are
# skipped with the reason (and fail when CI=true).
set -eu

# Each program, with its package where that has another name.
prometheus='prometheus prometheus-alertmanager'
tested="$prometheus promtool:prometheus amtool:prometheus-alertmanager prometheus-node-exporter vmalert:victoria-metrics
    systemd-analyze:systemd systemd-sysusers:systemd curl"
others='victoria-metrics chromium node:nodejs npm lintian jq rpm zsh fish debootstrap buildah gpg slurmctld:slurm-wlm systemd-nspawn:systemd-container'
services='prometheus prometheus-alertmanager prometheus-node-exporter victoria-metrics munge slurmctld slurmd slurmdbd'
PATH=$PATH:/usr/sbin:/sbin

kind=${1:-full}
case $kind in
    demo) wanted=$prometheus ;;
    test) wanted=$tested ;;
    full) wanted="$tested $others" ;;
    *) echo "usage: $0 demo|test|full" >&2; exit 2 ;;
esac

found() {
    command -v "$1" >/dev/null 2>&1 || { [ "$1" = prometheus-alertmanager ] && command -v alertmanager >/dev/null 2>&1; }
}

look() {
    missing= packages=
    for each in $wanted; do
        found "${each%:*}" && continue
        missing="$missing ${each%:*}"
        case " $packages " in *" ${each#*:} "*) ;; *) packages="$packages ${each#*:}" ;; esac
    done
}

say() {
    echo "install-servers: $*" >&2
}

look
[ -n "$missing" ] || exit 0

may_install=
if [ "$(id -u)" -eq 0 ]; then
    as_root= may_install=yes
elif sudo -n true 2>/dev/null; then
    as_root='sudo -n' may_install=yes
fi

if [ "$kind" = demo ] && [ "${INSTALL:-}" != 1 ]; then
    say "not found:$missing. Install them, on Debian and Ubuntu: apt-get install --no-install-recommends$packages"
    say "or let this do it, as root or with sudo, without starting them as services: make demo INSTALL=1"
    exit 1
fi
if ! command -v apt-get >/dev/null 2>&1; then
    say "not found:$missing. There is no apt-get here, so install them by hand"
    [ "$kind" = demo ] && exit 1
    exit 0
fi
if [ -z "$may_install" ]; then
    say "not found:$missing. Installing needs root: apt-get install --no-install-recommends$packages"
    [ "$kind" = demo ] && exit 1
    say "tests that need them are skipped (with CI=true, they fail)"
    exit 0
fi

say "not found:$missing. This installs Debian's packages$packages and what they depend on, and starts no service"

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

# Services that were there before stay as they are.
has_unit() {
    [ -e "/lib/systemd/system/$1.service" ] || [ -e "/usr/lib/systemd/system/$1.service" ]
}
new_services=
for service in $services; do
    has_unit "$service" || new_services="$new_services $service"
done

# shellcheck disable=SC2086 # names of packages, separated by spaces
install $packages || for package in $packages; do
    # Each by itself: some distributions that are like Debian lack one of them.
    install "$package" || say "apt-get could not install $package"
done

# Installing enables a service for the next boot.
for service in $new_services; do
    if has_unit "$service" && command -v systemctl >/dev/null 2>&1; then
        $as_root systemctl --quiet disable "$service.service" || say "systemctl could not disable $service"
    fi
done

look
if [ "$kind" = demo ] && [ -n "$missing" ]; then
    say "still not found:$missing"
    exit 1
fi
exit 0
