// A subscription that goes on where it was. `graphql-ws` comes back by itself after a cut, and then sends the payload that it was given: the
// *first* `after` again. So this moves it on with each response. Every subscription has the variable `$after`.

export const cursorOf = (response) => response.extensions?.cursor;

export const resuming = (client) => ({
  ...client,
  subscribe(payload, sink) {
    const moving = { ...payload, variables: { ...payload.variables } };
    const next = (response) => {
      moving.variables.after = cursorOf(response) ?? moving.variables.after;
      sink.next(response);
    };
    return client.subscribe(moving, { next, error: (error) => sink.error(error), complete: () => sink.complete() });
  },
});
