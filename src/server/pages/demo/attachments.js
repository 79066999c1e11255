// Attachments of messages: pictures are shown at their size, the rest as links. There is no upload: a file is attached by its address.

import { el, icon, link, part, remoteImage } from "./dom.js";

const WIDTH_MOST = 360;
const HEIGHT_MOST = 320;
const PROBE_TIME = 10_000;
const TYPES = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp", svg: "image/svg+xml", avif: "image/avif", mp4: "video/mp4", mp3: "audio/mpeg", pdf: "application/pdf", txt: "text/plain", zip: "application/zip" };

/** A picture keeps its room from the start, so that nothing jumps when it comes. */
export function drawAttachment({ url, name, mimeType, width, height }) {
  const words = name || mimeType;
  const scale = width && height ? Math.min(1, WIDTH_MOST / width, HEIGHT_MOST / height) : 0;
  const size = scale ? { width: Math.max(1, Math.round(width * scale)), height: Math.max(1, Math.round(height * scale)) } : { class: "unsized" };
  const image = mimeType.startsWith("image/") && remoteImage(url, { alt: words, ...size });
  if (!image) return el("p", { class: "attachment" }, icon("clip"), link(url, words));
  const anchor = link(url, "");
  // One that does not load is a link with its name.
  image.addEventListener("error", () => anchor.parentElement.replaceChildren(icon("clip"), link(url, words)));
  anchor.append(image);
  return el("p", { class: "picture" }, anchor);
}

/** Size of an image, or nothing. */
function sizeOf(url) {
  const image = new Image();
  image.referrerPolicy = "no-referrer";
  return new Promise((resolve) => {
    setTimeout(resolve, PROBE_TIME);
    image.onload = () => resolve({ width: image.naturalWidth, height: image.naturalHeight });
    image.onerror = () => resolve();
    image.src = url;
  });
}

/** Attachment of an address: name and type by its ending, and the size of a picture. */
async function describe(url) {
  let name = new URL(url).pathname.split("/").at(-1) || undefined;
  // A per cent sign of the name may stand for itself.
  try { name &&= decodeURIComponent(name); } catch {}
  const mimeType = TYPES[/\.(\w+)$/.exec(name ?? "")?.[1].toLowerCase()];
  const size = url.startsWith("https:") && (!mimeType || mimeType.startsWith("image/")) ? await sizeOf(url) : undefined;
  return { url, name, mimeType: mimeType ?? (size ? "image/*" : "application/octet-stream"), ...size };
}

/** Opens the dialog that asks for the address. `attach(attachment)`. It closes with the composer, whose signal `closing` is. */
export function openAttach(attach, closing) {
  const dialog = part("attach-dialog");
  const stop = new AbortController();
  const { signal } = stop;
  part("attach-form").reset();
  part("attach-problem").textContent = "";
  part("attach-send").disabled = false;
  closing.addEventListener("abort", () => dialog.close(), { signal });
  part("attach-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const url = part("attach-url").value.trim();
    if (!/^https?:/i.test(url) || !URL.canParse(url)) {
      part("attach-problem").textContent = "The address begins with https://";
      return;
    }
    part("attach-send").disabled = true;
    const attachment = await describe(url);
    part("attach-send").disabled = false;
    if (signal.aborted) return;
    dialog.close();
    attach(attachment);
  }, { signal });
  part("attach-cancel").addEventListener("click", () => dialog.close(), { signal });
  dialog.addEventListener("close", () => stop.abort(), { signal });
  dialog.showModal();
}
