// Every operation of this page. They are the public API's and nothing else: run them in the playground at /.

const USER = "username displayName";

const MESSAGE = `
  id uuid kind body clientKey createdAt editedAt deletedAt metadata status
  sender { ${USER} }
  attachments { url name mimeType }
  reactions { emoji count countIsCapped viewerHasReacted }
  replyTo { id body deletedAt sender { ${USER} } }`;

const ENTRY = `
  id unreadCount unreadCountIsCapped lastActivityAt isMuted isPinned isArchived
  conversation { id kind name directPeer { ${USER} } }
  lastMessage { id kind body deletedAt createdAt metadata sender { ${USER} } attachments { name } }`;

export const VIEWER = `query Viewer { viewer { ${USER} } }`;

export const INBOX = `query Inbox($after: String) {
  inbox(first: 30, after: $after) {
    edges { node { ${ENTRY} } }
    pageInfo { hasNextPage endCursor }
    updatesCursor
  }
}`;

export const INBOX_UPDATED = `subscription InboxUpdated($after: String) {
  inboxUpdated(after: $after) {
    cursor
    event {
      __typename
      ... on InboxEntryChangedEvent { inboxEntryEdge { node { ${ENTRY} } } }
      ... on InboxEntryRemovedEvent { inboxEntryId conversationId }
    }
  }
}`;

/** The stream's position is read before the messages are: so nothing falls between. */
export const ROOM = `query Room($id: ID!, $first: Int!) {
  conversation(id: $id) {
    id kind name participantCount eventsCursor
    directPeer { ${USER} presence { isOnline lastSeenAt } }
    participants(first: 10) { edges { node { user { ${USER} } } } }
    inboxEntry { unreadCount unreadCountIsCapped firstUnreadMessage { id } }
    messages(first: $first) { edges { node { ${MESSAGE} } } pageInfo { hasNextPage endCursor } }
  }
}`;

export const OLDER = `query Older($id: ID!, $after: String) {
  conversation(id: $id) {
    messages(first: 30, after: $after) { edges { node { ${MESSAGE} } } pageInfo { hasNextPage endCursor } }
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
      ... on MarkerMovedEvent { participant { user { username } } }
      ... on ConversationRenamedEvent { conversation { name } }
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
