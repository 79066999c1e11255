// Names of users as the page shows them: the display name alone, and the username beside it where another user has a like name. A display
// name is whatever its user says, so two that look alike are told apart.

/** Users that the page has shown, by username. */
const known = new Map();
/** Usernames by a like name. */
const byLikeName = new Map();
let version = 0;

/** Characters of a name that show nothing or turn its text around become visible: older names may hold them. */
const shown = (name) => name.replace(/(?![\u200c\u200d])\p{Cf}|[\u115f\u1160\u3164\uffa0\u2800]/gu, "\ufffd");
const like = (name) => name.normalize("NFKC").toLowerCase().replace(/[\s\p{P}]/gu, "");

/** Grows when a name that stood alone has another one like it: what was drawn before is drawn anew. */
export const namesVersion = () => version;
export const knownUsers = () => [...known.values()];
export const userNamed = (username) => known.get(username) ?? { username, isAgent: username.startsWith("agent:") };

export function learn(user) {
  const before = known.get(user.username);
  if (before && user.displayName === undefined) return;
  if (before && before.displayName === user.displayName && before.avatarUrl === user.avatarUrl) return;
  known.set(user.username, { ...before, ...user });
  for (const name of new Set([like(user.username), like(user.displayName || user.username)])) {
    const users = byLikeName.get(name) ?? new Set();
    byLikeName.set(name, users.add(user.username));
    if (users.size > 1) version += 1;
  }
}

export const displayOf = (user) => shown(user?.displayName || user?.username || "");

/** The username, where the display name does not say it and is not the only one of its kind. */
export function handleOf(user) {
  if (!user?.username) return "";
  learn(user);
  const name = displayOf(user);
  const isSame = name.toLowerCase() === user.username.toLowerCase();
  return !isSame && byLikeName.get(like(user.displayName || user.username)).size > 1 ? shown(user.username) : "";
}

export const tooltipOf = (user) => (user?.username ? `@${shown(user.username)}` : "");
/** People are told that an agent is a program. */
export const nameOf = (user) => {
  const notes = [handleOf(user), user?.isAgent && "agent"].filter(Boolean).join(", ");
  return displayOf(user) + (notes && ` (${notes})`);
};
/** For a line where room is short. */
export const firstNameOf = (user) => (handleOf(user) ? nameOf(user) : displayOf(user).split(/\s/u)[0] + (user?.isAgent ? " (agent)" : ""));
