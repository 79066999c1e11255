// The dialog that reports a message or a user to those who run the service.

import { REPORT, REPORT_USER } from "./documents.js";
import { el, part, wordsOf } from "./dom.js";
import { lineOf } from "./message.js";
import { nameOf } from "./names.js";

const REASONS = {
  SPAM: "Spam", HARASSMENT: "Harassment", HATE: "Hate", SEXUAL: "Sexual content", VIOLENCE: "Violence", SELF_HARM: "Self-harm",
  ILLEGAL: "Something illegal", OTHER: "Something else",
};

/** Reports `message`, or without one `user`. `block(username)`: a promise. The dialog calls it where the reporter asks for it too. */
export function openReport({ chat, message, user, conversationId, block }) {
  const dialog = part("report-dialog");
  const stop = new AbortController();
  const { signal } = stop;
  part("report-form").reset();
  part("report-problem").textContent = "";
  part("report-title").textContent = message ? "Report a message" : `Report ${nameOf(user)}`;
  part("report-line").textContent = message ? `${nameOf(user)}: ${lineOf(message).slice(0, 140)}` : "";
  part("report-copy").textContent = `${message ? "A copy of the message" : "The report"} goes to those who run this chat. Nobody else is told.`;
  part("report-reasons").replaceChildren(el("legend", {}, "Reason"), ...Object.entries(REASONS).map(([value, words]) =>
    el("label", {}, el("input", { type: "radio", name: "reason", value, required: true }), words)));
  part("report-block-label").hidden = user.viewerHasBlocked;
  part("report-block-name").textContent = `Block ${nameOf(user)} too`;
  const showSent = (isSent) => {
    [part("report-form").hidden, part("report-sent").hidden] = [isSent, !isSent];
  };
  showSent(false);

  const send = async (event) => {
    event.preventDefault();
    const button = part("report-send");
    button.disabled = true;
    try {
      const reason = new FormData(part("report-form")).get("reason");
      const input = { ...(message ? { messageId: message.id } : { username: user.username, conversationId }), reason, note: part("report-note").value.trim() || null };
      await chat.request(message ? REPORT : REPORT_USER, { input });
      if (part("report-block").checked) await block(user.username);
      showSent(true);
      part("report-close").focus();
    } catch (error) {
      part("report-problem").textContent = wordsOf(error);
    } finally {
      button.disabled = false;
    }
  };
  part("report-form").addEventListener("submit", send, { signal });
  for (const id of ["report-cancel", "report-close"]) part(id).addEventListener("click", () => dialog.close(), { signal });
  dialog.addEventListener("close", () => stop.abort(), { signal });
  dialog.showModal();
}
