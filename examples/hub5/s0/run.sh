#!/usr/bin/env bash
# HUB5 2000: a test set of telephone conversations, 8 kHz; training data: Fisher.  Results: README.md
#
#   bash ../../fisher/s0/run.sh --data /corpora/LDC --stop_stage 0
#   bash run.sh --data /corpora/LDC             # contains LDC2002S09 and LDC2002T43
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
data=                     # folder of the LDC corpora
fisher=                   # folder with train and dev of the Fisher recipe; default: ../../fisher/s0/data
min_slice_duration=0      # seconds; a shorter turn is joined with the next turns of its speaker (NeMo: 10)
bpe=2000                  # number of BPE pieces
cmvn_utts=100000          # utterances for mean and variance, drawn at random
data_type=raw             # raw: audio files; shard: tar archives
num_utts_per_shard=1000   # utterances of a tar archive
config=conf/train_conformer.yaml
override=                 # config keys to change: "max_epoch=3 dataset_conf.spec_aug=false"
dir=                      # experiment folder; default: exp/<name of config>_bpe<pieces>
average_num=10            # number of checkpoints to average: those with the lowest validation loss
onnx=false                # true: export to ONNX too
parse_options "$@"
dict=${dict:-data/dict_bpe$bpe}
override_units "$dict"
dir=${dir:-exp/$(basename "$config" .yaml)_bpe$bpe}

if stage -1 "check the corpus"; then
  [[ -n $data ]] || die "HUB5 2000 must be licensed from the LDC, see README.md; give the folder of your copy: --data FOLDER"
fi

if stage 0 "wav of each channel; wav.scp, segments and text of train, dev, test_swbd, test_callhome"; then
  fisher=$(from_caller "${fisher:-$PWD/../../fisher/s0/data}")
  [[ -e $fisher/dev/wav.scp ]] ||
    die "$fisher/dev/wav.scp is missing: run stage 0 of the fisher recipe, or give its data folder: --fisher FOLDER"
  corpus=$(from_caller "$data")
  local/prepare_data.py "$corpus" data --nj "${nj:-$(cores)}" --fisher "$fisher" \
    --min_slice_duration "$min_slice_duration"
fi

if stage 1 "mean and variance of the features" && needed has_cmvn; then
  with_options compute_cmvn.sh
fi

if stage 2 "units: BPE pieces and noises" && needed has_units; then
  with_options make_units.sh --dict "$dict" --non_lang_syms conf/non_lang_syms.txt
fi

if stage 3 "data lists ($data_type)"; then
  with_options make_lists.sh --parts "data/train data/dev data/test_swbd data/test_callhome"
fi

if stage 4 "train ($dir)"; then
  if has_cmvn; then require data/train/global_cmvn; fi
  if has_units; then require "$dict/units.txt"; fi
  with_options train.sh
fi

if stage 5 "average, decode, score"; then
  with_options decode.sh --language en --tests "test_swbd test_callhome" --ignored_words conf/hesitations.txt
fi

if stage 6 "export"; then
  with_options export.sh --check_part test_swbd
fi
