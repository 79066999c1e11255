// The menu of an inbox entry: read or unread, pinned, muted, archived, and which messages notify.

import { CHANGES, NEWEST } from "./documents.js";
import { openMenu } from "./menu.js";

const LEVELS = [["ALL", "All messages"], ["MENTIONS", "Mentions only"], ["NONE", "Nothing"]];

/** `inbox`: the list of the package. `attempt(promise)`: says what failed. */
export function openEntryMenu({ chat, inbox, viewer, entry, anchor, attempt }) {
  const { conversation, lastMessage, unreadCount, isPinned, isMuted, isArchived, notificationLevel } = entry;
  const update = (change) => () => attempt(inbox.update(conversation.id, change));
  const levels = () => openMenu(anchor, {
    name: "Notifications",
    items: LEVELS.map(([level, label]) => ({ label, isChecked: level === notificationLevel, run: update({ level }) })),
  });
  openMenu(anchor, {
    name: "Conversation",
    items: [
      unreadCount > 0 && { label: "Mark as read", run: () => attempt(chat.request(CHANGES.markRead, { input: { conversationId: conversation.id, messageId: lastMessage.id } })) },
      !unreadCount && lastMessage && { label: "Mark as unread", run: () => attempt(markUnread(chat, conversation.id, viewer)) },
      { label: isPinned ? "Unpin" : "Pin", run: update({ pinned: !isPinned }) },
      { label: isMuted ? "Unmute" : "Mute", run: update({ muted: !isMuted }) },
      { label: "Notifications…", run: levels },
      { label: isArchived ? "Back to the inbox" : "Archive", run: update({ archived: !isArchived }) },
    ].filter(Boolean),
  });
}

/** From the newest message of another user on: one's own are never unread. */
async function markUnread(chat, id, viewer) {
  const { conversation } = await chat.request(NEWEST, { id });
  const last = conversation.messages.edges.find(({ node }) => node.kind === "TEXT" && node.sender.username !== viewer);
  if (!last) throw new Error("There is no message of anybody else.");
  await chat.conversation(id).markUnread(last.node.id);
}
