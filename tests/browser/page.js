// Shared driver of the page tests: a real browser that can reach only the server, and records errors of the page.

import assert from "node:assert/strict";
import { chromium } from "playwright-core";

/** Picture that the driver answers in place of every other host. */
const PICTURE = `<svg xmlns="http://www.w3.org/2000/svg" width="1600" height="1200" viewBox="0 0 16 12"><rect width="16" height="12" fill="#f3c77a"/>
  <circle cx="8" cy="6" r="4.4" fill="#fff"/><circle cx="8" cy="6" r="3.6" fill="#b8452f"/><path d="M6 6q1-1.4 2 0t2 0" stroke="#f6e3c0" stroke-width=".5" fill="none"/></svg>`;

export async function launch(base, executablePath) {
  const { host, hostname } = new URL(base);
  const strangers = new Set();
  const complaints = [];
  const pictures = [];
  const browser = await chromium.launch({
    executablePath,
    args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync", `--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE ${hostname}`],
  });

  async function newContext(options) {
    const context = await browser.newContext(options);
    await context.route("**/*", (route) => {
      const url = new URL(route.request().url());
      if (url.host === host) return route.continue();
      if (url.protocol === "https:" && route.request().resourceType() === "image") {
        pictures.push({ url: url.href, referrer: route.request().headers().referer });
        return route.fulfill({ contentType: "image/svg+xml", body: PICTURE });
      }
      strangers.add(url.href);
      return route.abort();
    });
    return context;
  }

  async function open(context, path) {
    const page = await context.newPage();
    page.setDefaultTimeout(60_000);
    page.on("pageerror", (error) => complaints.push(`${path}: ${error.message}`));
    page.on("console", (message) => message.type() === "error" && complaints.push(`${path}: ${message.text()}`));
    page.on("websocket", (socket) => new URL(socket.url()).host !== host && strangers.add(socket.url()));
    await page.goto(new URL(path, base).href);
    return page;
  }

  /** Fails where something but a picture was asked of another host, or the console has an error that was not to be expected. */
  function check(isExpected = () => false) {
    assert.deepEqual([...strangers], [], "the page asks no host but its own");
    assert.deepEqual(complaints.filter((line) => !isExpected(line)), [], "the console is clean");
  }

  return { newContext, open, check, pictures, close: () => browser.close() };
}

export async function fits(page, name) {
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(overflow <= 0, `${name}: ${overflow} px too wide`);
}
