"""What is done without a folder of the package: import all modules, then walk a small road.

without_folder.py        runs in a folder with train.list, cv.list, units.txt and train.yaml; prints a line of JSON:
                         {module that cannot be imported: why}
"""

from __future__ import annotations

import json
import runpy
import sys
from importlib import import_module
from pathlib import Path

import wenet_uio

PACKAGE = Path(wenet_uio.__file__).parent
ON_CPU = "--device cpu"
ROAD = (
    f"wenet_uio.bin.train --config train.yaml --train_data train.list --cv_data cv.list --model_dir exp {ON_CPU}",
    "wenet_uio.bin.average_model --dst_model exp/avg.pt --src_path exp --num 1",
    f"wenet_uio.bin.recognize --config exp/train.yaml --checkpoint exp/avg.pt --test_data cv.list {ON_CPU} "
    "--modes attention_rescoring --result_dir result",
    "wenet_uio.bin.completion bash",
    "wenet_uio.bin.convert_manifest titled.tsv titled.list --to raw",
    "wenet_uio.bin.convert_manifest bare.tsv bare.list --to raw",
    "wenet_uio.bin.convert_manifest pairs pairs.list --to raw",
    "wenet_uio.bin.convert_manifest cv.list kaldi --to kaldi",
    "wenet_uio.bin.convert_manifest kaldi kaldi.list --to raw",
    "wenet_uio.bin.export_jit --config exp/train.yaml --checkpoint exp/avg.pt --output_file exp/final.zip",
)


def main() -> None:
    failed = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        if path.name == "__main__.py":
            continue
        try:
            import_module(module.removesuffix(".__init__"))
        except ImportError as error:
            failed[module] = str(error)

    for command in ROAD:
        module, *sys.argv[1:] = command.split()
        sys.modules.pop(module, None)  # imported above; as a program it runs anew
        try:
            runpy.run_module(module, run_name="__main__")
        except SystemExit as end:
            if end.code:
                sys.exit(f"{command}: status {end.code}")

    print(json.dumps(failed))


if __name__ == "__main__":
    main()
