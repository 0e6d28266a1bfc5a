"""Rules about a module's own text: size, exports, names, documentation, output."""

from __future__ import annotations

import ast
import re

from tests.architecture.source import Module, imports

MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 69
VAGUE_NAMES = frozenset({"common", "helper", "helpers", "lib", "misc", "tools", "util", "utils"})

Function = ast.FunctionDef | ast.AsyncFunctionDef


def oversize(module: Module) -> list[str]:
    """The module or a function of it that is too long to be read in one go."""
    found = []
    lines = len(module.text.splitlines())
    if lines > MODULE_LINES_MAX:
        found.append(f"{module.name}: {lines} lines, {MODULE_LINES_MAX} at most")
    for node in ast.walk(module.tree):
        if isinstance(node, Function) and node.end_lineno is not None:
            lines = node.end_lineno - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                found.append(
                    f"{module.name}:{node.lineno}: {node.name} has {lines} lines, "
                    f"{FUNCTION_LINES_MAX} at most"
                )
    return found


def bad_exports(module: Module) -> list[str]:
    """A missing, unsorted or wrong `__all__` of a module that defines public names."""
    defined = _top_level_names(module.tree)
    exports = _exports(module.tree)
    if exports is None:
        public = sorted(n for n in defined if not n.startswith("_"))
        return [f"{module.name}: no __all__, but it defines {', '.join(public)}"] if public else []
    found = []
    if exports != sorted(set(exports), key=_sort_key):
        found.append(f"{module.name}: __all__ is not sorted, or names something twice")
    missing = sorted(set(exports) - defined)
    if missing:
        found.append(f"{module.name}: __all__ names what it does not define: {', '.join(missing)}")
    return found


def _sort_key(name: str) -> tuple[int, list[tuple[int, int, str]]]:
    """The order that ruff's RUF022 keeps: constants, classes, the rest; numbers by value."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    pieces = re.findall(r"\d+|\D+", name)
    return kind, [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in pieces]


def _exports(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
            assert isinstance(node, ast.Assign)
            value: list[str] = list(ast.literal_eval(node.value))
            return value
    return None


def _top_level_names(tree: ast.Module) -> set[str]:
    """Names that the module defines itself, and those that it imports to export them."""
    names: set[str] = set()
    exported = set(_exports(tree) or ())
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(t.id for t in node.targets if isinstance(t, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(exported & {a.asname or a.name for a in node.names})
    return names - {"__all__"}


def vague_name(module: Module) -> list[str]:
    """A module or package whose name does not say what is in it."""
    vague = sorted(VAGUE_NAMES & set(module.name.split(".")))
    return [f"{module.name}: {name!r} says nothing about its content" for name in vague]


def undocumented(module: Module) -> list[str]:
    """A module that does not begin with a line that says what it does; empty ones need none."""
    if not module.tree.body:
        return []
    docstring = ast.get_docstring(module.tree)
    if not docstring:
        return [f"{module.name}: no docstring"]
    first = docstring.splitlines()[0]
    if not re.search(r"[.:;?]\)?$", first):
        return [f"{module.name}: the docstring's first line is no sentence: {first!r}"]
    return []


def relative_imports(module: Module) -> list[str]:
    """Imports that begin with a dot."""
    return [
        f"{module.name}:{line}: imports {target}"
        for line, target, _ in imports(module)
        if target.startswith(".")
    ]


def output(module: Module) -> list[str]:
    """Text written to the terminal; only the command line may do that."""
    found = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in ("print", "sys.stdout.write", "sys.stderr.write"):
                found.append(f"{module.name}:{node.lineno}: {name}")
    return found
