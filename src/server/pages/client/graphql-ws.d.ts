/** The part of a client of graphql-ws or graphql-sse that is wrapped. */
export interface Subscriber {
  subscribe(payload: any, sink: any): () => void;
}

/** The same client. Each subscription has a variable `$after`, and resumes after its last response. */
export function resuming<C extends Subscriber>(client: C): C;
