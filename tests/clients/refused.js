// Requests that are refused before their body was read, with what Node has: each reads the status and the code, every time.

import assert from "node:assert";
import http from "node:http";

const url = process.argv[2];
const MEGABYTE = 1e6;
const body = "x".repeat(MEGABYTE);
const json = { "content-type": "application/json" };

function form() {
  const form = new FormData();
  form.append("file", new Blob([body]), "file.bin");
  return form;
}

function chunks() {
  let left = 10;
  return new ReadableStream({
    pull(controller) {
      if (left === 0) return controller.close();
      left -= 1;
      controller.enqueue(new TextEncoder().encode("x".repeat(MEGABYTE / 10)));
    },
  });
}

const CASES = [
  ["JSON", 413, () => ({ headers: json, body: JSON.stringify({ query: body }) })],
  ["a form", 415, () => ({ body: form() })],
  ["another type", 415, () => ({ headers: { "content-type": "text/plain" }, body })],
  ["chunks", 413, () => ({ headers: json, body: chunks(), duplex: "half" })],
  ["a bad token", 401, () => ({ headers: { ...json, authorization: "Bearer x" }, body: JSON.stringify({ query: body }) })],
];

/** Asks first whether it may send its body, and is answered instead. */
function expecting() {
  return new Promise((resolve, reject) => {
    const headers = { "content-type": "text/plain", "content-length": MEGABYTE, expect: "100-continue" };
    const request = http.request(url, { method: "POST", headers }, (response) => {
      response.resume();
      response.on("end", () => resolve(response.statusCode));
    });
    request.on("continue", () => reject(new Error("it was asked for the body")));
    request.on("error", reject);
    request.flushHeaders();
  });
}

for (let round = 0; round < 10; round += 1) {
  for (const [name, status, init] of CASES) {
    const response = await fetch(url, { method: "POST", ...init() }).catch((error) => {
      throw new Error(`${name}: ${error.cause?.code ?? error.message}`);
    });
    const { errors } = await response.json();
    assert.equal(response.status, status, name);
    assert.ok(errors[0].extensions.code, name);
  }
  assert.equal(await expecting(), 415);
}
// Connections that are kept alive would keep it running.
process.exit(0);
