// Apollo Client.

import { ApolloClient, ApolloLink, HttpLink, InMemoryCache, gql } from "@apollo/client/core";
import { SetContextLink } from "@apollo/client/link/context";
import { RetryLink } from "@apollo/client/link/retry";
import { GraphQLWsLink } from "@apollo/client/link/subscriptions";
import { relayStylePagination } from "@apollo/client/utilities";

/** Sorts a message that is on its way after all others. */
const NEWEST = "~";
const MESSAGE = gql`fragment Message on Message { id orderKey body clientKey createdAt sender { id username } }`;

/** Older messages: `fetchMore({ variables: { after: pageInfo.endCursor } })`. */
export const MESSAGES = gql`
  query Messages($id: ID!, $first: Int, $after: String, $last: Int, $before: String) {
    conversation(id: $id) {
      id
      eventsCursor
      messages(first: $first, after: $after, last: $last, before: $before) {
        edges { cursor node { ...Message } }
        pageInfo { startCursor endCursor hasNextPage hasPreviousPage }
      }
    }
  }
  ${MESSAGE}
`;

const SEND = gql`
  mutation Send($input: SendMessageInput!) { sendMessage(input: $input) { messageEdge { cursor node { ...Message } } } }
  ${MESSAGE}
`;

const ADDED = gql`
  subscription Added($id: ID!, $after: String) {
    messageAdded(conversationId: $id, after: $after) { messageEdge { cursor node { ...Message } } }
  }
  ${MESSAGE}
`;

export const connect = (url, token, sockets) => {
  const authorize = new SetContextLink(() => ({ headers: { authorization: `Bearer ${token()}` } }));
  const http = ApolloLink.from([new RetryLink(), authorize, new HttpLink({ uri: url })]);
  const typePolicies = {
    Query: { fields: { inbox: relayStylePagination(["filter"]) } },
    Conversation: { fields: { messages: relayStylePagination(), participants: relayStylePagination() } },
  };
  return new ApolloClient({
    cache: new InMemoryCache({ typePolicies }),
    link: ApolloLink.split(({ operationType }) => operationType === "subscription", new GraphQLWsLink(sockets), http),
  });
};

/** Puts a message into its list, in the order of the server, once: the answer to a send and the subscription tell of the same one. */
const add = (cache, conversationId, edge) => {
  const node = cache.writeFragment({ data: edge.node, fragment: MESSAGE });
  const messages = (list, { readField }) => {
    const isThere = list.edges.some((other) => readField("id", other.node) === edge.node.id);
    const keyOf = (other) => readField("orderKey", other.node);
    const inOrder = (edges) => edges.sort((a, b) => (keyOf(a) < keyOf(b) ? 1 : -1));
    return isThere ? list : { ...list, edges: inOrder([{ ...edge, node }, ...list.edges]) };
  };
  cache.modify({ id: cache.identify({ __typename: "Conversation", id: conversationId }), fields: { messages } });
};

/** Shown at once. A retry carries the same key, and so makes no second message: `unsent.js` keeps the message for it. */
export const send = (client, { conversationId, body, sender, key = crypto.randomUUID() }) => {
  const node = { __typename: "Message", id: key, orderKey: NEWEST, body, clientKey: key, createdAt: new Date().toISOString(), sender };
  return client.mutate({
    mutation: SEND,
    variables: { input: { conversationId, body, idempotencyKey: key } },
    optimisticResponse: { sendMessage: { __typename: "SendMessagePayload", messageEdge: { __typename: "MessageEdge", cursor: key, node } } },
    update: (cache, { data }) => add(cache, conversationId, data.sendMessage.messageEdge),
  });
};

/** From `after` on: the `eventsCursor` that was read before the messages were. */
export const listen = (client, { conversationId, after }) =>
  client
    .subscribe({ query: ADDED, variables: { id: conversationId, after }, fetchPolicy: "no-cache" })
    .subscribe(({ data }) => data && add(client.cache, conversationId, data.messageAdded.messageEdge));
