#!/usr/bin/env python3
"""Measure how much room to read the code of a tree has. A thermometer, no gate.

    python lab/benchmark/readability.py wenet_uio
    python lab/benchmark/readability.py wenet_uio /tmp/lhotse/lhotse --json
    python lab/benchmark/readability.py wenet_uio --functions 40 --seed 7

Prints a line for each tree: lines of code, comments per 100 of them, the share of blank lines inside
functions, the mean length of a line of code, and locals with vague names per 1000 lines. No test
holds these figures, and no comment is written for them. --functions prints random functions, for a
reader who has not seen the code and says of each: plain, second read, or riddle.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import random
import tokenize
from collections.abc import Iterator
from pathlib import Path

from wenet_uio.base.cli import run

VAGUE = {
    *("found", "each", "own", "said", "heard", "here", "there", "given", "left", "right"),
    *("thing", "things", "stuff", "tmp", "val", "vals", "res", "ret", "obj"),
}
"""Names of locals that say how a value came, or nothing, but not what it is."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
NO_CODE = (
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.COMMENT,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def python_files(tree: Path) -> list[Path]:
    """List the Python files of a folder, or the file itself.

    Raises:
        ValueError: there is none.
    """
    files = sorted(tree.rglob("*.py")) if tree.is_dir() else [tree]
    if not files or not files[0].is_file():
        raise ValueError(f"{tree}: no Python file there; name a folder of modules")
    return files


def measure(tree: Path) -> dict[str, float | int | str]:
    """Measure all files of a tree."""
    code_lengths: list[int] = []
    comments = inside = blank = vague = 0
    for path in python_files(tree):
        text = path.read_text(encoding="utf-8")
        module = ast.parse(text)
        lines = text.splitlines()

        of_code, of_comments = lines_of_tokens(text)
        of_code -= docstring_lines(module)
        code_lengths += [len(lines[number - 1].strip()) for number in of_code]
        comments += len(of_comments)

        for first, last in bodies(module):
            inside += last - first + 1
            blank += sum(not lines[number - 1].strip() for number in range(first, last + 1))

        vague += sum(name in VAGUE for name in local_names(module))

    count = len(code_lengths)
    return {
        "tree": str(tree),
        "code_lines": count,
        "comments_per_100": round(100 * comments / max(count, 1), 2),
        "blank_percent_in_functions": round(100 * blank / max(inside, 1), 2),
        "mean_code_length": round(sum(code_lengths) / max(count, 1), 1),
        "vague_locals_per_1000": round(1000 * vague / max(count, 1), 2),
    }


def lines_of_tokens(text: str) -> tuple[set[int], set[int]]:
    """Return the numbers of the lines with code, and of those with a comment."""
    code: set[int] = set()
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))

    return code, comments


def docstring_lines(module: ast.Module) -> set[int]:
    """Return the numbers of the lines of docstrings, also of those below a field."""
    return {
        number
        for node in ast.walk(module)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def functions(module: ast.Module) -> Iterator[Function]:
    """Yield all functions and methods."""
    for node in ast.walk(module):
        if isinstance(node, Function):
            yield node


def bodies(module: ast.Module) -> Iterator[tuple[int, int]]:
    """Yield (first line, last line) of the statements of each function, without its docstring.

    A function within another counts as a part of it.
    """
    within = {
        inner
        for outer in functions(module)
        for inner in ast.walk(outer)
        if inner is not outer and isinstance(inner, Function)
    }
    for function in functions(module):
        has_docstring = ast.get_docstring(function, clean=False) is not None
        statements = function.body[1:] if has_docstring else function.body
        if function not in within and statements:
            yield statements[0].lineno, statements[-1].end_lineno or statements[-1].lineno


def local_names(module: ast.Module) -> Iterator[str]:
    """Yield each name that a function binds, once a function; parameters are none."""
    for function in functions(module):
        yield from {
            node.id
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }


def random_functions(tree: Path, count: int, seed: int) -> list[str]:
    """Choose functions of three statements or more; returns `path:line name`, sorted.

    The lines of a function do not matter: a long one is not likelier than a short one.
    """
    places = [
        f"{path}:{function.lineno} {function.name}"
        for path in python_files(tree)
        for function in functions(ast.parse(path.read_text(encoding="utf-8")))
        if len(function.body) >= 3
    ]
    return sorted(random.Random(seed).sample(places, min(count, len(places))))


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trees", nargs="+", type=Path, help="folders of Python files")
    parser.add_argument(
        "--functions", type=int, default=0, metavar="N", help="print N random functions (0)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of --functions (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")

    return parser.parse_args()


def main() -> None:
    """Print the figures of each tree, or random functions."""
    args = parse_arguments()
    if args.functions:
        for tree in args.trees:
            print("\n".join(random_functions(tree, args.functions, args.seed)))
        return

    rows = [measure(tree) for tree in args.trees]
    if args.json:
        print(json.dumps({"trees": rows}))
        return

    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))


if __name__ == "__main__":
    run(main)
