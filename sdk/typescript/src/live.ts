// Something that goes on: await it for its end, iterate it for what comes on the way.
import type { Core } from "./core.js";
import { Following, type Target, type WireEvent } from "./follow.js";

/** @internal How a kind of run becomes what callers see. */
export interface Shape<E, R> {
  event(wire: WireEvent): E;
  result(event: E): R;
  /** Whether events are kept for who iterates. */
  keeps: boolean;
  /** Calls the options' callbacks and gives what they returned; `fail` is for what nothing waits for. */
  heard?(event: E, live: Live<E, R>, fail: (error: unknown) => void): unknown[];
}

/** @internal A run that was refused before it was sent: `begin` says what to send, or throws. */
export function begun<E, R>(core: Core, begin: () => Target, shape: Shape<E, R>, signal: AbortSignal | undefined): Live<E, R> {
  try {
    return new Live(core, begin(), shape, signal);
  } catch (error) {
    const none: Target = { op: "run_code", sandbox: "", fields: {}, stream: false, late: false };
    return new Live(core, none, shape, AbortSignal.abort(error));
  }
}

interface Waiting<E> {
  resolve(result: IteratorResult<E, void>): void;
  reject(error: unknown): void;
}

/**
 * A run that goes on in the gateway. `await` gives how it ended; `for await` gives its events, the last of which is the result. Both
 * may be done. Leaving the loop early leaves the run alone, unless `onDisconnect` says otherwise.
 */
export class Live<E, R> implements Promise<R>, AsyncIterable<E> {
  readonly [Symbol.toStringTag] = "Run";
  readonly #core: Core;
  readonly #target: Target;
  readonly #shape: Shape<E, R>;
  readonly #following: Following | undefined;
  readonly #signal: AbortSignal | undefined;
  readonly #ended: Promise<R>;
  #resolve!: (result: R) => void;
  #reject!: (error: unknown) => void;
  #events: E[] = [];
  #waiting: Waiting<E> | undefined;
  #failed: { error: unknown } | undefined;
  #isOver = false;
  #isIterated = false;
  #isUnwanted = false;
  #announce: (() => void) | undefined;
  #known: Promise<void> | undefined;
  /** Promises of callbacks that have not settled; the result waits for them. */
  #pending = 0;
  #conclude: (() => void) | undefined;

  /** @internal */
  constructor(core: Core, target: Target, shape: Shape<E, R>, signal: AbortSignal | undefined) {
    this.#core = core;
    this.#target = target;
    this.#shape = shape;
    this.#signal = signal;
    this.#ended = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    if (signal?.aborted) {
      this.#settle({ error: signal.reason });
      return;
    }
    signal?.addEventListener("abort", this.#abort);
    this.#following = new Following(core.http, core.sockets, target, {
      event: (wire) => this.#event(wire),
      end: () => this.#settle(undefined),
      fail: (error) => this.#settle({ error }),
    });
  }

  /** Id of the run; null until the first event came. */
  get id(): string | null {
    return this.#following?.run ?? null;
  }

  #event(wire: WireEvent): void {
    this.#announce?.();
    if (this.#isUnwanted) return void this.#drop();
    const event = this.#shape.event(wire);
    if (this.#waiting) {
      const waiting = this.#waiting;
      this.#waiting = undefined;
      waiting.resolve({ done: false, value: event });
    } else if (this.#shape.keeps) {
      this.#events.push(event);
    }
    this.#hear(event);
    if (wire.type !== "result") return;
    const result = this.#shape.result(event);
    this.#conclude = () => this.#resolve(result);
    if (this.#pending === 0) this.#conclude();
  }

  #hear(event: E): void {
    try {
      for (const returned of this.#shape.heard?.(event, this, this.#giveUp) ?? []) {
        if (typeof (returned as PromiseLike<unknown> | undefined)?.then !== "function") continue;
        this.#pending++;
        (returned as PromiseLike<unknown>).then(() => {
          if (--this.#pending === 0) this.#conclude?.();
        }, this.#giveUp);
      }
    } catch (error) {
      this.#giveUp(error);
    }
  }

  #settle(failed: { error: unknown } | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#failed = failed;
    this.#announce?.();
    this.#signal?.removeEventListener("abort", this.#abort);
    if (failed) this.#reject(failed.error);
    const waiting = this.#waiting;
    this.#waiting = undefined;
    if (failed) waiting?.reject(failed.error);
    else waiting?.resolve({ done: true, value: undefined });
  }

  #abort = (): void => this.#giveUp(this.#signal?.reason);

  // For an abort, or a callback's own failure. The caller is told at once; a run that was started here is interrupted as soon as its id
  // is known.
  #giveUp = (error: unknown): void => {
    const isOwn = !this.#target.op.endsWith(".attach");
    if (this.#isOver) return this.#reject(error); // the run has ended, and its result waits for callbacks, or this comes too late
    this.#settle({ error });
    if (!isOwn) return this.#following?.leave();
    this.#isUnwanted = true;
    if (this.id !== null) void this.#drop();
  };

  async #drop(): Promise<void> {
    this.#following?.leave();
    await this.interrupt().catch(() => {}); // it has ended, or the gateway is gone: nobody waits for it any more
  }

  /** Resolves when the run's id is known. */
  async #started(): Promise<string> {
    if (this.id === null && !this.#isOver) {
      this.#known ??= new Promise((resolve) => (this.#announce = resolve));
      await this.#known;
    }
    if (this.id === null) await this.#ended; // rejects with the reason
    return this.id as string;
  }

  /** Interrupts the run, whose end comes as its result. One that has ended stays as it is. */
  async interrupt(): Promise<void> {
    await this.#core.http.call("runs.interrupt", { sandbox: this.#target.sandbox, run: await this.#started() });
  }

  /** Answers an `input` event. */
  async input(value: string): Promise<void> {
    await this.#core.http.call("runs.input", { sandbox: this.#target.sandbox, run: await this.#started(), value });
  }

  then<A = R, B = never>(fulfilled?: ((result: R) => A | PromiseLike<A>) | null, rejected?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<A | B> {
    return this.#ended.then(fulfilled, rejected);
  }

  catch<B = never>(rejected?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<R | B> {
    return this.#ended.catch(rejected);
  }

  finally(done?: (() => void) | null): Promise<R> {
    return this.#ended.finally(done);
  }

  [Symbol.asyncIterator](): AsyncIterator<E, void> {
    if (this.#isIterated) throw new TypeError("a run is iterated once; runs.attach() gives its events again");
    this.#isIterated = true;
    this.#ended.catch(() => {}); // the loop tells of it
    return {
      next: () => this.#next(),
      return: async () => {
        await this.#leave();
        return { done: true, value: undefined };
      },
    };
  }

  #next(): Promise<IteratorResult<E, void>> {
    const event = this.#events.shift();
    if (event !== undefined) return Promise.resolve({ done: false, value: event });
    if (this.#failed) return Promise.reject(this.#failed.error);
    if (this.#isOver) return this.#ended.then(() => ({ done: true, value: undefined })); // callbacks may still be at work
    return new Promise((resolve, reject) => (this.#waiting = { resolve, reject }));
  }

  async #leave(): Promise<void> {
    this.#events = [];
    if (this.#isOver) return;
    const policy = this.#target.fields["on_disconnect"];
    if (policy === "interrupt" || policy === "kill") await this.interrupt().catch(() => {});
    this.#signal?.removeEventListener("abort", this.#abort);
    this.#following?.leave();
    this.#isOver = true;
    this.#reject(new DOMException("the loop over the run's events was left", "AbortError"));
  }
}
