// Lists that come in pages.

interface Page<T> {
  items: T[];
  next: string | null;
}

/** A list: `await` gives all items, `for await` one after the other, a page ahead. Nothing is asked for before. */
export class Listing<T> implements PromiseLike<T[]>, AsyncIterable<T> {
  readonly #fetch: (after: string | undefined) => Promise<Page<T>>;

  /** @internal */
  constructor(fetch: (after: string | undefined) => Promise<Page<T>>) {
    this.#fetch = fetch;
  }

  async *[Symbol.asyncIterator](): AsyncIterator<T> {
    let after: string | undefined;
    do {
      const page = await this.#fetch(after);
      yield* page.items;
      after = page.next ?? undefined;
    } while (after !== undefined);
  }

  async #all(): Promise<T[]> {
    const items: T[] = [];
    for await (const item of this) items.push(item);
    return items;
  }

  then<A = T[], B = never>(fulfilled?: ((items: T[]) => A | PromiseLike<A>) | null, rejected?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<A | B> {
    return this.#all().then(fulfilled, rejected);
  }
}
