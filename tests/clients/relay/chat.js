// Queries of a chat front end for Relay's compiler: each kind of pagination, every edge directive, and the subscriptions.

import { graphql } from "relay-runtime";

graphql`
  fragment chat_message on Message {
    id
    orderKey
    body
    clientKey
    createdAt
    sender {
      username
    }
  }
`;

// Newest first: `first` and `after` walk back in time.
graphql`
  fragment chat_messages on Conversation @argumentDefinitions(count: { type: "Int", defaultValue: 4 }, cursor: { type: "String" }) @refetchable(queryName: "chatMessagesPageQuery") {
    messages(first: $count, after: $cursor) @connection(key: "chat__messages") {
      edges {
        node {
          ...chat_message
        }
      }
    }
  }
`;

// The other way round, from the oldest on.
graphql`
  fragment chat_oldest on Conversation @argumentDefinitions(count: { type: "Int", defaultValue: 4 }, cursor: { type: "String" }) @refetchable(queryName: "chatOldestPageQuery") {
    oldest: messages(last: $count, before: $cursor) @connection(key: "chat__oldest") {
      edges {
        node {
          ...chat_message
        }
      }
    }
  }
`;

// Both ways at once, around a message that somebody linked to.
graphql`
  fragment chat_around on Conversation @argumentDefinitions(first: { type: "Int" }, after: { type: "String" }, last: { type: "Int" }, before: { type: "String" }) @refetchable(queryName: "chatAroundPageQuery") {
    around: messages(first: $first, after: $after, last: $last, before: $before) @connection(key: "chat__around") {
      edges {
        node {
          ...chat_message
        }
      }
    }
  }
`;

graphql`
  fragment chat_inbox on Query @argumentDefinitions(count: { type: "Int", defaultValue: 20 }, cursor: { type: "String" }, filter: { type: "InboxFilter" }) @refetchable(queryName: "chatInboxPageQuery") {
    inbox(first: $count, after: $cursor, filter: $filter) @connection(key: "chat__inbox", filters: ["filter"]) {
      edges {
        node {
          unreadCount
          conversation {
            name
            ...chat_people
          }
        }
      }
      updatesCursor
    }
  }
`;

graphql`
  fragment chat_people on Conversation @argumentDefinitions(count: { type: "Int", defaultValue: 32 }, cursor: { type: "String" }) @refetchable(queryName: "chatPeoplePageQuery") {
    participants(first: $count, after: $cursor) @connection(key: "chat__participants") {
      edges {
        node {
          user {
            username
          }
          role
        }
      }
    }
  }
`;

graphql`
  query chatQuery($id: ID!) {
    viewer {
      username
    }
    conversation(id: $id) {
      id
      eventsCursor
      ...chat_messages
      ...chat_oldest
      ...chat_around
    }
    ...chat_inbox
  }
`;

graphql`
  mutation chatSendMutation($input: SendMessageInput!, $connections: [ID!]!) {
    sendMessage(input: $input) {
      messageEdge @prependEdge(connections: $connections) {
        cursor
        node {
          ...chat_message
        }
      }
    }
  }
`;

// `last` shows the oldest first: there a new one goes to the end.
graphql`
  mutation chatGroupMutation($input: CreateGroupConversationInput!, $connections: [ID!]!) {
    createGroupConversation(input: $input) {
      inboxEntryEdge @appendEdge(connections: $connections) {
        node {
          unreadCount
        }
      }
    }
  }
`;

graphql`
  subscription chatMessageAddedSubscription($id: ID!, $after: String, $connections: [ID!]!) {
    messageAdded(conversationId: $id, after: $after) {
      messageEdge @prependEdge(connections: $connections) {
        cursor
        node {
          ...chat_message
        }
      }
    }
  }
`;

graphql`
  subscription chatEventsSubscription($id: ID!, $after: String) {
    conversationEvents(conversationId: $id, after: $after) {
      cursor
      event {
        __typename
        ... on MessageEditedEvent {
          message {
            ...chat_message
          }
        }
        ... on MessageDeletedEvent {
          message {
            ...chat_message
            deletedAt
          }
        }
        ... on MarkerMovedEvent {
          participant {
            readUpTo {
              id
            }
          }
        }
      }
    }
  }
`;

graphql`
  subscription chatInboxSubscription($after: String, $connections: [ID!]!) {
    inboxUpdated(after: $after) {
      cursor
      event {
        __typename
        ... on InboxEntryChangedEvent {
          inboxEntryEdge @prependEdge(connections: $connections) {
            node {
              unreadCount
            }
          }
        }
        ... on InboxEntryRemovedEvent {
          inboxEntryId @deleteEdge(connections: $connections)
        }
      }
    }
  }
`;
