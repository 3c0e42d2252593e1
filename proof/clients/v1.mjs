// The client of npm's `@modelcontextprotocol/sdk` 1.x: `v1.mjs http URL`, `v1.mjs sse URL`, `v1.mjs stdio PROGRAM ARG…`.
import { answers, capabilities, info, kind, require, target, walk } from "./walk.mjs";

const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { SSEClientTransport } = require("@modelcontextprotocol/sdk/client/sse.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const types = require("@modelcontextprotocol/sdk/types.js");

const client = new Client(info, { capabilities });
for (const schema of [types.ElicitRequestSchema, types.CreateMessageRequestSchema, types.ListRootsRequestSchema]) {
  const answer = answers[schema.shape.method.value];
  client.setRequestHandler(schema, async (request) => answer(request.params));
}
const transport = {
  http: () => new StreamableHTTPClientTransport(new URL(target[0])),
  sse: () => new SSEClientTransport(new URL(target[0])),
  stdio: () => new StdioClientTransport({ command: target[0], args: target.slice(1), env: process.env, stderr: "inherit" }),
}[kind]();
let protocol;
const tell = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = (version) => ((protocol = version), tell?.(version));
await client.connect(transport);
await walk(client, (params, options) => client.callTool(params, undefined, options), protocol);
