#!/usr/bin/env bash
# LibriSpeech: 960 hours of read English books, 16 kHz.  Results: README.md
#
#   bash run.sh                                             # downloads the corpus (60 GB) and runs all stages
#   bash run.sh --data /corpora/LibriSpeech                 # uses an existing copy
#   bash run.sh --train_parts train-clean-100               # trains on a tenth of it
#
# Stages: -1 download  0 data  1 cmvn  2 dict  3 lists  4 train  5 average, decode, score  6 export

# shellcheck disable=SC2034 # with_options passes options to tools
set -eu
cd "$(dirname "$0")"
. ../../../path.sh
. recipe.sh

# Every variable below is an option: --stage 4 sets stage. Options of the tools that with_options calls are options too.
stage=-1
stop_stage=6
data=                     # folder of an existing copy; default: data/corpus, which stage -1 downloads
train_parts="train-clean-100 train-clean-360 train-other-500" # parts of the corpus that data/train joins
bpe=5000                  # number of BPE pieces
data_type=raw             # raw: audio files; shard: tar archives
num_utts_per_shard=1000   # utterances of a tar archive
config=conf/train_conformer.yaml
override=                 # config keys to change: "max_epoch=3 dataset_conf.spec_aug=false"
dir=                      # experiment folder; default: exp/<name of config>_bpe<pieces>
average_num=30            # number of checkpoints to average: those with the lowest validation loss
onnx=false                # true: export to ONNX too
parse_options "$@"
dict=${dict:-data/dict_bpe$bpe}
override_units "$dict"
dir=${dir:-exp/$(basename "$config" .yaml)_bpe$bpe}

if [[ -z $data ]] && stage -1 "download"; then
  local/download.sh data/corpus "$train_parts"
fi

if stage 0 "wav.scp and text of train, dev, test_clean, test_other"; then
  words "$train_parts"
  local/prepare_data.py "$(from_caller "${data:-$PWD/data/corpus}")" data --train_parts "${WORDS[@]}"
fi

if stage 1 "mean and variance of the features" && needed has_cmvn; then
  with_options compute_cmvn.sh
fi

if stage 2 "units: BPE pieces" && needed has_units; then
  with_options make_units.sh --dict "$dict"
fi

if stage 3 "data lists ($data_type)"; then
  with_options make_lists.sh --parts "data/train data/dev data/test_clean data/test_other"
fi

if stage 4 "train ($dir)"; then
  if has_cmvn; then require data/train/global_cmvn; fi
  if has_units; then require "$dict/units.txt"; fi
  with_options train.sh
fi

if stage 5 "average, decode, score"; then
  with_options decode.sh --language en --tests "test_clean test_other"
fi

if stage 6 "export"; then
  with_options export.sh --check_part test_clean
fi
