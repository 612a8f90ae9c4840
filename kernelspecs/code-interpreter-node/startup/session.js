// Runs in the session, before its first cell: cells are TypeScript, may await, import and declare
// again what was declared; output belongs to the cell that made it; interrupts stop what runs and
// keep the state.
"use strict";
const inspector = require("inspector");
const path = require("path");
const vm = require("vm");
const { AsyncLocalStorage } = require("async_hooks");
const { StringDecoder } = require("string_decoder");
const childProcess = require("child_process");
const { createRequire, registerHooks, syncBuiltinESMExports } = require("module");
const { pathToFileURL } = require("url");
const { Worker } = require("worker_threads");

const startup = __dirname;
const prefix = process.env.SANDAL_NODE_PREFIX;
const typescript = process.env.SANDAL_NODE_LANGUAGE !== "javascript";
const rewrite = require("./rewrite.js");
for (const name of ["SANDAL_NODE_PREFIX", "SANDAL_NODE_STARTUP", "SANDAL_NODE_LANGUAGE"]) {
  delete process.env[name]; // not the user's
}
const results = require("./results.js");
const errors = require("./errors.js");
const helper = require("./helper.js");

process.removeAllListeners("warning");
process.on("warning", (warning) => {
  if (!/stripTypeScriptTypes|Type Stripping|vm\.USE_MAIN_CONTEXT/.test(warning.message)) {
    process.stderr.write(`${warning.name}: ${warning.message}\n`);
  }
});

// ---- packages of the template ----

// Bare names that are not found from where they are asked for are looked for in the template.
const templateParent = pathToFileURL(path.join(prefix, "package.json")).href;
const fromTemplate = createRequire(templateParent);
registerHooks({
  resolve(name, context, next) {
    try {
      return next(name, context);
    } catch (error) {
      const bare = !/^(?:\.{0,2}\/|[a-z]+:)/i.test(name);
      if (!bare || !/MODULE_NOT_FOUND|ERR_PACKAGE_PATH/.test(error.code || "")) {
        throw error;
      }
      try {
        if (!context.conditions?.includes("require")) {
          return next(name, { ...context, parentURL: templateParent });
        }
      } catch {
        // what `npm install -g` has put there is found by require alone
      }
      try {
        return { url: pathToFileURL(fromTemplate.resolve(name)).href, shortCircuit: true };
      } catch {
        throw error;
      }
    }
  },
});

// ---- output ----

const cell = new AsyncLocalStorage(); // the context id of the cell that code runs for
const OUT_MS = 30;
const OUT_BYTES = 32768;
const OUT_BURST = 16; // pieces in OUT_MS that go at once: code that then keeps the thread busy has shown them
const queue = { id: undefined, name: "", pieces: [], bytes: 0, since: 0, timer: null, window: 0, sent: 0 };
const send = process.send.bind(process);

function flush() {
  clearTimeout(queue.timer);
  queue.timer = null;
  if (queue.pieces.length) {
    const text = queue.pieces.join("");
    queue.pieces = [];
    queue.bytes = 0;
    send({ id: queue.id, [queue.name]: text });
  }
}

function put(id, name, text) {
  if (id !== queue.id || name !== queue.name) {
    flush();
    queue.id = id;
    queue.name = name;
  }
  const now = Date.now();
  if (!queue.pieces.length) {
    queue.since = now;
  }
  if (now - queue.window >= OUT_MS) {
    queue.window = now;
    queue.sent = 0;
  }
  queue.pieces.push(text);
  queue.bytes += text.length;
  if (queue.bytes >= OUT_BYTES || now - queue.since >= OUT_MS || queue.sent < OUT_BURST) {
    queue.sent++;
    flush();
  } else if (!queue.timer) {
    queue.timer = setTimeout(flush, OUT_MS);
    queue.timer.unref();
  }
}

process.send = (message, ...rest) => {
  flush();
  return send(message, ...rest);
};
process.on("exit", flush);

// These hold the thread until a program ends, and that may take long.
for (const name of ["execSync", "execFileSync", "spawnSync"]) {
  const stock = childProcess[name];
  childProcess[name] = function (...args) {
    flush();
    return stock.apply(this, args);
  };
}
syncBuiltinESMExports();

// process.stdout and process.stderr are transforms that IJavaScript makes for each cell.
for (const name of ["stdout", "stderr"]) {
  const decoders = new Map();
  Object.getPrototypeOf(process[name])._transform = function (data, encoding, done) {
    const id = cell.getStore() ?? this._contextId;
    let text = data;
    if (typeof data !== "string") {
      if (!decoders.has(id)) {
        decoders.clear();
        decoders.set(id, new StringDecoder("utf8"));
      }
      text = decoders.get(id).write(data);
    }
    if (text) {
      put(id, name, text);
    }
    done();
  };
}

// ---- running ----

const session = new inspector.Session();
session.connect();
const answered = new SharedArrayBuffer(4);
let interrupter = null;
let pending = null; // rejects what the running cell waits for
let count = 0;
const run = vm.runInThisContext;

const importFrom = new vm.Script("(name, options) => import(name, options)", {
  filename: path.join(process.cwd(), "cell.js"),
  importModuleDynamically: vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
}).runInThisContext();

function importModule(name, options) {
  const local = /^\.{0,2}\//.test(name) ? pathToFileURL(path.resolve(process.cwd(), name)).href : name;
  return importFrom(local, options);
}

function unwrap(object) {
  if (object.objectId === undefined) {
    if ("unserializableValue" in object) {
      const text = object.unserializableValue;
      return object.type === "bigint" ? BigInt(text.slice(0, -1)) : Number(text);
    }
    return object.value;
  }
  session.post("Runtime.callFunctionOn",
    { objectId: object.objectId, functionDeclaration: "function () { __sandal.slot = this; }" });
  let value = sandal.slot;
  sandal.slot = undefined;
  session.post("Runtime.releaseObject", { objectId: object.objectId });
  // `this` of a sloppy function is an object
  return object.type === "symbol" ? value.valueOf() : value;
}

function interrupted() {
  return Object.assign(new Error("Execution interrupted"), { name: "KeyboardInterrupt", stack: "" });
}

function evaluate(source) {
  const number = count;
  const name = `cell_${number}.${typescript ? "ts" : "js"}`;
  return new Promise((resolve, reject) => {
    pending = reject;
    session.post("Runtime.evaluate",
      { expression: `${source}\n//# sourceURL=${name}`, replMode: true, awaitPromise: true },
      (failure, answer) => {
        if (failure) {
          reject(/terminated/.test(failure.message) ? interrupted() : new Error(failure.message));
        } else if (answer.exceptionDetails) {
          const details = answer.exceptionDetails;
          const thrown = details.exception ? unwrap(details.exception) : interrupted();
          reject(errors.located(thrown, details, number, source));
        } else {
          resolve(unwrap(answer.result));
        }
      });
  }).finally(() => {
    pending = null;
  });
}

const sandal = { import: importModule, slot: undefined, source: "", evaluate };
Object.defineProperty(sandal, "meta", {
  get: () => ({ url: pathToFileURL(path.join(process.cwd(), "cell.js")).href, dirname: process.cwd(),
    filename: path.join(process.cwd(), "cell.js"), resolve: (name) => pathToFileURL(path.resolve(name)).href }),
});
Object.defineProperty(globalThis, "__sandal", { value: sandal, enumerable: false });

process.on("SIGINT", () => {
  Atomics.add(new Int32Array(answered), 0, 1);
  pending?.(interrupted());
});

function startInterrupter() {
  if (!interrupter) {
    interrupter = new Worker(path.join(startup, "interrupter.js"),
      { workerData: answered, stdin: false, stdout: true, stderr: true, env: {}, execArgv: [] });
    interrupter.unref();
    interrupter.on("error", () => {
      interrupter = null;
    });
  }
}

// Results that IJavaScript takes as base64 may be given as bytes.
function widen($$) {
  for (const kind of ["png", "jpeg"]) {
    const plain = $$[kind];
    $$[kind] = (data, keepAlive) =>
      plain(typeof data?.then === "function" ? Promise.resolve(data).then(results.base64) : results.base64(data), keepAlive);
  }
  const { input, display } = $$;
  $$.input = (...args) => {
    const answer = input(...args);
    $$.async(false); // the cell waits for it only if it awaits it
    return answer;
  };
  $$.display = (...args) => {
    const shown = display(...args);
    for (const kind of ["png", "jpeg"]) {
      const plain = shown[kind];
      shown[kind] = (data) => plain(results.base64(data));
    }
    return shown;
  };
}

function runCell(code, id) {
  count++;
  sandal.source = rewrite(code, typescript);
  if (/\bawait\b|\bsetTimeout\b|\bsetInterval\b|\bsetImmediate\b|\bPromise\b|\.then\b/.test(sandal.source)) {
    startInterrupter();
  }
  try {
    return cell.run(id, () => run.call(vm, "__sandal.evaluate(__sandal.source)", { breakOnSigint: true }))
      .catch((error) => {
        throw errors.clean(error);
      });
  } catch (error) {
    throw error.code === "ERR_SCRIPT_EXECUTION_INTERRUPTED" ? interrupted() : errors.clean(error);
  }
}

// The cell behind it has the number that it would have had.
function unseen(code) {
  const done = runCell(code, process.stdout._contextId);
  count--;
  return done;
}

// IJavaScript runs cells, and what it evaluates for completion, by vm.runInThisContext.
const HELPER = /^\/\/sandal\n(\w+)\((.*)\)$/s;
vm.runInThisContext = (code, options) => {
  if (options || typeof code !== "string") {
    return run.call(vm, code, options);
  }
  const asked = HELPER.exec(code);
  if (asked) {
    const { $$ } = globalThis;
    const answer = helper[asked[1]](asked[2] ? JSON.parse(asked[2]) : undefined, session, unseen);
    if (typeof answer.then === "function") {
      $$.async();
      answer.then((value) => $$.text(JSON.stringify(value)), (error) => $$.sendError(error));
    } else {
      $$.text(JSON.stringify(answer));
    }
    return undefined;
  }
  const stack = errors.wholeStack();
  if (code === "global" && stack.includes("onNameRequest")) {
    return helper.scope(session);
  }
  if (!stack.includes("onRunRequest")) {
    return run.call(vm, code);
  }
  widen(globalThis.$$);
  return code.startsWith("//sandal cell\n") ? unseen(code) : runCell(code, process.stdout._contextId);
};

globalThis.$$.config.awaitExecution = true;
Error.prepareStackTrace = errors.tidy;
globalThis.$$mimer$$ = results.toMime;
Object.defineProperty(globalThis, "$$mimer$$", { enumerable: false });
helper.baseline();
