// Drives a real MCP client library for the tests: one JSON order a line on stdin, one JSON report a line on stdout.
//
//   {"id":0,"op":"connect","sdk":"v1"|"v2","era":"legacy"|"modern","command":"…","args":["…"],"env":{}}
//   {"id":0,"op":"connect","sdk":"v1"|"v2","era":"legacy"|"modern","url":"http://…"}
//   {"id":1,"op":"list"}
//   {"id":2,"op":"call","name":"…","arguments":{},"progress":true,"timeout":60000}
//   {"id":3,"op":"abort","call":2}
//   {"id":4,"op":"close"}
//
// Report: {"id":…,"ok":true,"result":…}, {"id":…,"ok":false,"error":"…"} where the library threw,
// {"progress":CALL,"params":…} on the way.
import { createInterface } from 'node:readline';

let client;
const aborts = new Map();
const report = (line) => process.stdout.write(JSON.stringify(line) + '\n');

const operations = {
  async connect({ sdk, era, url, command, args, env }) {
    const info = { name: 'e2e-typescript', version: '1' };
    const server = { command, args, env: { ...process.env, ...env }, stderr: 'inherit' };
    if (sdk === 'v1') {
      const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
      const { StdioClientTransport } = await import('@modelcontextprotocol/sdk/client/stdio.js');
      const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
      client = new Client(info, { capabilities: {} });
      client.call = (params, options) => client.callTool(params, undefined, options);
      await client.connect(url ? new StreamableHTTPClientTransport(new URL(url)) : new StdioClientTransport(server));
    } else {
      const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
      const { StdioClientTransport } = await import('@modelcontextprotocol/client/stdio');
      const mode = era === 'modern' ? { pin: '2026-07-28' } : 'legacy';
      client = new Client(info, { capabilities: {}, versionNegotiation: { mode } });
      client.call = (params, options) => client.callTool(params, options);
      await client.connect(url ? new StreamableHTTPClientTransport(new URL(url)) : new StdioClientTransport(server));
    }
    return { server: client.getServerVersion(), instructions: client.getInstructions() };
  },
  list: () => client.listTools(),
  call({ id, name, arguments: args, progress, timeout = 120000 }) {
    const abort = new AbortController();
    aborts.set(id, abort);
    const options = { timeout, signal: abort.signal };
    if (progress) options.onprogress = (params) => report({ progress: id, params });
    return client.call({ name, arguments: args }, options);
  },
  abort({ call }) {
    aborts.get(call).abort('enough');
    return {};
  },
  close: () => client.close(),
};

createInterface({ input: process.stdin })
  .on('line', async (line) => {
    const order = JSON.parse(line);
    try {
      report({ id: order.id, ok: true, result: (await operations[order.op](order)) ?? {} });
    } catch (e) {
      report({ id: order.id, ok: false, error: String(e?.message ?? e) });
    }
  })
  .on('close', () => process.exit(0));
