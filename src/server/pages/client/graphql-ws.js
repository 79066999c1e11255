// For apps that keep Apollo, urql or Relay: a wrapper around a client of graphql-ws or graphql-sse that resumes each subscription. After a
// cut these clients send the variables that they were given, and with them the first `after` again; this moves it on with every response.

export const resuming = (client) => ({
  ...client,
  subscribe(payload, sink) {
    const moving = { ...payload, variables: { ...payload.variables } };
    const next = (response) => {
      moving.variables.after = response.extensions?.cursor ?? moving.variables.after;
      sink.next(response);
    };
    return client.subscribe(moving, { next, error: (error) => sink.error(error), complete: () => sink.complete() });
  },
});
