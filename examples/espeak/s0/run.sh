#!/usr/bin/env bash
# Synthetic spoken commands (eSpeak NG and two neural voices): a recipe that downloads nothing but packages.  Results: README.md
#
#   bash run.sh                                  # all stages, ten minutes on two cores
#   bash run.sh --stage 7 --people /corpora/fsdd # recognise digits that people have spoken
#   bash run.sh --lang zh                        # Mandarin
#   bash run.sh --data_type shard --stage 3 --dir exp/shard    # stages 3 to 6 with tar archives
#   bash run.sh --stage 4 --config conf/train_u2++_conformer.yaml
#   bash run.sh --hybrid true --stage 0                        # half of train as text, spoken while training
#   bash run.sh --joined true --stage 0 --config conf/train_fastconformer.yaml    # also sentences after one another
#
# Stages: -1 synthesise  0 data  1 cmvn  2 dict  3 lists  4 train  5 average, decode, score  6 export  7 people
# data/ holds one language at a time; data/corpus and exp/ hold both.

# shellcheck disable=SC2034 # with_options passes options to tools
set -eu
cd "$(dirname "$0")"
. ../../../path.sh
. recipe.sh

# Every variable below is an option: --stage 4 sets stage. Options of the tools that with_options calls are options too.
stage=-1
stop_stage=7
lang=en                   # en: English words; zh: Mandarin characters
hybrid=false              # true: half of the training utterances are text only, spoken in the data workers
joined=false              # true: train also on utterances that are joined to up to 10 s, for long recordings
num_train=4000            # utterances of the training part
num_dev=100               # utterances of the development part
num_test=200              # utterances of the test part
data_type=raw             # raw: audio files; shard: tar archives
num_utts_per_shard=500    # utterances of a tar archive
config=conf/train_conformer.yaml # with --hybrid true: conf/train_conformer_hybrid.yaml
override=                 # config keys to change: "max_epoch=3 dataset_conf.spec_aug=false"
dir=                      # experiment folder; default: exp/<name of config>_<lang>
average_num=2             # number of checkpoints to average: those with the lowest validation loss
onnx=false                # true: export to ONNX too
people=                   # folder of the Free Spoken Digit Dataset, for stage 7
parse_options "$@"
prepared=$lang
if [[ $hybrid == true ]]; then
  prepared+=" --hybrid true"
  if [[ $RECIPE_GIVEN != *" config "* ]]; then config=conf/train_conformer_hybrid.yaml; fi
fi
suffix=
if [[ $joined == true ]]; then
  prepared+=" --joined true"
  suffix=_joined
  override="data=data/mixture.yaml $override"
fi
dir=${dir:-exp/$(basename "$config" .yaml)_$lang$suffix}
[[ $lang =~ ^(en|zh)$ ]] || die "--lang $lang: expected en or zh"
words=(--split_with_space)
separator=" "
seconds_per_character=0.14 # longest speech; batches are planned by it
if [[ $lang == zh ]]; then
  words=()
  separator=
  seconds_per_character=0.45
  char=${char:-1}
  override="tokenizer_conf.split_with_space=false $override"
fi

if stage -1 "synthesise"; then
  need_packages requirements.txt
  local/synthesize.py --lang "$lang" --num_train "$num_train" --num_dev "$num_dev" --num_test "$num_test" \
    --nj "${nj:-$(cores)}" "data/corpus/$lang"
fi

if stage 0 "wav.scp and text of train, dev, test"; then
  half=()
  if [[ $hybrid == true ]]; then half=(--hybrid "$lang"); fi
  local/prepare_data.py "${half[@]}" "data/corpus/$lang" data
  if [[ $joined == true ]]; then
    join_utterances.py --longest 9.9 --separator "$separator" --nj "${nj:-$(cores)}" data/train data/joined
  fi
  echo "$prepared" >data/lang
fi
if ((stage <= 6 && stop_stage > 0)) && [[ -e data/lang && $(<data/lang) != "$prepared" ]]; then
  die "data/ was prepared for --lang $(<data/lang); run stage 0 with --lang $prepared"
fi

if stage 1 "mean and variance of the features" && needed has_cmvn; then
  with_options compute_cmvn.sh
fi

if stage 2 "units: English words or Mandarin characters" && needed has_units; then
  require data/train/text
  texts=(data/train/text)
  if [[ $hybrid == true ]]; then texts+=(data/text_only/text); fi
  mkdir -p data/dict
  cat "${texts[@]}" >data/dict/text
  make_dict.py "${words[@]}" data/dict/text data/dict/units.txt
fi

if stage 3 "data lists ($data_type)"; then
  parts=(data/train data/dev data/test)
  if [[ $joined == true ]]; then parts+=(data/joined); fi
  with_options make_lists.sh --parts "${parts[*]}"
  rm -f data/mixture.yaml
  if [[ $joined == true || $hybrid == true ]]; then
    echo "- {type: $data_type, data_list: data/train/data.list}" >data/mixture.yaml
  fi
  if [[ $joined == true ]]; then echo "- {type: $data_type, data_list: data/joined/data.list}" >>data/mixture.yaml; fi
  if [[ $hybrid == true ]]; then
    cat >>data/mixture.yaml <<EOF
- type: tts_text
  manifest_filepath: data/text_only/manifest.json
  speakers_filepath: data/text_only/speakers.txt
  seconds_per_character: $seconds_per_character
EOF
  fi
fi

if stage 4 "train ($dir)"; then
  if has_cmvn; then require data/train/global_cmvn; fi
  if has_units; then require data/dict/units.txt; fi
  if [[ $hybrid == true ]]; then
    require data/mixture.yaml
    grep -q '^data: *data/mixture.yaml' "$config" ||
      die "--hybrid true: $config would learn the audio half alone; add data and operators as in conf/train_conformer_hybrid.yaml"
  fi
  with_options train.sh
fi

if stage 5 "average, decode, score"; then
  with_options decode.sh --language "$lang" --char "${char:-0}"
fi

if stage 6 "export"; then
  with_options export.sh
fi

# Six people that the model never heard: the 300 test recordings of the recipe fsdd. Nothing is trained on them.
if [[ -n $people || $stage -eq 7 ]] && stage 7 "recognise people"; then
  [[ -n $people ]] || die "stage 7 needs --people FOLDER, which holds the recordings/ of the Free Spoken Digit Dataset"
  "$WENET_UIO_ROOT/examples/fsdd/s0/local/prepare_data.py" "$(from_caller "$people")" data/people
  make_raw_list.py data/people/test/wav.scp data/people/test/text data/people/test/data.list
  with_options decode.sh --data_type raw --tests people/test --result_dir "$dir/people" --language en --char 0
fi
