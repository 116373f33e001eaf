#!/bin/sh
# Compares the exporter with nvidia-smi on this host; sh run.sh --help lists the options.
here=$(cd "$(dirname "$0")" && pwd) || exit 2
python=${PYTHON:-python3}
site=$("$python" -c 'import platform, sys; print("%d.%d-" % sys.version_info[:2] + platform.machine())') || exit 2
if [ ! -d "$here/lib/$site" ]; then
    echo "No packages for $site, but for" "$here"/lib/* ". Name another Python: PYTHON=python3.12 sh run.sh" >&2
    exit 2
fi
PYTHONPATH=$here/lib/$site:$here${PYTHONPATH:+:$PYTHONPATH} exec "$python" -m tests.hardware "$@"
