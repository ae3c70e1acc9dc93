#!/usr/bin/env bash
# Labels speech without transcripts by a trained model, and writes a mixture of transcribed and labelled speech. With
# --config it also trains on the mixture; further iterations label the speech again by the new model.
#
#   cd examples/voices/s0; . ../../../path.sh
#   pseudo_label.sh --unlabelled more.list --model exp/conformer --min_confidence 0.9
#   pseudo_label.sh --unlabelled more.list --model exp/conformer --second exp/zipformer --max_cer 10 \
#     --config conf/train_conformer.yaml --iterations 2
#
# It is called in the folder of a recipe whose model is decoded (stage 5). Iteration N writes DIR/iter_N: results of the
# model (first), data.list, data.list.json (counts), data.list.left_out.jsonl, mixture.yaml, model. DIR/second has the
# results of the second model. A second call repeats no step that is done; a training is resumed. A call with other limits
# decodes nothing again; it is refused after a training.

# shellcheck disable=SC2034 # the limits are read by their names
set -euo pipefail
. recipe.sh

unlabelled=               # data list of the speech to label; its texts, if it has any, are not used
data_type=raw             # type of both data lists: raw or shard
model=                    # folder of the model: train.yaml, avg.pt
second=                   # folder of a second model; a label counts only if both models agree (--max_cer)
decode_mode=attention_rescoring  # its texts are the labels
second_mode=              # decode mode of the second model; default: the same
dir=exp/pseudo            # output folder
min_confidence=           # least confidence, 0 to 1; default: no limit, also below
max_cer=                  # largest CER in % between both models; default with --second: 10
min_seconds=              # length of the shortest utterance
max_seconds=              # length of the longest utterance
min_rate=                 # fewest characters per second
max_rate=                 # most characters per second
labelled=data/train/data.list  # transcribed speech: a data list, or a yaml file of sources
share=                    # part of the utterances of an epoch that are transcribed, such as 0.5; default: by size
config=                   # train.yaml of the training on the mixture; default: no training
override=                 # config keys to change in this training
recipe_options=           # more options of run.sh for the training: "--bpe 100 --nproc 2"
iterations=1              # more than one needs --config
average_num=5             # checkpoints to average after the training
nproc=                    # decoding processes; default: one for each GPU, or one
trust_code=true           # false: refuse operators that the train.yaml of a model names; they can be any code
decode_options=           # more options of recognize.py
parse_options "$@"

[[ -n $unlabelled ]] || die "--unlabelled is missing: the data list of the speech to label"
[[ -n $model ]] || die "--model is missing: the folder of the model"
[[ $iterations =~ ^[1-9][0-9]*$ ]] || die "--iterations $iterations: expected a number of at least 1"
((iterations == 1)) || [[ -n $config ]] || die "--iterations $iterations needs --config: each iteration trains a model"
[[ -z $config || -e run.sh ]] || die "$PWD has no run.sh: call pseudo_label.sh in the folder of a recipe"
[[ -n $second || -z $max_cer$second_mode ]] || die "--max_cer and --second_mode need --second: the folder of a model"
files=("$unlabelled" "$model/train.yaml" "$model/avg.pt")
if [[ -n $second ]]; then
  files+=("$second/train.yaml" "$second/avg.pt")
  max_cer=${max_cer:-10}
fi
require "${files[@]}" "$labelled" ${config:+"$config"}
[[ -n $nproc ]] || nproc=$(num_gpus)
words "$decode_options"
more=("${WORDS[@]}")
if [[ $trust_code == true ]]; then more+=(--trust_code); fi
words "$recipe_options"
training=("${WORDS[@]}")
limits=()
for name in min_confidence min_seconds max_seconds min_rate max_rate max_cer; do
  if [[ -n ${!name} ]]; then limits+=("--$name" "${!name}"); fi
done

# A folder has the results of one choice of models and decoding. Until a model is trained, labels can be chosen again.
decoding="$data_type $decode_mode $second_mode $decode_options
$(sha256sum -- "${files[@]}")"
choosing="${limits[*]} $labelled $share $config $override $recipe_options $average_num
$([[ -z $config ]] || sha256sum -- "$config")"
mkdir -p "$dir"
if [[ -e $dir/decoding && $(<"$dir/decoding") != "$decoding" ]]; then
  die "$dir has results of other models, files or decoding options; remove it, or give another --dir"
fi
if [[ -e $dir/choosing && $(<"$dir/choosing") != "$choosing" ]]; then
  [[ ! -e $dir/iter_1/model ]] || die "$dir/iter_1/model was trained with other options; give another --dir"
  rm -f "$dir/iter_1/data.list.json" "$dir/iter_1/mixture.yaml"
fi
echo "$decoding" >"$dir/decoding"
echo "$choosing" >"$dir/choosing"

# step FILE COMMAND…: runs a command that writes FILE last, unless FILE is there
step() {
  [[ ! -e $1 ]] || return 0
  log "$1"
  "${@:2}"
}

# decoded MODEL MODE OUT: recognises the speech
decoded() {
  step "$3/skipped" python -m wenet_uio.bin.recognize --modes "$2" --config "$1/train.yaml" --checkpoint "$1/avg.pt" \
    --data_type "$data_type" --test_data "$dir/unlabelled.list" --beam_size 10 --batch_size 32 --ctc_weight 0.3 \
    --nproc "$((nproc > 0 ? nproc : 1))" --token_times --result_dir "$3" "${more[@]}"
}

# trained MIXTURE TO: trains a model; a model that was begun is resumed
trained() {
  bash run.sh --config "$config" --override "$override data='$1'" --data_type "$data_type" --dir "$2" "${training[@]}" \
    --stage 4 --stop_stage 4
  # SIGTERM lets training end with status 0 before its last epoch.
  [[ -e $2/final.pt ]] || die "the training of $2 was stopped; call pseudo_label.sh again"
  python -m wenet_uio.bin.average_model --dst_model "$2/avg.pt" --src_path "$2" --num "$average_num" --val_best
}

step "$dir/unlabelled.list" pseudo_lists.py unlabelled --data_type "$data_type" "$unlabelled" "$dir/unlabelled.list"
for ((iteration = 1; iteration <= iterations; iteration++)); do
  to=$dir/iter_$iteration
  decoded "$model" "$decode_mode" "$to/first"
  agreeing=()
  if [[ -n $second ]]; then
    decoded "$second" "${second_mode:-$decode_mode}" "$dir/second"
    agreeing=(--second "$dir/second/${second_mode:-$decode_mode}")
  fi
  step "$to/data.list.json" pseudo_lists.py labels --data_type "$data_type" "${limits[@]}" "${agreeing[@]}" \
    "$dir/unlabelled.list" "$to/first/$decode_mode" "$to/data.list"
  step "$to/mixture.yaml" pseudo_lists.py mixture --data_type "$data_type" ${share:+--share "$share"} \
    "$labelled" "$to/data.list" "$to/mixture.yaml"
  if [[ -n $config ]]; then
    step "$to/model/avg.pt" trained "$to/mixture.yaml" "$to/model"
    model=$to/model
  fi
done
log "labels and mixture: $to/data.list.json, $to/mixture.yaml"
