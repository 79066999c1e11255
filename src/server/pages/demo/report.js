// The dialog that reports a message to those who run the service.

import { REPORT } from "./documents.js";
import { el, nameOf, part } from "./dom.js";
import { lineOf } from "./message.js";

const REASONS = {
  SPAM: "Spam", HARASSMENT: "Harassment", HATE: "Hate", SEXUAL: "Sexual content", VIOLENCE: "Violence", SELF_HARM: "Self-harm",
  ILLEGAL: "Something illegal", OTHER: "Something else",
};

/** `block(username)`: a promise. It is called where the reporter asks for it too. */
export function openReport({ chat, message, block }) {
  const dialog = part("report-dialog");
  const stop = new AbortController();
  const { signal } = stop;
  part("report-form").reset();
  part("report-problem").textContent = "";
  part("report-line").textContent = `${nameOf(message.sender)}: ${lineOf(message).slice(0, 140)}`;
  part("report-reasons").replaceChildren(el("legend", {}, "Reason"), ...Object.entries(REASONS).map(([value, words]) =>
    el("label", {}, el("input", { type: "radio", name: "reason", value, required: true }), words)));
  part("report-block-label").hidden = message.sender.viewerHasBlocked;
  part("report-block-name").textContent = `Block ${nameOf(message.sender)} too`;
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
      await chat.request(REPORT, { input: { messageId: message.id, reason, note: part("report-note").value.trim() || null } });
      if (part("report-block").checked) await block(message.sender.username);
      showSent(true);
      part("report-close").focus();
    } catch (error) {
      part("report-problem").textContent = error.code === "OFFLINE" ? "You are offline. Try again when you are back." : error.message;
    } finally {
      button.disabled = false;
    }
  };
  part("report-form").addEventListener("submit", send, { signal });
  for (const id of ["report-cancel", "report-close"]) part(id).addEventListener("click", () => dialog.close(), { signal });
  dialog.addEventListener("close", () => stop.abort(), { signal });
  dialog.showModal();
}
