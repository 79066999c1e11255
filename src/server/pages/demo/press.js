// Gestures that open the menu of an element without a button: a long press of a finger, a right click, and the menu key.

const HOLD = 500;
const SLIP = 10;

/** Calls back with the element that the selector names. `isForAll`: a right click and the menu key open it, too. */
export function onHold(root, selector, run, { signal, isForAll = false }) {
  let timer;
  let from = null;
  let isHeld = false;
  const on = (type, listen, options = {}) => root.addEventListener(type, listen, { signal, ...options });
  const cancel = () => clearTimeout(timer);
  const hold = (target) => {
    cancel();
    isHeld = true;
    run(target);
  };
  on("pointerdown", (event) => {
    cancel();
    isHeld = false;
    const target = event.target.closest(selector);
    from = event;
    if (event.pointerType === "touch" && target) timer = setTimeout(() => hold(target), HOLD);
  }, { passive: true });
  on("pointermove", ({ clientX, clientY }) => from && Math.hypot(clientX - from.clientX, clientY - from.clientY) > SLIP && cancel(), { passive: true });
  for (const type of ["pointerup", "pointercancel"]) on(type, cancel, { passive: true });
  // The click that ends a long press opens nothing. One of a script may.
  on("click", (event) => {
    if (!isHeld || !event.isTrusted) return;
    isHeld = false;
    event.preventDefault();
    event.stopPropagation();
  }, { capture: true });
  on("contextmenu", (event) => {
    const target = event.target.closest(selector);
    const isTouch = event.pointerType === "touch";
    if (!target || (!isTouch && !isForAll)) return;
    event.preventDefault();
    if (!isTouch) run(target);
    else if (!isHeld) hold(target);
  });
}
