# Shared by the prolog, the epilog, the health check and the preflight: gets the verdict on the GPUs and drains the node. POSIX sh,
# sourced.
#
# The verdict comes from the running exporter, within milliseconds. If there is none, `gpu-triage check` runs for three seconds. Only
# findings that are critical now count, and only those about the given GPUs or about the whole host. A finding that must last, such as
# too few PCIe lanes, is a warning until it has lasted; a check of three seconds cannot confirm it, so that only the exporter drains
# for it. It is a warning again once its condition is gone, although its alert is held for minutes. If there is no report either, the
# program is missing, broken, or has invalid options. This says nothing about the GPUs, so it is logged, and the node is drained only
# if NODE_CHECK_UNCHECKED is "drain".

# Settings. They can come from a file, because slurmd passes almost no environment to its scripts. Their names do not start with
# GPU_TRIAGE_, because the program rejects such variables if they are not options.
NODE_CHECK_SETTINGS=${NODE_CHECK_SETTINGS:-/etc/default/gpu-triage-slurm}
settings_error=
if [ -r "$NODE_CHECK_SETTINGS" ]; then
    # An error in the file ends the shell that reads it, and a prolog that fails drains the node: try it in a shell of its own.
    # shellcheck source=/dev/null
    if (. "$NODE_CHECK_SETTINGS"; true) >/dev/null 2>&1; then
        . "$NODE_CHECK_SETTINGS"
    else
        settings_error="$NODE_CHECK_SETTINGS is ignored: it has an error"
    fi
fi
NODE_CHECK_URL=${NODE_CHECK_URL:-http://localhost:9836}
NODE_CHECK_CURL_OPTIONS=${NODE_CHECK_CURL_OPTIONS:-}               # such as: --cacert /etc/ssl/exporter.pem --netrc-file /root/.netrc
NODE_CHECK_ANSWER_SECONDS=${NODE_CHECK_ANSWER_SECONDS:-2}
NODE_CHECK_PROGRAM=${NODE_CHECK_PROGRAM:-gpu-triage}               # a path, or a name to look up in PATH
NODE_CHECK_LOOK=${NODE_CHECK_LOOK:---for 3s --patience 30s}        # more options, such as: --expect.gpu-count 8
NODE_CHECK_LOOK_SECONDS=${NODE_CHECK_LOOK_SECONDS:-45}             # below slurmd's own limit (PrologEpilogTimeout)
NODE_CHECK_START_SECONDS=${NODE_CHECK_START_SECONDS:-30}           # for which the preflight waits for an exporter that has just started
NODE_CHECK_UNCHECKED=${NODE_CHECK_UNCHECKED:-log}                  # if nothing could be checked: log, or drain
NODE_CHECK_TEXTFILE_DIRECTORY=${NODE_CHECK_TEXTFILE_DIRECTORY:-}   # of node_exporter
NODE_CHECK_LOGGER=${NODE_CHECK_LOGGER:-logger}
NODE_CHECK_SCONTROL=${NODE_CHECK_SCONTROL:-scontrol}
NODE_CHECK_GPU_NUMBERS=${NODE_CHECK_GPU_NUMBERS:-index}            # numbers in SLURM_JOB_GPUS: index (NVML), or minor (/dev/nvidiaN)
NODE_CHECK_DEVICE_FILES=${NODE_CHECK_DEVICE_FILES:-/dev}
NODE_CHECK_DRIVER_FILES=${NODE_CHECK_DRIVER_FILES:-/proc/driver/nvidia/gpus}
NODE_CHECK_PCI_DEVICES=${NODE_CHECK_PCI_DEVICES:-/sys/bus/pci/devices}
# slurmd passes no PATH. The program is in /usr/bin (deb, rpm), /usr/local/bin or /root/.local/bin (pipx, uv), or /opt/gpu-triage.
PATH=${PATH:+$PATH:}/usr/bin:/bin:/usr/local/bin:/opt/gpu-triage/bin:/root/.local/bin:/opt/slurm/bin
export PATH

# To syslog, because slurmd logs the output of a script only if the script fails.
log() {
    line="${SLURM_JOB_ID:+job $SLURM_JOB_ID: }$1"
    echo "gpu-triage-$role: $line" >&2
    # shellcheck disable=SC2086  # options, separated by spaces
    timeout 5 $NODE_CHECK_LOGGER -t "gpu-triage-$role" -p daemon.err -- "$line" || :
}

[ -z "$settings_error" ] || log "$settings_error"

# judge [IDS]: gets the verdict on these GPUs (Slurm's numbers; default: all), and prints the reason to drain the node; prints nothing
# without a reason, or in maintenance.
judge() {
    command -v awk >/dev/null || {
        unchecked "awk is not installed"
        return
    }
    report=$(answer || look)
    found=$(
        case $report in
            host*)
                record 1
                reason "$report" "${1:-}"
                ;;
            *) unchecked "$report" ;;
        esac
    )
    [ -n "$found" ] || return 0
    maintained "$report" || {
        echo "$found"
        return
    }
    [ "$role" = health-check ] || log "the node is in maintenance, so nothing is done about $found"
}

# maintained REPORT: succeeds if the report says that the node is in maintenance, or the program without a report.
maintained() {
    {
        printf '%s\n' "$1"
        path=$(program) && timeout 5 "$path" maintenance status 2>/dev/null
    } | grep -qE "^(maintenance$(printf '\t')|in maintenance )"
}

# Prints the report of the running exporter, in the format of `gpu-triage check --format lines`; fails if there is none.
answer() {
    # shellcheck disable=SC2086
    report=$(curl --silent --fail --max-time "$NODE_CHECK_ANSWER_SECONDS" $NODE_CHECK_CURL_OPTIONS \
        --header 'Accept: text/plain' "$NODE_CHECK_URL/api/v1/verdict" 2>/dev/null) || return 1
    case $report in
        host*) printf '%s\n' "$report" ;;
        *) return 1 ;;
    esac
}

# Prints the path of the program; fails if it cannot be run.
program() {
    path=$(command -v "$NODE_CHECK_PROGRAM") && [ -x "$path" ] && [ ! -d "$path" ] && echo "$path"
}

# Prints the report of the program, or why there is none.
look() {
    found=$(program) || {
        echo "no verdict from $NODE_CHECK_URL, and $NODE_CHECK_PROGRAM is not installed"
        return
    }
    # shellcheck disable=SC2086
    report=$(timeout --kill-after=5 "$NODE_CHECK_LOOK_SECONDS" "$found" check --format lines $NODE_CHECK_LOOK)
    code=$?
    case $code-$report in
        124-* | 137-*)
            log "no answer in $NODE_CHECK_LOOK_SECONDS s: the driver hangs"
            printf 'host\tdrain\t-\tthe driver hangs\nfinding\t-\t-\tcritical\tdriver.hangs\tdrain\t-\n'
            ;;
        *-host*) printf '%s\n' "$report" ;;
        *) echo "no verdict from $NODE_CHECK_URL, and '$found check' ended with code $code and without a report" ;;
    esac
}

# unchecked CAUSE: reports that there is no verdict; prints the reason to drain the node if it is to be drained for that.
unchecked() {
    log "nothing was checked: $1"
    has_gpus || return 0
    record 0
    case $NODE_CHECK_UNCHECKED in
        log) ;;
        drain) echo "unchecked: $1 (gpu-triage)" ;;
        *) log "NODE_CHECK_UNCHECKED is '$NODE_CHECK_UNCHECKED' instead of log or drain; the node is not drained" ;;
    esac
}

# record 0|1: tells node_exporter whether this script got a verdict.
record() {
    [ -n "$NODE_CHECK_TEXTFILE_DIRECTORY" ] || return 0
    file=$NODE_CHECK_TEXTFILE_DIRECTORY/slurm-gpu-check-$role.prom
    # Rename the finished file: node_exporter may read at any time, and it may run as another user. If the directory is that user's,
    # it may have links: none is written through (set -C) or moved into (-T).
    (umask 022 && set -C && rm -f "$file.$$" && printf '%s\n' \
        '# HELP slurm_gpu_check_success 1 if the last run of this script got a verdict on the GPUs, 0 if nothing was checked.' \
        '# TYPE slurm_gpu_check_success gauge' \
        "slurm_gpu_check_success{script=\"$role\"} $1" >"$file.$$" && mv -fT "$file.$$" "$file") ||
        log "cannot write $file"
}

# Succeeds if the node has an NVIDIA GPU: a device file, a GPU that the driver knows, or one on the PCI bus. The health check runs
# on every node of a cluster, and SLURM_JOB_GPUS may refer to GPUs of another vendor.
has_gpus() {
    for file in "$NODE_CHECK_DEVICE_FILES"/nvidia[0-9]* "$NODE_CHECK_DRIVER_FILES"/*; do
        [ ! -e "$file" ] || return 0
    done
    grep -qsi '^0x10de' "$NODE_CHECK_PCI_DEVICES"/*/vendor
}

# "number=address" of each GPU, by the number of its device file; nothing if Slurm numbers GPUs like NVML.
numbers() {
    [ "$NODE_CHECK_GPU_NUMBERS" = minor ] || return 0
    for file in "$NODE_CHECK_DRIVER_FILES"/*/information; do
        [ -r "$file" ] || continue
        awk -F ':[ \t]+' -v slot="$(basename "$(dirname "$file")")" '/^Device Minor/ { print $2 + 0 "=" tolower(slot) }' "$file"
    done | tr '\n' ' '
}

# reason REPORT [IDS]: prints the critical findings about the host and these GPUs (Slurm's numbers, such as 0,3 or 0-3; default: all
# GPUs) in one line, as drain reason; prints nothing if there are none. For a job, GPUs that could not be checked are a reason too.
# The code of a finding comes first, because `sinfo -R` shows 20 characters. A GPU has the number that the exporter gives it.
reason() {
    printf '%s\n' "$1" | awk -F '\t' -v ids="${2:-}" -v numbers="$(numbers)" '
        BEGIN {
            count = split(numbers, pairs, " ")
            for (i = 1; i <= count; i++) { split(pairs[i], pair, "="); slot_of[pair[1]] = pair[2] }
            mapped = count
            count = split(ids, given, ",")
            all = !count
            for (i = 1; i <= count; i++) {
                ends = split(given[i], range, "-")
                # Anything but a number, such as the name of a MIG device, may refer to any GPU.
                if (given[i] !~ /^[0-9]+(-[0-9]+)?$/ || range[ends] - range[1] > 256) { all = 1; continue }
                for (id = range[1]; id <= range[ends]; id++) {
                    if (!mapped) index_of[id] = 1
                    else if (id in slot_of) wanted[slot_of[id]] = 1
                    else all = 1
                }
            }
        }
        $1 == "host" && $4 != "-" && ids != "" { blocked = $4 }
        $1 == "gpu" && $2 != "-" { number_at[tolower($3)] = $2 }
        $1 == "finding" && $4 == "critical" {
            host = $2 == "-" && $3 == "-"
            # A GPU that was lost before its address was read may belong to any job.
            if (!(host || all || (mapped && $3 == "-") || (tolower($3) in wanted) || (!mapped && ($2 in index_of)))) next
            number = $2 == "-" && tolower($3) in number_at ? number_at[tolower($3)] : $2
            subject = host ? "" : number == "-" ? " GPU at " $3 : " GPU " number
            if (seen[$5 subject]++) next
            text = text (text == "" ? "" : ", ") $5 subject
        }
        END {
            if (text == "" && blocked != "") text = "unchecked: " blocked
            if (text != "") print substr(text, 1, 200) " (gpu-triage)"
        }
    '
}

node() { echo "${SLURMD_NODENAME:-$(hostname -s)}"; }

# drain REASON: drains the node; a node that is already drained keeps its reason.
drain() {
    state=$("$NODE_CHECK_SCONTROL" show node "$(node)" --oneliner 2>/dev/null)
    case $state in
        *DRAIN*) return 0 ;;
    esac
    log "draining the node: $1"
    "$NODE_CHECK_SCONTROL" update NodeName="$(node)" State=DRAIN Reason="$1" >&2
}
