// The gateway's web page. External values are inserted as text, never as markup.
"use strict";

(() => {
  const INTERVAL = 3000;
  const byId = (id) => document.getElementById(id);
  const key = (role) => sessionStorage.getItem(`mildroute.${role}`) || "";
  const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
  const percent = (value) => (isNumber(value) ? `${(100 * value).toFixed(1)}%` : "-");
  const dollars = (value) => (isNumber(value) ? `$${Math.abs(value) >= 100 ? value.toFixed(2) : value.toPrecision(3)}` : "-");
  let needsClientKey = false;
  let timer = 0;

  function storeKey(role, value) {
    if (value) sessionStorage.setItem(`mildroute.${role}`, value);
    else sessionStorage.removeItem(`mildroute.${role}`);
  }

  async function call(path, role, options = {}) {
    const headers = { ...options.headers };
    if (key(role)) headers.authorization = `Bearer ${key(role)}`;
    let response;
    try {
      response = await fetch(path, { cache: "no-store", credentials: "omit", redirect: "error", ...options, headers });
    } catch {
      throw new Error("The gateway does not respond.");
    }
    if (response.ok) return response.json();
    let message = `The gateway responded with status ${response.status}.`;
    try {
      message = String((await response.json()).error.message);
    } catch { /* The body is not JSON. */ }
    throw Object.assign(new Error(message), { status: response.status });
  }

  function post(path, body) {
    const headers = { "content-type": "application/json", "x-mildroute-sampling": "off", "x-mildroute-details": "on" };
    const quality = byId("quality").value.trim();
    if (quality) headers["x-mildroute-quality"] = quality;
    return call(path, needsClientKey ? "client" : "admin", { method: "POST", headers, body: JSON.stringify(body) });
  }

  function fill(id, rows) {
    byId(id).replaceChildren(...rows.map(([name, ...values]) => {
      const row = document.createElement("tr");
      const heading = document.createElement("th");
      heading.scope = "row";
      heading.textContent = name;
      row.append(heading, ...values.map((value) => Object.assign(document.createElement("td"), { textContent: value })));
      return row;
    }));
  }

  function show(status) {
    const { savings, requests } = status;
    needsClientKey = status.needs_client_key;
    byId("client-field").hidden = !needsClientKey;
    byId("keys-form").hidden = !needsClientKey && byId("admin-field").hidden;
    const comparison = savings.saved >= 0 ? "cheaper" : "more expensive";
    byId("savings-sentence").textContent = isNumber(savings.saved_share)
      ? `${percent(Math.abs(savings.saved_share))} ${comparison} than ${savings.baseline}: ${dollars(savings.dollars)} instead of ${dollars(savings.baseline_dollars)} for the same tokens.`
      : "There are no savings to show: nothing has been answered yet, or the baseline has no price.";
    byId("requests").textContent = `Requests: ${requests.total}, failed: ${requests.failed}, rejected: ${requests.rejected}. ${status.router ? `Router: ${status.router}.` : "No router has been loaded, so all requests go to the default expert."} Version ${status.version}.`;
    fill("expert-rows", status.experts.map((expert) => [expert.name, expert.answered, percent(expert.share), dollars(expert.dollars), expert.circuit || "-"]));
    byId("live").hidden = false;
  }

  async function poll() {
    clearTimeout(timer);
    try {
      show(await call("/status", "admin"));
      byId("connection").textContent = "Live figures since the start of this gateway.";
    } catch (error) {
      byId("connection").textContent = error.message;
      if (error.status === 401) {
        for (const id of ["admin-field", "keys-form"]) byId(id).hidden = false;
        byId("live").hidden = true;
        byId("connection").textContent = key("admin") ? "This is not the admin key." : "Enter the admin key to see figures.";
        return;
      }
    }
    timer = setTimeout(poll, INTERVAL);
  }

  function showDecision(decision) {
    byId("decision").textContent = `${decision.expert || "No expert"} would answer; reason: ${decision.reason}.`;
    fill("ranking-rows", (decision.ranking || []).map((row) => [row.expert, isNumber(row.score) ? row.score.toFixed(3) : "-", dollars(row.dollars), percent(row.posterior)]));
    byId("ranking").hidden = false;
  }

  function showAnswer(completion) {
    const details = completion.mildroute || {};
    const message = ((completion.choices || [])[0] || {}).message || {};
    byId("answer-facts").textContent = `Expert: ${details.expert}. Reason: ${details.reason}. Cost: ${dollars(details.cost_dollars)}.`;
    byId("answer-text").textContent = typeof message.content === "string" ? message.content : JSON.stringify(message, null, 2);
    byId("answer").hidden = false;
  }

  async function run(isSent) {
    if (!byId("playground-form").reportValidity()) return;
    const buttons = [byId("rank"), byId("ask")];
    const messages = [{ role: "user", content: byId("prompt").value }];
    for (const button of buttons) button.disabled = true;
    byId("answer").hidden = true;
    byId("playground-message").textContent = "Waiting";
    try {
      showDecision(await post("/v1/route", { messages }));
      if (isSent) showAnswer(await post("/v1/chat/completions", { model: "mildroute", messages }));
      byId("playground-message").textContent = "Done.";
    } catch (error) {
      byId("playground-message").textContent = error.message;
    } finally {
      for (const button of buttons) button.disabled = false;
    }
  }

  function useKeys(isForgotten) {
    for (const role of ["admin", "client"]) {
      const field = byId(`${role}-key`);
      if (isForgotten || field.value.trim()) storeKey(role, isForgotten ? "" : field.value.trim());
      field.value = "";
    }
    poll();
  }

  byId("playground-form").addEventListener("submit", (event) => { event.preventDefault(); run(false); });
  byId("ask").addEventListener("click", () => run(true));
  byId("keys-form").addEventListener("submit", (event) => { event.preventDefault(); useKeys(false); });
  byId("forget").addEventListener("click", () => useKeys(true));
  poll();
})();
