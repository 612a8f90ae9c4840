"""The python template: what its own start-up files and packages bring beyond the stock kernel (golden/python.yaml has that)."""

from __future__ import annotations

from typing import Any, Iterator

import pytest
from harness.client import Client, Sandbox

TEMPLATE = "code-interpreter-python"


@pytest.fixture(scope="module")
def python(client: Client) -> Iterator[Sandbox]:
    with client.sandbox(template=TEMPLATE) as sb:
        yield sb


@pytest.fixture
def own(client: Client) -> Iterator[Sandbox]:
    with client.sandbox(template=TEMPLATE) as sb:
        yield sb


# ---- fonts ----

GREETING = "Hello 你好 한국어 日本語 😀 ❤️ مرحبا שלום"


@pytest.mark.parametrize("style", ["", "import seaborn; seaborn.set_theme()", "plt.rcParams['font.family'] = 'serif'", "plt.rcdefaults()"],
                         ids=["as it is", "seaborn", "serif", "defaults"])
def test_figures_have_glyphs_of_all_scripts(python: Sandbox, style: str) -> None:
    """No warning, and no two of these characters look alike, as boxes for missing glyphs would."""
    got = python.run("import matplotlib.pyplot as plt, numpy as np, warnings\n" + style + "\n"
                     "def pixels(text):\n"
                     "    fig = plt.figure(figsize=(1, 1), dpi=50)\n"
                     "    fig.text(0.2, 0.3, text, fontsize=24)\n"
                     "    fig.canvas.draw()\n"
                     "    seen = np.asarray(fig.canvas.buffer_rgba()).tobytes()\n"
                     "    plt.close(fig)\n"
                     "    return seen\n"
                     f"text = {GREETING!r}\n"
                     "marks = [c for c in dict.fromkeys(text) if c.strip() and c != '\\ufe0f']\n"
                     "with warnings.catch_warnings(record=True) as told:\n"
                     "    warnings.simplefilter('always')\n"
                     "    looks = {pixels(c) for c in marks}\n"
                     "missing = len(told)\n"
                     "with warnings.catch_warnings(record=True) as told:\n"
                     "    warnings.simplefilter('always')\n"
                     "    box = pixels('\\U000f0000')\n"
                     "(missing, len(marks) - len(looks), box in looks, [str(w.message)[:5] for w in told])")
    assert (got["text"], got["stderr"]) == ("(0, 0, False, ['Glyph'])", "")
    shown = python.run(f"plt.title({GREETING!r}); plt.show()")
    assert (shown["results"][0]["type"], shown["stderr"]) == ("image/png", "")


def test_programs_have_the_fonts_too(python: Sandbox) -> None:
    code = f"import matplotlib.pyplot as p; p.title({GREETING!r}); p.savefig('x.png'); p.savefig('x.pdf'); p.savefig('x.svg')"
    got = python.post("/exec", {"cmd": ["python", "-c", code]})
    assert (got["exit_code"], got["stdout"], got["stderr"]) == (0, "", "")


# ---- pip ----

WHEEL = """
import zipfile
def wheel(version):
    path = f"sandal_test_pip-{version}-py3-none-any.whl"
    info = f"sandal_test_pip-{version}.dist-info/"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("sandal_test_pip.py", f"version = {version}")
        z.writestr(info + "METADATA", f"Metadata-Version: 2.1\\nName: sandal_test_pip\\nVersion: {version}\\n")
        z.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        z.writestr(info + "RECORD", f"sandal_test_pip.py,,\\n{info}METADATA,,\\n{info}WHEEL,,\\n{info}RECORD,,\\n")
wheel(1); wheel(2)
"""


def test_pip_magic_asks_for_a_restart_only_where_one_is_needed(own: Sandbox) -> None:
    own.run(WHEEL)
    if own.run("import os, sysconfig; os.access(sysconfig.get_path('purelib'), os.W_OK)")["text"] != "True":
        pytest.skip("this launcher has the template's tree read-only")
    first = own.run("%pip install --no-index sandal_test_pip-1-py3-none-any.whl")
    assert "Successfully installed" in first["stdout"] and "restart" not in first["stdout"] and "WARNING" not in first["stdout"], first
    assert own.run("import sandal_test_pip as p; p.version")["text"] == "1"
    second = own.run("%pip install --no-index sandal_test_pip-2-py3-none-any.whl")
    assert "Note: restart the kernel to use what has changed; it has imported sandal_test_pip already." in second["stdout"], second


def test_pip_is_quiet_about_itself(own: Sandbox) -> None:
    got = own.post("/exec", {"cmd": "pip cache dir && pip list --format freeze"})
    assert got["exit_code"] == 0 and got["stderr"] == "", got
    cache = got["stdout"].split("\n")[0]
    home = own.post("/exec", {"cmd": "echo $HOME"})["stdout"].strip()
    assert cache == f"{home}/.cache/pip"
    assert own.post("/exec", {"cmd": f"mkdir -p {cache} && test -O {cache} && test -w {cache}"})["exit_code"] == 0
