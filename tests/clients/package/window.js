// The window of a conversation against a list that is kept naively, under random interleavings of pages, jumps, events, answers, trims and
// expiries: each message once, in order, without a gap, in its newest state. `node window.js [SEED]`; a failure prints its seed.

import assert from "node:assert/strict";

import { Window } from "../wideroom-client/window.js";

const RUNS = 3_000;
const STEPS = 60;
const PAGE = 5;
const KEPT = 8;

/** mulberry32. */
const randomOf = (seed) => () => {
  seed = (seed + 0x6d2b79f5) | 0;
  let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
};

const keyOf = (number) => String(number).padStart(6, "0");

/** A server with one conversation: it answers a read with the state of some moment between the request and the answer. */
class Server {
  messages = [];
  log = [];
  /** So many of the oldest messages have expired. */
  expired = 0;

  add() {
    const number = this.messages.length;
    this.messages.push({ id: `m${number}`, orderKey: keyOf(number), version: 0 });
    this.log.push(this.messages.at(-1));
  }

  edit(index) {
    const changed = { ...this.messages[index], version: this.messages[index].version + 1 };
    this.messages[index] = changed;
    this.log.push(changed);
  }

  isExpired({ orderKey }) {
    return Number(orderKey) < this.expired;
  }

  /** Pages are newest first, as those of the API. Cursors are keys. */
  page({ first, after, last, before, around }) {
    const newestFirst = this.messages.slice(this.expired).reverse();
    let [from, to] = [0, newestFirst.length];
    if (after !== undefined) from = newestFirst.findIndex(({ orderKey }) => orderKey < after);
    if (from < 0) from = to;
    if (before !== undefined) {
      to = newestFirst.findIndex(({ orderKey }) => orderKey <= before);
      if (to < 0) to = newestFirst.length;
    }
    if (around !== undefined) {
      const at = newestFirst.findIndex(({ id }) => id === around);
      if (at < 0) return null;
      from = Math.max(0, Math.min(at - Math.floor(first / 2), newestFirst.length - first));
    }
    if (first !== undefined) to = Math.min(to, from + first);
    if (last !== undefined) from = Math.max(from, to - last);
    const slice = newestFirst.slice(from, to);
    return {
      edges: slice.map((node) => ({ node })),
      pageInfo: {
        hasPreviousPage: from > 0, hasNextPage: to < newestFirst.length,
        startCursor: slice[0]?.orderKey ?? null, endCursor: slice.at(-1)?.orderKey ?? null,
      },
    };
  }
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

async function run(seed) {
  const random = randomOf(seed);
  const below = (count) => Math.floor(random() * count);
  const server = new Server();
  for (let count = 1 + below(40); count > 0; count -= 1) server.add();

  /** Reads under way: each is answered by the server at one step, and the answer arrives at a later one. */
  const reads = [];
  const window = new Window((page) => new Promise((resolve, reject) => {
    const wanted = { ...page, ...(page.first && { first: PAGE }), ...(page.last && { last: PAGE }) };
    reads.push({ wanted, resolve, reject, answer: null });
  }));
  const advance = () => {
    const read = reads[0];
    if (!read) return;
    if (!read.answer) { read.answer = { page: server.page(read.wanted) }; return; }
    reads.shift();
    if (!read.answer.page || random() < 0.1) read.reject(new Error("It is not found, or the network failed."));
    else read.resolve(read.answer.page);
  };

  let heard;
  const begun = window.begin(async () => { heard = server.log.length; return server.page({ first: PAGE }); });
  await begun;
  const hear = (count) => {
    for (; count > 0 && heard < server.log.length; count -= 1) window.upsert(server.log[heard++]);
    // A replay delivers some of them again, in their state of now.
    if (random() < 0.2) for (const old of server.log.slice(Math.max(0, heard - 3), heard)) window.upsert(server.messages[Number(old.orderKey)]);
  };

  const check = (isAtRest) => {
    const shown = window.messages.filter((message) => !server.isExpired(message));
    const keys = shown.map(({ orderKey }) => orderKey);
    const there = server.messages.slice(server.expired);
    const at = there.findIndex(({ orderKey }) => orderKey === keys[0]);
    const naive = there.slice(at, at + keys.length);
    assert.deepEqual(keys, naive.map(({ orderKey }) => orderKey), "in order, each once, without a gap");
    if (!isAtRest) return;
    assert.deepEqual(shown, naive, "in the newest state");
    if (window.isLive) assert.equal(keys.at(-1), there.at(-1)?.orderKey, "up to the newest");
    if (!window.hasOlder && (keys.length || window.isLive)) assert.equal(keys[0], there[0]?.orderKey, "from the oldest");
  };

  let trimmed = 0;
  const trim = () => {
    const before = window.messages;
    window.trim(KEPT);
    if (window.messages === before) return;
    trimmed += 1;
    assert.deepEqual([window.messages.length, window.hasOlder], [KEPT, true]);
  };
  let emptied = 0;
  /** No event says that messages expire: a timer takes them out. */
  const expire = (count) => {
    server.expired = Math.min(server.messages.length, server.expired + count);
    const before = window.messages.length;
    window.change((message) => (server.isExpired(message) ? null : message));
    if (before && !window.messages.length) emptied += 1;
  };
  const steps = [
    () => server.add(),
    () => server.edit(below(server.messages.length)),
    () => hear(1 + below(4)),
    () => hear(1 + below(4)),
    () => window.older().catch(() => {}),
    () => window.newer().catch(() => {}),
    () => random() < 0.3 && window.newest().catch(() => {}),
    () => window.around(`m${below(server.messages.length)}`).catch(() => {}),
    () => trim(),
    () => random() < 0.1 && expire(random() < 0.3 ? Infinity : below(PAGE)),
    advance, advance, advance,
  ];
  for (let step = 0; step < STEPS; step += 1) {
    steps[below(steps.length)]();
    await settled();
    check(false);
  }
  while (reads.length) { advance(); await settled(); }
  hear(Infinity);
  await settled();
  check(true);
  return { isLive: window.isLive, trimmed, emptied };
}

const seeds = process.argv[2] ? [Number(process.argv[2])] : Array.from({ length: RUNS }, (_, index) => index + 1);
let live = 0;
let trimmed = 0;
let emptied = 0;
for (const seed of seeds) {
  try {
    const ended = await run(seed);
    live += ended.isLive;
    trimmed += ended.trimmed;
    emptied += ended.emptied;
  } catch (error) {
    console.error(`seed ${seed}`);
    throw error;
  }
}
if (seeds.length > 1) assert.ok(trimmed > RUNS / 2, `only ${trimmed} trims`);
if (seeds.length > 1) assert.ok(emptied > RUNS / 10, `only ${emptied} windows lost every message`);
if (seeds.length > 1) assert.ok(live > RUNS / 10 && live < RUNS, `both kinds of windows: ${live} of ${RUNS} end live`);
