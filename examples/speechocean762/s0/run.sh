#!/usr/bin/env bash
# speechocean762: English read by speakers of Mandarin, children and adults, 16 kHz.  Results: README.md
#
#   bash run.sh                                          # downloads the corpus (520 MB) and runs all stages
#   bash run.sh --data /corpora/speechocean762           # uses an existing copy
#   bash run.sh --data /corpora/speechocean762 --bpe 200 # the units are BPE pieces instead of characters
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
bpe=                      # number of BPE pieces, such as 100; default: the units are characters
data_type=raw             # raw: audio files; shard: tar archives
num_utts_per_shard=500    # utterances of a tar archive
config=conf/train_conformer.yaml
override=                 # config keys to change: "max_epoch=3 dataset_conf.spec_aug=false"
dir=                      # experiment folder; default: exp/<name of config>, with _bpe<pieces>
average_num=5             # number of checkpoints to average: those with the lowest validation loss
onnx=false                # true: export to ONNX too
parse_options "$@"
dict=${dict:-data/dict${bpe:+_bpe$bpe}}
override_units "$dict"
dir=${dir:-exp/$(basename "$config" .yaml)${bpe:+_bpe$bpe}}

if [[ -z $data ]] && stage -1 "download"; then
  local/download.sh data/corpus
fi

if stage 0 "wav.scp and text of train, dev, test"; then
  local/prepare_data.py "$(from_caller "${data:-$PWD/data/corpus}")" data
fi

if stage 1 "mean and variance of the features" && needed has_cmvn; then
  with_options compute_cmvn.sh
fi

if stage 2 "units" && needed has_units; then
  with_options make_units.sh --dict "$dict"
fi

if stage 3 "data lists ($data_type)"; then
  with_options make_lists.sh --parts "data/train data/dev data/test"
fi

if stage 4 "train ($dir)"; then
  if has_cmvn; then require data/train/global_cmvn; fi
  if has_units; then require "$dict/units.txt"; fi
  with_options train.sh
fi

if stage 5 "average, decode, score"; then
  with_options decode.sh --language en
fi

if stage 6 "export"; then
  with_options export.sh
fi
