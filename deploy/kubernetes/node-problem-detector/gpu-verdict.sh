#!/bin/bash
# Plugin for the node problem detector: reports the findings of one severity in the exporter's verdict on this node.
#
#   gpu-verdict.sh critical|warning
#
# Exit code 0: no findings. 1: findings, printed on standard output, worst first. 2: unknown, because the exporter does not respond or
# has no verdict yet; do not drain a node for this. The script uses bash because the detector's image has no curl, and bash can open
# the connection itself. An exporter with TLS requires curl.
severity=${1:?critical or warning}
host=${GPU_VERDICT_HOST:-${NODE_IP:-127.0.0.1}}
port=${GPU_VERDICT_PORT:-9836}
seconds=${GPU_VERDICT_SECONDS:-5}
longest=180

unknown() {
    echo "$1"
    exit 2
}

# Prints the exporter's response to a GET, including the headers.
get() {
    if [ -n "$GPU_VERDICT_CURL_OPTIONS" ]; then
        # shellcheck disable=SC2086  # options, parted by spaces
        curl --silent --include --max-time "$seconds" $GPU_VERDICT_CURL_OPTIONS --header 'Accept: text/plain' \
            "https://$host:$port/api/v1/verdict"
        return
    fi
    exec 3<>"/dev/tcp/$host/$port" || return
    printf 'GET /api/v1/verdict HTTP/1.0\r\nHost: %s:%s\r\nAccept: text/plain\r\nConnection: close\r\n\r\n' "$host" "$port" >&3
    cat <&3
}

if [ -z "$GPU_VERDICT_INSIDE" ]; then
    # Run the script again under `timeout`, because bash cannot limit the time of a connection.
    answer=$(GPU_VERDICT_INSIDE=1 timeout --kill-after=1 "$seconds" "$BASH" "$0" "$severity" 2>/dev/null)
    case $? in
        124 | 137) unknown "the exporter at $host:$port did not respond within $seconds s" ;;
    esac
else
    get
    exit
fi

read -r protocol code _ <<<"${answer%%$'\r'*}"
[[ $protocol == HTTP/* ]] || unknown "no exporter responds at $host:$port"
body=${answer#*$'\r\n\r\n'}
[ "$code" = 200 ] || unknown "the exporter has no verdict (${code:-no response}): ${body:0:$longest}"
[[ $body == host$'\t'* ]] || unknown "the server at $host:$port is not a gpu-triage exporter"

found=
# A critical finding is a warning until it has lasted, and again once its condition is gone.
while IFS=$'\t' read -r kind gpu slot grade finding _ measured state _ _ holds _; do
    [ "$kind" = maintenance ] && exit 0 # it precedes the findings
    [ "$kind" = finding ] && [ "$grade" = "$severity" ] || continue
    subject="GPU $gpu "
    [ "$gpu" = - ] && subject="GPU at $slot " && [ "$slot" = - ] && subject=
    [ "$state" = pending ] && measured+=" (pending)"
    [ "$holds" = no ] && measured+=" (gone)"
    found+="${found:+; }$subject$finding: $measured"
done <<<"$body"
[ -z "$found" ] && exit 0
echo "${found:0:$longest}"
exit 1
