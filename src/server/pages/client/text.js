// Splits the body of a message where its mentions and links stand.

const LINK = /https?:\/\/[^\s<>"]+[^\s<>".,;:!?)\]]/gu;
const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&");

/** A pattern of these mentions, each as `@username`. The longest name goes first. */
export function mentionPattern(usernames) {
  const names = [...usernames].sort((a, b) => b.length - a.length).map(escaped);
  return names.length ? new RegExp(`(?<![\\p{L}\\p{N}_@])@(?:${names.join("|")})(?![\\p{L}\\p{N}_-]|\\.[\\p{L}\\p{N}])`, "gu") : null;
}

/** The names of these that stand in the text. */
export function mentionedIn(text, usernames) {
  const pattern = mentionPattern(usernames);
  return pattern ? [...new Set([...text.matchAll(pattern)].map(([mention]) => mention.slice(1)))] : [];
}

/** Parts of the body: text, links, and mentions. A mention of everyone has no username. */
export function parts({ body, mentions = [], mentionsEveryone = false }) {
  const text = body ?? "";
  const names = mentions.map(({ username }) => username);
  const pattern = mentionPattern(mentionsEveryone ? [...names, "everyone"] : names);
  const links = [...text.matchAll(LINK)].map(({ 0: url, index }) => ({ index, part: { kind: "link", text: url, url } }));
  const isInLink = (at) => links.some(({ index, part }) => at >= index && at < index + part.text.length);
  const mentioned = (pattern ? [...text.matchAll(pattern)] : [])
    .filter(({ index }) => !isInLink(index))
    .map(({ 0: mention, index }) => {
      const name = mention.slice(1);
      return { index, part: { kind: "mention", text: mention, username: names.includes(name) ? name : null } };
    });
  const found = [...links, ...mentioned].sort((a, b) => a.index - b.index);
  const all = [];
  let at = 0;
  for (const { index, part } of found) {
    if (index > at) all.push({ kind: "text", text: text.slice(at, index) });
    all.push(part);
    at = index + part.text.length;
  }
  if (at < text.length) all.push({ kind: "text", text: text.slice(at) });
  return all;
}
