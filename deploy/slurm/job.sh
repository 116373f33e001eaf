#!/bin/sh
# Slurm Prolog and Epilog in one. A package's link /usr/bin/gpu-triage-or-true leads here:
#
#   slurm.conf: Prolog=/usr/bin/*true   Epilog=/usr/bin/*true   PrologFlags=Alloc
#
# Slurm drains a node on which the file does not exist or the pattern matches none, and these settings are those of all nodes. This
# pattern also matches /usr/bin/true, so that jobs run on a node without the package: one without GPUs, or where it was removed.
set -u
scripts=$(dirname "$(readlink -f "$0")")
case ${SLURM_SCRIPT_CONTEXT:-} in
    prolog_slurmd) exec "$scripts/prolog.sh" ;;
    epilog_slurmd) exec "$scripts/epilog.sh" ;;
esac
