// How long messages stay, and other spans of time, in words.

import { shortTime } from "./dom.js";

const DAY = 86_400;

/** The choices of the menu, in seconds. */
export const EXPIRIES = [[null, "Off"], [DAY, "1 day"], [7 * DAY, "1 week"], [30 * DAY, "30 days"]];

export const SLOW_MODES = [0, 10, 30, 60, 300, 900, 3_600, 21_600];

const UNITS = [[DAY, "day"], [3_600, "hour"], [60, "minute"], [1, "second"]];

export function spanOf(seconds) {
  const [size, unit] = UNITS.find(([one]) => seconds % one === 0);
  const count = seconds / size;
  return `${count} ${unit}${count === 1 ? "" : "s"}`;
}

/** When something ends, in words. */
export const untilOf = (text) => (text ? ` until ${shortTime(text)}` : "");
