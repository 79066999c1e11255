// A chat in React on `wideroom-client`. `?as=alice&server=http://127.0.0.1:8080` says who one is, and where the server is.

import { StrictMode, useEffect, useRef, useState } from "react";
import { createRoot } from "react-dom/client";
import { connect, parts, type Item } from "wideroom-client";
import { ChatProvider, useBadge, useConnection, useConversation, useInbox, useViewer } from "wideroom-client/react";

const query = new URLSearchParams(location.search);
const url = query.get("server") ?? location.origin;
const user = query.get("as") ?? "alice";

/** In production your own backend signs the token of who is signed in. */
async function token() {
  const response = await fetch(new URL("demo/token", url), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ username: user }),
  });
  return (await response.json()).token as string;
}

function Bar() {
  const connection = useConnection();
  const { conversations } = useBadge();
  useEffect(() => { document.title = conversations ? `(${conversations}) Chat` : "Chat"; }, [conversations]);
  if (connection.state === "connected") return <p role="status">{connection.isCaughtUp ? "" : "Catching up…"}</p>;
  if (connection.state === "signed-out") return <p role="status">{connection.reason === "suspended" ? "Your account is suspended." : "Sign in again."}</p>;
  return <p role="status">{connection.state === "offline" ? "Offline. Messages will be sent when you are back." : "Connecting…"}</p>;
}

function Inbox({ open, onOpen }: { open: string | null; onOpen(id: string): void }) {
  const { items, hasMore, more } = useInbox();
  return (
    <nav aria-label="Inbox">
      <Bar />
      {items.map(({ id, conversation, unreadCount, lastMessage }) => (
        <button key={id} aria-current={conversation.id === open} onClick={() => onOpen(conversation.id)}>
          <b>{conversation.name ?? conversation.directPeer?.displayName ?? "Note to self"}</b> {unreadCount > 0 && <mark>{unreadCount}</mark>}
          <br />{lastMessage?.body?.slice(0, 60)}
        </button>
      ))}
      {hasMore && <button onClick={() => more()}>More</button>}
    </nav>
  );
}

function Message({ item, onRetry, onDiscard, onReact }: { item: Item; onRetry(): void; onDiscard(): void; onReact(emoji: string, on: boolean): void }) {
  const viewer = useViewer();
  const state = item.send ? item.send.state : item.sender.username === viewer?.username ? item.status?.toLowerCase() : "";
  return (
    <li data-key={item.key} data-state={item.send?.state ?? "stored"}>
      <b>{item.sender.displayName ?? item.sender.username}</b>{" "}
      <span className="body">
        {item.deletedAt ? <i>deleted</i> : parts(item).map((part, at) => (part.kind === "link" ? <a key={at} href={part.url}>{part.text}</a> : part.kind === "mention" ? <em key={at}>{part.text}</em> : part.text))}
      </span>{" "}
      <small>{state}</small>
      {item.reactions.map(({ emoji, count, viewerHasReacted }) => (
        <button key={emoji} aria-pressed={viewerHasReacted} onClick={() => onReact(emoji, !viewerHasReacted)}>{emoji} {count}</button>
      ))}
      {!item.send && !item.reactions.length && <button aria-label="Like" onClick={() => onReact("👍", true)}>👍</button>}
      {item.send?.state === "failed" && <>{item.send.error?.message} <button onClick={onRetry}>Send again</button></>}
      {item.send?.error && <button onClick={onDiscard}>Take back</button>}
    </li>
  );
}

function Conversation({ id }: { id: string }) {
  const { items, status, typingUsers, hasOlder, hasNewer, older, toNewest, send, typing, seen, react, retry, discard, draft } = useConversation(id);
  const list = useRef<HTMLOListElement>(null);
  const isAtEnd = useRef(true);
  const [text, setText] = useState(draft.get);
  const write = (text: string) => { setText(text); draft.set(text); };

  useEffect(() => {
    const { current } = list;
    if (current && isAtEnd.current) current.scrollTop = current.scrollHeight;
    const newest = items.findLast(({ send }) => !send);
    if (newest && isAtEnd.current) seen(newest.id);
  }, [items, seen]);

  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = list.current!;
    isAtEnd.current = scrollHeight - scrollTop - clientHeight < 40;
  };
  return (
    <main>
      <ol ref={list} onScroll={onScroll} aria-label="Messages">
        {hasOlder && <li><button onClick={() => older()}>Older</button></li>}
        {status === "gone" && <li>There is no such conversation, or you are not in it.</li>}
        {items.map((item) => (
          <Message key={item.key} item={item} onRetry={() => retry(item.key)} onDiscard={() => discard(item.key)} onReact={(emoji, on) => react(item.id, emoji, on).catch(() => {})} />
        ))}
        {hasNewer && <li><button onClick={() => toNewest()}>Newest</button></li>}
      </ol>
      <p>{typingUsers.map(({ username }) => username).join(", ")}{typingUsers.length > 0 && " writes…"}</p>
      <form onSubmit={(event) => {
        event.preventDefault();
        if (!text.trim()) return;
        isAtEnd.current = true;
        send(text.trim());
        write("");
        if (hasNewer) toNewest();
      }}>
        <input aria-label="Message" value={text} onChange={(event) => { write(event.target.value); typing(); }} />
        <button>Send</button>
      </form>
    </main>
  );
}

function App() {
  const [open, setOpen] = useState<string | null>(null);
  return <><Inbox open={open} onOpen={setOpen} />{open && <Conversation key={open} id={open} />}</>;
}

const root = document.body.appendChild(document.createElement("div"));
root.style.display = "contents";
createRoot(root).render(<StrictMode><ChatProvider chat={connect({ url, user, token })}><App /></ChatProvider></StrictMode>);
