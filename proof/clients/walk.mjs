// The walk that both SDKs of npm are taken on. In: a client that is connected, how it calls a tool, and what it was
// asked meanwhile. Out: what it saw, as one JSON document on standard output; `crates/wharf-cli/tests/it/clients.rs` judges.
import { createRequire } from "node:module";
import path from "node:path";

export const require = createRequire(path.resolve(import.meta.dirname, "../../.cache/proof/clients/any.js"));
export const [kind, ...target] = process.argv.slice(2);
export const info = { name: "proof", version: "1.0.0" };
export const capabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };

/** What was asked, by method. */
const asked = {};
/** What this client says to whom wants to know something. */
export const answers = {
  "elicitation/create": (params) => {
    asked.elicitation = params.message;
    const named = "name" in params.requestedSchema.properties;
    return { action: "accept", content: named ? { name: "Ada" } : { username: "ada", email: "ada@example.org" } };
  },
  "sampling/createMessage": (params) => (
    (asked.sampling = params.messages[0].content.text),
    { role: "assistant", model: "none", content: { type: "text", text: "high tide" } }
  ),
  "roots/list": () => ((asked.roots = true), { roots: [{ uri: `file://${process.env.PROOF_FOLDER}`, name: "quay" }] }),
};

/** Every page of a list. */
async function all(list, member) {
  const found = [];
  let cursor;
  do {
    const page = await list(cursor ? { cursor } : {});
    found.push(...page[member]);
    cursor = page.nextCursor;
  } while (cursor);
  return found;
}

export async function walk(client, call, protocol) {
  const folder = process.env.PROOF_FOLDER;
  const seen = { protocol, server: client.getServerVersion()?.name };
  const text = (result) => result.content[0].text;
  const tool = async (name, args, options) => {
    const named = (error) => { throw new Error(`${name}: ${error.message}; listed: ${seen.tools}`); };
    return text(await call({ name, arguments: args }, options).catch(named));
  };
  const failed = (promise) => promise.then((result) => ({ result }), (error) => ({ code: error.code, message: error.message }));
  seen.tools = (await all((p) => client.listTools(p), "tools")).map((t) => t.name);
  seen.resources = (await all((p) => client.listResources(p), "resources")).map((r) => r.uri);
  seen.templates = (await all((p) => client.listResourceTemplates(p), "resourceTemplates")).map((t) => t.uriTemplate);
  seen.prompts = (await all((p) => client.listPrompts(p), "prompts")).map((p) => p.name);
  seen.sum = await tool("everything_get-sum", { a: 2, b: 40 });
  seen.structured = (await call({ name: "everything_get-structured-content", arguments: { location: "Chicago" } })).structuredContent;
  seen.status = await tool("git_git_status", { repo_path: folder });
  seen.file = await tool("filesystem_read_text_file", { path: `${folder}/note.txt` });
  seen.folders = await tool("filesystem_list_allowed_directories", {});
  const steps = [];
  const long = { duration: 0.2, steps: 4 };
  const onprogress = (step) => steps.push([step.progress, step.total]);
  seen.long = await tool("everything_trigger-long-running-operation", long, { onprogress });
  seen.steps = steps;
  seen.resource = (await client.readResource({ uri: "demo://resource/dynamic/text/7" })).contents[0];
  const prompt = { name: "everything_args-prompt", arguments: { city: "Kiel", state: "SH" } };
  seen.prompt = (await client.getPrompt(prompt)).messages[0].content.text;
  const ref = { type: "ref/prompt", name: "everything_completable-prompt" };
  seen.completion = (await client.complete({ ref, argument: { name: "department", value: "S" } })).completion.values;
  seen.wrong = await failed(call({ name: "everything_get-sum", arguments: { a: "two", b: 40 } }));
  seen.unknown = await failed(call({ name: "everything_no-such", arguments: {} }));
  seen.everything = (await call({ name: "everything_trigger-elicitation-request", arguments: {} })).content[1].text;
  seen.elicited = await tool("asking_test_elicitation", { message: "Who is it?" });
  seen.sampled = await tool("asking_test_sampling", { prompt: "How is the tide?" });
  seen.asked = asked;
  await client.close();
  process.stdout.write(JSON.stringify(seen));
}
