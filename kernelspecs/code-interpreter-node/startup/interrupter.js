// A thread that stops what the session's main thread cannot be asked to stop: a loop that runs after
// an await or in a timer. A byte on fd 4 means "interrupt"; if the main thread has not answered a
// moment later, what it runs is terminated.
"use strict";
const { Session } = require("inspector");
const { workerData } = require("worker_threads");
const { Socket } = require("net");

const PATIENCE_MS = 80;
const answered = new Int32Array(workerData);
const session = new Session();
session.connectToMainThread();
const pipe = new Socket({ fd: 4, readable: true, writable: false });
pipe.on("data", () => {
  const before = Atomics.load(answered, 0);
  setTimeout(() => {
    if (Atomics.load(answered, 0) === before) {
      session.post("Runtime.terminateExecution");
    }
  }, PATIENCE_MS);
});
pipe.on("error", () => {});
