"""Tables with their types: pandas DataFrames that are shown carry application/vnd.dataframe+json beside html and text.

    {"columns": [{"name", "dtype", "values": [...]}], "index": {"name", "dtype", "values"}, "shape": [rows, columns], "rows": N}

`rows` is how many of the first rows are there. An index of several levels has lists for names, dtypes and values. Missing values (NaN, NaT, None, NA) and infinities are null; dates and times are
ISO 8601 with their zone; integers beyond 2**53, which other languages would round, and decimals are strings; what else JSON
does not have is its str(), cut. An IPython extension.
"""

import datetime
import decimal
import math

ROWS_MAX = 100
COLUMNS_MAX = 200
TEXT_MAX = 1000
SAFE_INTEGER = 2**53 - 1
MIME = "application/vnd.dataframe+json"


def _cut(text):
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"


def _value(v, is_missing):
    if v is None or v is True or v is False:
        return v
    if isinstance(v, str):
        return _cut(v)
    if hasattr(v, "dtype") and hasattr(v, "item") and getattr(v, "ndim", 1) == 0:
        v = v.item()
    if isinstance(v, bool):
        return v
    if isinstance(v, int):
        return int(v) if -SAFE_INTEGER <= v <= SAFE_INTEGER else str(v)
    if isinstance(v, float):
        return v if math.isfinite(v) else None
    if isinstance(v, (list, tuple, dict, set)):
        return _text(v)
    if is_missing(v):
        return None
    if isinstance(v, (datetime.datetime, datetime.date, datetime.time)):
        return v.isoformat()
    if isinstance(v, decimal.Decimal):
        return str(v)
    return _text(v)


def _text(v):
    try:
        return _cut(str(v))
    except Exception:  # a __str__ of the user's that fails costs its own cell alone
        return f"<{type(v).__name__} object>"


def _column(name, series, rows, is_missing):
    values = series.iloc[:rows] if hasattr(series, "iloc") else series[:rows]
    column = {"name": _name(name, is_missing), "dtype": str(series.dtype), "values": [_value(v, is_missing) for v in values]}
    categories = getattr(series.dtype, "categories", None)
    if categories is not None:
        column["categories"] = [_value(v, is_missing) for v in categories[:ROWS_MAX]]
        column["ordered"] = bool(series.dtype.ordered)
    return column


def _index(index, rows, is_missing):
    if getattr(index, "nlevels", 1) == 1:
        return _column(index.name, index, rows, is_missing)
    levels = [_column(name, index.get_level_values(i), rows, is_missing) for i, name in enumerate(index.names)]
    return {"name": [level["name"] for level in levels], "dtype": [level["dtype"] for level in levels],
            "values": [list(row) for row in zip(*(level["values"] for level in levels))]}


def _name(name, is_missing):
    if isinstance(name, tuple):
        return [_name(part, is_missing) for part in name]
    name = _value(name, is_missing)
    return str(name) if isinstance(name, (bool, float)) else name


def to_json(frame):
    """The table's form, of JSON's own types."""
    import pandas

    def is_missing(v):
        answer = pandas.isna(v)
        return answer is True or (hasattr(answer, "dtype") and answer.ndim == 0 and bool(answer))

    rows = min(len(frame), ROWS_MAX)
    columns = [
        _column(frame.columns[i], frame.iloc[:, i], rows, is_missing)
        for i in range(min(frame.shape[1], COLUMNS_MAX))
    ]
    return {
        "columns": columns,
        "index": _index(frame.index, rows, is_missing),
        "shape": [int(n) for n in frame.shape],
        "rows": rows,
    }


def _bundle(frame, include=None, exclude=None):
    try:
        return {MIME: to_json(frame)}
    except Exception:  # a table of a kind that nobody foresaw is shown all the same
        return {}


def load_ipython_extension(ip):
    for module in ("pandas", "pandas.core.frame"):  # as pandas 3 calls it, and 2
        ip.display_formatter.mimebundle_formatter.for_type_by_name(module, "DataFrame", _bundle)
