"""What Jupyter's clients need, by the ids that tests have in their names: GA of JupyterLab with --gateway-url, SV of clients of an existing
server, CF of connection files, WS of both protocols over WebSocket, ZQ of ZeroMQ, KQ of the kernels' habits."""

from __future__ import annotations

import re

REQUIREMENTS = {
    "GA-01": "the list of kernelspecs has name, spec and resources in each entry, and a default",
    "GA-02": "one kernelspec by its name; 404 where there is none",
    "GA-03": "logos of kernelspecs as bytes with their type",
    "GA-04": "a start by name, or by null for the default; of the client's environment what the allow-list names",
    "GA-05": "all kernels are listed, without any option for it",
    "GA-06": "one kernel by its id; 404 when it has gone",
    "GA-07": "DELETE of a kernel is 204",
    "GA-08": "interrupt is 204",
    "GA-09": "restart is 200 with the model, and a new session of the kernel",
    "GA-10": "channels without a subprotocol and without session_id speak the default protocol",
    "GA-11": "last_activity has a fraction and a Z, whole seconds too",
    "GA-12": "errors are objects with message and reason",
    "GA-13": "an empty credential is none, not a bad request",
    "GA-14": "the base path is the same in lower case, and holds neither http nor /user/",
    "GA-15": "no frame over 10 MiB to a server that is a client",
    "GA-16": "no binary frame to such a server; binary sent as text is taken",
    "GA-17": "a live context that was attached to outlives JupyterLab",
    "GA-18": "after a crash of the gateway the same ids are listed at once",
    "GA-19": "frames of the default protocol have msg_id and msg_type at their top; the key can be in the WebSocket's URL",
    "SV-01": "the version, without a key",
    "SV-02": "the status, with counts and times",
    "SV-03": "who the key is, and what it may",
    "SV-04": "the list of kernels",
    "SV-05": "a start is 201 with Location, by an id of the client's too; a body may be empty",
    "SV-06": "one kernel, or 404 in Jupyter's words",
    "SV-07": "DELETE of a kernel is 204, or 404",
    "SV-08": "interrupt is 204",
    "SV-09": "restart is 200 with the model",
    "SV-10": "kernelspecs as JupyterLab's library checks them",
    "SV-11": "one kernelspec and its files, or 404",
    "SV-12": "the list of sessions, each with its kernel",
    "SV-13": "a session is 201, the path's own when there is one; 400 for missing fields, 501 for an unknown kernelspec",
    "SV-14": "one session, or 404",
    "SV-15": "PATCH of a session: its path, name, type and kernel",
    "SV-16": "DELETE of a session is 204, and 410 when its kernel has gone",
    "SV-17": "channels with session_id, and the key in the query",
    "SV-18": "OPTIONS without a key",
    "SV-19": "queries that mean nothing are passed over",
    "SV-20": "503 while not all is known, never a short list",
    "SV-21": "the subprotocol is chosen when it is offered, and never else",
    "SV-22": "a kernel_info_reply with status ok, from each kernel",
    "SV-23": "header.session is one for each incarnation of a kernel",
    "SV-24": "no message that JupyterLab throws away: strings, objects, the five states",
    "SV-25": "close codes after which clients come back, and 1000 when there is nothing to come back to",
    "SV-26": "what VS Code asks first: /tree is there, /hub/api is not",
    "SV-27": "contexts are listed as sessions",
    "CF-01": "jupyter console, jupyter run, jupyter_client and nbclient by a connection file",
    "CF-02": "connection files as external kernels of a jupyter_server",
    "CF-03": "the file is of sockets of the gateway with a key of their own, checked, bounded and revocable",
    "WS-01": "frames of v1 that are none close their socket alone",
    "WS-02": "empty buffers are buffers",
    "WS-03": "frames are bounded",
    "WS-04": "JSON that is none, and wrong shapes, harm neither kernel nor other sockets",
    "WS-05": "offsets of the default protocol are taken literally",
    "WS-06": "clients of both protocols at one context see one sequence",
    "WS-07": "both protocols are there",
    "ZQ-01": "the first cell of a kernel loses no output",
    "ZQ-02": "a request is done when its reply and its idle are there, in whichever order",
    "ZQ-03": "a request that its kernel does not end is ended, with the reason",
    "ZQ-04": "output after idle keeps its parent, and is no other run's",
    "ZQ-05": "a client that does not read costs the others nothing",
    "ZQ-06": "parallel starts have each their own environment",
    "KQ-01": "input that nobody takes does not hold the kernel up",
    "KQ-02": "nothing of a client's reaches a kernel unchecked",
    "KQ-03": "idle without a reply is an end",
    "KQ-04": "silence of a kernel is answered for",
    "KQ-05": "what each kernel says for each kind of output becomes typed results",
}

IDS = re.compile(r"(?<![a-z])(ga|sv|cf|ws|zq|kq)((?:_(?:to_)?\d\d(?!\d))+)")


def ids_in(name: str) -> set[str]:
    """Of a test's name: test_ga_01_03_… has two, test_ga_01_to_03_… three, test_ga_01_sv_10_… one of each."""
    found = set()
    for family, numbers in IDS.findall(name):
        last = 0
        for to, number in re.findall(r"_(to_)?(\d\d)", numbers):
            first, last = (last + 1 if to else int(number)), int(number)
            found |= {f"{family.upper()}-{n:02}" for n in range(first, last + 1)}
    return found
