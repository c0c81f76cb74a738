// A chart of one signal over time with its thresholds. Unknown values are not drawn: absent is not zero.

import { amount, bytes, clock, draw, isCount, isPressure, make, number, setText, span } from './format.js';

const small = 150;
const large = 220; // of a signal that is short
const edge = { left: 62, right: 8, top: 14, bottom: 20 };
const nearly = 1.5; // a signal within this multiple of a threshold is near it
const soon = 300; // seconds: so is one that crosses it within them
const maxGap = 10000; // milliseconds: samples further apart are not joined

export class Chart {
  constructor(signal) {
    this.signal = signal;
    this.name = make('h3', {}, signal);
    this.value = make('p', { class: 'value' });
    this.sub = make('p', { class: 'dim' });
    this.svg = draw('svg', { tabindex: '0', role: 'img' });
    this.readout = make('p', { class: 'dim readout', 'aria-live': 'polite' });
    this.height = small;
    this.state = 'unknown'; // short, near (a threshold), healthy, or unknown
    this.element = make('figure', { 'data-signal': signal }, make('figcaption', {}, this.name, this.value, this.sub), this.svg, this.readout);
    this.cursor = null; // milliseconds since 1970
    this.points = [];
    this.svg.addEventListener('keydown', (e) => this.key(e));
    this.svg.addEventListener('pointermove', (e) => this.point(e));
    this.svg.addEventListener('pointerleave', () => this.leave());
    this.svg.addEventListener('blur', () => this.leave());
  }

  // show takes the current signal, points [[at, value or null], ...], the time at the right edge, the seconds to show, and the marks of
  // evictions.
  show(now, points, right, seconds, marks) {
    this.points = points;
    this.now = now;
    this.right = right;
    this.left = right - seconds * 1000;
    this.marks = marks.filter((m) => m.signal === this.signal);
    this.describe();
    this.paint();
  }

  // describe shows the current value, the thresholds and the forecast, and sets the state.
  describe() {
    const { signal, now } = this;
    if (!now || !now.observed) {
      this.value.replaceChildren(make('strong', {}, 'not observed'));
      setText(this.sub, (now && now.reason) || 'the agent does not report this signal');
      this.setState('unknown');
      return;
    }
    const share = now.capacity > 0 && !isPressure(signal) ? ` of ${amount(signal, now.capacity)} (${percent(now.available / now.capacity)})` : '';
    this.value.replaceChildren(make('strong', {}, amount(signal, now.available)), make('span', {}, isPressure(signal) ? ' of the time stalled' : share));
    const crossed = this.limits().some((l) => this.beyond(now.available, l.at));
    const seconds = this.secondsLeft();
    const near = seconds < soon || this.limits().some((l) => this.beyond(now.available, isPressure(signal) ? l.at / nearly : l.at * nearly));
    this.setState(crossed ? 'short' : near ? 'near' : 'healthy');
    const list = this.limits().map((l) => `${l.kind} threshold ${amount(signal, l.at)}`).join(', ');
    setText(this.sub, `${list || 'no threshold'}${crossed ? ': crossed' : this.forecast(seconds)}`);
  }

  setState(state) {
    this.state = state;
    this.height = state === 'short' ? large : small;
    this.svg.setAttribute('height', this.height);
    this.element.classList.toggle('short', state === 'short');
  }

  beyond(v, limit) { return isPressure(this.signal) ? v > limit : v < limit; }

  // limits returns the thresholds as numbers.
  limits() {
    const all = (this.now && this.now.limits) || [];
    return all.map((at, i) => ({ at, kind: (this.now.thresholds[i] || '').includes(' for ') ? 'soft' : 'hard' }));
  }

  // slope returns the change per second in the last ten seconds; 0: unknown, or a pressure signal.
  slope() {
    const known = isPressure(this.signal) ? [] : this.points.filter(([at, v]) => v !== null && at >= this.right - 10500);
    if (known.length < 3) return 0;
    const [first, last] = [known[0], known[known.length - 1]];
    return (last[1] - first[1]) / ((last[0] - first[0]) / 1000) || 0;
  }

  // secondsLeft returns the time until the nearest threshold is crossed at the present rate; Infinity: not within an hour.
  secondsLeft() {
    const slope = this.slope();
    const times = this.limits().map((l) => (l.at - this.now.available) / slope).filter((s) => s > 0 && s < 3600);
    return Math.min(Infinity, ...times);
  }

  forecast(seconds) {
    if (!Number.isFinite(seconds)) return '';
    const rate = isCount(this.signal) ? number(this.slope()) : bytes(this.slope());
    return `; at this rate (${rate}/s) crossed in ${span(seconds)}`;
  }

  x(at) { return edge.left + ((at - this.left) / (this.right - this.left)) * (this.width - edge.left - edge.right); }

  y(v) { return this.height - edge.bottom - (v / this.top) * (this.height - edge.top - edge.bottom); }

  paint() {
    this.width = Math.max(this.svg.clientWidth || 320, 200);
    const visible = this.points.filter(([at]) => at >= this.left - 2000);
    this.svg.classList.toggle('empty', !visible.some(([, v]) => v !== null));
    const limits = this.limits();
    this.top = ceiling(Math.max(1, ...visible.map(([, v]) => v ?? 0), ...limits.map((l) => l.at * 1.3)), this.signal);
    this.svg.setAttribute('viewBox', `0 0 ${this.width} ${this.height}`);
    this.svg.setAttribute('aria-label', this.label(visible));
    this.svg.replaceChildren(...this.danger(limits), ...this.grid(), ...this.curves(visible), ...this.lines(limits), ...this.kills(), ...this.cursors());
  }

  label(visible) {
    const values = visible.map(([, v]) => v).filter((v) => v !== null);
    const range = values.length ? `, between ${amount(this.signal, Math.min(...values))} and ${amount(this.signal, Math.max(...values))}` : '';
    return `${this.signal} over ${span((this.right - this.left) / 1000)}${range}. Use the arrow keys to read single values.`;
  }

  danger(limits) {
    return limits.slice(0, 1).map((l) => {
      const [from, to] = isPressure(this.signal) ? [edge.top, this.y(l.at)] : [this.y(l.at), this.height - edge.bottom];
      return draw('rect', { class: 'danger', x: edge.left, y: from, width: this.width - edge.left - edge.right, height: Math.max(0, to - from) });
    });
  }

  grid() {
    const out = [];
    for (const share of [0, 0.5, 1]) {
      const y = this.y(this.top * share);
      out.push(draw('line', { class: 'grid', x1: edge.left, x2: this.width - edge.right, y1: y, y2: y }));
      out.push(draw('text', { x: edge.left - 6, y: y + 4, 'text-anchor': 'end' }, short(this.signal, this.top * share)));
    }
    for (const [share, anchor] of [[0, 'start'], [0.5, 'middle'], [1, 'end']]) {
      const at = this.left + (this.right - this.left) * share;
      out.push(draw('text', { x: this.x(at), y: this.height - 5, 'text-anchor': anchor }, clock(at)));
    }
    return out;
  }

  // curves returns a curve for each stretch without gaps.
  curves(visible) {
    const out = [];
    let stretch = [];
    const end = () => {
      if (stretch.length) out.push(...this.curve(stretch));
      stretch = [];
    };
    for (const [at, v] of visible) {
      if (v === null || (stretch.length && at - stretch[stretch.length - 1][0] > maxGap)) end();
      if (v !== null) stretch.push([at, v]);
    }
    end();
    return out;
  }

  curve(stretch) {
    const at = thin(stretch, this.width, (t) => this.x(t)).map(([t, v]) => `${Math.max(edge.left, this.x(t)).toFixed(1)} ${this.y(v).toFixed(1)}`);
    const first = at[0].split(' ')[0];
    const last = at[at.length - 1].split(' ')[0];
    const base = this.height - edge.bottom;
    return [
      draw('path', { class: 'area', d: `M${first} ${base}L${at.join('L')}L${last} ${base}Z` }),
      draw('path', { class: 'curve', d: `M${at.join('L')}${at.length === 1 ? 'h1' : ''}` }),
    ];
  }

  lines(limits) {
    return limits.flatMap((l) => [
      draw('line', { class: `limit ${l.kind}`, x1: edge.left, x2: this.width - edge.right, y1: this.y(l.at), y2: this.y(l.at) }),
    ]);
  }

  kills() {
    return this.marks.filter((m) => m.at >= this.left && m.at <= this.right).flatMap((m) => [
      draw('line', { class: 'kill', x1: this.x(m.at), x2: this.x(m.at), y1: edge.top, y2: this.height - edge.bottom }, draw('title', {}, m.text)),
      draw('circle', { class: 'killed', cx: this.x(m.at), cy: edge.top, r: 4 }, draw('title', {}, m.text)),
    ]);
  }

  cursors() {
    if (this.cursor === null || this.cursor < this.left) return [];
    return [draw('line', { class: 'cursor', x1: this.x(this.cursor), x2: this.x(this.cursor), y1: edge.top, y2: this.height - edge.bottom })];
  }

  key(e) {
    const known = this.points.filter(([at]) => at >= this.left);
    if (!known.length) return;
    let i = known.findIndex(([at]) => at >= (this.cursor ?? Infinity));
    if (i < 0) i = known.length - 1;
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30, Home: -Infinity, End: Infinity }[e.key];
    if (e.key === 'Escape') { this.leave(); return; }
    if (step === undefined) return;
    e.preventDefault();
    i = this.cursor === null ? known.length - 1 : Math.min(known.length - 1, Math.max(0, i + step));
    this.read(known[i]);
  }

  point(e) {
    const box = this.svg.getBoundingClientRect();
    const at = this.left + ((e.clientX - box.left - edge.left) / (this.width - edge.left - edge.right)) * (this.right - this.left);
    const near = this.points.reduce((best, p) => (!best || Math.abs(p[0] - at) < Math.abs(best[0] - at) ? p : best), null);
    if (near && near[0] >= this.left) this.read(near);
  }

  read([at, v]) {
    this.cursor = at;
    const mark = this.marks.find((m) => Math.abs(m.at - at) < 1500);
    setText(this.readout, `${clock(at)}: ${v === null ? 'unknown' : amount(this.signal, v)}${mark ? `; ${mark.text}` : ''}`);
    this.paint();
  }

  leave() {
    this.cursor = null;
    setText(this.readout, '');
    this.paint();
  }
}

const percent = (share) => `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;

function short(signal, v) {
  if (isPressure(signal)) return `${(v / 1e4).toFixed(0)} %`;
  if (!isCount(signal)) return bytes(v);
  if (v >= 1e6) return `${(v / 1e6).toFixed(1)} M`;
  return v >= 1e4 ? `${(v / 1e3).toFixed(0)} k` : v.toFixed(0);
}

// ceiling returns the next round number above v.
function ceiling(v, signal) {
  let unit = 1;
  const base = isCount(signal) || isPressure(signal) ? 10 : 1024;
  while (v / unit >= base) unit *= base;
  const steps = base === 10 ? [1, 2, 4, 5, 8, 10] : [1, 2, 4, 6, 8, 10, 12, 16, 20, 32, 40, 50, 64, 100, 128, 160, 200, 256, 320, 400, 512, 640, 800, 1024];
  return steps.find((s) => s * unit >= v) * unit;
}

// thin keeps the lowest and the highest sample of each column of pixels.
function thin(stretch, width, x) {
  if (stretch.length <= 2 * width) return stretch;
  const out = [];
  let column = null;
  let low;
  let high;
  const end = () => {
    if (low) out.push(...(low === high ? [low] : low[0] < high[0] ? [low, high] : [high, low]));
  };
  for (const p of stretch) {
    const at = Math.round(x(p[0]));
    if (at !== column) { end(); column = at; low = p; high = p; }
    if (p[1] < low[1]) low = p;
    if (p[1] > high[1]) high = p;
  }
  end();
  return out;
}
