// Parts of a body: links, mentions and code, and the text between them. `node package/parts.js`

import assert from "node:assert/strict";

import { parts } from "../wideroom-client/index.js";

const shown = (body) => parts({ body, mentions: [{ username: "bob" }] }).map(({ kind, text, url, username }) => [kind, text, url ?? username].filter(Boolean));

assert.deepEqual(shown("See www.example.org/a, or mail a.b+c@example.co.uk. And @bob"), [
  ["text", "See "], ["link", "www.example.org/a", "https://www.example.org/a"], ["text", ", or mail "],
  ["link", "a.b+c@example.co.uk", "mailto:a.b+c@example.co.uk"], ["text", ". And "], ["mention", "@bob", "bob"],
]);
// Code holds no links and no mentions, and links hold no mentions.
assert.deepEqual(shown("So:\n```js\nat(\"@bob\", \"https://example.org\")\n```\nand https://example.org/@bob"), [
  ["text", "So:\n"], ["code", "at(\"@bob\", \"https://example.org\")"], ["text", "and "], ["link", "https://example.org/@bob", "https://example.org/@bob"],
]);
for (const plain of ["awww.example", "soup@bob", "```", "``````", "a@b.", ""]) assert.deepEqual(shown(plain), plain ? [["text", plain]] : [], plain);
