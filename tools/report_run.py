#!/usr/bin/env python3
"""Write report.html of a training run into its folder: curves, epochs, data, results, environment, config.

    report_run.py exp/conformer

Training writes the page at its end. Run this tool during training, or after decoding: the page then has error rates.
"""

import argparse

from wenet_uio.cli import run
from wenet_uio.train.run_report import write_run_report


def main() -> None:
    """Write the page and print its path."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_dir", help="folder of the run")
    parser.add_argument("--tensorboard_dir", help="folder of event files (default: tensorboard in model_dir)")
    args = parser.parse_args()
    print(write_run_report(args.model_dir, args.tensorboard_dir))


if __name__ == "__main__":
    run(main)
