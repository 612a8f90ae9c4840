// What the gateway asks beside running code: environment and directory of a single run or from now
// on, a first cell ahead of the user's, and the list of variables. Nothing here runs code of the
// user's: no getter, no proxy, no toString.
"use strict";
const util = require("util");

const ITEMS_MAX = 1000;
const PREVIEW = 200;
const saved = [];
let known = new Set();

function enter(text) {
  const spec = JSON.parse(text);
  const env = spec.env || {};
  const cwd = spec.cwd ? process.cwd() : null;
  if (cwd !== null) {
    process.chdir(spec.cwd);
  }
  saved.push({ cwd, env: Object.fromEntries(Object.keys(env).map((name) => [name, process.env[name]])) });
  Object.assign(process.env, env);
  return true;
}

function leave() {
  while (saved.length) {
    const { cwd, env } = saved.pop();
    for (const [name, value] of Object.entries(env)) {
      if (value === undefined) {
        delete process.env[name];
      } else {
        process.env[name] = value;
      }
    }
    try {
      if (cwd !== null) {
        process.chdir(cwd);
      }
    } catch {
      // the directory is gone
    }
  }
  return true;
}

// What enter does, for good: a kernel that waited for its user gets the user's.
function settle(text) {
  enter(text);
  saved.pop();
  return true;
}

// Runs the template's code, whose names are its own; cells were run before it (see kernel.js).
async function warm(code, session, unseen) {
  await unseen(`{\n${code}\n}`);
  return true;
}

function classOf(value) {
  let proto = Object.getPrototypeOf(value);
  while (proto !== null && !util.types.isProxy(proto)) {
    const made = Object.getOwnPropertyDescriptor(proto, "constructor")?.value;
    if (typeof made === "function" && !util.types.isProxy(made)) {
      const name = Object.getOwnPropertyDescriptor(made, "name")?.value;
      return typeof name === "string" ? name : "Object";
    }
    proto = Object.getPrototypeOf(proto);
  }
  return "Object";
}

function previewOf(value) {
  const text = util.inspect(value, {
    depth: 1, customInspect: false, getters: false, showProxy: true, maxArrayLength: 10, maxStringLength: PREVIEW, breakLength: Infinity,
  });
  return text.length > PREVIEW ? `${text.slice(0, PREVIEW - 1)}…` : text;
}

function describe(name, value) {
  const item = { name, type: value === null ? "null" : typeof value, shape: null, length: null, bytes: null, preview: "" };
  if (typeof value === "object" && value !== null && !util.types.isProxy(value)) {
    item.type = classOf(value);
    if (Array.isArray(value)) {
      item.length = value.length;
    } else if (ArrayBuffer.isView(value) && !util.types.isDataView(value)) {
      item.length = value.length;
      item.bytes = value.byteLength;
    } else if (util.types.isMap(value) || util.types.isSet(value)) {
      item.length = (util.types.isMap(value) ? Map : Set).prototype.__lookupGetter__("size").call(value);
    }
  } else if (typeof value === "string") {
    item.length = value.length;
  }
  item.preview = previewOf(value);
  return item;
}

// Names of top-level let, const and class, then properties that were added to the global object.
function names(session) {
  let lexical = [];
  session.post("Runtime.globalLexicalScopeNames", (error, answer) => {
    lexical = error ? [] : [...new Set(answer.names)]; // once for each time that it was declared
  });
  return lexical;
}

// What completion looks for names in: the global object, and before it those of let, const and
// class, which are no properties of it. No value is looked at.
function scope(session) {
  const own = names(session).map((name) => [name, { value: undefined, enumerable: true }]);
  return Object.create(globalThis, Object.fromEntries(own));
}

function variables(unused, session) {
  const items = [];
  const add = (name, value) => {
    if (typeof value !== "function" && items.length < ITEMS_MAX) {
      items.push(describe(name, value));
    }
  };
  for (const name of names(session)) {
    let found;
    session.post("Runtime.evaluate", { expression: `__sandal.slot = ${name}`, throwOnSideEffect: false }, (error, answer) => {
      found = !error && !answer.exceptionDetails;
    });
    if (found) {
      add(name, globalThis.__sandal.slot);
    }
    globalThis.__sandal.slot = undefined;
  }
  for (const [name, property] of Object.entries(Object.getOwnPropertyDescriptors(globalThis))) {
    if (!known.has(name) && "value" in property && property.enumerable) {
      add(name, property.value);
    }
  }
  return { items, next: null };
}

// The globals that were there before the first cell.
function baseline() {
  known = new Set(Object.getOwnPropertyNames(globalThis));
}

module.exports = { enter, leave, settle, warm, variables, scope, baseline };
