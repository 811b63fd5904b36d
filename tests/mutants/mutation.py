"""Single mutations of a function's code, and code that holds many of them at once.

Every mutation of a sample is compiled into its module behind a probe, so that one import serves all of them:
``a < b`` becomes ``(a <= b if __mutant__(17) else a < b)``. The probe notes that it was reached, and answers
whether mutant 17 is the active one. So coverage is exact and costs almost nothing, and a process that has
imported everything only has to be forked to try another mutant.

Only what runs inside a function is mutated: what runs during an import has run before a mutant is chosen.
"""

from __future__ import annotations

import ast
import builtins
import copy
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import CodeType, ModuleType

import msgspec

PROBE = "__mutant__"
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
LOGGERS = {"log", "logger", "logging", "warnings"}
TEXTUAL = {"__repr__", "__str__"}
"""Functions whose result only people read."""
TIMES = ("_s", "_ms", "timeout", "interval", "delay", "strict")
"""How arguments end that only say how long something takes, or that two lists are of one length anyway."""


class Mutation(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one expression or statement, described so that it is found again where lines have moved."""

    function: str
    operator: str
    source: str
    occurrence: int
    """Which of the same expressions in the function this is, from 0 on."""


Places = dict[Mutation, ast.AST]


def find_mutations(tree: ast.Module) -> Places:
    """Every mutation that a module's functions allow, with the node that it changes."""
    finder = _Finder()
    finder.visit_scope(tree.body)
    return finder.places


class _Finder(ast.NodeVisitor):
    def __init__(self) -> None:
        self.places: Places = {}
        self._names: list[str] = []
        self._seen: Counter[tuple[str, str, str]] = Counter()

    def visit_scope(self, body: Sequence[ast.stmt]) -> None:
        """Look at the functions of a module or class, not at what runs when it is imported."""
        for statement in body:
            if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                self.visit(statement)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._names.append(node.name)
        self.visit_scope(node.body)
        self._names.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in TEXTUAL:
            return
        self._names.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._names.pop()

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.body)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Assertions of the product are there for the type checker."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """What people read is not mutated."""

    def visit_Raise(self, node: ast.Raise) -> None:
        self._offer("drop raise", node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_match_case(self, node: ast.match_case) -> None:
        for part in (node.guard, *node.body):
            if part is not None:
                self.visit(part)

    def visit_keyword(self, node: ast.keyword) -> None:
        if not (isinstance(node.value, ast.Constant) and (node.arg or "").endswith(TIMES)):
            self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call):
            if _logs(call):
                return
            self._offer("drop call", node)
        self.visit(node.value)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            # For whoever asks whether it is true, `False` and `None` are the same.
            if not (isinstance(node.value, ast.Constant) and node.value.value in (None, False)):
                self._offer("return None", node.value)
            self.visit(node.value)

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        self._offer_condition(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.visit_If(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._offer_condition(condition)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        self._offer("compare", node)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._offer("and/or", node)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._offer("drop not", node)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        sides = (node.left, node.right)
        if isinstance(node.op, ast.Add | ast.Sub) and not any(map(_is_sequence, sides)):
            self._offer("plus/minus", node)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._offer("flip", node)
        elif isinstance(node.value, int):
            self._offer("add one", node)

    def _offer_condition(self, test: ast.expr) -> None:
        """Negate a condition, unless another operator does the same."""
        if not isinstance(test, ast.Compare | ast.UnaryOp):
            self._offer("negate", test)

    def _offer(self, operator: str, node: ast.expr | ast.stmt) -> None:
        function, source = ".".join(self._names), ast.unparse(node)
        occurrence = self._seen[function, operator, source]
        self._seen[function, operator, source] += 1
        mutation = Mutation(function=function, operator=operator, source=source, occurrence=occurrence)
        self.places[mutation] = node


def _logs(call: ast.Call) -> bool:
    target = call.func
    return (
        isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.value.id.strip("_").lower() in LOGGERS
    )


def _is_sequence(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple | ast.ListComp) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def mutate(operator: str, node: ast.expr) -> ast.expr:
    """The mutated form of an expression."""
    match operator, node:
        case "compare", ast.Compare():
            node.ops[0] = COMPARISONS[type(node.ops[0])]()
        case "and/or", ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case "plus/minus", ast.BinOp():
            node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        case "drop not", ast.UnaryOp():
            return node.operand
        case "negate", _:
            return ast.UnaryOp(ast.Not(), node)
        case "flip", ast.Constant():
            return ast.Constant(not node.value)
        case "add one", ast.Constant(value=int(number)):
            return ast.Constant(number + 1)
        case "return None", _:
            return ast.Constant(None)
    return node


class _Planter(ast.NodeTransformer):
    def __init__(self, plants: Mapping[int, list[tuple[int, str]]]) -> None:
        self._plants = plants

    def visit(self, node: ast.AST) -> ast.AST:
        plants = self._plants.get(id(node), [])
        original: ast.AST = self.generic_visit(node)
        planted = original
        for number, operator in plants:
            probe = ast.Call(ast.Name(PROBE, ast.Load()), [ast.Constant(number)], [])
            if isinstance(planted, ast.stmt):
                planted = ast.If(ast.UnaryOp(ast.Not(), probe), [planted], [])
            else:
                assert isinstance(original, ast.expr)
                assert isinstance(planted, ast.expr)
                planted = ast.IfExp(probe, mutate(operator, copy.deepcopy(original)), planted)
        return planted


def plant(source: str, mutations: Mapping[int, Mutation], path: str) -> CodeType:
    """Compile a module with mutations behind their numbers; those it does not have are left out."""
    tree = ast.parse(source)
    places = find_mutations(tree)
    plants: dict[int, list[tuple[int, str]]] = {}
    for number, mutation in mutations.items():
        if mutation in places:
            plants.setdefault(id(places[mutation]), []).append((number, mutation.operator))
    # The nodes of `places` keep the ids of the tree's from being used again.
    planted = ast.fix_missing_locations(_Planter(plants).visit(tree))
    assert isinstance(planted, ast.Module)
    code = compile(planted, path, "exec", dont_inherit=True)
    assert isinstance(code, CodeType)
    return code


class Probes:
    """Which mutants were reached, and which one is active: none, as long as it is 0."""

    def __init__(self) -> None:
        self.reached: set[int] = set()
        self.active = 0

    def __call__(self, number: int) -> bool:
        self.reached.add(number)
        return number == self.active


class _PlantingLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, mutations: Mapping[int, Mutation]) -> None:
        super().__init__(name, path)
        self._mutations = mutations

    def get_code(self, fullname: str) -> CodeType:
        # Not by way of `source_to_code`: compiled files of the real source must be neither read nor written.
        return plant(Path(self.path).read_text(), self._mutations, self.path)


class PlantingFinder(importlib.abc.MetaPathFinder):
    """Finds the modules of a sample, and plants their mutations as they are imported."""

    def __init__(self, root: Path, files: Mapping[str, Mapping[int, Mutation]]) -> None:
        self._files = {module_name(file): (str(root / file), planted) for file, planted in files.items()}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._files:
            return None
        file, mutations = self._files[fullname]
        loader = _PlantingLoader(fullname, file, mutations)
        return importlib.util.spec_from_file_location(fullname, file, loader=loader)


def module_name(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".")


def install(root: Path, files: Mapping[str, Mapping[int, Mutation]]) -> Probes:
    """Let every later import of these files, named below a folder of sources, hold their mutations."""
    if early := [name for name in map(module_name, files) if name in sys.modules]:
        raise RuntimeError(f"imported already, without their mutants: {early}")
    probes = Probes()
    setattr(builtins, PROBE, probes)
    sys.meta_path.insert(0, PlantingFinder(root, files))
    return probes
