#!/bin/sh
# Resolve the six lock files again, for every Python version the package supports at once.
# Usage: requirements/lock.sh UV [--upgrade]   (UV is the uv program; make lock passes the one in .venv)
# Without --upgrade a version already locked stays while pyproject.toml still allows it.
set -eu
cd "$(dirname "$0")/.."
uv=$1
shift

compile() {
    output=$1
    shift
    # --no-config and the default index keep a developer's own index settings out of the result.
    "$uv" pip compile --quiet --no-config --default-index https://pypi.org/simple \
        --universal --python-version 3.10 --generate-hashes --custom-compile-command 'make lock' \
        --output-file "$output" "$@"
}

compile requirements/build.txt "$@" requirements/build.in
compile requirements/runtime.txt "$@" pyproject.toml
# The image's: with the extras, because nobody can add one to a built image.
compile requirements/image.txt "$@" --constraint requirements/runtime.txt --extra kubernetes pyproject.toml
compile requirements/dev.txt "$@" --constraint requirements/build.txt --constraint requirements/image.txt \
    --group dev pyproject.toml requirements/build.in requirements/packages.in requirements/tools.in
compile requirements/packages.txt "$@" --constraint requirements/dev.txt requirements/packages.in
compile requirements/site.txt "$@" requirements/site.in
