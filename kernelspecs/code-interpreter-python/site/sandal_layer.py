"""Packages of the user's where the template's tree can't be written to: a virtual environment in HOME, the layer, lies over the
tree. pip runs in it (what the tree has is outside of its environment: it is covered, not removed), and each Python of the
tree looks there first. Run by sandal_layer.pth at every start of the tree's interpreter; SANDAL_PYTHON_LAYER is where.
"""

import errno
import os
import sys

_SITE = os.path.dirname(os.path.abspath(__file__))
_PACKAGES = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


def _closed():
    """Whether the tree is: access() alone knows nothing of Landlock. A file is opened for it only where the tree is no mount:
    an overlay that can be written would copy the file."""
    if not os.access(_SITE, os.W_OK):
        return True
    if os.path.ismount(sys.prefix):
        return False
    try:
        os.close(os.open(os.path.join(_SITE, "sandal_layer.pth"), os.O_WRONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
    return False


def _write(path, text):
    """Whole from its first moment: several may start at once."""
    part = f"{path}.{os.getpid()}"
    with open(part, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(part, path)


def _make(layer, packages):
    with open(os.path.join(sys.prefix, "pyvenv.cfg"), encoding="utf-8") as file:
        settings = file.read()
    os.makedirs(os.path.join(layer, "bin"), exist_ok=True)
    os.makedirs(packages, exist_ok=True)
    for name in ("python", "python3"):
        try:
            os.symlink(os.path.join(sys.prefix, "bin", name), os.path.join(layer, "bin", name))
        except FileExistsError:
            pass
    # For the layer's own Python, which pip runs in: the tree's has its packages already.
    tree = f"import sys, site; sys.prefix == {sys.prefix!r} or site.addsitedir({_SITE!r})\n"
    _write(os.path.join(packages, "sandal_tree.pth"), tree)
    _write(os.path.join(layer, "pyvenv.cfg"), settings)  # the last: with it the layer is whole


def _runs_pip():
    """`pip ...` or `python [OPTIONS] -m pip ...`."""
    words = iter(sys.orig_argv[1:])
    for word in words:
        if word in ("-X", "-W"):
            next(words, None)
        elif word == "-m":
            return next(words, None) == "pip"
        elif not word.startswith("-"):
            import re  # not paid for by each start

            return re.fullmatch(r"pip[0-9.]*", os.path.basename(word)) is not None
    return False


_entered = False  # the tree's .pth files are read again where a layer names the tree


def enter():
    global _entered
    if _entered:
        return
    _entered = True
    layer = os.environ.get("SANDAL_PYTHON_LAYER")
    if not layer or not _SITE.startswith(sys.prefix + os.sep) or not _closed():
        return
    packages = os.path.join(layer, _PACKAGES)
    try:
        if not os.path.exists(os.path.join(layer, "pyvenv.cfg")):
            _make(layer, packages)
    except OSError:
        return  # a full disk, say, keeps no kernel from its start
    if _runs_pip():
        program = os.path.join(layer, "bin", "python")
        os.execv(program, [program, *sys.orig_argv[1:]])
    import site

    sys.path.insert(sys.path.index(_SITE) if _SITE in sys.path else len(sys.path), packages)
    site.addsitedir(packages)
