// Signs in to the GraphiQL page with a token, as developers do, and looks at what the browser stores of it.
// Usage: node token.js BASE_URL CHROMIUM SCREENSHOT_FOLDER TOKEN. Exit code 0: all of it held.

import assert from "node:assert/strict";
import { launch } from "./page.js";

const [base, executablePath, , token] = process.argv.slice(2);
const { newContext, open, check, close } = await launch(base, executablePath);

/** Storage of the page that outlives its window. */
const stored = (page) => page.evaluate(() => JSON.stringify({ ...localStorage }));
const isSignedOut = (page) => page.locator("#sign-in").waitFor({ state: "visible" });
const isSignedIn = (page) => page.locator("#signed-in #viewer", { hasText: "alice" }).waitFor();

try {
  const context = await newContext({ viewport: { width: 1440, height: 900 } });
  const page = await open(context, "/");
  await isSignedOut(page);

  // An earlier version left it there: it signs nobody in, and goes.
  await page.evaluate((old) => localStorage.setItem("wideroom:token", old), token);
  await page.reload();
  await isSignedOut(page);
  assert.ok(!(await stored(page)).includes(token), "the token of an earlier version is removed");

  await page.locator("#token").fill(token);
  await page.locator("#sign-in button").click();
  await isSignedIn(page);
  // GraphiQL writes its tabs down by and by.
  await page.waitForFunction(() => localStorage.getItem("wideroom:alice:graphiql:tabState")?.includes("Inbox"));
  const [head, claims, signature] = token.split(".");
  for (const part of [claims, signature]) assert.ok(!(await stored(page)).includes(part), `${head}…: nothing of it is stored for good`);

  await page.getByRole("button", { name: /settings/i }).click();
  await page.getByText("Theme", { exact: true }).waitFor();
  assert.equal(await page.getByText("Persist headers").count(), 0, "headers cannot be stored");
  await page.keyboard.press("Escape");

  await page.reload();
  await isSignedIn(page);

  const other = await open(context, "/");
  await isSignedOut(other);

  await page.locator("#signed-in button").click();
  await isSignedOut(page);
  assert.equal(await page.evaluate(() => sessionStorage.getItem("wideroom:token")), "");
  // A request without a token is refused, which the console shows.
  check((line) => line.includes("401"));
} finally {
  await close();
}
