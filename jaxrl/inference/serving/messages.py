"""Bodies of requests and answers: JSON, npy, and MessagePack if it is installed."""

from __future__ import annotations

import functools
import importlib.util
import io
import json
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxrl.config.data_files import parse_json
from jaxrl.config.text import one_line
from jaxrl.inference.serving import Refusal

JSON = "application/json"
NPY = "application/x-npy"
MSGPACK = "application/msgpack"
_NAMES = {
    **{kind: kind for kind in (JSON, NPY, MSGPACK)},
    "application/octet-stream": NPY,
    "application/x-msgpack": MSGPACK,
    "application/vnd.msgpack": MSGPACK,
}
_ARRAY = {"dtype", "shape", "data"}
_MOST_DIMENSIONS = 32
_ENCODER = json.JSONEncoder(default=operator.methodcaller("tolist"))


@functools.lru_cache(64)
def kind_of(content_type: str) -> str:
    """One of the three; raises Refusal for another, so that no page in a browser can send a simple form."""
    found = _NAMES.get(content_type.partition(";")[0].strip().lower())
    if found is None or (found == MSGPACK and not importlib.util.find_spec("msgpack")):
        raise Refusal(415, f"`Content-Type` must be {JSON}, {NPY} or {MSGPACK} (if msgpack is installed)")
    return found


def decode(kind: str, body: bytes) -> dict[str, Any]:
    """The content of a body; an npy array becomes `{"obs": array}`; Refusal if it is none of that kind."""
    if kind == NPY:
        return {"obs": read_npy(body)}
    if not body:
        return {}
    if kind == JSON:
        try:
            found = parse_json(body)
        except (ValueError, RecursionError, MemoryError) as error:
            raise Refusal(400, f"the body is no JSON: {one_line(error)[:160]}") from error
    else:
        found = _parse_msgpack(body)
    if not isinstance(found, dict):
        raise Refusal(400, "the body must be an object with `session`, `obs` and so on")
    return found


def encode(kind: str, content: Mapping[str, Any]) -> bytes:
    """The body of an answer; for npy the array of `action` alone, Refusal for an action of several parts."""
    if kind == JSON:
        return _ENCODER.encode(content).encode()
    if kind == MSGPACK:
        import msgpack

        return msgpack.packb(content, default=_array)
    if not isinstance(content.get("action"), np.ndarray | np.generic):
        raise Refusal(400, f"an action of several parts is no array: ask with {JSON}")
    stream = io.BytesIO()
    np.save(stream, content["action"], allow_pickle=False)
    return stream.getvalue()


def read_npy(body: bytes) -> np.ndarray:
    """The array in the bytes of an npy file; raises Refusal if there is none, or not exactly one."""
    stream = io.BytesIO(body)
    try:
        version = np.lib.format.read_magic(stream)
        header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, fortran, dtype = header[version](stream)
    except Exception as error:  # numpy evaluates the header as a literal, which may fail in any way
        raise Refusal(400, "the body is no npy array") from error
    return _from_bytes(memoryview(body)[stream.tell() :], dtype, shape, fortran)


def _from_bytes(data: Any, dtype: np.dtype[Any], shape: tuple[int, ...], fortran: bool = False) -> np.ndarray:
    if dtype.kind not in "biuf" or len(shape) > _MOST_DIMENSIONS or any(n < 0 for n in shape):
        raise Refusal(400, f"an array of {one_line(dtype)[:80]} is not read")
    size = dtype.itemsize
    for n in shape:  # Python's integers: nothing wraps around
        size *= n
    if size != len(data):
        raise Refusal(400, f"the array is cut off: {len(data)} bytes instead of {one_line(size)[:40]}")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def _parse_msgpack(body: bytes) -> Any:
    import msgpack

    try:
        return _with_arrays(msgpack.unpackb(body, raw=False, strict_map_key=True), 100)
    except Refusal:
        raise
    except Exception as error:  # it has half a dozen kinds, and ValueError for what is nested too deeply
        raise Refusal(400, f"the body is no MessagePack: {one_line(error)[:160]}") from error


def _with_arrays(found: Any, levels: int) -> Any:
    """Maps of `dtype`, `shape` and `data` become arrays."""
    if not isinstance(found, dict):
        return found
    if found.keys() == _ARRAY:
        shape = found["shape"]
        integers = isinstance(shape, list) and all(type(n) is int for n in shape)
        if not integers or not isinstance(found["data"], bytes) or not isinstance(found["dtype"], str):
            raise Refusal(400, "an array must have `dtype` as text, `shape` as integers and `data` as bytes")
        return _from_bytes(found["data"], np.dtype(found["dtype"]), tuple(shape))
    if not levels:
        raise Refusal(400, "the body is nested too deeply")
    return {key: _with_arrays(value, levels - 1) for key, value in found.items()}


def _array(x: Any) -> Any:
    """Arrays and numpy's numbers in the form that `_with_arrays` reads."""
    array = np.ascontiguousarray(x)
    return {"dtype": array.dtype.str, "shape": list(np.shape(x)), "data": array.tobytes()}
