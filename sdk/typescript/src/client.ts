// The client: where everything begins.
import { camelize } from "./case.js";
import { fieldsOf, idOf } from "./check.js";
import { Core } from "./core.js";
import type { Context, Health, Key, NewKey, Operations, SandboxUsage, Template } from "./generated.js";
import { segment, type RequestOptions } from "./http.js";
import { Listing } from "./listing.js";
import { Sandbox, type Snapshot } from "./sandbox.js";
import type { SandalOptions } from "./settings.js";
import { Tools } from "./tools.js";

type SandboxRef = string | { readonly id: string };

export class Sandboxes {
  readonly #core: Core;

  /** @internal */
  constructor(core: Core) {
    this.#core = core;
  }

  /** Makes a sandbox from a template; ready when it resolves. */
  async create(fields: Operations["sandboxes.create"]["request"] = {}, options?: RequestOptions): Promise<Sandbox> {
    return new Sandbox(this.#core, await this.#core.http.call("sandboxes.create", fieldsOf(fields), options));
  }

  /** By id or name. */
  async get(sandbox: string, options?: RequestOptions): Promise<Sandbox> {
    return new Sandbox(this.#core, await this.#core.http.call("sandboxes.get", { sandbox }, options));
  }

  list(filter: Omit<Operations["sandboxes.list"]["request"], "after"> = {}, options?: RequestOptions): Listing<Sandbox> {
    return new Listing(async (after) => {
      const page = await this.#core.http.call("sandboxes.list", { ...filter, after }, options);
      return { items: page.items.map((info) => new Sandbox(this.#core, info)), next: page.next };
    });
  }

  async kill(sandbox: SandboxRef, options?: RequestOptions): Promise<void> {
    await this.#core.http.call("sandboxes.delete", { sandbox: idOf(sandbox) }, options);
  }
}

export class Snapshots {
  readonly #core: Core;

  /** @internal */
  constructor(core: Core) {
    this.#core = core;
  }

  list(options: RequestOptions = {}): Listing<Snapshot> {
    return new Listing(async (after) => camelize(await this.#core.http.json({ method: "GET", path: "/v1/snapshots", query: { after }, ...options })));
  }

  async get(id: string, options: RequestOptions = {}): Promise<Snapshot> {
    return camelize<Snapshot>(await this.#core.http.json({ method: "GET", path: `/v1/snapshots/${segment(id)}`, ...options }));
  }

  async delete(id: string, options: RequestOptions = {}): Promise<void> {
    await this.#core.http.json({ method: "DELETE", path: `/v1/snapshots/${segment(id)}`, ...options });
  }
}

export class Templates {
  readonly #core: Core;

  /** @internal */
  constructor(core: Core) {
    this.#core = core;
  }

  list(options?: RequestOptions): Listing<Template> {
    return new Listing(() => this.#core.http.call("templates.list", {}, options));
  }

  get(template: string, options?: RequestOptions): Promise<Template> {
    return this.#core.http.call("templates.get", { template }, options);
  }
}

/** Keys of the daemon; the scope `admin` is needed. */
export class Keys {
  readonly #core: Core;

  /** @internal */
  constructor(core: Core) {
    this.#core = core;
  }

  list(options?: RequestOptions): Listing<Key> {
    return new Listing(() => this.#core.http.call("keys.list", {}, options));
  }

  /** The answer has the key itself, this once. */
  create(fields: Operations["keys.create"]["request"] = {}, options?: RequestOptions): Promise<NewKey> {
    return this.#core.http.call("keys.create", fields, options);
  }

  async delete(id: string, options?: RequestOptions): Promise<void> {
    await this.#core.http.call("keys.delete", { id }, options);
  }
}

export class Sandal {
  readonly #core: Core;
  readonly sandboxes: Sandboxes;
  readonly snapshots: Snapshots;
  readonly templates: Templates;
  readonly keys: Keys;
  readonly tools: Tools;

  constructor(options: SandalOptions = {}) {
    this.#core = new Core(options);
    this.sandboxes = new Sandboxes(this.#core);
    this.snapshots = new Snapshots(this.#core);
    this.templates = new Templates(this.#core);
    this.keys = new Keys(this.#core);
    this.tools = new Tools(this.#core);
  }

  get baseUrl(): string {
    return this.#core.http.settings.baseUrl;
  }

  /** Seconds active and paused of every sandbox, also of those that have ended. */
  usage(options?: RequestOptions): Listing<SandboxUsage> {
    return new Listing((after) => this.#core.http.call("usage", { after }, options));
  }

  /** A context by its id alone, in whatever sandbox. */
  context(context: string, options?: RequestOptions): Promise<Context> {
    return this.#core.http.call("contexts.find", { context }, options);
  }

  health(options?: RequestOptions): Promise<Health> {
    return this.#core.http.call("health", {}, options);
  }

  /** Closes its WebSockets. Runs that are followed are followed anew over others; sandboxes stay. */
  close(): void {
    this.#core.sockets.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}
