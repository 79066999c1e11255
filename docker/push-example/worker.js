// A push worker: receives NOTIFICATION webhooks of Wideroom, verifies them, and sends one push to each device of each recipient.
//
//   SECRET=whsec_… DEVICES=devices.json PORT=8099 node worker.js
//
// DEVICES is {"alice": [{"platform": "apns" | "fcm", "token": "…"}]}: your app stores it when a device registers. Where APNs and FCM
// are called stands `send`; without their credentials it prints the push.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";

import { Webhook } from "standardwebhooks";

const { SECRET, DEVICES, PORT = "8099" } = process.env;
const webhook = new Webhook(SECRET);
const BODY_BYTES_MAX = 1 << 20;
const EVENTS_REMEMBERED = 10_000;

/** Events that were handled: a try whose answer was lost comes again with the same id. Use your database across several workers. */
const handled = new Set();

function remember(id) {
  handled.add(id);
  if (handled.size > EVENTS_REMEMBERED) handled.delete(handled.values().next().value);
}

/** The text of a push. Leave the body out where messages must not be shown on a locked screen. */
function textOf(message, conversation) {
  const sender = message.sender.displayName ?? message.sender.username;
  return { title: conversation.name ?? sender, body: conversation.name ? `${sender}: ${message.body}` : message.body };
}

/** The push of one recipient: what APNs and FCM need. */
function pushOf(outbox, recipient) {
  const { conversation, event } = outbox;
  return {
    ...textOf(event.message, conversation),
    // A later push of the same conversation replaces this one on the screen.
    collapse: conversation.uuid,
    // 100 is 100 or more.
    badge: recipient.unreadConversationCount,
    // A device in use shows the message itself.
    isSilent: recipient.isOnline,
    data: { conversationId: conversation.id, messageId: event.message.id, reason: recipient.reason },
  };
}

async function send(device, push) {
  if (device.platform === "apns") {
    // POST https://api.push.apple.com/3/device/TOKEN over HTTP/2, with `authorization: bearer …`, `apns-topic` and `apns-collapse-id`.
    const alert = push.isSilent ? {} : { alert: { title: push.title, body: push.body }, sound: "default" };
    return print("apns", device.token, { collapseId: push.collapse, aps: { ...alert, badge: push.badge, "thread-id": push.collapse }, ...push.data });
  }
  // POST https://fcm.googleapis.com/v1/projects/PROJECT/messages:send, with `authorization: Bearer …`.
  const notification = push.isSilent ? {} : { notification: { title: push.title, body: push.body } };
  const android = { collapse_key: push.collapse, notification: { tag: push.collapse, notification_count: push.badge } };
  return print("fcm", device.token, { message: { token: device.token, ...notification, data: push.data, android } });
}

function print(service, token, payload) {
  console.log(JSON.stringify({ service, token, payload }));
}

async function handle(body, headers) {
  const event = webhook.verify(body, headers); // throws if it is forged, changed, or older than five minutes
  if (event.type !== "NOTIFICATION" || handled.has(headers["webhook-id"])) return;
  const { outbox } = event.data;
  const devices = JSON.parse(readFileSync(DEVICES, "utf8"));
  const pushes = outbox.event.recipients.flatMap((recipient) =>
    (devices[recipient.user.username] ?? []).map((device) => send(device, pushOf(outbox, recipient))),
  );
  // A device that is gone must not stop the others, nor bring the event again.
  for (const result of await Promise.allSettled(pushes)) if (result.status === "rejected") console.error(result.reason);
  remember(headers["webhook-id"]);
}

async function read(request) {
  const chunks = [];
  let bytes = 0;
  for await (const chunk of request) {
    bytes += chunk.length;
    if (bytes > BODY_BYTES_MAX) throw new Error("the body is too long");
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

createServer(async (request, response) => {
  try {
    await handle(await read(request), request.headers);
    response.writeHead(204).end();
  } catch (error) {
    console.error(error.message);
    // 401 for a wrong signature: the server tries three times, then stores a dead letter. 503: it tries again.
    response.writeHead(error.name === "WebhookVerificationError" ? 401 : 503).end();
  }
}).listen(Number(PORT), "127.0.0.1", () => console.log(JSON.stringify({ listening: Number(PORT) })));
