#!/usr/bin/env bash
# Runs the tests that read bytes of strangers with the lowest versions that the requirements allow, in the environment
# build/lowest. What the requirements do not name, such as torch's own packages, is that of the other tests. Arguments are
# passed to pytest:
#
#   bash tests/lowest.sh
#   bash tests/lowest.sh tests/audio

set -euo pipefail
cd "$(dirname "$0")/.."
. ./path.sh
unset PIP_CONSTRAINT
need_packages tests/requirements.txt examples/espeak/s0/requirements.txt requirements/onnx.txt requirements/serve.txt \
  requirements/docs.txt

files=(requirements.txt requirements/{serve,onnx,parquet,huggingface,whisper,lhotse,hub,vad,lm,s3,oss}.txt)
lowest=build/lowest
mkdir -p build
python -m tests.support.lowest_versions "${files[@]}" >build/lowest.txt
if ! cmp -s build/lowest.txt "$lowest/installed.txt"; then
  rm -rf "$lowest"
  python -m venv "$lowest"
  python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$(echo "$lowest"/lib/python3*/site-packages)/tests.pth"
  "$lowest/bin/python" -m pip install --quiet --disable-pip-version-check -r build/lowest.txt
  cp build/lowest.txt "$lowest/installed.txt"
fi
export VIRTUAL_ENV=$PWD/$lowest PATH=$PWD/$lowest/bin:$PATH OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
python tools/check_requirements.py build/lowest.txt

if (($# == 0)); then
  set -- tests/audio tests/text tests/dataset/formats tests/dataset/storage tests/addons/corpora tests/addons/runtimes \
    tests/addons/serve/test_{connections,messages,strangers,uploads}.py tests/prepare/test_archive.py
fi
python -m pytest -q "$@"
