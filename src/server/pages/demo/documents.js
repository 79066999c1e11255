// Every operation of this page. They are the public API's and nothing else: run them in the playground at /.

const USER = "username displayName";
const SENDER = `${USER} viewerHasBlocked`;

const MESSAGE = `
  id uuid kind body clientKey createdAt editedAt deletedAt metadata expiresAt status isPinned mentionsEveryone
  sender { ${SENDER} }
  mentions { ${USER} }
  attachments { url name mimeType }
  reactions { emoji count countIsCapped viewerHasReacted }
  replyTo { id body deletedAt sender { ${SENDER} } }`;

/** In one line: for the inbox, the bar of pins and results without a snippet. */
const LINE = `id kind body deletedAt createdAt expiresAt metadata sender { ${SENDER} } attachments { name mimeType }`;

const PIN = `pinnedAt node { ${LINE} }`;
const PAGE_INFO = "pageInfo { hasNextPage hasPreviousPage startCursor endCursor }";

const ENTRY = `
  id unreadCount unreadCountIsCapped unreadMentionCount lastActivityAt isMuted isPinned isArchived visibleFrom
  firstUnreadMention { id createdAt }
  conversation { id kind name directPeer { ${USER} } }
  lastMessage { ${LINE} }`;

export const VIEWER = `query Viewer { viewer { ${USER} } }`;

export const INBOX = `query Inbox($after: String) {
  inbox(first: 30, after: $after) {
    edges { node { ${ENTRY} } }
    pageInfo { hasNextPage endCursor }
    updatesCursor
  }
}`;

/** Unread counts fall when their first message expires. Asked only where the last message expires: then all do. */
export const UNREAD_EXPIRIES = `query UnreadExpiries($ids: [ID!]!) { nodes(ids: $ids) { ... on InboxEntry { id firstUnreadMessage { expiresAt } } } }`;

/** Entries in their current state: messages expire without an event. */
export const ENTRIES = `query Entries($ids: [ID!]!) { nodes(ids: $ids) { ... on InboxEntry { ${ENTRY} } } }`;

export const INBOX_UPDATED = `subscription InboxUpdated($after: String) {
  inboxUpdated(after: $after) {
    cursor
    event {
      __typename
      ... on InboxEntryChangedEvent { inboxEntryEdge { node { ${ENTRY} } } }
      ... on InboxEntryRemovedEvent { inboxEntryId conversationId }
      ... on BlockChangedEvent { user { ${SENDER} } }
    }
  }
}`;

/** The stream's position is read before the messages are: so nothing falls between. */
export const ROOM = `query Room($id: ID!, $first: Int!) {
  conversation(id: $id) {
    id kind name participantCount eventsCursor messageTtlSeconds
    viewerParticipant { role askedMessageTtlSeconds }
    directPeer { ${SENDER} presence { isOnline lastSeenAt } }
    participants(first: 10) { edges { node { user { ${USER} } } } }
    inboxEntry { visibleFrom unreadCount unreadCountIsCapped unreadMentionCount firstUnreadMessage { id } firstUnreadMention { id createdAt } }
    pinnedMessages(first: 100) { edges { ${PIN} } }
    messages(first: $first) { edges { node { ${MESSAGE} } } ${PAGE_INFO} }
  }
}`;

/** A page from the newest message, or after or before a cursor. */
export const PAGE = `query Page($id: ID!, $first: Int, $after: String, $last: Int, $before: String) {
  conversation(id: $id) {
    messages(first: $first, after: $after, last: $last, before: $before) { edges { node { ${MESSAGE} } } ${PAGE_INFO} }
  }
}`;

/** The page with a message in its middle, however old it is. */
export const AROUND = `query Around($id: ID!, $messageId: ID!) {
  conversation(id: $id) {
    messages(around: $messageId, first: 40) { edges { node { ${MESSAGE} } } ${PAGE_INFO} }
  }
}`;

export const CONVERSATION = `query Conversation($id: ID!) { conversation(id: $id) { id directPeer { ${SENDER} } } }`;

export const PARTICIPANTS = `query Participants($id: ID!, $prefix: String) {
  conversation(id: $id) { participants(first: 8, usernamePrefix: $prefix) { edges { node { user { ${USER} } } } } }
}`;

// ---- Search. Without words, a filter alone is the gallery of a conversation.

const MATCHES = "isCapped pageInfo { hasNextPage endCursor }";

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

export const STATUSES = `query Statuses($ids: [ID!]!) { nodes(ids: $ids) { ... on Message { id status } } }`;

export const EVENTS = `subscription Events($id: ID!, $after: String) {
  conversationEvents(conversationId: $id, after: $after) {
    cursor
    event {
      __typename
      ... on MessageAddedEvent { messageEdge { node { ${MESSAGE} } } }
      ... on MessageEditedEvent { message { ${MESSAGE} } }
      ... on MessageDeletedEvent { message { ${MESSAGE} } }
      ... on ReactionsChangedEvent { message { ${MESSAGE} } }
      ... on PinsChangedEvent { message { ${MESSAGE} } pinnedMessageEdge { ${PIN} } }
      ... on MarkerMovedEvent { participant { user { username } } }
      ... on ConversationRenamedEvent { conversation { name } }
      ... on ConversationUpdatedEvent { conversation { messageTtlSeconds } }
      ... on HistoryExpiredEvent { conversation { id } }
    }
  }
}`;

export const TYPING = `subscription Typing($id: ID!) {
  typingChanged(conversationId: $id) { user { ${USER} } isTyping }
}`;

export const PRESENCE = `subscription Presence($usernames: [String!]!) {
  presenceChanged(usernames: $usernames) { user { username } presence { isOnline lastSeenAt } }
}`;

export const SEND = `mutation Send($input: SendMessageInput!) {
  sendMessage(input: $input) { messageEdge { node { ${MESSAGE} } } }
}`;

export const EDIT = `mutation Edit($input: EditMessageInput!) { editMessage(input: $input) { message { ${MESSAGE} } } }`;
export const DELETE = `mutation Delete($input: DeleteMessageInput!) { deleteMessage(input: $input) { message { ${MESSAGE} } } }`;
export const REACT = `mutation React($input: AddReactionInput!) { addReaction(input: $input) { message { ${MESSAGE} } } }`;
export const UNREACT = `mutation Unreact($input: RemoveReactionInput!) { removeReaction(input: $input) { message { ${MESSAGE} } } }`;

export const MARK_READ = `mutation MarkRead($input: MarkReadInput!) { markRead(input: $input) { inboxEntry { id unreadCount } } }`;
export const MARK_DELIVERED = `mutation MarkDelivered($input: MarkDeliveredInput!) { markDelivered(input: $input) { inboxEntry { id } } }`;
export const SET_TYPING = `mutation SetTyping($input: SetTypingInput!) { setTyping(input: $input) { conversation { id } } }`;

export const START_DIRECT = `mutation StartDirect($input: StartDirectConversationInput!) {
  startDirectConversation(input: $input) { conversation { id } inboxEntryEdge { node { ${ENTRY} } } }
}`;
export const CREATE_GROUP = `mutation CreateGroup($input: CreateGroupConversationInput!) {
  createGroupConversation(input: $input) { conversation { id } inboxEntryEdge { node { ${ENTRY} } } }
}`;

export const PIN_MESSAGE = `mutation Pin($input: PinMessageInput!) {
  pinMessage(input: $input) { message { ${MESSAGE} } pinnedMessageEdge { ${PIN} } }
}`;
export const UNPIN_MESSAGE = `mutation Unpin($input: UnpinMessageInput!) { unpinMessage(input: $input) { message { ${MESSAGE} } } }`;

// ---- What a conversation keeps.

export const CLEAR = `mutation Clear($input: ClearHistoryInput!) { clearHistory(input: $input) { inboxEntry { ${ENTRY} } } }`;
export const UPDATE = `mutation Update($input: UpdateConversationInput!) {
  updateConversation(input: $input) { conversation { messageTtlSeconds viewerParticipant { role askedMessageTtlSeconds } } }
}`;

// ---- Blocks and reports.

export const BLOCKED_USERS = `query BlockedUsers($after: String) {
  blockedUsers(first: 100, after: $after) { edges { node { ${SENDER} } } pageInfo { hasNextPage endCursor } }
}`;
export const BLOCK = `mutation Block($input: BlockUserInput!) { blockUser(input: $input) { user { ${SENDER} } removedInboxEntryId } }`;
export const UNBLOCK = `mutation Unblock($input: UnblockUserInput!) {
  unblockUser(input: $input) { user { ${SENDER} } inboxEntryEdge { node { ${ENTRY} } } }
}`;
export const REPORT = `mutation Report($input: ReportMessageInput!) { reportMessage(input: $input) { reportId } }`;
