#!/usr/bin/env bash
# Packs share INDEX of COUNT of the utterances of PART, to PART/shares/INDEX; the other arguments are those of make_shard_list.py.
#
#   pack_share.sh data/sources/corpus 3 32 --audio_format opus --nj 8
#
# Indexed jobs of a scheduler call it once for each INDEX from 0. The list of the part is then
#   cat PART/shares/*/data.list >PART/data.list

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
. "$root/path.sh"
(($# >= 3)) || { echo "error: expected PART INDEX COUNT" >&2 && exit 1; }
part=$1 index=$2 count=$3
shift 3
if [[ ! $index =~ ^[0-9]+$ || ! $count =~ ^[0-9]+$ ]] || ((index >= count)); then
  echo "error: share $index of $count: expected a number from 0 to COUNT - 1" >&2
  exit 1
fi

# Names of shares have as many digits, so that `*` lists them in order.
share=$part/shares/$(printf "%0${#count}d" "$index")
mkdir -p "$share"
awk -v n="$count" -v i="$index" 'NR % n == i' "$part/wav.scp" >"$share/wav.scp"
awk 'NR == FNR { mine[$1]; next } $1 in mine' "$share/wav.scp" "$part/text" >"$share/text"
exec make_shard_list.py "$@" "$share/wav.scp" "$share/text" "$share/shards" "$share/data.list"
