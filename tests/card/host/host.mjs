// A host on the official library: it calls a tool of a real server over HTTP and shows its card.
// `location.hash` has what to do; `window.told` has what the card told the model.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import {
  AppBridge,
  PostMessageTransport,
  RESOURCE_MIME_TYPE,
  getToolUiResourceUri,
} from "@modelcontextprotocol/ext-apps/app-bridge";

const asked = JSON.parse(decodeURIComponent(location.hash.slice(1)));
const { address, token, sandbox, name, given, context, capabilities } = asked;
window.told = [];

const extensions = { "io.modelcontextprotocol/ui": { mimeTypes: [RESOURCE_MIME_TYPE] } };
const asks = asked.reply ? { elicitation: {} } : {};
const client = new Client(
  { name: "host", version: "1" },
  { capabilities: { extensions, ...asks } },
);
if (asked.reply) client.setRequestHandler("elicitation/create", () => ({ action: asked.reply }));
const headers = { Authorization: `Bearer ${token}` };
await client.connect(
  new StreamableHTTPClientTransport(new URL(address), { requestInit: { headers } }),
);

const { tools } = await client.listTools();
const uri = getToolUiResourceUri(tools.find((tool) => tool.name === name));
const { contents } = await client.readResource({ uri });
if (contents[0].mimeType !== RESOURCE_MIME_TYPE) throw new Error(contents[0].mimeType);
const result = await client.callTool({ name, arguments: given });

const frame = document.createElement("iframe");
const bridge = new AppBridge(client, { name: "host", version: "1" }, capabilities, {
  hostContext: context,
});
bridge.onsandboxready = () =>
  bridge.sendSandboxResourceReady({ html: contents[0].text, csp: contents[0]._meta?.ui?.csp });
bridge.onsizechange = ({ height }) => (frame.style.height = `${height}px`);
bridge.onupdatemodelcontext = async ({ content }) => (window.told.push(content[0].text), {});
bridge.oninitialized = async () => {
  await bridge.sendToolInput({ arguments: given });
  await bridge.sendToolResult(result);
};
document.body.append(frame);
await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
frame.src = sandbox;
window.bridge = bridge;
