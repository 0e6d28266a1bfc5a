"""Imports point down, pure packages are pure, and no modules import each other in a ring."""

from __future__ import annotations

import pytest

from tests.architecture.import_rules import (
    PURE,
    cycle,
    imports_that_climb,
    impurities,
    unlisted_packages,
)
from tests.architecture.source import SRC, module, source_modules


def test_imports_point_down() -> None:
    assert [found for m in source_modules() for found in imports_that_climb(m)] == []


def test_pure_packages_depend_on_their_arguments_only() -> None:
    pure = [m for m in source_modules() if m.package in PURE]
    assert pure
    assert [found for m in pure for found in impurities(m)] == []


def test_no_modules_import_each_other_in_a_ring() -> None:
    assert cycle(source_modules()) == []


def test_every_package_has_a_layer() -> None:
    packages = [p.name for p in (SRC / "mileage").iterdir() if (p / "__init__.py").exists()]
    assert packages
    assert unlisted_packages(packages) == []


def test_only_the_version_lives_in_the_root() -> None:
    root = {p.name for p in (SRC / "mileage").glob("*.py")}
    assert root <= {"__init__.py", "__main__.py"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("mileage.core.a", "from mileage.policy.limits import X", id="upward"),
        pytest.param("mileage.gateway.a", "import mileage.storage.sqlite", id="a sibling"),
        pytest.param("mileage.wire.a", "from mileage import gateway", id="upward from the root"),
        pytest.param("mileage.sim.a", "def f():\n import mileage.ledger.a", id="in a function"),
        pytest.param("mileage.core.a", "from mileage.novel import X", id="a package in no layer"),
        pytest.param("mileage", "from mileage.core.slo import Slo", id="the root imports"),
    ],
)
def test_a_climbing_import_is_found(name: str, text: str) -> None:
    assert len(imports_that_climb(module(name, text))) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("mileage.gateway.a", "from mileage.core.slo import Slo", id="downward"),
        pytest.param("mileage.gateway.a", "from mileage.gateway.b import X", id="its own package"),
        pytest.param("mileage.cli.a", "from mileage import __version__", id="the version"),
        pytest.param("mileage.core.a", "import collections.abc", id="another library"),
    ],
)
def test_an_import_that_points_down_is_let_be(name: str, text: str) -> None:
    assert imports_that_climb(module(name, text)) == []


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("import asyncio", id="asyncio"),
        pytest.param("from time import monotonic", id="a clock"),
        pytest.param("import os.path", id="os"),
        pytest.param("import sqlite3", id="a database"),
        pytest.param("from urllib.request import urlopen", id="the network"),
        pytest.param("import uvloop", id="an I/O library"),
        pytest.param("def f():\n import logging", id="inside a function"),
        pytest.param("from random import choice", id="a function of the random module"),
        pytest.param("import random\nrandom.seed(1)", id="the random module's state"),
        pytest.param("from random import Random\nRandom()", id="no seed"),
        pytest.param("import numpy as np\nnp.random.rand(3)", id="numpy's global state"),
        pytest.param("import numpy as np\nnp.random.default_rng()", id="a numpy rng without seed"),
        pytest.param("from datetime import datetime\ndatetime.now()", id="the wall clock"),
        pytest.param("import datetime\ndatetime.date.today()", id="today"),
        pytest.param("open('x')", id="a file"),
        pytest.param("hash('x')", id="a hash that differs between processes"),
    ],
)
def test_an_impurity_is_found(text: str) -> None:
    assert len(impurities(module("mileage.policy.a", text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("from random import Random\nRandom(7).random()", id="a seeded Random"),
        pytest.param("from random import Random\nrandom = Random(7)\nrandom.random()", id="a name"),
        pytest.param("import random\ndef f(r: random.Random): return r.random()", id="passed in"),
        pytest.param("import numpy as np\nnp.random.default_rng(7)", id="a seeded numpy rng"),
        pytest.param("from urllib.parse import urlsplit", id="parsing"),
        pytest.param("from datetime import datetime\ndatetime(2026, 1, 1)", id="a fixed date"),
    ],
)
def test_what_depends_on_arguments_only_is_let_be(text: str) -> None:
    assert impurities(module("mileage.policy.a", text)) == []


def test_a_ring_is_found() -> None:
    ring = [
        module("mileage.core.a", "from mileage.core.b import B"),
        module("mileage.core.b", "from mileage.core import c"),
        module("mileage.core.c", "import mileage.core.a"),
    ]
    assert set(cycle(ring)) == {"mileage.core.a", "mileage.core.b", "mileage.core.c"}
    assert cycle(ring[:2]) == []


def test_a_ring_for_type_checkers_only_is_let_be() -> None:
    ring = [
        module("mileage.core.a", "from mileage.core.b import B"),
        module("mileage.core.b", "if TYPE_CHECKING:\n    from mileage.core.a import A"),
    ]
    assert cycle(ring) == []


def test_an_unlisted_package_is_found() -> None:
    assert unlisted_packages(["core", "novel", "gateway"]) == ["novel"]
