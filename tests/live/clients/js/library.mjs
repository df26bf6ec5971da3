// Where the libraries are, and to which version.
//
// They are installed outside the repository, while the drivers stay in it, so a plain `import "openai"`
// would not find them. `library(name)` looks in `node_modules` of the directory that
// LOADLINE_CLIENTS_JS names, or of the one that `scripts/real-clients` fills when nothing is named.
// It is Node's own `require`, only with another starting point: no copying, no links, no loader hooks.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { homedir } from "node:os";
import { join } from "node:path";

const cache = process.env.LOADLINE_CACHE || join(homedir(), ".cache", "loadline");
const installed = process.env.LOADLINE_CLIENTS_JS || join(cache, "clients", "js");

export const library = createRequire(join(installed, "package.json"));

// Read from the file, as not every library lets its package.json be required.
export function versionOf(name) {
  return JSON.parse(readFileSync(join(installed, "node_modules", name, "package.json"), "utf8")).version;
}
