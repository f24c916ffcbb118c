/* Charts: two canvases per page from one JSON answer; colours come from the style sheet, so that themes apply. */
"use strict";
(() => {
  const plots = new Map();
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const seconds = (v) => v == null ? "" : v < 1 ? `${+(v * 1000).toPrecision(2)} ms` : v < 60 ? `${+v.toPrecision(2)} s` : v < 3600 ? `${+(v / 60).toPrecision(2)} min` : v < 86400 ? `${+(v / 3600).toPrecision(2)} h` : `${+(v / 86400).toPrecision(2)} d`;
  const count = (v) => v == null ? "" : v >= 1e6 ? `${+(v / 1e6).toPrecision(3)} M` : v >= 1e4 ? `${+(v / 1e3).toPrecision(3)} k` : String(+(+v).toPrecision(3));

  // Vertical lines with names where releases are, and a dashed last step: it is still filling.
  const marks = (releases) => ({ hooks: { draw: [(u) => {
    const c = u.ctx, r = devicePixelRatio;
    c.save(); c.strokeStyle = c.fillStyle = color("--muted"); c.setLineDash([3 * r, 3 * r]); c.lineWidth = r; c.font = `${11 * r}px system-ui`;
    for (const { name, at } of releases) {
      const x = u.valToPos(at, "x", true);
      c.beginPath(); c.moveTo(x, u.bbox.top); c.lineTo(x, u.bbox.top + u.bbox.height); c.stroke();
      const right = x + c.measureText(name).width + 8 * r > u.bbox.left + u.bbox.width;
      c.textAlign = right ? "right" : "left"; c.fillText(name, x + (right ? -4 : 4) * r, u.bbox.top + 12 * r);
    }
    c.restore();
  }] } });

  const axis = (size, more) => ({ stroke: color("--muted"), grid: { stroke: color("--chart-grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui", size, gap: 6, ...more });
  const clock = (span) => (u, splits) => splits.map((v) => { const d = new Date(v * 1000); return span > 86400 * 3 ? d.toLocaleDateString(undefined, { day: "numeric", month: "short" }) : d.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hour12: false }); });
  const MARKS = [1e-4, 1e-3, 0.01, 0.1, 1, 10, 60, 600, 3600, 36000, 86400, 864000, 8640000]; // seconds, on a log axis
  const marksIn = (u, i, min, max) => MARKS.filter((mark) => mark >= min * 0.999 && mark <= max * 1.001);
  const markBelow = (v) => MARKS.findLast((mark) => mark <= v) ?? MARKS[0], markAbove = (v) => MARKS.find((mark) => mark >= v) ?? v;
  // The newest step is drawn once more as a dashed line of its own.
  const split = (values) => [values.map((v, i) => i < values.length - 1 ? v : null), values.map((v, i) => i >= values.length - 2 ? v : null)];

  // The legend: the values under the pointer, else the newest ones.
  function legend(box, given, format) {
    const list = document.createElement("ul");
    list.className = "legend";
    const cells = given.map(([label, , name]) => {
      const item = document.createElement("li"), mark = document.createElement("i"), value = document.createElement("b");
      mark.className = name.slice(2);
      item.append(mark, ` ${label} `, value);
      list.append(item);
      return value;
    });
    box.append(list);
    return (index) => given.forEach(([, values], i) => { cells[i].textContent = format(values[index ?? values.length - 1]) || "–"; });
  }

  function build(kind, data, box) {
    const s = data.series, throughput = kind === "throughput", format = throughput ? count : seconds;
    const given = throughput ? [["completed", s.completed, "--chart-1"], ["failed", s.failed, "--chart-2"]] : [["wait p95", s.wait, "--chart-1"], ["run p95", s.run, "--chart-3"], ["oldest", s.oldest, "--chart-2"]];
    const columns = [s.at], series = [{}];
    for (const [label, values, name] of given) {
      const [solid, dashed] = split(values), stroke = color(name);
      columns.push(solid, dashed);
      series.push({ label, stroke, width: 1.5, points: { show: false }, fill: label === "completed" ? `${stroke}1c` : undefined }, { label, stroke, width: 1.5, points: { show: false }, dash: [4, 4] });
    }
    box.dataset.dashed = String(series.filter((each, i) => each.dash && columns[i].at(-1) != null && columns[i - 1].at(-1) == null).length);
    const show = legend(box, given, format);
    show();
    return new uPlot({
      width: box.clientWidth || 400, height: 168, plugins: [marks(data.releases)], series, legend: { show: false }, cursor: { points: { size: 6 }, y: false }, hooks: { setCursor: [(u) => show(u.cursor.idx)] },
      scales: { x: { time: true, range: [data.begin, data.end] }, y: throughput ? { range: (u, lo, hi) => [0, Math.max(hi || 0, 1) * 1.12] } : { distr: 3, range: (u, lo, hi) => [Math.min(markBelow(lo || 0.01), 0.1), Math.max(markAbove(hi || 1), 1)] } },
      axes: [axis(26, { space: 70, values: clock(data.end - data.begin) }), axis(52, throughput ? { space: 36, values: (u, list) => list.map(count) } : { splits: marksIn, filter: (u, list) => list, values: (u, list) => list.map(seconds) })],
    }, columns, box);
  }

  async function draw(section) {
    const answer = await fetch(section.dataset.charts, { headers: { Accept: "application/json" } }).catch(() => null);
    if (!answer || !answer.ok) return;
    const data = await answer.json();
    section.dataset.points = String(data.series.at.length);
    section.dataset.releases = String(data.releases.length);
    section.dataset.drawn = section.dataset.charts;
    for (const box of section.querySelectorAll("[data-chart]")) {
      plots.get(box)?.destroy();
      box.replaceChildren();
      plots.set(box, build(box.dataset.chart, data, box));
    }
    section.dataset.axis = color("--muted");
  }

  const all = () => document.querySelectorAll("[data-charts]").forEach(draw);
  window.penstockCharts = all;
  addEventListener("DOMContentLoaded", () => {
    all();
    setInterval(() => { if (!document.hidden) all(); }, 30000);
    let wait; addEventListener("resize", () => { clearTimeout(wait); wait = setTimeout(() => plots.forEach((plot, box) => plot.setSize({ width: box.clientWidth, height: 168 })), 100); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
    document.addEventListener("click", (event) => {
      const link = event.target.closest("[data-span]");
      if (!link || event.metaKey || event.ctrlKey) return;
      event.preventDefault();
      history.pushState(null, "", link.href);
      const section = link.closest("[data-charts]"), url = new URL(section.dataset.charts, location.href);
      url.searchParams.set("span", link.dataset.span);
      section.dataset.charts = url.pathname + url.search;
      section.querySelectorAll("[data-span]").forEach((each) => each === link ? each.setAttribute("aria-current", "true") : each.removeAttribute("aria-current"));
      draw(section);
    });
    addEventListener("popstate", () => location.reload()); // back to another span
  });
})();
