/* Page behaviour: live updates by morphing parts, forms without reloads, dialogs, keys, times. All pages work without. */
"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const main = $("#content"), body = document.body, dialog = $("#dialog"), help = $("#help");
  document.documentElement.classList.add("scripted");
  let live = sessionStorage.penstockLive !== "off", source = null, timer = null, busy = false, missed = 0;

  // Live updates ---------------------------------------------------------------------------------------------------

  const held = (part) => part.hasAttribute("data-list") && (dialog.open || $$("[data-select]:checked", part).length > 0 || (part.contains(document.activeElement) && document.activeElement.matches("input:not([type=checkbox]), textarea, select")));

  async function refresh() {
    if (busy || document.hidden) return;
    busy = true;
    try {
      const names = [...new Set($$("[data-part]").map((part) => part.dataset.part))].filter((name) => name !== "question");
      const answer = await fetch(location.href, { headers: { "X-Penstock-Part": names.join(",") } });
      if (answer.status === 401) return location.reload();
      if (!answer.ok) return stale(answer.status === 404 ? "" : "The storage does not answer.");
      apply(await answer.text());
      stale("");
    } catch { stale("The dashboard does not answer."); } finally { busy = false; }
  }

  function apply(html) {
    const fresh = new DOMParser().parseFromString(html, "text/html");
    for (const part of $$("[data-part]", fresh)) {
      const old = $(`[data-part="${part.dataset.part}"]`);
      if (!old || old.isEqualNode(part)) continue;
      if (held(old)) { notice(old, part); continue; }
      const current = old.querySelector(".current")?.dataset.href, typing = document.activeElement.matches("input, textarea, select"); // not a button: its label must be that of its action
      Idiomorph.morph(old, part, { morphStyle: "outerHTML", ignoreActiveValue: typing, callbacks: { beforeAttributeUpdated: (name, node) => !(name === "open" && node.tagName === "DETAILS") && !(name === "checked") } });
      if (current) $$("[data-row]").find((row) => row.dataset.href === current)?.classList.add("current");
    }
    times();
    selection();
    status(shown);
  }

  // A list with a selection keeps its rows under the pointer; the number of new ones is shown instead.
  function notice(old, part) {
    const known = new Set($$("[data-row]", old).map((row) => row.dataset.href));
    const count = $$("[data-row]", part).filter((row) => !known.has(row.dataset.href)).length;
    let note = $(".fresh", old);
    if (!count) return;
    if (!note) { note = document.createElement("p"); note.className = "fresh tag"; old.prepend(note); }
    note.textContent = `${count} new`;
  }

  // The message of an outage is shown over the last data, which is greyed; nothing is emptied.
  function stale(message) {
    const bad = Boolean(message) || Boolean($("#banner .banner:not([data-local])"));
    body.classList.toggle("is-stale", bad);
    main.classList.toggle("stale", bad);
    $$("main form button").forEach((button) => { button.disabled = bad; });
    const local = $("#banner [data-local]");
    if (!message) local?.remove();
    else if (!local && !$("#banner .banner")) {
      const note = document.createElement("p");
      note.className = "banner"; note.dataset.local = "1";
      note.textContent = `${message} The data is as of ${$(".clock").textContent}.`;
      $("#banner").append(note);
    }
  }

  let shown = "as of";
  function status(text) { shown = text; body.classList.toggle("is-live", text === "live"); const label = $("[data-live-text]"); if (label) label.textContent = text; }

  function connect() {
    source?.close(); clearInterval(timer); source = null;
    if (!live || document.hidden) return status(live ? "paused" : "as of");
    const topics = new Set(main.dataset.topics.split(",").filter(Boolean)), every = Number(main.dataset.poll);
    if (every) { timer = setInterval(refresh, every); return status("live"); }
    if (!topics.size) return status("as of");
    const poll = () => { source?.close(); source = null; clearInterval(timer); timer = setInterval(refresh, 2000); status("live"); };
    if (!body.dataset.stream) return poll();
    source = new EventSource(`${body.dataset.base}/live`);
    source.addEventListener("changed", (event) => { missed = 0; status("live"); if (event.data.split(",").some((topic) => topic === "open" || topics.has(topic))) refresh(); });
    source.onerror = () => { if (source?.readyState === EventSource.CLOSED) poll(); else { missed += 1; refresh(); if (missed > 3) poll(); } };
  }
  document.addEventListener("visibilitychange", () => { connect(); refresh(); });

  // Times are relative to the clock of the storage, as the page knows it; the title has the time of this browser's zone.
  function times() {
    const clock = $(".clock"), now = Date.now() + offset(clock);
    if (clock && clock.dateTime) clock.textContent = new Date(clock.dateTime).toLocaleTimeString(undefined, { hour12: false });
    for (const each of $$("time[title]")) {
      const at = new Date(each.dateTime), seconds = Math.trunc((now - at) / 1000), size = Math.abs(seconds);
      const text = size < 60 ? `${size} s` : size < 3600 ? `${Math.trunc(size / 60)} min` : size < 86400 ? `${Math.trunc(size / 3600)} h` : `${Math.trunc(size / 86400)} d`;
      each.textContent = size < 1 ? "now" : seconds > 0 ? `${text} ago` : `in ${text}`;
      each.title = at.toLocaleString();
    }
  }
  let base = null, skew = 0;
  function offset(clock) {
    if (clock && clock.dateTime !== base) { base = clock.dateTime; skew = new Date(base) - Date.now(); }
    return skew;
  }
  setInterval(() => { if (!document.hidden) times(); }, 5000);

  // Forms, messages and questions -----------------------------------------------------------------------------------

  function toast({ text, good, undo }) {
    const box = document.createElement("div"), span = document.createElement("span");
    box.className = good ? "toast" : "toast bad"; span.textContent = text; box.append(span);
    if (undo) {
      const form = document.createElement("form"), button = document.createElement("button");
      form.method = "post"; form.action = undo; form.dataset.act = ""; form.className = "inline";
      button.className = "quiet"; button.textContent = "Undo"; form.append(button); box.append(form);
    }
    $("#toasts").replaceChildren(box);
    setTimeout(() => box.remove(), undo ? 10000 : 6000);
  }

  async function send(form, button, headers) {
    const data = new URLSearchParams(new FormData(form));
    if (button?.name) data.append(button.name, button.value);
    return fetch(form.action, { method: "POST", body: data, headers }).catch(() => null);
  }

  async function act(form, button) {
    busy = true; // the page must not be read again until it is known where to go
    const answer = await send(form, button, { Accept: "application/json" });
    const data = await answer?.json().catch(() => null);
    busy = Boolean(answer?.ok && data?.goto);
    if (!answer || !data) return toast({ text: "The dashboard does not answer.", good: false });
    if (!answer.ok) return toast({ text: data.error, good: false });
    if (form.closest("dialog")) close();
    if (data.goto) { location.href = data.goto; return; }
    toast(data.message);
    $$("[data-select]:checked").forEach((box) => { box.checked = false; });
    await refresh();
  }

  async function ask(form, button) {
    const answer = await send(form, button, { "X-Penstock-Part": "question" });
    if (!answer?.ok) return toast({ text: (await answer?.json().catch(() => null))?.error || "The dashboard does not answer.", good: false });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    dialog.replaceChildren(...fresh.body.childNodes);
    $("form", dialog)?.setAttribute("data-act", "");
    dialog.showModal();
    (dialog.querySelector("input:not([type=hidden])") || dialog.querySelector("h1"))?.focus();
  }
  function close() { dialog.close(); dialog.replaceChildren(); }
  dialog.addEventListener("close", () => dialog.replaceChildren());

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.matches("[data-act]")) { event.preventDefault(); act(form, event.submitter); }
    else if (form.matches("[data-ask]")) { event.preventDefault(); ask(form, event.submitter); }
  });
  document.addEventListener("click", (event) => {
    const target = event.target;
    if (target.closest("[data-close]") && dialog.open) { event.preventDefault(); close(); }
    const copy = target.closest("[data-copy]");
    if (copy) navigator.clipboard?.writeText($(`#${copy.dataset.copy}`).textContent).then(() => toast({ text: "Copied.", good: true }), () => {});
    if (target.closest(".fresh")) { $$("[data-select]:checked").forEach((box) => { box.checked = false; }); refresh(); }
  });
  document.addEventListener("change", (event) => {
    const target = event.target;
    if (target.matches("[data-submit]")) target.form.requestSubmit();
    if (target.matches("#theme")) theme(target.value);
    if (target.matches("[data-select-all]")) $$("[data-select]").forEach((box) => { box.checked = target.checked; });
    if (target.matches("[data-select], [data-select-all], [data-matching]")) selection();
  });
  function selection() {
    const bar = $(".bulk"), count = $$("[data-select]:checked").length;
    if (!bar) return;
    $("[data-selected]", bar).textContent = count;
    bar.classList.toggle("idle", !count && !$("[data-matching]", bar).checked);
  }
  function theme(name) {
    document.documentElement.dataset.theme = name;
    $("#theme").value = name;
    fetch($("[data-theme-form]").action, { method: "POST", keepalive: true, body: new URLSearchParams({ theme: name }), headers: { Accept: "application/json" } }).catch(() => null);
    window.penstockCharts?.();
  }

  // Keys ------------------------------------------------------------------------------------------------------------

  let going = 0;
  const rows = () => $$("main [data-row]");
  function move(step) {
    const all = rows(), at = all.findIndex((row) => row.classList.contains("current"));
    const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step))];
    if (!next) return;
    all.forEach((row) => row.classList.remove("current"));
    next.classList.add("current");
    next.scrollIntoView({ block: "nearest" });
    (next.querySelector("a") || next).focus({ preventScroll: true });
  }
  const press = (key) => $$(`main [data-key="${key}"]`)[0]?.click();
  const KEYS = {
    "/": () => { const input = $("[data-filter]"); if (input) { input.focus(); input.select(); } else location.href = `${body.dataset.base}/jobs`; },
    j: () => move(1), k: () => move(-1),
    x: () => { const box = $(".current [data-select]"); if (box) { box.checked = !box.checked; selection(); } },
    r: () => { const one = $('main [data-key="r"]'); if (one) one.click(); else $$('.bulk:not(.idle) button[value="retry"]')[0]?.click(); },
    c: () => press("c"), D: () => press("D"),
    q: () => document.documentElement.classList.toggle("no-wait"),
    p: () => { live = !live; sessionStorage.penstockLive = live ? "on" : "off"; connect(); },
    t: () => { const all = ["system", "light", "dark"]; theme(all[(all.indexOf(document.documentElement.dataset.theme) + 1) % 3]); },
    "?": () => help.showModal(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open || help.open) return;
    if (event.target.matches("input:not([type=checkbox]), textarea, select")) { if (event.key === "Escape") event.target.blur(); return; }
    if (Date.now() - going < 1500) {
      going = 0;
      const link = $(`[data-go="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); location.href = link.href; return; }
    }
    if (event.key === "g") { going = Date.now(); return; }
    if (event.key === "Enter" && document.activeElement.closest?.(".current") && !document.activeElement.matches("a, button, input")) location.href = $(".current").dataset.href;
    if (KEYS[event.key]) { event.preventDefault(); KEYS[event.key](); }
  });

  $$(".toast").forEach((box) => setTimeout(() => box.remove(), 10000));
  selection(); times(); connect(); stale("");
})();
