// Files of a sandbox: whole, in streams, and in parts that are sent anew where one was lost (tus 1.0).
import { camelize } from "./case.js";
import { bytes, wellFormed } from "./check.js";
import type { Core } from "./core.js";
import { ConnectionError, SandalError } from "./errors.js";
import { passes } from "./failure.js";
import { linesOf } from "./follow.js";
import type { Entry, FileEvent } from "./generated.js";
import { pause, segment, type Answer, type RequestOptions } from "./http.js";
import { Listing } from "./listing.js";
import { delay, toBase64 } from "./platform.js";

/** Bytes that go in one request; more goes in parts, for a whole request that is cut begins anew. */
const PART = 4 << 20;
const TUS = { "Tus-Resumable": "1.0.0" };

/** A path, absolute or from /workspace; or an Entry, whose name need not be UTF-8. */
export type Path = string | { readonly path: string; readonly pathBase64?: string | undefined };

/** What can be written. Streams may be of any length. */
export type Data = string | ArrayBuffer | ArrayBufferView | Blob | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array | string>;

/** Bytes done, and bytes in all where that is known. */
export interface UploadProgress {
  done: number;
  total: number | null;
}

interface Progress extends RequestOptions {
  onProgress?: ((progress: UploadProgress) => void) | undefined;
}

export interface ReadOptions extends Progress {
  /** The first byte. */
  offset?: number | undefined;
  /** How many bytes at most. */
  length?: number | undefined;
}

export interface WriteOptions extends Progress {
  /** Octal, as "755"; else that of the file that is there, else 644. */
  mode?: string | undefined;
  /** Only over a file with this ETag. */
  ifMatch?: string | undefined;
  /** "*": only where no file is. */
  ifNoneMatch?: string | undefined;
}

export interface WatchOptions {
  /** What is below the directories in it, too. */
  recursive?: boolean | undefined;
  signal?: AbortSignal | undefined;
}

function query(path: Path, name = "path"): Record<string, unknown> {
  if (typeof path === "string") return { [name]: wellFormed(name, path) };
  return path.pathBase64 === undefined ? { [name]: path.path } : { [`${name}_base64`]: path.pathBase64 };
}

function isStream(data: Data): data is ReadableStream<Uint8Array> | AsyncIterable<Uint8Array | string> {
  return typeof data === "object" && data !== null && (data instanceof ReadableStream || Symbol.asyncIterator in data);
}

function typeName(value: unknown): string {
  return typeof value === "object" ? Object.prototype.toString.call(value).slice(8, -1) : typeof value;
}

function blobOf(data: unknown): Blob {
  if (data instanceof Blob) return data;
  // By name: a buffer of another realm, as test runners and frames have, is one too.
  if (typeof data === "string" || ArrayBuffer.isView(data) || typeName(data) === "ArrayBuffer") return new Blob([data as BlobPart]);
  throw new TypeError(`fs.write was given ${typeName(data)}: text, bytes, a Blob, a stream or an async iterable is wanted`);
}

function bytesOf(chunk: unknown): Uint8Array {
  if (typeof chunk === "string") return new TextEncoder().encode(chunk);
  if (ArrayBuffer.isView(chunk)) return new Uint8Array(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  if (typeName(chunk) === "ArrayBuffer") return new Uint8Array(chunk as ArrayBuffer);
  throw new TypeError(`a stream for fs.write gave ${typeName(chunk)}: text or bytes are wanted`);
}

async function* chunks(data: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array | string>): AsyncGenerator<Uint8Array> {
  if (!(data instanceof ReadableStream)) {
    for await (const chunk of data) yield bytesOf(chunk);
    return;
  }
  const reader = data.getReader(); // not all browsers iterate streams
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield bytesOf(value);
  }
}

/** Parts of a stream, each as large as PART but for the last. */
async function* parts(data: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array | string>): AsyncGenerator<Blob> {
  let kept: BlobPart[] = [];
  let size = 0;
  for await (const chunk of chunks(data)) {
    kept.push(chunk.slice() as Uint8Array<ArrayBuffer>); // the giver may use its buffer again
    size += chunk.length;
    if (size < PART) continue;
    yield new Blob(kept);
    kept = [];
    size = 0;
  }
  if (size > 0) yield new Blob(kept);
}

async function* slices(blob: Blob): AsyncGenerator<Blob> {
  for (let from = 0; from < blob.size; from += PART) yield blob.slice(from, from + PART);
}

function base64(text: string): string {
  return toBase64(new TextEncoder().encode(text));
}

export class Files {
  readonly #core: Core;
  readonly #base: string;

  /** @internal */
  constructor(core: Core, sandbox: string) {
    this.#core = core;
    this.#base = `/v1/sandboxes/${segment(sandbox)}/fs`;
  }

  async read(path: Path, options: ReadOptions = {}): Promise<Uint8Array<ArrayBuffer>> {
    const download = new Download(this.#core, `${this.#base}/file`, query(path), options);
    for (let changes = 0; ; changes++) {
      const chunks: Uint8Array<ArrayBuffer>[] = [];
      try {
        await download.open();
        for (let chunk = await download.next(); chunk; chunk = await download.next()) chunks.push(chunk);
        return new Uint8Array(await new Blob(chunks).arrayBuffer());
      } catch (error) {
        // Nothing was handed on yet: what was begun of a file that is another one now is begun anew.
        if (!(error instanceof FileChanged) || changes >= this.#core.http.settings.maxRetries) throw error;
        download.restart();
      }
    }
  }

  async readText(path: Path, options: ReadOptions = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(path, options));
  }

  /** The bytes as they come. A connection that goes is had again, as long as the file stays as it is. */
  async readStream(path: Path, options: ReadOptions = {}): Promise<ReadableStream<Uint8Array<ArrayBuffer>>> {
    const download = new Download(this.#core, `${this.#base}/file`, query(path), options);
    await download.open();
    return new ReadableStream({
      pull: async (controller) => {
        const chunk = await download.next();
        if (chunk) controller.enqueue(chunk);
        else controller.close();
      },
      cancel: () => download.end(),
    });
  }

  /** Writes a file whole: readers see the old one or the new one. Missing parents are made. */
  async write(path: Path, data: Data, options: WriteOptions = {}): Promise<void> {
    if (isStream(data)) return this.#upload(path, null, parts(data), options);
    const blob = blobOf(data); // a copy: the caller may go on with its own
    const conditional = options.ifMatch !== undefined || options.ifNoneMatch !== undefined;
    if (!conditional && (options.onProgress ? blob.size > 0 : blob.size > PART)) {
      return this.#upload(path, blob.size, slices(blob), options);
    }
    const headers: Record<string, string> = { "Content-Type": "application/octet-stream" };
    if (options.ifMatch !== undefined) headers["If-Match"] = options.ifMatch;
    if (options.ifNoneMatch !== undefined) headers["If-None-Match"] = options.ifNoneMatch;
    await this.#core.http.json({
      method: "PUT",
      path: `${this.#base}/file`,
      query: { ...query(path), mode: options.mode },
      headers,
      body: await blob.arrayBuffer(), // not a Blob: Deno sends an empty one without a length
      retry: !conditional, // a second try would meet what the first one did
      signal: options.signal,
      requestTimeout: options.requestTimeout,
    });
    options.onProgress?.({ done: blob.size, total: blob.size });
  }

  async #upload(path: Path, total: number | null, data: AsyncIterable<Blob>, options: WriteOptions): Promise<void> {
    const upload = new Upload(this.#core, `${this.#base}/uploads`, options);
    try {
      await upload.create(path, total);
      for await (const part of data) {
        await upload.append(part, upload.offset + part.size === total);
        options.onProgress?.({ done: upload.offset, total });
      }
      if (total === null) await upload.finish();
    } catch (error) {
      await upload.cancel();
      throw error;
    }
  }

  /** What a directory holds, in the order of paths; `depth` levels deep. */
  list(path: Path = ".", options: { depth?: number | undefined; limit?: number | undefined } & RequestOptions = {}): Listing<Entry> {
    const { depth, limit, signal, requestTimeout } = options;
    return new Listing(async (after) =>
      camelize(await this.#core.http.json({ method: "GET", path: `${this.#base}/dir`, query: { ...query(path), depth, limit, after }, signal, requestTimeout })),
    );
  }

  /** Of a link itself, unless `follow`. */
  async stat(path: Path, options: { follow?: boolean | undefined } & RequestOptions = {}): Promise<Entry> {
    const { follow, signal, requestTimeout } = options;
    return camelize<Entry>(await this.#core.http.json({ method: "GET", path: `${this.#base}/stat`, query: { ...query(path), follow }, signal, requestTimeout }));
  }

  async exists(path: Path, options: RequestOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (error) {
      if (error instanceof SandalError && error.code === "not_found") return false;
      throw error;
    }
  }

  /** Makes a directory and what is missing above it. */
  async mkdir(path: Path, options: { mode?: string | undefined; parents?: boolean | undefined } & RequestOptions = {}): Promise<Entry> {
    const { mode, parents, signal, requestTimeout } = options;
    return camelize<Entry>(await this.#core.http.json({ method: "POST", path: `${this.#base}/dir`, json: { ...query(path), mode, parents }, signal, requestTimeout }));
  }

  async move(from: Path, to: Path, options: { overwrite?: boolean | undefined } & RequestOptions = {}): Promise<Entry> {
    const { overwrite, signal, requestTimeout } = options;
    const json = { ...query(from, "from"), ...query(to, "to"), overwrite };
    return camelize<Entry>(await this.#core.http.json({ method: "POST", path: `${this.#base}/move`, json, signal, requestTimeout }));
  }

  /** A file or an empty directory; a full one with `recursive`. */
  async remove(path: Path, options: { recursive?: boolean | undefined } & RequestOptions = {}): Promise<void> {
    const { recursive, signal, requestTimeout } = options;
    await this.#core.http.json({ method: "DELETE", path: `${this.#base}/file`, query: { ...query(path), recursive }, signal, requestTimeout });
  }

  /**
   * Changes of a file or directory, until the loop is left. `overflow` means that some were missed, as after a connection that
   * went: list anew. Nothing that happens after its `ready()` goes unseen.
   */
  watch(path: Path, options: WatchOptions = {}): FileWatch {
    return new FileWatch(this.#watch(path, options));
  }

  // null once the watch stands, then its events.
  async *#watch(path: Path, { signal, recursive }: WatchOptions): AsyncGenerator<FileEvent | null> {
    const since = { down: 0, tries: 0 };
    for (let first = true; ; first = false) {
      let answer: Answer | undefined;
      try {
        answer = await this.#core.http.open({ method: "GET", path: `${this.#base}/watch`, query: { ...query(path), recursive }, signal, headers: { Accept: "application/x-ndjson" } });
        answer.untimed();
        yield first ? null : { type: "overflow" };
        for await (const line of linesOf(answer, this.#core.http.settings.silenceTimeout)) {
          since.down = since.tries = 0;
          const event = camelize<FileEvent>(JSON.parse(line));
          yield event;
        }
        return; // what was watched is gone
      } catch (cause) {
        const error = cause instanceof SandalError || !answer ? cause : answer.failure(cause);
        since.down ||= Date.now();
        if (!(error instanceof ConnectionError) || Date.now() - since.down > this.#core.http.settings.reconnectTimeout * 1000) throw error;
        await delay(pause(since.tries++), signal);
      } finally {
        answer?.end();
      }
    }
  }
}

/** What `watch` gives: changes, to be iterated once. */
export class FileWatch implements AsyncIterableIterator<FileEvent> {
  readonly #events: AsyncGenerator<FileEvent | null>;
  #ready: Promise<unknown> | undefined;

  /** @internal */
  constructor(events: AsyncGenerator<FileEvent | null>) {
    this.#events = events;
  }

  /** Resolves once the watch stands, and rejects where it cannot. The loop begins it, too. */
  async ready(): Promise<void> {
    await (this.#ready ??= this.#events.next());
  }

  async next(): Promise<IteratorResult<FileEvent, undefined>> {
    await this.ready();
    return (await this.#events.next()) as IteratorResult<FileEvent, undefined>;
  }

  async return(): Promise<IteratorResult<FileEvent, undefined>> {
    await this.#events.return(undefined);
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}

class FileChanged extends ConnectionError {}

/** Age in ms from which on the gateway gives a strong ETag, by which a download goes on; and some more. */
const SETTLED = 1100;

// A file on its way here.
class Download {
  #answer: Answer | undefined;
  #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  #offset: number;
  #done = 0;
  #total: number | null = null;
  #tag: string | null = null;
  #tries = 0;
  readonly #end: number | undefined;

  constructor(
    readonly core: Core,
    readonly path: string,
    readonly query: Record<string, unknown>,
    readonly options: ReadOptions,
  ) {
    this.#offset = bytes("offset", options.offset) ?? 0;
    const length = bytes("length", options.length);
    this.#end = length === undefined ? undefined : this.#offset + length;
  }

  async open(): Promise<void> {
    const headers: Record<string, string> = {};
    if (this.#end === this.#offset) return; // no range is empty
    if (this.#offset > 0 || this.#end !== undefined) headers["Range"] = `bytes=${this.#offset}-${this.#end === undefined ? "" : this.#end - 1}`;
    if (this.#done > 0) headers["If-Range"] = (this.#tag as string).replace(/^W\//, "");
    const { signal, requestTimeout } = this.options;
    this.#answer = await this.core.http.open({ method: "GET", path: this.path, query: this.query, headers, signal, requestTimeout });
    const { response } = this.#answer;
    if (this.#done > 0 && response.status !== 206) {
      this.end();
      const error = new FileChanged("connection_lost", "the connection went, and the file has changed since, or has no ETag that could tell");
      error.name = "ConnectionError"; // the class is ours alone
      throw error;
    }
    const length = response.headers.get("content-length");
    if (this.#total === null && length !== null) this.#total = Number(length);
    this.#tag = response.headers.get("etag");
    this.#answer.untimed();
    this.#reader = (response.body as ReadableStream<Uint8Array>).getReader();
  }

  async next(): Promise<Uint8Array<ArrayBuffer> | undefined> {
    while (this.#reader) {
      try {
        this.#answer?.extend();
        const { done, value } = await this.#reader.read();
        this.#answer?.untimed(); // the reader may take its time
        if (done) break;
        this.#offset += value.length;
        this.#done += value.length;
        this.#tries = 0;
        this.options.onProgress?.({ done: this.#done, total: this.#total });
        return value as Uint8Array<ArrayBuffer>;
      } catch (cause) {
        await this.#again(cause);
      }
    }
    this.end();
    return undefined;
  }

  async #again(cause: unknown): Promise<void> {
    const error = this.#answer?.failure(cause);
    this.end();
    if (!(error instanceof ConnectionError) || this.#tries >= this.core.http.settings.maxRetries) throw error;
    if (this.#done > 0 && this.#tag === null) {
      throw new ConnectionError("connection_lost", "the connection went, and without an ETag nothing says that the file is still the same", { cause });
    }
    // A weak tag is that of a file written less than a second ago. If nobody writes it again, the same tag is strong after that.
    const settles = this.#done > 0 && this.#tag?.startsWith("W/") ? SETTLED : 0;
    await delay(Math.max(settles, pause(this.#tries++)), this.options.signal);
    await this.open();
  }

  /** From the first byte, whatever came. */
  restart(): void {
    this.#offset -= this.#done;
    this.#done = this.#tries = 0;
    this.#total = this.#tag = null;
  }

  end(): void {
    this.#reader?.cancel().catch(() => {});
    this.#reader = undefined;
    this.#answer?.end();
  }
}

// A file on its way there, in parts.
class Upload {
  #url = "";
  offset = 0;

  constructor(
    readonly core: Core,
    readonly path: string,
    readonly options: WriteOptions,
  ) {}

  #send(method: string, path: string, headers: Record<string, string>, body?: ArrayBuffer, retry = true): Promise<Answer> {
    const { signal, requestTimeout } = this.options;
    return this.core.http.open({ method, path, headers: { ...TUS, ...headers }, body, retry, signal, requestTimeout });
  }

  async create(path: Path, total: number | null): Promise<void> {
    const named = typeof path === "string" || path.pathBase64 === undefined ? base64(typeof path === "string" ? wellFormed("path", path) : path.path) : path.pathBase64;
    const mode = this.options.mode === undefined ? "" : `,mode ${base64(this.options.mode)}`;
    const length: Record<string, string> = total === null ? { "Upload-Defer-Length": "1" } : { "Upload-Length": String(total) };
    const answer = await this.#send("POST", this.path, { ...length, "Upload-Metadata": `path ${named}${mode}` });
    answer.end();
    const id = answer.response.headers.get("location")?.split("/").at(-1);
    if (!id) throw new SandalError("internal", "the gateway did not say where the upload is");
    this.#url = `${this.path}/${id}`;
  }

  /** Sends a part, and what is missing of it again as long as that gets anywhere. The last one puts the file in place. */
  async append(part: Blob, isLast: boolean, headers: Record<string, string> = {}): Promise<void> {
    const start = this.offset;
    const end = start + part.size;
    for (let tries = 0; ; ) {
      try {
        await this.#patch(part.slice(this.offset - start), headers);
        this.offset = end;
        return;
      } catch (error) {
        const isBusy = error instanceof SandalError && error.status === 409; // the part before is still being put away
        if (!(error instanceof ConnectionError || isBusy || passes(error)) || tries >= this.core.http.settings.maxRetries) throw error;
        await delay(pause(tries++), this.options.signal);
      }
      const { offset, done } = await this.#state();
      if (offset > this.offset) tries = 0;
      this.offset = offset;
      if (done || (!isLast && offset === end)) return;
    }
  }

  async #patch(body: Blob, headers: Record<string, string>): Promise<void> {
    const answer = await this.#send("PATCH", this.#url, { ...headers, "Content-Type": "application/offset+octet-stream", "Upload-Offset": String(this.offset) }, await body.arrayBuffer(), false);
    answer.end();
  }

  #state(): Promise<{ offset: number; done: boolean }> {
    const { signal, requestTimeout } = this.options;
    return this.core.http.json({ method: "GET", path: this.#url, headers: TUS, signal, requestTimeout }) as Promise<{ offset: number; done: boolean }>;
  }

  /** Says how long it was: that puts the file in place. */
  finish(): Promise<void> {
    return this.append(new Blob([]), true, { "Upload-Length": String(this.offset) });
  }

  async cancel(): Promise<void> {
    if (!this.#url) return;
    const request = { method: "DELETE", path: this.#url, headers: TUS, retry: false };
    await this.core.http.json(request).catch(() => {}); // it ends by itself in an hour
  }
}
