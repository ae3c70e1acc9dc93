#!/usr/bin/env bash
# LibriSpeech: 960 hours of read English books, 16 kHz.  Results: README.md
#
#   bash run.sh                                             # downloads the corpus (60 GB) and does everything
#   bash run.sh --data /corpora/LibriSpeech                 # takes an existing copy
#   bash run.sh --train_parts train-clean-100               # a tenth of it
#
# Stages: -1 download  0 data  1 cmvn  2 dict  3 lists  4 train  5 average, decode, score  6 export

# shellcheck disable=SC2034 # options: tools take them by with_options
set -euo pipefail
cd "$(dirname "$0")"
. ../../../path.sh
. recipe.sh

# Every variable below is an option, --stage 4 sets stage; so are those of the tools called with_options (--help has all).
stage=-1
stop_stage=6
data=                     # folder of an existing copy; default: stage -1 downloads one to data/corpus
train_parts="train-clean-100 train-clean-360 train-other-500"
bpe=5000                  # pieces of the sentencepiece model
data_type=raw             # raw: audio files; shard: tar archives
num_utts_per_shard=1000
config=conf/train_conformer.yaml
override=                 # keys of the config to change: "max_epoch=3 dataset_conf.spec_aug=false"
dir=                      # of the experiment; default: exp/<name of config>_bpe<pieces>
average_num=30            # checkpoints with the lowest validation loss
decode_modes="ctc_greedy_search ctc_prefix_beam_search attention attention_rescoring"
onnx=false                # true: export to ONNX too
parse_options "$@"
dict=${dict:-data/dict_bpe$bpe}
override_units "$dict"
dir=${dir:-exp/$(basename "$config" .yaml)_bpe$bpe}

if [[ -z $data ]] && stage -1 "download"; then
  local/download.sh data/corpus "$train_parts"
fi

if stage 0 "wav.scp and text of train, dev, test_clean, test_other"; then
  # shellcheck disable=SC2086 # a list
  local/prepare_data.py "$(from_caller "${data:-$PWD/data/corpus}")" data --train_parts $train_parts
fi

if stage 1 "mean and variance of the features"; then
  with_options compute_cmvn.sh
fi

if stage 2 "units: pieces of words"; then
  with_options make_units.sh --dict "$dict"
fi

if stage 3 "data lists ($data_type)"; then
  with_options make_lists.sh --parts "data/train data/dev data/test_clean data/test_other"
fi

if stage 4 "train ($dir)"; then
  require data/train/global_cmvn "$dict/units.txt"
  with_options train.sh
fi

if stage 5 "average, decode, score"; then
  with_options decode.sh --tests "test_clean test_other"
fi

if stage 6 "export"; then
  with_options export.sh --check_part test_clean
fi
