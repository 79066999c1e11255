// The operations of this page beside those of the package. They are of the public API: run them in the playground at /.

import { LIVE_FIELDS } from "../../client/live.js";

const USER = "username displayName avatarUrl isAgent";
const SENDER = `${USER} viewerHasBlocked`;
const LINE = `id kind body deletedAt createdAt expiresAt metadata sender { ${SENDER} } attachments { url name mimeType }`;
const MATCHES = "isCapped pageInfo { hasNextPage endCursor }";

// ---- Search. Without words, a filter alone is the gallery of a conversation.

export const SEARCH = `query Search($query: String, $filter: MessageFilter, $after: String) {
  searchMessages(query: $query, filter: $filter, first: 20, after: $after) {
    ${MATCHES}
    edges { snippet { text isMatch } node { ${LINE} conversation { id kind name directPeer { ${USER} } } } }
  }
}`;

export const SEARCH_ROOM = `query SearchRoom($id: ID!, $query: String, $filter: MessageFilter, $after: String) {
  conversation(id: $id) {
    searchMessages(query: $query, filter: $filter, first: 20, after: $after) {
      ${MATCHES}
      edges { snippet { text isMatch } node { ${LINE} } }
    }
  }
}`;

// ---- What a conversation keeps.

export const CLEAR = `mutation Clear($input: ClearHistoryInput!) { clearHistory(input: $input) { inboxEntry { id } } }`;
// ---- Blocks and reports.

export const BLOCKED_USERS = `query BlockedUsers($after: String) {
  blockedUsers(first: 100, after: $after) { edges { node { ${SENDER} } } pageInfo { hasNextPage endCursor } }
}`;
export const BLOCKS = `subscription Blocks($after: String) {
  inboxUpdated(after: $after) { event { ... on BlockChangedEvent { user { ${SENDER} } } } }
}`;
export const BLOCK = `mutation Block($input: BlockUserInput!) { blockUser(input: $input) { user { ${SENDER} } } }`;
export const UNBLOCK = `mutation Unblock($input: UnblockUserInput!) { unblockUser(input: $input) { user { ${SENDER} } } }`;
export const REPORT_USER = `mutation ReportUser($input: ReportUserInput!) { reportUser(input: $input) { reportId } }`;
export const REPORT = `mutation Report($input: ReportMessageInput!) { reportMessage(input: $input) { reportId } }`;

// ---- A conversation, its participants and the viewer's profile. Each mutation `doIt` takes a `DoItInput`.

const mutation = (field, payload = "__typename") => {
  const name = field[0].toUpperCase() + field.slice(1);
  return `mutation ${name}($input: ${name}Input!) { ${field}(input: $input) { ${payload} } }`;
};
/** Further fields of the messages, conversations and entries of the package. */
export const SELECT = { message: LIVE_FIELDS, conversation: "historyVisibility avatarUrl", entry: "lastMessage { status } conversation { avatarUrl }" };
const HEAD = `conversation {
  id name participantCount messageTtlSeconds slowModeSeconds historyVisibility viewerParticipant { role isSilenced silencedUntil askedMessageTtlSeconds }
}`;
export const CHANGES = {
  renameConversation: mutation("renameConversation", HEAD),
  updateConversation: mutation("updateConversation", HEAD),
  addParticipants: mutation("addParticipants", HEAD),
  removeParticipant: mutation("removeParticipant", HEAD),
  banParticipant: mutation("banParticipant", HEAD),
  liftBan: mutation("liftBan"),
  silenceParticipant: mutation("silenceParticipant"),
  unsilenceParticipant: mutation("unsilenceParticipant"),
  setParticipantRole: mutation("setParticipantRole"),
  leaveConversation: mutation("leaveConversation"),
  markRead: mutation("markRead"),
  updateProfile: mutation("updateProfile", `user { ${USER} }`),
};
export const MEMBERS = `query Members($id: ID!, $prefix: String, $after: String) {
  conversation(id: $id) {
    participants(first: 50, usernamePrefix: $prefix, after: $after) {
      edges { node { id role isSilenced silencedUntil user { ${SENDER} presence { isOnline } } } }
      pageInfo { hasNextPage endCursor }
    }
  }
}`;
export const BANS = `query Bans($id: ID!) { conversation(id: $id) { bans(first: 100) { edges { node { until reason user { ${USER} } } } } } }`;
/** No event says that the others have read the last message of an entry. */
export const STATUSES = `query Statuses($ids: [ID!]!) { nodes(ids: $ids) { ... on InboxEntry { lastMessage { id status } } } }`;
/** The newest messages, among which is one of another user. */
export const NEWEST = `query Newest($id: ID!) { conversation(id: $id) { messages(first: 50) { edges { node { id kind sender { username } } } } } }`;
