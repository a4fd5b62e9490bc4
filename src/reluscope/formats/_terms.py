"""Terms of affine expressions (sparse rows over one block of variables), and the windows of convolutions and pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from reluscope._check import FloatArray
from reluscope.errors import InputError

IndexArray = npt.NDArray[np.intp]
Shape = tuple[int, ...]
Term: TypeAlias = IndexArray | Any
"""Coefficients of one block: an index array `pick`, where `pick[i]` is the variable that makes entry i (-1
for none), or a `csr_array` of shape (size, block size)."""


def nnz(term: Term) -> int:
    """Number of non-zeros."""
    return int(np.count_nonzero(term >= 0)) if isinstance(term, np.ndarray) else int(term.nnz)


def row_counts(term: Term) -> npt.NDArray[np.int64]:
    """Non-zeros of each row."""
    if isinstance(term, np.ndarray):
        return (term >= 0).astype(np.int64)
    return np.diff(term.indptr).astype(np.int64)


def nnz_of_rows(term: Term, index: IndexArray) -> int:
    """Non-zeros of the chosen rows; -1 stands for a zero row."""
    return int(row_counts(term)[index[index >= 0]].sum())


def used(term: Term, size: int) -> npt.NDArray[np.bool_]:
    """Mask of the block's variables that the term reads."""
    used = np.zeros(size, dtype=bool)
    used[term[term >= 0] if isinstance(term, np.ndarray) else term.indices] = True
    return used


def as_csr(term: Term, size: int) -> sparse.csr_array:
    """The term as a matrix over a block of `size` variables."""
    if not isinstance(term, np.ndarray):
        return term
    held = term >= 0
    return sparse.csr_array((np.ones(int(held.sum())), term[held], row_starts(held)), shape=(len(term), size))


def full_csr(matrix: FloatArray) -> sparse.csr_array:
    """A dense matrix as CSR with every entry stored: far quicker than a search for its non-zeros."""
    rows, columns = matrix.shape
    small = np.int32 if matrix.size < 2**31 else np.int64
    indices = np.tile(np.arange(columns, dtype=small), rows)
    return sparse.csr_array((matrix.flatten(), indices, np.arange(rows + 1, dtype=small) * columns), shape=matrix.shape)


def row_starts(counts: npt.NDArray[Any]) -> IndexArray:
    """Where each row starts, and the end."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.intp)


def take_rows(term: Term, index: IndexArray) -> Term:
    """Rows `index` of the term; an index of -1 gives a zero row."""
    if len(index) == term.shape[0] and np.array_equal(index, np.arange(len(index))):
        return term
    if isinstance(term, np.ndarray):
        if not len(term):
            return np.full(len(index), -1, dtype=np.intp)
        return np.where(index < 0, -1, term[index])
    counts = np.where(index < 0, 0, np.diff(term.indptr)[index]) if term.shape[0] else np.zeros(len(index), np.intp)
    starts = row_starts(counts)
    # Entry e of the result's row r is entry indptr[index[r]] + (e - starts[r]) of the term.
    begin = np.where(index < 0, 0, term.indptr[index])
    source = np.repeat(begin - starts[:-1], counts) + np.arange(starts[-1])
    return sparse.csr_array((term.data[source], term.indices[source], starts), shape=(len(index), term.shape[1]))


def scaled(term: Term, by: FloatArray, size: int) -> sparse.csr_array:
    """Each row times a number."""
    matrix = as_csr(term, size)
    out = sparse.csr_array(
        (matrix.data * np.repeat(by, np.diff(matrix.indptr)), matrix.indices, matrix.indptr),
        shape=matrix.shape,
        copy=True,
    )
    out.eliminate_zeros()
    return out


_PRODUCTS_A_LOOK = 1 << 24
"""Multiplications of a sparse product between two looks at the clock."""


def product(K: sparse.csr_array, term: Term, size: int, look: Callable[[], None]) -> Term:
    """`K` times the term, in groups of rows; `look` is called between them and may raise."""
    if isinstance(term, np.ndarray):
        look()
        return renamed(K, term, size)
    work = np.concatenate([[0], np.cumsum(row_counts(term)[K.indices])])[K.indptr]  # multiplications up to each row
    ends = np.unique(np.searchsorted(work, np.arange(_PRODUCTS_A_LOOK, work[-1], _PRODUCTS_A_LOOK)))
    parts = []
    for start, stop in pairwise([0, *ends.tolist(), K.shape[0]]):
        look()
        if stop > start:
            parts.append(sparse.csr_array(K[start:stop] @ term))
            parts[-1].eliminate_zeros()
    return parts[0] if len(parts) == 1 else sparse.csr_array(sparse.vstack(parts, format="csr"))


def renamed(K: sparse.csr_array, names: IndexArray, size: int) -> sparse.csr_array:
    """K with column j called `names[j]`; columns with the name -1 are dropped, equal names added up."""
    if K.shape[1] == size == len(names) and np.array_equal(names, np.arange(size)):
        return K
    columns = names[K.indices]
    held = columns >= 0
    if held.all():
        out = sparse.csr_array((K.data, columns, K.indptr), shape=(K.shape[0], size), copy=True)
    else:
        before = row_starts(held)
        out = sparse.csr_array((K.data[held], columns[held], before[K.indptr]), shape=(K.shape[0], size))
    out.sum_duplicates()
    return out


def lay_out(terms: dict[int, Term], place: dict[int, IndexArray], width: int, rows: int) -> sparse.csr_array:
    """The terms of several blocks as one matrix over the units of the layer below."""
    out: sparse.csr_array | None = None
    for b, m in terms.items():
        if not nnz(m):
            continue
        at = place[b]
        part = as_csr(np.where(m < 0, -1, at[m]), width) if isinstance(m, np.ndarray) else renamed(m, at, width)
        out = part if out is None else sparse.csr_array(out + part)
    return sparse.csr_array((rows, width)) if out is None else out


# -- windows -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    """A window that slides over the spatial axes; `pads` lists the begins of all axes, then the ends."""

    kernel: Sequence[int]
    strides: Sequence[int]
    pads: Sequence[int]
    dilations: Sequence[int]
    ceil_mode: bool = False

    @classmethod
    def whole(cls, size: Sequence[int]) -> Window:
        """The one window that covers everything."""
        return cls(size, [1] * len(size), [0] * 2 * len(size), [1] * len(size))

    def counts(self, size: Sequence[int]) -> Shape:
        """How many windows fit along each axis; `ceil_mode` admits one more that starts inside the data."""
        out = []
        for i, n in enumerate(size):
            before, after, stride = self.pads[i], self.pads[len(size) + i], self.strides[i]
            room = n + before + after - self.dilations[i] * (self.kernel[i] - 1) - 1
            if room < 0:
                raise InputError(
                    f"a window of {self.kernel[i]} entries with dilation {self.dilations[i]} does not fit into "
                    f"{n} + {before} + {after} (data and padding)"
                )
            count = (-(-room // stride) if self.ceil_mode else room // stride) + 1
            out.append(count - (self.ceil_mode and (count - 1) * stride >= n + before))
        return tuple(out)

    def positions(self, axis: int, size: int, out: int) -> IndexArray:
        """Index along one axis read by each window entry, shape (out, kernel), -1 outside the data."""
        start = np.arange(out, dtype=np.intp)[:, None] * self.strides[axis] - self.pads[axis]
        at = start + np.arange(self.kernel[axis], dtype=np.intp)[None, :] * self.dilations[axis]
        return np.where((at >= 0) & (at < size), at, -1)


def repeat_diagonal(K: sparse.csr_array, times: int) -> sparse.csr_array:
    """Block-diagonal matrix with `times` copies of K."""
    rows, columns = K.shape
    shift = np.repeat(np.arange(times, dtype=np.intp) * columns, K.nnz)
    starts = np.concatenate([[0], *(K.indptr[1:].astype(np.intp) + i * K.nnz for i in range(times))])
    return sparse.csr_array(
        (np.tile(K.data, times), np.tile(K.indices, times) + shift, starts),
        shape=(rows * times, columns * times),
    )
