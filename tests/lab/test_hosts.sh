#!/bin/bash
# test_hosts.sh PROGRAM...: runs each MPI test program over pretended hosts (see hosts): two and three hosts, with the
# same and with different numbers of ranks on them, dealt out by host and in turns.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
skip() { echo "skipped: $*"; exit 77; }
[ "$(id -u)" = 0 ] || skip "pretended hosts need root"
command -v ip >/dev/null && command -v tc >/dev/null || skip "pretended hosts need iproute2 (ip and tc)"
ip netns list >/dev/null 2>&1 && unshare --pid --fork --mount-proc --uts --ipc true 2>/dev/null ||
    skip "this system does not allow network and process namespaces"

export LAB=t$$

log=$(mktemp)
trap '"$here/hosts" down; rm -f "$log"' EXIT
failed=0

# over HOSTS RANKS OPTIONS PROGRAM
over() {
    local began=$SECONDS status=0
    "$here/hosts" run -n "$2" -o "$3" "$4" </dev/null >"$log" 2>&1 || status=$?
    if [ $status = 0 ]; then
        echo "ok      $(basename "$4"), $2 ranks on $1 hosts${3:+, $3} ($((SECONDS - began)) s)"
    else
        failed=1
        echo "FAILED  $(basename "$4"), $2 ranks on $1 hosts${3:+, $3}: status $status"
        tail -40 "$log"
    fi
}

for hosts in 2 3; do
    "$here/hosts" up $hosts 1gbit
    for program in "$@"; do
        over $hosts $hosts "" "$program"
        over $hosts 4 "" "$program" # three hosts: 2, 2 and none
        over $hosts 4 "--map-by node" "$program" # three hosts: 2, 1 and 1; neighbours in rank are on different hosts
    done
    [ $hosts = 3 ] || for program in "$@"; do
        over 2 3 "" "$program" # 2 and 1
    done
done
exit $failed
