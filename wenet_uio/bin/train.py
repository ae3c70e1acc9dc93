#!/usr/bin/env python3
"""Train a model. Run the same command again to resume from the newest state.

    %(prog)s --config conf/train_conformer.yaml \\
        --model_dir exp/conformer --train_data data/train/data.list \\
        --cv_data data/dev/data.list
    wenet-uio launch --standalone --nproc_per_node 2 -m wenet_uio.bin.train …

The first form trains on one device, the second one on two.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import torch

from wenet_uio.base.cli import command_parser, run
from wenet_uio.base.hub_address import (
    add_revision,
    is_hub_address,
    named_model,
    require_no_name,
)
from wenet_uio.base.memory import keep_freed_memory
from wenet_uio.base.messages import start_log, unsaid
from wenet_uio.base.run_files import (
    CONVERTED,
    LEDGER,
    board_folder,
)
from wenet_uio.base.uris import shown_values
from wenet_uio.config import Config
from wenet_uio.config.command_line import (
    add_config_options,
    add_gpu_option,
    add_lora_options,
    add_trust_code,
    change_nothing,
    config_overrides,
    device_of,
)
from wenet_uio.config.dataset import HeardQuiet
from wenet_uio.config.named_code import Loaded
from wenet_uio.config.train import ENGINES
from wenet_uio.config.without_effect import TRAIN_OPTIONS
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.corpus.unread_audio import Look, looking_again
from wenet_uio.dataset.dataset import build_loader, note_of_trimmed
from wenet_uio.dataset.ledger import Ledger
from wenet_uio.dataset.loader import Loader
from wenet_uio.dataset.options import LoaderOptions
from wenet_uio.models.build import build_trainable
from wenet_uio.models.lengths import ctc_frames
from wenet_uio.models.trainable_model import TrainableModel
from wenet_uio.text.labels import Tokenizer
from wenet_uio.train.checkpoint import RunFolder
from wenet_uio.train.distributed import (
    StopRequest,
    World,
    auto_workers,
    end_with_launcher,
    report_failure_once,
    seed_everything,
    use_cpu_threads,
)
from wenet_uio.train.engines import DEEPSPEED_CONFIG, build_engine
from wenet_uio.train.objective import keep_kernels
from wenet_uio.train.report import Reporter, only_shows
from wenet_uio.train.run_config import check_text_is_trainable, choose_dtype, read_config
from wenet_uio.train.start import FineTune, Fresh, Resume, WeightFiles, resume_run
from wenet_uio.train.timing import Stopwatch
from wenet_uio.train.trackers import Trackers, check_trackers
from wenet_uio.train.trained_model import open_trained_model
from wenet_uio.train.trainer import Trainer
from wenet_uio.train.units import check_units
from wenet_uio.train.watchdog import Watchdog

log = logging.getLogger("wenet_uio.train")

MEASURE_QUIET = Loaded("wenet_uio.addons.listen.heard_quiet:measure_quiet")
"""`MEASURE_QUIET(loader)` returns the HeardQuiet of the training data."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument("--config", required=True, help="train.yaml")
    parser.add_argument(
        "--data_type", choices=("raw", "shard"), default="raw", help="type of the data lists"
    )
    parser.add_argument(
        "--train_data", help="data list of the training set (default: `data` of the config)"
    )
    parser.add_argument(
        "--cv_data", help="data list of the validation set (default: `cv_data` of the config)"
    )
    parser.add_argument(
        "--model_dir", required=True, help="folder of the run; a run resumes from its newest state"
    )
    parser.add_argument(
        "--from",
        dest="start",
        metavar="MODEL",
        help="trained model that a new run starts from: folder or weights of a run or of a model of "
        "WeNet, a model that convert_checkpoint.py converts, or hf://org/name of a hub. Encoder, "
        "decoder, features and tokenizer are those of the model, and --config has the other keys",
    )
    add_revision(parser)
    parser.add_argument(
        "--checkpoint", help="weights of a model of this config that a new run starts from"
    )
    parser.add_argument(
        "--enc_init", help="weights from which a new run takes the modules of --enc_init_mods"
    )
    parser.add_argument(
        "--enc_init_mods",
        type=_parse_module_names,
        default=["encoder"],
        metavar="A,B",
        help="modules of the model",
    )
    parser.add_argument(
        "--freeze_modules",
        type=_parse_module_names,
        metavar="A,B",
        help="modules that are not trained, such as encoder.embed,ctc",
    )
    parser.add_argument(
        "--allow_data_changes",
        action="store_true",
        help="resume with a changed data list, vocabulary or batches; the pass over the data starts "
        "again",
    )
    parser.add_argument(
        "--tensorboard_dir",
        help="folder of TensorBoard's files; outside of model_dir, they are in a folder of its name "
        "below it (default: tensorboard in model_dir)",
    )
    parser.add_argument("--train_engine", help=f"{', '.join(ENGINES)} (default: the config's)")
    parser.add_argument(
        "--deepspeed_config",
        default=str(DEEPSPEED_CONFIG),
        help="json file for --train_engine deepspeed",
    )
    parser.add_argument(
        "--forecast",
        action="store_true",
        help="train up to 20 steps, say how long the whole run will take, and write nothing",
    )
    parser.add_argument("--print_model", action="store_true", help="print the modules of the model")
    _add_machine_options(parser)
    add_config_options(parser, cmvn=True)
    add_lora_options(parser, training=True)
    add_trust_code(parser)
    change_nothing(parser, TRAIN_OPTIONS)
    parser.add_argument(
        "--ddp.world_size",
        type=_parse_world_size,
        default=argparse.SUPPRESS,
        help=argparse.SUPPRESS,
    )

    return parser


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse and check the command line."""
    args = parser().parse_args(arguments)
    args.device = device_of(args, has_gpu=torch.cuda.is_available())
    if args.start is not None:
        args.start = named_model(args.start, args.revision)
    elif args.revision is not None:
        raise ValueError(f"--revision {args.revision}: it belongs to --from hf://org/name")

    return args


def _add_machine_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that do not belong to the model: devices, ranks, data workers and the seed."""
    parser.add_argument(
        "--device", default="auto", help="auto (a GPU for each rank if there are any), cpu, cuda"
    )
    add_gpu_option(parser)
    parser.add_argument(
        "--ddp.dist_backend",
        dest="dist_backend",
        choices=("nccl", "gloo"),
        help="library of the exchanges (default: nccl on GPUs; on CPUs it is always gloo)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=1800,
        metavar="SECONDS",
        help="time that ranks wait for each other",
    )
    parser.add_argument(
        "--watchdog",
        type=float,
        default=300,
        metavar="SECONDS",
        help="after this time without a step, name the rank that stalls and print its stack; 0: "
        "never",
    )
    parser.add_argument(
        "--dtype",
        choices=("fp32", "bf16", "fp16", "auto"),
        help="type of the arithmetic (default: the config's)",
    )
    parser.add_argument(
        "--use_amp", action="store_true", help="mixed precision: bf16 unless the dtype is fp16"
    )
    parser.add_argument(
        "--num_workers",
        type=lambda text: text if text == "auto" else int(text),
        default=0,
        metavar="N",
        help="data workers of each rank; auto: depends on cores, ranks and device",
    )
    parser.add_argument(
        "--prefetch", type=int, default=8, help="batches that each data worker keeps ready"
    )
    parser.add_argument(
        "--feature_device",
        choices=("worker", "accelerator"),
        help="compute features in the data workers or on the training device (default: the "
        "config's)",
    )
    parser.add_argument(
        "--pin_memory",
        action=argparse.BooleanOptionalAction,
        help="pinned memory, for faster copies to a GPU (default: if there is a GPU)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=777,
        help="seed of weights, shuffling, augmentation, dropout",
    )


def _parse_module_names(text: str) -> list[str]:
    """Parse `A,B`; WeNet writes `encoder.` for the module encoder."""
    return [name.rstrip(".") for name in text.split(",") if name]


def _parse_world_size(text: str) -> int:
    """Parse an option of WeNet, which starts ranks one by one: the launcher does that here."""
    if text != "1":
        raise argparse.ArgumentTypeError(
            "start all ranks by `python -m wenet_uio.bin.launch --nproc_per_node N -m "
            "wenet_uio.bin.train ...`"
        )
    return 1


def build_trainer(
    args: argparse.Namespace, world: World, stop: StopRequest, clock: Stopwatch | None = None
) -> Trainer:
    """Read the config, the vocabulary, the data lists and the newest state, and build the trainer.

    Writes nothing but a converted model of --from; rank 0 locks the folder of the run if it exists.

    Raises:
        ValueError, OSError: one of these is wrong or cannot be read, or another run holds the
            folder.
    """
    folder = RunFolder(args.model_dir)
    start = choose_start(args, folder, world)
    resumes = isinstance(start, Resume)
    # Every rank reads the same notes; rank 0 logs them.
    notes = nullcontext() if world.rank == 0 else unsaid()
    with notes:
        config, tokenizer = read_config(args.config, overrides(args), start.model_config)

    config = choose_dtype(start.detach_new_ctc(config), world.device, folder.path)
    seed_everything(args.seed, 0, 0)  # the same weights on every rank
    model = build_trainable(config)
    if args.print_model and world.rank == 0:
        print(model)
    if world.rank == 0 and folder.path.exists():
        folder.hold()

    if not isinstance(start, Resume):
        start.load_into(model, config, tokenizer)
        for note in config.family.training.notes:
            log.info(note)

    with looking_again(choose_look(world, resumes=resumes)):
        train, cv = build_loaders(args, config, tokenizer, world, model)

    # Operators of the user may change the texts.
    if not resumes and world.rank == 0 and not config.dataset_conf.operators:
        check_units(train.corpus, tokenizer)
    require_utterances(train, cv)
    config = start.fill_in_warm_up(config, len(train))
    if world.rank == 0 and not args.forecast:  # rank 0 alone writes the config
        config = fill_in_quiet(config, start, train)

    engine = build_engine(model, config, world, args.seed, args.deepspeed_config)
    board = board_folder(folder.path, args.tensorboard_dir)
    check_trackers(config.tracker)
    trackers = Trackers(config.tracker, folder.path, shown_values(config.model_dump(mode="json")))
    reporter = Reporter(world.rank == 0, board, config.max_epoch, tokenizer.detokenize, trackers)
    watchdog = Watchdog(world, args.watchdog)
    losses_before, source = None, start.source
    if isinstance(start, FineTune):
        losses_before, source = start.compared_losses(model, config), start.record(config)
    trainer = Trainer(
        config,
        engine,
        folder,
        train=train,
        cv=cv,
        reporter=reporter,
        watchdog=watchdog,
        stop=stop,
        compared=losses_before,
        started_from=source,
        clock=clock,
    )

    if isinstance(start, Resume):
        start.load_into(trainer, allow_data_changes=args.allow_data_changes)

    return trainer


def fill_in_quiet(config: Config, start: Fresh | FineTune | Resume, train: Loader) -> Config:
    """Fill in how much quiet the model hears around speech: a new run measures it, also if the yaml
    states that of other data.
    """
    heard: HeardQuiet | None = None
    if isinstance(start, Resume):
        heard = start.heard_quiet
    elif MEASURE_QUIET.is_installed:
        with only_shows("the measurement of quiet around speech"):
            heard = MEASURE_QUIET(train)

    dataset_conf = config.dataset_conf.model_copy(update={"heard_quiet": heard})
    return config.model_copy(update={"dataset_conf": dataset_conf})


def choose_start(
    args: argparse.Namespace, folder: RunFolder, world: World
) -> Fresh | FineTune | Resume:
    """Tell how the run starts, and open the model that --from names.

    Raises:
        ValueError, OSError: there is no model that training can start from, the folder of the run
            has other weights, or its run began from another model.
    """
    files = WeightFiles(
        args.checkpoint, args.lora_ckpt_path, args.enc_init, tuple(args.enc_init_mods)
    )
    state = folder.newest_state()
    if state is not None:
        return resume_run(folder, state, args.start, files, trust_code=args.trust_code)

    folder.refuse_strangers()
    if args.start is None:
        return Fresh(files)

    path = args.start
    if is_hub_address(path):
        from wenet_uio.addons.publish.load import model_to_train

        pulled = model_to_train(path, args.commit)
        path, args.commit = pulled.folder, pulled.commit
        source = {"from": args.start, "from_commit": pulled.commit}
    else:
        require_no_name(path)
        source = {"from": str(Path(path))}

    # Rank 0 is here before the other ranks, see main().
    makes = world.rank == 0
    into = folder.path / CONVERTED
    trained = open_trained_model(path, into, make=makes, trust_code=args.trust_code)
    return FineTune(trained, source, files)


def choose_look(world: World, *, resumes: bool) -> Look:
    """Tell what this rank does about audio that came back since a list was indexed.

    Rank 0 opens the data before the other ranks, see main(). Another machine may have indexes of
    its own in its cache. The position of a run that resumes is one in the index as it was.
    """
    if world.rank == 0:
        return "tell" if resumes else "mend"

    is_machine_of_first_rank = world.rank == world.local_rank
    return "never" if resumes or is_machine_of_first_rank else "mend"


def require_same_data(world: World, trainer: Trainer) -> None:
    """Check that all ranks have opened the same utterances: their plans would differ.

    Raises:
        ValueError: two ranks have indexes of other utterances.
    """
    for loader in (trainer.train, trainer.cv):
        record = loader.data_record()
        digests = world.gather(record["digest"])
        others = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
        if others:
            raise ValueError(
                f"{record['list']}: rank {others[0]} has an index of other utterances than "
                "rank 0: see that its machine has all of the audio, and start again; if that does "
                "not help, delete the indexes in WENET_UIO_CACHE of that machine"
            )


def overrides(args: argparse.Namespace) -> list[str]:
    """Return all options that change the config, as `key=value`; the named options come last and
    win.
    """
    named = {
        "train_engine": args.train_engine,
        "dtype": args.dtype,
        "use_amp": args.use_amp,
        "dataset_conf.feature_device": args.feature_device,
        "freeze_modules": args.freeze_modules,
    }
    given = [f"{key}={value}" for key, value in named.items() if value]
    return [*config_overrides(args), *given]


def build_loaders(
    args: argparse.Namespace,
    config: Config,
    tokenizer: Tokenizer,
    world: World,
    model: TrainableModel,
) -> tuple[Loader, Loader]:
    """Return loaders of the training set and of the validation set, for this rank.

    Utterances that `model` cannot learn are left out.

    Raises:
        ValueError, OSError: a data list is missing or cannot be read.
    """
    train_data, cv_data = args.train_data or config.data, args.cv_data or config.cv_data
    for option, data, keys in (
        ("train_data", train_data, "`data` and no model.train_ds.manifest_filepath"),
        ("cv_data", cv_data, "`cv_data` and no model.validation_ds.manifest_filepath"),
    ):
        if data is None:
            raise ValueError(f"--{option} is needed: {args.config} has no {keys}")
    assert train_data is not None
    assert cv_data is not None

    ledger = None if args.forecast else Ledger(Path(args.model_dir) / LEDGER)
    options = LoaderOptions(
        rank=world.rank,
        world_size=world.size,
        num_workers=args.num_workers,
        prefetch=args.prefetch,
        pin_memory=args.pin_memory,
        seed=args.seed,
        epoch_steps=config.epoch_steps and config.epoch_steps * config.accum_grad,
        ledger=ledger,
        defer_features=config.dataset_conf.feature_device == "accelerator",
        ctc_frames=ctc_frames(model),
        most_labels=model.most_labels,
        empty_batches=True,  # every rank takes every step
    )
    train = build_loader(
        train_data, args.data_type, config, tokenizer, training=True, options=options
    )
    cv = build_loader(cv_data, args.data_type, config, tokenizer, training=False, options=options)
    if world.rank == 0:
        warn_of_trimmed(config, train.corpus, cv.corpus)
    refuse_conversations(train.corpus)
    if train.corpus.has_text_only:
        check_text_is_trainable(train.corpus.data_list, config)

    return train, cv


def require_utterances(*loaders: Loader) -> None:
    """Raise ValueError if a list has no utterance left after filtering."""
    for loader in loaders:
        if not len(loader):
            filtered = loader.cursor.plan.filtered()
            reasons = [f"{count} {reason}" for reason, count in filtered.items()]
            raise ValueError(
                f"{loader.corpus.data_list}: dataset_conf.filter_conf leaves no utterance "
                f"({', '.join(reasons)}); widen the limits"
            )


def warn_of_trimmed(config: Config, train: Corpus, cv: Corpus) -> None:
    """Warn of utterances of which the features keep the beginning alone."""
    for corpus, training in ((train, True), (cv, False)):
        trimmed = note_of_trimmed(corpus, config.dataset_conf, training=training)
        if trimmed:
            log.warning(trimmed)


def refuse_conversations(corpus: Corpus) -> None:
    """Raise ValueError if the data has conversations, which only models of one's own learn."""
    if "conversation" in corpus.kinds:
        raise ValueError(
            f"{corpus.data_list}: the models here do not learn conversations; remove the sources "
            "of type multimodal_conversation, or read them with build_loader for a model of your "
            "own"
        )


def fill_in(args: argparse.Namespace, world: World) -> None:
    """Set the options whose defaults depend on the machine."""
    if args.num_workers == "auto":
        args.num_workers = auto_workers(world)
    if args.pin_memory is None:
        args.pin_memory = world.device.type == "cuda"


def main(arguments: Sequence[str] | None = None) -> int:
    """Train until the run is complete, or a SIGTERM or SIGUSR1 arrives."""
    clock = Stopwatch()
    end_with_launcher()
    stop = StopRequest()
    args = parse_arguments(arguments)
    args.commit = None  # of the model of a hub that the run starts from
    world = World.from_environment(args.device)
    fill_in(args, world)
    level = logging.INFO if world.rank == 0 else logging.WARNING
    start_log("%(asctime)s %(message)s", level)
    if world.device.type == "cpu":
        keep_freed_memory()
        keep_kernels()

    use_cpu_threads(world, args.num_workers)
    # Rank 0 builds its trainer before it joins the other ranks, so that a wrong option is reported
    # once.
    trainer = build_trainer(args, world, stop, clock) if world.rank == 0 else None
    world.join(args.dist_backend, args.timeout)

    if world.device.type == "cpu":  # what `dtype: auto` is depends on the processor
        dtype = None if trainer is None else trainer.config.dtype
        args.dtype = world.gather(dtype)[0]

    if args.start is not None:  # a branch of a hub can get another commit at any time
        args.commit = world.gather(args.commit)[0]

    # not earlier: a rank that waits for a failed rank 0 must end when the launcher sends SIGTERM
    stop.listen()
    with report_failure_once(world):
        trainer = trainer or build_trainer(args, world, stop)
        require_same_data(world, trainer)
        if args.forecast:
            log.info("%s", trainer.forecast())
        else:
            trainer.run()

    trainer = None  # ends the data workers
    stop.ignore()
    world.leave()
    return 0


if __name__ == "__main__":
    run(main)
