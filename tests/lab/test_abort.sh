#!/bin/bash
# test_abort.sh MPIRUN PROGRAM: a rank that calls comm_abort ends the whole job within seconds, with a status that is not
# 0, although the others sit in a collective, in shared memory or in MPI.
set -uo pipefail

for how in shared network; do
    began=$SECONDS
    timeout -k 2 30 "$1" --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -n 3 "$2" $how </dev/null >/dev/null 2>&1
    status=$?
    took=$((SECONDS - began))
    echo "$how: status $status after $took s"
    [ $status = 1 ] && [ $took -lt 15 ] || exit 1
done
