// How long messages stay, in words.

const DAY = 86_400;

/** The choices of the menu, in seconds. */
export const EXPIRIES = [[null, "Off"], [DAY, "1 day"], [7 * DAY, "1 week"], [30 * DAY, "30 days"]];

const UNITS = [[DAY, "day"], [3_600, "hour"], [60, "minute"], [1, "second"]];

export function spanOf(seconds) {
  const [size, unit] = UNITS.find(([one]) => seconds % one === 0);
  const count = seconds / size;
  return `${count} ${unit}${count === 1 ? "" : "s"}`;
}
