// The runs of proof/conformance/serve and their judgement.
//
// A scenario passes directly when at least one of its checks passed and none failed or warned: one that checks nothing
// proves nothing. Through the gateway it passes when, besides, every check that passed directly passes as often. A line
// of `exceptions` takes a check, or with `*` a whole scenario, out of that for some kinds of server; a line that is not
// needed is a failure too, so that the table stays true.
import { spawn } from "node:child_process";
import fs from "node:fs";
import path from "node:path";

const KINDS = ["legacy-stdio", "modern-stdio", "legacy-http", "modern-http", "sse"];
const REVISIONS = ["2025-11-25", "2026-07-28"];
const AT_ONCE = 8; // a run sleeps most of its time
const LONGEST = 240_000; // a run that takes longer is ended
const root = path.resolve(import.meta.dirname, "../..");
const built = process.env.WHARF_BUILT;
const modules = path.join(root, ".cache/proof/conformance/node_modules");
const out = path.join(root, ".cache/proof/conformance-serve");

// === what is to be run ===

const asked = process.argv.slice(2);
const [, one] = asked[0] == "--scenario" ? asked.splice(0, 2) : [];

/** @returns every scenario of a revision for servers: name -> whether it is required. */
function scenarios(revision) {
  const file = path.join(modules, "@modelcontextprotocol/conformance/requirements", `${revision}.yaml`);
  const found = new Map();
  let section = "", unscored = "";
  for (const line of fs.readFileSync(file, "utf8").split("\n")) {
    const [, heading] = line.match(/^([a-z_]+):/) ?? [];
    const [, item] = line.match(/^ {2}- (?:scenario: )?(\S+)/) ?? [];
    section = heading ?? section;
    if (section == "server" && item) found.set(item, true);
    if (section == "not_scored" && item) unscored = item;
    if (section == "not_scored" && /^ {4}leg: server/.test(line)) found.set(unscored, false);
  }
  return one ? new Map([...found].filter(([name]) => name == one)) : found;
}

function exceptions() {
  const lines = fs.readFileSync(path.join(import.meta.dirname, "exceptions"), "utf8").split("\n");
  return lines.flatMap((line, at) => {
    if (!line.trim() || line.startsWith("#")) return [];
    const [kinds, revision, scenario, check, ...reason] = line.trim().split(/\s+/);
    if (!reason.length) throw new Error(`exceptions:${at + 1}: no reason`);
    const named = kinds.split(",").flatMap((k) => (k == "legacy" ? ["legacy-stdio", "legacy-http", "sse"]
      : k == "modern" ? ["modern-stdio", "modern-http"] : k == "all" ? KINDS : [k]));
    return named.map((kind) => ({ kind, revision, scenario, check, line: at + 1, needed: false }));
  });
}

// === servers ===

const children = new Set();
process.on("exit", () => children.forEach((child) => child.kill("SIGKILL")));
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));

/** Starts a program and waits until it says where it is. */
function start(program, args, log, env = process.env) {
  const child = spawn(program, args, { env, stdio: ["ignore", "pipe", "pipe"] });
  children.add(child);
  const file = fs.createWriteStream(log);
  return new Promise((resolve, reject) => {
    const lost = (why) => (clearTimeout(late), reject(new Error(`${path.basename(program)} ${why}: ${log}`)));
    const late = setTimeout(lost, 30_000, "does not say where it is");
    let said = "";
    const hear = (piece) => {
      file.write(piece);
      said += piece;
      const url = said.match(/http:\/\/\S+/);
      if (url) resolve({ url: url[0], stop: () => stop(child) }), clearTimeout(late);
    };
    child.stdout.on("data", hear);
    child.stderr.on("data", hear);
    child.on("exit", (code) => lost(`ended with ${code}`));
  });
}

function stop(child) {
  children.delete(child);
  child.kill("SIGTERM");
  setTimeout(() => child.kill("SIGKILL"), 5000).unref();
}

const fixture = (kind, folder) => start(path.join(built, "fixture"), ["--kind", kind], path.join(folder, "fixture.log"));

/** A gateway with one server behind it, whose names stay as they are. */
async function gateway(kind, folder) {
  const program = path.join(built, "fixture");
  const behind = kind.endsWith("stdio") ? undefined : await fixture(kind, folder);
  const place = behind
    ? `url = "${behind.url}"\ntransport = "${kind == "sse" ? "sse" : "http"}"`
    : `command = "${program}"\nargs = ["--kind", "${kind}"]`;
  const config = path.join(folder, "wharf.toml");
  fs.writeFileSync(config, `[mcp.fixture]\n${place}\ntool_prefix = ""\n\n[policy]\ncommands = ["${program}"]\n`);
  const home = path.join(folder, "home");
  fs.mkdirSync(home);
  const env = { PATH: process.env.PATH, HOME: home };
  const args = ["serve", "--port", "0", "--config", config];
  const front = await start(path.join(built, "wharf"), args, path.join(folder, "wharf.log"), env);
  return { url: front.url, stop: () => (front.stop(), behind?.stop()) };
}

// === runs ===

/** Runs a revision's scenarios against one server. @returns scenario -> its checks. */
async function run({ kind, revision, through }) {
  const folder = path.join(out, `${through ? "gateway" : "direct"}-${kind}-${revision}`);
  fs.mkdirSync(folder, { recursive: true });
  const server = await (through ? gateway(kind, folder) : fixture(kind, folder));
  const results = path.join(folder, "results");
  const suite = spawn(
    process.execPath,
    [path.join(modules, ".bin/conformance"), "server", "--url", server.url, "--timeout", "20000", "-o", results,
      ...(one ? ["--scenario", one, "--spec-version", revision, "--force"] : ["--requirements", revision])],
    { stdio: ["ignore", fs.openSync(path.join(folder, "suite.log"), "w"), "inherit"] },
  );
  children.add(suite);
  const late = setTimeout(() => suite.kill("SIGKILL"), LONGEST);
  await new Promise((resolve) => suite.on("exit", resolve));
  clearTimeout(late);
  children.delete(suite);
  server.stop();
  const checks = new Map();
  for (const name of fs.existsSync(results) ? fs.readdirSync(results) : []) {
    const scenario = name.replace(/^server-/, "").replace(/-\d{4}-\d\d-\d\dT.*$/, "");
    const file = path.join(results, name, "checks.json");
    if (fs.existsSync(file)) checks.set(scenario, JSON.parse(fs.readFileSync(file)));
  }
  return checks;
}

async function bounded(jobs, work) {
  const queue = [...jobs.entries()], results = [];
  const worker = async () => {
    for (let next; (next = queue.shift()); ) {
      results[next[0]] = await work(next[1]).catch((error) => (console.log(`FAIL  ${error.message}`), new Map()));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return results;
}

// === judgement ===

/** How often each check passed. Checks that share an id are told apart by their names. */
function passes(checks) {
  const counts = new Map();
  for (const { id, name, status } of checks) {
    if (status == "SUCCESS") counts.set(`${id} ${name}`, (counts.get(`${id} ${name}`) ?? 0) + 1);
  }
  return counts;
}

/** @returns what is wrong with a scenario, as [check id, message]; what was right in the direct run is wanted. */
function faults(checks, wanted) {
  const found = [];
  for (const { id, status, errorMessage } of checks) {
    if (status == "FAILURE" || status == "WARNING") found.push([id, errorMessage ?? status]);
  }
  const counts = passes(checks);
  for (const [key, times] of passes(wanted)) {
    const id = key.split(" ")[0];
    const missing = times - (counts.get(key) ?? 0);
    if (missing > 0 && !found.some(([f]) => f == id)) found.push([id, `passed ${missing} times less than directly`]);
  }
  if (!counts.size && !found.length) found.push(["*", "nothing was checked"]);
  return found;
}

const kinds = KINDS.filter((kind) => !asked.length || asked.includes(kind));
fs.rmSync(out, { recursive: true, force: true });
const jobs = REVISIONS.map((revision) => ({ kind: "both-http", revision })); // what the others are compared with
if (!asked.length || asked.includes("direct")) {
  jobs.push({ kind: "legacy-http", revision: "2025-11-25" }, { kind: "modern-http", revision: "2026-07-28" });
}
jobs.push(...kinds.flatMap((kind) => REVISIONS.map((revision) => ({ kind, revision, through: true }))));

const began = Date.now();
const results = await bounded(jobs, (job) => (scenarios(job.revision).size ? run(job) : Promise.resolve(new Map())));
const table = exceptions();
const baseline = new Map(jobs.slice(0, 2).map((job, at) => [job.revision, results[at]]));
const summary = [];
let failed = 0, passed = 0, total = 0;
for (const [at, { kind, revision, through }] of jobs.entries()) {
  const label = through ? kind : `direct ${kind}`;
  const sum = { required: [0, 0], others: [0, 0], checks: 0, wanted: 0, excepted: 0 };
  for (const [scenario, required] of scenarios(revision)) {
    const checks = results[at].get(scenario) ?? [];
    const wanted = baseline.get(revision).get(scenario) ?? [];
    const lines = table.filter((e) => e.kind == (through ? kind : "direct") && e.scenario == scenario
      && ["*", revision].includes(e.revision));
    const open = [];
    for (const fault of faults(checks, wanted)) {
      const line = lines.find((e) => e.check == "*" || e.check == fault[0]);
      if (line) line.needed = true;
      else open.push(fault);
    }
    const good = checks.filter((check) => check.status == "SUCCESS").length;
    const want = wanted.filter((check) => check.status == "SUCCESS").length;
    const group = required ? sum.required : sum.others;
    group[1]++;
    group[0] += open.length == 0;
    sum.checks += good;
    sum.wanted += want;
    sum.excepted += open.length == 0 && lines.some((e) => e.needed);
    total += good;
    open.length ? failed++ : passed++;
    const excepted = lines.some((e) => e.needed) ? `, excepted by line ${lines.filter((e) => e.needed).map((e) => e.line)}` : "";
    console.log(`${open.length ? "FAIL " : "ok   "} ${revision} ${label} ${scenario}: ${good} of ${want} checks passed${excepted}`);
    for (const [id, message] of open) console.log(`      ${id}: ${String(message).slice(0, 300)}`);
  }
  summary.push([revision, label, `${sum.required[0]}/${sum.required[1]}`, `${sum.others[0]}/${sum.others[1]}`,
    `${sum.checks}/${sum.wanted}`, String(sum.excepted)]);
}
for (const { kind, revision, scenario, check, line } of table.filter((e) => !e.needed)) {
  if ((kind != "direct" && !kinds.includes(kind)) || (one && one != scenario)) continue;
  failed++;
  console.log(`FAIL  exceptions:${line}: ${kind} ${revision} ${scenario} ${check} passes: the exception is not needed`);
}
console.log();
summary.unshift(["revision", "server", "required", "others", "checks", "with exceptions"]);
const widths = summary[0].map((_, column) => Math.max(...summary.map((row) => row[column].length)));
for (const row of summary) console.log(row.map((cell, column) => cell.padEnd(widths[column])).join("  ").trimEnd());
console.log();
console.log(`${passed} scenarios passed with ${total} checks, ${failed} failed, in ${((Date.now() - began) / 1000).toFixed(0)} s`);
process.exit(failed == 0 && passed > 0 ? 0 : 1);
