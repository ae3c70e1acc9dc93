#!/usr/bin/env bash
# Thousands of hours: a mixture of corpora, as shards on object storage, trained on several machines.  Results: README.md
#
#   bash run.sh --sources corpora.yaml --storage s3://corpora/large --executor ray --stop_stage 3
#   bash run.sh --storage s3://corpora/large --stage 4 --stop_stage 4 \
#     --num_nodes 4 --node_rank 0 --rdzv_endpoint host0:29400   # on each machine
#
# Stages: -1 check  0 data  1 cmvn  2 dict  3 shards, upload, mixture  4 train  5 average, decode, score  6 export

# shellcheck disable=SC2034 # with_options passes options to tools
set -eu
cd "$(dirname "$0")"
. ../../../path.sh
. recipe.sh

# Every variable below is an option: --stage 4 sets stage. Options of the tools that with_options calls are options too.
stage=-1
stop_stage=6
sources=                  # yaml of corpora prepared by other recipes, with weights; default: sources.yaml in this folder
storage=                  # folder to upload shards to, such as s3://bucket/folder; default: shards stay in data/
uploads=8                 # parallel uploads
cmvn_utts=100000          # utterances for mean and variance, drawn at random
bpe=                      # number of BPE pieces, such as 5000; default: the units are characters
data_type=shard           # raw: audio files; shard: tar archives
num_utts_per_shard=1000   # utterances of a tar archive
config=conf/train_conformer.yaml
override=                 # config keys to change: "max_epoch=3 dataset_conf.spec_aug=false"
dir=                      # experiment folder; default: exp/<name of config>, with _bpe<pieces>
average_num=10            # number of checkpoints to average: those with the lowest validation loss
onnx=false                # true: export to ONNX too
parse_options "$@"
[[ -z $storage || $data_type == shard ]] || die "--storage $storage needs --data_type shard, got $data_type"
[[ -z $sources ]] || sources=$(from_caller "$sources")
sources=${sources:-sources.yaml}
dict=${dict:-data/dict${bpe:+_bpe$bpe}}
override_units "$dict"
dir=${dir:-exp/$(basename "$config" .yaml)${bpe:+_bpe$bpe}}
driver=$WENET_UIO_ROOT/requirements/${storage%%://*}.txt
if [[ $storage == *://* && -f $driver ]]; then need_packages "$driver"; fi

if stage -1 "check the sources and the store"; then
  local/check.py --storage "$storage" "$sources" data
fi

if stage 0 "wav.scp and text of each source, and of train, dev, test"; then
  local/prepare_data.py "$sources" data
fi

if stage 1 "mean and variance of the features" && needed has_cmvn; then
  with_options compute_cmvn.sh
fi

if stage 2 "units" && needed has_units; then
  with_options make_units.sh --dict "$dict"
fi

if stage 3 "data lists ($data_type), upload, mixture"; then
  parts=$(local/check.py --storage "$storage" "$sources" data)
  with_options make_lists.sh --parts "$parts data/dev data/test"
  local/make_mixture.py --data_type "$data_type" --storage "$storage" --uploads "$uploads" "$sources" data
fi

if stage 4 "train ($dir)"; then
  if has_cmvn; then require data/train/global_cmvn; fi
  if has_units; then require "$dict/units.txt"; fi
  require data/mixture.yaml
  with_options train.sh
fi

if stage 5 "average, decode, score"; then
  with_options decode.sh
fi

if stage 6 "export"; then
  with_options export.sh
fi
