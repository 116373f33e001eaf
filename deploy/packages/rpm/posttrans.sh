# After an upgrade has removed the files of the version before. The service may not write below /usr, and without
# compiled code each start takes seconds.
find /usr/lib/gpu-triage-exporter -name __pycache__ -type d -prune -exec rm -rf {} + || :
/usr/bin/python@PYTHON@ -I -m compileall -q -j 0 /usr/lib/gpu-triage-exporter/lib || :
