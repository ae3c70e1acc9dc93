#!/usr/bin/env bash
# Makes the data list of each part of a corpus from its wav.scp and text, and segments where it has them.
#
#   make_lists.sh --data_type shard --nj 16 --parts "data/train data/dev data/test"

set -euo pipefail
. recipe.sh

data_type=raw             # raw: PART/data.list names audio files; shard: it names the tar archives in PART/shards
num_utts_per_shard=1000
nj=                       # processes that prepare data; default: one a core, with --executor ray the whole cluster
executor=processes        # ray: data is prepared on the cluster that RAY_ADDRESS names
allow_bad=false           # true: go on without utterances whose audio is bad; they are named, here and in data.list.json
parts=                    # folders that lists are made of, separated by spaces
parse_options "$@"

preparing
for part in $parts; do
  require "$part/wav.scp" "$part/text"
  flags=("${PREPARING[@]}" --num_utts_per_shard "$num_utts_per_shard")
  if [[ -e $part/segments ]]; then flags+=(--segments "$part/segments"); fi
  if [[ $data_type == shard ]]; then
    make_shard_list.py "${flags[@]}" "$part/wav.scp" "$part/text" "$part/shards" "$part/data.list"
  else
    make_raw_list.py "${flags[@]}" "$part/wav.scp" "$part/text" "$part/data.list"
  fi
done
