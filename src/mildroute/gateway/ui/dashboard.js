// The page of a gateway. Whatever comes from outside is put in as text, never as markup.
"use strict";

(() => {
  const INTERVAL = 3000;
  const SLOWEST = 30000;
  const STORED = { admin: "mildroute.admin", client: "mildroute.client" };
  const byId = (id) => document.getElementById(id);
  let needsClientKey = false;
  let timer = 0;
  let failures = 0;
  let isPolling = false;

  // Keys: in this tab alone, and in no address.

  const keyOf = (who) => sessionStorage.getItem(STORED[who]) || "";

  function keep(who, value) {
    if (value) sessionStorage.setItem(STORED[who], value);
    else sessionStorage.removeItem(STORED[who]);
  }

  function authorized(key, headers) {
    const all = { ...headers };
    if (key) all.authorization = `Bearer ${key}`;
    return all;
  }

  function playgroundHeaders() {
    const headers = { "content-type": "application/json", "x-mildroute-sampling": "off", "x-mildroute-details": "on" };
    const quality = byId("quality").value.trim();
    if (quality) headers["x-mildroute-quality"] = quality;
    return authorized(keyOf(needsClientKey ? "client" : "admin"), headers);
  }

  // Requests.

  async function call(path, options) {
    let response;
    try {
      response = await fetch(path, { cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer", ...options });
    } catch (error) {
      throw Object.assign(new Error(error instanceof TypeError ? "The gateway does not respond." : "A key may have letters, digits and signs of ASCII alone."), { status: 0 });
    }
    if (response.ok) return response;
    let message = `The gateway answered with status ${response.status}.`;
    try {
      message = String((await response.json()).error.message);
    } catch { /* no JSON: the status has to do */ }
    throw Object.assign(new Error(message), { status: response.status });
  }

  const post = (path, body) => call(path, { method: "POST", headers: playgroundHeaders(), body: JSON.stringify(body) });

  // Text.

  const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
  const count = (value) => (isNumber(value) ? value.toLocaleString("en-US", { maximumFractionDigits: 0 }) : "-");
  const percent = (value) => (isNumber(value) ? `${(100 * value).toFixed(1)}%` : "-");
  const moment = (value) => (isNumber(value) ? `${new Date(1000 * value).toISOString().slice(0, 16).replace("T", " ")} UTC` : "");

  function dollars(value) {
    if (!isNumber(value)) return "-";
    const size = Math.abs(value);
    const digits = size === 0 || size >= 1 ? 2 : Math.min(10, 2 - Math.floor(Math.log10(size)));
    const text = size.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
    return `${value < 0 ? "-" : ""}$${text}`;
  }

  function reasonOf(name) {
    const words = byId(`reason-${name}`);
    return words ? `${name} (${words.textContent})` : name;
  }

  const counts = (found) => Object.entries(found || {}).filter(([, value]) => value).map(([name, value]) => `${name} ${count(value)}`).join(", ");

  // Elements.

  function element(name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  function row(name, cells) {
    const made = element("tr");
    const head = element("th", name);
    head.scope = "row";
    made.append(head, ...cells);
    return made;
  }

  // On a phone each cell has the heading of its column beside it.
  function fill(id, rows) {
    const body = byId(id);
    const headings = [...body.closest("table").querySelectorAll("thead th")].map((each) => each.textContent);
    for (const each of rows) [...each.children].forEach((cell, place) => cell.setAttribute("data-label", headings[place]));
    body.replaceChildren(...rows);
  }

  function shareCell(share) {
    const cell = element("td", percent(share));
    if (!isNumber(share)) return cell;
    const meter = element("meter");
    meter.max = 1;
    meter.value = share;
    meter.setAttribute("aria-hidden", "true");
    cell.append(meter);
    return cell;
  }

  function facts(list, entries) {
    list.replaceChildren(...entries.filter(([, value]) => value).map(([name, value]) => {
      const pair = element("div");
      pair.append(element("dt", name), element("dd", value));
      return pair;
    }));
  }

  function say(id, text, className) {
    const target = byId(id);
    target.className = className || "";
    if (target.textContent !== text) target.textContent = text;
  }

  // Live figures.

  function showSavings(status) {
    const { savings, requests } = status;
    const baseline = savings.baseline || "the baseline";
    let sentence = "Nothing has been spent yet.";
    if (isNumber(savings.saved_share)) {
      const saves = savings.saved >= 0;
      sentence = `${percent(Math.abs(savings.saved_share))} ${saves ? "cheaper" : "more expensive"} than ${baseline} for the same tokens: ${dollars(savings.dollars)} instead of ${dollars(savings.baseline_dollars)}.`;
    } else if (requests.total) {
      sentence = `No savings can be told: ${baseline} has no price, or nothing was answered yet.`;
    }
    byId("savings-sentence").textContent = sentence;
    facts(byId("cards"), [
      ["Saved", dollars(savings.saved)],
      ["Spent", dollars(savings.dollars)],
      ["Requests", count(requests.total)],
      ["Under way", count(requests.in_flight)],
      ["Failed (5xx)", count(requests.failed)],
      ["Rejected", count(requests.rejected)],
    ]);
  }

  function showExperts(status) {
    const states = { closed: "good", "half-open": "warn", open: "bad" };
    fill("expert-rows", status.experts.map((expert) => {
      const broken = counts(expert.broken_streams);
      const failed = [counts(expert.failures), broken && `streams: ${broken}`].filter(Boolean).join("; ");
      return row(expert.name, [
        element("td", count(expert.answered)),
        shareCell(expert.share),
        element("td", dollars(expert.dollars)),
        element("td", expert.circuit || "-", states[expert.circuit]),
        element("td", failed || "none", "text"),
      ]);
    }));
    const reasons = counts(status.reasons);
    byId("reasons").textContent = reasons ? `Decisions by reason: ${reasons}.` : "";
  }

  function showKeys(status) {
    byId("spend-table").hidden = status.keys.length === 0;
    byId("no-keys").hidden = status.keys.length > 0;
    fill("key-rows", status.keys.map((key) => row(key.name, [element("td", dollars(key.dollars)), element("td", isNumber(key.left_today) ? dollars(key.left_today) : "no limit", "text")])));
  }

  function promise(target) {
    if (!target) return "";
    const parts = [];
    if (isNumber(target.score)) parts.push(`score ${target.score.toFixed(3)}${isNumber(target.best_score) ? ` (${target.best} alone: ${target.best_score.toFixed(3)})` : ""}`);
    if (isNumber(target.dollars_per_1000)) parts.push(`${dollars(target.dollars_per_1000)} for 1,000 requests`);
    if (isNumber(target.saved)) parts.push(`${percent(target.saved)} saved against ${target.baseline}`);
    return parts.join(", ");
  }

  function showRouter(status) {
    const router = status.router;
    byId("report").hidden = !(router && router.has_report);
    if (!router) {
      facts(byId("router-facts"), [["State", "There is no router yet: requests are passed to the default expert."]]);
      return;
    }
    facts(byId("router-facts"), [
      ["Version", router.digest],
      ["Loaded", moment(router.loaded_at)],
      ["Method", router.method],
      ["Chooses between", router.experts.join(", ")],
      ["Expected on held-out rows", promise(router.target)],
      ["Drift", Object.entries(router.drift).map(([name, level]) => `${name}: ${level}`).join(", ")],
      ["Report", router.has_report ? "" : "none beside the artifact"],
    ]);
  }

  function showLearning(status) {
    const { sampling, exploration, shadow, learner } = status.learning;
    const entries = [];
    if (sampling) entries.push(["Sampling", `${percent(sampling.rate)} of requests; ${counts(sampling.results) || "none yet"}; ${dollars(sampling.dollars)} spent, ${dollars(sampling.dollars_left)} left today; ${sampling.is_enough ? "enough to fit a router" : "not yet enough to fit a router"}`]);
    if (exploration) entries.push(["Exploration", `${percent(exploration.rate)} of requests at most; ${dollars(exploration.dollars)} expected beyond the router's choices`]);
    if (shadow) entries.push(["Shadow router", `agrees ${count(shadow.yes || 0)}, differs ${count(shadow.no || 0)}`]);
    if (learner && learner.event) {
      const share = learner.share ? `, gets ${percent(learner.share)} of the requests` : "";
      entries.push(["Learner", `${learner.phase}${learner.candidate ? ` ${String(learner.candidate).slice(0, 16)}` : ""}${share}`]);
      entries.push(["Last step", `${moment(learner.time)}: ${learner.event}${learner.why ? `, ${learner.why}` : ""}`]);
    } else if (learner) {
      entries.push(["Learner", learner.why]);
    }
    if (!entries.length) entries.push(["State", "Sampling and exploration are off, and page.learning names no learner."]);
    facts(byId("learning-facts"), entries);
  }

  function show(status) {
    needsClientKey = status.needs_client_key;
    byId("client-field").hidden = !needsClientKey;
    if (needsClientKey) byId("keys-section").hidden = false;
    byId("covers").textContent = `Version ${status.version}. ${status.covers.text}`;
    for (const part of [showSavings, showExperts, showKeys, showRouter, showLearning]) part(status);
    byId("live").hidden = false;
  }

  async function poll() {
    clearTimeout(timer);
    if (isPolling || document.hidden) return;
    isPolling = true;
    try {
      const response = await call("/status", { headers: authorized(keyOf("admin"), {}) });
      show(await response.json());
      failures = 0;
      say("connection", "Live: figures are read every 3 seconds.", "good");
    } catch (error) {
      failures += 1;
      if (error.status === 401) {
        byId("live").hidden = true;
        byId("keys-section").hidden = false;
        byId("admin-field").hidden = false;
        say("connection", keyOf("admin") ? "This is not the admin key." : "Enter the admin key to see figures.", "warn");
      } else {
        say("connection", error.message, "bad");
      }
    } finally {
      isPolling = false;
    }
    // Without the right key there is nothing to wait for.
    if (failures && !byId("admin-field").hidden && byId("live").hidden) return;
    timer = setTimeout(poll, Math.min(SLOWEST, INTERVAL * 2 ** Math.min(failures, 5)));
  }

  // The playground.

  function showDecision(decision) {
    const ranked = decision.ranking || [];
    byId("decision").textContent = decision.expert
      ? `${decision.expert} would answer; reason: ${reasonOf(decision.reason)}. Router ${decision.router || "none"}.`
      : `No expert can take this request; reason: ${reasonOf(decision.reason)}.`;
    const excluded = decision.excluded || {};
    fill("ranking-rows", ranked.map((each) => row(each.expert, [
      element("td", isNumber(each.score) ? each.score.toFixed(3) : "-"),
      element("td", dollars(each.dollars)),
      element("td", percent(each.posterior)),
      element("td", each.expert in excluded ? `excluded: ${excluded[each.expert]}` : each.expert === decision.expert ? "chosen" : "", "text"),
    ])));
    byId("ranking").hidden = false;
  }

  function showAnswer(document_) {
    const details = document_.mildroute || {};
    const message = ((document_.choices || [])[0] || {}).message || {};
    const cost = isNumber(details.cost_dollars) ? dollars(details.cost_dollars) : "unknown, as it has no price";
    byId("answer-facts").textContent = `Expert: ${details.expert}. Reason: ${details.reason}. Cost: ${cost}. Decision: ${details.decision_id}.`;
    byId("answer-text").textContent = typeof message.content === "string" ? message.content : JSON.stringify(message, null, 2);
    byId("answer").hidden = false;
  }

  async function run(wait, work) {
    if (!byId("playground-form").reportValidity()) return;
    for (const id of ["rank", "ask"]) byId(id).disabled = true;
    say("playground-message", wait);
    try {
      await work(byId("prompt").value);
      say("playground-message", "Done.", "good");
    } catch (error) {
      say("playground-message", error.message, "bad");
    } finally {
      for (const id of ["rank", "ask"]) byId(id).disabled = false;
    }
  }

  const messages = (prompt) => [{ role: "user", content: prompt }];

  async function rank(prompt) {
    byId("answer").hidden = true;
    showDecision(await (await post("/v1/route", { messages: messages(prompt) })).json());
  }

  async function ask(prompt) {
    await rank(prompt);
    showAnswer(await (await post("/v1/chat/completions", { model: "mildroute", messages: messages(prompt) })).json());
  }

  async function download() {
    try {
      const response = await call("/status/report", { headers: authorized(keyOf("admin"), {}) });
      const link = element("a");
      link.href = URL.createObjectURL(await response.blob());
      link.download = "report.html";
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    } catch (error) {
      say("connection", error.message, "bad");
    }
  }

  byId("playground-form").addEventListener("submit", (event) => {
    event.preventDefault();
    run("Asking the router.", rank);
  });
  byId("ask").addEventListener("click", () => run("Asking an expert.", ask));
  byId("report").addEventListener("click", download);
  byId("keys-form").addEventListener("submit", (event) => {
    event.preventDefault();
    for (const who of ["admin", "client"]) {
      const field = byId(`${who}-key`);
      if (field.value.trim()) keep(who, field.value.trim());
      field.value = "";
    }
    failures = 0;
    poll();
  });
  byId("forget").addEventListener("click", () => {
    for (const who of ["admin", "client"]) keep(who, "");
    poll();
  });
  document.addEventListener("visibilitychange", poll);
  poll();
})();
