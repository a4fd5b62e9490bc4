"""Is a computed value a piecewise affine function of its input? Read off the graph that torch keeps for gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_AFFINE = frozenset(
    {
        "Add", "Sub", "Rsub", "Neg", "Sum", "Mean", "Cat", "Stack", "Split", "SplitWithSizes", "Unbind", "Clone",
        "Copy", "CopySlices", "AsStrided", "Alias", "ToCopy", "View", "UnsafeView", "ReshapeAlias", "Reshape",
        "Permute", "Transpose", "T", "Squeeze", "Unsqueeze", "Expand", "Slice", "Select", "Index", "IndexSelect",
        "Gather", "MaskedFill", "MaskedSelect", "Flip", "Roll", "Repeat", "Unfold", "Im2Col", "PixelShuffle",
        "PixelUnshuffle", "ConstantPadNd", "ReflectionPad1D", "ReflectionPad2D", "ReplicationPad2D", "AvgPool1D",
        "AvgPool2D", "AvgPool3D", "AdaptiveAvgPool1D", "AdaptiveAvgPool2D", "MkldnnAdaptiveAvgPool2D",
        "UpsampleNearest2D", "UpsampleBilinear2D", "UpsampleBicubic2D", "Relu", "LeakyRelu", "Threshold", "Hardtanh",
        "Clamp", "ClampMin", "ClampMax", "Abs", "Hardsigmoid", "Where", "Maximum", "Minimum", "Max", "Min", "Amax",
        "Amin", "MaxPool2DWithIndices", "MaxPool3DWithIndices", "AdaptiveMaxPool2D", "AccumulateGrad", "Detach",
    }
)  # fmt: skip
"""Piecewise affine in all arguments together."""

_PRODUCTS = {
    **dict.fromkeys(("Mul", "Mm", "Bmm", "Mv", "Dot", "Convolution", "MkldnnConvolution", "PreluKernel"), (0, 1)),
    **dict.fromkeys(("Linear", "SlowConvTranspose2D"), (0, 1)),
    **dict.fromkeys(("Addmm", "Addbmm", "Baddbmm", "Addmv", "Addcmul"), (1, 2)),
}
"""Affine while only one of the two arguments at these places depends on the input."""

_CURVED = frozenset(
    {
        "Gelu", "Softmax", "LogSoftmax", "Sigmoid", "LogSigmoid", "Tanh", "Silu", "Mish", "Elu", "Softplus",
        "Softsign", "Hardswish", "Exp", "Expm1", "Log", "Log1P", "Sqrt", "Rsqrt", "Pow", "Erf", "Reciprocal", "Sin",
        "Cos", "Logsumexp", "NativeLayerNorm", "NativeGroupNorm", "Norm", "LinalgVectorNorm", "Std", "Var", "VarMean",
        "Prod", "Cumprod", "Glu", "Atan", "Tan", "Sinh", "Cosh", "Rrelu",
    }
)  # fmt: skip


def curved_operations(value: Any, point: Any) -> tuple[list[str], list[str]]:
    """Operations between the leaf `point` and `value` that are not piecewise affine, and those that are not known.

    A product counts as affine while only one factor depends on `point`; batch norm while it uses stored statistics.
    What a program does outside the gradient graph (`detach`) is not seen.
    """
    curved: list[str] = []
    unknown: list[str] = []
    depends: dict[Any, bool] = {}
    for node in _from_the_leaves(value.grad_fn):
        kind = type(node).__name__.rstrip("0123456789").removesuffix("Backward")
        if kind == "AccumulateGrad":
            depends[node] = node.variable is point
            continue
        slots = [i for i, (source, _) in enumerate(node.next_functions) if source is not None and depends[source]]
        depends[node] = bool(slots)
        if not slots or kind in _AFFINE:
            continue
        if kind in _PRODUCTS:
            if all(place in slots for place in _PRODUCTS[kind]):
                curved.append(f"{kind} of two values that both depend on the image")
        elif kind == "Div":
            if slots != [0]:
                curved.append("Div by a value that depends on the image")
        elif kind == "NativeBatchNorm":
            if slots != [0] or node._saved_training:
                curved.append("BatchNorm with the statistics of the batch")
        elif kind in _CURVED or kind.startswith("ScaledDotProduct"):
            curved.append(kind)
        else:
            unknown.append(kind)
    return list(dict.fromkeys(curved)), list(dict.fromkeys(unknown))


def _from_the_leaves(last: Any) -> Iterator[Any]:
    """Every node of the graph after all nodes it depends on."""
    done: set[Any] = set()
    stack: list[tuple[Any, bool]] = [] if last is None else [(last, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif node not in done:
            done.add(node)
            stack.append((node, True))
            stack.extend((source, False) for source, _ in node.next_functions if source is not None)
