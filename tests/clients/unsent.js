// Messages that are not sent yet: on the device, each under its key, until the server has it. The messages of one conversation leave in
// the order in which they were written, and none is lost with an optimistic response that a failure takes back.

const NAME = "unsent";
const WAIT = 250;
const WAIT_MOST = 8_000;

/** The first error of the server, as Apollo, urql and Relay wrap it; nothing where the network failed. */
const serverError = (error) => (error.errors ?? error.graphQLErrors)?.[0] ?? (error.extensions && error);

/** Whether another try may help. */
const isPassing = (error) => {
  const { code, outcome } = serverError(error)?.extensions ?? {};
  return !code || outcome === "UNKNOWN" || ["UNAVAILABLE", "RATE_LIMITED", "UNAUTHENTICATED"].includes(code);
};

/** `send(message)`: returns a promise, which fails with the error of the client. `storage`: such as localStorage. */
export const outbox = ({ send, storage }) => {
  const messages = () => JSON.parse(storage.getItem(NAME) ?? "[]");
  const change = (next) => storage.setItem(NAME, JSON.stringify(next(messages())));
  const running = new Set();

  const run = async (conversationId) => {
    if (running.has(conversationId)) return;
    running.add(conversationId);
    const next = () => messages().find((message) => message.conversationId === conversationId && !message.failure);
    for (let message, tries = 0; (message = next()); tries += 1) {
      const { key } = message;
      try {
        await send(message);
        change((all) => all.filter((other) => other.key !== key));
        tries = 0;
      } catch (error) {
        if (!isPassing(error)) change((all) => all.map((other) => (other.key === key ? { ...other, failure: error.message } : other)));
        else await new Promise((resolve) => setTimeout(resolve, Math.min(WAIT_MOST, WAIT * 2 ** tries)));
      }
    }
    running.delete(conversationId);
  };

  return {
    /** Those that the page shows below the list: the server has not confirmed them. */
    messages,
    add(message) {
      change((all) => [...all, { key: crypto.randomUUID(), ...message }]);
      return run(message.conversationId);
    },
    /** To be called at the start of the page. */
    resume: () => Promise.all([...new Set(messages().map(({ conversationId }) => conversationId))].map(run)),
  };
};
