systemctl daemon-reload >/dev/null 2>&1 || :
if [ "$1" -ge 1 ]; then
    systemctl try-restart gpu-triage-exporter.service >/dev/null 2>&1 || :
fi
