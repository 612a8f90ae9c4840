// Starts the stock IJavaScript kernel and mends, from outside, what a gateway cannot live with:
// its session (the process that runs the cells) can die unnoticed, interrupts lose all state, the
// output of child processes is lost, output after a cell's end goes to the wrong cell, and requests
// of types that it does not know get no answer. No installed file is changed.
//
//   kernel.js [options of IJavaScript] CONNECTION_FILE
"use strict";
const fs = require("fs");
const os = require("os");
const path = require("path");
const childProcess = require("child_process");
const { createRequire } = require("module");

const ENDED_MAX = 256; // cells whose late output is still known as theirs
const FLUSH_MS = 40; // printed text waits for more so long
const FLUSH_BYTES = 65536;
const PIPE_BYTES = 65536;
const NOISE = "Waiting for the debugger to disconnect...\n"; // said at exit, for the interrupter's sake
const EXIT_MS = 50; // for what was said last to leave the sockets

const prefix = process.env.SANDAL_NODE_PREFIX;
const load = createRequire(path.join(prefix, "package.json"));

// ---- the session's process ----

// fd 1 and 2 of the session are pipes of ours, so that what child processes and native code write
// is seen; fd 4 wakes its interrupter. (IJavaScript gives it /dev/null.)
const spawn = childProcess.spawn;
childProcess.spawn = function (command, args, options) {
  if (Array.isArray(options?.stdio) && options.stdio[3] === "ipc") {
    options = { ...options, stdio: ["ignore", "pipe", "pipe", "ipc", "pipe"] };
  }
  return spawn.call(this, command, args, options);
};

const { Session } = load("nel");
// Terminating a callback (see interrupter.js) leaves what this check guards unbalanced, and it ends
// the process.
Session._args = ["--no-force-async-hooks-checks", ...Session._args];
const Kernel = load("jp-kernel");

// Reads what is in a pipe now, behind the back of the stream that watches it: both take whole
// pieces off the same pipe, in turn.
function readNow(stream) {
  const fd = stream?._handle?.fd;
  const pieces = [];
  const piece = Buffer.alloc(PIPE_BYTES);
  for (;;) {
    let n = 0;
    try {
      n = fd >= 0 ? fs.readSync(fd, piece) : 0;
    } catch {
      // EAGAIN: nothing there
    }
    if (n <= 0) {
      return Buffer.concat(pieces);
    }
    pieces.push(Buffer.from(piece.subarray(0, n)));
  }
}

// V8 says on the session's stderr that its heap is full, and ends the process by SIGABRT. `tail`: what was said last.
const TAIL_BYTES = 16384;
const HEAP_FULL = /^FATAL ERROR: (.*JavaScript heap out of memory)$/m;

function watchPipe(session, stream, name) {
  const decoder = new (require("string_decoder").StringDecoder)("utf8");
  const deliver = (bytes) => {
    const text = decoder.write(bytes).replace(NOISE, "");
    if (name === "onStderr") {
      session._sandalTail = ((session._sandalTail || "") + text).slice(-TAIL_BYTES);
    }
    const task = session._currentTask || session._lastTask;
    if (text && task?.[name]) {
      task[name](text);
    }
  };
  stream.on("data", deliver);
  return () => deliver(readNow(stream));
}

const onMessage = Session.prototype._onMessage;
Session.prototype._onMessage = function (message) {
  const late = message.id !== undefined && !this._contextTable[message.id] && this._sandalEnded?.get(message.id);
  if (late) {
    for (const [field, callback] of [["stdout", "onStdout"], ["stderr", "onStderr"]]) {
      if (message[field] !== undefined) {
        late[callback]?.(message[field]);
        return;
      }
    }
    if (message.display?.mime && message.display.display_id === undefined) {
      late.onDisplay?.(message.display);
      return;
    }
  }
  if (message.mime && message.end === false) {
    // $$.html(x, true): one of several, and the reply is still to come
    (this._contextTable[message.id] || late)?.onDisplay?.({ mime: message.mime });
    return;
  }
  if (message.end) {
    this._sandalDrain?.forEach((drain) => drain());
    const task = this._contextTable[message.id];
    if (task) {
      this._sandalEnded.set(message.id, task);
      if (this._sandalEnded.size > ENDED_MAX) {
        this._sandalEnded.delete(this._sandalEnded.keys().next().value);
      }
    }
  }
  onMessage.call(this, message);
};

// ---- printed text ----

// Adjacent text of one stream and cell goes out as one message.
function coalesced(send) {
  let name = "";
  let pieces = [];
  let bytes = 0;
  let timer = null;
  const flush = () => {
    clearTimeout(timer);
    timer = null;
    if (pieces.length) {
      const text = pieces.join("");
      pieces = [];
      bytes = 0;
      send(name, text);
    }
  };
  const add = (which, text) => {
    if (which !== name) {
      flush();
      name = which;
    }
    pieces.push(text);
    bytes += text.length;
    if (bytes >= FLUSH_BYTES) {
      flush();
    } else if (!timer) {
      timer = setTimeout(flush, FLUSH_MS);
    }
  };
  return { add, flush };
}

const execute = Session.prototype.execute;
Session.prototype.execute = function (code, callbacks) {
  if (!callbacks?.onStdout) {
    return execute.call(this, code, callbacks);
  }
  const out = coalesced((name, text) => callbacks[name](text));
  const wrapped = { ...callbacks };
  wrapped.onStdout = (text) => out.add("onStdout", text);
  wrapped.onStderr = (text) => out.add("onStderr", text);
  for (const name of ["onSuccess", "onError", "onDisplay", "onRequest", "afterRun"]) {
    wrapped[name] = (...args) => {
      out.flush();
      return callbacks[name](...args);
    };
  }
  execute.call(this, code, wrapped);
  const task = this._currentTask?.onStdout === wrapped.onStdout ? this._currentTask : this._tasks.at(-1);
  if (task) {
    task.flush = out.flush;
  }
};

// IJavaScript looks for the text before the cursor at the first place in the code that has it,
// counts UTF-16 where Jupyter counts code points, and names what is inherited twice twice.
const complete = Session.prototype.complete;
Session.prototype.complete = function (code, cursor, callbacks) {
  const before = Array.from(code).slice(0, cursor).join("");
  const end = Array.from(before).length;
  const onSuccess = ({ completion }) => {
    const list = [...new Set(completion.list)];
    const length = list.length > 0 ? Array.from(completion.matchedText).length : 0;
    callbacks.onSuccess({ completion: { ...completion, list, code, cursorPos: cursor, cursorStart: end - length, cursorEnd: end } });
  };
  complete.call(this, before, before.length, callbacks?.onSuccess ? { ...callbacks, onSuccess } : callbacks);
};

// ---- the kernel ----

// A cell of the gateway's own, which goes the way of the user's; its messages go nowhere.
const UNSEEN = "//sandal cell\n1 + 1";
const WARM_CELLS = 3; // until V8 has seen the way

const SILENT = /^__import__\('sandal_context'\)\.(enter|leave|settle|warm|variables)\((.*)\)$/s;

// What a gateway asks beside running code: a silent request with one user expression. It is run
// in the session like a cell, unseen: no count, no message but status and the reply.
function answerSilently(kernel, request, runCell) {
  const expressions = request.content.user_expressions || {};
  const [key, text] = Object.entries(expressions)[0] || [];
  const match = SILENT.exec(text || "");
  const reply = (values) => {
    request.respond(kernel.shellSocket, "execute_reply", {
      status: "ok", execution_count: kernel.executionCount, payload: [], user_expressions: values,
    }, {}, kernel.protocolVersion);
  };
  const failed = (error) => ({ status: "error", ename: error.ename, evalue: error.evalue, traceback: [] });
  if (!match) {
    request.respond(kernel.iopubSocket, "status", { execution_state: "busy" });
    reply(key ? { [key]: failed({ ename: "NotSupported", evalue: "this kernel evaluates no user expressions" }) } : {});
    request.respond(kernel.iopubSocket, "status", { execution_state: "idle" });
    return;
  }
  const code = `//sandal\n${match[1]}(${match[2]})`;
  const count = kernel.executionCount;
  for (let i = 0; match[1] === "warm" && i < WARM_CELLS; i++) {
    runCell.call(kernel, { content: { code: UNSEEN }, respond() {} });
  }
  kernel.session.execute(code, {
    beforeRun: () => {
      kernel.executionCount = count;
      request.respond(kernel.iopubSocket, "status", { execution_state: "busy" });
    },
    onSuccess: (result) => reply({
      [key]: { status: "ok", data: { "application/json": JSON.parse(result.mime["text/plain"]) }, metadata: {} },
    }),
    onError: (result) => reply({ [key]: failed(result.error) }),
    afterRun: () => request.respond(kernel.iopubSocket, "status", { execution_state: "idle" }),
  });
}

// Programs that the session has started and that are in its process group still.
function programs(pid, group) {
  const fieldsOf = (id) => fs.readFileSync(`/proc/${id}/stat`, "latin1").replace(/^.*\) /s, "").split(" ");
  try {
    const tasks = fs.readdirSync(`/proc/${pid}/task`);
    const children = tasks.flatMap((task) => fs.readFileSync(`/proc/${pid}/task/${task}/children`, "latin1").split(" ").filter(Boolean));
    const ours = group ?? fieldsOf(pid)[2];
    return children.flatMap((child) => [...(fieldsOf(child)[2] === ours ? [Number(child)] : []), ...programs(child, ours)]);
  } catch {
    return []; // they end just now
  }
}

// As a terminal does it: the programs too, for which execSync waits and sees nothing else meanwhile.
function interrupt(session) {
  const server = session._server;
  for (const pid of programs(server.pid)) {
    try {
      process.kill(pid, "SIGINT");
    } catch {
      // it has ended
    }
  }
  try {
    server.stdio[4].write("i");
  } catch {
    // it is dying
  }
  server.kill("SIGINT");
}

// Told as the last error of the cell that ran; the process's end follows.
function tellHeapFull(kernel, server, signal) {
  const tail = kernel.session._sandalTail || "";
  const full = signal === "SIGABRT" && tail.includes(`\n[${server.pid}:0x`) && HEAP_FULL.exec(tail);
  if (full) {
    kernel._sandalRequest?.respond(kernel.iopubSocket, "error", { ename: "OutOfMemory", evalue: full[1], traceback: [] });
  }
}

// The gateway judges by how the kernel's own process ends, so it ends as its session did.
function endLike(code, signal) {
  if (signal) {
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
    setTimeout(() => process.exit(128 + (os.constants.signals[signal] || 0)), EXIT_MS);
    return;
  }
  process.exit(code || 0);
}

const initSession = Kernel.prototype._initSession;
Kernel.prototype._initSession = function () {
  initSession.call(this);
  const session = this.session;
  const server = session._server;
  session._sandalEnded = new Map();
  session._sandalDrain = [watchPipe(session, server.stdout, "onStdout"), watchPipe(session, server.stderr, "onStderr")];
  server.stdio[4].on("error", () => {});
  server.on("exit", (code, signal) => {
    if (server !== session._server) {
      return;
    }
    session._sandalDrain.forEach((drain) => drain());
    Object.values(session._contextTable).forEach((task) => task.flush?.());
    tellHeapFull(this, server, signal);
    setTimeout(() => (this._sandalBye ? process.exit(0) : endLike(code, signal)), EXIT_MS);
  });
};

const destroy = Kernel.prototype.destroy;
Kernel.prototype.destroy = function (callback) {
  this._sandalBye = true;
  destroy.call(this, (...args) => {
    callback?.(...args);
    setTimeout(() => process.exit(0), EXIT_MS);
  });
};

const KNOWN_REPLIES = {
  comm_info_request: { comms: {}, status: "ok" },
  history_request: { history: [], status: "ok" },
};

const bindSockets = Kernel.prototype._bindSockets;
Kernel.prototype._bindSockets = function () {
  bindSockets.call(this);
  this.controlSocket.on("message", (message) => {
    const type = message.header.msg_type;
    const say = (state) => message.respond(this.iopubSocket, "status", { execution_state: state });
    const reply = (kind, content) => message.respond(this.controlSocket, kind, content, {}, this.protocolVersion);
    if (type === "interrupt_request") {
      say("busy");
      interrupt(this.session);
      reply("interrupt_reply", { status: "ok" });
      say("idle");
    } else if (type === "kernel_info_request") {
      say("busy");
      reply("kernel_info_reply", { status: "ok", ...this.kernelInfoReply });
      say("idle");
    }
  });
  const execute_request = this.handlers.execute_request;
  this.handlers.execute_request = function (request) {
    if (typeof request.content?.code !== "string") {
      request.respond(this.iopubSocket, "status", { execution_state: "busy" });
      request.respond(this.shellSocket, "execute_reply",
        { status: "error", execution_count: this.executionCount, ename: "TypeError", evalue: "code is not a string", traceback: [] });
      request.respond(this.iopubSocket, "status", { execution_state: "idle" });
    } else if (request.content.silent && request.content.code === "") {
      answerSilently(this, request, execute_request);
    } else {
      this._sandalRequest = request;
      execute_request.call(this, request);
    }
  };
  this.handlers.kernel_info_request = function (request) {
    request.respond(this.iopubSocket, "status", { execution_state: "busy" });
    request.respond(this.shellSocket, "kernel_info_reply", { status: "ok", ...this.kernelInfoReply }, {}, this.protocolVersion);
    request.respond(this.iopubSocket, "status", { execution_state: "idle" });
  };
  for (const [type, content] of Object.entries(KNOWN_REPLIES)) {
    this.handlers[type] = function (request) {
      request.respond(this.iopubSocket, "status", { execution_state: "busy" });
      request.respond(this.shellSocket, type.replace("request", "reply"), content, {}, this.protocolVersion);
      request.respond(this.iopubSocket, "status", { execution_state: "idle" });
    };
  }
  // After IJavaScript's own, which would restart the session.
  process.nextTick(() => {
    process.removeAllListeners("SIGINT");
    process.on("SIGINT", () => interrupt(this.session));
  });
};

process.argv.splice(2, 0, "--hide-undefined", "--protocol=5.3", `--startup-script=${path.join(__dirname, "boot.js")}`);
load("ijavascript/lib/kernel.js");
