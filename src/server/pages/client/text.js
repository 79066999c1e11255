// Splits the body of a message where its mentions, links and code stand.

/** Web addresses, also from `www.` on, and mail addresses. */
const LINK = /(?:https?:\/\/|(?<![\p{L}\p{N}_.@])www\.)[^\s<>"]+[^\s<>".,;:!?)\]]|(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.)+[a-z]{2,63}(?![\w-])/giu;
/** Between three backticks, after the name of a language. */
const CODE = /```(?:[\w+-]*\n)?([^]+?)\n?```\n?/g;
const urlOf = (text) => (/^https?:/i.test(text) ? text : /^www\./i.test(text) ? `https://${text}` : `mailto:${text}`);
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

/** Parts of the body: text, links, mentions, and code without its backticks. A mention of everyone has no username. */
export function parts({ body, mentions = [], mentionsEveryone = false }) {
  const text = body ?? "";
  const names = mentions.map(({ username }) => username);
  const pattern = mentionPattern(mentionsEveryone ? [...names, "everyone"] : names);
  const found = [];
  const find = (regex, kind, make) => {
    if (regex) for (const match of text.matchAll(regex)) found.push({ at: match.index, end: match.index + match[0].length, part: { kind, text: match[0], ...make(match) } });
  };
  find(CODE, "code", ([, code]) => ({ text: code }));
  find(LINK, "link", ([url]) => ({ url: urlOf(url) }));
  find(pattern, "mention", ([mention]) => ({ username: names.includes(mention.slice(1)) ? mention.slice(1) : null }));
  const all = [];
  let at = 0;
  const upTo = (end) => end > at && all.push({ kind: "text", text: text.slice(at, end) });
  // Code holds no links, and links hold no mentions: the sort is stable.
  for (const { at: start, end, part } of found.sort((a, b) => a.at - b.at)) {
    if (start < at) continue;
    upTo(start);
    all.push(part);
    at = end;
  }
  upTo(text.length);
  return all;
}
