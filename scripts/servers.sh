#!/usr/bin/env bash
# Make sure that a redis-server is on PATH. The tests start and stop their own servers: none is left running here.
set -euo pipefail

say() { echo "servers: $*"; }

missing() {
    say "$1"
    if [ "${CI:-}" = "true" ]; then
        say "this is CI, where no test may be skipped: giving up" >&2
        exit 1
    fi
    say "tests on Redis will be skipped; to run them, install redis-server (Debian: apt-get install redis-server)"
    exit 0
}

# Packages start their services when they are installed, unless this file says no.
no_services() {
    policy=/usr/sbin/policy-rc.d
    [ -e "$policy" ] && return
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod +x "$policy"
}

install_server() {
    export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
    log=$(mktemp)
    no_services
    if apt-get -qq update > "$log" 2>&1 < /dev/null &&
        apt-get -qq install -y --no-install-recommends redis-server >> "$log" 2>&1 < /dev/null; then
        rm -f "$log"
        return 0
    fi
    tail -n 20 "$log" >&2
    rm -f "$log"
    return 1
}

if command -v redis-server > /dev/null; then
    say "using $(command -v redis-server), version $(redis-server --version | sed -E 's/.*v=([^ ]+).*/\1/')"
elif [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    # At a terminal the user decides; where no one can answer, the tests get their server.
    if [ -t 0 ] && [ "${CI:-}" != "true" ]; then
        read -r -p "servers: no redis-server on PATH. Install it with apt-get? [Y/n] " answer
        case "$answer" in [nN]*) missing "redis-server is not installed" ;; esac
    fi
    say "no redis-server on PATH: installing it with apt-get"
    install_server || missing "apt-get could not install redis-server"
    command -v redis-server > /dev/null || missing "redis-server was installed but is not on PATH"
    say "installed $(command -v redis-server), version $(redis-server --version | sed -E 's/.*v=([^ ]+).*/\1/'); its service is not started"
else
    missing "no redis-server on PATH"
fi
