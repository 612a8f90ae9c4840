"""The kernel outlives what a cell does to sys.stdout and sys.stderr; an IPython extension.

ipykernel flushes both after every cell, before displays and tracebacks, and before it says that it is
idle. With a stream that is None or closed, or whose flush() raises, that fails: the cell never ends,
or no later one runs. Here such a stream is replaced by the kernel's own after the cell, and stderr says
so; one that works (a StringIO, a Tee) stays where the user put it.
"""

import contextlib
import functools
import sys
import threading

from ipykernel import kernelbase

_NAMES = ("stdout", "stderr")


def _broken(stream):
    """Why nobody can flush it, or None. KeyboardInterrupt passes."""
    if stream is None:
        return "None"
    try:
        if getattr(stream, "closed", False) is True:
            return "closed"
        if not callable(getattr(stream, "write", None)):
            return "without write()"
        getattr(stream, "set_parent", None)
        stream.flush()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return "broken, its flush() raised " + type(error).__name__
    return None


class _Guard:
    def __init__(self, shell):
        self._shell = shell
        self._own = {name: getattr(sys, name) for name in _NAMES}
        self._threads = {name: stream.pub_thread for name, stream in self._own.items()}
        self._mended = {}  # within the cell, and not told yet
        for stream in self._own.values():
            stream.close = functools.partial(self._close, stream)

    @staticmethod
    def _close(stream):
        """OutStream.close() waits for the thread that reads the descriptor, before ipykernel 7 for ever."""
        if stream.pub_thread is not None:
            stream.flush()
            stream.pub_thread = None

    def _sound(self, name):
        """Is it the kernel's own, as it was? It needs no flush to find out."""
        stream, own = getattr(sys, name, None), self._own[name]
        state = vars(own)
        whole = state.get("pub_thread") is self._threads[name] and not {"flush", "write"} & state.keys()
        return stream is own and whole

    def _open(self, name):
        own = self._own[name]
        for changed in ("flush", "write", "set_parent"):
            vars(own).pop(changed, None)
        own.pub_thread = self._threads[name]
        own.set_parent(self._shell.get_parent())
        return own

    def _why(self, name):
        if self._sound(name):
            return None
        try:
            return _broken(getattr(sys, name, None))
        except KeyboardInterrupt:
            return "broken, its flush() was interrupted"

    def mend(self, *_):
        found, self._mended = self._mended, {}
        for name in _NAMES:
            why = self._why(name)
            if why:
                setattr(sys, name, self._open(name))
                found[name] = why
        if found:
            stream = self._own["stderr"]
            stream.pub_thread = self._threads["stderr"]
            for name, why in found.items():
                type(stream).write(stream, f"sandal: sys.{name} was {why}; it is the kernel's own stream again\n")

    def usable(self, name):
        """What the kernel may flush; code of a cell never runs in the thread that takes interrupts."""
        main = threading.current_thread() is threading.main_thread()
        return getattr(sys, name) if main and not self._why(name) else self._own[name]

    def begin(self, *_):
        """The kernel tells only sys.stdout and sys.stderr which cell runs; its own may be put back by the cell."""
        self.mend()
        for name, own in self._own.items():
            if getattr(sys, name) is not own:
                own.set_parent(self._shell.get_parent())

    def steady(self, method):
        """method, which flushes both streams, with the kernel's own in the place of a broken one."""

        @functools.wraps(method)
        def steady_method(*args, **kwargs):
            put_back = {}
            for name in _NAMES:
                stream = getattr(sys, name, None)
                why = None if self._sound(name) else _broken(stream)
                if why and stream is self._own[name]:
                    self._mended[name] = why
                elif why:
                    put_back[name] = stream
                if why:
                    setattr(sys, name, self._open(name))
            try:
                return method(*args, **kwargs)
            finally:
                for name, stream in put_back.items():
                    setattr(sys, name, stream)

        return steady_method


class _KernelSys:
    """sys, as ipykernel.kernelbase sees it."""

    def __init__(self, guard):
        self._guard = guard

    def __getattr__(self, name):
        return self._guard.usable(name) if name in _NAMES else getattr(sys, name)


def load_ipython_extension(shell):
    guard = _Guard(shell)
    kernelbase.sys = _KernelSys(guard)
    shell._showtraceback = guard.steady(shell._showtraceback)
    shell.displayhook.finish_displayhook = guard.steady(shell.displayhook.finish_displayhook)
    shell.display_pub._flush_streams = guard.steady(shell.display_pub._flush_streams)
    if hasattr(shell, "_tee"):
        # IPython 9 keeps a copy of all that cells print for as long as the kernel lives, for %notebook; and it
        # runs no cell while it cannot replace the write() of both streams.
        shell._tee = lambda channel: contextlib.nullcontext()
    shell.events.register("pre_execute", guard.begin)
    shell.events.register("post_execute", guard.mend)
    shell.events.register("post_run_cell", guard.mend)
