#!/usr/bin/env bash
# Spoken commands made by a speech synthesiser (eSpeak NG): a recogniser from nothing but packages.  Results: README.md
#
#   bash run.sh                                  # everything, in some minutes on two cores
#   bash run.sh --lang zh                        # Mandarin
#   bash run.sh --data_type shard --stage 3 --dir exp/shard    # the same from tar archives
#   bash run.sh --stage 4 --config conf/train_u2++_conformer.yaml
#
# Stages: -1 synthesise  0 data  1 cmvn  2 dict  3 lists  4 train  5 average, decode, score  6 export
# data/ holds one language at a time, data/corpus and exp/ each of them.

# shellcheck disable=SC2034 # options: tools take them by with_options
set -euo pipefail
cd "$(dirname "$0")"
. ../../../path.sh
. recipe.sh

# Every variable below is an option, --stage 4 sets stage; so are those of the tools called with_options (--help has all).
stage=-1
stop_stage=6
lang=en                   # en: English words; zh: Mandarin characters
num_train=2000            # utterances to synthesise
num_dev=100
num_test=200
data_type=raw             # raw: audio files; shard: tar archives
num_utts_per_shard=500
config=conf/train_conformer.yaml
override=                 # keys of the config to change: "max_epoch=3 dataset_conf.spec_aug=false"
dir=                      # of the experiment; default: exp/<name of config>_<lang>
average_num=5             # checkpoints with the lowest validation loss
decode_modes="ctc_greedy_search ctc_prefix_beam_search attention attention_rescoring"
onnx=false                # true: export to ONNX too
parse_options "$@"
dir=${dir:-exp/$(basename "$config" .yaml)_$lang}
[[ $lang =~ ^(en|zh)$ ]] || die "--lang $lang: neither en nor zh"
words=(--split_with_space)
if [[ $lang == zh ]]; then
  words=()
  char=${char:-1}
  override="tokenizer_conf.split_with_space=false $override"
fi

if stage -1 "synthesise"; then
  need_packages requirements.txt
  local/synthesize.py --lang "$lang" --num_train "$num_train" --num_dev "$num_dev" --num_test "$num_test" \
    --nj "${nj:-$(cores)}" "data/corpus/$lang"
fi

if stage 0 "wav.scp and text of train, dev, test"; then
  local/prepare_data.py "data/corpus/$lang" data
  echo "$lang" >data/lang
fi
if ((stage <= 6 && stop_stage > 0)) && [[ -e data/lang && $(<data/lang) != "$lang" ]]; then
  die "data/ is that of --lang $(<data/lang); run stage 0 with --lang $lang"
fi

if stage 1 "mean and variance of the features"; then
  with_options compute_cmvn.sh
fi

if stage 2 "units: words, or characters of Mandarin"; then
  require data/train/text
  make_dict.py "${words[@]}" data/train/text data/dict/units.txt
fi

if stage 3 "data lists ($data_type)"; then
  with_options make_lists.sh --parts "data/train data/dev data/test"
fi

if stage 4 "train ($dir)"; then
  require data/train/global_cmvn data/dict/units.txt
  with_options train.sh
fi

if stage 5 "average, decode, score"; then
  with_options decode.sh --char "${char:-0}"
fi

if stage 6 "export"; then
  with_options export.sh
fi
