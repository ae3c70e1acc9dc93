#!/usr/bin/env bash
# Takes mean and variance of the features of data/train, for data/train/global_cmvn.
#
#   compute_cmvn.sh --config conf/train_conformer.yaml --nj 16

set -euo pipefail
. recipe.sh

config=                   # train.yaml, which says what the features are
override=                 # keys of it to change: "dataset_conf.fbank_conf.num_mel_bins=40"
cmvn_utts=                # utterances that mean and variance are taken of, drawn; default: all
nj=                       # processes that prepare data; default: one a core, with --executor ray the whole cluster
executor=processes        # ray: data is prepared on the cluster that RAY_ADDRESS names
allow_bad=false           # true: go on without utterances whose audio is bad; they are named
parse_options "$@"

require data/train/wav.scp
preparing
# shellcheck disable=SC2086 # a list
compute_cmvn_stats.py "${PREPARING[@]}" --train_config "$config" ${override:+--override_config $override} \
  --in_scp data/train/wav.scp ${cmvn_utts:+--num_utts "$cmvn_utts"} --out_cmvn data/train/global_cmvn
