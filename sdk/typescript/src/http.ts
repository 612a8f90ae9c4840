// Requests over fetch: the key, time limits, errors, and what is asked again.
import { camelize, snakeize } from "./case.js";
import { number, refused, wellFormed } from "./check.js";
import { ConnectionError, RequestTimeoutError, SandalError } from "./errors.js";
import { errorOf, passes } from "./failure.js";
import { ROUTES, type Operations } from "./generated.js";
import { delay, unique } from "./platform.js";
import type { Settings } from "./settings.js";

/** Longest wait between two tries, in ms, whatever the gateway asks for. */
const WAIT_MAX = 30_000;

/** What each call takes beside its fields. */
export interface RequestOptions {
  /** Ends the call; it rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Seconds for the whole call with its retries; 0 = none. */
  requestTimeout?: number | undefined;
}

/** @internal */
export interface HttpRequest extends RequestOptions {
  method: string;
  path: string;
  query?: Record<string, unknown> | undefined;
  headers?: Record<string, string> | undefined;
  json?: unknown;
  body?: BodyInit | undefined;
  /** false: once only, whatever happens. */
  retry?: boolean | undefined;
}

/** @internal Milliseconds before the nth try anew: doubling, and spread so that many clients do not come at once. */
export function pause(attempt: number, first = 100, most = 4000): number {
  return Math.min(most, first * 2 ** attempt) * (0.75 + Math.random() / 2);
}

// One signal for the caller's and for the time that is left.
class Deadline {
  readonly controller = new AbortController();
  readonly #caller: AbortSignal | undefined;
  readonly #seconds: number;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #late = false;

  constructor(seconds: number, caller: AbortSignal | undefined) {
    this.#seconds = seconds;
    this.#caller = caller;
    this.extend();
    if (caller?.aborted) this.controller.abort(caller.reason);
    else caller?.addEventListener("abort", this.#stop);
  }

  #stop = (): void => this.controller.abort(this.#caller?.reason);

  extend(): void {
    clearTimeout(this.#timer);
    if (this.#seconds === 0) return;
    this.#timer = setTimeout(() => {
      this.#late = true;
      this.controller.abort(this.error());
    }, this.#seconds * 1000);
  }

  untimed(): void {
    clearTimeout(this.#timer);
  }

  get over(): boolean {
    return this.#late || (this.#caller?.aborted ?? false);
  }

  error(): unknown {
    if (this.#caller?.aborted) return this.#caller.reason;
    return new RequestTimeoutError("request_timeout", `no answer within ${this.#seconds} s`);
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#caller?.removeEventListener("abort", this.#stop);
  }
}

function queryOf(query: Record<string, unknown> | undefined): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value === undefined || value === null) continue;
    if (typeof value === "object") {
      for (const [key, one] of Object.entries(value)) params.append(`${name}.${key}`, String(one));
    } else {
      params.append(name, String(value));
    }
  }
  const text = params.toString();
  return text && `?${text}`;
}

/** @internal An answer whose body is still to come; `end` has to be called when it was read. */
export interface Answer {
  response: Response;
  /** The time that is left counts anew. */
  extend(): void;
  /** Time does not count, until it is extended; the caller's signal does. */
  untimed(): void;
  /** Why its body broke off. */
  failure(cause: unknown): unknown;
  end(): void;
}

function answerOf(response: Response, deadline: Deadline): Answer {
  return {
    response,
    extend: () => deadline.extend(),
    untimed: () => deadline.untimed(),
    failure: (cause) => (deadline.over ? deadline.error() : new ConnectionError("connection_lost", `the answer broke off: ${reasonOf(cause)}`, { cause })),
    end: () => deadline.end(),
  };
}

/** @internal */
export class Http {
  constructor(readonly settings: Settings) {}

  async #headers(request: HttpRequest): Promise<Record<string, string>> {
    const headers: Record<string, string> = { ...this.settings.headers, ...request.headers };
    const key = await this.settings.key();
    if (key) headers["Authorization"] = `Bearer ${key}`;
    if (request.json !== undefined) headers["Content-Type"] = "application/json";
    for (const [name, value] of Object.entries(headers)) {
      if (/[^\t\x20-\x7e\x80-\xff]/.test(value)) throw refused(name, "has characters that no header can carry");
    }
    return headers;
  }

  async #once(request: HttpRequest, deadline: Deadline): Promise<Response> {
    const { fetch, baseUrl } = this.settings;
    const body = request.json !== undefined ? JSON.stringify(request.json) : request.body;
    const headers = await this.#headers(request);
    let response: Response;
    try {
      response = await fetch(baseUrl + request.path + queryOf(request.query), {
        method: request.method,
        headers,
        signal: deadline.controller.signal,
        ...(body === undefined ? {} : { body }),
      });
      if (response.ok) return response;
    } catch (cause) {
      if (deadline.over) throw deadline.error();
      throw new ConnectionError("connection_failed", `${baseUrl} cannot be reached: ${reasonOf(cause)}`, { cause });
    }
    throw await this.#failure(response);
  }

  async #failure(response: Response): Promise<SandalError> {
    const wait = Number(response.headers.get("retry-after") ?? undefined);
    const details = {
      requestId: response.headers.get("x-request-id") ?? undefined,
      retryAfter: Number.isFinite(wait) ? wait : undefined,
    };
    let body: { error?: object } = {};
    try {
      body = (await response.json()) as typeof body;
    } catch {
      // A proxy between us and the gateway: the status says all there is.
    }
    return errorOf(body.error, response.status, details);
  }

  /** Asks, and again where nothing was done or where twice is as good as once: every POST carries a key, under which it is done once. */
  async open(request: HttpRequest): Promise<Answer> {
    const deadline = new Deadline(number("requestTimeout", request.requestTimeout, this.settings.requestTimeout), request.signal);
    const id = unique();
    const headers = { "X-Request-Id": id, ...(request.method === "POST" ? { "Idempotency-Key": id } : {}), ...request.headers };
    const tries = request.retry === false ? 0 : this.settings.maxRetries;
    try {
      for (let attempt = 0; ; attempt++) {
        try {
          return answerOf(await this.#once({ ...request, headers }, deadline), deadline);
        } catch (error) {
          if (attempt > 0 && request.method === "DELETE" && (error as SandalError).status === 404) {
            return answerOf(new Response(null, { status: 204 }), deadline); // the try before did it
          }
          const again = error instanceof ConnectionError || passes(error);
          if (!again || attempt >= tries || deadline.over) throw error;
          const asked = (error as SandalError).retryAfter;
          await delay(asked === undefined ? pause(attempt) : Math.min(asked * 1000, WAIT_MAX), deadline.controller.signal);
        }
      }
    } catch (error) {
      deadline.end();
      throw error;
    }
  }

  /** The JSON of the answer, null where there is none, with the wire's names. */
  async json(request: HttpRequest): Promise<unknown> {
    const tries = request.method === "GET" && request.retry !== false ? this.settings.maxRetries : 0;
    for (let attempt = 0; ; attempt++) {
      const answer = await this.open(request);
      try {
        const text = await answer.response.text();
        return text ? (JSON.parse(text) as unknown) : null;
      } catch (cause) {
        const failure = answer.failure(cause);
        if (attempt >= tries || !(failure instanceof ConnectionError)) throw failure;
      } finally {
        answer.end();
      }
    }
  }

  /** An operation of the API by its name. */
  async call<K extends keyof Operations>(op: K, fields: Operations[K]["request"], options: RequestOptions = {}): Promise<Operations[K]["response"]> {
    const wire = snakeize(fields);
    const [method, template] = ROUTES[op].split(" ") as [string, string];
    const path = template.replace(/\{(\w+)\}/g, (_, name: string) => {
      const value = wire[name];
      delete wire[name];
      return segment(typeof value === "number" ? String(value) : (value as string));
    });
    const inQuery = method === "GET" || method === "DELETE";
    const answer = await this.json({
      method,
      path,
      ...(inQuery ? { query: wire } : { json: wire }),
      signal: options.signal,
      requestTimeout: options.requestTimeout,
    });
    return camelize<Operations[K]["response"]>(answer);
  }
}

/** @internal One part of a path. Ids and names never are "." or "..", which URLs would swallow. */
export function segment(text: string): string {
  if (typeof text !== "string" || text === "" || text === "." || text === "..") throw refused("id", `is ${JSON.stringify(text)}: an id or a name is wanted`);
  return encodeURIComponent(wellFormed("id", text));
}

/** @internal What went wrong, as far as fetch tells: Node keeps it in `cause`. */
export function reasonOf(error: unknown): string {
  const inner = (error as { cause?: { code?: string; message?: string } }).cause;
  return inner?.code ?? inner?.message ?? (error instanceof Error ? error.message : String(error));
}
