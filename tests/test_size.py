"""How long things may get before they want a name of their own."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
MAX_FILE = 400
MAX_CLASS_FILE = 600
MAX_FUNCTION = 50


def limit_of(path: Path) -> int:
    """Return the most lines that a file may have: more for a module with one class, which is worse in two files."""
    if path.suffix != ".py":
        return MAX_FILE
    classes = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)]
    return MAX_CLASS_FILE if len(classes) == 1 else MAX_FILE


def test_no_source_file_is_too_long() -> None:
    """A Python module with one class has at most 600 lines; other Python, Lua and SQL files have at most 400."""
    files = [path for path in sorted(SOURCE.rglob("*")) if path.suffix in {".py", ".lua", ".sql"}]
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    long = [
        f"{path.relative_to(SOURCE)}: {length} lines, at most {limit_of(path)}"
        for path, length in lengths.items()
        if length > MAX_FILE and length > limit_of(path)
    ]
    assert not long, "\n".join(["split these files:", *long])


def test_no_function_is_too_long() -> None:
    """No function has more than 50 lines, from its `def` to its end."""
    long: list[str] = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MAX_FUNCTION:
                    long.append(f"{path.relative_to(SOURCE)}:{node.lineno}: {node.name} has {length} lines")
    assert not long, "\n".join([f"split what is past {MAX_FUNCTION} lines:", *long])
