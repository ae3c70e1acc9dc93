#!/usr/bin/env bash
# AISHELL-2: 1000 hours of read Mandarin, 1991 speakers, 16 kHz.  Results: README.md
#
#   bash run.sh --data /corpora/aishell2
#   bash run.sh --data_type shard --stage 3 --dir exp/shard    # stages 3 to 6 with tar archives
#
# Stages: -1 check the corpus  0 data  1 cmvn  2 dict  3 lists  4 train  5 average, decode, score  6 export

# shellcheck disable=SC2034 # with_options passes options to tools
set -eu
cd "$(dirname "$0")"
. ../../../path.sh
. recipe.sh

# Every variable below is an option: --stage 4 sets stage. Options of the tools that with_options calls are options too.
stage=-1
stop_stage=6
data=                     # folder of the corpus, with AISHELL-DEV-TEST-SET/
channel=iOS               # recordings to test on: iOS, Android, Mic
data_type=raw             # raw: audio files; shard: tar archives
num_utts_per_shard=1000   # utterances of a tar archive
config=conf/train_conformer.yaml
override=                 # config keys to change: "max_epoch=3 dataset_conf.spec_aug=false"
dir=                      # experiment folder; default: exp/<name of config>
average_num=30            # number of checkpoints to average: those with the lowest validation loss
onnx=false                # true: export to ONNX too
parse_options "$@"
dir=${dir:-exp/$(basename "$config" .yaml)}

if stage -1 "check the corpus"; then
  [[ -n $data ]] || die "AISHELL-2 requires an application, see README.md; give the folder of your copy: --data FOLDER"
fi

if stage 0 "wav.scp and text of train, dev, test"; then
  corpus=$(from_caller "$data")
  local/prepare_data.py --channel "$channel" "$corpus" data
fi

if stage 1 "mean and variance of the features" && needed has_cmvn; then
  with_options compute_cmvn.sh
fi

if stage 2 "units" && needed has_units; then
  require data/train/text
  make_dict.py --min_count 2 data/train/text data/dict/units.txt
fi

if stage 3 "data lists ($data_type)"; then
  with_options make_lists.sh --parts "data/train data/dev data/test"
fi

if stage 4 "train ($dir)"; then
  if has_cmvn; then require data/train/global_cmvn; fi
  if has_units; then require data/dict/units.txt; fi
  with_options train.sh
fi

if stage 5 "average, decode, score"; then
  with_options decode.sh --language zh --char 1
fi

if stage 6 "export"; then
  with_options export.sh
fi
