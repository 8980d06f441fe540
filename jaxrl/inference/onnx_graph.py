"""Nodes of an ONNX graph for the layers of `architecture.describe`."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxrl.inference.numpy_policy import MASKED_LOGIT, STATE


def element_type(dtype: Any) -> int:
    """ONNX's number for a dtype."""
    import onnx

    found: int = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return found


def _node(*arguments: Any, **attributes: Any) -> Any:
    import onnx

    return onnx.helper.make_node(*arguments, **attributes)


class Graph:
    """Nodes and constants; a value goes by the name of the node that computes it.

    Args:
      weights: `arrays.named` of the policy.
      clip: bound of normalised observations, 0 for none.
    """

    def __init__(self, weights: dict[str, np.ndarray], clip: float):
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self._weights, self._clip = weights, clip

    def policy(self, network: dict[str, Any], masked: bool) -> None:
        """Adds the whole policy, from its inputs to its outputs."""
        features = {}
        for trunk, part in network["trunks"].items():
            encoded = [self._encode(encoder) for encoder in part["encoders"]]
            x = encoded[0] if len(encoded) == 1 else self._op("Concat", *encoded, axis=1)
            features[trunk] = self._remember(part["core"], trunk, x)
        self._act(network["head"], features["policy"], masked)
        value = self._dense(network["value"]["weights"], features.get("value", features["policy"]))
        self._op("Squeeze", value, self._constant([1], np.int64), result="value")

    def _op(self, kind: str, *inputs: str, result: str = "", **attributes: Any) -> str:
        """Adds a node with one result, named automatically unless `result` names it."""
        return self._several(kind, inputs, 1, result, **attributes)[0]

    def _several(
        self, kind: str, inputs: tuple[str, ...], count: int, result: str = "", **attributes: Any
    ) -> list[str]:
        names = [f"{kind.lower()}_{len(self.nodes)}_{i}" for i in range(count)]
        names = [result] if result else names
        self.nodes.append(_node(kind, list(inputs), names, **attributes))
        return names

    def _constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    def _weight(self, name: str) -> str:
        self.constants[name] = self._weights[name]
        return name

    def _cast(self, x: str, dtype: Any) -> str:
        return self._op("Cast", x, to=element_type(dtype))

    def _dense(self, name: str, x: str) -> str:
        return self._op("Gemm", x, self._weight(f"params.{name}.kernel"), self._weight(f"params.{name}.bias"))

    def _encode(self, encoder: dict[str, Any]) -> str:
        name = encoder["input"]
        if not encoder["layers"] or encoder["layers"][0]["op"] != "one_hot":
            x = self._cast(name, np.float32)
        else:
            x = name
        if f"normalizer.{name}.mean" in self._weights:
            x = self._op("Sub", x, self._weight(f"normalizer.{name}.mean"))
            x = self._op("Div", x, self._weight(f"normalizer.{name}.std"))
            if self._clip:
                x = self._op("Clip", x, self._constant(-self._clip), self._constant(self._clip))
        return self._run(encoder["layers"], x)

    def _run(self, layers: list[dict[str, Any]], x: str) -> str:
        for layer in layers:
            x = self._layer(layer, x)
        return x

    def _layer(self, layer: dict[str, Any], x: str) -> str:
        match layer["op"]:
            case "dense":
                return self._dense(layer["weights"], x)
            case "conv":
                return self._convolution(layer, x)
            case "residual":
                return self._op("Add", x, self._run(layer["layers"], x))
            case "max_pool":
                size, stride = [layer["window"]] * 2, [layer["stride"]] * 2
                y = self._op("Transpose", x, perm=[0, 3, 1, 2])
                y = self._op("MaxPool", y, kernel_shape=size, strides=stride, auto_pad="SAME_UPPER")
                return self._op("Transpose", y, perm=[0, 2, 3, 1])
            case "divide":
                return self._op("Div", x, self._constant(layer["by"]))
            case "flatten":
                return self._op("Flatten", x, axis=1)
            case "one_hot":
                return self._one_hot(layer["sizes"], x)
            case "silu":
                return self._op("Mul", x, self._op("Sigmoid", x))
            case "gelu":
                return self._op("Gelu", x, approximate="tanh")
            case activation:
                return self._op({"tanh": "Tanh", "relu": "Relu"}[activation], x)

    def _convolution(self, layer: dict[str, Any], x: str) -> str:
        """Channels are last here and in the weights but first in ONNX."""
        kernel, bias = (f"params.{layer['weights']}.{part}" for part in ("kernel", "bias"))
        self.constants[kernel] = np.ascontiguousarray(self._weights[kernel].transpose(3, 2, 0, 1))
        y = self._op("Transpose", x, perm=[0, 3, 1, 2])
        padding = {"SAME": "SAME_UPPER", "VALID": "VALID"}[layer["padding"]]
        strides = [layer["stride"]] * 2
        y = self._op("Conv", y, kernel, self._weight(bias), strides=strides, auto_pad=padding)
        return self._op("Transpose", y, perm=[0, 2, 3, 1])

    def _one_hot(self, sizes: list[int], x: str) -> str:
        columns = self._op("Reshape", x, self._constant([-1, len(sizes)], np.int64))
        columns = self._cast(columns, np.int64)
        parts = []
        for i, size in enumerate(sizes):
            column = self._op("Gather", columns, self._constant([i], np.int64), axis=1)
            parts.append(self._op("Equal", column, self._constant([range(size)], np.int64)))
        joined = parts[0] if len(parts) == 1 else self._op("Concat", *parts, axis=1)
        return self._cast(joined, np.float32)

    def _remember(self, core: dict[str, Any], trunk: str, x: str) -> str:
        if core["type"] == "none":
            return x
        reset = self._op("Unsqueeze", "reset", self._constant([1], np.int64))
        zero = self._constant(0)
        before = {
            name: self._op("Where", reset, zero, f"carry.{trunk}.{name}") for name in STATE[core["type"]]
        }
        steps = {"lstm": self._lstm, "gru": self._gru, "mingru": self._mingru, "lru": self._lru}
        y = steps[core["type"]](core["weights"], x, before, f"next_carry.{trunk}")
        return self._layer({"op": core["activation"]}, y) if "activation" in core else y

    def _product(self, weights: str, x: str) -> str:
        parts = (self._weight(f"params.{weights}.{part}") for part in ("input", "bias"))
        return self._op("Gemm", x, *parts)

    def _lstm(self, weights: str, x: str, before: dict[str, str], after: str) -> str:
        recurrent = self._op("MatMul", before["h"], self._weight(f"params.{weights}.recurrent"))
        gates = self._op("Add", self._product(weights, x), recurrent)
        i, f, g, o = self._several("Split", (gates,), 4, axis=1, num_outputs=4)
        i, f, o = (self._op("Sigmoid", x) for x in (i, f, o))
        kept = self._op("Mul", f, before["c"])
        c = self._op("Add", kept, self._op("Mul", i, self._op("Tanh", g)), result=f"{after}.c")
        return self._op("Mul", o, self._op("Tanh", c), result=f"{after}.h")

    def _gru(self, weights: str, x: str, before: dict[str, str], after: str) -> str:
        recurrent = self._op("MatMul", before["h"], self._weight(f"params.{weights}.recurrent"))
        xr, xz, xn = self._several("Split", (self._product(weights, x),), 3, axis=1, num_outputs=3)
        hr, hz, hn = self._several("Split", (recurrent,), 3, axis=1, num_outputs=3)
        r, z = (self._op("Sigmoid", self._op("Add", a, b)) for a, b in ((xr, hr), (xz, hz)))
        n = self._op("Tanh", self._op("Add", xn, self._op("Mul", r, hn)))
        return self._mixed(z, before["h"], n, f"{after}.h")

    def _mingru(self, weights: str, x: str, before: dict[str, str], after: str) -> str:
        z, n = self._several("Split", (self._product(weights, x),), 2, axis=1, num_outputs=2)
        return self._mixed(self._op("Sigmoid", z), n, before["h"], f"{after}.h")

    def _lru(self, weights: str, x: str, before: dict[str, str], after: str) -> str:
        log_nu, log_theta, log_gamma = self._weights[f"params.{weights}.eigenvalues"].astype(np.float64)
        eigenvalue = np.exp(-np.exp(log_nu) + 1j * np.exp(log_theta))
        real, imaginary = self._constant(eigenvalue.real), self._constant(eigenvalue.imag)
        product = self._op("MatMul", x, self._weight(f"params.{weights}.input"))
        scaled = self._op("Mul", product, self._constant(np.tile(np.exp(log_gamma), 2)))
        inputs = self._several("Split", (scaled,), 2, axis=1, num_outputs=2)
        re, im = before["real"], before["imaginary"]
        turned = self._op("Sub", self._op("Mul", real, re), self._op("Mul", imaginary, im))
        h_real = self._op("Add", turned, inputs[0], result=f"{after}.real")
        turned = self._op("Add", self._op("Mul", real, im), self._op("Mul", imaginary, re))
        h_imaginary = self._op("Add", turned, inputs[1], result=f"{after}.imaginary")
        state = self._op("Concat", h_real, h_imaginary, axis=1)
        y = self._op("MatMul", state, self._weight(f"params.{weights}.output"))
        skipped = self._op(
            "Gemm", x, *(self._weight(f"params.{weights}.{part}") for part in ("skip", "bias"))
        )
        return self._op("Add", y, skipped)

    def _mixed(self, z: str, x: str, y: str, result: str) -> str:
        """z x + (1 - z) y."""
        rest = self._op("Mul", self._op("Sub", self._constant(1), z), y)
        return self._op("Add", self._op("Mul", z, x), rest, result=result)

    def _act(self, head: dict[str, Any], x: str, masked: bool) -> None:
        if head["type"] in ("gaussian", "tanh_gaussian"):
            self._act_real(head, x)
            return
        name = "distribution.logits"
        if masked:
            logits = self._dense(f"{head['weights']}.logits", x)
            logits = self._op("Where", "action_mask", logits, self._constant(MASKED_LOGIT), result=name)
        else:
            logits = self._op("Identity", self._dense(f"{head['weights']}.logits", x), result=name)
        if head["type"] == "categorical":
            best = self._op("ArgMax", logits, axis=1, keepdims=0)
        else:
            sizes = self._constant(head["nvec"], np.int64)
            parts = self._several("Split", (logits, sizes), len(head["nvec"]), axis=1)
            best = self._op("Concat", *(self._op("ArgMax", p, axis=1, keepdims=1) for p in parts), axis=1)
        self._op("Identity", self._cast(best, np.int32), result="action")

    def _act_real(self, head: dict[str, Any], x: str) -> None:
        mean = self._op("Identity", self._dense(f"{head['weights']}.mean", x), result="distribution.mean")
        log_std = self._weight(f"params.{head['weights']}.log_std")
        self._op("Expand", log_std, self._op("Shape", mean), result="distribution.log_std")
        low = np.array([-np.inf if b is None else b for b in head["low"]], np.float32)
        high = np.array([np.inf if b is None else b for b in head["high"]], np.float32)
        action = mean
        if head["type"] == "tanh_gaussian":
            half = self._op("Mul", self._op("Tanh", mean), self._constant((high - low) / 2))
            action = self._op("Add", half, self._constant((high + low) / 2))
        above = self._op("Max", action, self._constant(low))
        self._op("Min", above, self._constant(high), result="action")
