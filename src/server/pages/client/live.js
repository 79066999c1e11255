// Live messages of one conversation: messages that the participants read while they are written. The core does not import this module.

import { Store } from "./store.js";
import { backoff } from "./transport.js";

/** Fields of a message that was written live, for the option `select.message` of `connect`. */
export const LIVE_FIELDS = "liveMessageId isInterrupted steps { key title state detail }";

/** Time for which a sent live message waits for the event of its message. */
const ARRIVES_WITHIN = 1_000;

// No field depends on the viewer, so that the server computes each payload once for all viewers.
const USER = "id username displayName avatarUrl isAgent";
const LIVE_MESSAGES = "subscription LiveMessages($id: ID!, $after: String) { liveMessages(conversationId: $id, after: $after) { cursor text isWhole "
  + `liveMessage { id state status startedAt steps { key title state detail } sender { ${USER} } replyTo { id sender { username } } stopRequestedBy { username } } } }`;
const STOP = "mutation StopLiveMessage($input: StopLiveMessageInput!) { stopLiveMessage(input: $input) { liveMessage { id stopRequestedBy { username } } } }";

/** Live messages of a conversation of this chat, the first begun first. */
export function liveMessages(chat, conversationId) {
  return new LiveMessages(chat, conversationId);
}

class LiveMessages extends Store {
  #chat;
  #id;
  #conversation;
  #stopStream = null;
  #timer;
  /** Ends of the stream since it last delivered. */
  #ends = 0;
  /** Participants of the last load of the conversation. */
  #loaded;

  constructor(chat, id) {
    super([]);
    [this.#chat, this.#id] = [chat, id];
  }

  /** Asks the writer to stop, who then sends the text so far. */
  stop = async (liveMessageId) => {
    const { stopLiveMessage } = await this.#chat.request(STOP, { input: { liveMessageId } });
    this.#change(stopLiveMessage.liveMessage);
  };

  opened() {
    this.#conversation = this.#chat.conversation(this.#id);
    const stop = this.#conversation.subscribe(() => this.#conversationChanged());
    this.#listen();
    return [stop];
  }

  closed() {
    this.#unlisten();
    this.#loaded = undefined;
    this.put([]);
  }

  // ---- The stream. The transport resumes it after a cut, and each text continues at its byte.

  #listen() {
    this.#stopStream = this.#chat.subscribe(LIVE_MESSAGES, { id: this.#id }, ({ liveMessages: payload }) => this.#received(payload), () => this.#again());
  }

  #unlisten() {
    clearTimeout(this.#timer);
    this.#stopStream?.();
    this.#stopStream = null;
  }

  /** The server has ended the stream: its cursor has expired, a user has blocked the other, or the viewer takes part no more. */
  #again() {
    this.#unlisten();
    this.put([]);
    const { status, conversation } = this.#conversation.get();
    if (status === "gone" || conversation?.directPeer?.viewerHasBlocked) return;
    this.#timer = setTimeout(() => this.#listen(), backoff(this.#ends++));
  }

  #received({ liveMessage: live, text, isWhole }) {
    this.#ends = 0;
    if (!live) return;
    const before = this.#find(live.id);
    // Its message has already taken its place, or its beginning is unknown.
    if (!before && (live.state !== "WRITING" || !isWhole || this.#hasMessage(live.id))) return;
    const after = { ...live, body: isWhole ? text : before.body + text };
    if (before) this.#change(after);
    else this.put([...this.get(), after].sort((a, b) => (a.startedAt < b.startedAt ? -1 : 1)));
    if (live.state === "SENT" && this.#awaitsMessage(live.id)) setTimeout(() => this.#remove(live.id), ARRIVES_WITHIN);
    else if (live.state !== "WRITING") this.#remove(live.id);
  }

  // ---- The conversation, whose message takes the place of a live message.

  #conversationChanged() {
    const { status, conversation } = this.#conversation.get();
    for (const { id, state } of this.get()) if (this.#hasMessage(id) || (state === "SENT" && !this.#awaitsMessage(id))) this.#remove(id);
    if (status !== "ready" || conversation.participants === this.#loaded) return;
    // It was loaded anew: a sender may be blocked, or the stream may have ended.
    const isAnother = this.#loaded || !this.#stopStream;
    this.#loaded = conversation.participants;
    if (!isAnother) return;
    this.#unlisten();
    this.put([]);
    this.#listen();
  }

  #hasMessage(id) {
    return this.#conversation.get().items.some(({ liveMessageId }) => liveMessageId === id);
  }

  /** Whether the message will be among the items, and is not yet. Without the field it could not be recognized. */
  #awaitsMessage(id) {
    const { items, hasNewer } = this.#conversation.get();
    return !hasNewer && !this.#hasMessage(id) && items.every(({ send, liveMessageId }) => send || liveMessageId !== undefined);
  }

  // ---- The list.

  #find(id) {
    return this.get().find((live) => live.id === id);
  }

  #change(change) {
    this.put(this.get().map((live) => (live.id === change.id ? { ...live, ...change } : live)));
  }

  #remove(id) {
    if (this.#find(id)) this.put(this.get().filter((live) => live.id !== id));
  }
}
