// What the tests share. The gateway is named by SANDAL_URL and SANDAL_API_KEY; tests/sdk_typescript starts it.
import assert from "node:assert/strict";
import { after } from "node:test";

const { Sandal } = await import(process.env.SANDAL_TEST_ENTRY ?? "../dist/esm/index.js");

export const transport = process.env.SANDAL_TEST_TRANSPORT ?? "auto";

export function client(options = {}) {
  return new Sandal({ transport, ...options });
}

/** A sandbox for all tests of a file. */
export async function sandbox(fields = {}) {
  const sandal = client();
  const sb = await sandal.sandboxes.create({ template: "code-interpreter-python", checkpointable: false, ...fields }); // forked: quicker
  after(async () => {
    await sb.kill();
    sandal.close();
  });
  return sb;
}

export async function all(iterable) {
  const items = [];
  for await (const item of iterable) items.push(item);
  return items;
}

/** Waits for a condition. */
export async function until(condition, seconds = 20) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const value = await condition();
    if (value) return value;
    assert.ok(Date.now() < end, "did not come true");
    await new Promise((resolve) => setTimeout(resolve, 20)); // between two looks
  }
}

/** The error of a promise that has to fail. */
export async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  assert.fail("did not fail");
}
