#!/bin/sh
set -e

unit=gpu-triage-exporter.service

case "$1" in
remove)
    [ ! -d /run/systemd/system ] || systemctl --system daemon-reload >/dev/null || true
    ! command -v deb-systemd-helper >/dev/null || deb-systemd-helper mask "$unit" >/dev/null || true
    ;;
purge)
    if command -v deb-systemd-helper >/dev/null; then
        deb-systemd-helper purge "$unit" >/dev/null || true
        deb-systemd-helper unmask "$unit" >/dev/null || true
    fi
    # States of findings, the ledger of incidents and the recordings; the user stays, as Debian does it.
    rm -rf /var/lib/gpu-triage
    ;;
esac
