// Runs of code: starting, following, answering.
import { camelize, snakeize } from "./case.js";
import { idOf } from "./check.js";
import type { Core } from "./core.js";
import { ConflictError, NotFoundError } from "./errors.js";
import type { WireEvent } from "./follow.js";
import type { ClearEvent, DisplayEvent, ErrorEvent, ExecutionData, InputEvent, Operations, QueuedEvent, StartedEvent, TextEvent, TruncatedEvent, UpdateEvent } from "./generated.js";
import type { RequestOptions } from "./http.js";
import { Listing } from "./listing.js";
import { begun, Live, type Shape } from "./live.js";
import { unique } from "./platform.js";
import { Execution, Result } from "./result.js";

/** The last event of a run: the Execution itself. */
export type ResultEvent = Execution & { readonly type: "result"; readonly seq: number };

/** Something shown or shown anew, as a Result. */
export type RunEvent =
  | QueuedEvent
  | StartedEvent
  | TextEvent
  | (Omit<DisplayEvent, "result"> & { result: Result })
  | (Omit<UpdateEvent, "result"> & { result: Result })
  | ClearEvent
  | InputEvent
  | ErrorEvent
  | TruncatedEvent
  | ResultEvent;

/** A run of code that goes on. */
export type Run = Live<RunEvent, Execution>;

/** A context, or its id or name. */
export type ContextRef = string | { readonly id: string };

type Fields = Operations["run_code"]["request"];

/** Options of runCode. */
export interface RunOptions extends Omit<Fields, "sandbox" | "code" | "context" | "onInput" | "stream"> {
  /** Where it runs; else the default context of `language`, or of the sandbox. */
  context?: ContextRef | undefined;
  /** Events as they come: iterate the run. */
  stream?: boolean | undefined;
  /** What input() does when `stdin` has no line left: wait for `input()` of the run, raise, or ask this function. */
  onInput?: "wait" | "error" | ((request: InputEvent) => string | Promise<string>) | undefined;
  /** Ends the call with the signal's reason, and interrupts the run. */
  signal?: AbortSignal | undefined;
  /** As all callbacks: the promise that it may return is waited for before the call ends; what it throws ends the call and interrupts the run. */
  onStdout?: ((text: string) => unknown) | undefined;
  onStderr?: ((text: string) => unknown) | undefined;
  /** Each thing that is shown, also one that takes another's place. */
  onResult?: ((result: Result) => unknown) | undefined;
  /** Every event. */
  onEvent?: ((event: RunEvent) => unknown) | undefined;
}

/** Where to take up a run's events, and whether to go on after its result. */
export interface AttachOptions {
  /** The seq of the last event that is known; none: from the first on. */
  after?: number | undefined;
  /** Output after the result too, until the log expires. */
  late?: boolean | undefined;
  /** Ends the following, and not the run. */
  signal?: AbortSignal | undefined;
}

function eventOf(wire: WireEvent): RunEvent {
  const event = camelize<any>(wire);
  if (event.type === "result") return Object.assign(new Execution(event), { type: "result", seq: event.seq }) as ResultEvent;
  if (event.type === "display" || event.type === "update") event.result = new Result(event.result);
  return event as RunEvent;
}

function shape(keeps: boolean): Shape<RunEvent, Execution> {
  return { event: eventOf, result: (event) => event as ResultEvent, keeps };
}

const AWAITED = shape(false);
const ITERATED = shape(true);

function callbacks(options: RunOptions): Shape<RunEvent, Execution> {
  const { onStdout, onStderr, onResult, onEvent, onInput } = options;
  const heard = (event: RunEvent, run: Run, fail: (error: unknown) => void): unknown[] => {
    const returned = [onEvent?.(event)];
    if (event.type === "stdout") returned.push(onStdout?.(event.text));
    else if (event.type === "stderr") returned.push(onStderr?.(event.text));
    else if (event.type === "display" || event.type === "update") returned.push(onResult?.(event.result));
    // Not among them: a run that ends meanwhile, as by its timeout, is not kept back by a question that nobody needs answered any more.
    else if (event.type === "input" && typeof onInput === "function") answer(event, run, onInput).catch(fail);
    return returned;
  };
  return { ...shape(Boolean(options.stream)), heard };
}

// A run that gets no answer would wait for ever: a function that fails ends the call and interrupts the run.
async function answer(event: InputEvent, run: Run, ask: (request: InputEvent) => string | Promise<string>): Promise<void> {
  const value = await ask(event);
  if (typeof value !== "string") throw new TypeError(`onInput gave ${value === null ? "null" : typeof value}: a string is wanted`);
  try {
    await run.input(value);
  } catch (error) {
    if (!(error instanceof ConflictError || error instanceof NotFoundError)) throw error; // these: it waits no more
  }
}

/** @internal */
export function startRun(core: Core, sandbox: string, code: string, options: RunOptions): Run {
  const { context, stream, onInput, signal, onStdout, onStderr, onResult, onEvent, ...fields } = options;
  const listens = Boolean(onStdout || onStderr || onResult || onEvent || typeof onInput === "function");
  const policy = typeof onInput === "function" ? "wait" : (onInput ?? (stream ? undefined : "error"));
  const fieldsOf = () => snakeize({
    code,
    context: idOf(context),
    ...fields,
    onInput: policy,
    // A connection that goes is had again; what was asked for goes on meanwhile.
    onDisconnect: fields.onDisconnect ?? "detach",
    key: fields.key ?? unique(),
  });
  // An abort needs the run's id, which comes with its first event.
  const streams = Boolean(stream) || listens || signal !== undefined;
  const target = () => ({ op: "run_code" as const, sandbox, fields: fieldsOf(), stream: streams, late: false });
  return begun(core, target, listens ? callbacks(options) : stream ? ITERATED : AWAITED, signal);
}

/** The runs of one sandbox. */
export class Runs {
  readonly #core: Core;
  readonly #sandbox: string;

  /** @internal */
  constructor(core: Core, sandbox: string) {
    this.#core = core;
    this.#sandbox = sandbox;
  }

  /** Runs of code, without their outputs. */
  list(options: { context?: ContextRef | undefined; limit?: number | undefined } & RequestOptions = {}): Listing<Execution> {
    const { context, limit } = options;
    const fields = { sandbox: this.#sandbox, limit, context: idOf(context) };
    return new Listing(async (after) => {
      const page = await this.#core.http.call("runs.list", { ...fields, after }, options);
      return { items: page.items.map((item) => new Execution(item)), next: page.next };
    });
  }

  /** How it stands, or ended. */
  async get(run: string, options?: RequestOptions): Promise<Execution> {
    return new Execution((await this.#core.http.call("runs.get", { sandbox: this.#sandbox, run }, options)) as ExecutionData);
  }

  /** Follows a run from its first event, or from the one after `after`. */
  attach(run: string, options: AttachOptions = {}): Run {
    const fieldsOf = () => snakeize({ run, after: options.after });
    const target = () => ({ op: "runs.attach" as const, sandbox: this.#sandbox, fields: fieldsOf(), stream: true, late: options.late ?? false });
    return begun(this.#core, target, ITERATED, options.signal);
  }

  /** Answers a run that waits for input(). */
  async input(run: string, value: string, options?: RequestOptions): Promise<void> {
    await this.#core.http.call("runs.input", { sandbox: this.#sandbox, run, value }, options);
  }

  async interrupt(run: string, options?: RequestOptions): Promise<void> {
    await this.#core.http.call("runs.interrupt", { sandbox: this.#sandbox, run }, options);
  }
}
