#!/usr/bin/env bash
# A corpus of your own: transcripts in a TSV, CSV, NeMo manifest or Lhotse cuts, and their audio.  Results: README.md
#
#   bash run.sh --data transcripts.tsv --audio recordings/
#   bash run.sh --data train.json --text mandarin       # a NeMo manifest
#   ../../../tools/new_recipe.py NAME --from transcripts.tsv    # a recipe of its own for them
#
# Stages: -1 the corpus  0 data  1 cmvn  2 dict  3 lists  4 train  5 average, decode, score  6 export

# shellcheck disable=SC2034 # options: tools take them by with_options
set -euo pipefail
cd "$(dirname "$0")"
. ../../../path.sh
. recipe.sh

# Every variable below is an option, --stage 4 sets stage; so are those of the tools called with_options (--help has all).
stage=-1
stop_stage=6
data=                     # transcripts: TSV, CSV, NeMo manifest, Lhotse cuts, Kaldi directory
dev=                      # transcripts of the development part, where it has its own
test=                     # transcripts of the test part, where it has its own
audio=                    # folder of the audio; default: as the transcripts say
relative_to=              # folder of relative paths that lead nowhere from the transcripts; default: where this is called
form=                     # tsv, csv, nemo, lhotse, kaldi; default: by the name of the transcripts
text=keep                 # how texts are made one: keep, english, mandarin (scored by characters)
bpe=                      # pieces of a sentencepiece model as units, such as 100; default: characters
data_type=raw             # raw: audio files; shard: tar archives
num_utts_per_shard=500
config=conf/train_conformer.yaml
override=                 # keys of the config to change: "max_epoch=3 dataset_conf.spec_aug=false"
dir=                      # of the experiment; default: exp/<name of config>, with _bpe<pieces>
average_num=5             # checkpoints with the lowest validation loss
decode_modes="ctc_greedy_search ctc_prefix_beam_search attention attention_rescoring"
onnx=false                # true: export to ONNX too
parse_options "$@"
dict=${dict:-data/dict${bpe:+_bpe$bpe}}
override_units "$dict"
if [[ $text == mandarin ]]; then char=${char:-1}; fi
dir=${dir:-exp/$(basename "$config" .yaml)${bpe:+_bpe$bpe}}

if stage -1 "the corpus"; then
  [[ -n $data ]] || die "name your transcripts: --data FILE"
fi

if stage 0 "wav.scp and text of train, dev, test"; then
  corpus=$(from_caller "$data")
  local/prepare_data.py "$corpus" data --text "$text" ${form:+--form "$form"} \
    ${dev:+--dev "$(from_caller "$dev")"} ${test:+--test "$(from_caller "$test")"} \
    ${audio:+--audio "$(from_caller "$audio")"} --relative_to "$(from_caller "${relative_to:-.}")"
fi

if stage 1 "mean and variance of the features"; then
  with_options compute_cmvn.sh
fi

if stage 2 "units"; then
  with_options make_units.sh --dict "$dict"
fi

if stage 3 "data lists ($data_type)"; then
  with_options make_lists.sh --parts "data/train data/dev data/test"
fi

if stage 4 "train ($dir)"; then
  require data/train/global_cmvn "$dict/units.txt"
  with_options train.sh
fi

if stage 5 "average, decode, score"; then
  with_options decode.sh --char "${char:-0}"
fi

if stage 6 "export"; then
  with_options export.sh
fi
