# A node of a Slurm cluster of one, from an empty host on.
mkdir -p /srv/slurm/state /srv/slurm/spool /srv/slurm/dev /etc/slurm /run/munge
dd if=/dev/urandom of=/srv/slurm/munge.key bs=1024 count=1 status=none
chmod 400 /srv/slurm/munge.key
mknod /srv/slurm/dev/nvidia0 c 195 0
mknod /srv/slurm/dev/nvidia1 c 195 1
echo 'Name=gpu File=/srv/slurm/dev/nvidia[0-1]' >/etc/slurm/gres.conf
cp /clone/slurm.conf /etc/slurm/slurm.conf
echo 'APT::Get::Assume-Yes "true";' >/etc/apt/apt.conf.d/90yes
export SLURM_CONF=/etc/slurm/slurm.conf DEBIAN_FRONTEND=noninteractive
(
    munged --foreground --force --socket=/srv/slurm/munge.socket --key-file=/srv/slurm/munge.key \
        --pid-file=/srv/slurm/munged.pid --log-file=/srv/slurm/munged.log --seed-file=/srv/slurm/munge.seed &
    until munge --no-input --socket=/srv/slurm/munge.socket >/dev/null 2>&1; do sleep 0.1; done
    slurmctld -D -f "$SLURM_CONF" &
    slurmd -D -f "$SLURM_CONF" &
    wait
) >/srv/slurm/output.log 2>&1 &
within() {{
    for _ in $(seq 300); do
        if sh -c "$1" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    echo "not within 30 s: $1" >&2
    tail -n 20 /srv/slurm/*.log >&2
    exit 1
}}
within 'scontrol show node {node} | grep State=IDLE'
cd /clone
