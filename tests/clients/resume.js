// A subscription that goes on where it was. `graphql-ws` comes back by itself after a cut, and then sends the payload that it was given: the
// *first* `after` again. So this moves it on with each answer. Every subscription has the variable `$after`, and asks for `cursor`.

export const cursorOf = (data) => {
  const [told] = Object.values(data ?? {});
  return told?.cursor ?? told?.messageEdge?.cursor;
};

export const resuming = (client) => ({
  ...client,
  subscribe(payload, sink) {
    const moving = { ...payload, variables: { ...payload.variables } };
    const next = (result) => {
      moving.variables.after = cursorOf(result.data) ?? moving.variables.after;
      sink.next(result);
    };
    return client.subscribe(moving, { next, error: (error) => sink.error(error), complete: () => sink.complete() });
  },
});
