#!/bin/sh
# Starts the hook in a pilot, whatever started the pilot: docs/how-to/operate/pilots.md.
#
# GlideinWMS calls it once when the pilot starts and then periodically, with glidein_config as its first
# argument; pyglidein, containers and condor_config let the startd call it alone. Arguments go to the hook.
#
# The hook is the first of
#   HYDRATOR_HOOK    in the environment, then in glidein_config: a path below /cvmfs or in a container
#   classad-hydrator-hook    beside this script: a frontend delivers both
#
# A pilot without the hook, or without Python 3.6, runs on without our attributes: one line on stderr says
# why, nothing is published, and the status is 0, since another one ends a glidein at its start; also where sh
# itself cannot go on (bash forgets the trap at exec).
trap 'exit 0' 0
# shellcheck disable=SC3044 # where there is no shopt this does nothing
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
    say "there is no hook at $hook (HYDRATOR_HOOK says where)"
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
