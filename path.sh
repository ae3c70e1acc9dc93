# shellcheck shell=bash
# Sourced by every recipe: finds the root from its own place, puts tools/ on PATH and the package on PYTHONPATH,
# and makes sure of the environment.

WENET_UIO_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" >/dev/null && pwd)
export WENET_UIO_ROOT
export PATH="$WENET_UIO_ROOT/tools:$PATH"
export PYTHONPATH="$WENET_UIO_ROOT${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONIOENCODING=utf-8
# Threads that wait leave the core to data workers and other processes; set before torch is loaded.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"

. "$WENET_UIO_ROOT/tools/setup_env.sh"
