// `await using` wants this symbol, which engines before its time lack.
declare global {
  interface SymbolConstructor {
    readonly asyncDispose: unique symbol;
  }
}

if (!Symbol.asyncDispose) Object.defineProperty(Symbol, "asyncDispose", { value: Symbol("Symbol.asyncDispose") });

export {};
