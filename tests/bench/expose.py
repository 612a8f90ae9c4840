#!/usr/bin/python3
"""The proxy for exposed ports beside the same server asked directly, by wrk in one run, rounds taken in turns. Without
isolation, so that the server can be asked directly at all.

usage: tests/bench/expose.py [--build build] [--rounds 3] [--seconds 2]     needs wrk and nginx

Four cases, each asked both ways in each round: 48 seconds of wrk by default, a line on stderr for each, JSON on stdout.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
os.environ.setdefault("SANDAL_TEST_ISOLATION", "none")
import harness.daemon  # noqa: E402
from harness.client import Client  # noqa: E402
from harness.daemon import Daemon, rss_bytes, wait_for  # noqa: E402

MIB = 1 << 20
TARGET = 0.7  # of what the server does when it is asked directly
NGINX = """daemon off; pid nginx.pid; error_log stderr; worker_processes 1;
events {{ worker_connections 512; }}
http {{ access_log off; client_body_temp_path .; proxy_temp_path .; fastcgi_temp_path .; uwsgi_temp_path .; scgi_temp_path .;
keepalive_requests 100000000; server {{ listen 127.0.0.1:{port}; root www; }} }}
"""
PYTHON = """
import sys
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
class Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or head and body, which it writes apart, wait 40 ms for each other, and that is measured
    def log_message(self, *args):
        pass
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), lambda *a: Handler(*a, directory="www")).serve_forever()
"""


def wrk(url: str, seconds: int) -> tuple[float, float]:
    """Requests and MiB in a second."""
    text = subprocess.run(["wrk", "-t1", "-c32", "--timeout", "30s", f"-d{seconds}s", url], capture_output=True, text=True, check=True,
                          timeout=seconds + 60).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        raise RuntimeError(text)
    rate = re.search(r"Transfer/sec:\s+([\d.]+)([KMG]?)B", text)
    requests = re.search(r"Requests/sec:\s+([\d.]+)", text)
    assert rate and requests
    return float(requests[1]), float(rate[1]) * {"": 1 / MIB, "K": 1 / 1024, "M": 1, "G": 1024}[rate[2]]


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=2)
    args = parser.parse_args()
    if not shutil.which("wrk") or not os.path.exists("/usr/sbin/nginx"):
        sys.exit("wrk and nginx are needed: apt-get install wrk nginx-light")
    harness.daemon.BUILD = args.build
    base = 20000 + os.getpid() % 20000
    rows: dict[str, dict[str, list[tuple[float, float]]]] = {}
    with Daemon() as daemon:
        client = Client(daemon.url, daemon.key)
        with client.sandbox(template="base") as sb:
            for name, size in (("small", 612), ("big", MIB)):
                client.call("PUT", f"{sb.path}/fs/file", params={"path": f"www/{name}"}, content=bytes(size))
            client.call("PUT", f"{sb.path}/fs/file", params={"path": "nginx.conf"}, content=NGINX.format(port=base).encode())
            client.call("PUT", f"{sb.path}/fs/file", params={"path": "server.py"}, content=PYTHON.encode())
            sb.post("/exec", {"cmd": "/usr/sbin/nginx -p . -c $PWD/nginx.conf", "background": True}, expect=201)
            sb.post("/exec", {"cmd": ["python3", "server.py", str(base + 1)], "background": True}, expect=201)
            for i, server in enumerate(("nginx", "python")):
                exposed = sb.post("/expose", {"port": base + i})
                direct = f"http://127.0.0.1:{base + i}/"
                wait_for(lambda: answers(direct + "small"), 20)
                for n in range(args.rounds):
                    for file in ("small", "big"):
                        row = rows.setdefault(f"{server} {file}", {"direct": [], "proxy": []})
                        row["direct"].append(wrk(direct + file, args.seconds))
                        row["proxy"].append(wrk(exposed["path_url"] + file, args.seconds))
                        print(f"{server} {file}, round {n + 1} of {args.rounds}: {row['proxy'][-1][0]:.0f} of {row['direct'][-1][0]:.0f} requests "
                              f"a second ({row['proxy'][-1][0] / row['direct'][-1][0]:.0%})", file=sys.stderr, flush=True)
        rss = rss_bytes(daemon.gateway_pid())
    out: dict[str, Any] = {}
    for name, row in rows.items():
        out[name] = {who: {"requests_s": round(statistics.median(r for r, _ in got)),
                           "mib_s": round(statistics.median(m for _, m in got), 1)} for who, got in row.items()}
        out[name]["ratio"] = round(statistics.median(p / d for (p, _), (d, _) in zip(row["proxy"], row["direct"])), 2)
        out[name]["target"] = TARGET
    out["gateway_rss_mib"] = round(rss / MIB, 1)
    print(json.dumps(out, indent=2))


if __name__ == "__main__":
    main()
