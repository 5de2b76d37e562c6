#!/bin/sh
# Start the hook in a pilot of any kind: docs/operators/glideins.md.
#
# GlideinWMS calls this script once when the pilot starts, and then periodically, with glidein_config as its first
# argument. With pyglidein, containers and condor_config only the startd calls it. All arguments go to the hook.
#
# The hook is the first existing one of
#   HYDRATOR_HOOK    in the environment, then in glidein_config: a path below /cvmfs or in a container
#   classad-hydrator-hook    beside this script: a frontend delivers both
#
# A pilot without the hook, or without Python 3.6, runs without the locality attributes. Then one line on stderr
# has the reason, nothing is published, and the status is 0, because any other status ends a glidein at its start.
# The trap keeps status 0 if sh itself fails; execfail does so for a failed exec, where bash removes the trap.
trap 'exit 0' 0
# shellcheck disable=SC3044 # without shopt this does nothing
shopt -s execfail 2>/dev/null

say() {
    echo "locality_hook: $*: this pilot publishes no datasets" >&2
}

case ${1:-} in
    glidein_config | */glidein_config) config=$1 ;;
    *) config=${CONDOR_CONFIG:-/nonexistent/condor_config}
        config=${config%/*}/glidein_config ;;
esac

hook=${HYDRATOR_HOOK:-}
if [ -z "$hook" ] && [ -f "$config" ] && [ -r "$config" ]; then
    hook=$(sed -n 's/^HYDRATOR_HOOK //p' "$config" | tail -n 1)
fi
if [ -z "$hook" ]; then
    case $0 in
        */*) hook=${0%/*}/classad-hydrator-hook ;;
        *) hook=./classad-hydrator-hook ;;
    esac
fi
if [ ! -f "$hook" ] || [ ! -r "$hook" ]; then
    say "no hook at $hook (set HYDRATOR_HOOK to its path)"
    exit 0
fi

for python in python3 /usr/libexec/platform-python; do
    if command -v "$python" >/dev/null 2>&1 &&
        "$python" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 6))' </dev/null >/dev/null 2>&1; then
        exec "$python" -I -S "$hook" "$@"
    fi
done
say "no Python 3.6 or later on PATH=${PATH:-}"
exit 0
