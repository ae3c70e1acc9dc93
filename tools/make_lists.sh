#!/usr/bin/env bash
# Makes the data list of each part of a corpus from its wav.scp and text.
#
#   make_lists.sh --data_type shard --nj 16 --parts "data/train data/dev data/test"

set -euo pipefail
. recipe.sh

data_type=raw           # raw: PART/data.list names audio files; shard: it names the tar archives in PART/shards
num_utts_per_shard=1000
nj=1
parts=                  # folders, separated by spaces
parse_options "$@"

for part in $parts; do
  require "$part/wav.scp" "$part/text"
  if [[ $data_type == shard ]]; then
    make_shard_list.py --num_utts_per_shard "$num_utts_per_shard" --num_threads "$nj" \
      "$part/wav.scp" "$part/text" "$part/shards" "$part/data.list"
  else
    make_raw_list.py --num_utts_per_shard "$num_utts_per_shard" "$part/wav.scp" "$part/text" "$part/data.list"
  fi
done
