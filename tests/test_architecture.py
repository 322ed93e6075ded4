"""The order of the folders: a module imports only from its own folder and from folders before it.

The order is the direction in which data flow. Lazy imports inside functions count too. A folder
within a folder has its own place in the order, before the modules beside it.
"""

import ast
import functools
import re
from pathlib import Path

import pytest

import tgpfast

PACKAGE = Path(tgpfast.__file__).parent
ORDER = [
    "_version", "validation", "runtime", "kernels", "data", "features", "bases", "statistics",
    "density.exponents", "density.grids", "density.draws", "density.normalizing",
    "density.answers", "density.columns", "density", "solvers", "selection", "evaluation",
    "pipeline", "plot", "paper", "datasets", "dask", "sklearn", "cli", "__init__", "__main__",
]  # fmt: skip


_parse = functools.cache(ast.parse)  # several tests read all modules


def _resolve(package, node):
    """Absolute dotted names that an import statement of a module in ``package`` may mean."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        parents = package.split(".")[: len(package.split(".")) - node.level + 1]
        base = ".".join([*parents, base] if base else parents)
    return [f"{base}.{alias.name}" for alias in node.names]


def _modules(root):
    """Dotted name -> path of every module below a package folder."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = (root.name, *path.relative_to(root).with_suffix("").parts)
        found[".".join(parts)] = path
    return found


def imports_of(root):
    """Module -> modules of the same package that it imports anywhere, lazily or not."""
    modules = _modules(root)
    names = {m.removesuffix(".__init__") for m in modules} | set(modules)
    graph = {}
    for module, path in modules.items():
        package = module.rpartition(".")[0]
        targets = set()
        for node in ast.walk(_parse(path.read_text())):
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            for target in _resolve(package, node):
                while target and target not in names:
                    target = target.rpartition(".")[0]
                if target and target.partition(".")[0] == root.name:
                    targets.add(target)
        graph[module] = targets
    return graph


def _room(module):
    """The folder in ORDER that a module is in, or the module's name if it is at the top."""
    _, name, *below = [*module.split("."), "__init__"]
    inner = ".".join([name, *below[:1]])
    return inner if inner in ORDER else name


def violations(root):
    """Pairs "module -> target" where the target comes later in ORDER, or is unknown."""
    rank = {room: k for k, room in enumerate(ORDER)}
    last = len(ORDER)
    return sorted(
        f"{module} -> {target}"
        for module, targets in imports_of(root).items()
        for target in targets
        if rank.get(_room(target), last) > rank.get(_room(module), -1)
    )


def cycles(root):
    """Modules that import each other, directly or through others."""
    graph = imports_of(root)

    def reach(start):
        seen, todo = set(), list(graph.get(start, ()))
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo += graph.get(name, graph.get(f"{name}.__init__", ()))
        return seen

    return sorted(m for m in graph if m in reach(m))


@pytest.mark.slow
def test_folders_import_only_from_folders_before_them():
    assert violations(PACKAGE) == []


def test_no_module_is_part_of_an_import_cycle():
    assert cycles(PACKAGE) == []


def test_no_public_function_shadows_a_module():
    for name in tgpfast.__all__:
        assert not (PACKAGE / f"{name}.py").exists(), name
        assert not (PACKAGE / name).is_dir(), name


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("bases/planted.py", "from ..solvers import solver\n", "planted.py imports forwards"),
        ("data/planted.py", "def f():\n    from .. import dask\n", "lazily"),
        ("planted.py", "import tgpfast.cli\n", "unknown room"),
        ("density/grids/planted.py", "from ..columns import marginals\n", "inner folder"),
        ("density/columns/planted.py", "from ..density import Density\n", "module above"),
    ],
)
def test_a_planted_violation_is_found(tmp_path, path, text, expected):
    root = tmp_path / "tgpfast"
    for folder in ("bases", "data", "density", "density/columns", "density/grids", "solvers"):
        (root / folder).mkdir(parents=True)
        (root / folder / "__init__.py").touch()
    for name in (
        "__init__", "dask", "cli", "solvers/solver", "density/density", "density/columns/marginals",
    ):  # fmt: skip
        (root / f"{name}.py").touch()
    assert violations(root) == []
    (root / path).write_text(text)
    assert len(violations(root)) == 1, expected


def test_a_planted_cycle_is_found(tmp_path):
    root = tmp_path / "tgpfast"
    root.mkdir()
    (root / "data.py").write_text("def f():\n    from . import features\n")
    (root / "features.py").write_text("from .data import f\n")
    assert cycles(root) == ["tgpfast.data", "tgpfast.features"]


ROOT = Path(__file__).parents[1]  # the tree, also where an installed package is tested
BACKEND_FILES = ("kernels/_numpy.py", "kernels/_numba.py", "kernels/_cython.pyx")


def _defines(path, name):
    return path.exists() and re.search(rf"^ *(def|class) {name}\b", path.read_text(), re.M)


def unknown_names(line):
    """What a row of the table of formulas in CONTRIBUTING.md names and is not there."""
    _, function, kernels, oracle, test = line.strip().strip("|").split("|")
    needed = []
    for part in function.split("; "):
        module, *names = re.findall("`([^`]+)`", part)
        needed += [(name, [ROOT / "tgpfast" / module]) for name in names]
    for name in re.findall("`([^`]+)`", kernels):
        needed += [(name, [ROOT / "tgpfast" / file]) for file in BACKEND_FILES]
    oracles = [ROOT / "tests" / "oracle.py", ROOT / "tests" / "lattice_oracle.py"]
    needed += [(name, oracles) for name in re.findall("`([^`]+)`", oracle)]
    missing = [name for name, paths in needed if not any(_defines(path, name) for path in paths)]
    return missing + [path for path in re.findall("`([^`]+)`", test) if not (ROOT / path).exists()]


def test_the_table_of_formulas_names_what_is_there():
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("| formula | function |")[2]
    rows = [row for row in text.partition("\n\n")[0].splitlines()[2:] if row]
    assert len(rows) >= 10
    assert [name for row in rows for name in unknown_names(row)] == []


def unknown_functions(text):
    """Names in "`file.py`: `name`" that are not there."""
    pairs = re.findall(r"`([\w/]+\.py)`: `(\w+)`", text)
    return [name for file, name in pairs if not _defines(ROOT / "tgpfast" / file, name)]


def test_the_steps_of_a_fit_are_there():
    rows = (ROOT / "CONTRIBUTING.md").read_text().partition("| step of ")[2].partition("\n\n")[0]
    assert rows.count("`: `") >= 9
    assert unknown_functions(rows) == []
    assert unknown_functions("`pipeline/rows.py`: `read_row`, `no.py`: `f`") == ["read_row", "f"]


def test_a_row_with_unknown_names_is_found():
    row = "| x | `statistics/fisher.py`: `fd_sytem` | `rank_q` | `theta_f` | `tests/no.py` |"
    assert unknown_names(row) == ["fd_sytem", *["rank_q"] * 3, "theta_f", "tests/no.py"]


# Modules of one kind share these names: every backend has a NAME, every subcommand a COMMAND.
SHARED_NAMES = {"NAME", "COMMAND"}
# Numba's cache does not notice changes in other modules, so that the compiled kernels repeat the
# constants of their twins.
REPEATED_IN = "tgpfast.kernels._numba"


def _constants(path):
    """(name, value as code) of the upper-case names that a module assigns."""
    for node in _parse(path.read_text()).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        for target in targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(target.elts, node.value.elts, strict=True)
            for name, value in pairs:
                is_type = ast.unparse(value).startswith("TypeVar(")
                if isinstance(name, ast.Name) and name.id.isupper() and not is_type:
                    yield name.id, ast.unparse(value)


def repeated_constants(root):
    """Names that two modules assign, where one should import the other's or have another name."""
    homes = {}
    for module, path in _modules(root).items():
        for name, value in _constants(path):
            homes.setdefault(name, {})[module] = value
    for of_name in homes.values():
        copy = of_name.get(REPEATED_IN)
        if copy is not None and {copy} == set(of_name.values()):
            del of_name[REPEATED_IN]
    return {n: sorted(m) for n, m in homes.items() if len(m) > 1 and n not in SHARED_NAMES}


def test_a_constant_has_one_home():
    assert repeated_constants(PACKAGE) == {}


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("MOST = 3\n", "from .first import MOST\nLEAST = 3\n", []),
        ("MOST = 3\n", "MOST = 4\n", ["MOST"]),
        ("MOST = 3\n", "MOST: int = 3\n", ["MOST"]),
        ("LEAST, MOST = 1, 3\n", "MOST = 3\n", ["MOST"]),
        ("_MOST = {1: 2}\n", "_MOST = {1: 3}\n", ["_MOST"]),
    ],
)
def test_a_constant_with_two_homes_is_found(tmp_path, first, second, found):
    root = tmp_path / "tgpfast"
    root.mkdir()
    (root / "first.py").write_text(first)
    (root / "second.py").write_text(second)
    assert list(repeated_constants(root)) == found


@pytest.mark.parametrize(("copy", "found"), [(256, []), (128, ["ROW_TILE"])])
def test_compiled_kernels_repeat_constants_with_the_same_value(tmp_path, copy, found):
    root = tmp_path / "tgpfast"
    (root / "kernels").mkdir(parents=True)
    (root / "kernels" / "__init__.py").write_text("ROW_TILE = 256\n")
    (root / "kernels" / "_numba.py").write_text(f"ROW_TILE = {copy}\n")
    assert list(repeated_constants(root)) == found
