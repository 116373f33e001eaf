# The life of the package on one host, as root of a container with systemd; what it finds is left in /shared.
unit=gpu-triage-exporter.service
options=/etc/default/gpu-triage-exporter
export DEBIAN_FRONTEND=noninteractive
within() {
    for _ in $(seq 600); do
        if "$@"; then return; fi
        sleep 0.1
    done
    systemctl --no-pager status $unit
    return 1
}
page() {
    python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())' \
        "http://127.0.0.1:$1/metrics" >/shared/$2 2>/dev/null
}
state() { systemctl show $unit --property ActiveState,SubState,MainPID,NRestarts,User,UnitFileState >/shared/$1; }
sampled() { page "$1" $2-page && grep -q '^gpu_driver_up ' /shared/$2-page && grep -q '_build_info' /shared/$2-page; }
answers() {
    within sampled "$1" $2
    state $2-state
}

: installed
dpkg --install /shared/package.deb
answers 9836 installed
systemctl --failed --no-legend --no-pager >/shared/installed-failed

: killed
kill -SEGV "$(systemctl show $unit --property MainPID --value)"
restarted() { [ "$(systemctl show $unit --property NRestarts --value)" = 1 ]; }
within restarted
answers 9836 killed
journalctl --unit $unit --no-pager --output cat >/shared/killed-journal

: configured
cat >>$options <<end
# mine
GPU_TRIAGE_WEB_LISTEN_ADDRESS=127.0.0.1:9999
GPU_TRIAGE_SIMULATE=dual-a10
end
touch /var/lib/gpu-triage/mine
systemctl restart $unit
judged() {
    page 9999 $1-page && [ "$(grep -c '^gpu_up.* 1' /shared/$1-page)" = 2 ] &&
        grep -q '^gpu_finding_since_timestamp_seconds.*code="pcie.width"' /shared/$1-page
}
within judged configured
state configured-state

: refused
cp $options /root/options
tried() {
    systemctl restart $unit
    within "$@"
    systemctl show $unit --property ActiveState,SubState,ExecMainStatus >/shared/tried-state
}
refused() {
    cp /root/options $options
    echo "$2" >>$options
    tried systemctl --quiet is-failed $unit
    mv /shared/tried-state "/shared/refused-$1-state"
    journalctl --unit $unit --no-pager --output cat >"/shared/refused-$1-journal"
}
refused variable GPU_TRIAGE_METRICS_PROFILE=everything
echo 'web: {port: 9836}' >/etc/config.yml
refused config GPU_TRIAGE_CONFIG_FILE=/etc/config.yml
cp -r /shared/certificates /etc/certificates
chmod 0600 /etc/certificates/server.key
refused key GPU_TRIAGE_WEB_CONFIG_FILE=/etc/certificates/web.yml
mkdir /run/systemd/system/$unit.d
cat >/run/systemd/system/$unit.d/flag.conf <<end
[Service]
ExecStart=
ExecStart=/usr/bin/gpu-triage serve --no-such-flag
end
systemctl daemon-reload
refused flag ''
rm -r /run/systemd/system/$unit.d
systemctl daemon-reload
cp /root/options $options

: taken
taken() { python3 -c 'import socket; socket.create_connection(("127.0.0.1", 9999))'; }
systemctl stop $unit
python3 -m http.server --bind 127.0.0.1 9999 >/dev/null 2>&1 &
server=$!
within taken
retried() { [ "$(systemctl show $unit --property NRestarts --value)" -ge 2 ]; }
tried retried
mv /shared/tried-state /shared/taken-state
journalctl --unit $unit --no-pager --output cat >/shared/taken-journal
kill $server
answers 9999 freed

: upgraded
replaced() {
    dpkg --install --force-confold /shared/$2.deb
    within judged $1
    state $1-state
    cp $options /shared/$1-options
    test -e /var/lib/gpu-triage/mine
}
replaced upgraded newer

: back
replaced back package

: disabled
systemctl disable --now $unit
dpkg --install --force-confold /shared/newer.deb
state disabled-state

: removed
systemctl enable --now $unit
answers 9999 enabled
cp -r /usr/share/gpu-triage-exporter/slurm /root/scripts
dpkg --remove gpu-triage-exporter
cp $options /shared/removed-options
test -e /var/lib/gpu-triage/mine
if page 9999 removed-page; then exit 1; fi
state removed-state

: purged
dpkg --purge gpu-triage-exporter
find /etc /usr /var /run -xdev -name '*gpu-triage*' >/shared/purged-left
getent passwd gpu-triage >/shared/purged-user

: unchecked
mkdir /root/dev
touch /root/dev/nvidia0
env -i SLURM_JOB_ID=42 SLURM_JOB_GPUS=0 NODE_CHECK_DEVICE_FILES=/root/dev /root/scripts/prolog.sh
journalctl --sync
journalctl --identifier gpu-triage-prolog --no-pager --output cat >/shared/unchecked-journal
