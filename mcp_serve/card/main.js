// Connects the card of the tool that the host called with the host.

const root = document.getElementById("card");
const tool = document.documentElement.dataset.tool;
const VARIABLE = /^--[a-z0-9-]+$/;

function applyContext(context) {
  setLanguage(context);
  const style = document.documentElement.style;
  if (context.theme) style.colorScheme = context.theme;
  for (const [name, value] of Object.entries(context.styles?.variables ?? {})) {
    if (VARIABLE.test(name) && typeof value === "string") style.setProperty(name, value);
  }
}

function showFailure(text) {
  root.replaceChildren(make("p", { role: "alert", className: "failed" }, text));
  root.setAttribute("aria-busy", "false");
}

const bridge = new HostBridge({
  input: (request) => card.setRequest(request),
  result: (answer) => card.show(answer).catch((error) => showFailure(error.message)),
  failed: showFailure,
  context: applyContext,
});
const card =
  tool === "sessions_stats" ? new StatsCard(root, bridge) : new PlanCard(root, bridge, tool);
bridge.connect({ name: "mcp-sessions", version: "1" }).catch((error) => showFailure(error.message));
