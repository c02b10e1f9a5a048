"use strict";
// A page that follows its log (page/server.py): newer curves, and the sections of the plan when they are ready.

const POLL = 1000; // milliseconds between requests for a newer log

// Requests the section of the training again and again.
function follow(training, first) {
  let tag = null;
  const showPlanned = plannedSections();
  const update = async (newer) => {
    training.show(newer);
    await showPlanned(newer.planned);
    document.documentElement.dataset.version = tag;
  };
  const request = async () => {
    const answer = await fetch("data", { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" }).catch(() => null);
    if (!answer) {
      training.showEnd("`layermem watch` has ended; this page shows what it sent last.");
    } else if (answer.status === 200) {
      tag = answer.headers.get("ETag");
      await update(await answer.json());
    } else {
      training.showState();
    }
  };
  const again = () => setTimeout(() => request().finally(again), POLL);
  showPlanned(first.planned).finally(again);
}

// A function of the state of the plan (page/planned.py), which shows what has become ready.
function plannedSections() {
  let number = null, shown = new Set();
  const ready = async (name, state) => {
    if (!state.ready.includes(name) || shown.has(name)) return null;
    const answer = await fetch(name, { cache: "no-store" }).catch(() => null);
    if (!answer?.ok) return null; // another plan has begun, as the next state says, or the server has ended
    shown.add(name);
    return answer.json();
  };
  return async (state) => {
    if (!state.plan) return;
    if (state.plan !== number) {
      number = state.plan;
      shown = new Set();
      for (const name of ["arena", "net", "costs"]) document.getElementById(name)?.remove();
    }
    const plan = await ready("plan", state);
    if (plan) placePlan(plan, LIVE_ORDER, ...state.notes.map((text) => element("p", { class: "note" }, text)));
    const strategies = await ready("strategies", state);
    if (strategies) place(strategiesSection(strategies), LIVE_ORDER);
    for (const [name, title] of [["plan", "Plan"], ["strategies", "Strategies"]]) {
      if (!shown.has(name)) place(section(name, title, ...waiting(name, state, shown.has("plan"))), LIVE_ORDER);
    }
  };
}

// What stands in place of a section that is not ready.
function waiting(name, { error, doing, done, total }, planned) {
  if (error && (name === "plan" || planned)) return [element("p", { class: "error", role: "alert" }, error)];
  if (error) return [element("p", { class: "note" }, "There is no plan.")];
  if (name === "plan") return [element("p", { role: "status" }, "The plan of this run is made again, with a low priority …")];
  if (!total) return [element("p", { role: "status" }, "Strategies are compared when the plan is ready.")];
  const text = `Strategies are compared, with the lowest priority: ${doing || "the curves"} (${Math.min(done + 1, total)} of ${total}) …`;
  return [element("p", { role: "status" }, text), element("progress", { value: done, max: total, "aria-label": "Strategies compared" })];
}
