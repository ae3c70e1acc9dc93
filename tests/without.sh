#!/usr/bin/env bash
# Runs pytest in a copy of the repository from which add-ons and their tests were taken away. A test elsewhere that asks
# for one of them must be told so in one line; it is then skipped. Arguments after the folders are those of pytest:
#
#   bash tests/without.sh serve -q tests/search
#   bash tests/without.sh families/whisper nemo -n 3
#   bash tests/without.sh all -n 3 --dist loadfile

set -euo pipefail
cd "$(dirname "$0")/.."
. ./path.sh

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$copy"
cd "$copy"
while [[ $# -gt 0 && $1 != -* && $1 != tests* ]]; do
  if [[ $1 == all ]]; then
    rm -r wenet_uio/addons/*/ tests/addons
  else
    rm -r "wenet_uio/addons/$1"
    rm -rf "tests/addons/$1" "tests/addons/${1%/*}/test_${1#*/}.py"
  fi
  shift
done
while read -r path; do
  [[ ! -e $path ]] || echo "$path"
done <tests/quick.txt >kept
mv kept tests/quick.txt
git init -q . && git add --all # tests ask git which files there are

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} PYTHONPATH=$copy
python -m pytest -p tests.support.taken_away -q -rs "$@"
