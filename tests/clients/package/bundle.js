// The React app on the package, bundled for a browser: generated/app. `node package/bundle.js`

import { copyFileSync, mkdirSync } from "node:fs";
import { buildSync } from "esbuild";

mkdirSync("generated/app", { recursive: true });
copyFileSync("app/index.html", "generated/app/index.html");
buildSync({
  entryPoints: ["app/main.tsx"], outfile: "generated/app/main.js", bundle: true, format: "esm", jsx: "automatic", logLevel: "error",
  alias: { "wideroom-client": "./wideroom-client" }, define: { "process.env.NODE_ENV": '"production"' },
});
