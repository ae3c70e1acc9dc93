# shellcheck shell=bash
# Functions of the recipes; sourced by every run.sh after path.sh, and by the shell scripts of tools/.
#
#   parse_options "$@"       reads the command line; every variable set above this line is an option: --nj 32 or --nj=32
#                            sets nj; of an option that is true or false, --onnx alone is --onnx true
#   with_options TOOL ARG…   calls a script of tools/ with ARG… and the variables of the recipe that are options of TOOL;
#                            the other options of TOOL are options of the recipe too, and override ARG…
#   if stage N "title"       true if N is between stage and stop_stage; logs the title
#   has_cmvn                 true if the config of the recipe normalises features; with --from, the model does
#   has_units                true if its tokenizer has a units file; those of whisper and Hugging Face bring their own, and
#                            so does the model of --from, unless --units names others
#   needed CONDITION         true if has_cmvn or has_units is; else logs that the config does not need the stage
#   require FILE…            ends the recipe if a file is missing, and names the stage that makes the file
#   words TEXT               sets the array WORDS to the words of an option that is a list: "test 'my test'" has two words
#   log MESSAGE              prints a time and a message to stderr
#   die MESSAGE              prints an error and exits with status 1

set -o pipefail # not in run.sh: its first lines must run in any shell, for path.sh to say that it needs bash
RECIPE_CALLER=${OLDPWD:-$PWD} # recipes change to their own folder before they source this file
RECIPE_SCRIPT=$0
[[ -e $RECIPE_SCRIPT ]] || RECIPE_SCRIPT=$(basename "$0")
# Operators of a recipe, such as local.noise:AddNoise in its conf/, are imported from its folder.
[[ :${PYTHONPATH:-}: == *":$PWD:"* ]] || export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$PWD"

log() {
  echo "$(date '+%F %T') $*" >&2
}

die() {
  echo "error: $*" >&2
  exit 1
}

# Locals have upper-case names, so that they do not hide an option of the recipe.
parse_options() {
  local ARGUMENT NAME VALUE NAMES SWITCHES
  NAMES=" $(_option_lines | _names)"
  SWITCHES=" $(_option_lines | sed -nE '/^[a-z0-9_]+=(true|false)( |$)/p' | _names)"
  RECIPE_OWN=" $(_lines_of "$RECIPE_SCRIPT" | _names)"
  RECIPE_GIVEN=" "
  for NAME in $NAMES; do
    [[ $RECIPE_OWN == *" $NAME "* ]] || unset "$NAME" # an environment variable must not set an option of a tool
  done
  while (($#)); do
    ARGUMENT=$1
    shift
    case $ARGUMENT in
      -h | --help)
        _help
        exit 0
        ;;
      --*=*)
        NAME=${ARGUMENT%%=*}
        VALUE=${ARGUMENT#*=}
        ;;
      --?*)
        NAME=$ARGUMENT
        # A switch of a tool, which messages of the tool name, is a switch of a recipe, too.
        if [[ $SWITCHES == *" ${NAME#--} "* && ${1---} == -* ]]; then set -- true "$@"; fi
        [[ $NAMES != *" ${NAME#--} "* ]] || (($#)) || die "option $NAME needs a value"
        VALUE=${1-}
        ;;
      *) die "unexpected argument '$ARGUMENT'; options are --name value, --help lists them" ;;
    esac
    NAME=${NAME#--}
    [[ $NAMES == *" $NAME "* ]] || die "unknown option --$NAME; $(_nearest "$NAME" "$NAMES")"
    [[ $ARGUMENT == --*=* ]] || shift
    [[ $SWITCHES != *" $NAME "* || $VALUE =~ ^(true|false)$ ]] || die "--$NAME $VALUE: expected true or false"
    printf -v "$NAME" %s "$VALUE"
    RECIPE_GIVEN+="$NAME "
  done
  for NAME in stage stop_stage; do
    [[ $NAMES != *" $NAME "* || ${!NAME} =~ ^-?[0-9]+$ ]] || die "--$NAME ${!NAME}: expected a number"
  done
  if [[ -n ${from-} && $NAMES == *" stage "* ]]; then _start_from; fi
  [[ ! ${data_type-raw} =~ ^(raw|shard)$ ]] && die "--data_type $data_type: expected raw or shard"
  return 0
}

# Prints which of the names $2 the user may have meant by $1: the one with the fewest edits, at most one for 3
# letters, or that begins so.
_nearest() {
  awk -v wrong="$1" -v names="$2" '
    function least(a, b) { return a < b ? a : b }
    function edits(from, to,  i, j, table) {
      for (i = 0; i <= length(from); i++) table[i, 0] = i
      for (j = 0; j <= length(to); j++) table[0, j] = j
      for (i = 1; i <= length(from); i++)
        for (j = 1; j <= length(to); j++)
          table[i, j] = least(least(table[i - 1, j], table[i, j - 1]) + 1,
            table[i - 1, j - 1] + (substr(from, i, 1) != substr(to, j, 1)))
      return table[length(from), length(to)]
    }
    BEGIN {
      gsub("-", "_", wrong)
      best = length(wrong) / 3 + 1
      count = split(names, known, " ")
      for (k = 1; k <= count; k++) {
        distance = index(known[k], wrong) == 1 ? 1 : edits(wrong, known[k])
        if (distance < best) { best = distance; nearest = known[k] }
      }
      if (nearest) print "did you mean --" nearest "? --help lists the options"
      else { gsub(" ", " --", names); print "known:" names "help" }
    }'
}

# Sets the defaults of a recipe that fine-tunes a model: its config, and an experiment folder with the name of the model.
_start_from() {
  local NAME
  if [[ $RECIPE_GIVEN != *" config "* ]]; then config=conf/finetune.yaml; fi
  if [[ $from == hf://*/* ]]; then
    NAME=${from#hf://*/} # of hf://org/name@revision; a revision may have slashes
    NAME=${NAME//\//-}
  else
    from=$(from_caller "$from")
    NAME=$(basename "$from")
  fi
  # Weights in the folder of a run have the same names in every run.
  if [[ $NAME =~ ^(avg|final|epoch_[0-9]+)\.pt$ ]]; then NAME=$(basename "$(dirname "$from")"); fi
  dir=${dir:-exp/$(basename "$config" .yaml)_${NAME%.pt}}
  # Before stages that may take hours. A run that has begun does not need its model any more.
  if [[ $from != hf://*/* && ! -e $from && ! -e $dir/train.yaml ]]; then
    die "--from $from: no such file or folder; a model of a hub is hf://org/name"
  fi
  if [[ -n ${units-} && -e $from ]]; then _check_units; fi
}

# Ends the recipe if the model of --from cannot be trained with the units of --units.
_check_units() {
  python -c 'import sys
from wenet_uio.base.cli import run
from wenet_uio.train.trained_model import check_other_units
run(lambda: check_other_units(*sys.argv[1:]))' "$from" "$units" || exit 1
}

# Prints the lines that set options: those of the recipe, then those of the tools that it calls by with_options.
_option_lines() {
  local TOOL TOOLS FILES=("$RECIPE_SCRIPT")
  mapfile -t TOOLS < <(sed -n 's/^ *with_options \([^ ]*\).*/\1/p' "$RECIPE_SCRIPT")
  for TOOL in "${TOOLS[@]}"; do FILES+=("$(type -P "$TOOL")"); done
  _lines_of "${FILES[@]}"
}

_lines_of() {
  awk -F= 'FNR == 1 { over = 0 } /^parse_options/ { over = 1 } !over && /^[a-z][a-z0-9_]*=/ && !seen[$1]++' "$@"
}

_names() {
  sed 's/=.*//' | tr '\n' ' '
}

_help() {
  sed -n '2,${/^#/!q; s/^# \{0,1\}//; p}' "$RECIPE_SCRIPT"
  printf '\nOptions and their defaults:\n'
  _option_lines | sed 's/^\([a-z0-9_]*\)=/  --\1 /'
}

with_options() {
  local TOOL NAME OWN=() GIVEN=()
  TOOL=$1
  shift
  for NAME in $(_lines_of "$(type -P "$TOOL")" | _names); do
    if [[ $RECIPE_OWN == *" $NAME "* ]]; then
      OWN+=("--$NAME" "${!NAME}")
    elif [[ $RECIPE_GIVEN == *" $NAME "* ]]; then
      GIVEN+=("--$NAME" "${!NAME}")
    fi
  done
  _interruptible "$TOOL" "${OWN[@]}" "$@" "${GIVEN[@]}"
}

# _interruptible COMMAND…: runs a command. A SIGTERM or SIGUSR1 to the recipe goes to the command, which may save and end, and then ends
# the recipe with status 75 (try again), since its stages are not done. Bash hands on no signal to a command in the
# foreground, and as the first process of a container it would ignore SIGTERM. Ctrl-C reaches both; the recipe ends after
# the command.
_interruptible() {
  local COMMAND STATUS ENDS=
  (trap - INT; exec "$@") <&0 & # a command in the background would ignore Ctrl-C, and have no input
  COMMAND=$!
  trap 'ENDS=75; kill -TERM "$COMMAND" 2>/dev/null || true' TERM
  trap 'ENDS=75; kill -USR1 "$COMMAND" 2>/dev/null || true' USR1
  trap 'ENDS=130' INT
  while true; do
    STATUS=0
    wait "$COMMAND" || STATUS=$?
    kill -0 "$COMMAND" 2>/dev/null || break # a signal ends `wait`, too
  done
  trap - TERM USR1 INT
  [[ -z $ENDS ]] || exit "$ENDS"
  return "$STATUS"
}

stage() {
  # shellcheck disable=SC2154 # options of every recipe
  ((stage <= $1 && $1 <= stop_stage)) || return 1
  log "stage $1: $2"
}

require() {
  local file made_by
  for file in "$@"; do
    [[ -e $file ]] && continue
    case $file in
      */wav.scp | data/*/text) made_by=0 ;;
      */global_cmvn) made_by=1 ;;
      */units.txt | */bpe.model) made_by=2 ;;
      */data.list | */mixture.yaml) made_by=3 ;;
      */train.yaml | */epoch_*) made_by=4 ;;
      */avg.pt | */text) made_by=5 ;;
      *) die "$file is missing" ;;
    esac
    die "$file is missing; stage $made_by makes it (--stage $made_by)"
  done
}

# from_caller PATH: prints the absolute path; PATH is relative to the folder in which the recipe was called.
from_caller() {
  [[ -n $1 ]] || die "the path of the corpus is missing: --data PATH"
  (cd "$RECIPE_CALLER" && realpath --canonicalize-missing -- "$1")
}

# Sets the array WORDS to the words of $1: blanks separate words, except in quotes. A word, or the value after its first
# `=`, may be in quotes: 'my names', dir="my names". Quotes stay. No pattern such as * is expanded.
_quoted_words() {
  local REST=$1
  WORDS=()
  while [[ $REST =~ ^[[:space:]]*(([^[:space:]\'\"=]*=)?(\'[^\']*\'|\"[^\"]*\")+|[^[:space:]]+)(.*)$ ]]; do
    WORDS+=("${BASH_REMATCH[1]}")
    REST=${BASH_REMATCH[4]}
  done
}

words() {
  local WORD UNQUOTED=()
  _quoted_words "$1"
  for WORD in "${WORDS[@]}"; do
    if [[ $WORD =~ ^([^\'\"=]*=)?[\'\"](.*)[\'\"]$ ]]; then WORD=${BASH_REMATCH[1]}${BASH_REMATCH[2]}; fi
    UNQUOTED+=("$WORD")
  done
  WORDS=("${UNQUOTED[@]}")
}

# Sets the array OVERRIDE to --override_config and the config keys of --override. The yaml parser removes the quotes.
overriding() {
  # shellcheck disable=SC2154 # option of the calling script
  _quoted_words "$override"
  OVERRIDE=()
  if ((${#WORDS[@]})); then OVERRIDE+=(--override_config "${WORDS[@]}"); fi
}

# config_value KEY: prints the value of a top-level key of --config, or of --override.
config_value() {
  local VALUE WORD
  # shellcheck disable=SC2154 # option of the calling script
  VALUE=$(sed -nE "s/^$1: *[\"']?([^ #\"']*).*/\1/p" "$config" 2>/dev/null || true)
  words "$override"
  for WORD in "${WORDS[@]}"; do
    if [[ $WORD == "$1="* ]]; then VALUE=${WORD#*=}; fi
  done
  echo "$VALUE"
}

has_cmvn() {
  [[ -z ${from-} && $(config_value cmvn) == global_cmvn ]]
}

has_units() {
  if [[ -n ${from-} ]]; then
    [[ -n ${units-} ]]
    return
  fi
  [[ ! $(config_value tokenizer) =~ ^(whisper|huggingface|sentencepiece)$ ]]
}

needed() {
  "$1" && return
  log "${from:+$from with }$config does not need this stage"
  return 1
}

# override_units DICT: adds the config keys of units.txt, --bpe and --non_lang_syms to --override. A config whose
# tokenizer has no units file has these keys itself.
override_units() {
  if ! has_units; then
    [[ -z $bpe || (-n ${from-} && $RECIPE_GIVEN != *" bpe "*) ]] ||
      die "--bpe $bpe: the tokenizer of $config has its own units"
    return 0
  fi
  _override_path tokenizer_conf.symbol_table_path "$1/units.txt"
  if [[ -n $bpe ]]; then
    _override_path tokenizer_conf.bpe_path "$1/bpe.model"
    override="tokenizer=bpe $override"
  fi
  if [[ -n ${non_lang_syms-} ]]; then
    non_lang_syms=$(from_caller "$non_lang_syms")
    _override_path tokenizer_conf.non_lang_syms_path "$non_lang_syms"
  fi
}

# _override_path KEY PATH: adds KEY with PATH as a yaml string in quotes to --override.
_override_path() {
  local QUOTE="'"
  override="$1='${2//$QUOTE/$QUOTE$QUOTE}' $override"
}

# Prints the number of CPU cores.
cores() {
  env -u OMP_NUM_THREADS nproc # nproc would print OMP_NUM_THREADS, which is meant for torch
}

# need_extra NAME: makes sure that the optional packages of requirements/NAME.txt are installed.
need_extra() {
  . "$(dirname "$0")/../path.sh"
  need_packages "$WENET_UIO_ROOT/requirements/$1.txt"
}

# Sets the array PREPARING to --executor, --nj and --allow_bad, the common options of the tools that prepare data.
preparing() {
  # shellcheck disable=SC2154 # options of the calling script
  PREPARING=(--executor "$executor")
  if [[ $executor == ray ]]; then need_extra ray; else nj=${nj:-$(cores)}; fi
  if [[ -n $nj ]]; then PREPARING+=(--nj "$nj"); fi
  # shellcheck disable=SC2154
  if [[ $allow_bad == true ]]; then PREPARING+=(--allow_bad); fi
}

# Sets the array TRUST to the option that says which code, named by a train.yaml, may run.
trusting() {
  TRUST=(--trust_recipe .)
  # shellcheck disable=SC2034,SC2154 # array and option of the calling script
  if [[ $trust_code == true ]]; then TRUST=(--trust_code); fi
}

# Prints the number of GPUs that this run can use.
num_gpus() {
  if [[ -n ${CUDA_VISIBLE_DEVICES+set} ]]; then
    tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep --count '^[^-]' || true
  else
    { nvidia-smi --list-gpus 2>/dev/null || true; } | wc -l
  fi
}
