"""Rules about imports: layers, purity, cycles."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter

from tests.architecture.source import Module, imports

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"cli"}),
    frozenset(
        {
            "dashboard",
            "deploy",
            "engines",
            "gateway",
            "loadgen",
            "scrape",
            "storage",
            "vllm_plugin",
        }
    ),
    frozenset({"wire"}),
    frozenset({"doctor", "planner", "quant"}),
    frozenset({"ledger", "sim"}),
    frozenset({"control"}),
    frozenset({"policy"}),
    frozenset({"costmodel", "measure", "workload"}),
    frozenset({"core"}),
)
"""From the top down. A package imports itself and the layers below it, and nothing beside it."""

PURE = frozenset().union(*LAYERS[3:])
"""Packages whose code depends on nothing but its arguments: no clock, no I/O, no hidden state."""

PURE_LIBRARY = (
    "__future__ abc array base64 binascii bisect collections contextlib copy csv dataclasses "
    "datetime decimal difflib enum fractions functools hashlib heapq hmac itertools json math "
    "io.BytesIO operator pickle pickletools random re shlex statistics string struct textwrap "
    "types typing unicodedata urllib.parse zipfile.BadZipFile zlib"
)
PURE_PACKAGES = (
    "mileage msgspec networkx numba numpy scipy sklearn statsmodels torch typing_extensions"
)
PURE_IMPORTS = frozenset(f"{PURE_LIBRARY} {PURE_PACKAGES}".split())
"""What pure packages may import: libraries that compute and nothing else."""

IMPURE_BUILTINS = {
    "__import__": "imports at run time",
    "breakpoint": "does I/O",
    "eval": "runs text",
    "exec": "runs text",
    "hash": "differs between processes for text; use hashlib or zlib",
    "input": "does I/O",
    "open": "does I/O",
    "print": "does I/O",
}
SEEDED_NUMPY = frozenset({"BitGenerator", "Generator", "PCG64", "Philox", "SeedSequence"})
CLOCKS = frozenset({"fromtimestamp", "now", "today", "utcnow"})


def layer_of(package: str) -> int | None:
    """Index of the package's layer, 0 at the top; None for one in no layer."""
    return next((i for i, layer in enumerate(LAYERS) if package in layer), None)


def imports_that_climb(module: Module) -> list[str]:
    """Imports of the module's own or a higher layer, from outside its package."""
    own = layer_of(module.package) if module.package else None
    found = []
    for line, target, _ in imports(module):
        parts = target.split(".")
        if parts[0] != "mileage" or parts[1].startswith("__") or parts[1] == module.package:
            continue
        other = layer_of(parts[1])
        if other is None:
            found.append(f"{module.name}:{line}: {target} is in no layer")
        elif own is None or other <= own:
            found.append(f"{module.name}:{line}: {module.package or 'the root'} imports {target}")
    return found


def impurities(module: Module) -> list[str]:
    """What makes a module of a pure package depend on more than its arguments."""
    found = [
        f"{module.name}:{line}: imports {target}"
        for line, target, _ in imports(module)
        if not _is_pure_import(target)
    ]
    imports_random = any(target == "random" for _, target, _ in imports(module))
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and (why := _impure_call(node)):
            found.append(f"{module.name}:{node.lineno}: {ast.unparse(node.func)}: {why}")
        elif isinstance(node, ast.Attribute) and (why := _impure_attribute(node, imports_random)):
            found.append(f"{module.name}:{node.lineno}: {ast.unparse(node)}: {why}")
    return found


def _is_pure_import(target: str) -> bool:
    parts = target.split(".")
    if parts[0] == "random":
        return target in ("random", "random.Random")
    if parts[:2] == ["numpy", "random"]:
        return len(parts) == 2 or parts[2] in SEEDED_NUMPY | {"default_rng"}
    return parts[0] in PURE_IMPORTS or ".".join(parts[:2]) in PURE_IMPORTS


def _impure_call(node: ast.Call) -> str | None:
    if isinstance(node.func, ast.Name) and node.func.id in IMPURE_BUILTINS:
        return IMPURE_BUILTINS[node.func.id]
    name = _dotted(node.func).rpartition(".")[2]
    if name in ("Random", "default_rng") and not (node.args or node.keywords):
        return "has no seed"
    return None


def _impure_attribute(node: ast.Attribute, imports_random: bool) -> str | None:
    base = _dotted(node.value)
    if imports_random and base == "random" and node.attr != "Random":
        return "uses the state of the random module"
    if base in ("np.random", "numpy.random") and node.attr not in SEEDED_NUMPY | {"default_rng"}:
        return "uses numpy's global random state"
    if base.rpartition(".")[2] in ("date", "datetime") and node.attr in CLOCKS:
        return "reads a clock" if node.attr != "fromtimestamp" else "depends on the time zone"
    return None


def _dotted(node: ast.expr) -> str:
    """The dotted name that the expression is or ends with; empty where it has none."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{_dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


def unlisted_packages(packages: Iterable[str]) -> list[str]:
    """Packages that the table of layers does not know."""
    return sorted(p for p in packages if layer_of(p) is None)


def cycle(modules: Sequence[Module]) -> list[str]:
    """Names of modules that import each other in a ring at run time; empty where there is none."""
    names = {m.name for m in modules}
    graph = {}
    for module in modules:
        targets = {_module_of(i.target, names) for i in imports(module) if not i.typing_only}
        graph[module.name] = targets - {None, module.name}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        ring: list[str] = error.args[1]
        return ring
    return []


def _module_of(target: str, names: set[str]) -> str | None:
    """The longest known module that the dotted target starts with."""
    while target and target not in names:
        target = target.rpartition(".")[0]
    return target or None
