"""application/vnd.dataframe+json to a DataFrame of pandas."""

from __future__ import annotations

from typing import Any, cast

import pandas as pd

from ._models import JSON


def _name(name: Any) -> Any:
    if not isinstance(name, list):
        return name
    return tuple(_name(part) for part in cast(Any, name))


def _series(column: JSON) -> Any:
    """Values with their dtype. What cannot be restored (objects, periods, intervals) stays as it was sent."""
    values, dtype = column["values"], str(column["dtype"])
    api = cast(Any, pd)
    try:
        if dtype.lower().lstrip("u").startswith("int"):  # beyond 2**53 they come as text
            values = [None if v is None else int(v) for v in values]
        elif dtype == "category":
            return api.Series(api.Categorical(values, categories=column.get("categories"), ordered=column.get("ordered", False)))
        elif dtype.startswith("datetime64"):
            return api.Series(api.to_datetime(values, utc="," in dtype, format="ISO8601")).astype(dtype)
        elif dtype.startswith("timedelta64"):
            return api.Series(api.to_timedelta(values)).astype(dtype)
        elif dtype == "object":
            return api.Series(values, dtype=object)
        elif dtype.startswith("complex"):
            values = [None if v is None else complex(v) for v in values]
        return api.Series(values, dtype=dtype)
    except (ValueError, TypeError, OverflowError):
        return api.Series(values, dtype=object)


def _index(index: JSON) -> Any:
    api = cast(Any, pd)
    if not isinstance(index["dtype"], list):
        return api.Index(_series(index), name=_name(index["name"]))
    dtypes = cast("list[str]", index["dtype"])
    columns = list(zip(*index["values"])) or [()] * len(dtypes)
    arrays = [_series({"dtype": dtype, "values": list(level)}) for dtype, level in zip(dtypes, columns)]
    return api.MultiIndex.from_arrays(arrays, names=[_name(name) for name in index["name"]])


def to_pandas(table: JSON) -> pd.DataFrame:
    api = cast(Any, pd)
    index = _index(table["index"])
    names = [_name(column["name"]) for column in table["columns"]]
    # By number: two columns may have the same name. As Series: of an array of objects pandas 3 makes text where it can.
    frame = api.DataFrame({i: _series(column) for i, column in enumerate(table["columns"])}, index=None if names else index)
    frame.index = index
    levels = names and all(isinstance(name, tuple) for name in names)
    frame.columns = api.MultiIndex.from_tuples(names) if levels else api.Index(names, tupleize_cols=False) if names else frame.columns
    unsure = [name for name, column in zip(names, table["columns"])
              if str(column["dtype"]).lower().startswith(("float", "complex")) and None in column["values"]]
    frame.attrs["sandal"] = {"shape": table["shape"], "rows": table["rows"], "nan_or_inf": unsure}
    return cast("pd.DataFrame", frame)
