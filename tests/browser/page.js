// Shared driver of the page tests: a real browser that can reach only the server, and records errors of the page.

import assert from "node:assert/strict";
import { join } from "node:path";
import { chromium } from "playwright-core";

/** Picture that the driver answers in place of every other host. */
const PICTURE = `<svg xmlns="http://www.w3.org/2000/svg" width="1600" height="1200" viewBox="0 0 16 12"><rect width="16" height="12" fill="#f3c77a"/>
  <circle cx="8" cy="6" r="4.4" fill="#fff"/><circle cx="8" cy="6" r="3.6" fill="#b8452f"/><path d="M6 6q1-1.4 2 0t2 0" stroke="#f6e3c0" stroke-width=".5" fill="none"/></svg>`;

/** A browser that reaches this host alone. */
export const browserFor = (hostname, executablePath) => chromium.launch({
  executablePath,
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", `--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE ${hostname}`],
});

/** Runs in the page. The mark of a message that was jumped to goes after two seconds, which a busy machine misses: another one stays. */
function keepFound() {
  const keep = (changes) => changes.forEach(({ target }) => target.classList.contains("found") && target.setAttribute("data-was-found", ""));
  new MutationObserver(keep).observe(document, { subtree: true, attributeFilter: ["class"] });
}

export async function launch(base, executablePath) {
  const { host, hostname } = new URL(base);
  const strangers = new Set();
  const complaints = [];
  const pictures = [];
  const refusals = [];
  const browser = await browserFor(hostname, executablePath);

  async function newContext(options) {
    const context = await browser.newContext(options);
    await context.addInitScript(keepFound);
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
    page.on("websocket", (socket) => {
      if (new URL(socket.url()).host !== host) strangers.add(socket.url());
      socket.on("framereceived", ({ payload }) => String(payload).includes('"errors"') && refusals.push(`${path}: ${String(payload).slice(0, 1_000)}`));
    });
    await page.goto(new URL(path, base).href);
    return page;
  }

  /** Fails where something but a picture was asked of another host, or the console has an error that was not to be expected. */
  function check(isExpected = () => false) {
    assert.deepEqual([...strangers], [], "the page asks no host but its own");
    assert.deepEqual(complaints.filter((line) => !isExpected(line)), [], "the console is clean");
  }

  /** What a driver that failed should say of the page and of its streams. */
  const notes = () => [...complaints, ...refusals].join("\n");

  return { newContext, open, check, notes, pictures, close: () => browser.close() };
}

/** Changes what the API answers to a page or to all of a context. One that is closed or loaded anew meanwhile takes no answer. */
export const rewrite = (pages, change) => pages.route("**/graphql", async (route) => {
  try {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, body: change(await answer.text()) });
  } catch (error) {
    if (!/disposed|closed/.test(error.message)) throw error;
  }
});

/** How far a message is below the top of the list, which a bar above it moves. */
export const topInList = (message) => message.evaluate((node) => node.getBoundingClientRect().top - document.querySelector("#scroller").getBoundingClientRect().top);

export async function fits(page, name) {
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(overflow <= 0, `${name}: ${overflow} px too wide`);
}

/** Runs in the page. Returns the visible texts with too little contrast. */
export function paleTexts() {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = (top, under) => [0, 1, 2].map((index) => top[index] * top[3] + under[index] * (1 - top[3])).concat(1);
  const luminance = (color) => {
    const [red, green, blue] = color.slice(0, 3).map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const under = (element) => {
    const layers = [];
    for (let node = element; node; node = node.parentElement) layers.unshift(rgba(getComputedStyle(node).backgroundColor));
    return layers.reduce((color, layer) => over(layer, color), [255, 255, 255, 1]);
  };
  const pale = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const element = text.parentElement;
    if (!text.textContent.trim() || element.closest(".sr, script, noscript") || !element.checkVisibility({ opacityProperty: true })) continue;
    const ground = under(element);
    const [light, dark] = [luminance(over(rgba(getComputedStyle(element).color), ground)), luminance(ground)].sort((a, b) => b - a);
    const contrast = (light + 0.05) / (dark + 0.05);
    if (contrast < 4.5) pale.push(`${contrast.toFixed(2)} ${element.outerHTML.slice(0, 90)}`);
  }
  return pale;
}

/** Runs in the page. Returns the visible elements that hide a part of their text without an ellipsis. */
export function cutTexts() {
  const cut = [];
  for (const node of document.body.querySelectorAll("*")) {
    const { overflowX, overflowY, textOverflow, webkitLineClamp } = getComputedStyle(node);
    const hides = (overflow) => ["hidden", "clip"].includes(overflow);
    const isCut = (hides(overflowX) && textOverflow !== "ellipsis" && node.scrollWidth > node.clientWidth + 1)
      || (hides(overflowY) && webkitLineClamp === "none" && textOverflow !== "ellipsis" && node.scrollHeight > node.clientHeight + 1);
    if (isCut && node.textContent.trim() && !node.closest(".sr, svg") && node.checkVisibility()) cut.push(node.outerHTML.slice(0, 90));
  }
  return cut;
}

/** Runs in the page. Returns the controls in reach that are too small for a finger: under 44 pixels. Links in a text are as high as it. */
export function smallTargets() {
  const isInReach = (node) => node.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && !node.closest("[inert], .sr");
  return [...document.querySelectorAll("button, a, input, select, textarea, [role=option]")]
    .filter((node) => isInReach(node) && !node.closest(".body, .attachment, .picture"))
    .map((node) => [node, (node.closest("label") ?? node).getBoundingClientRect()])
    .filter(([, { width, height }]) => width && (width < 43.5 || height < 43.5))
    .map(([node, { width, height }]) => `${Math.round(width)} x ${Math.round(height)} ${node.outerHTML.slice(0, 90)}`);
}

/** Runs in the page. Returns the visible controls without a name. */
function nameless() {
  return [...document.querySelectorAll("button, a, input, textarea, [role=option]")]
    .filter((control) => control.checkVisibility() && !(control.ariaLabel || control.textContent.trim() || control.querySelector("img")?.alt || control.labels?.length))
    .map((control) => control.outerHTML.slice(0, 90));
}

/** Checks a page, and takes its picture: of each that fails, and of all of them but in a landing, where nobody looks at them. */
export async function checked(page, path, check) {
  let isRight = false;
  try {
    await check();
    isRight = true;
  } finally {
    if (!isRight || process.env.CI !== "true") await page.screenshot({ path });
  }
}

/** Looks at the chat page: the name begins with `telephone` where fingers are at work. */
export const looker = (folder) => (page, name) => checked(page, join(folder, `look-${name}.png`), async () => {
  await fits(page, name);
  assert.deepEqual(await page.evaluate(paleTexts), [], `${name}: contrast`);
  assert.deepEqual(await page.evaluate(nameless), [], `${name}: names`);
  if (name.startsWith("telephone")) {
    assert.deepEqual(await page.evaluate(cutTexts), [], `${name}: cut off`);
    assert.deepEqual(await page.evaluate(smallTargets), [], `${name}: targets`);
  }
});
