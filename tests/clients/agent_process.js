// Process of an agent for the tests: `node agent_process.js TASK`, as agent_process.py beside it. TASK is JSON: what `writeLive` takes, the
// parts of the text, and the ms between two of them. It prints JSON: the ids of the messages, whether it was told to stop, and its error.

import { setTimeout as wait } from "node:timers/promises";

import { writeLive } from "./agent.js";

const { token, parts, everyMs, steps, failsWith, ...task } = JSON.parse(process.argv[2]);
const ended = { ids: [], isStopped: false, error: null };
let signal;

async function* produce(live) {
  signal = live.signal;
  if (steps) live.setStatus("thinking");
  for (const [index, part] of parts.entries()) {
    if (steps?.[index]) live.setSteps(steps[index]);
    yield part;
    if (everyMs) await wait(everyMs, undefined, { signal });
  }
  if (failsWith) throw new Error(failsWith);
}

try {
  ended.ids = await writeLive({ ...task, token: () => token }, produce);
} catch (error) {
  ended.error = error.message;
}
ended.isStopped = signal.aborted;
console.log(JSON.stringify(ended));
