// The menu of a message or of a conversation. Arrow keys walk, Enter chooses, Escape goes back to where one was.

import { el } from "./dom.js";

const EMOJI = [["👍", "Thumbs up"], ["❤️", "Heart"], ["😂", "Laughing"], ["🎉", "Party"], ["😮", "Surprised"], ["🙏", "Thanks"]];

let close = () => {};

/**
 * `react`: called with an emoji; without it there is no row of them. `items`: { label, run, asks, isChecked }. One that `asks` has to be
 * chosen twice. One with `isChecked` is a choice of several.
 */
export function openMenu(anchor, { name, react, items }) {
  close();
  const choose = (run) => () => { close(); run(); };
  const emoji = react ? EMOJI.map(([sign, words]) =>
    el("button", { role: "menuitem", type: "button", "aria-label": words, onclick: choose(() => react(sign)) }, sign)) : [];
  const rows = items.map(({ label, run, asks, isChecked }) => {
    let isSure = !asks;
    return el("button", {
      role: isChecked === undefined ? "menuitem" : "menuitemradio", "aria-checked": isChecked === undefined ? undefined : String(isChecked),
      type: "button", class: asks ? "danger" : undefined,
      onclick: (event) => {
        if (isSure) return choose(run)();
        isSure = true;
        event.currentTarget.textContent = asks;
      },
    }, label);
  });
  const menu = el("div", { class: "menu", role: "menu", "aria-label": name }, react ? el("div", { class: "menu-emoji" }, ...emoji) : null, ...rows);
  document.body.append(menu);
  place(menu, anchor);
  anchor.setAttribute("aria-expanded", "true");

  const stop = new AbortController();
  const { signal } = stop;
  close = (goesBack = true) => {
    close = () => {};
    stop.abort();
    menu.remove();
    anchor.removeAttribute("aria-expanded");
    if (goesBack && anchor.isConnected) anchor.focus({ preventScroll: true });
  };
  menu.addEventListener("keydown", (event) => walk(event, emoji, rows), { signal });
  addEventListener("pointerdown", ({ target }) => menu.contains(target) || close(false), { signal, capture: true });
  addEventListener("resize", () => close(false), { signal });
  // A message that comes moves the others: the menu stays with its own.
  const scroller = document.getElementById("scroller");
  scroller.addEventListener("scroll", () => (isSeen(anchor, scroller) ? place(menu, anchor) : close(false)), { signal });
  (emoji[0] ?? rows[0]).focus({ preventScroll: true });
}

function walk(event, emoji, rows) {
  const all = [...emoji, ...rows];
  const at = all.indexOf(document.activeElement);
  const isInRow = at < emoji.length;
  const to = {
    ArrowRight: () => all[(at + 1) % all.length],
    ArrowLeft: () => all[(at - 1 + all.length) % all.length],
    ArrowDown: () => (isInRow ? rows[0] ?? all[at] : all[at + 1] ?? all[0]),
    ArrowUp: () => (isInRow ? all.at(-1) : at === emoji.length ? emoji[0] : all[at - 1]),
    Home: () => all[0],
    End: () => all.at(-1),
  }[event.key];
  if (to) to().focus();
  else if (event.key === "Escape" || event.key === "Tab") close();
  else return;
  event.preventDefault();
  event.stopPropagation();
}

/** One outside of what scrolls stays where it is. */
function isSeen(anchor, scroller) {
  if (!scroller.contains(anchor)) return anchor.isConnected;
  const [inner, outer] = [anchor.getBoundingClientRect(), scroller.getBoundingClientRect()];
  return inner.bottom > outer.top && inner.top < outer.bottom;
}

/** Beside its button, and wholly on the screen. */
function place(menu, anchor) {
  const from = anchor.getBoundingClientRect();
  const { width, height } = menu.getBoundingClientRect();
  const left = Math.min(Math.max(8, from.right - width), innerWidth - width - 8);
  const below = from.bottom + 4;
  const top = below + height < innerHeight - 8 ? below : Math.max(8, from.top - height - 4);
  Object.assign(menu.style, { left: `${left}px`, top: `${top}px` });
}
