# Boots a bare system with systemd in a container of its own, runs one unit and ends with its exit status.
set -eu
bare=$1 scratch=$2
# systemd-nspawn makes cgroups of fixed names below the one that it runs in, so it runs in one of its own: of version 2,
# or of the hierarchy that is named systemd, and of version 2 beside it if there is that too.
roots=/sys/fs/cgroup
if [ "$(stat --file-system --format %T $roots)" != cgroup2fs ]; then
    mkdir -p $roots/systemd
    mountpoint --quiet $roots/systemd || mount -t cgroup -o none,name=systemd systemd $roots/systemd
    roots="$roots/systemd $(find $roots/unified -maxdepth 0 2>/dev/null || :)"
fi
name=gpu-triage-$(basename "$scratch")
enter() {
    for root in $roots; do
        mkdir -p "$root/$1"
        echo $$ >"$root/$1/cgroup.procs"
    done
}
enter "$name"
# Its locks and sockets of this name, too, are for this one alone.
mkdir -p /run/systemd/nspawn
mount -t tmpfs tmpfs /run/systemd/nspawn
mkdir "$scratch/memory" "$scratch/root"
mount -t tmpfs tmpfs "$scratch/memory"
upper=$scratch/memory/changes work=$scratch/memory/work
mkdir "$upper" "$work"
mount -t overlay overlay -o "lowerdir=$bare,upperdir=$upper,workdir=$work" "$scratch/root"
code=0
systemd-nspawn --quiet --directory="$scratch/root" --bind="$scratch/shared:/shared" --private-network --register=no \
    --keep-unit --console=pipe --bind-ro="$scratch/script.service:/etc/systemd/system/script.service" \
    --boot systemd.unit=multi-user.target systemd.wants=script.service </dev/null || code=$?
enter .
for root in $roots; do
    find "$root/$name" -depth -type d -exec rmdir {} +
done
exit "$code"
