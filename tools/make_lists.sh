#!/usr/bin/env bash
# Makes the data list of each part of a corpus from wav.scp and text, and from segments and utt2lang if the part has
# these files.
#
#   make_lists.sh --data_type shard --nj 16 --parts "data/train data/dev data/test"

set -euo pipefail
. recipe.sh

data_type=raw             # raw: PART/data.list lists audio files; shard: it lists the tar archives in PART/shards
num_utts_per_shard=1000   # utterances of a tar archive
nj=                       # processes that prepare data; default: one for each core, with ray the whole cluster
executor=processes        # processes, or ray: prepare data on the Ray cluster at RAY_ADDRESS
allow_bad=false           # true: leave out utterances with bad audio; their keys are printed and are in data.list.json
parts=                    # folders of the parts, separated by spaces: "data/train 'my data/test'"
parse_options "$@"

preparing
words "$parts"
for part in "${WORDS[@]}"; do
  require "$part/wav.scp" "$part/text"
  flags=("${PREPARING[@]}" --num_utts_per_shard "$num_utts_per_shard")
  if [[ -e $part/segments ]]; then flags+=(--segments "$part/segments"); fi
  if [[ -e $part/utt2lang ]]; then flags+=(--utt2lang "$part/utt2lang"); fi
  if [[ $data_type == shard ]]; then
    make_shard_list.py "${flags[@]}" "$part/wav.scp" "$part/text" "$part/shards" "$part/data.list"
  else
    make_raw_list.py "${flags[@]}" "$part/wav.scp" "$part/text" "$part/data.list"
  fi
done
