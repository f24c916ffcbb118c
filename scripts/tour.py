"""Write docs/tour.md from the tests in tests/tour; with --check, only test whether it is up to date."""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "tour"
PAGE = ROOT / "docs" / "tour.md"

INTRODUCTION = """\
# A tour

One idea at a time, from a first job to a shutdown. The page is made of the tests in `tests/tour` (by
`python scripts/tour.py`), so everything on it is run, on SQLite, in memory, on Redis, on Valkey and on a Redis
Cluster.

What the examples take for granted: `app` is an open app, as `async with Penstock(url, clock=clock) as app` gives it,
and `clock` is a `penstock.testing.Clock`, which stands still until it is moved. `await Worker(app).drain()` works
until nothing due is left. `tmp_path` is an empty directory, `run` runs a command there, and `eventually` asks again
until there is an answer.
"""


def title(name: str) -> str:
    """Return the heading for a test name such as `test_one_job_per_id`."""
    words = name.removeprefix("test_").replace("_", " ")
    return words[0].upper() + words[1:]


def block(*texts: str) -> str:
    """Return code as a fenced block."""
    return "```python\n" + "\n\n".join(texts) + "\n```"


def code(lines: list[str], node: ast.stmt, last: ast.stmt | None = None) -> str:
    """Return the text of a statement with its decorators, up to the end of `last` if that is given."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(each.lineno for each in decorators)])
    return textwrap.dedent("\n".join(lines[first - 1 : (last or node).end_lineno])).strip("\n")


def is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def of_penstock(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith("penstock")


def section(number: int, path: Path) -> tuple[str, list[str]]:
    """Return a file of tests as a heading and parts; helpers are shown with the test that follows them."""
    source = path.read_text(encoding="utf-8")
    module, lines = ast.parse(source), source.splitlines()
    heading, _, text = (ast.get_docstring(module) or path.stem).partition("\n")
    parts = [text.strip()]
    parts.append(block("\n".join(code(lines, node) for node in module.body if of_penstock(node))))
    before: list[str] = []
    for node in module.body[1:]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            if (docstring := ast.get_docstring(node)) is None:
                raise SystemExit(f"{node.name} has no docstring")
            body = code(lines, node.body[1], node.body[-1])
            parts += [f"### {title(node.name)}", docstring, block(*before, body)]
            before = []
        elif not is_import(node):
            before.append(code(lines, node))
    return f"{number}. {heading}", parts


def anchor(heading: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def page() -> str:
    """Return the whole page."""
    sections = [section(number, path) for number, path in enumerate(sorted(TESTS.glob("test_*.py")), 1)]
    contents = "\n".join(f"- [{heading}](#{anchor(heading)})" for heading, _ in sections)
    parts = [INTRODUCTION.strip(), contents]
    for heading, shown in sections:
        parts += [f"## {heading}", *shown]
    return "\n\n".join(parts) + "\n"


def main(arguments: list[str]) -> int:
    """Write the page; with --check, return 1 if that would change it."""
    wanted = page()
    if "--check" in arguments:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == wanted:
            return 0
        print("docs/tour.md is not what tests/tour says: run python scripts/tour.py", file=sys.stderr)
        return 1
    PAGE.write_text(wanted, encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}: {len(re.findall('^### ', wanted, re.MULTILINE))} examples")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
