// Gestures: what opens the menu of an element without a button (a long press of a finger, a right click, the menu key), and a swipe.

const HOLD = 500;
const SLIP = 10;
const SWIPE = 64;

/**
 * Calls back with the element that the selector names. `isForAll`: a right click and the menu key open it, too. `swipe`: called with one that
 * a finger has pulled to the right.
 */
export function onHold(root, selector, run, { signal, isForAll = false, swipe }) {
  let timer;
  let from = {};
  let target = null;
  let pulled = 0;
  let isHeld = false;
  const on = (type, listen, options = {}) => root.addEventListener(type, listen, { signal, ...options });
  const cancel = () => clearTimeout(timer);
  const pull = (by) => {
    pulled = by;
    target.style.translate = by ? `${by}px` : "";
  };
  const hold = () => {
    cancel();
    isHeld = true;
    run(target);
  };
  on("pointerdown", (event) => {
    cancel();
    [isHeld, from, target] = [false, event, event.target.closest(selector)];
    if (event.pointerType === "touch" && target) timer = setTimeout(hold, HOLD);
  }, { passive: true });
  on("pointermove", ({ clientX, clientY }) => {
    const [x, y] = [clientX - from.clientX, clientY - from.clientY];
    if (Math.hypot(x, y) > SLIP) cancel();
    else if (!pulled) return;
    if (swipe && target && from.pointerType === "touch" && !isHeld) pull(Math.min(SWIPE, x > Math.abs(y) ? x : 0));
  }, { passive: true });
  for (const type of ["pointerup", "pointercancel"]) {
    on(type, () => {
      cancel();
      if (!pulled) return;
      const isWhole = type === "pointerup" && pulled === SWIPE;
      pull(0);
      if (isWhole) swipe(target);
    }, { passive: true });
  }
  // The click that ends a long press opens nothing. One of a script may.
  on("click", (event) => {
    if (!isHeld || !event.isTrusted) return;
    isHeld = false;
    event.preventDefault();
    event.stopPropagation();
  }, { capture: true });
  on("contextmenu", (event) => {
    const element = event.target.closest(selector);
    // Firefox does not always say what has asked for it, and asks twice: the menu is open by then.
    const isTouch = (event.pointerType ?? from.pointerType) === "touch";
    if (!element || (!isTouch && !isForAll)) return;
    event.preventDefault();
    if (document.querySelector(".menu")) return;
    if (isTouch) hold();
    else run(element);
  });
}
