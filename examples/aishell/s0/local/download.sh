#!/usr/bin/env bash
# Downloads AISHELL-1 (OpenSLR 33) to a folder: 15.6 GB; unpacking needs as much space again. OpenSLR publishes no digest;
# those here are what several others found.
#
#   local/download.sh data/corpus [true]    # true: also resource_aishell/, the lexicon and the list of speakers

set -euo pipefail
. recipe.sh

url=https://www.openslr.org/resources/33
if [[ ${2-} == true ]]; then
  download.py --unpack --size 1246920 \
    --sha256 1a6749854456e9402bc7295767937367afed1327799a5e1df0ed64baa5f77409 \
    "$url/resource_aishell.tgz" "$1/resource_aishell"
fi
download.py --unpack --size 15582913665 --count 'transcript/*.txt=1' \
  --sha256 a4a0313cde0a933e0e01a451f77de0a23d6c942f4694af5bb7f40b9dc38143fe \
  "$url/data_aishell.tgz" "$1/data_aishell"

"$(dirname "$0")/unpack_speakers.py" "$1/data_aishell/wav"
found=$(find "$1/data_aishell/wav" -name '*.wav' | wc -l)
((found == 141925)) || die "$1/data_aishell/wav: expected 141925 recordings, found $found; remove it and run again"
