// Looks at what people see seldom, at the sizes of a telephone, a laptop and a desk, light and dark: a token that expired, an inbox without
// a conversation, a suspension, and the page at twice its size.
// Usage: node states.js BASE_URL CHROMIUM SCREENSHOT_FOLDER EXPIRED_TOKEN SERVICE_TOKEN TOKEN…: a token of another user, user0 to user5,
// for each look.

import assert from "node:assert/strict";
import { launch, looker } from "./page.js";

const [base, executablePath, folder, expired, service, ...tokens] = process.argv.slice(2);
const { newContext, open, close } = await launch(base, executablePath);
const look = looker(folder);

const SIZES = { telephone: { width: 390, height: 844 }, laptop: { width: 1024, height: 768 }, desk: { width: 1440, height: 900 } };

async function ask(token, query) {
  const response = await fetch(new URL("graphql", base), {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
    body: JSON.stringify({ query }),
  });
  const { data, errors } = await response.json();
  assert.equal(errors, undefined, JSON.stringify(errors));
  return data;
}

async function signIn(page, token) {
  await page.locator("#token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
}

async function startConversation(page, username) {
  await page.getByRole("button", { name: "New conversation" }).click();
  await page.locator("#names").fill(username);
  await page.getByRole("button", { name: "Start" }).click();
  await page.locator("#room-title", { hasText: username }).waitFor();
}

/** As the browser shows it that a person has set to 200 %: half as many pixels, each twice as large. */
async function zoomed(viewport, colorScheme, name, token) {
  const half = { width: viewport.width / 2, height: viewport.height / 2 };
  const context = await newContext({ viewport: half, deviceScaleFactor: 2, colorScheme });
  const page = await open(context, "/demo");
  await look(page, `${name}-zoomed-door`);
  await signIn(page, token);
  await page.locator(".entry").first().waitFor();
  await look(page, `${name}-zoomed-inbox`);
  await page.locator(".entry").first().click();
  await page.locator("#text").fill("Line of a draft\n".repeat(8));
  await look(page, `${name}-zoomed-room`);
  await context.close();
}

try {
  const { exp } = JSON.parse(Buffer.from(expired.split(".")[1], "base64url"));
  while (Date.now() <= exp * 1_000) await new Promise((resolve) => setTimeout(resolve, 50));
  const looks = Object.entries(SIZES).flatMap(([size, viewport]) => ["light", "dark"].map((colorScheme) => ({ size, viewport, colorScheme })));
  for (const [number, { size, viewport, colorScheme }] of looks.entries()) {
    const name = `${size}-${colorScheme}`;
    const token = tokens[number];
    const hands = size === "telephone" ? { hasTouch: true, isMobile: true } : {};
    const context = await newContext({ viewport, colorScheme, ...hands });
    const page = await open(context, "/demo");
    await signIn(page, expired);
    await page.locator("#door-problem", { hasText: "expired" }).waitFor();
    await look(page, `${name}-expired`);

    await signIn(page, token);
    await page.locator("#inbox", { hasText: "No conversations yet" }).waitFor();
    await look(page, `${name}-empty`);

    await startConversation(page, `friend${number}`);
    if (size !== "telephone") await zoomed(viewport, colorScheme, name, token);

    await ask(service, `mutation { suspendUser(input: { username: "user${number}" }) { user { id } } }`);
    await page.locator("#door-problem", { hasText: "suspended" }).waitFor();
    await look(page, `${name}-suspended`);
    await context.close();
  }
} finally {
  await close();
}
