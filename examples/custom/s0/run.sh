#!/usr/bin/env bash
# A corpus of your own: a table or manifest of transcripts, or a folder of audio with texts.  Results: README.md
#
#   bash run.sh --data transcripts.tsv --audio recordings/
#   bash run.sh --data folder/                          # LJSpeech, a.wav with a.txt, talk.wav with talk.srt, …
#   bash run.sh --data train.json --text mandarin       # a NeMo manifest
#   ../../../tools/new_recipe.py NAME --from transcripts.tsv    # makes a separate recipe for them
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
data=                     # transcripts or folder of a corpus; local/prepare_data.py --help lists the forms
dev=                      # transcripts of the development part, if it has a separate file
test=                     # transcripts of the test part, if it has a separate file
audio=                    # folder to look for audio in; default: the paths in the transcripts
relative_to=              # base of relative paths that are not found from the transcripts; default: the current folder
form=                     # form of the transcripts; default: found out by looking
audio_field=              # column of the audio in a table, by name or number
text_field=               # column, tier or suffix of the texts, where there are several; a column by name or number
allow_bad=false           # true: leave out rows that cannot be used and those whose audio is missing
text=none                 # text normalisation: none, clean, english, german, …, mandarin (scored by characters); see README.md
trust_commands=false      # true: run the commands of a wav.scp (sox … |) and keep their audio
bpe=                      # number of BPE pieces, such as 100; default: the units are characters
data_type=raw             # raw: audio files; shard: tar archives
num_utts_per_shard=500    # utterances of a tar archive
config=auto               # auto: conf/train_transducer.yaml for at most 500 units, else conf/train_conformer.yaml
override=                 # config keys to change: "max_epoch=3 dataset_conf.spec_aug=false"
dir=                      # experiment folder; default: exp/<name of config>, with _bpe<pieces>
average_num=5             # number of checkpoints to average: those with the lowest validation loss
onnx=false                # true: export to ONNX too
parse_options "$@"
dict=${dict:-data/dict${bpe:+_bpe$bpe}}
auto=
if [[ $config == auto ]]; then
  auto=true config=conf/train_conformer.yaml # for stages 1 and 2: both need CMVN and units
  # Keys that only a transducer has are checked from stage 1 on.
  if [[ $override =~ joint_conf|predictor_conf|transducer_ ]]; then config=conf/train_transducer.yaml; fi
fi
override_units "$dict"
if [[ $text =~ ^(mandarin|cantonese|japanese|thai)$ ]]; then char=${char:-1}; fi

if stage -1 "check the corpus"; then
  [[ -n $data ]] || die "the transcripts are missing: --data FILE"
fi

if stage 0 "wav.scp and text of train, dev, test"; then
  corpus=$(from_caller "$data")
  leave_out=$([[ $allow_bad == true ]] && echo --allow_bad || true)
  trust=$([[ $trust_commands == true ]] && echo --trust_commands || true)
  local/prepare_data.py "$corpus" data --text "$text" ${form:+--form "$form"} ${text_field:+--text_field "$text_field"} \
    ${audio_field:+--audio_field "$audio_field"} ${leave_out:+"$leave_out"} ${trust:+"$trust"} \
    ${dev:+--dev "$(from_caller "$dev")"} ${test:+--test "$(from_caller "$test")"} \
    ${audio:+--audio "$(from_caller "$audio")"} --relative_to "$(from_caller "${relative_to:-.}")"
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

if [[ $auto == true ]] && ((stage <= 6 && stop_stage > 3)); then
  require "$dict/units.txt"
  count=$(wc -l <"$dict/units.txt")
  # The loss of a transducer has a score of each unit for each pair of frame and label.
  if ((count <= 500)); then config=conf/train_transducer.yaml; fi
  log "$config, because there are $count units"
fi
dir=${dir:-exp/$(basename "$config" .yaml)${bpe:+_bpe$bpe}}

if stage 4 "train ($dir)"; then
  if has_cmvn; then require data/train/global_cmvn; fi
  if has_units; then require "$dict/units.txt"; fi
  # Before a long training; a short one says it after its first steps.
  if [[ ! -e $dir/train.yaml ]] && (($(wc -l <data/train/text) > 1000)); then with_options train.sh --forecast true; fi
  with_options train.sh
fi

if stage 5 "average, decode, score"; then
  with_options decode.sh --char "${char:-0}"
fi

if stage 6 "export"; then
  with_options export.sh
fi
