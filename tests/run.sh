#!/usr/bin/env bash
# Installs the packages of the tests, then runs ruff, codespell, shellcheck, basedpyright and pytest. Arguments are passed
# to pytest:
#
#   bash tests/run.sh
#   bash tests/run.sh tests/dataset -k plan
#   bash tests/run.sh --quick       # an answer within a minute: lint, types, and tests without processes and audio
#   bash tests/run.sh --all         # also the tests marked `all`: whole matrices, runtimes of others, faults

set -euo pipefail
cd "$(dirname "$0")/.."
. ./path.sh
need_packages tests/requirements.txt examples/espeak/s0/requirements.txt requirements/onnx.txt requirements/serve.txt \
  requirements/docs.txt

lint() { # arguments: options of shellcheck
  ruff check . &&
    ruff format --check . &&
    codespell &&
    hadolint Dockerfile &&
    shellcheck "$@" path.sh tools/*.sh tests/*.sh .ci/run examples/*/*/run.sh examples/*/*/local/*.sh \
      examples/large/cluster/*.{sh,sbatch}
}

unset PYTHONDONTWRITEBYTECODE # the processes of the tests would compile every module anew
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} # small models in several parallel processes
if [[ ${1:-} == --quick ]]; then
  shift
  basedpyright &
  typing=$!
  status=0
  lint --extended-analysis=false || status=1 # without the flow of values: half the time
  mapfile -t files <tests/quick.txt
  python -m pytest -q --hypothesis-profile quick "${files[@]}" "$@" || status=1
  wait "$typing" || status=1
  exit "$status"
fi
types=$(mktemp)
basedpyright >"$types" &
typing=$!
trap 'kill "$typing" 2>/dev/null || true; rm "$types"' EXIT
lint
if [[ ! -e tests/__pycache__/all ]]; then # compile the tests once, for all processes of the tests
  if python -m pytest -q --collect-only >/dev/null; then touch tests/__pycache__/all; fi
fi
status=0
python -m pytest -n 3 --dist loadfile --no-loadscope-reorder "$@" || status=1
wait "$typing" || status=1
cat "$types"
exit "$status"
