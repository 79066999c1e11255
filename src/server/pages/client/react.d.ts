import type { ReactElement, ReactNode } from "react";
import type { Badge, Chat, Connection, Conversation, ConversationState, Inbox, InboxFilter, InboxState, Presence, Search, SearchQuery, SearchState, Store, User } from "./index.js";

type Functions<T> = Omit<T, "get" | "subscribe">;

export function ChatProvider(props: { chat: Chat; children?: ReactNode }): ReactElement;
export function useChat(): Chat;
export function useConnection(): Connection;
/** The user who is signed in; null until the server has answered. */
export function useViewer(): User | null;
export function useBadge(): Badge;
export function useInbox(filter?: InboxFilter): InboxState & Functions<Inbox>;
export function useConversation(id: string, at?: string): ConversationState & Functions<Conversation>;
export function useConversation(id: string | null | undefined, at?: string): (ConversationState & Functions<Conversation>) | null;
export function usePresence(username: string | null): Presence | null;
export function useSearch(query: SearchQuery): SearchState & Functions<Search>;
export function useSearch(query: SearchQuery | null): (SearchState & Functions<Search>) | null;
export function useStore<T>(store: Store<T>): T;
