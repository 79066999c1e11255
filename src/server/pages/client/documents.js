// Every operation of the package. They are of the public API: each runs in the playground of a server.

/** The documents, with the fields that the app adds. */
export function documentsWith({ message = "", user = "", conversation = "", entry = "" } = {}) {
  const USER = `id username displayName avatarUrl viewerHasBlocked isAgent ${user}`;
  const BODY = `id orderKey kind body deletedAt metadata sender { ${USER} } attachments { url mimeType name`;
  const QUOTE = `${BODY} }`;
  const LINE = `${QUOTE} createdAt expiresAt`;
  const MESSAGE = `${BODY} sizeBytes width height } `
    + `clientKey createdAt editedAt expiresAt status isPinned mentionsEveryone mentions { ${USER} } `
    + `reactions { emoji count countIsCapped viewerHasReacted } replyTo { ${QUOTE} } ${message}`;
  const PIN = `pinnedAt node { ${LINE} }`;
  const MESSAGES = `edges { node { ${MESSAGE} } } pageInfo { hasNextPage hasPreviousPage startCursor endCursor }`;
  const HEAD = "id kind name participantCount messageTtlSeconds slowModeSeconds "
    + "deliveredToAllUpTo { orderKey } readByAllUpTo { orderKey } "
    + `viewerParticipant { role isSilenced silencedUntil askedMessageTtlSeconds } directPeer { ${USER} } ${conversation}`;
  const NAMED = `conversation { id kind name directPeer { ${USER} } }`;
  const ENTRY = "id unreadCount unreadCountIsCapped unreadMentionCount lastActivityAt isMuted isPinned isArchived visibleFrom notificationLevel "
    + `firstUnreadMention { id createdAt } ${NAMED} lastMessage { ${LINE} } ${entry}`;
  const EDGES = `edges { node { ${ENTRY} } } pageInfo { hasNextPage endCursor }`;
  const MATCHES = "searchMessages(query: $text, filter: $filter, first: 20, after: $after) "
    + `{ isCapped pageInfo { hasNextPage endCursor } edges { snippet { text isMatch } node { ${LINE} ${NAMED} } } }`;

  /** Each mutation `doIt` takes a `DoItInput`. */
  const mutation = (field, payload) => {
    const name = field[0].toUpperCase() + field.slice(1);
    return `mutation ${name}($input: ${name}Input!) { ${field}(input: $input) { ${payload} } }`;
  };
  const changed = `message { ${MESSAGE} }`;
  const edge = `inboxEntryEdge { node { ${ENTRY} } }`;
  const mutations = {
    sendMessage: `messageEdge { node { ${MESSAGE} } }`,
    editMessage: changed, deleteMessage: changed, addReaction: changed, removeReaction: changed, unpinMessage: changed,
    pinMessage: `${changed} pinnedMessageEdge { ${PIN} }`,
    markRead: "inboxEntry { id }", markUnread: "inboxEntry { id }", markDelivered: "inboxEntry { id }",
    setTyping: "conversation { id }",
    updateInboxEntry: `inboxEntry { ${ENTRY} }`,
    startDirectConversation: edge, createGroupConversation: edge,
  };

  return {
    VIEWER: `query Viewer { viewer { ${USER} } }`,
    SUMMARY: "query Summary { inboxSummary { unreadConversationCount mentionedConversationCount isCapped } }",
    UPDATES_CURSOR: "query UpdatesCursor { inbox(first: 0) { updatesCursor } }",
    INBOX: `query Inbox($filter: InboxFilter, $after: String) { inbox(first: 30, filter: $filter, after: $after) { ${EDGES} } }`,
    PINNED: `query PinnedEntries($filter: InboxFilter) { inbox(first: 100, filter: $filter) { ${EDGES} } }`,
    ENTRIES: `query Entries($ids: [ID!]!) { nodes(ids: $ids) { ... on InboxEntry { ${ENTRY} firstUnreadMessage { expiresAt } } } }`,
    INBOX_UPDATED: "subscription InboxUpdated($after: String) { inboxUpdated(after: $after) { cursor isLive event { __typename "
      + `... on InboxEntryChangedEvent { ${edge} } `
      + `... on InboxEntryRemovedEvent { inboxEntryId conversationId } ... on BlockChangedEvent { user { ${USER} } } } } }`,

    /** The stream's position is read with the messages, so nothing falls between the two. */
    CONVERSATION: `query Conversation($id: ID!, $first: Int!) { conversation(id: $id) { ${HEAD} eventsCursor `
      + `participants(first: 10) { edges { node { user { ${USER} } } } } inboxEntry { ${ENTRY} firstUnreadMessage { id } } `
      + `pinnedMessages(first: 100) { edges { ${PIN} } } messages(first: $first) { ${MESSAGES} } } }`,
    HEAD: `query Head($id: ID!) { conversation(id: $id) { ${HEAD} } }`,
    PAGE: "query Page($id: ID!, $first: Int, $after: String, $last: Int, $before: String, $around: ID, $from: DateTime) { "
      + "conversation(id: $id) { messages(first: $first, after: $after, last: $last, before: $before, around: $around, from: $from) "
      + `{ ${MESSAGES} } } }`,
    EVENTS: "subscription Events($id: ID!, $after: String) { conversationEvents(conversationId: $id, after: $after) { cursor isLive "
      + `event { __typename ... on MessageAddedEvent { messageEdge { node { ${MESSAGE} } } } `
      + `... on MessageEditedEvent { ${changed} } ... on MessageDeletedEvent { ${changed} } `
      + `... on ReactionsChangedEvent { ${changed} } ... on PinsChangedEvent { ${changed} pinnedMessageEdge { ${PIN} } } `
      + "... on MarkerMovedEvent { participant { user { username } } } } } }",
    TYPING: `subscription Typing($id: ID!) { typingChanged(conversationId: $id) { user { ${USER} } isTyping } }`,
    PARTICIPANTS: "query Participants($id: ID!, $prefix: String) { "
      + `conversation(id: $id) { participants(first: 8, usernamePrefix: $prefix) { edges { node { user { ${USER} } } } } } }`,
    PRESENCE: "subscription Presence($usernames: [String!]!) { "
      + "presenceChanged(usernames: $usernames) { user { username } presence { isOnline lastSeenAt } } }",
    SEARCH: `query Search($text: String, $filter: MessageFilter, $after: String) { ${MATCHES} }`,
    SEARCH_IN: `query SearchIn($id: ID!, $text: String, $filter: MessageFilter, $after: String) { conversation(id: $id) { ${MATCHES} } }`,

    ...Object.fromEntries(Object.entries(mutations).map(([field, payload]) => [field, mutation(field, payload)])),
  };
}
