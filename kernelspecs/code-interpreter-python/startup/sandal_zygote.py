"""The parent of forked kernels: `python -m sandal_zygote MODULE ...` imports what a kernel needs and these modules, and then
forks a kernel into another sandbox for each order that comes to /run/sandal/zygote. What that takes is done by a library
of the daemon's (gateway/sandbox/zygote/); here is what Python needs around it.

It must have one thread (OpenBLAS ends its own before a fork, and starts them in the children when they are wanted), and
nothing in it may be a secret or random: its children share all of it.
"""

import ctypes
import gc
import importlib
import os
import sys

_LIBRARY = "/.sandal/sandal-zygote.so"
_SOCKET = "/run/sandal/zygote"
_KERNEL = ("ipykernel.kernelapp", "ipykernel.ipkernel", "ipykernel.zmqshell", "IPython")
# What those import when they start, or at the first cell; not all versions have all of it.
_LATER = (
    "IPython.core.completerlib", "IPython.core.debugger", "IPython.core.logger", "IPython.core.oinspect",
    "IPython.core.pylabtools", "IPython.extensions.storemagic", "email.parser", "encodings.idna", "faulthandler",
    "ipykernel.debugger", "jedi", "runpy", "sqlite3", "stringprep", "tornado.gen", "tornado.locks",
    "tornado.platform.asyncio", "tornado.queues",
)
_WITH = {  # what a first figure and table import; but for matplotlib_inline, which wants a shell when it is loaded
    "matplotlib": ("matplotlib.backends.backend_agg",),
    "PIL": ("PIL.BmpImagePlugin", "PIL.GifImagePlugin", "PIL.JpegImagePlugin", "PIL.PngImagePlugin", "PIL.PpmImagePlugin"),
    "pandas": ("pandas.io.formats.html", "pandas.io.formats.string"),
}
_BACKEND = "module://matplotlib_inline.backend_inline"


def _load(names, needed):
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            if needed:
                raise


def _load_all(names):
    _load(_KERNEL, True)
    _load(_LATER, False)
    ours = sorted(os.listdir(os.path.dirname(os.path.abspath(__file__))))
    _load((name[:-3] for name in ours if name.endswith(".py") and name != "sandal_zygote.py"), False)
    _load(names, False)
    for module, more in _WITH.items():
        _load(more if module in sys.modules else (), False)


def _serve():
    """Returns in the children alone, with argv and env."""
    lib = ctypes.PyDLL(_LIBRARY)  # the interpreter's lock is kept: nobody else wants it, and a child could not get it
    lib.sandal_zygote_arg.restype = lib.sandal_zygote_env.restype = ctypes.c_char_p
    lib.sandal_zygote_arg.argtypes = lib.sandal_zygote_env.argtypes = (ctypes.c_void_p, ctypes.c_uint)
    lib.sandal_zygote_serve.argtypes = (ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p))
    forked = ctypes.c_void_p()
    ctypes.pythonapi.PyOS_BeforeFork()  # once: what it locks nobody asks for in here
    failed = lib.sandal_zygote_serve(_SOCKET.encode(), ctypes.byref(forked))
    if failed:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
        raise OSError(-failed, os.strerror(-failed), _SOCKET)
    ctypes.pythonapi.PyOS_AfterFork_Child()

    def all_of(get):
        items = []
        while (item := get(forked, len(items))) is not None:
            items.append(os.fsdecode(item))
        return items

    return all_of(lib.sandal_zygote_arg), all_of(lib.sandal_zygote_env)


def _settle_matplotlib():
    """As in a kernel that imports it: what ipykernel says, chosen at the first figure."""
    matplotlib = sys.modules.get("matplotlib")
    if matplotlib is None:
        return
    dict.__setitem__(matplotlib.rcParams, "backend", os.environ.get("MPLBACKEND") or _BACKEND)
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot._backend_mod = None


def _settle(env):
    """The child becomes a process of its own. Python's random and OpenSSL see to themselves."""
    os.environ.clear()
    for item in env:
        name, _, value = item.partition("=")
        os.environ.setdefault(name, value)  # of two of a name the first counts, as for exec
    importlib.invalidate_caches()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    _settle_matplotlib()
    if "sandal_stream" in sys.modules:
        sys.modules["sandal_stream"]._LastWords.open()


def _run(argv):
    """argv: PROGRAM [OPTIONS] -m MODULE ARGUMENTS, as of a kernelspec."""
    import runpy

    at = argv.index("-m")
    sys.argv = argv[at + 1 :]
    sys.path[0] = os.getcwd()
    runpy.run_module(argv[at + 1], run_name="__main__", alter_sys=True)


def main():
    os.environ["MPLBACKEND"] = "agg"
    _load_all(sys.argv[1:])
    gc.collect()
    gc.freeze()  # or the first collection of each child would copy every page
    argv, env = _serve()
    _settle(env)
    _run(argv)


if __name__ == "__main__":
    main()
