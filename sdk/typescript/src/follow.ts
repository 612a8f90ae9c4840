// Follows one run, whatever happens to connections: by WebSocket or HTTP, from the event after the last one that was seen.
import { camelize } from "./case.js";
import { ConnectionError, NotFoundError, RequestTimeoutError, SandalError } from "./errors.js";
import { comesBack, errorOf, passes } from "./failure.js";
import { pause, segment, type Answer, type Http, type HttpRequest } from "./http.js";
import { delay } from "./platform.js";
import { FRAME_MAX, type Frame, type SocketPool } from "./socket.js";

/** An event as it comes: the SDK's names are given to it by who hands it on. */
export interface WireEvent {
  type: string;
  run: string;
  seq: number;
  [name: string]: any;
}

/** What to start, or what to follow. */
export interface Target {
  op: "run_code" | "exec" | "runs.attach" | "processes.attach";
  sandbox: string;
  /** Fields with the wire's names, without the sandbox. Those of run_code and exec carry a `key`: twice is as good as once. */
  fields: Record<string, unknown>;
  /** Whether events are wanted beside the result. */
  stream: boolean;
  /** What comes after the result is wanted too. */
  late: boolean;
}

export interface Follower {
  event(event: WireEvent): void;
  end(): void;
  fail(error: unknown): void;
}

/** Lines of a body. Rejects when nothing, not even an empty line, comes for `silence` seconds. */
export async function* linesOf(answer: Answer, silence: number): AsyncGenerator<string> {
  const reader = (answer.response.body as ReadableStream<Uint8Array>).getReader();
  const decoder = new TextDecoder();
  let begun: string[] = []; // a line whose end has not come; joined once, for it may be as long as all that a run printed
  try {
    for (;;) {
      let timer: ReturnType<typeof setTimeout> | undefined;
      const silent = new Promise<never>((_, reject) => {
        timer = setTimeout(() => reject(new ConnectionError("connection_lost", `nothing came for ${silence} s`)), silence * 1000);
      });
      const { done, value } = await Promise.race([reader.read(), silent]).finally(() => clearTimeout(timer));
      if (done) return; // a last line without its end is none
      const [first, ...lines] = decoder.decode(value, { stream: true }).split("\n") as [string, ...string[]];
      begun.push(first);
      for (const next of lines) {
        const line = begun.join("");
        begun = [next];
        if (line !== "") yield line;
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // its end is not waited for: what ended it may hang
  }
}

/** @internal */
export class Following {
  readonly #http: Http;
  readonly #sockets: SocketPool;
  readonly #target: Target;
  readonly #follower: Follower;
  readonly #stop = new AbortController();
  #seq: number;
  #over = false;
  /** A socket is full, by the gateway's count: this run goes by HTTP. */
  #isCrowded = false;
  /** Its result was seen. */
  #ended = false;
  #release: (() => void) | undefined;
  /** Since when, by Date.now(), there was no event while tries fail; 0: the last try went well. */
  #downSince = 0;
  #attempt = 0;
  #failures = 0;
  run: string | null;

  constructor(http: Http, sockets: SocketPool, target: Target, follower: Follower) {
    this.#http = http;
    this.#sockets = sockets;
    this.#target = target;
    this.#follower = follower;
    this.#seq = typeof target.fields["after"] === "number" ? target.fields["after"] : -1;
    this.run = typeof target.fields["run"] === "string" ? target.fields["run"] : null;
    const ready = this.#bySocket() ? sockets.ready() : undefined;
    if (ready) this.#send(ready);
    else void this.#try();
  }

  /** Nothing more is wanted. The run goes on. */
  leave(): void {
    this.#over = true;
    this.#stop.abort();
    this.#release?.();
  }

  #bySocket(): boolean {
    if (this.#target.late || this.#isCrowded) return false; // a socket's run ends with its result
    const { code, stdin } = this.#target.fields;
    return [code, stdin].every((text) => typeof text !== "string" || text.length < FRAME_MAX / 4);
  }

  #finish(settle: () => void): void {
    if (this.#over) return;
    this.#over = true;
    settle();
  }

  #event(event: WireEvent): void {
    if (this.#over) return;
    this.run = event.run;
    if (event.seq <= this.#seq) return; // seen before the connection went
    this.#seq = event.seq;
    this.#downSince = this.#attempt = this.#failures = 0;
    this.#follower.event(event);
    if (event.type !== "result") return;
    this.#ended = true;
    if (!this.#target.late) this.#finish(() => this.#follower.end());
  }

  #lost(error: unknown): void {
    if (this.#over) return;
    this.#downSince ||= Date.now();
    const { reconnectTimeout, maxRetries } = this.#http.settings;
    const isOver = Date.now() - this.#downSince > reconnectTimeout * 1000;
    const isGone = error instanceof ConnectionError || error instanceof RequestTimeoutError || comesBack(error);
    const again = isGone ? !isOver : passes(error) && ++this.#failures <= maxRetries;
    if (!again) return this.#finish(() => this.#follower.fail(error));
    const asked = (error as SandalError).retryAfter;
    const wait = asked === undefined ? (this.#attempt === 0 && this.run !== null ? 0 : pause(this.#attempt, 50, 2000)) : asked * 1000;
    this.#attempt++;
    delay(wait, this.#stop.signal).then(
      () => this.#try(),
      () => {},
    );
  }

  async #try(): Promise<void> {
    try {
      const connection = this.#bySocket() ? await this.#sockets.acquire() : undefined;
      if (this.#over) return connection?.release();
      if (connection) this.#send(connection);
      else await this.#byHttp();
    } catch (error) {
      this.#lost(error);
    }
  }

  // --- By WebSocket

  #send(connection: NonNullable<ReturnType<SocketPool["ready"]>>): void {
    const { op, sandbox, fields, stream } = this.#target;
    const after = this.#seq >= 0 ? { after: this.#seq } : {};
    const attach = this.run !== null && op !== "processes.attach";
    const request = attach ? { sandbox, run: this.run, ...after } : op.endsWith(".attach") ? { sandbox, ...fields, ...after } : { sandbox, ...fields, stream };
    this.#release = connection.send(attach ? "runs.attach" : op, request, {
      frame: (frame) => this.#frame(frame),
      dropped: () => this.#lost(new ConnectionError("connection_lost", "the connection to the gateway went")),
    });
  }

  #frame(frame: Frame): void {
    if (frame.type === "failure") {
      const error = errorOf(frame["error"] as object);
      this.#isCrowded = error.code === "quota_exceeded";
      return this.#lost(error);
    }
    if (frame.type !== "response") {
      const { id: _, ...event } = frame;
      return this.#event(event as unknown as WireEvent);
    }
    void this.#nothingLeft(); // an attach after the end of what there is
  }

  // --- By HTTP

  #request(): HttpRequest {
    const { op, sandbox, fields, late } = this.#target;
    const base = `/v1/sandboxes/${segment(sandbox)}`;
    const query = { after: this.#seq >= 0 ? this.#seq : undefined, late: late || undefined };
    const requestTimeout = this.#http.settings.silenceTimeout; // the head of a stream comes at once
    const common = { signal: this.#stop.signal, retry: false, requestTimeout, headers: { Accept: "application/x-ndjson" } };
    if (this.run !== null) return { ...common, method: "GET", path: `${base}/runs/${segment(this.run)}/events`, query };
    if (op === "processes.attach") return { ...common, method: "GET", path: `${base}/processes/${segment(String(fields["pid"]))}/events`, query };
    // Streamed always: the head of the answer comes at once, and a silent line tells from a dead one.
    return { ...common, method: "POST", path: `${base}/${op}`, json: { ...fields, stream: true } };
  }

  async #byHttp(): Promise<void> {
    const answer = await this.#http.open(this.#request());
    answer.untimed(); // from here on the silence counts
    if (this.#http.settings.WebSocket && this.#bySocket()) this.#sockets.refused();
    if (answer.response.status === 204) {
      answer.end();
      return this.#nothingLeft();
    }
    let came = false;
    try {
      for await (const line of linesOf(answer, this.#http.settings.silenceTimeout)) {
        came = true;
        this.#event(JSON.parse(line) as WireEvent);
        if (this.#over) return;
      }
    } catch (cause) {
      if (this.#over) return;
      throw cause instanceof SandalError ? cause : answer.failure(cause);
    } finally {
      answer.end();
    }
    if (this.#target.late && this.#ended) return this.#finish(() => this.#follower.end());
    if (!came && this.run !== null) return this.#nothingLeft();
    throw new ConnectionError("connection_lost", "the stream ended before its result");
  }

  // The run has ended, and its result was seen by who gave `after`: the record has it.
  async #nothingLeft(): Promise<void> {
    try {
      if (this.run === null) throw new NotFoundError("run_not_found", "there is nothing to follow", { status: 404 });
      const record = await this.#http.json({
        method: "GET",
        path: `/v1/sandboxes/${segment(this.#target.sandbox)}/runs/${segment(this.run)}`,
        signal: this.#stop.signal,
      });
      if (this.#over) return;
      this.#follower.event({ ...(record as object), type: "result", run: this.run, seq: this.#seq });
      this.#finish(() => this.#follower.end());
    } catch (error) {
      this.#finish(() => this.#follower.fail(error));
    }
  }
}

/** An event with the SDK's names. */
export function eventOf<E>(wire: WireEvent): E {
  return camelize<E>(wire);
}
