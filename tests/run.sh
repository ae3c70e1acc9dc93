#!/usr/bin/env bash
# Sets up what the tests need and runs all of them: ruff, shellcheck, pytest. Arguments go to pytest:
#
#   bash tests/run.sh
#   bash tests/run.sh tests/dataset -k plan

set -euo pipefail
cd "$(dirname "$0")/.."
. ./path.sh
need_packages tests/requirements.txt examples/espeak/s0/requirements.txt requirements/onnx.txt

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} # the tests run small models, in several processes at a time
ruff check .
ruff format --check .
shellcheck path.sh tools/*.sh tests/run.sh .ci/run examples/*/*/run.sh examples/*/*/local/*.sh
python -m pytest -n 2 --dist loadfile "$@"
