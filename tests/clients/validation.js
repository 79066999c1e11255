// The verdict of the server on documents, beside that of graphql-js: `node validation.js URL TOKEN`. No document is executed: each request
// names an operation that its document does not have, which the server says of valid documents alone.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import {
  Lexer,
  Source,
  TokenKind,
  buildSchema,
  getNamedType,
  isCompositeType,
  isEnumType,
  isInputObjectType,
  isListType,
  isNonNullType,
  isObjectType,
  isRequiredArgument,
  isRequiredInputField,
  parse,
  validate,
} from "graphql";

const [url, token] = process.argv.slice(2);
const schema = buildSchema(readFileSync("schema.graphql", "utf8"));
/** A rule of the September 2025 edition that graphql-js 16 does not have. */
const NEWER = "`@skip` and `@include` do not go with the root of a subscription.";
const VALID = "The document has no operation of the name in `operationName`.";
const GENERATED = 400;

/** Numbers from 0 to `below`, the same in each run (mulberry32). */
let state = 20_260_315;
const number = (below) => {
  state = (state + 0x6d2b79f5) | 0;
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
  return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
};
const oneOf = (list) => list[number(list.length)];
const some = (list, most) => Array.from({ length: 1 + number(most) }, () => oneOf(list));

/** A literal of an input type, or a variable that `variables` then declares. */
function literal(type, variables, depth = 0) {
  if (isNonNullType(type)) return literal(type.ofType, variables, depth);
  if (number(6) === 0) {
    const name = `v${variables.length}`;
    const declared = number(8) > 0 ? `${type}!` : oneOf([`${type}`, `${type} = null`, "String", "[ID!]"]);
    variables.push(`$${name}: ${declared}`);
    return `$${name}`;
  }
  if (number(60) === 0) return oneOf(["null", "1.0", '"x"', "true", "[]", "{}", "DIRECT", "3000000000"]);
  if (isListType(type)) {
    const item = () => literal(type.ofType, variables, depth + 1);
    return number(3) === 0 ? item() : `[${item()}, ${item()}]`;
  }
  if (isEnumType(type)) return oneOf(type.getValues()).name;
  if (isInputObjectType(type)) {
    const fields = Object.values(type.getFields());
    const given = fields.filter((field) => isRequiredInputField(field) || (depth < 2 && number(4) === 0));
    return `{${given.map((field) => `${field.name}: ${literal(field.type, variables, depth + 1)}`).join(", ")}}`;
  }
  return { Int: "7", Float: "1.5", Boolean: "true", JSON: '{a: [1, "b", null]}' }[type.name] ?? oneOf(['"text"', '"\\u00e9"', '"""block"""']);
}

function field(definition, variables, fragments, depth) {
  const args = definition.args.filter((arg) => isRequiredArgument(arg) || number(3) === 0);
  const given = args.map((arg) => `${arg.name}: ${literal(arg.type, variables)}`);
  const alias = number(6) === 0 ? `${oneOf(["a", "b", "id"])}: ` : "";
  const condition = number(12) === 0 ? ` @${oneOf(["include", "skip"])}(if: ${literal(schema.getType("Boolean"), variables)})` : "";
  const type = getNamedType(definition.type);
  const inner = isCompositeType(type) ? ` ${selection(type, variables, fragments, depth + 1)}` : "";
  return `${alias}${definition.name}${given.length > 0 ? `(${given.join(", ")})` : ""}${condition}${inner}`;
}

function selection(type, variables, fragments, depth) {
  const parts = [];
  const fields = type.getFields ? Object.values(type.getFields()) : [];
  const shallow = fields.filter((one) => depth < 4 || !isCompositeType(getNamedType(one.type)));
  if (shallow.length > 0) parts.push(...some(shallow, 3).map((one) => field(one, variables, fragments, depth)));
  const objects = isObjectType(type) ? [type] : schema.getPossibleTypes(type);
  if (!isObjectType(type) || number(4) === 0) {
    const on = oneOf(objects);
    const inner = depth < 4 ? selection(on, variables, fragments, depth + 1) : "{ __typename }";
    if (number(2) === 0) parts.push(`... on ${on.name} ${inner}`);
    else {
      fragments.push(`fragment F${fragments.length} on ${on.name} ${inner}`);
      parts.push(`...F${fragments.length - 1}`);
    }
  }
  if (number(6) === 0) parts.push("__typename");
  return `{ ${(parts.length > 0 ? parts : ["__typename"]).join(" ")} }`;
}

function operation(kind) {
  const type = { query: schema.getQueryType(), mutation: schema.getMutationType(), subscription: schema.getSubscriptionType() }[kind];
  const [variables, fragments] = [[], []];
  const root = kind === "subscription" ? `{ ${field(oneOf(Object.values(type.getFields())), variables, fragments, 1)} }` : selection(type, variables, fragments, 1);
  const declared = variables.length > 0 ? `(${variables.join(", ")})` : "";
  return [`${kind} Q${declared} ${root}`, ...fragments].join("\n");
}

/** The same document with one token deleted, repeated, or replaced by another of its tokens. */
function damaged(text) {
  const lexer = new Lexer(new Source(text));
  const tokens = [];
  while (lexer.advance().kind !== TokenKind.EOF) tokens.push(lexer.token);
  const [at, other] = [oneOf(tokens), oneOf(tokens)];
  const cut = (token) => text.slice(token.start, token.end);
  const instead = oneOf(["", `${cut(at)} ${cut(at)}`, cut(other)]);
  return text.slice(0, at.start) + instead + text.slice(at.end);
}

const written = readFileSync("validation.graphql", "utf8")
  .split("\n---\n")
  .map((text) => text.replaceAll("<BOM>", "\ufeff"));
const sound = Array.from({ length: GENERATED / 2 }, () => operation(oneOf(["query", "query", "mutation", "subscription"])));
const documents = [...written, ...sound, ...sound.map(damaged)];

function expected(text) {
  try {
    return validate(schema, parse(text)).map((error) => error.message);
  } catch (error) {
    return [error.message];
  }
}

async function verdict(query) {
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
    body: JSON.stringify({ query, operationName: "nowhere" }),
  });
  const { errors } = await response.json();
  return errors[0].message;
}

const counts = { valid: 0, invalid: 0, "over a limit": 0 };
const differences = [];
for (const text of documents) {
  const problems = expected(text);
  const said = await verdict(text);
  if (said.startsWith("The document has more than")) counts["over a limit"] += 1;
  else if (said === NEWER && problems.length === 0) continue;
  else if ((said === VALID) === (problems.length === 0)) counts[said === VALID ? "valid" : "invalid"] += 1;
  else differences.push(`${text}\n  graphql-js: ${problems[0] ?? "valid"}\n  the server: ${said}`);
}
assert.equal(differences.length, 0, `${differences.length} of ${documents.length} differ:\n${differences.join("\n")}`);
// The suite compares nothing if most documents are of one kind.
assert.ok(counts.valid > 150 && counts.invalid > 300 && counts["over a limit"] < 40, JSON.stringify(counts));
