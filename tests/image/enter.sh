# Its own mounts, network and processes, and a root that nobody can write to.
set -eu
root=$1 user=$2 group=$3
shift 3
mount --bind "$root" "$root"
mount --bind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -o remount,bind,ro "$root"
ip link set lo up
set -- setpriv --reuid="$user" --regid="$group" --clear-groups --bounding-set=-all --no-new-privs env -i "$@"
exec chroot "$root" "$@"
