// Plays one course through a client of the TypeScript SDK, 1.x or 2.x, and says what it has seen.
// Each line of its output is JSON; on the line "subscribed" somebody else has to write.
import { createRequire } from "node:module";

const [, , modules, given] = process.argv;
const asked = JSON.parse(given); // {sdk: 1 | 2, era, way, command, args, env, address, token}
const load = createRequire(`${modules}/`);
const say = (line) => console.log(JSON.stringify(line));

const answers = [
  { action: "decline" },
  { action: "accept", content: { agree: true } },
];
const questions = [];
let heard;
const hearing = new Promise((resolve) => (heard = resolve));
const answer = (request) => (questions.push(request.params.message), answers.shift());
const updated = (notification) => heard(notification.params.uri);

function older() {
  const of = (name) => load(`@modelcontextprotocol/sdk/${name}.js`);
  const types = of("types");
  const client = new (of("client/index").Client)(
    { name: "course", version: "1" },
    { capabilities: { elicitation: {} } },
  );
  client.setRequestHandler(types.ElicitRequestSchema, answer);
  client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, updated);
  return {
    client,
    Stdio: of("client/stdio").StdioClientTransport,
    Http: of("client/streamableHttp").StreamableHTTPClientTransport,
    Sse: of("client/sse").SSEClientTransport,
    call: (params, options) => client.callTool(params, undefined, options),
  };
}

function newer() {
  const all = load("@modelcontextprotocol/client");
  const client = new all.Client(
    { name: "course", version: "1" },
    {
      capabilities: { elicitation: {} },
      versionNegotiation: { mode: asked.era === "newer" ? "auto" : "legacy" },
    },
  );
  client.setRequestHandler("elicitation/create", answer);
  client.setNotificationHandler("notifications/resources/updated", updated);
  return {
    client,
    Stdio: load("@modelcontextprotocol/client/stdio").StdioClientTransport,
    Http: all.StreamableHTTPClientTransport,
    Sse: all.SSEClientTransport,
    call: (params, options) => client.callTool(params, options),
  };
}

const sdk = asked.sdk === 1 ? older() : newer();
const { client } = sdk;
const call = (name, given = {}, options = {}) => sdk.call({ name, arguments: given }, options);

function transport() {
  const { command, args, env } = asked;
  if (asked.way === "stdio") return new sdk.Stdio({ command, args, env });
  const headers = { Authorization: `Bearer ${asked.token}` };
  const Way = asked.way === "sse" ? sdk.Sse : sdk.Http;
  return new Way(new URL(asked.address), { requestInit: { headers } });
}

// What came in, since 1.x tells of no progress that it read together with the result.
function seeing(method) {
  const found = [];
  const way = client.transport;
  const pass = way.onmessage;
  way.onmessage = (message, ...more) => {
    if (message.method === method) found.push(message.params.progress);
    return pass(message, ...more);
  };
  return found;
}

async function lists() {
  return {
    server: client.getServerVersion().name,
    instructions: client.getInstructions().length > 0,
    tools: (await client.listTools()).tools.map((tool) => tool.name),
    prompts: (await client.listPrompts()).prompts.map((prompt) => prompt.name),
    templates: (await client.listResourceTemplates()).resourceTemplates.length,
    resources: (await client.listResources()).resources.length,
  };
}

async function errors() {
  const wrong = await call("sessions_read", { session: "nowhere" });
  const unknown = await call("nothing").catch((error) => error);
  return { wrong: wrong.isError, unknown: unknown.code };
}

async function cancelled() {
  const stop = new AbortController();
  const waiting = call("events_wait", { timeout_s: 50 }, { signal: stop.signal });
  const ended = waiting.then(
    () => false,
    () => true,
  );
  await call("sessions_list");
  stop.abort();
  return (await ended) && (await call("sessions_list")).structuredContent.sessions.length > 0;
}

async function told(session) {
  const uri = `session://${session}`;
  const listening = asked.era === "newer" && (await client.listen({ resourceSubscriptions: [uri] }));
  if (!listening) await client.subscribeResource({ uri });
  say({ step: "subscribed", session });
  const found = await hearing;
  if (listening) await listening.close();
  return found === uri;
}

async function pruned() {
  const plan = async () => (await call("sessions_prune")).structuredContent;
  const apply = async ({ plan }, options) =>
    (await call("sessions_prune", { plan }, options)).structuredContent;
  const declined = await apply(await plan());
  const planned = await plan();
  const applied = await apply(planned, { onprogress: () => {} });
  const back = (await call("sessions_restore", { batch: applied.batch })).structuredContent;
  return {
    declined: declined.outcome,
    planned: planned.count,
    applied: [applied.outcome, applied.removed],
    restored: back.restored,
    questions: questions.length,
    progress: steps.at(-1),
  };
}

await client.connect(transport());
const steps = seeing("notifications/progress");
const seen = await lists();
const page = await call("sessions_list", { limit: 2 });
seen.sessions = page.structuredContent.sessions.length;
seen.halves = JSON.stringify(page.structuredContent) === JSON.stringify(JSON.parse(page.content[0].text));
seen.resource = (await client.readResource({ uri: "sessions://stats" })).contents[0].mimeType;
seen.prompt = (await client.getPrompt({ name: "tidy_up" })).messages.length;
seen.errors = await errors();
seen.cancelled = await cancelled();
seen.told = await told(page.structuredContent.sessions[0].id);
seen.pruned = await pruned();
await client.close();
say({ step: "done", seen });
