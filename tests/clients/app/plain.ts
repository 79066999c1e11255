// The same package without a framework: what TypeScript says of it.

import { ChatError, SignedOut, connect, parts, type Connection, type Conversation, type Store } from "wideroom-client";
import { createClient } from "graphql-ws";
import { resuming } from "wideroom-client/graphql-ws";
import { LIVE_FIELDS, liveMessages, type LiveMessages } from "wideroom-client/live";

const chat = connect({
  url: "https://chat.example.org",
  token: (reason) => {
    if (reason === "refused") throw new SignedOut();
    return Promise.resolve("token");
  },
  storage: null,
  select: { message: `receipts { edges { node { status } } } ${LIVE_FIELDS}` },
});

const words = (connection: Connection): string => {
  switch (connection.state) {
    case "connected": return connection.isCaughtUp ? "" : "catching up";
    case "signed-out": return connection.reason;
    case "connecting": case "offline": return new Date(connection.retryAt ?? 0).toISOString();
  }
};
const show = <T>(store: Store<T>, draw: (value: T) => void): (() => void) => store.subscribe(() => draw(store.get()));

show(chat.connection, (connection) => console.log(words(connection)));
show(chat.presence(["bob"]), (all) => console.log(all.get("bob")?.isOnline));
const conversation: Conversation = chat.conversation("id", { at: "message" });
show(conversation, ({ items, firstUnreadId, pins }) => {
  for (const item of items) {
    const line = parts(item).map((part) => (part.kind === "link" ? part.url : part.text)).join("");
    console.log(item.key, line, item.id === firstUnreadId, item.send?.retryAt ?? item.createdAt, pins[0]?.node.body);
    // @ts-expect-error An item has no such field.
    console.log(item.send.sentAt);
  }
});
const live: LiveMessages = liveMessages(chat, "id");
show(live, ([first]) => {
  console.log(first?.body, first?.steps.map(({ title, state }) => `${title} ${state === "DONE"}`), first?.stopRequestedBy?.username);
  if (first?.sender.isAgent) live.stop(first.id).catch(() => {});
});
const key: string = conversation.send("hello", { mentions: ["bob"], replyTo: "message" });
conversation.retry(key);
conversation.react("message", "👍").catch((error: unknown) => {
  if (error instanceof ChatError && error.code === "RATE_LIMITED") console.log(error.retryAfterMs);
});
// @ts-expect-error There is no such notification level.
await chat.inbox({ unreadOnly: true }).update("id", { level: "LOUD" });
const data: { viewer: { username: string } } = await chat.request("{ viewer { username } }");
console.log(data.viewer.username, await chat.createGroup("Lunch", ["bob", "carol"]));

const client = resuming(createClient({ url: "wss://chat.example.org/graphql/ws" }));
client.on("closed", () => {});
