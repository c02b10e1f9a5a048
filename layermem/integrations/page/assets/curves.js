"use strict";
// Curves, drawn by uPlot.  series: {name, x, y, dash, points, stepped, faint, colour (index)}; each x ascends.

const LINES = 15; // colours of lines: --line-0 and so on

const FAINT = "66"; // the alpha of a line behind its running mean
const LABEL = 76; // pixels of a label of the x axis, with the gap to the next

// options: {x: {label, format, base}, y: {label, format, base}, height, marks: [{value, text}], zero, logarithmic}
function chart(series, options) {
  const frame = element("div", { class: "chart", role: "img", "aria-label": options.label });
  let plot = null;
  const present = mergeEqual(series.filter((each) => each.x.length));
  const paint = () => {
    const shown = plot ? plot.series.slice(1).map((each) => each.show) : [];
    plot?.destroy();
    plot = new uPlot(chartOptions(frame, present, options, shown), uPlot.join(present.map(({ x, y }) => [x, y])), frame);
  };
  whenResized(frame, paint);
  frame.update = (changed) => {
    present.splice(0, present.length, ...mergeEqual(changed.filter((each) => each.x.length)));
    if (frame.clientWidth) paint();
  };
  return frame;
}

// One line in place of equal ones, which would hide each other; it has all their names.
function mergeEqual(series) {
  const merged = new Map();
  for (const each of series) {
    const points = JSON.stringify([each.x, each.y]), same = merged.get(points);
    if (same) same.name += ` = ${each.name}`;
    else merged.set(points, { ...each });
  }
  return [...merged.values()];
}

function chartOptions(frame, series, options, shown) {
  const across = Math.max(2, Math.floor((frame.clientWidth - 80) / LABEL));
  const ink = (each, i) => colour(`line-${(each.colour ?? i) % LINES}`) + (each.faint ? FAINT : "");
  const axis = ({ label, format, base }, size, count) => ({
    label, size, space: count ? LABEL : 30, labelSize: 20, font: "11px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif",
    stroke: () => colour("faint"), grid: { stroke: () => colour("grid"), width: 1 }, ticks: { show: false },
    splits: base ? (_, __, low, high) => ticksBetween(low, high, count ?? 5, base) : undefined,
    values: (_, values) => values.map((value) => (value === null ? "" : format(value))),
  });
  return {
    width: frame.clientWidth, height: options.height || 300, tzDate: undefined, padding: [options.marks?.length ? 20 : null, null, null, null], cursor: { focus: { prox: 24 } },
    focus: { alpha: 0.35 },
    scales: {
      x: { time: false, range: (_, low, high) => (options.zero ? [0, Math.max(high, largestMark(options)) * 1.02] : padded(low, high, 0)) },
      y: { distr: options.logarithmic ? 3 : 1, range: options.logarithmic ? undefined : (_, low, high) => (options.floor === undefined ? padded(low, high, 0.06) : [options.floor, high * 1.06 || 1]) },
    },
    axes: [axis(options.x, 34, Math.min(across, 8)), axis(options.y, 64)],
    legend: { markers: { fill: (_, i) => ink(series[i - 1], i - 1), stroke: (_, i) => ink(series[i - 1], i - 1) } },
    series: [{ label: options.x.label, value: (_, value) => (value === null || value === undefined ? "" : options.x.format(value)) },
      ...series.map((each, i) => ({
        label: each.name, show: shown[i] ?? true, spanGaps: true, width: each.width || 1.75, dash: each.dash,
        stroke: () => ink(each, i),
        paths: each.stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
        points: { show: Boolean(each.points), size: 6 },
        value: (_, value) => (value === null || value === undefined ? "" : options.y.format(value)),
      }))],
    hooks: { draw: [(plot) => paintMarks(plot, options.marks || [])] },
  };
}

function largestMark(options) {
  return Math.max(0, ...(options.marks || []).map((mark) => mark.value));
}

function padded(low, high, share) {
  const room = (high - low) * share || (share ? Math.abs(high) * 0.1 || 1 : low === high ? 0.5 : 0);
  return [low - room, high + room];
}

// Vertical lines with a text above the plot, where no curve is.
function paintMarks(plot, marks) {
  const { ctx, bbox: { left, top, height, width } } = plot;
  ctx.save();
  ctx.textAlign = "left";
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  for (const { value, text } of marks) {
    const x = plot.valToPos(value, "x", true);
    if (x < left || x > left + width) continue;
    ctx.strokeStyle = ctx.fillStyle = colour("ink");
    ctx.setLineDash([5, 4]);
    ctx.beginPath();
    ctx.moveTo(x, top);
    ctx.lineTo(x, top + height);
    ctx.stroke();
    const wide = ctx.measureText(text).width;
    ctx.fillText(text, Math.min(x - wide / 2, left + width - wide), top - 5 * devicePixelRatio);
  }
  ctx.restore();
}
