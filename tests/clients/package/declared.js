// The hand-written declarations against the modules that they describe: every export, every member, every parameter and every option that
// one of the two has and the other lacks is named. `node package/declared.js`

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { parse } from "@babel/parser";

/** Members of the classes that the modules use among each other. */
const INTERNAL = ["opened", "closed", "shut", "put", "patch", "isOpen", "sent"];
/** Interfaces of `index.d.ts` and `live.d.ts`, and the class that is behind each. */
const CLASSES = { Store: "store.js", Conversation: "conversation.js", Inbox: "inbox.js", Search: "inbox.js", LiveMessages: "live.js", ChatError: "transport.js", SignedOut: "transport.js" };
/** Values of stores, and the class that begins with one. */
const VALUES = { ConversationState: ["conversation.js", "Conversation"], SearchState: ["inbox.js", "Search"], InboxState: ["inbox.js", "Inbox"], Badge: ["presence.js", "Badge"] };

const bodies = new Map();
function bodyOf(file) {
  if (!bodies.has(file)) {
    const plugins = file.endsWith(".ts") ? [["typescript", { dts: true }]] : [];
    bodies.set(file, parse(readFileSync(path.join("wideroom-client", file), "utf8"), { sourceType: "module", plugins }).program.body);
  }
  return bodies.get(file);
}
const sorted = (names) => [...new Set(names)].sort();
const nameOf = ({ key }) => key.name ?? key.value;

/** Names that a statement declares, each with its value. */
const named = (node) => (node?.declarations ?? [node]).filter((one) => one?.id).map((one) => [one.id.name, one.init ?? one]);

/** Declarations of a file by name, those of its own and those that it exports again. */
function declarationsOf(file, isExported = false) {
  const all = new Map();
  for (const statement of bodyOf(file)) {
    const isExport = statement.type === "ExportNamedDeclaration";
    if (isExported && !isExport) continue;
    for (const { exported, local } of statement.specifiers ?? []) {
      if (isExport) all.set(exported.name, declarationsOf(statement.source.value.slice(2)).get(local.name));
    }
    for (const [name, node] of named(isExport ? statement.declaration : statement)) all.set(name, node);
  }
  return all;
}

/** Parameters of a function of JavaScript: a name, or the names of the members that it takes out. */
const parametersOf = ({ params }) => params.map((param) => {
  const [pattern, isOptional] = param.type === "AssignmentPattern" ? [param.left, true] : [param, false];
  if (pattern.type === "Identifier") return { name: pattern.name, isOptional };
  const members = pattern.properties.filter(({ type }) => type === "ObjectProperty").map(nameOf);
  return { members, isOptional, isOpen: pattern.properties.length > members.length };
});

/** Parameters that a declaration has. */
const declaredParametersOf = (node) => (node.params ?? node.parameters ?? node.typeAnnotation?.typeAnnotation.parameters ?? []).map(({ name, optional, typeAnnotation }) => ({
  name, isOptional: Boolean(optional), members: typeAnnotation.typeAnnotation.members?.map(nameOf),
}));

function isSameFunction(what, made, declared) {
  if (!/Function|Method/.test(made.type)) return assert.deepEqual(declaredParametersOf(declared), [], `${what} is no function`);
  const [own, said] = [parametersOf(made), declaredParametersOf(declared)];
  assert.equal(own.length, said.length, `${what}: parameters ${said.map(({ name }) => name)}`);
  for (const [at, { name, members, isOptional, isOpen }] of own.entries()) {
    if (name) assert.equal(name, said[at].name, `${what}: a parameter`);
    else if (isOpen) assert.deepEqual(members.filter((member) => !said[at].members.includes(member)), [], `${what}: members of ${said[at].name}`);
    else assert.deepEqual(sorted(members), sorted(said[at].members), `${what}: members of ${said[at].name}`);
    assert.ok(!isOptional || said[at].isOptional, `${what}: ${said[at].name} may be left out`);
  }
}

const index = new Map([...declarationsOf("index.d.ts"), ...declarationsOf("live.d.ts")]);
/** Members of an interface or a class of `index.d.ts`, with those that it extends. */
function membersOf(name) {
  const node = index.get(name);
  if (node.type === "TSTypeAliasDeclaration") return membersOf(node.typeAnnotation.typeName.name);
  const bases = (node.extends ?? []).map(({ expression }) => membersOf(expression.name));
  return new Map([...bases.flatMap((base) => [...base]), ...node.body.body.map((member) => [nameOf(member), member])]);
}

/** Public members of a class, with those of its base and those that its constructor sets. */
function madeMembersOf(file, name) {
  const { superClass, body } = declarationsOf(file).get(name);
  const all = CLASSES[superClass?.name] ? madeMembersOf(CLASSES[superClass.name], superClass.name) : new Map();
  for (const member of body.body) {
    if (member.kind === "constructor") {
      for (const { expression } of member.body.body) {
        const { object, property } = expression.left ?? {};
        if (object?.type === "ThisExpression" && property.type === "Identifier" && property.name !== "name") all.set(property.name, expression.right);
      }
    } else if (member.key.type === "Identifier" && !INTERNAL.includes(member.key.name)) all.set(member.key.name, member.kind === "get" ? member.key : member.value ?? member);
  }
  return all;
}

function isSame(what, made, declared) {
  assert.deepEqual(sorted(made.keys()), sorted(declared.keys()), `members of ${what}`);
  for (const [name, node] of made) isSameFunction(`${what}.${name}`, node, declared.get(name));
}

/** Exports that are values, of the modules that people import. */
for (const file of ["index", "live", "react", "graphql-ws"]) {
  const isValue = ([, { type }]) => !/^TS(Interface|TypeAlias)/.test(type);
  const [made, declared] = [declarationsOf(`${file}.js`, true), new Map([...declarationsOf(`${file}.d.ts`, true)].filter(isValue))];
  assert.deepEqual(sorted(made.keys()), sorted(declared.keys()), `exports of ${file}.js`);
  for (const [name, node] of made) if (!node.type.startsWith("Class")) isSameFunction(name, node, declared.get(name));
}
for (const [name, file] of Object.entries(CLASSES)) isSame(name, madeMembersOf(file, name), membersOf(name));

/** Keys of an object that the code spells out. */
const keysOf = (file, { properties = [], name }) => (name ? keysOf(file, declarationsOf(file).get(name))
  : properties.flatMap((property) => (property.type === "SpreadElement" ? keysOf(file, property.argument) : [nameOf(property)])));
for (const [name, [file, maker]] of Object.entries(VALUES)) {
  const { body } = declarationsOf(file).get(maker).body.body.find(({ kind }) => kind === "constructor").body;
  const [value] = body.map(({ expression }) => expression).find(({ callee }) => callee?.type === "Super").arguments;
  assert.deepEqual(sorted(keysOf(file, value)), sorted(membersOf(name).keys()), `members of ${name}`);
}

// What `connect` returns, and what it takes.
const { body } = declarationsOf("index.js").get("connect").body;
const within = new Map(body.flatMap(named));
const { properties } = body.at(-1).argument;
isSame("Chat", new Map(properties.map((property) => [nameOf(property), within.get(property.value?.name) ?? property.value ?? property])), membersOf("Chat"));
const read = ["index.js", "transport.js"].flatMap((file) => [...readFileSync(path.join("wideroom-client", file), "utf8").matchAll(/options\.(\w+)/g)]).map(([, name]) => name);
assert.deepEqual(sorted(read.filter((name) => !["onToken", "onReady"].includes(name))), sorted(membersOf("Options").keys()), "members of Options");
const taken = declarationsOf("documents.js").get("documentsWith").params[0].left.properties.map(nameOf);
assert.deepEqual(sorted(taken), sorted(membersOf("Options").get("select").typeAnnotation.typeAnnotation.members.map(nameOf)), "members of Options.select");
