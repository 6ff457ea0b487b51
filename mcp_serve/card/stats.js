// The report of sessions_stats, and a timeline that is read from the list of conversations.

const WEEK_MS = 7 * 86_400_000;
const WEEKS = 26;
const MOST_PAGES = 10;
const MOST_SOURCES = 8;

class StatsCard {
  #bridge;
  #root;
  #request = {};

  constructor(root, bridge) {
    this.#root = root;
    this.#bridge = bridge;
  }

  setRequest(request) {
    this.#request = request;
  }

  async show(answer) {
    const timeline = make("div");
    this.#root.replaceChildren(
      make(
        "h1",
        {},
        `${countOf(answer.sessions.total, "session")}, ${countOf(answer.messages, "message")}`,
      ),
      make("p", { className: "dim" }, answer.home),
      makeFigures(this.#listFigures(answer)),
      timeline,
      makeBars("Source", this.#countSources(answer.sessions.by_source)),
      this.#renderFindings(answer.findings),
    );
    this.#root.setAttribute("aria-busy", "false");
    if (this.#bridge.canCallTools) await this.#showTimeline(timeline);
  }

  #listFigures({ sessions, size, growth_per_week, cost }) {
    const figures = [
      [formatCount(sessions.open), "open"],
      [formatCount(sessions.archived), "archived"],
      [formatBytes(size.db), "database"],
      [formatBytes(size.trash), "trash"],
      [formatBytes(growth_per_week), "growth per week"],
    ];
    if (cost) figures.push([cost.toLocaleString(locale, { maximumFractionDigits: 2 }), "cost"]);
    return figures;
  }

  #countSources(bySource) {
    const sorted = Object.entries(bySource).sort((a, b) => b[1] - a[1]);
    const rest = sorted.slice(MOST_SOURCES).reduce((sum, [, count]) => sum + count, 0);
    return [...sorted.slice(0, MOST_SOURCES), ...(rest ? [["others", rest]] : [])];
  }

  #renderFindings(findings) {
    if (!findings.length)
      return makeSection("Findings", make("p", { className: "dim" }, "There are none."));
    const lines = findings.map(({ what, bytes, tool }) => {
      const size = bytes ? make("span", { className: "dim" }, ` ${formatBytes(bytes)}`) : null;
      return make("li", {}, what, size, tool ? make("code", {}, tool) : null);
    });
    return makeSection("Findings", make("ul", { className: "findings" }, lines));
  }

  async #showTimeline(place) {
    const begin = Date.now() - WEEKS * WEEK_MS;
    const { times, complete } = await this.#readTimes(begin);
    const counts = Array(WEEKS).fill(0);
    for (const time of times) {
      counts[Math.min(WEEKS - 1, Math.max(0, Math.floor((time - begin) / WEEK_MS)))] += 1;
    }
    const short = { month: "short", day: "numeric" };
    const points = counts.map((value, week) => {
      const day = formatDay(begin + week * WEEK_MS, short);
      return { value, text: `week of ${day}: ${countOf(value, "conversation")}` };
    });
    const note = complete ? "" : `, the newest ${formatCount(times.length)}`;
    const columns = makeColumns(points, formatDay(begin, short), "now");
    place.replaceChildren(
      makeSection(`Conversations by week of their last activity${note}`, ...columns),
    );
  }

  async #readTimes(begin) {
    const { store } = this.#request;
    let given = {
      status: "all",
      since: new Date(begin).toISOString(),
      limit: 100,
      ...(store && { store }),
    };
    const times = [];
    for (let page = 0; page < MOST_PAGES; page += 1) {
      const answer = await this.#bridge.callTool("sessions_list", given);
      times.push(...answer.sessions.map(({ last_active_at }) => Date.parse(last_active_at)));
      if (!answer.next_cursor) return { times, complete: true };
      given = { cursor: answer.next_cursor };
    }
    return { times, complete: false };
  }
}
