# A copy of this host's root file system, with the package in it.
set -eu
mkdir -p "$SCRATCH/upper" "$SCRATCH/work" "$SCRATCH/root"
mount -t tmpfs tmpfs "$SCRATCH/upper"
mkdir "$SCRATCH/upper/changes" "$SCRATCH/upper/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$SCRATCH/upper/changes,workdir=$SCRATCH/upper/work" "$SCRATCH/root"
mount --rbind /dev "$SCRATCH/root/dev"
mount -t proc proc "$SCRATCH/root/proc"
cp "$PACKAGE" "$SCRATCH/root/tmp/package"
cp "$NEWER" "$SCRATCH/root/tmp/newer"
exec chroot "$SCRATCH/root" /bin/sh -eu
