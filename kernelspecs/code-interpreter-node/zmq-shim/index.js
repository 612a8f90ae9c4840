// zeromq 6 behind the interface of zeromq 5 that IJavaScript's jmp expects: jmp calls the Socket
// constructor as a plain function, which zeromq's own v5-compat (a class) refuses. Besides, an
// address tcp://PATH:PORT, which IJavaScript makes of a connection file with transport "ipc",
// becomes ipc://PATH-PORT.
"use strict";
const zmq = require("zeromq6/v5-compat");
const { EventEmitter } = require("events");

function Socket(type) {
  EventEmitter.call(this);
  const socket = new zmq.Socket(type);
  Object.defineProperty(this, "_zmq", { value: socket });
  for (const event of ["message", "error", "bind", "unbind"]) {
    socket.on(event, (...args) => this.emit(event, ...args));
  }
}
Socket.prototype = Object.create(EventEmitter.prototype, { constructor: { value: Socket } });

const toIpc = (address) => address.replace(/^tcp:\/\/(\/.*):(\d+)$/, "ipc://$1-$2");

for (const method of ["bind", "bindSync", "unbind", "unbindSync", "connect", "disconnect", "send", "close",
  "setsockopt", "getsockopt", "subscribe", "unsubscribe"]) {
  Socket.prototype[method] = function (...args) {
    if (typeof args[0] === "string" && /^(un)?bind/.test(method)) {
      args[0] = toIpc(args[0]);
    }
    const result = this._zmq[method](...args);
    return result === this._zmq ? this : result;
  };
}
Object.defineProperty(Socket.prototype, "identity", {
  set(value) {
    try {
      this._zmq.setsockopt("identity", value);
    } catch {
      // only sockets that connect have one
    }
  },
});

const createSocket = (type) => new Socket(type);
module.exports = { ...zmq, Socket, createSocket, socket: createSocket };
