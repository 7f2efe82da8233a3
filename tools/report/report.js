// Draws the charts of a report from the JSON in #data: {runs: [{name, checkpoints, batch}], charts: [{name, lines: [{run,
// name, step, time, value}]}]}. The page works without a network; nothing is loaded.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const figures = [...document.querySelectorAll("figure[data-chart]")];
const view = { x: "step", log: false, smooth: 0 };
const HEIGHT = 240, CHARACTER = 6.5, RIGHT = 14, TOP = 10, BOTTOM = 26;
const escape = text => text.replace(/[&<>"]/g, c => "&#" + c.charCodeAt(0) + ";");

function short(v, digits = 4) {
  if (v === 0) return "0";
  const a = Math.abs(v);
  for (const [from, scale, unit] of [[1e12, 1e12, "T"], [1e9, 1e9, "G"], [1e6, 1e6, "M"], [1e4, 1e3, "k"]])
    if (a >= from && a < 1e15) return +(v / scale).toPrecision(digits) + unit;
  return a < 1e-3 || a >= 1e15 ? v.toExponential(digits - 2).replace(/\.?0+e/, "e") : String(+v.toPrecision(digits + 1));
}

function duration(s) {
  const pad = n => String(n).padStart(2, "0");
  s = Math.round(s);
  return Math.floor(s / 3600) + ":" + pad(Math.floor(s / 60) % 60) + ":" + pad(s % 60);
}

const value_text = (name, v, digits = 4) =>
  /_bytes$/.test(name) ? (v >= 1 << 30 ? +(v / (1 << 30)).toPrecision(digits) + " GiB" : +(v / (1 << 20)).toPrecision(digits) + " MiB")
    : /_fraction$|^mfu$/.test(name) ? +(100 * v).toPrecision(digits - 1) + "%" : short(v, digits);
const x_text = x => view.x === "time" ? duration(x) : short(x);

// The positions on the axis that the page shows.
function xs(line) {
  if (view.x === "time") return line.time.map(t => t - data.runs[line.run].begin);
  const factor = view.x === "samples" ? data.runs[line.run].batch : 1;
  return line.step.map(s => s * factor);
}

// An exponential mean, corrected for its beginning.
function smoothed(values) {
  let mean = 0, weight = 0;
  return values.map(v => {
    mean = view.smooth * mean + (1 - view.smooth) * v;
    weight = view.smooth * weight + (1 - view.smooth);
    return mean / weight;
  });
}

// Of ticks, with as many digits as tell them apart.
function labels(name, values) {
  for (let digits = 4; ; digits++) {
    const texts = values.map(v => value_text(name, v, digits));
    if (digits === 12 || new Set(texts).size === texts.length) return texts;
  }
}

// About n ticks at 1, 2 or 5 times a power of ten.
function ticks(low, high, n) {
  const raw = (high - low) / n, power = 10 ** Math.floor(Math.log10(raw)), times = raw / power;
  const step = power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10), out = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) out.push(i * step);
  return out;
}

function log_ticks(low, high) {
  const out = [];
  for (let p = Math.floor(low); p <= Math.ceil(high); p++)
    for (const m of high - low > 3 ? [1] : high - low > 1 ? [1, 3] : [1, 1.5, 2, 3, 5, 7])
      if (p + Math.log10(m) >= low - 1e-9 && p + Math.log10(m) <= high + 1e-9) out.push(p + Math.log10(m));
  return out.length > 1 ? out : ticks(low, high, 4);
}

function draw(figure) {
  const chart = data.charts[figure.dataset.chart], width = Math.max(figure.clientWidth, 200);
  const lines = chart.lines.map(l => ({ ...l, x: xs(l), y: l.name.startsWith("eval_") ? l.value : smoothed(l.value) }));
  const log = view.log && lines.every(l => l.value.every(v => v > 0)), to = v => log ? Math.log10(v) : v;
  let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
  for (const l of lines) l.x.forEach((x, i) => {
    x0 = Math.min(x0, x), x1 = Math.max(x1, x);
    y0 = Math.min(y0, to(l.value[i])), y1 = Math.max(y1, to(l.value[i]));
  });
  if (x0 === x1) x0 -= 1, x1 += 1;
  const room = (y1 - y0 || Math.abs(y0) || 1) * 0.06;
  y0 -= room, y1 += room;
  const unit = !/_bytes$/.test(chart.name) ? 1 : y1 >= 1 << 30 ? 1 << 30 : 1 << 20;
  const at_ticks = log ? log_ticks(y0, y1) : ticks(y0 / unit, y1 / unit, 5).map(t => t * unit);
  const tick_texts = labels(chart.name, at_ticks.map(t => log ? 10 ** t : t));
  const left = Math.max(62, 12 + CHARACTER * Math.max(0, ...tick_texts.map(t => t.length)));
  const px = x => left + (x - x0) / (x1 - x0) * (width - left - RIGHT);
  const py = v => HEIGHT - BOTTOM - (to(v) - y0) / (y1 - y0) * (HEIGHT - TOP - BOTTOM);
  let svg = `<svg width="${width}" height="${HEIGHT}" role="img" aria-label="${escape(chart.name)}">`;
  at_ticks.forEach((t, i) => {
    const y = HEIGHT - BOTTOM - (t - y0) / (y1 - y0) * (HEIGHT - TOP - BOTTOM);
    svg += `<line class="grid" x1="${left}" x2="${width - RIGHT}" y1="${y}" y2="${y}"/>` +
      `<text x="${left - 6}" y="${y + 4}" text-anchor="end">${tick_texts[i]}</text>`;
  });
  for (const t of ticks(x0, x1, Math.max(3, Math.min(8, Math.floor(width / 70)))))
    svg += `<text x="${px(t)}" y="${HEIGHT - 8}" text-anchor="${px(t) > width - 30 ? "end" : "middle"}">${x_text(t)}</text>`;
  const path = (x, y) => x.map((v, i) => px(v).toFixed(1) + " " + py(y[i]).toFixed(1)).join(" ");
  for (const l of lines) {
    const is_eval = l.name.startsWith("eval_") && !chart.name.startsWith("eval_"), c = `c${l.run % 8}`;
    if (view.smooth && l.y !== l.value) svg += `<polyline class="${c} faint" points="${path(l.x, l.value)}"/>`;
    svg += `<polyline class="${c}${is_eval ? " eval" : ""}" points="${path(l.x, l.y)}"/>`;
    if (l.x.length <= 40 || is_eval)
      l.x.forEach((x, i) => { svg += `<circle class="${c}" cx="${px(x)}" cy="${py(l.y[i])}" r="${l.x.length === 1 ? 4 : 2}"/>`; });
    if (l.x.length === 1) {
      const x = px(l.x[0]), is_last = x > width - 70; // the text would be cut off
      svg += `<text x="${x + (is_last ? -8 : 8)}" y="${py(l.y[0]) - 6}" text-anchor="${is_last ? "end" : "start"}">` +
        `${value_text(l.name, l.value[0])}</text>`;
    }
  }
  if (chart.name === "loss" && view.x === "step")
    data.runs.forEach((r, k) => r.checkpoints.filter(s => s >= x0 && s <= x1).forEach(s => {
      svg += `<line class="c${k % 8} mark" x1="${px(s)}" x2="${px(s)}" y1="${HEIGHT - BOTTOM}" y2="${HEIGHT - BOTTOM + 6}"/>`;
    }));
  figure.querySelector(".plot").innerHTML = svg + `<line class="cursor" y1="${TOP}" y2="${HEIGHT - BOTTOM}" visibility="hidden"/></svg>`;
  figure.lines = lines, figure.px = px;
}

// The values at the pointer: of each line, the point nearest to it.
function hover(figure, event) {
  const box = figure.querySelector(".plot").getBoundingClientRect(), at = event.clientX - box.left;
  const tip = figure.querySelector(".tip"), cursor = figure.querySelector(".cursor");
  let nearest = null;
  const rows = figure.lines.map(l => {
    let best = 0;
    l.x.forEach((x, i) => { if (Math.abs(figure.px(x) - at) < Math.abs(figure.px(l.x[best]) - at)) best = i; });
    if (nearest === null || Math.abs(figure.px(l.x[best]) - at) < Math.abs(figure.px(nearest) - at)) nearest = l.x[best];
    return `<div><span class="dot c${l.run % 8}"></span>${data.runs.length > 1 ? escape(data.runs[l.run].name) + " " : ""}` +
      `${escape(l.name)} <b>${value_text(l.name, l.value[best])}</b></div>`;
  });
  tip.innerHTML = `<div>${view.x} ${x_text(nearest)}</div>` + rows.join("");
  tip.style.visibility = "visible";
  const left = figure.px(nearest) + 12;
  tip.style.left = (left + tip.offsetWidth > box.width ? Math.max(0, left - tip.offsetWidth - 24) : left) + "px";
  cursor.setAttribute("x1", figure.px(nearest)), cursor.setAttribute("x2", figure.px(nearest));
  cursor.setAttribute("visibility", "visible");
}

for (const figure of figures) {
  const plot = figure.querySelector(".plot");
  plot.addEventListener("pointermove", event => hover(figure, event));
  plot.addEventListener("pointerleave", () => {
    figure.querySelector(".tip").style.visibility = "hidden";
    figure.querySelector(".cursor").setAttribute("visibility", "hidden");
  });
}
// Of the tables of a run's texts, the one of the step that its slider selects.
for (const part of document.querySelectorAll(".run-samples")) {
  const tables = [...part.querySelectorAll("table")], label = part.querySelector("label"), slider = part.querySelector("input");
  const show = () => {
    tables.forEach((t, i) => { t.style.display = i === +slider.value ? "" : "none"; });
    part.querySelector("output").textContent = tables[slider.value].dataset.step;
  };
  slider.max = tables.length - 1, slider.value = tables.length - 1;
  label.hidden = tables.length < 2;
  slider.addEventListener("input", show);
  show();
}
const redraw = () => figures.forEach(draw);
const on = (id, set) => document.getElementById(id).addEventListener("input", event => { set(event.target); redraw(); });
on("x", e => { view.x = e.value; });
on("log", e => { view.log = e.checked; });
on("smooth", e => { view.smooth = +e.value; });
window.addEventListener("resize", redraw);
redraw();
