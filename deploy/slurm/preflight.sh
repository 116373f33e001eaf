#!/bin/sh
# Checks whether these scripts and Slurm are set up: run it as root on a node after an installation or a change of slurm.conf.
#
#   preflight.sh           prints one line per check, and how to fix each problem
#   preflight.sh --lines   prints the lines that slurm.conf lacks, and to standard error what to change in its own
#
# Exit codes: 0 without problems, 1 with problems.
set -u
role=preflight
scripts=$(dirname "$(readlink -f "$0")")
. "$scripts/judge.sh"

lines=
problems=0
ok() { [ -n "$lines" ] || echo "ok: $*"; }
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

# The value of a parameter of slurm.conf, as slurmctld runs with it. Later Slurms have a line, such as Prolog[0], for each of several.
parameter() { printf '%s\n' "$config" | sed -n "s/^$1\(\[[0-9]*\]\)\{0,1\} *= //p"; }

# Prints "name<TAB>file:line" for each setting of slurm.conf and the files that it includes.
definitions() {
    awk -v top="$1" -v cluster="$(parameter ClusterName)" '
        function scan(file,    line, number, count, parts, i) {
            while ((got = (getline line < file)) > 0) {
                number++
                sub(/#.*/, "", line)
                gsub(/[ \t]*=[ \t]*/, "=", line)
                count = split(line, parts, " ")
                if (tolower(parts[1]) == "include") {
                    gsub(/%c/, cluster, parts[2])
                    scan(parts[2] ~ /^\// ? parts[2] : folder parts[2])
                } else for (i = 1; i <= count; i++) {
                    if (match(parts[i], /^[A-Za-z]+=/)) print tolower(substr(parts[i], 1, RLENGTH - 1)) "\t" file ":" number
                }
            }
            if (got < 0) print "unreadable\t" file
            close(file)
        }
        BEGIN { folder = top; sub(/[^\/]*$/, "", folder); scan(top) }'
}

# The places where slurm.conf sets a parameter, in one line.
places() {
    printf '%s\n' "$defined" | awk -F '\t' -v name="$1" '$1 == tolower(name) { text = text (text == "" ? "" : ", ") $2 } END { print text }'
}

# runs SCRIPT PROGRAM...: whether one of the programs, which may be patterns, is on this node the script or mentions it.
runs() {
    script=$1
    shift
    # shellcheck disable=SC2048  # patterns, as Slurm expands them
    for program in $*; do
        [ "$(readlink -f "$program")" != "$script" ] || return 0
        ! grep -qsF -e "$script" -e gpu-triage-or-true "$program" || return 0
    done
    return 1
}

# setting NAME VALUE: checks a line that slurm.conf needs.
setting() {
    running=$(parameter "$1")
    where=$(places "$1")
    case $where in
        '')
            if [ -n "$lines" ]; then echo "$1=$2" >&3; else problem "$1 is not set in $conf: append $1=$2"; fi
            return
            ;;
        *,*)
            # Later Slurms run several prologs; any other setting that is repeated replaces the one before.
            [ "$(echo "$where" | tr , '\n' | wc -l)" -le "$(printf '%s\n' "$running" | wc -l)" ] || {
                problem "$1 is set more than once, and Slurm takes the last: $where"
                return
            }
            ;;
    esac
    name=$(printf '%s' "$1" | tr '[:upper:]' '[:lower:]')
    case $1-$running in
        *-'' | *-'(null)' | HealthCheckInterval-0*) problem "$1 is set in $where, but not in effect: run 'scontrol reconfigure'" ;;
        Prolog-* | Epilog-*)
            if runs "$scripts/job.sh" "$running" || runs "$scripts/$name.sh" "$running"; then
                ok "$1 is $running"
            else
                problem "$1 is $running, which does not run $scripts/job.sh: call that from yours and exit with its code, or name a" \
                    "folder of links ($1=/etc/slurm/$name.d/*)"
            fi
            ;;
        HealthCheckProgram-*)
            if runs "$scripts/health-check.sh" "$running"; then
                ok "$1 is $running"
            else
                problem "$1 is $running, which does not run $scripts/health-check.sh: call that from yours"
            fi
            ;;
        PrologFlags-* | SchedulerParameters-*)
            case ",$running," in
                *,"$2",*) ok "$1 contains $2" ;;
                *) problem "$1 ($where) is $running: append ,$2" ;;
            esac
            ;;
        *) ok "$1 is $running" ;;
    esac
}

# Checks the settings, and that Slurm knows this node's GPUs.
slurm() {
    config=$(timeout 30 "$NODE_CHECK_SCONTROL" show config) || {
        problem "'$NODE_CHECK_SCONTROL show config' failed; slurm.conf was not checked"
        return
    }
    conf=$(parameter SLURM_CONF)
    defined=$(definitions "$conf")
    [ -z "$(places unreadable)" ] || problem "cannot read $(places unreadable)"
    while IFS='=' read -r name value; do
        setting "$name" "$(printf '%s' "$value" | sed "s|^/usr/share/gpu-triage-exporter/slurm|$scripts|")"
    done <"$scripts/slurm.conf"
    [ -z "$lines" ] || return
    limit=$(parameter PrologEpilogTimeout)
    if [ "${limit%% *}" -le "$NODE_CHECK_LOOK_SECONDS" ]; then
        problem "PrologEpilogTimeout is $limit s: raise it above NODE_CHECK_LOOK_SECONDS, which is $NODE_CHECK_LOOK_SECONDS"
    fi
    # Slurm's name of a node may differ from the host's.
    nodes=$("$NODE_CHECK_SCONTROL" show node --oneliner | grep ' Gres=[^ ]*gpu')
    if printf '%s\n' "$nodes" | grep -qE "(NodeName=$(node)|NodeHostName=$(hostname -s)) "; then
        names=$(printf '%s\n' "$nodes" | sed 's/^NodeName=\([^ ]*\).*/\1/' | paste -sd , -)
        short=$("$NODE_CHECK_SCONTROL" show hostlist "$names")
        ok "Slurm has GPUs on ${short:-$names}: each of these needs the package and this preflight"
    elif has_gpus; then
        problem "Slurm knows no GPU of $(node): give it Gres=gpu in $conf and a gres.conf"
    fi
}

case ${1:-} in
    '') ;;
    --lines)
        lines=yes
        exec 3>&1 >&2
        echo >&3
        slurm
        [ "$problems" -eq 0 ]
        exit
        ;;
    *)
        echo "usage: preflight.sh [--lines]" >&2
        exit 2
        ;;
esac

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
    waited=0
    until answer >/dev/null || [ "$waited" -ge "$NODE_CHECK_START_SECONDS" ]; do
        sleep 1
        waited=$((waited + 1))
    done
    if answer >/dev/null; then
        ok "the exporter answers at $NODE_CHECK_URL"
        # shellcheck disable=SC2086
        if curl -sf --max-time 10 $NODE_CHECK_CURL_OPTIONS "$NODE_CHECK_URL/metrics" | grep -q 'collector="slurm_jobs"'; then
            ok "the exporter reads which job has which GPU"
        else
            problem "the exporter does not name jobs: set GPU_TRIAGE_SLURM_JOBS_DIRECTORY=/run/gpu-triage/jobs in" \
                "/etc/default/gpu-triage-exporter, and restart it"
        fi
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

slurm
[ "$problems" -eq 0 ]
