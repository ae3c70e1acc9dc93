#!/usr/bin/env bash
# Exports the averaged model of an experiment to DIR/final.zip and int8 DIR/final_quant.zip, and checks both on test data.
#
#   export.sh --dir exp/conformer

set -euo pipefail
. recipe.sh

dir=                      # of the experiment
data_type=raw             # of the list
test="test"               # part of data/ that the exported model is checked on
parse_options "$@"

require "data/$test/data.list" "$dir/avg.pt"
python -m wenet_uio.bin.export_jit --config "$dir/train.yaml" --checkpoint "$dir/avg.pt" \
  --output_file "$dir/final.zip" --output_quant_file "$dir/final_quant.zip" \
  --check_data "data/$test/data.list" --data_type "$data_type"
