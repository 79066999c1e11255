// The compilers of clients on the schema beside this file: relay-compiler, and graphql-codegen with `tsc --strict` over what it writes.
// Beside their code, both leave a list of documents for `--trusted-documents`: generated/relay.json and generated/codegen.json.

import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";

import { preset } from "@graphql-codegen/client-preset";
import { codegen } from "@graphql-codegen/core";
import * as typescript from "@graphql-codegen/typescript";
import { buildASTSchema, parse } from "graphql";
import relay from "relay-compiler";

const run = (program, ...args) => execFileSync(program, args, { stdio: ["ignore", "inherit", "inherit"] });

rmSync("generated", { recursive: true, force: true });
mkdirSync("generated/relay", { recursive: true });
mkdirSync("generated/codegen");

writeFileSync("generated/relay.json", "{}");
run(relay, "relay.config.json", "--noWatchman", "--output", "quiet-with-errors");
// Adds the file extensions that a bundler would resolve.
for (const name of readdirSync("generated/relay")) {
  const file = path.join("generated/relay", name);
  writeFileSync(file, readFileSync(file, "utf8").replace(/(from '.*\.graphql)';/g, "$1.js';"));
}

const schema = parse(readFileSync("schema.graphql", "utf8"));
const schemaAst = buildASTSchema(schema);
const rawSDL = readFileSync("codegen/chat.graphql", "utf8");
const documents = [{ location: "codegen/chat.graphql", rawSDL, document: parse(rawSDL) }];
const scalars = { DateTime: "string", UUID: "string", JSON: "unknown" };
const common = { schema, schemaAst, config: { scalars, strictScalars: true, useTypeImports: true }, plugins: [], pluginMap: {} };
const outputs = await preset.buildGeneratesSection({
  ...common,
  baseOutputDir: "generated/codegen/",
  documents,
  presetConfig: { fragmentMasking: false, persistedDocuments: true },
});
outputs.push({ ...common, filename: "generated/schema.ts", documents: [], plugins: [{ typescript: {} }], pluginMap: { typescript } });
// At once, as one of them waits for what another makes.
await Promise.all(outputs.map(async (output) => writeFileSync(output.filename, await codegen({ ...output, schemaAst }))));
renameSync("generated/codegen/persisted-documents.json", "generated/codegen.json");
run(process.execPath, "node_modules/typescript/bin/tsc", "--project", "codegen/tsconfig.json");
