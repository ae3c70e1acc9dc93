# shellcheck shell=bash
# Sourced by every recipe: sets WENET_UIO_ROOT to the folder of this file, puts tools/ on PATH and the package on
# PYTHONPATH, and prepares the Python environment.

if [ -z "${BASH_VERSION:-}" ]; then
  echo "error: run it with bash: bash run.sh; or start bash, then source path.sh again" >&2
  return 1
fi
if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404)); then
  echo "error: bash $BASH_VERSION is too old; the recipes need 4.4 or newer" >&2
  return 1
fi

WENET_UIO_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" >/dev/null && pwd)
if [[ $WENET_UIO_ROOT == *:* ]]; then
  echo "error: $WENET_UIO_ROOT: a folder of PATH cannot have ':' in its name; rename or move it" >&2
  return 1
fi
export WENET_UIO_ROOT
export PATH="$WENET_UIO_ROOT/tools:$PATH"
if [[ ! -e $WENET_UIO_ROOT/../__main__.py ]]; then # in a clone
  export PYTHONPATH="$WENET_UIO_ROOT${PYTHONPATH:+:$PYTHONPATH}"
fi
export PYTHONIOENCODING=utf-8
# OpenMP threads that wait spin for about half a millisecond, since the next operation of a small model comes at once, and then
# sleep, so that data workers can use their cores. Torch reads this when it is loaded.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-20000}"

. "$WENET_UIO_ROOT/tools/setup_env.sh"
