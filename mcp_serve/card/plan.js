// A plan of a prune or finalize: what goes, the choice of what stays, apply and undo.

const DAY_MS = 86_400_000;
const MOST_ITEMS = 200;
const AGES = [
  ["under 3 months", 91],
  ["3 to 6 months", 183],
  ["6 to 12 months", 365],
  ["1 to 2 years", 731],
  ["over 2 years", Infinity],
];
const NOUNS = {
  sessions: "conversation",
  ghosts: "empty session",
  routes: "route",
  orphans: "leftover",
  index: "search index",
  expired: "session",
  orphaned: "session",
  abandoned: "session",
};
const VERBS = { sessions_prune: "Remove", sessions_finalize: "End" };
const DONE = { removed: "removed", finalized: "ended", restored: "restored" };
// Kinds of which the user can leave out single items.
const SELECTABLE = {
  sessions_prune: ["sessions", "ghosts"],
  sessions_finalize: ["sessions", "abandoned", "orphaned"],
};
// A finalize of chosen sessions states the reason of its kind.
const REASONS = { abandoned: "abandoned", orphaned: "orphaned_compression" };

class PlanCard {
  #bridge;
  #root;
  #tool;
  #request = {};
  #answer = null;
  #items = [];
  #kept = new Set();
  #actions = make("div", { className: "actions" });
  #status = make("p", { role: "status" });

  constructor(root, bridge, tool) {
    this.#root = root;
    this.#bridge = bridge;
    this.#tool = tool;
  }

  setRequest(request) {
    this.#request = request;
  }

  async show(answer) {
    this.#answer = answer;
    this.#items = answer.items ?? [];
    this.#kept.clear();
    this.#render();
    await this.#loadItems();
  }

  get #verb() {
    const verbs = { index: "Merge", trash: "Permanently delete" };
    return verbs[this.#what] ?? VERBS[this.#tool];
  }

  get #what() {
    return this.#request.plan ? "" : (this.#request.what ?? "sessions");
  }

  // The batch that undoes the change; a restore names the batch that it has undone.
  get #undoBatch() {
    return this.#answer.restored === undefined ? this.#answer.batch : null;
  }

  get #isOpen() {
    return this.#answer.outcome === "planned";
  }

  #count(count) {
    const noun = NOUNS[this.#what] ?? "item";
    return this.#what === "trash" ? countOf(count, "batch", "batches") : countOf(count, noun);
  }

  // Load the items that the first answer had no room for, within a bound. The cursor is passed
  // alone: it carries the plan, and a call with a plan may apply it.
  async #loadItems() {
    const { plan } = this.#answer;
    let cursor = this.#answer.next_cursor;
    if (!this.#bridge.canCallTools) return;
    while (
      cursor &&
      this.#isOpen &&
      this.#answer.plan === plan &&
      this.#items.length < MOST_ITEMS
    ) {
      const page = await this.#call(this.#tool, { cursor });
      if (!page || this.#answer.plan !== plan) return;
      this.#items = [...this.#items, ...page.items];
      cursor = page.next_cursor;
      this.#render();
    }
  }

  #render() {
    const parts = this.#isOpen ? this.#renderPlan() : this.#renderResult();
    this.#root.replaceChildren(...parts, this.#status, this.#actions);
    this.#root.setAttribute("aria-busy", "false");
    this.#renderActions();
  }

  #renderPlan() {
    const { count, totals, bytes, protected: protects, expires_at, store } = this.#answer;
    const figures = [];
    if (totals) figures.push([formatCount(totals.messages), "messages"]);
    figures.push([formatBytes(bytes.free_in_file), "free in the file"]);
    figures.push([formatBytes(bytes.returned_to_disk), "returned to the disk"]);
    figures.push([formatBytes(bytes.trash), "kept for the undo"]);
    const until =
      expires_at &&
      `This plan changes nothing until it is applied. It expires on ${formatDay(expires_at)}.`;
    return [
      make("h1", {}, `${this.#verb} ${this.#count(count)}?`),
      make("p", { className: "dim" }, [store && `Store ${store}. `, until]),
      makeFigures(figures),
      ...this.#renderWarnings(),
      this.#renderCharts(),
      protects?.length ? this.#renderProtected(protects) : null,
      this.#renderItems(),
    ].filter(Boolean);
  }

  #renderCharts() {
    const charts = make("div", { className: "charts" });
    const sources = Object.entries(this.#answer.totals?.by_source ?? {});
    const ages = this.#countAges();
    if (ages.length) {
      const part =
        this.#items.length < this.#answer.count
          ? ` of the first ${formatCount(this.#items.length)}`
          : "";
      charts.append(makeBars(`Last active${part}`, ages));
    }
    if (sources.length)
      charts.append(
        makeBars(
          "Source",
          sources.sort((a, b) => b[1] - a[1]),
        ),
      );
    return charts;
  }

  #countAges() {
    const counts = new Map();
    for (const { last_active_at } of this.#items) {
      if (!last_active_at) continue;
      const days = (Date.now() - Date.parse(last_active_at)) / DAY_MS;
      const [name] = AGES.find(([, most]) => days < most);
      counts.set(name, (counts.get(name) ?? 0) + 1);
    }
    return AGES.map(([name]) => [name, counts.get(name)]).filter(([, count]) => count);
  }

  #renderProtected(protects) {
    const lines = protects.map(({ why, count }) => make("li", {}, `${formatCount(count)}: ${why}`));
    return makeSection("Protected, and not in this plan", make("ul", {}, lines));
  }

  #renderWarnings() {
    const lines = (this.#answer.warnings ?? []).map((warning) => make("li", {}, warning));
    return lines.length ? [make("ul", { className: "warnings" }, lines)] : [];
  }

  #renderItems() {
    if (!this.#items.length) return null;
    const shown = this.#items.length;
    const { count } = this.#answer;
    const more =
      shown < count
        ? make(
            "p",
            { className: "dim" },
            `${formatCount(shown)} of ${this.#count(count)} are shown.`,
          )
        : null;
    const hint = this.#canChoose ? "Uncheck what should stay" : "Items";
    return makeSection(
      hint,
      make(
        "ul",
        { className: "items" },
        this.#items.map((item) => this.#renderItem(item)),
      ),
      more,
    );
  }

  get #canChoose() {
    const canName = this.#tool === "sessions_prune" || this.#items.length === this.#answer.count;
    return canName && SELECTABLE[this.#tool].includes(this.#what) && this.#bridge.canCallTools;
  }

  #renderItem(item) {
    const facts = [
      item.messages !== undefined && countOf(item.messages, "message"),
      item.why,
    ].filter(Boolean);
    const title = make("span", { className: "title" }, item.title || item.id);
    const text = make("span", {}, title, make("small", { className: "dim" }, facts.join(" · ")));
    if (!this.#canChoose) return make("li", {}, text);
    const box = make("input", { type: "checkbox", checked: !this.#kept.has(item.id) });
    box.addEventListener("change", () => this.#choose(item.id, box.checked));
    return make("li", {}, make("label", {}, box, text));
  }

  #choose(id, goes) {
    if (goes) this.#kept.delete(id);
    else this.#kept.add(id);
    this.#renderActions();
  }

  #renderActions() {
    const { plan, outcome } = this.#answer;
    this.#actions.replaceChildren();
    if (!this.#bridge.canCallTools) {
      if (this.#isOpen) this.#say(`To apply it, ask for ${this.#tool} with plan ${plan}.`);
    } else if (this.#isOpen && this.#kept.size) {
      const text = `Keep ${formatCount(this.#kept.size)} and plan again`;
      this.#actions.append(makeButton(text, () => this.#planAgain(), "main"));
    } else if (this.#isOpen) {
      const text = `${this.#verb} ${this.#count(this.#answer.count)}`;
      this.#actions.append(makeButton(text, () => this.#apply(), "main danger"));
    } else if (this.#undoBatch) {
      this.#actions.append(makeButton("Undo", () => this.#undo()));
    } else if (!this.#request.plan && outcome !== "nothing") {
      this.#actions.append(makeButton("Plan again", () => this.#planAgain()));
    }
  }

  #renderResult() {
    const { outcome, count } = this.#answer;
    const batch = this.#undoBatch;
    const [key, shown] = Object.entries(DONE).find(([name]) => name in this.#answer) ?? [];
    const done = this.#answer[key] ?? 0;
    const heading = {
      nothing: "There is nothing to do",
      applied: `${this.#count(done)} ${shown}`,
      partial: `${formatCount(done)} of ${this.#count(count)} ${shown}`,
      declined: "Not confirmed; nothing was changed",
      cancelled: "Not confirmed; nothing was changed",
    }[outcome];
    const skipped = this.#answer.skipped ?? [];
    const lines = skipped.map(({ id, why }) => make("li", {}, `${id}: ${why}`));
    return [
      make("h1", {}, heading),
      batch ? make("p", { className: "dim" }, `Batch ${batch} undoes it.`) : null,
      ...this.#renderWarnings(),
      lines.length ? makeSection("Skipped, because it changed", make("ul", {}, lines)) : null,
    ].filter(Boolean);
  }

  async #planAgain() {
    const { plan: _, cursor: __, ...request } = this.#request;
    if (this.#kept.size) this.#leaveOut(request);
    const answer = await this.#call(this.#tool, request);
    if (!answer) return;
    this.#request = request;
    const now = answer.plan
      ? `plan ${answer.plan} replaces the earlier one`
      : "nothing is left to do";
    this.#bridge.reportToModel(`The user changed the plan in the card; ${now}.`);
    await this.show(answer);
  }

  // A prune has `keep`. A finalize has not, so the sessions that are left are named.
  #leaveOut(request) {
    if (this.#tool === "sessions_prune") {
      request.keep = [...(request.keep ?? []), ...this.#kept];
      return;
    }
    request.sessions = this.#items.map(({ id }) => id).filter((id) => !this.#kept.has(id));
    if (request.what in REASONS) request.reason ??= REASONS[request.what];
    request.what = "sessions";
  }

  async #apply() {
    const { plan, store } = this.#answer;
    await this.#run(this.#tool, { plan, ...(store && { store }) });
  }

  async #undo() {
    const { batch, store } = this.#answer;
    const answer = await this.#run("sessions_restore", { batch, ...(store && { store }) });
    if (answer?.outcome !== "planned") return;
    this.#say("");
    this.#root.replaceChildren(
      make("h1", {}, "Undo this change?"),
      ...this.#renderWarnings(),
      this.#status,
      this.#actions,
    );
    const given = { plan: answer.plan, ...(store && { store }) };
    this.#actions.replaceChildren(
      makeButton("Undo it anyway", () => this.#run("sessions_restore", given), "main danger"),
    );
  }

  // Make a change and show its result; a call that ran out of time is repeated while it gets on.
  async #run(tool, given) {
    let answer = await this.#call(tool, given);
    let remaining = Infinity;
    while (answer?.outcome === "partial" && answer.remaining < remaining) {
      remaining = answer.remaining;
      this.#say(`${formatCount(remaining)} left…`);
      answer = await this.#call(tool, given);
    }
    if (!answer) return null;
    this.#answer = { store: this.#answer.store, ...answer };
    if (answer.outcome === "planned") return answer;
    const done = this.#undoBatch ? `batch ${this.#undoBatch} undoes it` : "there is no undo of it";
    this.#bridge.reportToModel(`In the card the user called ${tool}: ${answer.outcome}; ${done}.`);
    this.#say("");
    this.#render();
    return answer;
  }

  // Call a tool with the buttons disabled; show an error and return null if it fails.
  async #call(tool, given) {
    const controls = this.#root.querySelectorAll("button, input");
    controls.forEach((control) => (control.disabled = true));
    try {
      return await this.#bridge.callTool(tool, given);
    } catch (error) {
      this.#say(error.message, true);
      return null;
    } finally {
      controls.forEach((control) => (control.disabled = false));
    }
  }

  #say(text, failed = false) {
    this.#status.textContent = text;
    this.#status.className = failed ? "failed" : "dim";
  }
}
