# shellcheck shell=bash
# The grammar of the recipes; sourced by every run.sh after path.sh.
#
#   parse_options "$@"       every variable set above this line is an option: --nj 32 or --nj=32 sets nj
#   if stage N "title"       whether stage N is asked for (stage … stop_stage); says so when it is
#   require FILE…            ends the recipe where a file is missing, naming the stage that makes it
#   log MESSAGE, die MESSAGE

RECIPE_CALLER=${OLDPWD:-$PWD} # recipes go to their own folder before they source this
RECIPE_SCRIPT=$0
[[ -e $RECIPE_SCRIPT ]] || RECIPE_SCRIPT=$(basename "$0")

log() {
  echo "$(date '+%F %T') $*" >&2
}

die() {
  echo "error: $*" >&2
  exit 1
}

# Upper-case names here: an option of the recipe must not meet a local of the same name.
parse_options() {
  local ARGUMENT NAME VALUE NAMES
  NAMES=" $(_option_lines | sed 's/=.*//' | tr '\n' ' ')"
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
        [[ $NAMES != *" ${NAME#--} "* ]] || (($#)) || die "option $NAME needs a value"
        VALUE=${1-}
        ;;
      *) die "unexpected argument '$ARGUMENT'; options are --name value, --help lists them" ;;
    esac
    NAME=${NAME#--}
    [[ $NAMES == *" $NAME "* ]] || die "unknown option --$NAME; known:${NAMES// / --}help"
    [[ $ARGUMENT == --*=* ]] || shift
    printf -v "$NAME" %s "$VALUE"
  done
  for NAME in stage stop_stage; do
    [[ $NAMES != *" $NAME "* || ${!NAME} =~ ^-?[0-9]+$ ]] || die "--$NAME ${!NAME}: not a number"
  done
  [[ ! ${data_type-raw} =~ ^(raw|shard)$ ]] && die "--data_type $data_type: neither raw nor shard"
  return 0
}

# The lines of the recipe that set an option.
_option_lines() {
  sed -n '/^parse_options/q; /^[a-z][a-z0-9_]*=/p' "$RECIPE_SCRIPT"
}

_help() {
  sed -n '2,${/^#/!q; s/^# \{0,1\}//; p}' "$RECIPE_SCRIPT"
  printf '\nOptions and their defaults:\n'
  _option_lines | sed 's/^\([a-z0-9_]*\)=/  --\1 /'
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

# Where a path given on the command line leads, which is meant from the folder the recipe was called in.
from_caller() {
  (cd "$RECIPE_CALLER" && realpath --canonicalize-missing -- "${1:-.}")
}

# How many GPUs this run may use.
num_gpus() {
  if [[ -n ${CUDA_VISIBLE_DEVICES+set} ]]; then
    tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep --count '^[^-]' || true
  else
    { nvidia-smi --list-gpus 2>/dev/null || true; } | wc -l
  fi
}
