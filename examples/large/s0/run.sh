#!/usr/bin/env bash
# Many thousands of hours: several corpora, mixed, as shards on object storage, on several machines.  Results: README.md
#
#   bash run.sh --storage s3://corpora/large --executor ray --nj 512
#   bash run.sh --stage 4 --stop_stage 4 --num_nodes 4 --node_rank 0 --rdzv_endpoint host0:29400   # on each
#
# Stages: -1 the sources  0 data  1 cmvn  2 dict  3 shards, upload, mixture  4 train  5 average, decode, score  6 export

set -euo pipefail
cd "$(dirname "$0")"
. ../../../path.sh
. recipe.sh

# Every variable below is an option, --nj 32 sets nj; so are those of tools/train.sh, such as --nproc and --num_nodes.
stage=-1
stop_stage=6
sources=sources.yaml      # corpora that other recipes prepared, and their weights
storage=                  # where shards go, such as s3://bucket/folder; default: they stay in data/
executor=processes        # that packs: processes, or ray (the cluster that RAY_ADDRESS names)
cmvn_utts=100000          # utterances that mean and variance are taken of
bpe=                      # pieces of a sentencepiece model as units, such as 100; default: characters
data_type=shard           # raw: audio files; shard: tar archives
num_utts_per_shard=1000
nj=$(nproc)               # processes that prepare data
config=conf/train_conformer.yaml
override=                 # keys of the config to change: "max_epoch=3 dataset_conf.spec_aug=false"
dir=                      # of the experiment; default: exp/<name of config>, with _bpe<pieces>
average_num=10            # checkpoints with the lowest validation loss
decode_modes="ctc_greedy_search ctc_prefix_beam_search attention attention_rescoring"
onnx=false                # true: export to ONNX too
parse_options "$@"
dict=data/dict${bpe:+_bpe$bpe}
if [[ -n $bpe ]]; then
  tokenizer="tokenizer_conf.bpe_path=$dict/bpe.model tokenizer_conf.symbol_table_path=$dict/units.txt"
  override="tokenizer=bpe $tokenizer $override"
fi
dir=${dir:-exp/$(basename "$config" .yaml)${bpe:+_bpe$bpe}}

if stage -1 "the sources"; then
  require "$sources"
fi

if stage 0 "wav.scp and text of each source, and of train, dev, test"; then
  local/prepare_data.py "$sources" data
fi

if stage 1 "mean and variance of the features"; then
  require data/train/wav.scp
  compute_cmvn_stats.py --num_workers "$nj" --train_config "$config" ${override:+--override_config $override} \
    --in_scp data/train/wav.scp --num_utts "$cmvn_utts" --out_cmvn data/train/global_cmvn
fi

if stage 2 "units"; then
  require data/train/text
  make_units.sh --bpe "$bpe" --dict "$dict"
fi

if stage 3 "data lists ($data_type)"; then
  local/pack.py --data_type "$data_type" --storage "$storage" --num_utts_per_shard "$num_utts_per_shard" --nj "$nj" \
    --executor "$executor" "$sources" data
  make_lists.sh --data_type "$data_type" --num_utts_per_shard "$num_utts_per_shard" --nj "$nj" --parts "data/dev data/test"
fi

if stage 4 "train ($dir)"; then
  require data/train/global_cmvn data/mixture.yaml "$dict/units.txt"
  with_options train.sh --config "$config" --override "$override" --dir "$dir" --data_type "$data_type"
fi

if stage 5 "average, decode, score"; then
  decode.sh --dir "$dir" --data_type "$data_type" --average_num "$average_num" --modes "$decode_modes"
fi

if stage 6 "export"; then
  export.sh --dir "$dir" --data_type "$data_type" --onnx "$onnx"
fi
