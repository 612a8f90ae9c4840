#!/usr/bin/python3
"""What Sandal does, in one minute: called by scripts/demo against a daemon that it started.

Over the wine data set that scikit-learn ships: a DataFrame, a plot saved to a file, streamed output and a structured error,
all from one stock ipykernel. Standard library only.

usage: demo.py URL KEYFILE OUTPUT.png
"""

import base64
import http.client
import json
import pathlib
import sys
import time
import urllib.parse

LOAD = """
import pandas as pd
from sklearn.datasets import load_wine
data = load_wine(as_frame=True)
wine = data.frame.assign(cultivar=data.target.map(lambda i: f"cultivar {i + 1}"))
wine.groupby("cultivar")[["alcohol", "color_intensity", "proline"]].mean().round(2)
"""

PLOT = """
import matplotlib.pyplot as plt
fig, ax = plt.subplots(figsize=(7, 4.5))
for name, rows in wine.groupby("cultivar"):
    ax.scatter(rows["alcohol"], rows["color_intensity"], label=name, alpha=0.7)
ax.set(xlabel="alcohol (%)", ylabel="color intensity", title="178 Italian wines")
ax.legend()
plt.show()
"""

STREAM = """
import time
for name, rows in wine.groupby("cultivar"):
    print(f"{name}: {len(rows)} wines, strongest {rows['alcohol'].max()} %", flush=True)
    time.sleep(0.6)
"""

ERROR = "wine['vintage'].mean()"


class Gateway:
    def __init__(self, url: str, key: str):
        parts = urllib.parse.urlsplit(url)
        self.http = http.client.HTTPConnection(parts.hostname, parts.port, timeout=120)
        self.headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def call(self, method: str, path: str, body: object = None) -> http.client.HTTPResponse:
        self.http.request(method, path, json.dumps(body) if body is not None else None, self.headers)
        answer = self.http.getresponse()
        if answer.status >= 400:
            error = json.load(answer)["error"]
            sys.exit(f"{method} {path}: {answer.status} {error['code']}: {error['message']}")
        return answer

    def json(self, method: str, path: str, body: object = None) -> dict:
        return json.load(self.call(method, path, body))

    def events(self, path: str, code: str):
        answer = self.call("POST", path, {"code": code, "stream": True})
        for line in answer:
            if line.strip():
                yield json.loads(line)


def show(code: str) -> None:
    print("".join(f"  >>> {line}\n" for line in code.strip().splitlines()), end="")


def main() -> None:
    url, keyfile, picture = sys.argv[1:]
    gateway = Gateway(url, pathlib.Path(keyfile).read_text().strip())

    start = time.monotonic()
    sandbox = gateway.json("POST", "/v1/sandboxes", {"template": "code-interpreter-python"})
    print(f"sandbox {sandbox['id']}, isolation {sandbox['isolation']['kind']}, "
          f"ready in {time.monotonic() - start:.2f} s\n")
    run = f"/v1/sandboxes/{sandbox['id']}/run_code"

    print("1. A DataFrame comes back as text for people and models, and as HTML for pages:")
    show(LOAD)
    frame = gateway.json("POST", run, {"code": LOAD})
    print(frame["text"])
    print(f"  [type {frame['results'][0]['type']}, formats {', '.join(frame['results'][0]['formats'])}, "
          f"{frame['usage']['wall_ms']} ms]\n")

    print("2. A plot comes back as a PNG:")
    show(PLOT)
    plot = gateway.json("POST", run, {"code": PLOT})
    png = base64.b64decode(next(r["data"] for r in plot["results"] if r["type"] == "image/png"))
    pathlib.Path(picture).write_bytes(png)
    print(f"  [{len(png)} bytes, saved to {picture}]\n")

    print("3. Output is streamed while the code runs:")
    show(STREAM)
    start = time.monotonic()
    for event in gateway.events(run, STREAM):
        if event["type"] == "stdout":
            for line in event["text"].splitlines():
                print(f"  +{time.monotonic() - start:.1f} s  {line}", flush=True)

    print("\n4. An error is data:")
    show(ERROR)
    error = gateway.json("POST", run, {"code": ERROR})["error"]
    print(f"  name {error['name']}, message {error['message']}, {len(error['traceback'])} lines of traceback, "
          f"state {error['state']}")
    print("  and the variables are still there: len(wine) =",
          gateway.json("POST", run, {"code": "len(wine)"})["text"])
    gateway.call("DELETE", f"/v1/sandboxes/{sandbox['id']}").read()


if __name__ == "__main__":
    main()
