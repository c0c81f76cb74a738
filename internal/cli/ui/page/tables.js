// Tables: sortable pods, decisions of the gate, and garbage collection.

import { bytes, clock, make, milliseconds, number, plain, podName, setText, span } from './format.js';

const columns = [
  { key: 'rank', name: '#', number: true, of: (p) => p.rank, text: (p) => String(p.rank) },
  { key: 'pod', name: 'Pod', style: 'name', of: (p) => p.pod, text: (p) => podName(p.pod) },
  { key: 'keys', name: 'Why', style: 'why', of: (p) => p.keys || '', text: (p) => p.keys || '' },
  { key: 'releases', name: 'Freed by kill', number: true, optional: true, of: (p) => p.releases, text: (p) => (p.releases === undefined ? 'unknown' : bytes(p.releases)) },
  { key: 'qos', name: 'QoS', narrowOff: true, of: (p) => p.qos || '', text: (p) => p.qos || '' },
  { key: 'priority', name: 'Priority', number: true, optional: true, narrowOff: true, of: (p) => p.priority, text: (p) => (p.priority === undefined ? 'unknown' : number(p.priority)) },
  { key: 'decidedBy', name: 'Decided by', narrowOff: true, of: (p) => p.decidedBy || '', text: (p) => p.decidedBy || (p.rank === 1 ? 'victim' : '') },
];

const maxAge = 3; // seconds: the age of an older ranking is shown with its reason
const maxDiskAge = 180; // seconds: the same for the disk usage in a ranking

// Pods shows the ranking for one threshold: the one that is chosen, or else one that is met, or else the one of memory.
export class Pods {
  constructor(table, sentence, choice, protectedPods) {
    Object.assign(this, { sentence, choice, protectedPods, sort: 'rank', down: false, outlook: null, error: '', pause: '', now: 0 });
    this.heads = columns.map((c) => {
      const button = make('button', { type: 'button' }, c.name);
      const head = make('th', { scope: 'col', class: classes(c) }, button);
      button.addEventListener('click', () => this.by(c));
      return head;
    });
    this.body = make('tbody');
    table.append(make('caption', { class: 'hidden' }, 'Pods; use the buttons in the header to sort'), make('thead', {}, make('tr', {}, ...this.heads)), this.body);
    choice.addEventListener('change', () => this.paint());
  }

  by(column) {
    this.down = this.sort === column.key ? !this.down : Boolean(column.number && column.key !== 'rank');
    this.sort = column.key;
    this.paint();
  }

  show({ outlook, error }) {
    Object.assign(this, { outlook, error: error || '', known: true });
    const names = ((outlook && outlook.thresholds) || []).map((t) => t.threshold);
    if (JSON.stringify(names) !== this.names) {
      const chosen = this.choice.value;
      this.names = JSON.stringify(names);
      this.choice.replaceChildren(make('option', { value: '' }, 'what is short, else memory'), ...names.map((n) => make('option', { value: n }, n)));
      if (names.includes(chosen)) this.choice.value = chosen;
    }
    this.paint();
  }

  // pressing returns the threshold that matters without a choice: one that is met, and of those one with a victim.
  pressing() {
    const all = (this.outlook && this.outlook.thresholds) || [];
    const met = all.filter((t) => t.met);
    return met.find((t) => !t.withheld) || met[0] || all.find((t) => t.signal === 'memory.available') || all[0];
  }

  chosen() {
    return ((this.outlook && this.outlook.thresholds) || []).find((t) => t.threshold === this.choice.value) || this.pressing();
  }

  // nextVictim names the pod that is evicted next, for the top of the page.
  nextVictim() {
    const t = this.pressing();
    return t ? [victim(t), ...this.caveats(t)].join(' ') : '';
  }

  // caveats returns what holds for the ranking of a threshold: the dry run, and why it is old.
  caveats(t) {
    const out = [];
    if (this.outlook.dryRun) out.push('Dry run: no pod is evicted.');
    const age = (this.now - Date.parse(this.outlook.time)) / 1000;
    if (this.error || age > maxAge) out.push(`This ranking is ${span(age)} old: ${this.error || this.pause || 'the agent takes this long to read the pods'}.`);
    const diskAge = (Date.parse(this.outlook.time) - Date.parse(t.diskUsageTime)) / 1000;
    if (diskAge > maxDiskAge) out.push(`The disk usage of pods is up to ${span(diskAge)} old and is being measured again.`);
    return out;
  }

  paint() {
    const t = this.chosen();
    for (const [i, c] of columns.entries()) {
      if (c.key === this.sort) this.heads[i].setAttribute('aria-sort', this.down ? 'descending' : 'ascending');
      else this.heads[i].removeAttribute('aria-sort');
    }
    this.showAge(this.now);
    if (!t) {
      this.body.replaceChildren();
      this.rowsText = '';
      this.protectedPods.replaceChildren();
      return;
    }
    const rows = (t.ranking || []).map((p, i) => ({ ...p, rank: i + 1 }));
    const shown = columns.filter((c) => !c.optional || rows.some((p) => c.of(p) !== undefined)); // a column of unknown values says nothing
    columns.forEach((c, i) => { this.heads[i].hidden = !shown.includes(c); });
    const text = JSON.stringify([rows, this.sort, this.down]);
    if (text !== this.rowsText) {
      this.rowsText = text;
      const most = Math.max(1, ...rows.map((p) => p.releases || 0));
      this.body.replaceChildren(...this.sorted(rows).map((p) => row(p, most, shown)));
    }
    this.showProtected(t.protected || []);
  }

  // showAge shows the sentence above the table; now is the time by the agent's clock.
  showAge(now) {
    this.now = now;
    const t = this.chosen();
    setText(this.sentence, t ? this.describe(t) : this.error || (this.known ? 'The agent does not provide a ranking.' : 'No ranking yet.'));
  }

  describe(t) {
    const parts = [victim(t)];
    if (t.more) parts.push(`${t.more} more candidates are not listed.`);
    if (t.ranking.length && t.ranking.every((p) => p.priority === undefined)) parts.push('The priorities are unknown and count as 0.');
    parts.push(`As of ${clock(this.outlook.time)}.`, ...this.caveats(t));
    return parts.join(' ');
  }

  sorted(rows) {
    const c = columns.find((x) => x.key === this.sort);
    const way = this.down ? -1 : 1;
    return rows.sort((x, y) => {
      const [a, b] = [c.of(x), c.of(y)];
      if (a === undefined || b === undefined) return (a === undefined) - (b === undefined) || x.rank - y.rank; // unknown values last
      return (typeof a === 'string' ? a.localeCompare(b) : a - b) * way || x.rank - y.rank;
    });
  }

  showProtected(groups) {
    const text = JSON.stringify(groups);
    if (text === this.protectedText) return;
    this.protectedText = text;
    this.protectedPods.replaceChildren(...groups.map((g) => {
      const n = g.pods.length + (g.more || 0);
      return make('p', { class: 'dim' }, `Protected (${n}): ${g.reason}: ${g.pods.map(podName).join(', ')}${g.more ? ` and ${g.more} more` : ''}`);
    }));
  }
}

const classes = (c) => [c.number && 'number', c.style, c.narrowOff && 'narrow-off'].filter((x) => x).join(' ') || undefined;

// victim describes what a threshold would evict now.
function victim(t) {
  const first = t.ranking && t.ranking[0];
  const eligible = t.met ? 'is evicted next' : 'would be evicted first';
  if (t.withheld) return `No pod is evicted for ${t.threshold} now: ${t.withheld}.`;
  return first ? `${podName(first.pod)} ${eligible} for ${t.threshold}${first.keys ? `: ${first.keys}` : ''}.` : `No pod is a candidate for ${t.threshold}.`;
}

function row(p, most, shown) {
  const cells = shown.map((c) => {
    const cell = make('td', { class: classes(c) }, c.text(p));
    if (c.key === 'releases' && p.releases !== undefined) {
      const share = make('span', { class: 'share', 'aria-hidden': 'true' });
      share.style.width = `${(p.releases / most) * 100}%`;
      cell.append(share);
    }
    return cell;
  });
  return make('tr', { class: p.rank === 1 ? 'first' : undefined }, ...cells);
}

// table fills a table with the rows of events, newest first.
function table(element, heads, rows) {
  const head = make('tr', {}, ...heads.map(([name, style]) => make('th', { scope: 'col', class: style }, name)));
  const lines = rows.map((cells) => make('tr', {}, ...cells.map((text, i) => make('td', { class: heads[i][1] }, text))));
  element.replaceChildren(...(rows.length ? [make('thead', {}, head), make('tbody', {}, ...lines)] : []));
}

const fields = (e) => e.fields || {};
const size = (v) => (typeof v === 'number' ? bytes(v) : '');
const count = (v) => (v === undefined ? '' : plain(v));

export function gateEvents(element, events) {
  const rows = events.map((e) => {
    const f = fields(e);
    return [clock(e.time, true), e.message, podName(plain(f.pod ?? f.victim ?? '')), plain(f.reason ?? ''), plain(f.message ?? f.error ?? '')];
  });
  table(element, [['When', 'time'], ['What'], ['Pod', 'name'], ['Reason'], ['Message', 'name narrow-off']], rows.reverse());
}

export function garbageEvents(element, events) {
  const rows = events.map((e) => {
    const f = fields(e);
    const what = [e.message, f.what].filter((x) => x).join(': ');
    return [clock(e.time, true), what, count(f.trigger), count(f.removed), count(f.failed), size(f.predicted), size(f.freed), count(f.took)];
  });
  table(element, [['When', 'time'], ['Pass', 'name'], ['Why', 'name'], ['Removed', 'number'], ['Failed', 'number'], ['Predicted', 'number narrow-off'],
    ['Freed', 'number'], ['Took', 'number narrow-off']], rows.reverse());
}

export function gateCounts(list, sentence, gate) {
  if (!gate) {
    setText(sentence, 'The agent has no gate.');
    list.replaceChildren();
    return;
  }
  const mode = !gate.asked ? 'The runtime does not call the gate: every pod starts.'
    : gate.enforced ? 'The gate rejects pods that the node does not admit.' : 'The gate counts pods that the node does not admit but lets them start; it holds off evicted pods.';
  const latency = gate.answers && gate.answers.count ? ` Latency of answers: ${milliseconds(gate.answers.p50Nanoseconds)} (p50), ${milliseconds(gate.answers.p99Nanoseconds)} (p99).` : '';
  setText(sentence, mode + latency);
  const counts = [['Admitted', gate.admitted], ['Rejected', gate.refused], ['Would be rejected', gate.observed], ['Held off', gate.heldOff],
    ['Admitted, node unknown', gate.unknown], ['Successful preemptions', gate.roomMade], ...Object.entries(gate.reasons || {})];
  list.replaceChildren(...counts.map(([name, v]) => make('div', {}, make('dt', {}, name), make('dd', {}, number(v)))));
}
