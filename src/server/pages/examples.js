// The tabs of the playground. Each runs as it stands; their comments are as wide as the editor on a laptop.

/** `start`: what they are about, as `startOf` finds it. Only in a demo a tab has headers of its own. */
export const examples = ({ username, conversationId, about, cursor, eventsCursor, updatesCursor, word }, isDemo) => [
  [`# Your conversations, the most recently active first,
# each with its unread count.
query Inbox {
  viewer { username }
  inboxSummary { unreadConversationCount }
  inbox(first: 20) {
    edges {
      node {
        conversation { id name kind }
        unreadCount
        lastActivityAt
        lastMessage { sender { username } body }
      }
    }
    pageInfo { hasNextPage endCursor }
  }
}
`, {}],
  [`# One page of a conversation, the newest message first.
# For older ones put endCursor into the variable "after".
# ${about}
query Conversation($conversationId: ID!, $after: String) {
  conversation(id: $conversationId) {
    name
    messageCount
    messages(first: 5, after: $after) {
      edges {
        node { id sender { username } body createdAt }
      }
      pageInfo { hasNextPage endCursor }
    }
  }
}
`, { conversationId, after: null }],
  [`# Run it twice: a retry with the same idempotencyKey
# answers with the same message. A new one wants a new key.
# ${about}
${isDemo ? `#
# A backend sends for a user with a token of its own, which
#   wideroom token --service backend --scope act
# prints. Put it into the headers below:
#   { "Authorization": "Bearer …", "Wideroom-As": "${username}" }
` : ""}mutation Send($input: SendMessageInput!) {
  sendMessage(input: $input) {
    messageEdge {
      cursor
      node { id clientKey sender { username } body }
    }
  }
}
`, { input: { conversationId, body: "Hello from GraphiQL", idempotencyKey: crypto.randomUUID() } }],
  [`# Moves your read marker to the newest message, or to the
# one you name as "messageId" in the input; never back.
# ${about}
mutation MarkRead($input: MarkReadInput!) {
  markRead(input: $input) {
    inboxEntry {
      unreadCount
      readUpTo { id body }
      conversation { name }
    }
  }
}
`, { input: { conversationId } }],
  [`# Every message after the cursor, then live: send one from
# another window. After a cut it goes on from the last one.
# The newest payload is "data", those before are "earlier".
# ${about}
subscription NewMessages(
  $conversationId: ID!
  $after: String
) {
  messageAdded(
    conversationId: $conversationId
    after: $after
  ) {
    messageEdge {
      cursor
      node { sender { username } body createdAt }
    }
  }
}
`, { conversationId, after: cursor }],
  [`# Everything that happens in a conversation: messages,
# edits, reactions, pins, markers, participants, settings.
# An app has it open for the conversation on its screen.
# ${about}
subscription ConversationEvents(
  $conversationId: ID!
  $after: String
) {
  conversationEvents(
    conversationId: $conversationId
    after: $after
  ) {
    isLive
    event {
      __typename
      ... on MessageAddedEvent {
        messageEdge { node { ...Line } }
      }
      ... on MessageEditedEvent { message { ...Line } }
      ... on MessageDeletedEvent { message { ...Line } }
      ... on ReactionsChangedEvent {
        message { id reactions { emoji count } }
      }
      ... on MarkerMovedEvent {
        participant { user { username } readUpTo { id } }
      }
    }
  }
}

fragment Line on Message {
  id body deletedAt
  sender { username }
}
`, { conversationId, after: eventsCursor }],
  [`# Every change of your inbox: new messages, unread counts,
# and what your other devices read, mute or archive.
# An app has it open all the time.
subscription InboxUpdated($after: String) {
  inboxUpdated(after: $after) {
    isLive
    event {
      __typename
      ... on InboxEntryChangedEvent {
        inboxEntryEdge {
          node {
            unreadCount
            lastMessage { sender { username } body }
            conversation { id name }
          }
        }
      }
      ... on InboxEntryRemovedEvent { conversationId }
      ... on BlockChangedEvent { user { username } }
    }
  }
}
`, { after: updatesCursor }],
  [`# Messages while they are written, as the answers of agents:
# first the whole text of each, then what is appended. Run
# the next tab in another window, and again with more text.
# ${about}
subscription Live(
  $conversationId: ID!
  $after: String
) {
  liveMessages(
    conversationId: $conversationId
    after: $after
  ) {
    text
    isWhole
    liveMessage {
      id state status stopRequestedBy { username }
      steps { title state detail }
      sender { username }
    }
  }
}
`, { conversationId, after: null }],
  [`# Writes a message in view of the others. Go on with the
# nextPosition of the answer as "position". A sendMessage
# with the key as idempotencyKey makes it a message; after
# a minute of silence the server sends what there is.
# ${about}
mutation WriteLive($input: WriteLiveMessageInput!) {
  writeLiveMessage(input: $input) {
    nextPosition
    liveMessage { id body stopRequestedBy { username } }
  }
}
`, {
    input: {
      conversationId, key: crypto.randomUUID(), writer: "playground", position: 0,
      text: "Once upon a time ", status: "telling", steps: [{ key: "1", title: "Find a story", state: "DONE" }],
    },
  }],
  [`# Messages of all your conversations with every word, the
# newest first. The last word may be the beginning of one.
query Search($query: String!, $after: String) {
  searchMessages(query: $query, first: 5, after: $after) {
    edges {
      snippet { text isMatch }
      node {
        sender { username }
        createdAt
        conversation { id name }
      }
    }
    pageInfo { hasNextPage endCursor }
  }
}
`, { query: word, after: null }],
  [`# Messages that mention you, and where you have not read
# them yet.
query Mentions($filter: MessageFilter!) {
  searchMessages(filter: $filter, first: 5) {
    edges {
      node {
        sender { username }
        body
        createdAt
        conversation { id name }
      }
    }
  }
  inbox(first: 5, filter: { mentionedOnly: true }) {
    edges {
      node {
        unreadMentionCount
        firstUnreadMention { id body }
        conversation { id name }
      }
    }
  }
}
`, { filter: { mentionedUsernames: [username] } }],
].map(([query, variables]) => ({ query, variables: Object.keys(variables).length ? JSON.stringify(variables, null, 2) : "" }));

/** Asks who this is, and for what the examples need. */
export const START = `query Start {
  viewer { username }
  inbox(first: 1) {
    updatesCursor
    edges {
      node {
        conversation {
          id name directPeer { username } eventsCursor
          messages(first: 3) { edges { cursor node { body } } }
        }
      }
    }
  }
}`;

/** What the examples are about: the conversation that was active last. */
export function startOf(data) {
  const conversation = data?.inbox.edges[0]?.node.conversation;
  const edges = conversation?.messages.edges ?? [];
  const name = conversation?.name ?? (conversation?.directPeer ? `with ${conversation.directPeer.username}` : "of your own");
  const words = edges.flatMap(({ node }) => node.body?.match(/[\p{L}\p{N}]+/gu) ?? []);
  return {
    username: data?.viewer.username ?? "",
    conversationId: conversation?.id ?? "",
    about: conversation ? `The conversation is ${name.replace(/\s+/g, " ")}.` : "There is no conversation yet.",
    cursor: edges.at(-1)?.cursor ?? null,
    eventsCursor: conversation?.eventsCursor ?? null,
    updatesCursor: data?.inbox.updatesCursor ?? null,
    word: words.reduce((longest, word) => (word.length > longest.length ? word : longest), "hello"),
  };
}
