// The harness of the JavaScript clients: `node drive.mjs CLIENT` with a job on standard input.
//
// It runs every feature of one client, straight at Ollama and then through Loadline, and prints one JSON
// object a line as it goes. ../README.md says what a job and a line look like. Whatever a feature throws
// is a line of its own and never the end of the run; only a client or a job that cannot be read is.
//
// The libraries come from outside the repository: see library.mjs, and LOADLINE_CLIENTS_JS there.

import { writeSync } from "node:fs";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";

const CLIENTS = ["ollama", "openai", "ai"];
const FEATURES = [
  "chat",
  "streaming",
  "tools",
  "structured",
  "thinking",
  "images",
  "embeddings",
  "list",
  "show",
  "pull",
  "unknown model",
  "bad request",
  "refused",
  "cancel",
  "ladder",
];
// These are about what Loadline does; Ollama alone would do something else.
const ONLY_THROUGH = ["refused", "cancel", "ladder"];

const LIMIT_MS = 120_000;
// An error may quote the whole prompt; a line need not.
const ERROR_CHARACTERS = 1_000;

keepStandardOutputForLines();
const client = await load(process.argv[2]);
const job = JSON.parse(await text(process.stdin));
await drive(client, job);
// A feature that ran into its limit may have left a connection open, which would keep us here.
process.exit(0);

// Libraries print warnings and progress; standard output is for our lines alone.
function keepStandardOutputForLines() {
  console.log = console.info = console.debug = console.error;
  process.on("unhandledRejection", (error) => console.error("unhandled:", error));
}

async function load(name) {
  if (!CLIENTS.includes(name)) {
    console.error(`usage: node drive.mjs ${CLIENTS.join("|")} < job.json`);
    process.exit(2);
  }
  return import(`./clients/${name}.mjs`);
}

async function drive({ name, version, features }, job) {
  print({ client: name, language: "JavaScript", version });
  for (const feature of FEATURES) {
    const run = features[feature];
    if (typeof run === "string") {
      print({ feature, absent: run });
      continue;
    }
    for (const at of ONLY_THROUGH.includes(feature) ? ["through"] : ["direct", "through"]) {
      print({ feature, at, ...(await outcome(() => run(job[at], job))) });
    }
  }
}

async function outcome(run) {
  try {
    return { ok: true, saw: await withinLimit(run) };
  } catch (error) {
    console.error(error);
    return { ok: false, error: describe(error) };
  }
}

async function withinLimit(run) {
  const done = new AbortController();
  const limit = sleep(LIMIT_MS, undefined, { signal: done.signal }).then(() => {
    throw new Error(`no end within ${LIMIT_MS / 1000} s`);
  });
  try {
    return await Promise.race([run(), limit]);
  } finally {
    limit.catch(() => {});
    done.abort();
  }
}

// Of the cause only its code: its words may hold dates, and the same failure must read the same twice.
function describe(error) {
  const kind = error?.constructor?.name ?? typeof error;
  const code = error?.cause?.code ? ` (${error.cause.code})` : "";
  return `${kind}: ${error?.message ?? error}${code}`.slice(0, ERROR_CHARACTERS);
}

// Written at once, so that a reader has every line even if we are stopped.
function print(line) {
  writeSync(1, `${JSON.stringify(line)}\n`);
}
