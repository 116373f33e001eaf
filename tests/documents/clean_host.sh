# This machine with folders, a home and a network of its own; its checkout ($1) is where commands run.
set -eu
mount -t tmpfs -o size=2g tmpfs /mnt
for folder in /etc /opt /root /srv /tmp /usr /var "$1"; do
    changes=/mnt/$(echo "$folder" | tr / -)
    mkdir "$changes" "$changes.work"
    mount -t overlay overlay -o "lowerdir=$folder,upperdir=$changes,workdir=$changes.work" "$folder"
done
mount -t tmpfs tmpfs /run # no way to this machine's own systemd
mount -o bind,remount,ro /
ip link set lo up
echo '127.0.0.1 prometheus gpu-host-1 gpu-7 gpu-07' >>/etc/hosts
mkdir /mnt/home
cd "$1"
export HOME=/mnt/home PATH="$1/.venv/bin:$PATH" SYSTEMD_OFFLINE=1 LC_ALL=C.UTF-8 COLUMNS=80
set +eu
within() {
    for _ in $(seq 600); do
        if eval "$1" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    echo "not within 60 s: $1" >&2
    tail "$HOME/server.log" >&2
    return 1
}
server=
serving() {
    if [ -n "$server" ]; then kill "$server" && wait "$server"; fi
    env "$@" >"$HOME/server.log" 2>&1 &
    server=$!
    within "curl -sf ${READY:-http://localhost:9836/-/ready}"
}
metrics() { curl -sf http://localhost:9836/metrics; }
verdict() { curl -sf http://localhost:9836/api/v1/verdict | jq -e "$1"; }
systemctl() { command systemctl "${@/--now/--quiet}"; } # there is no manager to start it
