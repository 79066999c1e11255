// The package as people get it: packed, installed into an empty folder, and under `tsc --strict`; its documents and types against the
// schema; its size. `node package/check.js`

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { gzipSync } from "node:zlib";
import { buildSync } from "esbuild";
import { buildSchema, isEnumType, isInputObjectType, isObjectType, isNonNullType, parse, validate } from "graphql";

import { documentsWith } from "../wideroom-client/documents.js";
import { LIVE_FIELDS, liveMessages } from "../wideroom-client/live.js";

const CORE_MAX = 12 * 1024;
const REACT_MAX = 1_229;
/** What the module of live messages adds to the core. */
const LIVE_MAX = 1_100;

const schema = buildSchema(readFileSync("schema.graphql", "utf8"));
const read = (name) => readFileSync(path.join("wideroom-client", name), "utf8");

/** Documents of the module of live messages, as a chat gets them. */
async function liveDocuments() {
  const all = {};
  const live = liveMessages({
    conversation: () => ({ get: () => ({ items: [] }), subscribe: () => {} }),
    subscribe: (document) => { all.LIVE_MESSAGES = document; },
    request: async (document) => { all.STOP = document; return { stopLiveMessage: { liveMessage: {} } }; },
  }, "id");
  live.subscribe(() => {});
  await live.stop("id");
  assert.equal(Object.keys(all).length, 2);
  return all;
}

async function documents() {
  const additions = { message: `receipts { edges { node { status } } } ${LIVE_FIELDS}`, user: "metadata", conversation: "createdAt", entry: "readUpTo { id }" };
  for (const all of [documentsWith(), documentsWith(additions), await liveDocuments()]) {
    for (const [name, text] of Object.entries(all)) {
      assert.deepEqual(validate(schema, parse(text)).map(({ message }) => message), [], name);
    }
  }
}

/** Types of the declarations that have the name of a type of the schema: each field is there, with its nullability, and each enum is whole. */
function types() {
  const text = read("index.d.ts") + read("live.d.ts");
  const of = { LineMessage: "Message", Quote: "Message", ConversationInfo: "Conversation" };
  let count = 0;
  for (const [, name, , body] of text.matchAll(/export interface (\w+)( extends \w+)? \{\n([^]*?)\n\}/g)) {
    const type = schema.getType(of[name] ?? name);
    // These are the package's own.
    if (!type || ["Conversation", "PinnedMessage"].includes(name)) continue;
    assert.ok(isObjectType(type) || isInputObjectType(type), name);
    for (const [, field, optional, declared] of body.matchAll(/^ {2}(\w+)(\?)?: (.*);$/gm)) {
      const { type: known } = type.getFields()[field] ?? {};
      if (name === "ConversationInfo" && field === "participants") continue;
      assert.ok(known, `${name}.${field} is in the schema`);
      const isNullable = /\| null$/.test(declared) || declared === "Json";
      if (!isInputObjectType(type)) assert.equal(isNullable, !isNonNullType(known), `${name}.${field} is null as in the schema`);
      else assert.equal(Boolean(optional), !isNonNullType(known), `${name}.${field} is optional as in the schema`);
      count += 1;
    }
  }
  assert.ok(count > 60, `only ${count} fields`);
  for (const [, name, body] of text.matchAll(/export type (\w+) = ((?:"\w+"(?: \| )?)+);/g)) {
    const type = schema.getType(name);
    assert.ok(isEnumType(type), name);
    assert.deepEqual([...body.matchAll(/"(\w+)"/g)].map(([, value]) => value).sort(), type.getValues().map(({ name: value }) => value).sort(), name);
  }
}

/** A hook gives the state and the functions of a store together: no name has two meanings. */
function names() {
  const text = read("index.d.ts");
  const of = (name) => [...new RegExp(`export interface ${name}\\b.*\\{\\n([^]*?)\\n\\}`).exec(text)[1].matchAll(/^ {2}(?:readonly )?(\w+)[?:(]/gm)].map(([, field]) => field);
  const state = of("ConversationState");
  assert.ok(state.length > 8);
  assert.deepEqual(of("Conversation").filter((name) => state.includes(name)), []);
}

const sizeOf = (code, external) => {
  const { outputFiles } = buildSync({ stdin: { contents: code, resolveDir: "." }, bundle: true, minify: true, format: "esm", write: false, external });
  return gzipSync(outputFiles[0].contents, { level: 9 }).length;
};

function sizes() {
  const core = sizeOf('export { connect } from "./wideroom-client/index.js";');
  const react = sizeOf('export * from "./wideroom-client/react.js";', ["react"]);
  const live = sizeOf('export * from "./wideroom-client/live.js";', ["./store.js", "./transport.js"]);
  console.log(`wideroom-client: ${core} bytes, its hooks: ${react} bytes, live messages: ${live} bytes, minified and gzipped`);
  assert.ok(core <= CORE_MAX && react <= REACT_MAX && live <= LIVE_MAX, `${core} of ${CORE_MAX}, ${react} of ${REACT_MAX}, ${live} of ${LIVE_MAX}`);
}

/** The tarball in an empty folder, and two apps on it. */
function packed() {
  const folder = mkdtempSync(path.join(tmpdir(), "wideroom-client-"));
  const run = (program, ...args) => execFileSync(program, args, { cwd: folder, encoding: "utf8" });
  try {
    const tarball = execFileSync("npm", ["pack", "--silent", "--pack-destination", folder], { cwd: "wideroom-client", encoding: "utf8" }).trim();
    const target = path.join(folder, "node_modules/wideroom-client");
    mkdirSync(target, { recursive: true });
    run("tar", "-xzf", tarball, "-C", target, "--strip-components=1");
    for (const name of ["@types", "csstype", "graphql", "graphql-ws", "react", "react-dom"]) symlinkSync(path.resolve("node_modules", name), path.join(folder, "node_modules", name));
    for (const name of ["main.tsx", "plain.ts", "tsconfig.json"]) execFileSync("cp", [path.resolve("app", name), folder]);
    run(process.execPath, path.resolve("node_modules/typescript/bin/tsc"), "--project", ".");
  } catch (error) {
    throw new Error(error.stdout || error.message, { cause: error });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

await documents();
types();
names();
sizes();
packed();
