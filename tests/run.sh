#!/usr/bin/env bash
# Installs the packages of the tests, then runs ruff, shellcheck and pytest. Arguments are passed to pytest:
#
#   bash tests/run.sh
#   bash tests/run.sh tests/dataset -k plan

set -euo pipefail
cd "$(dirname "$0")/.."
. ./path.sh
need_packages tests/requirements.txt examples/espeak/s0/requirements.txt requirements/onnx.txt

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} # small models in several parallel processes
ruff check .
ruff format --check .
shellcheck path.sh tools/*.sh tests/run.sh .ci/run examples/*/*/run.sh examples/*/*/local/*.sh
python -m pytest -n 2 --dist loadfile "$@"
