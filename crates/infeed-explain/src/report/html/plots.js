// Draws the plots of a report. The tables contain the same numbers, so the page works without it.
// Names of files and threads come from the dataset. Plot inserts them as text, never as markup.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const colour = (what) => `var(--${what})`;

  // Same format as `numbers.rs`.
  const figures = (x) => {
    if (x === null || !Number.isFinite(x)) return "unknown";
    const a = Math.abs(x);
    const digits = a === 0 ? 0 : a < 0.0995 ? 3 : a < 9.995 ? 2 : a < 99.95 ? 1 : 0;
    return String(Number(x.toFixed(digits)));
  };
  const time = (s) => {
    const a = Math.abs(s);
    if (a === 0) return "0";
    if (a < 1e-3) return `${figures(s * 1e6)} µs`;
    if (a < 1) return `${figures(s * 1e3)} ms`;
    return `${figures(s)} s`;
  };
  const percent = (share) => `${Math.round(share * 100)} %`;

  // Draws a figure, and draws it again when its width changes.
  const draw = (id, make) => {
    const figure = document.getElementById(id);
    if (!figure) return () => {};
    const place = figure.querySelector("div");
    let width = 0;
    const again = () => {
      const plot = make(Math.max(width, 240));
      plot.setAttribute("role", "img");
      place.replaceChildren(plot);
    };
    const look = () => {
      const now = Math.floor(place.clientWidth);
      // A hidden page has width 0, which is no width for a plot.
      if (now > 0 && now !== width) {
        width = now;
        again();
      }
    };
    look();
    // In the next frame, because drawing changes sizes, which an observer's callback must not do.
    new ResizeObserver(() => requestAnimationFrame(look)).observe(place);
    return () => width > 0 && again();
  };

  const plot = (width, options) =>
    Plot.plot({
      width,
      // Space for the axis label below the numbers.
      marginBottom: 42,
      style: { fontFamily: "inherit", fontSize: "12px", background: "none", overflow: "visible" },
      ...options,
    });
  const longest = (names) => Math.max(0, ...names.map((name) => name.length));
  // Space for labels on the left in pixels: 7 per letter, the widest average of any font at this size.
  const margin = (names, width) => Math.min(longest(names) * 7 + 14, width * 0.4);
  // Breaks a label into lines between words, and a longer word where the line ends.
  const wrap = (name, room) => {
    const most = Math.max(4, Math.floor((room - 14) / 7));
    const lines = [];
    for (let word of name.split(" ")) {
      const last = lines.length - 1;
      if (last >= 0 && lines[last].length + 1 + word.length <= most) {
        lines[last] += ` ${word}`;
        continue;
      }
      for (; word.length > most; word = word.slice(most)) lines.push(word.slice(0, most));
      lines.push(word);
    }
    return lines.join("\n");
  };

  draw("stall", (width) =>
    plot(width, {
      height: 90,
      marginLeft: 8,
      marginRight: 12,
      x: { percent: true, domain: [0, 100], label: "share of the time, %", ticks: 5 },
      y: { axis: null },
      marks: [
        Plot.barX(data.stall, Plot.stackX({
          x: "share",
          fill: (d) => colour(d.colour),
          insetLeft: 1,
          insetRight: 1,
        })),
        // The page's colour has contrast to bars of any colour, in light and dark.
        Plot.text(data.stall, Plot.stackX({
          x: "share",
          text: (d) => (d.share * width > 8 * d.name.length + 40 ? `${d.name} ${percent(d.share)}` : d.share * width > 40 ? percent(d.share) : ""),
          fill: "var(--page)",
          fontWeight: 600,
        })),
        Plot.tip(data.stall, Plot.pointerX(Plot.stackX({ x: "share", maxRadius: Infinity, title: (d) => `${d.name}: ${percent(d.share)}` }))),
      ],
    }),
  );

  draw("stages", (width) => {
    const names = data.stages.map((d) => d.name);
    const marginLeft = margin(names, width);
    return plot(width, {
      height: 62 + 40 * names.length,
      marginLeft,
      marginRight: 64,
      x: { label: "ms per sample", transform: (s) => s * 1e3, grid: true, ticks: Math.max(2, width / 90) },
      y: { domain: names, label: null, tickSize: 0, padding: 0.35, tickFormat: (name) => wrap(name, marginLeft) },
      marks: [
        Plot.barX(data.stages, { x: "wall", y: "name", fill: (d) => colour(d.colour), fillOpacity: 0.35 }),
        Plot.barX(data.stages, { x: "cpu", y: "name", fill: (d) => colour(d.colour), insetTop: 5, insetBottom: 5 }),
        Plot.text(data.stages, {
          x: (d) => Math.max(d.wall, d.cpu),
          y: "name",
          text: (d) => time(d.cpu),
          textAnchor: "start",
          dx: 6,
          fill: "currentColor",
        }),
        Plot.tip(data.stages, Plot.pointerY({
          x: "wall",
          y: "name",
          title: (d) => `${d.name}\nCPU ${time(d.cpu)}, wall ${time(d.wall)} a sample\np99 ${time(d.p99)}`,
        })),
        Plot.ruleX([0]),
      ],
    });
  });

  draw("resources", (width) => {
    const known = data.resources.filter((d) => d.mid !== null);
    const names = known.map((d) => d.name);
    const marginLeft = margin(names, width);
    const label = (d) => figures(d.mid) + (d.limit ? ", the limit" : "");
    return plot(width, {
      height: 74 + 36 * names.length,
      marginLeft,
      marginTop: 28,
      marginRight: 92,
      x: { label: "samples/s", zero: true, grid: true, ticks: Math.max(2, width / 110) },
      y: { domain: names, label: null, tickSize: 0, padding: 0.4, tickFormat: (name) => wrap(name, marginLeft) },
      marks: [
        Plot.barX(known, { x: "mid", y: "name", fill: (d) => colour(d.limit ? "wait" : "step"), fillOpacity: (d) => (d.limit ? 0.9 : 0.55) }),
        Plot.ruleY(known, { x1: "low", x2: "high", y: "name", stroke: "currentColor", strokeWidth: 1.5 }),
        Plot.tickX(known, { x: "low", y: "name", stroke: "currentColor", strokeWidth: 1.5, insetTop: 5, insetBottom: 5 }),
        Plot.tickX(known, { x: "high", y: "name", stroke: "currentColor", strokeWidth: 1.5, insetTop: 5, insetBottom: 5 }),
        Plot.text(known, {
          x: (d) => d.high ?? d.mid,
          y: "name",
          text: label,
          fontWeight: (d) => (d.limit ? 600 : 400),
          textAnchor: "start",
          dx: 6,
          fill: "currentColor",
        }),
        Plot.ruleX([data.rate], { stroke: "currentColor", strokeDasharray: "4 3" }),
        Plot.text([data.rate], { x: (d) => d, frameAnchor: "top", dy: -16, text: (d) => `measured ${figures(d)}`, fill: "currentColor" }),
        Plot.tip(known, Plot.pointerY({ x: "mid", y: "name", title: (d) => d.arithmetic, lineWidth: Math.min(30, width / 14) })),
        Plot.ruleX([0]),
      ],
    });
  });

  const sides = (rows) => (width) => {
    const known = rows.filter((d) => d.mid !== null);
    const candidates = [...new Set(known.map((d) => d.candidate))];
    // The order in which data flows, even if the first placement lacks a resource.
    const order = ["storage", "host", "bus", "decoder", "device", "step"];
    const names = order.filter((name) => known.some((d) => d.name === name));
    const marginLeft = margin(names, width);
    return plot(width, {
      height: 60 + candidates.length * (34 + 26 * names.length),
      marginLeft,
      marginRight: 92,
      x: { label: "samples/s", zero: true, grid: true, ticks: Math.max(2, width / 110) },
      y: { domain: names, label: null, tickSize: 0, padding: 0.3, tickFormat: (name) => wrap(name, marginLeft) },
      fy: { domain: candidates, axis: null, padding: 0.2 },
      marks: [
        Plot.text(candidates, { fy: (d) => d, frameAnchor: "top-left", dx: 4 - marginLeft, dy: -14, text: (d) => d, fontWeight: 600, fill: "currentColor" }),
        Plot.barX(known, { x: "mid", y: "name", fy: "candidate", fill: (d) => colour(d.limit ? "wait" : "step"), fillOpacity: (d) => (d.limit ? 0.9 : 0.55) }),
        Plot.text(known, {
          x: "mid",
          y: "name",
          fy: "candidate",
          text: (d) => figures(d.mid) + (d.limit ? ", the limit" : ""),
          fontWeight: (d) => (d.limit ? 600 : 400),
          textAnchor: "start",
          dx: 6,
          fill: "currentColor",
        }),
        Plot.ruleX([0]),
      ],
    });
  };
  draw("placement", sides(data.placement));
  draw("decoding", sides(data.decoding));

  draw("feeders", (width) => {
    const known = data.feeders.filter((d) => d.rate !== null);
    const names = known.map((d) => d.name);
    const marginLeft = 48;
    const step = data.step_rate === null ? [] : [data.step_rate];
    return plot(width, {
      height: 74 + 30 * names.length,
      marginLeft,
      marginTop: 28,
      marginRight: 120,
      x: { label: "samples/s", zero: true, grid: true, ticks: Math.max(2, width / 110) },
      y: { domain: names, label: null, tickSize: 0, padding: 0.35 },
      marks: [
        Plot.barX(known, { x1: 0, x2: "own", y: "name", fill: colour("decode") }),
        Plot.barX(known, { x1: "own", x2: (d) => d.own + d.from_feeders, y: "name", fill: colour("decode"), fillOpacity: 0.45 }),
        Plot.text(known, { x: "rate", y: "name", text: (d) => `${figures(d.rate)}, ${d.limit}`, textAnchor: "start", dx: 6, fill: "currentColor" }),
        Plot.ruleX(step, { stroke: "currentColor", strokeDasharray: "4 3" }),
        Plot.text(step, { x: (d) => d, frameAnchor: "top", dy: -16, text: (d) => `step ${figures(d)}`, fill: "currentColor" }),
        Plot.tip(known, Plot.pointerY({ x: "rate", y: "name", title: (d) => d.arithmetic, lineWidth: Math.min(30, width / 14) })),
        Plot.ruleX([0]),
      ],
    });
  });

  // A point covers the time since the previous point, or since the start for the first one.
  const queue = data.queue.length > 0 ? [{ ...data.queue[0], at: 0 }, ...data.queue] : [];
  const most = Math.max(1, ...data.queue.map((d) => d.ready));
  draw("ready", (width) =>
    plot(width, {
      height: 140,
      marginBottom: 26,
      marginLeft: 40,
      marginTop: 28,
      x: { label: null, ticks: Math.max(2, width / 90) },
      y: { label: "batches ready", domain: [0, most], grid: true, ticks: Math.min(4, most), tickFormat: "d" },
      marks: [
        Plot.areaY(queue, { x: "at", y: "ready", curve: "step-before", fill: colour("read"), fillOpacity: 0.25 }),
        Plot.lineY(queue, { x: "at", y: "ready", curve: "step-before", stroke: colour("read"), strokeWidth: 1.5 }),
        Plot.ruleX(data.queue, Plot.pointerX({ x: "at", stroke: "currentColor", strokeOpacity: 0.4 })),
        Plot.tip(data.queue, Plot.pointerX({ x: "at", y: "ready", title: (d) => `${time(d.at)}: ${d.ready} ready` })),
        Plot.ruleY([0]),
      ],
    }),
  );

  draw("waiting", (width) =>
    plot(width, {
      height: 170,
      marginLeft: 40,
      marginTop: 28,
      x: { label: "seconds since the run began", ticks: Math.max(2, width / 90) },
      y: { label: "consumer waiting, %", domain: [0, 100], percent: true, grid: true, ticks: 3 },
      marks: [
        Plot.areaY(queue, { x: "at", y: "waiting", curve: "step-before", fill: colour("wait"), fillOpacity: 0.25 }),
        Plot.lineY(queue, { x: "at", y: "waiting", curve: "step-before", stroke: colour("wait"), strokeWidth: 1.5 }),
        Plot.ruleX(data.queue, Plot.pointerX({ x: "at", stroke: "currentColor", strokeOpacity: 0.4 })),
        Plot.tip(data.queue, Plot.pointerX({ x: "at", y: "waiting", title: (d) => `${time(d.at)}: waited ${percent(d.waiting)}` })),
        Plot.ruleY([0]),
      ],
    }),
  );

  draw("busy", (width) =>
    plot(width, {
      height: 150,
      marginLeft: 40,
      marginTop: 28,
      x: { label: "seconds since the run began", ticks: Math.max(2, width / 90) },
      y: { label: "a kernel ran, %", domain: [0, 100], percent: true, grid: true, ticks: 3 },
      marks: [
        Plot.areaY(data.busy, { x: "at", y: "busy", fill: colour("step"), fillOpacity: 0.25 }),
        Plot.lineY(data.busy, { x: "at", y: "busy", stroke: colour("step"), strokeWidth: 1.5 }),
        Plot.tip(data.busy, Plot.pointerX({ x: "at", y: "busy", title: (d) => `${time(d.at)}: ${percent(d.busy)}` })),
        Plot.ruleY([0]),
      ],
    }),
  );

  // The timeline: a window that the user moves.
  const spans = data.spans.map(([track, what, start, end, batch, count, busy]) => ({
    track: data.tracks[track],
    what: data.whats[what].name,
    colour: data.whats[what].colour,
    start: start / 1e6,
    end: end / 1e6,
    batch,
    count,
    busy: busy / 1e6,
  }));
  const total = spans.reduce((most, d) => Math.max(most, d.end), 0);
  const view = { start: 0, length: total };
  const gantt = (width) => {
    const end = Math.min(total, view.start + view.length);
    const inView = spans.filter((d) => d.end > view.start && d.start < end);
    const clipped = inView.map((d) => ({ ...d, x1: Math.max(d.start, view.start), x2: Math.min(d.end, end) }));
    const waits = clipped.filter((d) => d.what === "wait");
    const marginLeft = margin(data.tracks, width);
    const scale = end - view.start < 1 ? 1e3 : 1;
    return plot(width, {
      height: 64 + 30 * data.tracks.length,
      marginLeft,
      marginRight: 16,
      x: {
        label: scale === 1 ? "seconds since the run began" : "milliseconds since the run began",
        domain: [view.start * scale, end * scale],
        transform: (s) => s * scale,
        ticks: Math.max(2, width / 90),
      },
      y: { domain: data.tracks, label: null, tickSize: 0, padding: 0.22, tickFormat: (name) => wrap(name, marginLeft) },
      marks: [
        // Shades the time in which the consumer waited.
        Plot.rectX(waits, { x1: "x1", x2: "x2", fill: colour("wait"), fillOpacity: 0.12 }),
        Plot.barX(clipped, { x1: "x1", x2: "x2", y: "track", fill: (d) => colour(d.colour), insetRight: (view.length / width) * 8 < 0.003 ? 0.5 : 0 }),
        Plot.tip(clipped, Plot.pointer({
          x: (d) => (d.x1 + d.x2) / 2,
          y: "track",
          maxRadius: 60,
          title: (d) =>
            `${d.track}: ${d.what}${d.batch === null ? "" : `, batch ${d.batch}`}\n` +
            `from ${time(d.start)}, ${time(d.busy)}` +
            (d.count > 1 ? `\n${d.count} drawn as one` : ""),
        })),
      ],
    });
  };
  const redraw = draw("timeline", gantt);
  const length = document.getElementById("view-length");
  const start = document.getElementById("view-start");
  if (length && start && total > 0) {
    const choices = [1, 0.3, 0.1, 0.03, 0.01].map((s) => s * (total > 1 ? 1 : total)).filter((s) => s < total);
    for (const s of [total, ...choices]) {
      length.append(new Option(s === total ? `all ${time(s)}` : time(s), String(s)));
    }
    // The longest window in which a span is still a few pixels wide.
    const most = document.getElementById("timeline").clientWidth * 0.6;
    const legible = (total * most) / Math.max(1, spans.length);
    const fitting = choices.findIndex((s) => s <= legible);
    length.selectedIndex = spans.length <= most ? 0 : fitting < 0 ? choices.length : fitting + 1;
    const look = () => {
      view.length = Number(length.value);
      const room = Math.max(0, total - view.length);
      view.start = (Number(start.value) / 1000) * room;
      start.disabled = room === 0;
      redraw();
    };
    length.addEventListener("change", look);
    start.addEventListener("input", look);
    look();
  }

  draw("gains", (width) => {
    const known = data.remedies.filter((d) => d.mid !== null && d.low !== null && d.high !== null);
    const names = known.map((d) => d.name);
    // Names are next to their whiskers, or above them on a narrow page.
    const above = width < 640;
    const marginLeft = above ? 14 : margin(names, width);
    const dy = above ? 8 : 0;
    const stroke = (d) => colour(d.idle ? "step" : "transform");
    return plot(width, {
      height: 62 + (above ? 42 : 32) * names.length,
      marginLeft,
      marginRight: 24,
      x: {
        label: "rate with it over rate without",
        grid: true,
        domain: [Math.min(0.9, ...known.map((d) => d.low)), Math.max(1.1, ...known.map((d) => d.high))],
        nice: true,
        ticks: Math.max(2, width / 110),
        tickFormat: (x) => `${figures(x)}x`,
      },
      y: { domain: names, label: null, tickSize: 0, padding: 0.3, axis: above ? null : "left", tickFormat: (name) => wrap(name, marginLeft) },
      marks: [
        above
          ? Plot.tickX(known, { x: 1, y: "name", insetTop: 14, insetBottom: -8, stroke: "currentColor", strokeDasharray: "4 3" })
          : Plot.ruleX([1], { stroke: "currentColor", strokeDasharray: "4 3" }),
        Plot.ruleY(known, { x1: "low", x2: "high", y: "name", stroke, strokeWidth: 3, dy }),
        Plot.dot(known, { x: "mid", y: "name", r: 5, fill: stroke, dy }),
        above
          ? Plot.text(known, { frameAnchor: "left", y: "name", text: (d) => wrap(d.name, width), dy: -9, fill: "currentColor" })
          : null,
        Plot.tip(known, Plot.pointerY({ x: "mid", y: "name", dy, title: (d) => `${figures(d.mid)}x (${figures(d.low)}-${figures(d.high)})\n${d.arithmetic}`, lineWidth: Math.min(30, width / 14) })),
      ],
    });
  });

  draw("ledger", (width) => {
    const side = Math.min(width, 420);
    const known = data.ledger.filter((d) => d.low > 0 && d.high > 0 && d.measured > 0);
    const ends = known.flatMap((d) => [d.low, d.high, d.measured]);
    const domain = [Math.min(0.95, ...ends) * 0.96, Math.max(1.2, ...ends) * 1.06];
    const band = domain.map((x) => ({ x, low: x * 0.9, high: x * 1.1 }));
    const ticks = [0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 32].filter((x) => x >= domain[0] && x <= domain[1]);
    const axis = { type: "log", domain, ticks, grid: true, tickFormat: (x) => `${figures(x)}x` };
    return plot(side, {
      height: side * 0.85,
      marginLeft: 46,
      marginRight: 16,
      x: { ...axis, label: "measured gain" },
      y: { ...axis, label: "predicted gain" },
      marks: [
        Plot.areaY(band, { x: "x", y1: "low", y2: "high", fill: colour("step"), fillOpacity: 0.2, clip: true }),
        Plot.line(band, { x: "x", y: "x", stroke: "currentColor", strokeDasharray: "4 3", clip: true }),
        Plot.ruleX(known, { clip: true, x: "measured", y1: "low", y2: "high", stroke: colour("read"), strokeWidth: 2 }),
        Plot.dot(known, { x: "measured", y: "mid", r: 4.5, fill: colour("read"), stroke: "var(--page)" }),
        Plot.tip(known, Plot.pointer({ x: "measured", y: "mid", title: (d) => `${d.name}\npredicted ${figures(d.mid)}x, measured ${figures(d.measured)}x\n${d.error} too ${d.mid < d.measured ? "low" : "high"}` })),
      ],
    });
  });

  // Adds a copy button to commands, if the browser lets a file write to the clipboard.
  for (const code of document.querySelectorAll(".command code")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "copy";
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "copied";
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = "selected";
      }
      setTimeout(() => (button.textContent = "copy"), 1500);
    });
    code.after(button);
  }
  document.documentElement.classList.add("drawn");
})();
