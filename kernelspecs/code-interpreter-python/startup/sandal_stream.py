"""The kernel's stdout and stderr, by ipykernel's trait IPKernelApp.outstream_class.

What subprocesses and C code write to descriptors 1 and 2 is captured by a thread of OutStream that
decodes every read by itself: a character cut in two is damaged (ipykernel 7), or ends the thread, and
with it the cell that waits for room in the pipe (ipykernel before 6.24). This one decodes the stream
as a whole, and goes on after whatever may happen to one piece. It does not copy what it captures to
the original descriptor either: the output of a cell belongs to the cell, not to the kernel's log.

OutStream sends what was printed some tenths of a second later. Until it has, the text stands in
memory that outlives the process too, so that it is kept however the process ends (_LastWords).

The kernel flushes both streams up to three times a cell, and each flush waits for IOPub's thread. Where
that thread was given nothing since somebody waited for it, there is nothing to wait for (_Queue).
"""

import atexit
import codecs
import fcntl
import functools
import mmap
import os
import select
import struct
import sys
import termios
import threading
import time

import zmq
from ipykernel.iostream import OutStream as _OutStream

_CHUNK = 65536
_PATIENCE_MS = 200
_CAPTURE_S = 0.1


def _encoded_length(string):
    """In UTF-8; a print of 100 MB is not encoded as a whole for that."""
    if string.isascii():
        return len(string)
    pieces = (string[at : at + _CHUNK] for at in range(0, len(string), _CHUNK))
    return sum(len(piece.encode("utf-8", "replace")) for piece in pieces)


class _LastWords:
    """The text of one stream that was not sent yet, in the memory file that the gateway reads after
    the end (its layout: gateway/sandbox/last_words.h). Its oldest part is kept where there is no room
    for all, the rest is counted."""

    FIRST = 4096
    CAP = 256 * 1024
    ENV = "SANDAL_LAST_WORDS"
    _memory = None
    _free = {}

    @classmethod
    def open(cls):
        try:
            fd = int(os.environ.pop(cls.ENV))
            cls._memory = memoryview(mmap.mmap(fd, cls.FIRST + 2 * cls.CAP))
            os.close(fd)
            cls._free = {"stdout": 0, "stderr": 1}
        except (KeyError, ValueError, OSError):
            pass  # not started by Sandal

    @classmethod
    def take(cls, name):
        index = cls._free.pop(name, None)
        return None if index is None else cls(index)

    def __init__(self, index):
        begin = self.FIRST + index * self.CAP
        self._text = self._memory[begin : begin + self.CAP]
        self._span = self._memory[index * 16 : index * 16 + 8].cast("Q")  # begin and end, one store
        self._lost = self._memory[index * 16 + 8 : index * 16 + 16].cast("Q")
        self._begin = self._end = self._missing = 0
        self._flying = self._flying_missing = 0  # of these: on their way
        self._taken = (0, 0)
        self.hurried = False

    def add(self, string):
        """The caller has the stream's lock, here and below."""
        if self._missing or len(string) > self.CAP - self._end:
            return self._add_part(string)
        data = string.encode("utf-8", "replace")
        end = self._end + len(data)
        if end > self.CAP:
            return self._add_part(string)
        self._text[self._end : end] = data
        self._end = end
        self._span[0] = end << 32 | self._begin
        return None

    def _add_part(self, string):
        length = self._end - self._begin
        if length <= self._begin:  # what stands moves to the front, onto bytes that nobody reads
            self._text[:length] = self._text[self._begin : self._end]
            self._begin, self._end = 0, length
            self._span[0] = length << 32
        room = 0 if self._missing else self.CAP - self._end
        data = string[:room].encode("utf-8", "replace")
        part = data if len(data) <= room else data[:room].decode("utf-8", "ignore").encode()
        end = self._end + len(part)
        self._text[self._end : end] = part
        self._missing += _encoded_length(string) - len(part)
        self._lost[0] = self._missing
        self._end = end
        self._span[0] = end << 32 | self._begin

    def crowded(self):
        # Not much sooner: what is on its way when the process dies is lost while the gateway is too busy to read.
        return self._end - self._begin - self._flying > self.CAP * 3 // 4

    def mark(self):
        """All that stands here is about to be sent."""
        length, missing = self._end - self._begin, self._missing
        more = (length - self._flying, missing - self._flying_missing)
        self._taken = (self._taken[0] + more[0], self._taken[1] + more[1])
        self._flying, self._flying_missing = length, missing
        self.hurried = False

    def marked(self):
        taken, self._taken = self._taken, (0, 0)
        return taken

    def drop(self, length, missing):
        """The oldest part was sent."""
        self._flying -= length
        self._flying_missing -= missing
        self._missing -= missing
        self._lost[0] = self._missing
        self._begin += length
        if self._begin == self._end:
            self._begin = self._end = 0
        self._span[0] = self._end << 32 | self._begin


class _Wire:
    """Waits until what was handed to ZeroMQ has been written to its sockets: its thread works off in
    order what it is given, so the echo of a later message proves it. Only the thread of IOPub waits."""

    PATIENCE_MS = 1000

    def __init__(self, pub_thread):
        self._pub_thread = pub_thread
        self._pair = None
        self._closed = False
        self._pid = os.getpid()
        atexit.register(self._at_exit)  # before ipykernel waits for the end of all sockets
        pub_thread.schedule(self.settle)  # the first one takes long: the pair has to meet

    def settle(self):
        if self._closed or threading.current_thread() is not self._pub_thread.thread:
            return
        try:
            if self._pair is None:
                context = self._pub_thread.socket.context
                self._pair = [context.socket(zmq.PAIR), context.socket(zmq.PAIR)]
                name = f"ipc://@sandal-{os.urandom(12).hex()}"
                for socket, join in zip(self._pair, ("bind", "connect")):
                    socket.linger = 0
                    getattr(socket, join)(name)
            self._pair[1].send(b"", zmq.NOBLOCK)
            if self._pair[0].poll(self.PATIENCE_MS):
                self._pair[0].recv(zmq.NOBLOCK)
                return
        except Exception:
            pass  # ZeroMQ is at its end, or has no descriptor left
        self._close()

    def _close(self):
        self._closed = True
        for socket in self._pair or ():
            socket.close(0)
        self._pair = None

    def _at_exit(self):
        if os.getpid() != self._pid or self._closed:
            return
        closed = threading.Event()
        self._pub_thread.schedule(lambda: (self._close(), closed.set()))
        closed.wait(1)


class _Queue:
    """What IOPub's thread is given to do, in order; knows whether somebody waited for all of it."""

    @classmethod
    def of(cls, pub_thread):
        queue = getattr(pub_thread.schedule, "__self__", None)
        return queue if isinstance(queue, cls) else cls(pub_thread)

    def __init__(self, pub_thread):
        self._give = pub_thread.schedule
        self._waited = None  # the last wait, as long as nothing was given after it
        pub_thread.schedule = self.schedule

    def schedule(self, step):
        self._give(step)
        self._waited = None  # after: a wait that begins in between comes after the step

    def idle(self):
        """All that was given before this call is done."""
        waited = self._waited
        return waited is not None and waited.is_set()

    def wait(self, last, twice, timeout):
        """Until all that was given is done, and `last` after it; twice: what that gave in its turn too. False: it takes
        longer than `timeout` seconds."""
        done = threading.Event()
        self._waited = done  # before: what is given from here on may come after it

        def end():
            last()
            done.set()

        self._give(functools.partial(self._give, end) if twice else end)
        return done.wait(timeout)


class OutStream(_OutStream):
    _words = None
    _wire = None
    _queue = None
    _unsettled = False  # of all streams: something was sent since the wire was asked
    _capturing = False  # a piece of the pipe is on its way into the buffer
    _written = _given = 0  # writes into the buffer, and those of them whose messages IOPub's thread was given

    def __init__(self, session, pub_thread, name, *args, **kwargs):
        self._words = _LastWords.take(name)
        if self._words is not None and OutStream._wire is None:
            OutStream._wire = _Wire(pub_thread)
        self._queue = _Queue.of(pub_thread)
        super().__init__(session, pub_thread, name, *args, **kwargs)

    def write(self, string):
        words, pub_thread = self._words, self.pub_thread
        if not self._is_master_process():
            return super().write(string)
        hurry = False
        with self._buffer_lock:
            written = super().write(string)
            self._written += 1
            if words is not None:
                words.add(string)
                hurry = words.crowded() and not words.hurried
                words.hurried = words.hurried or hurry
        if hurry:
            pub_thread.schedule(self._flush)
        return written

    def flush(self):
        """Returns when all is written to the socket: a process that dies then has told it."""
        pub_thread = self.pub_thread
        thread = pub_thread.thread if pub_thread and self._is_master_process() else None
        if thread is None or threading.current_thread() is thread:
            super().flush()
            return
        self._wait_for_capture()
        if not thread.is_alive():
            super().flush()
            return
        waiting = self._written != self._given
        if waiting:
            pub_thread.schedule(self._flush)
        elif self._queue.idle():
            return
        if not self._queue.wait(self._settle, waiting, self.flush_timeout):
            print("flush timed out", file=sys.__stderr__)

    @staticmethod
    def _settle():
        if OutStream._unsettled:
            OutStream._unsettled = False
            OutStream._wire.settle()

    def _wait_for_capture(self):
        """What a subprocess wrote before it ended is output of this cell: ipykernel flushes at a cell's end, and the thread
        that reads the pipe may not have had its turn. One that goes on writing is not waited for."""
        end = time.monotonic() + _CAPTURE_S
        while self._fid_pending() and time.monotonic() < end:
            time.sleep(0.0005)

    def _fid_pending(self):
        fid = getattr(self, "_fid", None)
        if fid is None or threading.current_thread() is self.watch_fd_thread:
            return False
        try:
            waiting = struct.unpack("i", fcntl.ioctl(fid, termios.FIONREAD, b"\0\0\0\0"))[0]
        except OSError:
            return False
        return waiting > 0 or self._capturing

    def _flush(self):
        if not self._is_master_process():
            super()._flush()
            return
        with self._buffer_lock:
            written = self._written
        try:
            super()._flush()
        finally:
            self._give_sent()
            self._given = written

    def _give_sent(self):
        """The messages are in the thread's queue, so what is done after them goes there now."""
        if self._words is None:
            return
        with self._buffer_lock:
            taken = self._words.marked()
        if any(taken):
            sent = functools.partial(self._sent, *taken)
            if self.pub_thread:
                self.pub_thread.schedule(sent)
            else:
                sent()

    def _sent(self, length, missing):
        if not self._is_master_process():
            return
        with self._buffer_lock:
            self._words.drop(length, missing)
        OutStream._unsettled = True

    def _rotate_buffer(self):  # ipykernel 6
        return self._rotate(super()._rotate_buffer)

    def _rotate_buffers(self):  # ipykernel 7
        return self._rotate(super()._rotate_buffers)

    def _rotate(self, rotate):
        with self._buffer_lock:
            if self._words is not None and self._is_master_process():
                self._words.mark()
            return rotate()

    def _watch_pipe_fd(self):
        if self._fid is None:
            return
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        poller = select.poll()
        poller.register(self._fid, select.POLLIN)
        while True:
            half = bool(decoder.getstate()[0])
            self._capturing = False
            ready = poller.poll(_PATIENCE_MS if half else None)
            self._capturing = True  # before the pipe is emptied, so that flush sees the one or the other
            if not ready:
                text = decoder.decode(b"", final=True)
            else:
                try:
                    data = os.read(self._fid, _CHUNK)
                except OSError:
                    break
                if not data or not self._should_watch:
                    break
                text = decoder.decode(data)
            try:
                if text:
                    self.write(text)
            except Exception:
                # The stream is closed, or user code stands in its way: the pipe is drained even so,
                # for whoever writes to it must never block.
                pass
        self._capturing = False


_LastWords.open()
