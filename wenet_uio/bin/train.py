#!/usr/bin/env python3
"""Train a model; run again, go on from the newest checkpoint.

    torchrun --standalone --nproc_per_node 2 wenet_uio/bin/train.py --config conf/train_conformer.yaml \\
      --train_data data/train/data.list --cv_data data/dev/data.list --model_dir exp/conformer

Plain python runs it on one device.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from wenet_uio.cli import run
from wenet_uio.config import Config, load_config
from wenet_uio.config.train import ENGINES
from wenet_uio.dataset.dataset import build_loader
from wenet_uio.dataset.ledger import Ledger
from wenet_uio.dataset.loader import Loader
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.models import build_model
from wenet_uio.models.weights import load_parts, load_weights
from wenet_uio.text.tokenizer import Tokenizer, build_tokenizer
from wenet_uio.train.build import build_engine
from wenet_uio.train.checkpoint import LEDGER, RunFolder
from wenet_uio.train.distributed import World, auto_workers, said_once, use_cpu_threads
from wenet_uio.train.engine import seed_everything
from wenet_uio.train.report import Reporter
from wenet_uio.train.stop import StopRequest
from wenet_uio.train.trainer import Trainer
from wenet_uio.train.watchdog import Watchdog

log = logging.getLogger("wenet_uio.train")
DEEPSPEED_CONFIG = Path(__file__).parents[2] / "tools" / "ds_stage2.json"
"""The same one as that of the recipes."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="train.yaml")
    parser.add_argument(
        "--override_config", nargs="+", default=[], metavar="KEY=VALUE", help="encoder_conf.num_blocks=6"
    )
    parser.add_argument("--data_type", choices=("raw", "shard"), default="raw", help="what the lists name (raw)")
    parser.add_argument("--train_data", help="data list of the training set; default: `data` of the config")
    parser.add_argument("--cv_data", required=True, help="data list of the validation set")
    parser.add_argument("--model_dir", required=True, help="folder of the run; its newest state is gone on from")
    parser.add_argument("--checkpoint", help="weights that a new run starts from (fine-tuning)")
    parser.add_argument("--enc_init", help="weights of which a new run takes the parts that --enc_init_mods names")
    parser.add_argument(
        "--enc_init_mods", type=_names, default=["encoder"], metavar="A,B", help="parts of the model (encoder)"
    )
    parser.add_argument(
        "--freeze_modules", type=_names, metavar="A,B", help="parts that are not trained: encoder.embed,ctc"
    )
    parser.add_argument(
        "--allow_data_changes",
        action="store_true",
        help="go on with other data or batches than the run stopped with; the pass over the data starts again",
    )
    parser.add_argument("--tensorboard_dir", help="default: tensorboard in model_dir")
    parser.add_argument("--train_engine", help=f"{', '.join(ENGINES)}; default: the yaml's")
    parser.add_argument(
        "--deepspeed_config", default=str(DEEPSPEED_CONFIG), help="of --train_engine deepspeed (default: %(default)s)"
    )
    parser.add_argument("--device", default="auto", help="auto (a GPU a rank where there are any), cpu, cuda")
    parser.add_argument("--ddp.dist_backend", dest="dist_backend", choices=("nccl", "gloo"), help="default: by device")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds that ranks wait for one another (1800)")
    parser.add_argument(
        "--watchdog",
        type=float,
        default=300,
        metavar="SECONDS",
        help="without a step for so long, say which rank stalls and where (300; 0: never)",
    )
    parser.add_argument("--dtype", choices=("fp32", "bf16", "fp16"), help="of the arithmetic; default: the yaml's")
    parser.add_argument("--use_amp", action="store_true", help="mixed precision: bf16 unless the dtype is fp16")
    parser.add_argument(
        "--num_workers",
        type=lambda text: text if text == "auto" else int(text),
        default=0,
        metavar="N",
        help="processes that read data, a rank (0: none); auto: by cores, ranks and device",
    )
    parser.add_argument("--prefetch", type=int, default=8, help="batches that each of them keeps ready (8)")
    parser.add_argument(
        "--feature_device",
        choices=("worker", "accelerator"),
        help="where features are computed: by those that read, or by the device that trains; default: the yaml's",
    )
    parser.add_argument("--pin_memory", action="store_true", help="faster copies to a GPU")
    parser.add_argument("--seed", type=int, default=777, help="of weights, shuffling, augmentation and dropout (777)")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def build_trainer(args: argparse.Namespace, world: World, stop: StopRequest) -> Trainer:
    """Read config, vocabulary, data and what is left of the run, and build all that trains. Writes nothing.

    Raises:
        ValueError, OSError: for whatever is wrong with them.
    """
    config, tokenizer = read_config(args)
    train, cv = build_loaders(args, config, tokenizer, world)
    seed_everything(args.seed, 0, 0)  # the same weights on every rank
    model = build_model(config)
    folder = RunFolder(args.model_dir)
    state = folder.newest_state()
    if state is None:
        folder.refuse_strangers()
        if args.checkpoint:
            load_weights(model, args.checkpoint, new_lora=config.use_lora)
            log.info("weights from %s", args.checkpoint)
        if args.enc_init:
            count = load_parts(model, args.enc_init, args.enc_init_mods)
            log.info("%d weights of %s from %s", count, ", ".join(args.enc_init_mods), args.enc_init)
    engine = build_engine(model, config, world, args.seed, args.deepspeed_config)
    board = args.tensorboard_dir or folder.path / "tensorboard"
    reporter = Reporter(world.rank == 0, board, config.max_epoch, config.max_steps, tokenizer.detokenize)
    trainer = Trainer(config, engine, train, cv, folder, reporter, Watchdog(world, args.watchdog), stop)
    if state is not None:
        trainer.load(state, allow_data_changes=args.allow_data_changes)
        for name in ("checkpoint", "enc_init"):
            if getattr(args, name):
                log.info("--%s %s is not read: it is where a new run starts", name, getattr(args, name))
    return trainer


def read_config(args: argparse.Namespace) -> tuple[Config, Tokenizer]:
    """The yaml with what the command line and the data say of it, and its tokenizer.

    Raises:
        ConfigError: for the yaml.
        ValueError: its dimensions are not those of the features or the vocabulary.
    """
    named = {"train_engine": args.train_engine, "dtype": args.dtype, "use_amp": args.use_amp}
    named["dataset_conf.feature_device"] = args.feature_device
    named["freeze_modules"] = args.freeze_modules
    config = load_config(
        args.config, [*args.override_config, *(f"{key}={value}" for key, value in named.items() if value)]
    )
    tokenizer = build_tokenizer(config)
    features, vocabulary = config.dataset_conf.feature_dim, tokenizer.vocab_size
    if config.input_dim not in (None, features):
        raise ValueError(
            f"{args.config}: input_dim {config.input_dim}, but dataset_conf gives {features} features a frame"
        )
    output_dim = config.output_dim or config.vocab_size or vocabulary
    derived = {"input_dim": features, "output_dim": output_dim, "vocab_size": output_dim}
    if config.use_amp and config.dtype == "fp32":
        derived["dtype"] = "bf16"
    return config.model_copy(update=derived), tokenizer


def build_loaders(
    args: argparse.Namespace, config: Config, tokenizer: Tokenizer, world: World
) -> tuple[Loader, Loader]:
    """This rank's batches of the training and of the validation set.

    Raises:
        ValueError, OSError: there is nothing to train on, or to validate with.
    """
    if args.train_data is None and config.data is None:
        raise ValueError(f"--train_data is needed: {args.config} has no `data`")
    options = LoaderOptions(
        rank=world.rank,
        world_size=world.size,
        num_workers=args.num_workers,
        prefetch=args.prefetch,
        pin_memory=args.pin_memory,
        seed=args.seed,
        epoch_steps=config.epoch_steps and config.epoch_steps * config.accum_grad,
        ledger=Ledger(Path(args.model_dir) / LEDGER),
        defer_features=config.dataset_conf.feature_device == "accelerator",
    )
    train, cv = (
        build_loader(data_list, args.data_type, config, tokenizer, training=training, options=options)
        for data_list, training in ((args.train_data or config.data, True), (args.cv_data, False))
    )
    for loader in (train, cv):
        if not len(loader):
            reasons = ", ".join(f"{count} {reason}" for reason, count in loader.cursor.plan.filtered().items())
            raise ValueError(f"{loader.corpus.data_list}: no utterance is left by dataset_conf.filter_conf ({reasons})")
    if train.corpus.has_text_only:
        check_text_is_learnt(train.corpus.data_list, config)
    return train, cv


def check_text_is_learnt(data_list: str, config: Config) -> None:
    """Refuse a list with text without audio that this config cannot train on.

    Raises:
        ValueError: the engine cannot, or there is nothing that would learn from it.
    """
    if config.model_conf.attention_weight == 0:
        more = "attention_weight above 0" if config.model == "transducer" else "ctc_weight below 1"
        raise ValueError(
            f"{data_list}: text alone trains the attention decoder, which has no part in the loss; "
            f"give it one in model_conf ({more})"
        )
    if config.train_engine != "torch_ddp":
        raise ValueError(f"{data_list}: text without audio needs train_engine torch_ddp")


def main() -> int:
    stop = StopRequest()
    stop.listen()
    args = parse_arguments()
    world = World.from_environment(args.device)
    if args.num_workers == "auto":
        args.num_workers = auto_workers(world)
    logging.basicConfig(
        format="%(asctime)s %(message)s", datefmt="%F %T", level=logging.WARNING if world.rank else logging.INFO
    )
    use_cpu_threads(world, args.num_workers)
    # Rank 0 meets the others when it has found nothing wrong: an error is said once.
    trainer = build_trainer(args, world, stop) if world.rank == 0 else None
    world.join(args.dist_backend, args.timeout)
    with said_once(world):
        (trainer or build_trainer(args, world, stop)).run()
    trainer = None  # with its workers
    stop.too_late()
    world.leave()
    return 0


if __name__ == "__main__":
    run(main)
