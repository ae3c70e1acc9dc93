#!/usr/bin/env bash
# HUB5 2000: telephone conversations to test on, 8 kHz; trained on Fisher.  Results: README.md
#
#   bash ../../fisher/s0/run.sh --data /corpora/LDC --stop_stage 0
#   bash run.sh --data /corpora/LDC             # holds LDC2002S09 and LDC2002T43
#
# Stages: -1 the corpus  0 data  1 cmvn  2 dict  3 lists  4 train  5 average, decode, score  6 export

set -euo pipefail
cd "$(dirname "$0")"
. ../../../path.sh
. recipe.sh

# Every variable below is an option, --nj 32 sets nj; so are those of tools/train.sh, such as --nproc and --num_nodes.
stage=-1
stop_stage=6
data=                     # folder of the LDC's corpora
fisher=../../fisher/s0/data # where the Fisher recipe has its train and dev
min_slice_duration=0      # seconds; shorter turns of a speaker are joined with the next (NeMo: 10)
bpe=2000                  # pieces of the sentencepiece model
cmvn_utts=100000          # utterances that mean and variance are taken of
data_type=raw             # raw: audio files; shard: tar archives
num_utts_per_shard=1000
nj=$(nproc)               # processes that prepare data
config=conf/train_conformer.yaml
override=                 # keys of the config to change: "max_epoch=3 dataset_conf.spec_aug=false"
dir=                      # of the experiment; default: exp/<name of config>
average_num=10            # checkpoints with the lowest validation loss
decode_modes="ctc_greedy_search ctc_prefix_beam_search attention attention_rescoring"
onnx=false                # true: export to ONNX too
parse_options "$@"
dir=${dir:-exp/$(basename "$config" .yaml)}

if stage -1 "the corpus"; then
  [[ -n $data ]] || die "HUB5 2000 is licensed by the LDC (README.md); name your copy: --data FOLDER"
fi

if stage 0 "wav of each side; wav.scp, segments and text of train, dev, test_swbd, test_callhome"; then
  [[ -e $fisher/dev/wav.scp ]] || die "$fisher/dev/wav.scp is missing: run stage 0 of the fisher recipe, or see --fisher"
  local/prepare_data.py "$(from_caller "$data")" data --nj "$nj" --fisher "$fisher" \
    --min_slice_duration "$min_slice_duration"
fi

if stage 1 "mean and variance of the features"; then
  require data/train/wav.scp
  compute_cmvn_stats.py --num_workers "$nj" --train_config "$config" ${override:+--override_config $override} \
    --in_scp data/train/wav.scp --num_utts "$cmvn_utts" --out_cmvn data/train/global_cmvn
fi

if stage 2 "units: pieces of words, and noises"; then
  require data/train/text
  make_units.sh --bpe "$bpe" --dict data/dict --non_lang_syms conf/non_lang_syms.txt
fi

if stage 3 "data lists ($data_type)"; then
  make_lists.sh --data_type "$data_type" --num_utts_per_shard "$num_utts_per_shard" --nj "$nj" \
    --parts "data/train data/dev data/test_swbd data/test_callhome"
fi

if stage 4 "train ($dir)"; then
  require data/train/global_cmvn data/dict/units.txt
  with_options train.sh --config "$config" --override "$override" --dir "$dir" --data_type "$data_type"
fi

if stage 5 "average, decode, score"; then
  decode.sh --dir "$dir" --data_type "$data_type" --average_num "$average_num" --modes "$decode_modes" \
    --tests "test_swbd test_callhome"
fi

if stage 6 "export"; then
  export.sh --dir "$dir" --data_type "$data_type" --test test_swbd --onnx "$onnx"
fi
