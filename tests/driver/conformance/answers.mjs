// An adapter that is no Python: it takes every command, calls the tool once, and remembers nothing.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const ends = new Map();
let started;

function call(tool, args) {
  const [command, ...rest] = started.server.argv;
  const server = spawn(command, rest, { stdio: ["pipe", "pipe", "ignore"] });
  const send = (message) => server.stdin.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
  return new Promise((resolve) => {
    const end = (outcome) => (clearTimeout(deadline), server.kill(), resolve(outcome));
    const deadline = setTimeout(() => end("unknown"), started.deadline_s * 1000);
    createInterface({ input: server.stdout }).on("line", (line) => {
      const message = JSON.parse(line);
      if (message.id === 1) {
        send({ method: "notifications/initialized" });
        send({ id: 2, method: "tools/call", params: { name: tool, arguments: args } });
      } else if (message.id === 2) {
        end(message.result?.isError ? "failed" : "succeeded");
      }
    });
    const hello = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "node", version: "1" } };
    send({ id: 1, method: "initialize", params: hello });
  });
}

const after = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000, "running").unref());

const verbs = {
  start: (asked) => ((started = asked), { runtime: "node", version: process.version }),
  deliver: ({ command_id, tool, arguments: args }) => {
    if (!ends.has(command_id)) ends.set(command_id, call(tool, args));
    return { accepted: true };
  },
  outcome: async ({ command_id, wait_s }) => ({
    outcome: await Promise.race([ends.get(command_id) ?? "unheard", after(wait_s)]),
  }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  process.stdout.write(JSON.stringify(await verbs[asked.verb](asked)) + "\n");
}
