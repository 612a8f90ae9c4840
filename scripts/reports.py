"""What the reports of meson and pytest say, test by test, and which of the failures are unsteady.

A test that failed in its stage and then passes alone, each time of REPEATS, counts as passed and is named as unsteady.
"""

import collections
import json
import pathlib
import re
import xml.etree.ElementTree

REPEATS = 2
# More failures in one stage are no unsteadiness but a fault.
MOST_REPEATED = 5

# What no second run takes back, beside a signal and a time that was up: reports of sanitizers, and signals as cmocka
# tells them.
PROOF = re.compile(r"ERROR: \w+Sanitizer|: runtime error: |Test failed with exception")

# name: what runs it alone, or "" when it cannot be repeated; label: for people; counts are those of its cases;
# skips: which cases were skipped, or why; text: what it wrote, where the stage's log has not all of it.
Test = collections.namedtuple("Test", "name label passed failed skipped skips text", defaults=((), ""))


def of_meson(path):
    """A test program counts by its own test cases."""
    tests = []
    for line in path.read_text(encoding="utf-8").splitlines():
        test = json.loads(line)
        text = (test.get("stdout") or "") + (test.get("stderr") or "")
        passed, failed, skipped = (
            sum(map(int, re.findall(rf"\[  {word}\] (\d+) test\(s\)", text))) for word in ("PASSED  ", "FAILED  ", "SKIPPED ")
        )
        if test["result"] == "SKIP":
            passed, failed, skipped = 0, 0, 1
        elif test["result"] in ("OK", "EXPECTEDFAIL"):
            passed, failed = max(1, passed), 0
        else:
            failed = max(1, failed)
        name = test["name"].split(" / ", 1)[-1]
        bad = sorted(set(re.findall(r"\[  FAILED  \] (\w+)$", text, re.M)))
        label = ": ".join([name, *([", ".join(bad)] if bad else [])])
        skips = tuple(re.findall(r"\[  SKIPPED \] (\w+)$", text, re.M))
        proven = PROOF.search(text) or test.get("returncode", 0) < 0 or test["result"] == "TIMEOUT"
        tests.append(Test("" if proven else name, label, passed, failed, skipped, skips, text))
    return tests


def node_id(root, classname, name):
    """What pytest takes as its argument, of what it writes into its report: module and class are one word there."""
    parts = classname.split(".")
    for n in range(len(parts), 0, -1):
        file = pathlib.PurePath(*parts[:n]).with_suffix(".py")
        if (root / file).is_file():
            return "::".join([str(file), *parts[n:], name])
    return ""


def of_pytest(path, root):
    """Each test once, however many of its steps failed."""
    found = {}
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        found.setdefault((case.get("classname"), case.get("name")), []).extend(case)
    tests = []
    for (classname, name), steps in found.items():
        bad = [step for step in steps if step.tag in ("failure", "error")]
        skips = tuple(step.get("message") or "no reason given" for step in steps if step.tag == "skipped")
        node = node_id(root, classname, name) if classname else ""
        label = node or f"{classname} {name}".strip()
        # What tests leave behind together shows with the last of them, and not when that one runs alone.
        left = any((step.get("message") or "").startswith("failed on teardown") for step in bad)
        counts = (0, 1, 0) if bad else (0, 0, 1) if skips else (1, 0, 0)
        tests.append(Test("" if left else node, label, *counts, () if bad else skips))
    return tests


def passes_alone(name, again):
    """What its last run alone came to, or None when one of them did not pass."""
    for _ in range(REPEATS):
        tests = again(name)
        if len(tests) != 1 or tests[0].failed or not tests[0].passed:
            return None
    return tests[0]


def settle(tests, again):
    """(the tests, with the counts that the unsteady ones have alone; labels of the unsteady ones; a remark or "").
    `again` runs the test of that name alone and returns what its report says."""
    failed = sum(1 for test in tests if test.failed)
    if failed > MOST_REPEATED:
        return tests, [], f"{failed} tests failed, too many to be unsteady: none was repeated"
    settled, unsteady = [], []
    for test in tests:
        alone = passes_alone(test.name, again) if test.failed and test.name else None
        if alone:
            unsteady.append(test.label)
        settled.append(alone or test)
    return settled, unsteady, ""
