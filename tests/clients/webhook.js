// Requests of a webhook, checked by the official library: `node webhook.js REQUESTS SECRET…`. REQUESTS is a file of JSON: a list
// of `{headers, body}`, each signed by every one of the secrets.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { Webhook } from "standardwebhooks";

const [file, ...secrets] = process.argv.slice(2);
const requests = JSON.parse(readFileSync(file, "utf8"));
assert(requests.length > 0);

for (const { headers, body } of requests) {
  for (const secret of secrets) {
    // What a receiver does: the body is the text as it came, not parsed and written again.
    const event = new Webhook(secret).verify(body, headers);
    assert.equal(event.data.outbox.id, headers["webhook-id"]);
    assert.equal(event.type, "MESSAGE_ADDED");
    assert.throws(() => new Webhook(secret).verify(`${body} `, headers), "a changed body");
    assert.throws(() => new Webhook(secret).verify(body, { ...headers, "webhook-id": "another" }), "a changed id");
    assert.throws(() => new Webhook(secret).verify(body, { ...headers, "webhook-timestamp": "1700000000" }), "an old one");
  }
  assert.throws(() => new Webhook("whsec_c29tZXRoaW5nIGVsc2UsIG5vdCB0aGUgc2VjcmV0").verify(body, headers), "another secret");
}
