// The operations of this page beside those of the package. They are of the public API: run them in the playground at /.

const USER = "username displayName";
const SENDER = `${USER} viewerHasBlocked`;
const LINE = `id kind body deletedAt createdAt expiresAt metadata sender { ${SENDER} } attachments { name mimeType }`;
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
export const UPDATE = `mutation Update($input: UpdateConversationInput!) {
  updateConversation(input: $input) { conversation { messageTtlSeconds viewerParticipant { role isSilenced silencedUntil askedMessageTtlSeconds } } }
}`;

// ---- Blocks and reports.

export const BLOCKED_USERS = `query BlockedUsers($after: String) {
  blockedUsers(first: 100, after: $after) { edges { node { ${SENDER} } } pageInfo { hasNextPage endCursor } }
}`;
export const BLOCKS = `subscription Blocks($after: String) {
  inboxUpdated(after: $after) { event { ... on BlockChangedEvent { user { ${SENDER} } } } }
}`;
export const BLOCK = `mutation Block($input: BlockUserInput!) { blockUser(input: $input) { user { ${SENDER} } } }`;
export const UNBLOCK = `mutation Unblock($input: UnblockUserInput!) { unblockUser(input: $input) { user { ${SENDER} } } }`;
export const REPORT = `mutation Report($input: ReportMessageInput!) { reportMessage(input: $input) { reportId } }`;
