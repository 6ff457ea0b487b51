// The bridge to the host: JSON-RPC by postMessage, as MCP Apps (io.modelcontextprotocol/ui) defines it.
// Only messages of the parent window are read, and the page has no other connection.

const PROTOCOL_VERSION = "2026-01-26";
const METHOD_NOT_FOUND = -32601;

class ToolError extends Error {}

class HostBridge {
  #pending = new Map();
  #lastId = 0;
  #handlers;
  #size = "";
  capabilities = {};
  context = {};

  // `handlers`: input(arguments), result(answer), failed(text), context(context).
  constructor(handlers) {
    this.#handlers = handlers;
    window.addEventListener("message", (event) => {
      if (event.source === window.parent && event.data?.jsonrpc === "2.0")
        this.#receive(event.data);
    });
  }

  async connect(appInfo) {
    const found = await this.#request("ui/initialize", {
      appInfo,
      appCapabilities: { availableDisplayModes: ["inline"] },
      protocolVersion: PROTOCOL_VERSION,
    });
    this.capabilities = found.hostCapabilities ?? {};
    this.#mergeContext(found.hostContext ?? {});
    this.#notify("ui/notifications/initialized", {});
    new ResizeObserver(() => this.#reportSize()).observe(document.documentElement);
  }

  get canCallTools() {
    return "serverTools" in this.capabilities;
  }

  // Return the answer of a tool; throw a ToolError with its message if it refuses.
  async callTool(name, given) {
    return readAnswer(await this.#request("tools/call", { name, arguments: given }));
  }

  // Let the model know what the user did here; a host without this keeps silent.
  reportToModel(text) {
    if (!this.capabilities.updateModelContext) return;
    const content = [{ type: "text", text }];
    this.#request("ui/update-model-context", { content }).catch(() => {});
  }

  #receive(message) {
    if (message.method === undefined) this.#settle(message);
    else if (message.id === undefined) this.#hear(message.method, message.params ?? {});
    else this.#answer(message);
  }

  #settle({ id, result, error }) {
    const waiting = this.#pending.get(id);
    this.#pending.delete(id);
    if (error) waiting?.reject(new ToolError(String(error.message ?? "the host refused the call")));
    else waiting?.resolve(result ?? {});
  }

  #hear(method, params) {
    const { input, result, failed } = this.#handlers;
    if (method === "ui/notifications/tool-input") input(params.arguments ?? {});
    else if (method === "ui/notifications/tool-cancelled") failed("The call was cancelled.");
    else if (method === "ui/notifications/host-context-changed") this.#mergeContext(params);
    else if (method === "ui/notifications/tool-result") {
      try {
        result(readAnswer(params));
      } catch (error) {
        failed(error.message);
      }
    }
  }

  #answer({ id, method }) {
    const known = method === "ping" || method === "ui/resource-teardown";
    const error = { code: METHOD_NOT_FOUND, message: `no method ${method}` };
    this.#post(known ? { id, result: {} } : { id, error });
  }

  #mergeContext(context) {
    this.context = { ...this.context, ...context };
    this.#handlers.context(this.context);
  }

  #reportSize() {
    const { width, height } = document.documentElement.getBoundingClientRect();
    const size = { width: Math.ceil(width), height: Math.ceil(height) };
    if (this.#size === `${size.width}x${size.height}`) return;
    this.#size = `${size.width}x${size.height}`;
    this.#notify("ui/notifications/size-changed", size);
  }

  #request(method, params) {
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      this.#pending.set(id, { resolve, reject });
      this.#post({ id, method, params });
    });
  }

  #notify(method, params) {
    this.#post({ method, params });
  }

  // A sandboxed page does not know the origin of its host; it sends nothing that is secret to it.
  #post(message) {
    window.parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
  }
}

// Both halves of a result have the same data; some hosts keep only the text.
function readAnswer(result) {
  const text = (result.content ?? []).find((part) => part.type === "text")?.text ?? "";
  if (result.isError) throw new ToolError(text || "the call failed");
  return result.structuredContent ?? JSON.parse(text);
}
