"""How the kernel writes JSON, by jupyter_client's trait Session.packer.

The stock packer turns NaN and infinities into the strings "nan" and "inf" with a warning on the cell's
stderr, loses a message that holds a lone surrogate (an error's reply too, so that its cell never ends),
and writes raw bytes that are no UTF-8 for what os.fsdecode() made. Here NaN and infinities are null, and
surrogates are escaped, so that every message is valid JSON in valid UTF-8 and none is lost.
"""

import json
import math

from jupyter_client.jsonutil import json_default


def _plain(obj):
    """A copy of obj in which every float has a JSON form; keys as json.dumps would write them."""
    if isinstance(obj, float):
        return obj if math.isfinite(obj) else None
    if isinstance(obj, dict):
        return {_key(k): _plain(v) for k, v in obj.items()}
    if isinstance(obj, (list, tuple)):
        return [_plain(v) for v in obj]
    if obj is None or isinstance(obj, (str, int)):
        return obj
    return _plain(json_default(obj))


def _key(key):
    if key is None or isinstance(key, (str, int)) or isinstance(key, float) and math.isfinite(key):
        return key
    return str(key)


def pack(obj):
    try:
        text = json.dumps(obj, default=json_default, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        obj = _plain(obj)
        text = json.dumps(obj, ensure_ascii=False, allow_nan=False)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(obj, default=json_default, allow_nan=False).encode("ascii")
