// Signs in to the chat with tokens that expire and that are revoked: the page says which, and the draft is there afterwards. Then with one of
// a name beyond ASCII.
// Usage: node expired.js BASE_URL CHROMIUM SCREENSHOT_FOLDER EXPIRED_TOKEN SERVICE_TOKEN. It writes "token NAME", and reads the token.

import assert from "node:assert/strict";
import { createInterface } from "node:readline";
import { launch } from "./page.js";

const [base, executablePath, , expired, service] = process.argv.slice(2);
const { newContext, open, close } = await launch(base, executablePath);
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function newToken(name = "alice") {
  console.log(`token ${name}`);
  return (await answers.next()).value;
}

try {
  const page = await open(await newContext(), "/demo");
  const signIn = async (token, at = page) => {
    await at.locator("#token").fill(token);
    await at.getByRole("button", { name: "Sign in" }).click();
  };
  const { exp } = JSON.parse(Buffer.from(expired.split(".")[1], "base64url"));
  while (Date.now() <= exp * 1_000) await page.waitForTimeout(50);
  await signIn(expired);
  await page.locator("#door-problem", { hasText: "expired" }).waitFor();

  await signIn(await newToken());
  await page.getByRole("button", { name: "New conversation" }).click();
  await page.locator("#names").fill("bob");
  await page.getByRole("button", { name: "Start" }).click();
  await page.locator("#room-title", { hasText: "bob" }).waitFor();
  await page.locator("#text").fill("Half a thought");

  const response = await fetch(new URL("graphql", base), {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${service}` },
    body: JSON.stringify({ query: "mutation { revokeTokens(input: { username: \"alice\" }) { revokedBefore } }" }),
  });
  assert.equal((await response.json()).errors, undefined);
  await page.locator("#door-problem", { hasText: "not accepted" }).waitFor();
  // A token is as old as its second: the first ones may be too old.
  let token;
  const isAccepted = async () => (await fetch(new URL("graphql", base), {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
    body: JSON.stringify({ query: "{ viewer { username } }" }),
  })).ok;
  do token = await newToken(); while (!(await isAccepted()));
  await signIn(token);
  await page.locator("#room-title", { hasText: "bob" }).waitFor();
  assert.equal(await page.locator("#text").inputValue(), "Half a thought");

  const other = await open(await newContext(), "/demo");
  await signIn(await newToken("žofie"), other);
  await other.locator("#me", { hasText: "žofie" }).waitFor();
  await other.getByRole("button", { name: "New conversation" }).click();
  await other.locator("#names").fill("alice");
  await other.getByRole("button", { name: "Start" }).click();
  await other.locator("#room-title", { hasText: "alice" }).waitFor();
  process.stdin.destroy();
} finally {
  await close();
}
