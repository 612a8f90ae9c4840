// WebSockets of the protocol sandal.v1: many runs on one, and more of them when one is full.
import type { Settings, WebSocketLike } from "./settings.js";

/** Runs at once on one socket; a gateway allows 256 unless it is told otherwise. */
const RUNS_MAX = 200;
/** Seconds within which a socket has to open. */
const OPEN_MAX = 10;
/** A frame over this goes by HTTP, which can say that it is too large without cutting off the others. In characters. */
export const FRAME_MAX = 1 << 20;

/** A frame from the gateway. */
export interface Frame {
  id: string | null;
  type: string;
  [name: string]: any;
}

/** Who waits for the frames of one id. */
export interface Sink {
  frame(frame: Frame): void;
  /** The socket went; nothing more comes. */
  dropped(): void;
}

class Connection {
  readonly #socket: WebSocketLike;
  readonly #sinks = new Map<string, Sink>();
  readonly #settings: Settings;
  #heard = 0;
  #idleTimer: ReturnType<typeof setTimeout> | undefined;
  #watch: ReturnType<typeof setInterval> | undefined;
  #next = 0;
  /** Runs that have a place here, sent or not. */
  load = 0;
  closed = false;
  readonly opened: Promise<boolean>;

  constructor(socket: WebSocketLike, settings: Settings) {
    this.#socket = socket;
    this.#settings = settings;
    this.opened = new Promise((resolve) => {
      const late = setTimeout(() => {
        this.close();
        resolve(false);
      }, Math.min(settings.silenceTimeout, OPEN_MAX) * 1000);
      socket.onopen = () => {
        clearTimeout(late);
        resolve(true);
      };
      socket.onclose = () => {
        clearTimeout(late);
        this.#end();
        resolve(false);
      };
    });
    socket.onerror = () => {}; // close follows
    socket.onmessage = (event: { data: unknown }) => this.#receive(event.data);
    this.#watch = setInterval(() => this.#look(), settings.silenceTimeout * 250);
    (this.#watch as { unref?: () => void }).unref?.();
  }

  get isOpen(): boolean {
    return this.#socket.readyState === 1;
  }

  #receive(data: unknown): void {
    this.#heard = Date.now();
    if (typeof data !== "string") return;
    const frame = JSON.parse(data) as Frame;
    const sink = frame.id === null ? undefined : this.#sinks.get(frame.id);
    if (!sink) return;
    if (frame.type === "response" || frame.type === "failure" || frame.type === "result") this.#remove(frame.id as string);
    sink.frame(frame);
  }

  /** Sends a request; its frames come to the sink until it is answered. Gives what takes the sink away. */
  send(op: string, fields: object, sink: Sink): () => void {
    const id = `s${this.#next++}`;
    clearTimeout(this.#idleTimer);
    if (this.#sinks.size === 0) this.#heard = Date.now();
    this.#sinks.set(id, sink);
    this.#socket.send(JSON.stringify({ id, op, ...fields }));
    return () => this.#remove(id);
  }

  #remove(id: string): void {
    if (this.#sinks.delete(id)) this.release();
  }

  reserve(): void {
    this.load++;
    clearTimeout(this.#idleTimer);
  }

  release(): void {
    this.load--;
    if (this.load === 0) this.#idleTimer = setTimeout(() => this.close(), this.#settings.idleTimeout * 1000);
  }

  // Pings are hidden from us, so a gateway that is gone without a word is found by asking for something small.
  #look(): void {
    const silent = (Date.now() - this.#heard) / 1000;
    const most = this.#settings.silenceTimeout;
    if (this.closed || this.#sinks.size === 0 || silent < most / 2) return;
    if (silent > most) {
      this.close();
      this.#end();
    } else {
      this.#socket.send(JSON.stringify({ id: "alive", op: "templates.list" }));
    }
  }

  close(): void {
    this.#socket.close();
    this.closed = true;
    clearTimeout(this.#idleTimer);
    clearInterval(this.#watch);
  }

  #end(): void {
    this.closed = true;
    clearTimeout(this.#idleTimer);
    clearInterval(this.#watch);
    const sinks = [...this.#sinks.values()];
    this.#sinks.clear();
    for (const sink of sinks) sink.dropped();
  }
}

export type { Connection };

export class SocketPool {
  readonly #settings: Settings;
  #connections: Connection[] = [];
  /** Until when sockets are not tried: one could not be opened, though HTTP has an answer. */
  #refusedUntil = 0;
  #delay = 1000;

  constructor(settings: Settings) {
    this.#settings = settings;
  }

  /** One that is open and has room, at once. It holds a place for one run, which `send` takes. */
  ready(): Connection | undefined {
    const found = this.#connections.find((connection) => connection.isOpen && !connection.closed && connection.load < RUNS_MAX);
    found?.reserve();
    return found;
  }

  /** As `ready`, opened if need be; undefined where it cannot be opened, or not now. */
  async acquire(): Promise<Connection | undefined> {
    const Socket = this.#settings.WebSocket;
    if (!Socket || Date.now() < this.#refusedUntil) return undefined;
    const key = await this.#settings.key();
    this.#connections = this.#connections.filter((connection) => !connection.closed);
    let connection = this.#connections.find((one) => one.load < RUNS_MAX);
    if (!connection) {
      // A key goes as a subprotocol, for browsers can set no headers.
      const protocols = key ? ["sandal.v1", `bearer.${key}`] : ["sandal.v1"];
      connection = new Connection(new Socket(this.#settings.baseUrl.replace(/^http/, "ws") + "/v1/ws", protocols), this.#settings);
      this.#connections.push(connection);
    }
    connection.reserve();
    if (await connection.opened) {
      this.#delay = 1000;
      return connection.closed ? undefined : connection;
    }
    return undefined;
  }

  /** HTTP reached the gateway where a socket could not be opened: something between lets no sockets through. */
  refused(): void {
    if (Date.now() < this.#refusedUntil) return;
    this.#refusedUntil = Date.now() + this.#delay;
    this.#delay = Math.min(this.#delay * 2, 300_000);
  }

  close(): void {
    for (const connection of this.#connections) connection.close();
    this.#connections = [];
  }
}
