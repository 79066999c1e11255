// What an application does with the generated types. It is compiled, not run: that a wrong use fails is part of it.

import { ApolloClient } from "@apollo/client/core";

import { AddedDocument, InboxDocument, MessagesDocument, SendDocument, type MessagePartsFragment } from "../generated/codegen/graphql.js";
import type { ConversationKind, Query, Subscription } from "../generated/schema.js";

export const bodies = async (client: ApolloClient, id: string): Promise<(string | null | undefined)[]> => {
  const { data } = await client.query({ query: MessagesDocument, variables: { id, first: 20 } });
  return data?.conversation?.messages.edges.map(({ node }) => node.body) ?? [];
};

export const sent = (message: MessagePartsFragment): Date => new Date(message.createdAt);

export const send = (client: ApolloClient, conversationId: string, body: string) =>
  client.mutate({ mutation: SendDocument, variables: { input: { conversationId, body, idempotencyKey: crypto.randomUUID() } } });

export const listen = (client: ApolloClient, id: string, after: string) => client.subscribe({ query: AddedDocument, variables: { id, after } });

export const groups = (client: ApolloClient) => client.query({ query: InboxDocument, variables: { filter: { kind: "GROUP" } } });

// @ts-expect-error A required variable is missing.
export const wrong = (client: ApolloClient) => client.query({ query: MessagesDocument, variables: { first: 20 } });

export type Known = [ConversationKind, Query["inbox"], Subscription["messageAdded"]];
