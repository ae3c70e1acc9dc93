#!/usr/bin/env bash
# Labels speech without transcripts by a trained model, the teacher, and writes a mixture of transcribed and labelled
# speech. With --config it also trains on the mixture; further iterations label the speech again by the new model.
#
#   cd examples/voices/s0; . ../../../path.sh
#   pseudo_label.sh --unlabelled more.list --teacher exp/conformer --min_confidence 0.9
#   pseudo_label.sh --unlabelled more.list --teacher exp/conformer --second exp/zipformer --max_cer 10 \
#     --config conf/train_conformer.yaml --iterations 2
#   pseudo_label.sh --unlabelled more.list --teacher small.en.pt --labelled none --text english --digits words
#
# With --config it is called in the folder of a recipe. A teacher of another package, such as a Whisper, is converted once,
# to DIR/teacher. Iteration N writes DIR/iter_N: results of the teacher (first), data.list, data.list.json (counts),
# data.list.left_out.jsonl, mixture.yaml, model. DIR/second has the results of the second teacher. A second call repeats no
# step that is done: a labelling that was killed goes on with the part of the list that it was at, a training is resumed. A
# call with other limits decodes nothing again; it is refused after a training.

# shellcheck disable=SC2034 # the limits are read by their names
set -euo pipefail
. recipe.sh

unlabelled=               # data list of the speech to label; its texts, if it has any, are not used
data_type=raw             # type of both data lists: raw or shard
teacher=                  # trained model as --from of train.sh takes it: folder or file, of this or another package
second=                   # a second teacher; a label counts only if both agree (--max_cer)
decode_mode=auto          # its texts are the labels; auto: the mode in which each model is usually decoded
second_mode=              # decode mode of the second teacher; default: the same
part=                     # lines of the list that are decoded together; default: 1000 for each process, or one tar
dir=exp/pseudo            # output folder
min_confidence=           # least confidence, 0 to 1; default: no limit, also below
max_cer=                  # largest CER in % between both models; default with --second: 10
min_seconds=              # length of the shortest utterance
max_seconds=              # length of the longest utterance
min_rate=                 # fewest characters per second
max_rate=40               # most characters per second; nobody speaks so fast
max_repeats=4             # how often a part of a text may stand in a row: decoders with attention may repeat themselves
text=none                 # text normalisation of the labels, as --text of examples/custom: none, clean, english, german, …
digits=keep               # texts with digits: keep, leave_out; words: English numbers with one reading become words, and
                          # texts with other digits are left out
labelled=data/train/data.list  # transcribed speech: a data list, a yaml file of sources, or none
share=                    # part of the utterances of an epoch that are transcribed, such as 0.5; default: by size
config=                   # train.yaml of the training on the mixture; default: no training
override=                 # config keys to change in this training
recipe_options=           # more options of run.sh for the training: "--bpe 100 --nproc 2"
iterations=1              # more than one needs --config
average_num=5             # checkpoints to average after the training
nproc=                    # decoding processes; default: one for each GPU, or one
trust_code=false          # true: run any code that a train.yaml names; false: only that of local/ and conf/*.yaml of this recipe
decode_options=           # more options of recognize.py
parse_options "$@"

[[ -n $unlabelled ]] || die "--unlabelled is missing: the data list of the speech to label"
[[ -n $teacher ]] || die "--teacher is missing: a trained model, folder or file"
[[ $iterations =~ ^[1-9][0-9]*$ ]] || die "--iterations $iterations: expected a number of at least 1"
((iterations == 1)) || [[ -n $config ]] || die "--iterations $iterations needs --config: each iteration trains a model"
[[ -z $config || -e run.sh ]] || die "$PWD has no run.sh: call pseudo_label.sh in the folder of a recipe"
[[ -n $second || -z $max_cer$second_mode ]] || die "--max_cer and --second_mode need --second: a second teacher"
if [[ -n $second ]]; then max_cer=${max_cer:-10}; fi
if [[ $labelled == none ]]; then labelled=; fi
[[ -n $labelled || -z $share ]] || die "--share $share needs --labelled: transcribed speech"
[[ ! -d $unlabelled ]] || die "--unlabelled $unlabelled: a folder; expected a data list, see docs/how-to/small-model.md"
require "$unlabelled" "$teacher" ${second:+"$second"} ${labelled:+"$labelled"} ${config:+"$config"}
if [[ $data_type == raw && $(head -c 1 "$unlabelled") != "{" ]]; then
  die "--unlabelled $unlabelled: no raw data list, whose lines are JSON; see docs/how-to/small-model.md"
fi
[[ -n $nproc ]] || nproc=$(num_gpus)
nproc=$((nproc > 0 ? nproc : 1))
if [[ -z $part ]]; then part=$(($([[ $data_type == raw ]] && echo 1000 || echo 1) * nproc)); fi
words "$decode_options"
more=("${WORDS[@]}")
trusting
words "$recipe_options"
training=("${WORDS[@]}")
limits=(--text "$text" --digits "$digits")
for name in min_confidence min_seconds max_seconds min_rate max_rate max_repeats max_cer; do
  if [[ -n ${!name} ]]; then limits+=("--$name" "${!name}"); fi
done

# opened NAME MODEL MODE FOLDER: sets the array NAME to train.yaml, weights and decode mode of a trained model
opened() {
  local -n FOUND=$1
  local LINES
  LINES=$(pseudo_lists.py teacher "${TRUST[@]}" "$2" "$4")
  mapfile -t FOUND <<<"$LINES"
  if [[ $3 != auto ]]; then FOUND[2]=$3; fi
}

mkdir -p "$dir"
first_model=() second_model=() # set by `opened`
opened first_model "$teacher" "$decode_mode" "$dir/teacher"
files=("$unlabelled" "${first_model[@]:0:2}")
if [[ -n $second ]]; then
  opened second_model "$second" "${second_mode:-$decode_mode}" "$dir/second_teacher"
  files+=("${second_model[@]:0:2}")
fi

# A folder has the results of one choice of models and decoding. Until a model is trained, labels can be chosen again.
decoding="$data_type $decode_mode $second_mode $decode_options
$(sha256sum -- "${files[@]}")"
choosing="${limits[*]} $labelled $share $config $override $recipe_options $average_num
$([[ -z $config ]] || sha256sum -- "$config")"
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

# decoded CONFIG WEIGHTS MODE OUT: recognises the speech, part by part
decoded() {
  local LIST PARTS=()
  if [[ -e $4/skipped ]]; then return; fi
  for LIST in "$dir/unlabelled.list.parts/"*.list; do
    PARTS+=("$4/parts/$(basename "$LIST" .list)")
    step "${PARTS[-1]}/skipped" recognised "$1" "$2" "$3" "$LIST" "${PARTS[-1]}"
  done
  mkdir -p "$4/$3"
  joined "$3/nbest.jsonl" "$4" "${PARTS[@]}"
  joined "$3/text" "$4" "${PARTS[@]}"
  joined skipped "$4" "${PARTS[@]}"
}

# recognised CONFIG WEIGHTS MODE LIST OUT: recognises a list
recognised() {
  # Status 1 after results means that no audio of this list can be read; the labels count these utterances.
  python -m wenet_uio.bin.recognize --modes "$3" --config "$1" --checkpoint "$2" \
    --data_type "$data_type" --test_data "$4" --beam_size 10 --batch_size 32 --ctc_weight 0.3 \
    --nproc "$nproc" --token_times --result_dir "$5" "${TRUST[@]}" "${more[@]}" || [[ -e $5/skipped ]]
}

# joined FILE OUT PART…: writes OUT/FILE from the file of each part
joined() {
  local FILE=$1 OUT=$2
  shift 2
  cat -- "${@/%//$FILE}" >"$OUT/$FILE.tmp"
  mv -- "$OUT/$FILE.tmp" "$OUT/$FILE"
}

# trained DATA TO: trains a model; a model that was begun is resumed
trained() {
  bash run.sh --config "$config" --override "$override data='$1'" --data_type "$data_type" --dir "$2" "${training[@]}" \
    --stage 4 --stop_stage 4
  # SIGTERM lets training end with status 0 before its last epoch.
  [[ -e $2/final.pt ]] || die "the training of $2 was stopped; call pseudo_label.sh again"
  python -m wenet_uio.bin.average_model --dst_model "$2/avg.pt" --src_path "$2" --num "$average_num" --val_best
}

step "$dir/unlabelled.list.parts" pseudo_lists.py unlabelled --data_type "$data_type" --part_lines "$part" "$unlabelled" \
  "$dir/unlabelled.list"
for ((iteration = 1; iteration <= iterations; iteration++)); do
  to=$dir/iter_$iteration
  decoded "${first_model[@]}" "$to/first"
  agreeing=()
  if [[ -n $second ]]; then
    decoded "${second_model[@]}" "$dir/second"
    agreeing=(--second "$dir/second/${second_model[2]}")
  fi
  step "$to/data.list.json" pseudo_lists.py labels --data_type "$data_type" "${limits[@]}" "${agreeing[@]}" \
    --config "${first_model[0]}" "${TRUST[@]}" "$dir/unlabelled.list" "$to/first/${first_model[2]}" "$to/data.list"
  data=$to/data.list
  if [[ -n $labelled ]]; then
    data=$to/mixture.yaml
    step "$data" pseudo_lists.py mixture --data_type "$data_type" ${share:+--share "$share"} \
      "$labelled" "$to/data.list" "$data"
  fi
  if [[ -n $config ]]; then
    step "$to/model/avg.pt" trained "$data" "$to/model"
    opened first_model "$to/model" "$decode_mode" "$dir/teacher"
  fi
done
log "labels: $to/data.list, counts: $to/data.list.json, for training: $data"
