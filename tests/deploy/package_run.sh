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
