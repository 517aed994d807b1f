"""A row of D numbers as one value in compiled loops: an LLVM vector, which the compiler keeps in as many registers as it takes.

Written as loops over D, the same operations end up as scalars: the compiler unrolls a short loop before it looks for vectors.
A value's type carries D, so whatever is computed from a row has a row's width. Arrays are C-contiguous, and pointers into them
go by whole rows. Sums over a row may be taken in any order and products fused into sums; results are the same at every call.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.core.datamodel import PrimitiveModel  # type: ignore[attr-defined]
from numba.extending import intrinsic, overload, register_model

_LINE = 16
"""float32 numbers in a cache line."""
_INDEX, _FLAG = ir.IntType(64), ir.IntType(32)


def _operation(define: Callable[..., tuple[Any, Callable[..., Any]]]) -> Any:
    """What compiled loops call. The function gets numba's types and gives the signature and what generates the instructions."""
    return intrinsic(prefer_literal=True)(define)


class RowType(types.Type):
    """D float32 numbers."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        super().__init__(name=f"Row({dim})")


@register_model(RowType)
class _RowModel(PrimitiveModel):
    def __init__(self, manager: Any, kind: RowType) -> None:
        super().__init__(manager, kind, ir.VectorType(ir.FloatType(), kind.dim))  # type: ignore[no-untyped-call]


def _function(builder: Any, kind: Any, name: str) -> Any:
    """One of LLVM's own functions."""
    return cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]


def _first(builder: Any, numbers: Any, row: Any, dim: int) -> Any:
    """Pointer to a row's first number."""
    return builder.gep(numbers, [builder.mul(row, ir.Constant(_INDEX, dim))])


@_operation
def pointer(_typing: Any, array: Any) -> tuple[Any, Callable[..., Any]]:
    """An array's numbers without the array, whose references a loop would otherwise count at every turn."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return context.make_array(array)(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), generate  # type: ignore[no-untyped-call]


@_operation
def zeros(_typing: Any, dim: Any) -> tuple[Any, Callable[..., Any]]:
    """A row of zeros; D is a constant of the loop."""
    kind = RowType(dim.literal_value)

    def generate(context: Any, _builder: Any, _signature: Any, _arguments: Any) -> Any:
        return ir.Constant(context.get_value_type(kind), None)

    return kind(dim), generate


@_operation
def load(_typing: Any, numbers: Any, row: Any, like: RowType) -> tuple[Any, Callable[..., Any]]:
    """A row of an array's numbers, as wide as another row."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        first = _first(builder, arguments[0], arguments[1], like.dim)
        loaded = builder.load(builder.bitcast(first, context.get_value_type(like).as_pointer()))
        loaded.align = 4
        return loaded

    return like(numbers, types.intp, like), generate


@_operation
def store(_typing: Any, numbers: Any, row: Any, value: RowType) -> tuple[Any, Callable[..., Any]]:
    """Write a row of an array."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        first = _first(builder, arguments[0], arguments[1], value.dim)
        builder.store(arguments[2], builder.bitcast(first, arguments[2].type.as_pointer())).align = 4
        return context.get_dummy_value()

    return types.void(numbers, types.intp, value), generate


def _prefetch(builder: Any, first: Any, count: int) -> None:
    """Have the caches fetch some numbers that will be needed soon."""
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _FLAG, _FLAG, _FLAG])
    fetch = _function(builder, kind, "llvm.prefetch.p0")
    for start in range(0, count, _LINE):
        line = builder.bitcast(builder.gep(first, [ir.Constant(_INDEX, start)]), byte)
        builder.call(fetch, [line, _FLAG(0), _FLAG(3), _FLAG(1)])  # to read, into all caches, data


@_operation
def prefetch_row(_typing: Any, numbers: Any, row: Any, like: RowType) -> tuple[Any, Callable[..., Any]]:
    """Have the caches fetch a row that will be needed soon, as wide as another one."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        _prefetch(builder, _first(builder, arguments[0], arguments[1], like.dim), like.dim)
        return context.get_dummy_value()

    return types.void(numbers, types.intp, like), generate


@_operation
def prefetch(_typing: Any, numbers: Any, index: Any) -> tuple[Any, Callable[..., Any]]:
    """Have the caches fetch a number that will be needed soon."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        _prefetch(builder, builder.gep(arguments[0], [arguments[1]]), 1)
        return context.get_dummy_value()

    return types.void(numbers, types.intp), generate


@_operation
def total(_typing: Any, row: RowType) -> tuple[Any, Callable[..., Any]]:
    """Sum of a row's numbers."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        number = ir.FloatType()
        kind = ir.FunctionType(number, [number, arguments[0].type])
        name = f"llvm.vector.reduce.fadd.v{row.dim}f32"
        reduce = _function(builder, kind, name)
        return builder.call(reduce, [number(0.0), arguments[0]], fastmath=("reassoc", "nsz"))

    return types.float32(row), generate


@_operation
def lowest_bit(_typing: Any, word: Any) -> tuple[Any, Callable[..., Any]]:
    """Number of the lowest bit that is set in a word that isn't 0."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(word), generate


@_operation
def _filled(_typing: Any, like: RowType, number: Any) -> tuple[Any, Callable[..., Any]]:
    """A row of equal numbers."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        undefined = ir.Constant(context.get_value_type(like), ir.Undefined)
        single = builder.insert_element(undefined, arguments[1], _FLAG(0))
        return builder.shuffle_vector(single, undefined, ir.Constant(ir.VectorType(_FLAG, like.dim), None))

    return like(like, types.float32), generate


def _of_rows(instruction: str) -> Any:
    """An operation number by number."""

    @_operation
    def of_rows(_typing: Any, left: RowType, right: RowType) -> tuple[Any, Callable[..., Any]]:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return getattr(builder, instruction)(*arguments, flags=("contract",))

        return left(left, right), generate

    return of_rows


_add, _subtract, _multiply = _of_rows("fadd"), _of_rows("fsub"), _of_rows("fmul")


# What follows has no annotations: numba wants the same ones, letter for letter, on types and on values.


def _added(left, right):  # type: ignore[no-untyped-def]
    return _add(left, right)


def _subtracted(left, right):  # type: ignore[no-untyped-def]
    return _subtract(left, right)


def _multiplied(left, right):  # type: ignore[no-untyped-def]
    return _multiply(left, right)


def _scaled(left, right):  # type: ignore[no-untyped-def]
    return _multiply(left, _filled(left, np.float32(right)))


@overload(operator.add)
def _plus(left, right):  # type: ignore[no-untyped-def]
    return _added if _are_rows(left, right) else None


@overload(operator.sub)
def _minus(left, right):  # type: ignore[no-untyped-def]
    return _subtracted if _are_rows(left, right) else None


@overload(operator.mul)
def _times(left, right):  # type: ignore[no-untyped-def]
    """Row times row, or row times number."""
    if _are_rows(left, right):
        return _multiplied
    if isinstance(left, RowType):
        return _scaled
    return None


def _are_rows(*kinds: Any) -> bool:
    return all(isinstance(kind, RowType) for kind in kinds)
