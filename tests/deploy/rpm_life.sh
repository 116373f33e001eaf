# Debian's rpm knows nothing of what Debian's packages provide.
rpm --install --nodeps /tmp/package
cd /
test "$(stat -c %U:%a /etc/default/gpu-triage-exporter)" = root:640
id gpu-triage
find /usr/lib/gpu-triage-exporter -name 'daemon.*.pyc' | grep .
grep '^ExecStart=/usr/bin/gpu-triage serve$' /usr/lib/systemd/system/gpu-triage-exporter.service
gpu-triage --version
setpriv --reuid gpu-triage --regid gpu-triage --clear-groups env -i PATH=/usr/bin TMPDIR=/dev/shm \
    gpu-triage serve --simulate dual-a10 --web.listen-address 127.0.0.1:0 2>/tmp/log &
trap 'kill $!' EXIT
for _ in $(seq 100); do
    address=$(grep -o 'http://127.0.0.1:[0-9]*/metrics' /tmp/log) && break
    sleep 0.1
done
for _ in $(seq 100); do
    /usr/bin/python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())' \
        "$address" >/tmp/page
    grep '^gpu_up{' /tmp/page && break
    sleep 0.1
done
grep '^gpu_up{.*} 1' /tmp/page
ls /proc/$!/exe -l | grep "$(readlink -f /usr/bin/python3)"
kill $!
wait $! || true
trap - EXIT

# As slurmd runs a prolog: without PATH and, here, without an exporter, on a simulated host that has lost a GPU.
zcat /usr/share/man/man1/gpu-triage-check.1.gz | grep '^\.TH GPU-TRIAGE-CHECK 1'
grep '^## Reporting a vulnerability' /usr/share/doc/gpu-triage-exporter/SECURITY.md
cd /usr/share/gpu-triage-exporter/slurm
test "$(stat -c %U:%a prolog.sh judge.sh | tr '\n' ' ')" = 'root:755 root:644 '
! env -i SLURM_JOB_ID=1 SLURM_JOB_GPUS=1 SLURMD_NODENAME=n NODE_CHECK_URL=http://127.0.0.1:1 NODE_CHECK_SCONTROL=echo \
    NODE_CHECK_LOOK='--for 3s --simulate lost-before-start' ./prolog.sh 2>/tmp/said
grep 'update NodeName=n State=DRAIN Reason=gpu.lost GPU 1, xid.79 GPU 1 (gpu-triage)' /tmp/said
test "$(bash -c '
    source /usr/share/bash-completion/completions/gpu-triage
    set -- $(complete -p gpu-triage)
    COMP_WORDS=(gpu-triage ch) COMP_CWORD=1
    "${@: -2:1}" gpu-triage
    echo "${COMPREPLY[@]}"
')" = check
test "$(fish -c 'complete --do-complete "gpu-triage ch"' | cut -f1)" = check
# What zsh's own part, which runs only in a terminal, is told to offer, from the folder that RPM's distributions read.
test "$(zsh -fc '
    fpath=(/usr/share/zsh/site-functions $fpath)
    autoload -Uz compinit && compinit -uD
    _describe() { print -- ${(P)@[-2]} }
    words=(gpu-triage ch) CURRENT=2
    $_comps[gpu-triage]
' | cut -d: -f1)" = check

version=$(gpu-triage --version)
echo '# mine' >>/etc/default/gpu-triage-exporter
mkdir /var/lib/gpu-triage
touch /var/lib/gpu-triage/mine
kept() {
    find /usr/lib/gpu-triage-exporter -name 'daemon.*.pyc' | grep .
    grep '^# mine' /etc/default/gpu-triage-exporter
    test -e /var/lib/gpu-triage/mine
}
rpm --upgrade --nodeps /tmp/newer
gpu-triage --version | grep 99.0.0
kept
rpm --upgrade --oldpackage --nodeps /tmp/package
test "$(gpu-triage --version)" = "$version"
kept
rpm --erase gpu-triage-exporter
! test -e /usr/bin/gpu-triage
! test -e /usr/lib/gpu-triage-exporter
! test -e /usr/lib/systemd/system/gpu-triage-exporter.service
! test -e /etc/default/gpu-triage-exporter
! test -e /usr/share/doc/gpu-triage-exporter
! test -e /usr/share/gpu-triage-exporter
! test -e /usr/share/man/man1/gpu-triage.1.gz
echo all went well
