/** Opens the chat of one user. Nothing but the token, the viewer and one socket is asked for before a store is subscribed to. */
export function connect(options: Options): Chat;

export interface Options {
  /** Address of the server, such as `https://chat.example.org`. */
  url: string;
  /**
   * A token for the user. Asked for at the start, before it expires, and when the server refuses it. A rejection is retried, unless it is a
   * SignedOut.
   */
  token(reason: "start" | "expiring" | "refused"): string | Promise<string>;
  /** Username, if the app knows it: drafts and unsent messages are then there before the first token. */
  user?: string;
  /** Storage of unsent messages and drafts: `localStorage`, or memory where there is none. `null`: memory. */
  storage?: DeviceStorage | null;
  /** Further fields of the app, as the text of a selection set. They appear in the objects below as they are. */
  select?: { message?: string; user?: string; conversation?: string; entry?: string };
  fetch?: typeof fetch;
  WebSocket?: new (url: URL, protocol: string) => WebSocket;
}

/** Storage that answers at once, such as `localStorage`. */
export interface DeviceStorage {
  readonly length: number;
  key(index: number): string | null;
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
}

/**
 * A value that every framework can read: `get` returns the same object until it changes. The first subscriber opens it on the server; it
 * stays for 10 s after the last.
 */
export interface Store<T> {
  get(): T;
  subscribe(onChange: () => void): () => void;
}

export interface Chat {
  readonly connection: Store<Connection>;
  readonly viewer: Store<User | null>;
  readonly badge: Store<Badge>;
  /** Everything unsent, of all conversations. */
  readonly outbox: Store<readonly Outgoing[]>;
  inbox(filter?: InboxFilter): Inbox;
  /** It opens at the first unread message, or at a wanted one. The last 20 stay in memory. */
  conversation(id: string, options?: { at?: string }): Conversation;
  /** Presence by username, of at most 100 users. Empty while the server is away. */
  presence(usernames: readonly string[]): Store<ReadonlyMap<string, Presence>>;
  search(query: SearchQuery): Search;
  /** Id of the direct conversation with this user. */
  startDirect(username: string): Promise<string>;
  /** Id of the new group. A retry after an error makes no second group. */
  createGroup(name: string, usernames: readonly string[]): Promise<string>;
  /** The rest of the API, with the same token. A query is retried where that may help, a document with the word `mutation` never. */
  request<D = any, V = Record<string, unknown>>(document: Document<D, V>, variables?: V): Promise<D>;
  /**
   * A subscription that resumes where it was, if it has a variable `$after`. `end` is called when the server has ended it for good. Returns
   * the function that ends it.
   */
  subscribe<D = any, V = Record<string, unknown>>(document: Document<D, V>, variables: V, next: (data: D) => void, end?: (error: ChatError | null) => void): () => void;
  /** Tries to connect at once. */
  retryNow(): void;
  /** Closes, and empties the storage of this user. */
  signOut(): Promise<void>;
  close(): void;
}

/** A text, or a document as graphql-codegen and graphql-tag make it. */
export type Document<D, V> = (string | { toString(): string } | { loc?: { source: { body: string } } }) & { __apiType?: (variables: V) => D };

export type Connection =
  | { state: "connecting" | "offline"; retryAt: number | null }
  /** `isCaughtUp`: every open stream has replayed what was missed. */
  | { state: "connected"; isCaughtUp: boolean }
  | { state: "signed-out"; reason: "refused" | "suspended" };

export interface Badge {
  conversations: number;
  mentioned: number;
  isCapped: boolean;
}

export interface ListState<T> {
  items: readonly T[];
  status: "loading" | "ready" | "failed";
  error: ChatError | null;
  hasMore: boolean;
}
export interface List<T> extends Store<ListState<T>> {
  /** Loads the next page. */
  more(): Promise<void>;
}
export type InboxState = ListState<InboxEntry>;
/** Entries, the pinned ones first, then by activity. */
export interface Inbox extends List<InboxEntry> {
  update(conversationId: string, change: { muted?: boolean; pinned?: boolean; archived?: boolean; level?: NotificationLevel | null }): Promise<void>;
}
export interface SearchQuery {
  text?: string;
  filter?: MessageFilter;
  conversationId?: string;
}
export interface SearchState extends ListState<Match> {
  /** Whether the viewer has more conversations than the search looks into. */
  isCapped: boolean;
}
export interface Search extends Store<SearchState> {
  more(): Promise<void>;
}
export interface Match {
  message: LineMessage;
  snippet: readonly SnippetPart[];
}

export interface Conversation extends Store<ConversationState> {
  readonly id: string;
  older(): Promise<void>;
  newer(): Promise<void>;
  /** Loads the messages around this one. Returns whether it is there. */
  jump(messageId: string): Promise<boolean>;
  toNewest(): Promise<void>;
  /** Shown at once, on the device, and sent in order under one key. Returns the key. Never throws: its fate is in `items`. */
  send(body: string, more?: { mentions?: readonly string[]; everyone?: boolean; replyTo?: string; attachments?: readonly AttachmentInput[]; metadata?: Json }): string;
  retry(key: string): void;
  discard(key: string): void;
  edit(messageId: string, body: string, mentions?: { usernames?: readonly string[]; everyone?: boolean }): Promise<void>;
  delete(messageId: string): Promise<void>;
  /** Shown at once, and taken back if the server refuses it. */
  react(messageId: string, emoji: string, on?: boolean): Promise<void>;
  pin(messageId: string, on?: boolean): Promise<void>;
  /** To be called on every key stroke: it throttles, and ends by itself. */
  typing(): void;
  /** The newest message on the screen. Calls are joined, and wait while the page is hidden. Of a reader further up, nothing is unloaded. */
  seen(messageId: string): void;
  /** From this message on it is unread, until it is opened again. */
  markUnread(messageId: string): Promise<void>;
  /** Other participants whose username begins with the prefix. */
  people(prefix: string): Promise<readonly User[]>;
  readonly draft: { get(): string; set(text: string): void };
  /** A head in its current state, as a mutation of the app has returned it. */
  updated(head: Partial<ConversationInfo>): void;
}

export interface ConversationState {
  /** `gone`: it does not exist, or the viewer is not in it. */
  status: "loading" | "ready" | "gone" | "failed";
  error: ChatError | null;
  conversation: ConversationInfo | null;
  /** The inbox entry: known before the conversation is loaded, if the inbox is. */
  entry: InboxEntry | null;
  /**
   * Oldest first. Unsent ones come last, and while `hasNewer` is true those that the viewer has sent meanwhile: only before these is there a
   * gap. While the reader is at the end, the newest 1,000: `older` brings the others back.
   */
  items: readonly Item[];
  hasOlder: boolean;
  hasNewer: boolean;
  /** The first unread message at the time of opening. */
  firstUnreadId: string | null;
  typingUsers: readonly User[];
  /** The last pinned first. */
  pins: readonly PinnedMessage[];
}

/** `key` is the same before and after a message is stored. */
export type Item = Message & { key: string; send: null | Sending };
export interface Sending {
  state: "waiting" | "sending" | "failed";
  error: ChatError | null;
  retryAt: number | null;
}
export interface Outgoing {
  key: string;
  conversationId: string;
  createdAt: string;
  input: { body: string };
  send: Sending;
}

/** Thrown by `token` where the app has to sign in again. */
export class SignedOut extends Error {}

/**
 * An error of the server. `code` is `extensions.code`; OFFLINE without an answer; KEY_EXPIRED for a message that waited longer than the
 * server knows its key and was not found.
 */
export class ChatError extends Error {
  code: ErrorCode;
  outcome?: "NOT_DONE" | "UNKNOWN";
  retryAfterMs?: number;
  inputPath?: readonly string[];
  readonly isPassing: boolean;
}
export type ErrorCode =
  | "OFFLINE" | "KEY_EXPIRED" | "UNAUTHENTICATED" | "FORBIDDEN" | "NOT_FOUND" | "BAD_USER_INPUT" | "CONFLICT" | "RATE_LIMITED" | "CURSOR_EXPIRED"
  | "UNAVAILABLE" | "INTERNAL" | "PERSISTED_QUERY_NOT_SUPPORTED";

/** Splits a body where its mentions and links stand. The app draws the parts. A mention of everyone has no username. */
export function parts(message: { body: string | null; mentions?: readonly { username: string }[]; mentionsEveryone?: boolean }): readonly Part[];
export type Part = { text: string } & ({ kind: "text" | "code" } | { kind: "link"; url: string } | { kind: "mention"; username: string | null });

// ---- Objects of the API, with the fields that the package selects. A test holds them to the schema.

export type Json = unknown;
export type ConversationKind = "DIRECT" | "GROUP";
export type DeliveryStatus = "SENT" | "DELIVERED" | "READ";
export type MessageContent = "LINK" | "IMAGE" | "VIDEO" | "AUDIO" | "FILE";
export type MessageKind = "TEXT" | "SYSTEM";
export type NotificationLevel = "ALL" | "MENTIONS" | "NONE";
export type ParticipantRole = "OWNER" | "ADMIN" | "MEMBER";

export interface User {
  id: string;
  username: string;
  displayName: string | null;
  avatarUrl: string | null;
  viewerHasBlocked: boolean;
  /** A program, not a person: show it beside the name. */
  isAgent: boolean;
  [field: string]: any;
}
export interface Presence {
  isOnline: boolean;
  lastSeenAt: string | null;
}
export interface Attachment {
  url: string;
  mimeType: string;
  name: string | null;
  sizeBytes?: number | null;
  width?: number | null;
  height?: number | null;
}
export interface AttachmentInput {
  url: string;
  mimeType: string;
  name?: string | null;
  sizeBytes?: number | null;
  width?: number | null;
  height?: number | null;
}
export interface Reaction {
  emoji: string;
  count: number;
  countIsCapped: boolean;
  viewerHasReacted: boolean;
}
/** A message as a reply quotes it. */
export interface Quote {
  id: string;
  body: string | null;
  deletedAt: string | null;
  sender: User;
  [field: string]: any;
}
/** A message in one line: of the inbox, of the pins, and of a search. */
export interface LineMessage extends Quote {
  orderKey: string;
  kind: MessageKind;
  metadata: Json;
  attachments: readonly Attachment[];
  createdAt: string;
  expiresAt: string | null;
}
export interface Message extends LineMessage {
  clientKey: string | null;
  editedAt: string | null;
  status: DeliveryStatus | null;
  isPinned: boolean;
  mentionsEveryone: boolean;
  mentions: readonly User[];
  reactions: readonly Reaction[];
  replyTo: Quote | null;
}
export interface PinnedMessage {
  pinnedAt: string;
  node: LineMessage;
}
export interface SnippetPart {
  text: string;
  isMatch: boolean;
}
export interface ConversationInfo {
  id: string;
  kind: ConversationKind;
  name: string | null;
  participantCount: number;
  messageTtlSeconds: number | null;
  slowModeSeconds: number;
  viewerParticipant: { role: ParticipantRole; isSilenced: boolean; silencedUntil: string | null; askedMessageTtlSeconds: number | null } | null;
  directPeer: User | null;
  /** The first 10 participants. */
  participants: readonly User[];
  [field: string]: any;
}
export interface InboxEntry {
  id: string;
  unreadCount: number;
  unreadCountIsCapped: boolean;
  unreadMentionCount: number;
  lastActivityAt: string;
  isMuted: boolean;
  isPinned: boolean;
  isArchived: boolean;
  visibleFrom: string | null;
  notificationLevel: NotificationLevel;
  firstUnreadMention: { id: string; createdAt: string } | null;
  conversation: { id: string; kind: ConversationKind; name: string | null; directPeer: User | null };
  lastMessage: LineMessage | null;
  [field: string]: any;
}
export interface InboxFilter {
  kind?: ConversationKind | null;
  unreadOnly?: boolean | null;
  mentionedOnly?: boolean | null;
  archived?: boolean | null;
  pinned?: boolean | null;
}
export interface MessageFilter {
  senderUsernames?: readonly string[] | null;
  mentionedUsernames?: readonly string[] | null;
  has?: readonly MessageContent[] | null;
  from?: string | null;
  until?: string | null;
  conversationKind?: ConversationKind | null;
}
