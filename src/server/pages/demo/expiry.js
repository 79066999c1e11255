// Messages that expire. The API has no event for each: `expiresAt` says when a client drops a message.

const TIMER_MAX = 2 ** 31 - 1;
const DAY = 86_400;

/** The choices of the menu, in seconds. */
export const EXPIRIES = [[null, "Off"], [DAY, "1 day"], [7 * DAY, "1 week"], [30 * DAY, "30 days"]];

const UNITS = [[DAY, "day"], [3_600, "hour"], [60, "minute"], [1, "second"]];

export function spanOf(seconds) {
  const [size, unit] = UNITS.find(([one]) => seconds % one === 0);
  const count = seconds / size;
  return `${count} ${unit}${count === 1 ? "" : "s"}`;
}

export const isExpired = (message) => Boolean(message?.expiresAt) && Date.parse(message.expiresAt) <= Date.now();

/** Calls back at the earliest of some moments. */
export class ExpiryTimer {
  #timer;
  #due;

  constructor(due) {
    this.#due = due;
  }

  /** `moments`: texts, or nothing where a message does not expire. */
  set(moments) {
    clearTimeout(this.#timer);
    const next = Math.min(...moments.filter(Boolean).map((moment) => Date.parse(moment)));
    if (Number.isFinite(next)) this.#timer = setTimeout(() => this.#due(), Math.min(TIMER_MAX, Math.max(0, next - Date.now()) + 50));
  }

  stop() {
    clearTimeout(this.#timer);
  }
}
