// The dialog of the viewer's own profile: the name and the picture that others see.

import { CHANGES } from "./documents.js";
import { part, wordsOf } from "./dom.js";

/** `user`: as the viewer is known. `saved(user)`. */
export function openProfile({ chat, user, saved }) {
  const dialog = part("profile-dialog");
  const stop = new AbortController();
  const { signal } = stop;
  [part("profile-name").value, part("profile-picture").value] = [user.displayName ?? "", user.avatarUrl ?? ""];
  part("profile-handle").textContent = `@${user.username}. This name stays: others mention you by it.`;
  part("profile-problem").textContent = "";
  part("profile-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const input = { displayName: part("profile-name").value.trim() || null, avatarUrl: part("profile-picture").value.trim() || null };
    try {
      saved((await chat.request(CHANGES.updateProfile, { input })).updateProfile.user);
      dialog.close();
    } catch (error) {
      part("profile-problem").textContent = wordsOf(error);
    }
  }, { signal });
  part("profile-cancel").addEventListener("click", () => dialog.close(), { signal });
  dialog.addEventListener("close", () => stop.abort(), { signal });
  dialog.showModal();
}
