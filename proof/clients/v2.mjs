// The client of npm's `@modelcontextprotocol/client` 2.x, which finds out by itself that the modern era is spoken:
// `v2.mjs http URL`, `v2.mjs stdio PROGRAM ARG…`.
import { answers, capabilities, info, kind, require, target, walk } from "./walk.mjs";

const { Client, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");

const client = new Client(info, { capabilities, versionNegotiation: { mode: "auto" } });
for (const [method, answer] of Object.entries(answers)) {
  client.setRequestHandler(method, async (request) => answer(request.params));
}
const transport = {
  http: () => new StreamableHTTPClientTransport(new URL(target[0])),
  stdio: () => new StdioClientTransport({ command: target[0], args: target.slice(1), env: process.env, stderr: "inherit" }),
}[kind]();
await client.connect(transport);
await walk(client, (params, options) => client.callTool(params, options), client.getNegotiatedProtocolVersion());
