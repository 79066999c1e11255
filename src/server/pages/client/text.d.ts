/** The names of these users that stand in the text as `@username`. */
export function mentionedIn(text: string, usernames: readonly string[]): readonly string[];
