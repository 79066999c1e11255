// The chat of an order, which a backend finds or makes by its own key: `node order.js URL BACKEND`.

import assert from "node:assert/strict";

const [url, backend] = process.argv.slice(2);

// In the README as it stands.
const ask = async (as, query, variables) => {
  const headers = { authorization: `Bearer ${backend}`, "wideroom-as": encodeURIComponent(as), "content-type": "application/json" };
  const { data, errors } = await (await fetch(url, { method: "POST", headers, body: JSON.stringify({ query, variables }) })).json();
  return data ?? Promise.reject(new Error(errors[0].message));
};
const MAKE = "mutation($input: CreateGroupConversationInput!) { made: createGroupConversation(input: $input) { conversation { id } } }";
const chatOf = async ({ number, customer, courier }) => (await ask(customer, MAKE, { input: {
  appKey: `order:${number}`, name: `Order ${number}`, usernames: [courier], metadata: { number },
} })).made.conversation.id;
// To here.

const order = { number: 42, customer: "dana", courier: "erin" };
const [one, other] = await Promise.all([chatOf(order), chatOf(order)]);
assert.equal(one, other);
assert.equal(await chatOf(order), one);
const { found } = await ask("erin", '{ found: conversationByAppKey(appKey: "order:42") { id metadata } }');
assert.deepEqual(found, { id: one, metadata: { number: 42 } });
