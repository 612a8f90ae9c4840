"""Output of a thread goes to the cell that started it; an IPython extension, for ipykernel 7.

ipykernel 7 keeps the current cell in context variables, but a new thread begins with an empty context
and falls back on the latest cell. Here a thread, and a job of a thread pool, runs in a copy of the
context of whoever started it, as Python 3.14 can do by itself (sys.flags.thread_inherit_context).
"""

import contextvars
import functools
import sys
import threading
from concurrent.futures import ThreadPoolExecutor


def load_ipython_extension(shell):
    if getattr(sys.flags, "thread_inherit_context", 0):
        return
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

    @functools.wraps(start)
    def start_in_context(self):
        run, context = self.run, contextvars.copy_context()

        def run_in_context():
            try:
                context.run(run)
            finally:
                self.__dict__.pop("run", None)

        self.run = run_in_context
        try:
            start(self)
        except BaseException:
            self.__dict__.pop("run", None)
            raise

    @functools.wraps(submit)
    def submit_in_context(self, fn, /, *args, **kwargs):
        return submit(self, contextvars.copy_context().run, fn, *args, **kwargs)

    threading.Thread.start = start_in_context
    ThreadPoolExecutor.submit = submit_in_context
