"""What the gateway asks of a Python kernel beside running code, by silent requests that nobody sees: environment and
working directory for a single run or from now on, a first cell ahead of the user's, and the list of variables. Nothing
here touches the user's namespace, counts or history.

The list runs no code of the user's: no __repr__, __len__, property, __getattr__ or metaclass. It looks into exact
types only, of builtins and of numpy, pandas and polars where they are loaded. Classes are told apart by identity,
since a metaclass may bring a hash of its own, and asked by type's own slots.
"""

import collections
import datetime
import itertools
import os
import sys
import types

_ITEMS_MAX = 1000
_PREVIEW = 200
_ELEMENTS = 10
_DEPTH = 3
_BITS = 1000  # of an integer that is written out
_COLUMNS = 100  # of a table whose size is counted
_saved = []


class _Json:
    """A value that a user expression carries as application/json."""

    def __init__(self, value):
        self._value = value

    def __repr__(self):
        return "<sandal>"

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"application/json": self._value}


def enter(spec):
    """Sets env and cwd (JSON text) until leave()."""
    import json

    spec = json.loads(spec)
    env = spec.get("env") or {}
    cwd = os.getcwd() if spec.get("cwd") else None
    if cwd is not None:
        os.chdir(spec["cwd"])
    _saved.append((cwd, {name: os.environ.get(name) for name in env}))
    os.environ.update(env)
    return _Json(True)


def leave():
    while _saved:
        cwd, env = _saved.pop()
        for name, value in env.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if cwd is not None:
            try:
                os.chdir(cwd)
            except OSError:
                pass
    return _Json(True)


def settle(spec):
    """What enter() does, for good: a kernel that waited for its user gets the user's."""
    answer = enter(spec)
    _saved.pop()
    return answer


def warm(code):
    """Goes the way of a cell once, unseen, and runs the template's code in a namespace of its own, so that the user's
    first cell finds loaded and compiled what it needs."""
    from IPython import get_ipython

    shell = get_ipython()
    shell.run_cell("1 + 1", store_history=False, silent=True)
    shell.run_cell("None", store_history=False)
    hook = shell.displayhook
    hook.start_displayhook()
    hook.write_output_prompt()
    hook.write_format_data(*hook.compute_format_data(2))
    hook.msg = None  # it is not sent
    exec(compile(code, "<warm_up>", "exec"), {"__name__": "sandal_warm_up"})
    return _Json(True)


# ---- the list of variables ----

_SKIPPED = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)
_get_module, _get_name, _get_qualname = (type.__dict__[n].__get__ for n in ("__module__", "__name__", "__qualname__"))


class _Kinds:
    """A set of classes, by identity."""

    def __init__(self, *kinds):
        self._by_id = {id(kind): kind for kind in kinds}

    def __contains__(self, kind):
        return id(kind) in self._by_id


_SCALARS = _Kinds(type(None), bool, float, complex, type(...), type(NotImplemented))
_STRINGS = _Kinds(str, bytes, bytearray)
_DICTS = _Kinds(dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
_LISTS = _Kinds(list, tuple, set, frozenset, collections.deque)
_DATES = _Kinds(datetime.date, datetime.time, datetime.datetime, datetime.timedelta)
_ZONES = _Kinds(type(None), datetime.timezone)
_BRACKETS = {list: "[]", tuple: "()", set: "{}", frozenset: ("frozenset({", "})"), collections.deque: ("deque([", "])")}


def _module(kind):
    try:
        module = _get_module(kind)
    except AttributeError:
        return ""
    return module if type(module) is str else ""


def _type(kind):
    module, name = _module(kind), str.__str__(_get_qualname(kind))
    return name if module in ("builtins", "") else f"{module}.{name}"


def _public(kind):
    """The library, one of three, of which this is a public class, as a module; or None."""
    library = _module(kind).partition(".")[0]
    module = sys.modules.get(library) if library in ("numpy", "pandas", "polars") else None
    found = type(module) is types.ModuleType and vars(module).get(str.__str__(_get_name(kind))) is kind
    return module if found else None


def _foreign(kind):
    return f"<{_type(kind)} object>"


def _join(parts, more):
    """Elements up to the length of a preview, and a sign where some are left out."""
    texts, length = [], 0
    for part in parts:
        if length > _PREVIEW:
            more = True
            break
        texts.append(part)
        length += len(part) + 2
    return ", ".join(texts + ["..."] * more)


def _string(value):
    text = repr(value[:_PREVIEW])
    return text if len(value) <= _PREVIEW else text + "..."


def _integer(value):
    bits = value.bit_length()
    return repr(value) if bits <= _BITS else f"<int of {bits} bits>"


def _items(value, depth):
    pairs = itertools.islice(dict.items(value), _ELEMENTS)
    return "{" + _join((f"{_text(k, depth)}: {_text(v, depth)}" for k, v in pairs), len(value) > _ELEMENTS) + "}"


def _elements(value, depth):
    if not value:
        return {set: "set()", frozenset: "frozenset()"}.get(type(value)) or "".join(_BRACKETS[type(value)])
    begin, end = _BRACKETS[type(value)]
    inner = _join((_text(v, depth) for v in itertools.islice(value, _ELEMENTS)), len(value) > _ELEMENTS)
    return begin + inner + ("," if type(value) is tuple and len(value) == 1 else "") + end


def _date(value):
    """Its time zone may be of a class of the user's."""
    zone = getattr(value, "tzinfo", None)
    return repr(value) if type(zone) in _ZONES else _foreign(type(value))


def _library_scalar(value):
    """numpy's numbers and pandas' moments, or None."""
    kind = type(value)
    library = _public(kind)
    names = vars(library) if library else {}
    if "generic" in names and issubclass(kind, names["generic"]) and not value.dtype.hasobject:
        item = value.item()
        return _text(item) if type(item) is not kind else None
    if names.get("Timestamp") is kind or names.get("Timedelta") is kind:
        return repr(value) if type(getattr(value, "tzinfo", None)) in _ZONES else None
    return None


def _text(value, depth=_DEPTH):
    kind = type(value)
    if kind in _SCALARS:
        return repr(value)
    if kind is int:
        return _integer(value)
    if kind in _STRINGS:
        return _string(value)
    if kind is range:
        steps = [value.start, value.stop] + [value.step] * (value.step != 1)
        return "range(" + ", ".join(map(_integer, steps)) + ")"
    if kind in _DATES:
        return _date(value)
    if kind in _DICTS:
        return _items(value, depth - 1) if depth else "{...}"
    if kind in _LISTS:
        return _elements(value, depth - 1) if depth else "...".join(_BRACKETS[kind])
    return _library_scalar(value) or _foreign(kind)


def _numpy(numpy, value, name):
    if name == "ndarray":
        safe = not value.dtype.hasobject
        inner = _join(map(_text, value.flat[:_ELEMENTS].tolist()), value.size > _ELEMENTS) if safe else "..."
        facts = {"preview": f"array([{inner}], shape={value.shape}, dtype={value.dtype.name})"}
        if value.shape:
            facts["length"] = value.shape[0]
    elif issubclass(type(value), numpy.generic) and not value.dtype.hasobject:
        facts = {"preview": _text(value)}
    else:
        return {}
    return facts | {"shape": list(value.shape), "bytes": value.nbytes}


def _plain(pandas, dtype):
    """Does no value of the column run code of the user's when it is read?"""
    numpy = sys.modules["numpy"]
    known = issubclass(type(dtype), numpy.dtype) or _public(type(dtype)) is pandas
    return known and getattr(dtype, "tz", None) is None


def _column(pandas, head):
    if not _plain(pandas, head.dtype):
        return "[...]"
    return "[" + _join(map(_text, head.tolist()[:_ELEMENTS]), len(head) > _ELEMENTS) + "]"


def _frame(pandas, value):
    """A label may be an object with a hash of its own, and a column by itself is hashed by its label."""
    rows, columns = value.shape
    head = value.iloc[: _ELEMENTS + 1, :_ELEMENTS]
    labels = list(head.columns)
    inner = _join(
        (
            f"{_text(label)}: " + (_column(pandas, head.iloc[:, i]) if _hashes(label) else "[...]")
            for i, label in enumerate(labels)
        ),
        columns > _ELEMENTS,
    )
    counted = columns <= _COLUMNS and all(_plain(pandas, dtype) for dtype in value.dtypes)
    size = int(value.memory_usage().sum()) if counted and all(map(_hashes, value.columns)) else None
    return {"length": rows, "shape": [rows, columns], "bytes": size, "preview": f"DataFrame({{{inner}}})"}


def _hashes(label):
    kind = type(label)
    if kind is tuple:
        return all(map(_hashes, label))
    return kind is int or kind is str or kind in _SCALARS


def _pandas(pandas, value, name):
    if name == "DataFrame":
        return _frame(pandas, value)
    if name == "Series" or name.endswith("Index"):
        head = value.iloc[: _ELEMENTS + 1] if name == "Series" else value[: _ELEMENTS + 1]
        facts = {"length": len(value), "shape": [len(value)], "preview": f"{name}({_column(pandas, head)})"}
        return facts | ({"bytes": int(value.nbytes)} if _plain(pandas, value.dtype) else {})
    return {"preview": _text(value)}


def _polars(polars, value, name):
    if name == "DataFrame":
        head = value[: _ELEMENTS + 1, :_ELEMENTS].to_dict(as_series=False)
        facts = {"length": value.height, "shape": list(value.shape)}
    elif name == "Series":
        head = value[: _ELEMENTS + 1].to_list()
        facts = {"length": len(value), "shape": [len(value)]}
    else:
        return {}
    return facts | {"bytes": value.estimated_size(), "preview": f"{name}({_text(head)})"}


def _facts(value):
    kind = type(value)
    if kind in _STRINGS or kind in _DICTS or kind in _LISTS:
        return {"length": len(value), "bytes": sys.getsizeof(value), "preview": _text(value)}
    if kind is range:
        return {"preview": _text(value), "bytes": sys.getsizeof(value), "length": _range_length(value)}
    if kind is int or kind in _SCALARS or kind in _DATES:
        return {"bytes": sys.getsizeof(value), "preview": _text(value)}
    library = _public(kind)
    if library is None:
        return {}
    look = {"numpy": _numpy, "pandas": _pandas, "polars": _polars}[_module(kind).partition(".")[0]]
    return look(library, value, str.__str__(_get_name(kind)))


def _range_length(value):
    """len() has no more than 63 bits."""
    try:
        return len(value)
    except OverflowError:
        return None


def _utf8(text):
    return text.encode("utf-8", "backslashreplace").decode()


def _item(name, value):
    item = {"name": _utf8(name), "type": _utf8(_type(type(value))), "shape": None, "length": None, "bytes": None}
    item["preview"] = _foreign(type(value))
    try:
        item |= _facts(value)
    except Exception:
        pass  # what it changes while it is looked at, or what its library does not let us see: this row only
    preview = _utf8(item["preview"])
    item["preview"] = preview if len(preview) <= _PREVIEW else preview[: _PREVIEW - 3] + "..."
    item["type"] = item["type"][:_PREVIEW]
    return item


def variables():
    from IPython import get_ipython

    shell = get_ipython()
    hidden = shell.user_ns_hidden
    found = {
        name: value
        for name, value in list(shell.user_ns.items())
        # user_ns_hidden tells what the shell itself put there, until a cell gives the name another value
        if type(name) is str
        and not name.startswith("_")
        and not issubclass(type(value), _SKIPPED)
        and not (name in hidden and hidden[name] is value)
    }
    return _Json({"items": [_item(name, found[name]) for name in sorted(found)[:_ITEMS_MAX]], "next": None})
