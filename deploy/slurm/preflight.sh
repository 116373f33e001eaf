#!/bin/sh
# Checks whether these scripts and Slurm are set up: run it as root on a node after an installation or a change of slurm.conf.
#
# Prints one line per check, and how to fix each problem. Exit codes: 0 without problems, 1 with problems.
set -u
role=preflight
. "$(dirname "$(readlink -f "$0")")/judge.sh"

problems=0
ok() { echo "ok: $*"; }
problem() {
    echo "problem: $*"
    problems=$((problems + 1))
}

# one_of VARIABLE VALUE CHOICES
one_of() {
    case " $3 " in
        *" $2 "*) ;;
        *) problem "$1 is '$2'; the choices are: $3" ;;
    esac
}

# The value of a parameter of slurm.conf, as slurmctld runs with it.
parameter() { printf '%s\n' "$config" | sed -n "s/^$1 *= //p"; }

[ -z "$settings_error" ] || problem "$settings_error"
for tool in curl awk timeout "${NODE_CHECK_LOGGER%% *}"; do
    command -v "$tool" >/dev/null || problem "$tool is not installed; the scripts need it"
done
one_of NODE_CHECK_UNCHECKED "$NODE_CHECK_UNCHECKED" "log drain"
one_of NODE_CHECK_GPU_NUMBERS "$NODE_CHECK_GPU_NUMBERS" "index minor"
if [ -n "$NODE_CHECK_TEXTFILE_DIRECTORY" ] && [ ! -w "$NODE_CHECK_TEXTFILE_DIRECTORY" ]; then
    problem "NODE_CHECK_TEXTFILE_DIRECTORY: no directory $NODE_CHECK_TEXTFILE_DIRECTORY that this user can write to"
fi

if has_gpus; then
    if answer >/dev/null; then
        ok "the exporter answers at $NODE_CHECK_URL"
    else
        problem "no exporter answers at $NODE_CHECK_URL; start it, or set NODE_CHECK_URL and NODE_CHECK_CURL_OPTIONS"
    fi
    if path=$(program); then
        ok "$path is run if the exporter does not answer"
    else
        problem "$NODE_CHECK_PROGRAM is not installed; if the exporter does not answer, nothing is checked"
    fi
else
    ok "this node has no NVIDIA GPU"
fi

if config=$(timeout 30 "$NODE_CHECK_SCONTROL" show config); then
    for name in Prolog Epilog HealthCheckProgram; do
        case $(parameter "$name") in
            '' | '(null)') problem "$name is not set in slurm.conf" ;;
            *) ok "$name is $(parameter "$name")" ;;
        esac
    done
    case $(parameter PrologFlags) in
        *Alloc*) ok "PrologFlags contains Alloc" ;;
        *) problem "PrologFlags does not contain Alloc: the prolog runs at the first step of a job instead of at its start" ;;
    esac
    case ",$(parameter SchedulerParameters)," in
        *,nohold_on_prolog_fail,*) ok "SchedulerParameters contains nohold_on_prolog_fail" ;;
        *)
            problem "SchedulerParameters does not contain nohold_on_prolog_fail: a job whose prolog drains the node is requeued held" \
                "and waits until you run 'scontrol release'"
            ;;
    esac
    limit=$(parameter PrologEpilogTimeout)
    if [ "${limit%% *}" -le "$NODE_CHECK_LOOK_SECONDS" ]; then
        problem "PrologEpilogTimeout is $limit s: raise it above NODE_CHECK_LOOK_SECONDS, which is $NODE_CHECK_LOOK_SECONDS"
    fi
else
    problem "'$NODE_CHECK_SCONTROL show config' failed; slurm.conf was not checked"
fi

[ "$problems" -eq 0 ]
