import type { Chat, Store } from "./index.js";

/** Fields of a message that was written live, for `select.message` of `connect`: with them a message takes the place of its live message. */
export const LIVE_FIELDS: string;

/**
 * The live messages of a conversation, the first begun first. One leaves the list when its message is among the items of the conversation, or
 * when it ends without one. After a cut each text continues at its byte.
 */
export function liveMessages(chat: Chat, conversationId: string): LiveMessages;

export interface LiveMessages extends Store<readonly LiveMessage[]> {
  /** Asks the writer to stop, who then sends the text so far. In a group: who asked, admins and owners. */
  stop(liveMessageId: string): Promise<void>;
}

export type LiveMessageState = "WRITING" | "SENT" | "DISCARDED";
export type MessageStepState = "RUNNING" | "WAITING" | "DONE" | "FAILED";

/** A message while it is written. */
export interface LiveMessage {
  id: string;
  sender: { id: string; username: string; displayName: string | null; avatarUrl: string | null; isAgent: boolean };
  replyTo: { id: string; sender: { username: string } } | null;
  /** The text so far. */
  body: string;
  /** The state of the work in the words of the writer. */
  status: string | null;
  steps: readonly MessageStep[];
  state: LiveMessageState;
  stopRequestedBy: { username: string } | null;
  startedAt: string;
}

/** A step of the work behind a message, such as the call of a tool. */
export interface MessageStep {
  key: string;
  title: string;
  state: MessageStepState;
  detail: string | null;
}
