// Hooks over the stores of the package. React 18 or later.

import { createContext, createElement, useContext, useMemo, useSyncExternalStore } from "react";

const Context = createContext(null);
const NOTHING = { get: () => null, subscribe: () => () => {} };

export const ChatProvider = ({ chat, children }) => createElement(Context.Provider, { value: chat }, children);

export function useChat() {
  const chat = useContext(Context);
  if (!chat) throw new Error("There is no ChatProvider above this component.");
  return chat;
}

export const useStore = (store) => useSyncExternalStore(store.subscribe, store.get, store.get);

/** The store that `make` returns, for as long as the value stays equal as JSON. */
function useMade(value, make) {
  const chat = useChat();
  return useMemo(() => (value == null ? NOTHING : make(chat)), [chat, JSON.stringify(value)]);
}

/** The state of a store with its functions beside. */
function useAll(store) {
  const state = useStore(store);
  return useMemo(() => state && { ...store, ...state }, [store, state]);
}

export const useConnection = () => useStore(useChat().connection);
export const useViewer = () => useStore(useChat().viewer);
export const useBadge = () => useStore(useChat().badge);
export const useInbox = (filter = {}) => useAll(useMade(filter, (chat) => chat.inbox(filter)));
export const useConversation = (id, at) => useAll(useMade(id && [id, at], (chat) => chat.conversation(id, { at })));
export const useSearch = (query) => useAll(useMade(query, (chat) => chat.search(query)));
export const usePresence = (username) => useStore(useMade(username, (chat) => chat.presence([username])))?.get(username) ?? null;
