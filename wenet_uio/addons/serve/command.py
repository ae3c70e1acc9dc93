"""Serve a trained model: a page to speak to, streams over WebSockets, recordings over HTTP.

    %(prog)s --model exp/conformer
    %(prog)s --model exp/conformer --host 0.0.0.0 \\
        --certificate c.pem --key k.pem --token_file t
    %(prog)s --model exp/conformer --host 0.0.0.0 --open

One port serves the page (/), WeNet's WebSocket protocol (any path), OpenAI's POST
/v1/audio/transcriptions and /v1/audio/translations, /health and /metrics. Streams of all clients
are encoded together. SIGTERM and Ctrl-C finish open utterances first. SIGHUP reads model, tokens
and certificate again. No audio is written to a disk. The protocol and the limits are described in
docs/how-to/serve.md.
"""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from ipaddress import ip_address
from pathlib import Path

from wenet_uio.addons.listen.endpoint import WENET_RULES, EndpointRule
from wenet_uio.addons.listen.live import PARTIAL_MODES
from wenet_uio.addons.listen.load import load_model
from wenet_uio.addons.listen.recogniser import SpeechRecogniser
from wenet_uio.addons.serve.options import Limits, ServeOptions
from wenet_uio.addons.serve.tls import Certificate
from wenet_uio.addons.serve.tokens import parse_tokens
from wenet_uio.base.cli import command_parser
from wenet_uio.base.hub_address import add_revision, name_of
from wenet_uio.base.imports import need_extra
from wenet_uio.base.messages import note, start_log
from wenet_uio.base.options import add_options, values_of
from wenet_uio.config.command_line import add_trust_code, local_model
from wenet_uio.search import MODES, check_modes
from wenet_uio.search.options import add_decode_options, decode_options, scorer_options
from wenet_uio.train.distributed import World, use_cpu_threads

TOKEN = "WENET_UIO_SERVE_TOKEN"
"""Environment variable with the token of the server."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser(__doc__)
    parser.add_argument(
        "--model",
        required=True,
        metavar="DIR",
        help="folder of a run, a model in WeNet's layout, or hf://org/name of a hub",
    )
    add_revision(parser)
    parser.add_argument("--checkpoint", help="weights (default: avg.pt or final.pt in the folder)")
    parser.add_argument("--device", default="auto", help="auto (a GPU if there is one), cpu, cuda")
    parser.add_argument(
        "--mode",
        help=f"{', '.join(MODES)} (default: recordings as in transcribe.py; final texts of streams "
        "by attention_rescoring if the model can, of a transducer by its own search)",
    )
    _add_network_options(parser.add_argument_group("network"))
    _add_stream_options(parser.add_argument_group("streams"))
    limits = parser.add_argument_group("limits")
    add_options(limits, Limits)
    add_options(limits, ServeOptions, "drain_seconds", "finish_seconds")
    add_trust_code(parser)
    add_decode_options(parser)

    return parser


def _add_network_options(group: argparse._ArgumentGroup) -> None:
    """Add the options of address, TLS and access."""
    group.add_argument("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0: all")
    group.add_argument("--port", type=int, default=10086, help="0: any free port")
    group.add_argument(
        "--unix_socket",
        metavar="PATH",
        help="listen on this socket in the file system, for a proxy on this machine, in place of "
        "--host and --port",
    )
    group.add_argument(
        "--certificate", metavar="FILE", help="TLS certificate chain, PEM; https and wss"
    )
    group.add_argument("--key", metavar="FILE", help="private key of the certificate, PEM")
    group.add_argument(
        "--token_file",
        metavar="FILE",
        help="file with the tokens that clients need, one a line, with limits such as name=page "
        f"streams=4 seconds_a_minute=300 (default: ${TOKEN})",
    )
    group.add_argument(
        "--allow_origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="pages of this origin may use the server, such as https://example.org; *: all "
        "(default: its own page)",
    )
    group.add_argument(
        "--open",
        action="store_true",
        help="let everybody who reaches --host use the server without a token",
    )
    add_options(group, ServeOptions, "allow_tensors", "access_log")


def _add_stream_options(group: argparse._ArgumentGroup) -> None:
    """Add the options of streams."""
    group.add_argument(
        "--chunk_size",
        type=int,
        help="encoder frames of a chunk (default: that of the model, or 16)",
    )
    group.add_argument(
        "--left_chunks", type=int, default=-1, help="chunks seen to the left; -1: all"
    )
    group.add_argument(
        "--partial_mode",
        choices=PARTIAL_MODES,
        default=PARTIAL_MODES[0],
        help="search of partial texts",
    )
    add_options(group, ServeOptions, "stream_batch")
    group.add_argument(
        "--rule1",
        type=float,
        metavar="SECONDS",
        default=WENET_RULES["rule1"].silence,
        help="silence without words; 0: off",
    )
    group.add_argument(
        "--rule2",
        type=float,
        metavar="SECONDS",
        default=WENET_RULES["rule2"].silence,
        help="silence after words; 0: off",
    )
    group.add_argument(
        "--rule3",
        type=float,
        metavar="SECONDS",
        default=WENET_RULES["rule3"].length,
        help="longest utterance; 0: off",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT."""
    args = parser().parse_args(arguments)
    start_log("%(message)s")
    name = name_of(args.model)
    certificate, options = read_certificate(args), serve_options(args)
    check_access(args, options)

    need_extra("serve", ("aiohttp", "prometheus_client"))
    # needs the packages of this extra
    from wenet_uio.addons.serve.app import Server
    from wenet_uio.addons.serve.reload import Sources
    from wenet_uio.addons.serve.served_models import keep_for_good
    from wenet_uio.addons.serve.server_loop import serve_until_stopped

    use_cpu_threads(World.from_environment(args.device))
    sources = Sources(partial(_load, args), partial(read_token, args.token_file), certificate)
    server = Server(sources.load_model(), name, options)
    server.warm_up()

    keep_for_good()
    if certificate is None and not args.unix_socket and not is_own(args.host):
        note(
            "browsers give pages of other machines a microphone by https only: --certificate, --key"
        )
    serve_until_stopped(server, args.host, args.port, sources, args.unix_socket)
    return 0


def _load(args: argparse.Namespace) -> SpeechRecogniser:
    """Load the model of the command line."""
    return load_model(
        local_model(args.model, args.revision),
        checkpoint=args.checkpoint,
        device=args.device,
        trust_code=args.trust_code,
    )


def serve_options(args: argparse.Namespace) -> ServeOptions:
    """Return the options of the command line.

    Raises:
        ValueError: a value is out of range.
        OSError: a file cannot be read.
    """
    if args.mode is not None:
        check_modes([args.mode])

    endpoints: dict[str, EndpointRule] = {}
    if args.rule1:
        endpoints["rule1"] = EndpointRule(needs_words=False, silence=args.rule1)
    if args.rule2:
        endpoints["rule2"] = EndpointRule(needs_words=True, silence=args.rule2)
    if args.rule3:
        endpoints["rule3"] = EndpointRule(needs_words=False, silence=0.0, length=args.rule3)

    return ServeOptions(
        transcribing={
            "mode": args.mode,
            **asdict(scorer_options(args)),
            "decoding": asdict(decode_options(args)),
        },
        streaming={
            name: getattr(args, name) for name in ("chunk_size", "left_chunks", "partial_mode")
        },
        endpoints=endpoints,
        stream_batch=args.stream_batch,
        limits=Limits(**values_of(Limits, args)),
        token=read_token(args.token_file),
        origins=tuple(origin.rstrip("/") for origin in args.allow_origin),
        allow_tensors=args.allow_tensors,
        access_log=args.access_log,
        drain_seconds=args.drain_seconds,
        finish_seconds=args.finish_seconds,
    )


def check_access(args: argparse.Namespace, options: ServeOptions) -> None:
    """Check that strangers cannot use the server, unless --open lets them.

    Raises:
        ValueError: other machines reach the address, and no token is needed.
    """
    if options.token is None and not args.open and not args.unix_socket and not is_own(args.host):
        raise ValueError(
            f"--host {args.host}: other machines reach this address, and everybody could use the "
            "server; give --token_file, or --open to let everybody"
        )


def is_own(host: str) -> bool:
    """Tell whether only this machine reaches a host."""
    try:
        found = socket.getaddrinfo(host, None)
        return all(ip_address(address[0]).is_loopback for *_, address in found)
    except (OSError, ValueError):  # listening tells what is wrong with it
        return False


def read_token(file: str | None) -> str | None:
    """Return the text with the tokens in the file, or in the environment; None: none is needed.

    Raises:
        OSError: the file cannot be read.
        ValueError: there is no token, or a line is wrong.
    """
    token = os.environ.get(TOKEN)
    if file:
        try:
            token = Path(file).read_text(encoding="utf-8-sig")  # editors may begin with a mark
        except UnicodeDecodeError:
            raise ValueError(f"{file}: expected a text in UTF-8") from None
    if token is not None:
        parse_tokens(token, file or TOKEN)
    return token


def read_certificate(args: argparse.Namespace) -> Certificate | None:
    """Return the certificate and its key; None: no TLS.

    Raises:
        ValueError: one of both is missing, or they do not fit.
        OSError: a file cannot be read.
    """
    if not args.certificate and not args.key:
        return None
    if not (args.certificate and args.key):
        raise ValueError("--certificate and --key belong together")
    return Certificate(args.certificate, args.key)
