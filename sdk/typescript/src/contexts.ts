// The contexts of one sandbox: live kernels with their variables.
import { fieldsOf, idOf } from "./check.js";
import type { Core } from "./core.js";
import type { Completions, Context, Inspection, Operations, Variable } from "./generated.js";
import type { RequestOptions } from "./http.js";
import { Listing } from "./listing.js";
import type { ContextRef } from "./runs.js";

/** Seconds to wait for a busy context; else a busy one is a ConflictError `busy`. */
interface Waiting extends RequestOptions {
  wait?: number | undefined;
}

export class Contexts {
  readonly #core: Core;
  readonly #sandbox: string;

  /** @internal */
  constructor(core: Core, sandbox: string) {
    this.#core = core;
    this.#sandbox = sandbox;
  }

  #named(context: ContextRef): { sandbox: string; context: string } {
    return { sandbox: this.#sandbox, context: idOf(context) };
  }

  async create(fields: Omit<Operations["contexts.create"]["request"], "sandbox"> = {}, options?: RequestOptions): Promise<Context> {
    return this.#core.http.call("contexts.create", { ...fieldsOf(fields), sandbox: this.#sandbox }, options);
  }

  list(options?: RequestOptions): Listing<Context> {
    return new Listing(() => this.#core.http.call("contexts.list", { sandbox: this.#sandbox }, options));
  }

  get(context: ContextRef, options?: RequestOptions): Promise<Context> {
    return this.#core.http.call("contexts.get", this.#named(context), options);
  }

  update(context: ContextRef, fields: { name?: string | undefined }, options?: RequestOptions): Promise<Context> {
    return this.#core.http.call("contexts.update", { ...this.#named(context), ...fields }, options);
  }

  /** A fresh kernel under the same id: variables go, what runs ends as `aborted`. */
  reset(context: ContextRef, options?: RequestOptions): Promise<Context> {
    return this.#core.http.call("contexts.reset", this.#named(context), options);
  }

  /** Stops what runs and keeps the variables; whether there was anything to stop. */
  async interrupt(context: ContextRef, options?: RequestOptions): Promise<boolean> {
    return (await this.#core.http.call("contexts.interrupt", this.#named(context), options)).interrupted;
  }

  async remove(context: ContextRef, options?: RequestOptions): Promise<void> {
    await this.#core.http.call("contexts.delete", this.#named(context), options);
  }

  /** What could stand at `cursor` (in code points; the end by default). */
  complete(context: ContextRef, code: string, options: { cursor?: number | undefined } & Waiting = {}): Promise<Completions> {
    const { cursor, wait } = options;
    return this.#core.http.call("contexts.complete", { ...this.#named(context), code, cursor, wait }, options);
  }

  /** The kernel's documentation of what stands at `cursor`. */
  inspect(context: ContextRef, code: string, options: { cursor?: number | undefined; detail?: number | undefined } & Waiting = {}): Promise<Inspection> {
    const { cursor, detail, wait } = options;
    return this.#core.http.call("contexts.inspect", { ...this.#named(context), code, cursor, detail, wait }, options);
  }

  /** The variables with type, shape, size and a preview. */
  async variables(context: ContextRef, options: Waiting = {}): Promise<Variable[]> {
    return (await this.#core.http.call("contexts.variables", { ...this.#named(context), wait: options.wait }, options)).items;
  }
}
