// Errors as a person reads them: frames of the cells and of the user's files, as `cell N:line:column`.
"use strict";
const util = require("util");

const CELL = /cell_(\d+)\.[tj]s/g;
const OURS = /\(?(?:node:|evalmachine\.|\[eval\]|.*[\\/]share[\\/]startup[\\/])|^\s*at (?:new )?Promise \(<anonymous>\)/;

function cleanStack(stack) {
  return stack.split("\n")
    .filter((line) => !/^\s*at /.test(line) || !OURS.test(line))
    .map((line) => line.replace(CELL, "cell $1"))
    .join("\n");
}

// What a stack says from its making on: code prints errors itself too. Libraries that set
// Error.prepareStackTrace of their own for a while get what they ask for.
function tidy(error, sites) {
  let head = "Error";
  try {
    head = Error.prototype.toString.call(error);
  } catch {
    // its name or message throws
  }
  return cleanStack([head, ...sites.map((site) => `    at ${site}`)].join("\n"));
}

// With the frames that a reader is not shown.
function wholeStack() {
  const { prepareStackTrace } = Error;
  Error.prepareStackTrace = undefined;
  const { stack } = new Error();
  Error.prepareStackTrace = prepareStackTrace;
  return stack;
}

function setStack(error, stack) {
  try {
    Object.defineProperty(error, "stack", { value: stack, writable: true, configurable: true, enumerable: false });
  } catch {
    // frozen: it stays as it is
  }
}

const CHAIN_MAX = 32; // causes and parts of one error that are shown
const PLAIN = { depth: 1, customInspect: false, getters: false };

// What an object has under a name itself; no getter runs.
function own(object, name) {
  return util.types.isProxy(object) ? undefined : Object.getOwnPropertyDescriptor(object, name)?.value;
}

// The errors behind an error: its cause, and of an AggregateError its parts.
function behind(error) {
  const parts = own(error, "errors");
  const found = Array.isArray(parts) && !util.types.isProxy(parts) ? Array.from({ length: Math.min(parts.length, CHAIN_MAX + 1) }, (_, i) => [`errors[${i}]`, own(parts, i)]) : [];
  const cause = own(error, "cause");
  return cause === undefined ? found : [["cause", cause], ...found];
}

function stackOf(value) {
  try {
    return util.types.isNativeError(value) && typeof value.stack === "string" ? cleanStack(value.stack) : undefined;
  } catch {
    return undefined; // a getter of the user's
  }
}

// Their name, message and stack, each further in, as Node.js writes them.
function chain(error, seen = new Set([error]), depth = 1) {
  const pad = "  ".repeat(depth);
  return behind(error).flatMap(([label, inner]) => {
    const known = typeof inner === "object" && inner !== null && seen.has(inner);
    if (known || seen.size > CHAIN_MAX) {
      return [`${pad}[${label}]: ${known ? "[Circular]" : "..."}`];
    }
    seen.add(inner);
    const stack = stackOf(inner);
    const lines = `[${label}]: ${stack ?? util.inspect(inner, PLAIN)}`.split("\n").map((line) => pad + line);
    return stack === undefined ? lines : [...lines, ...chain(inner, seen, depth + 1)];
  });
}

// What is thrown and is no error ("throw 1") is shown as Node.js does.
function clean(error) {
  if (error === null || typeof error !== "object" || typeof error.name !== "string") {
    return { name: "Uncaught", message: util.inspect(error), stack: `Uncaught ${util.inspect(error)}` };
  }
  if (typeof error.stack !== "string") {
    return error;
  }
  setStack(error, cleanStack(error.stack));
  const causes = chain(error);
  return causes.length ? { name: error.name, message: error.message, stack: [error.stack, ...causes].join("\n") } : error;
}

// Errors of syntax carry no place of their own.
function located(error, details, number, source) {
  const early = error instanceof SyntaxError && !/cell[ _]\d+/.test(error.stack || "");
  if (early && details.lineNumber >= 0) {
    const line = source.split("\n")[details.lineNumber];
    if (line !== undefined) {
      const caret = " ".repeat(Math.max(0, details.columnNumber)) + "^";
      setStack(error, `cell ${number}:${details.lineNumber + 1}\n${line}\n${caret}\n${error.name}: ${error.message}`);
    }
  }
  return error;
}

module.exports = { clean, cleanStack, located, tidy, wholeStack };
