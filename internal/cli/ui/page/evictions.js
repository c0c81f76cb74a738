// Evictions as timelines of the kill ladder, with the predicted and the measured freed amount.

import { amount, bytes, clock, make, milliseconds, plain, podName, setText, title } from './format.js';

const outcomes = {
  running: ['in progress', 'warn'], back: ['recovered', 'good'], notBack: ['not recovered in time', 'bad'], undying: ['did not die', 'bad'],
  abandoned: ['abandoned at restart', 'warn'], dryRun: ['dry run, not evicted', ''],
};

const known = (stamp) => stamp && (stamp.time || stamp.monotonicNs);

// since returns the time between two stamps in nanoseconds, by the monotonic clock if both have it; null: unknown.
function since(from, to) {
  if (!known(from) || !known(to)) return null;
  if (from.monotonicNs && to.monotonicNs) return to.monotonicNs - from.monotonicNs;
  if (from.time && to.time) return (Date.parse(to.time) - Date.parse(from.time)) * 1e6;
  return null;
}

const endBegan = (r) => (known(r.killed) ? r.killed : r.began);

// marks returns the times of evictions by the agent's clock, for the charts.
export const marks = (records) => records.map((r) => ({ at: Date.parse((endBegan(r) || {}).time), signal: r.signal, text: `${title(r.pod)} ${known(r.killed) ? 'killed' : 'stopped'}` }));

export class Evictions {
  constructor(list, none, news) {
    Object.assign(this, { list, none, news, items: new Map(), started: false, opened: false });
  }

  show(records) {
    this.none.hidden = records.length > 0;
    const newest = [...records].reverse();
    for (const r of newest) {
      const text = JSON.stringify(r);
      let item = this.items.get(r.id);
      if (!item) {
        item = make('li', { 'data-id': r.id }, make('details', {}, make('summary'), make('div')));
        this.items.set(r.id, item);
        if (this.started) this.announce(r);
      } else if (item.json === text) continue;
      if (item.json && item.outcome !== r.outcome) this.announce(r);
      item.json = text;
      item.outcome = r.outcome;
      item.querySelector('summary').replaceChildren(...summary(r));
      item.querySelector('div').replaceChildren(...body(r));
    }
    const ids = new Set(records.map((r) => r.id));
    for (const [id, item] of this.items) if (!ids.has(id)) { item.remove(); this.items.delete(id); }
    newest.forEach((r, i) => {
      const item = this.items.get(r.id);
      if (this.list.children[i] !== item) this.list.insertBefore(item, this.list.children[i] || null);
    });
    if (!this.opened && newest.length) { // open the first record, to show that records have details
      this.opened = true;
      this.list.querySelector('details').open = true;
    }
    this.started = true;
  }

  announce(r) {
    const [words] = outcomes[r.outcome] || [r.outcome];
    setText(this.news, `Eviction: ${title(r.pod)} for ${r.signal}: ${words}`);
  }
}

function summary(r) {
  const [words, style] = outcomes[r.outcome] || [plain(r.outcome), ''];
  const facts = [clock((r.began || {}).time, true), r.threshold || r.signal];
  const toKill = r.crossed && known(r.killed) ? since(r.crossed, r.killed) : null;
  const toRecovery = r.after && r.outcome === 'back' ? since(endBegan(r), r.after) : null;
  if (toKill !== null) facts.push(`crossing to kill ${milliseconds(toKill)}`);
  if (toRecovery !== null) facts.push(`${known(r.killed) ? 'kill' : 'stop'} to recovery ${milliseconds(toRecovery)}`);
  if (r.released !== undefined) facts.push(`freed ${amount(r.signal, r.released)}`);
  return [
    make('span', { class: 'pod' }, title(r.pod)), ' ', make('span', { class: `badge ${style}` }, words),
    make('span', { class: 'line' }, facts.join(' · ')),
  ];
}

function body(r) {
  return [ladder(r), amounts(r), facts(r), ranking(r)].filter((x) => x);
}

// timeline returns the observations, the kill and each step of the ladder, in order.
function timeline(r) {
  const zero = endBegan(r);
  const out = [];
  const add = (name, stamp, more = {}) => {
    const at = since(zero, stamp);
    if (at !== null) out.push({ name, at, ...more });
  };
  const read = (v) => (v.available === undefined ? (v.reason || 'not observed') : `${amount(r.signal, v.available)} available`);
  if (r.crossed) add(`threshold crossed: ${read(r.crossed)}`, r.crossed, { key: true });
  if (r.decided) add(`decided: ${read(r.decided)}`, r.decided);
  if (known(r.killed)) {
    add('victim pinned', r.began);
    add('killed', r.killed, { key: true });
  } else add(`stopped with a grace period of ${r.gracePeriodSeconds} s`, r.began, { key: true });
  for (const s of r.steps || []) {
    const stamp = s.monotonicNs ? { monotonicNs: s.monotonicNs } : null;
    if (stamp) add(s.n ? `${s.name} (${s.n})` : s.name, stamp, { error: s.error });
  }
  if (known(r.emptied)) add('no process left', r.emptied, { key: true });
  if (r.after) add(`${r.outcome === 'back' ? 'recovered' : 'outcome'}: ${read(r.after)}`, r.after, { key: true });
  return out.map((step, i) => ({ ...step, i })).sort((x, y) => x.at - y.at || x.i - y.i);
}

function ladder(r) {
  const all = timeline(r);
  if (all.length < 2) return null;
  const from = all[0].at;
  const whole = Math.max(1, all[all.length - 1].at - from);
  const rows = all.map((step, i) => {
    const began = i > 0 ? all[i - 1].at : step.at;
    const bar = make('div', { class: 'bar' });
    bar.style.left = `${Math.min(99, ((began - from) / whole) * 100)}%`;
    bar.style.width = `${((step.at - began) / whole) * 100}%`;
    bar.style.maxWidth = `${100 - Math.min(99, ((began - from) / whole) * 100)}%`;
    return make('li', { class: `${step.key ? 'key' : ''} ${step.error ? 'failed' : ''}` },
      make('span', { class: 'name' }, step.name), make('span', { class: 'at' }, signed(step.at)),
      make('div', { class: 'track', 'aria-hidden': 'true' }, bar),
      step.error ? make('span', { class: 'why' }, step.error) : null);
  });
  return make('ol', { class: 'ladder', 'aria-label': 'Steps, with times relative to the kill' }, ...rows);
}

const signed = (ns) => (Math.abs(ns) < 50000 ? '0.0 ms' : `${ns < 0 ? '−' : '+'}${milliseconds(Math.abs(ns))}`);

function amounts(r) {
  if (r.predicted === undefined && r.released === undefined) return null;
  const most = Math.max(1, r.predicted || 0, r.released || 0);
  const row = (name, v, style) => {
    const bar = make('div', { class: `bar ${style}` });
    bar.style.width = `${((v || 0) / most) * 100}%`;
    return [make('span', {}, name), make('span', { class: 'number' }, amount(r.signal, v)),
      make('div', { class: 'track', 'aria-hidden': 'true' }, v === undefined ? null : bar)];
  };
  return make('div', { class: 'amounts' }, ...row('Predicted to be freed', r.predicted, 'plan'), ...row('Freed', r.released, ''));
}

function facts(r) {
  const out = [];
  const add = (name, text) => { if (text) out.push(make('dt', {}, name), make('dd', {}, text)); };
  add('Why this pod', r.reason);
  add('Error', r.error);
  add('Pod', [r.pod.qos, `uid ${r.pod.uid}`, r.pod.cgroup && `cgroup ${r.pod.cgroup}`].filter((x) => x).join(', '));
  if (r.squeeze) add('Reclaimed before', `requested ${bytes(r.squeeze.asked)} of ${r.squeeze.kind}, reclaimed ${r.squeeze.freed === undefined ? 'unknown' : bytes(r.squeeze.freed)}`);
  else if (r.reclaimed) add('Reclaimed before', bytes(r.reclaimed));
  if (r.holdOffUntil) add('Held off until', clock(r.holdOffUntil, true));
  add('Message', r.message && r.message.trim());
  add('Full record', `jettison records ${r.id}`);
  return make('dl', { class: 'facts' }, ...out);
}

function ranking(r) {
  const rows = (r.ranking && r.ranking.rows) || [];
  if (rows.length < 1) return null;
  const head = make('tr', {}, ...['#', 'Pod', 'QoS', 'Decided by'].map((t) => make('th', { scope: 'col' }, t)));
  const lines = rows.map((c, i) => make('tr', {}, make('td', {}, String(i + 1)), make('td', { class: 'name' }, podName(c.pod)), make('td', {}, c.qos || ''), make('td', {}, c.decidedBy || '')));
  const more = `${r.ranking.more || 0} more candidates, ${r.ranking.protected || 0} pods protected`;
  return make('div', {},
    make('div', { class: 'scroll', role: 'region', 'aria-label': 'Ranking', tabindex: '0' }, make('table', {}, make('thead', {}, head), make('tbody', {}, ...lines))),
    make('p', { class: 'dim' }, more));
}

