#!/usr/bin/env bash
# Computes mean and variance of the features of data/train: writes data/train/global_cmvn.
#
#   compute_cmvn.sh --config conf/train_conformer.yaml --nj 16

set -euo pipefail
. recipe.sh

config=                   # train.yaml with the configuration of the features
override=                 # config keys to change: "dataset_conf.fbank_conf.num_mel_bins=40"
cmvn_utts=                # utterances for mean and variance, drawn at random; default: all
nj=                       # processes that prepare data; default: one for each core, with ray the whole cluster
executor=processes        # processes, or ray: prepare data on the Ray cluster at RAY_ADDRESS
allow_bad=false           # true: leave out utterances with bad audio, and print their keys
parse_options "$@"

require data/train/wav.scp
preparing
overriding
compute_cmvn_stats.py "${PREPARING[@]}" --train_config "$config" "${OVERRIDE[@]}" \
  --in_scp data/train/wav.scp ${cmvn_utts:+--num_utts "$cmvn_utts"} --out_cmvn data/train/global_cmvn
