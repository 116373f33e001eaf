# A host with nothing but its distribution, laid over this one.
set -eu
mount -t tmpfs -o size=4g tmpfs "$SCRATCH"
mkdir "$SCRATCH/changes" "$SCRATCH/work" "$SCRATCH/root"
mount -t overlay overlay -o "lowerdir=$SYSTEM,upperdir=$SCRATCH/changes,workdir=$SCRATCH/work" "$SCRATCH/root"
mount --rbind /dev "$SCRATCH/root/dev"
mount --rbind /sys "$SCRATCH/root/sys"
mount -t proc proc "$SCRATCH/root/proc"
if [ -n "$ALONE" ]; then
    ip link set lo up
    ip address add 192.0.2.1/32 dev lo # Slurm looks up names only where there is more than 127.0.0.1
else
    cp --dereference /etc/resolv.conf "$SCRATCH/root/etc/resolv.conf"
fi
mkdir -p "$SCRATCH/root/clone"
mount --bind "$CLONE" "$SCRATCH/root/clone"
cd "$SCRATCH/root/clone"
exec chroot "$SCRATCH/root" /bin/sh -u
