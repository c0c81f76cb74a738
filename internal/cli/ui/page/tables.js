// Tables: sortable pods, and events.

import { bytes, clock, make, milliseconds, number, plain, setText } from './format.js';

const columns = [
  { key: 'rank', name: '#', number: true, of: (p) => p.rank, text: (p) => String(p.rank) },
  { key: 'pod', name: 'Pod', style: 'name', of: (p) => p.pod, text: (p) => p.pod },
  { key: 'releases', name: 'Freed by kill', number: true, of: (p) => p.releases, text: (p) => (p.releases === undefined ? 'unknown' : bytes(p.releases)) },
  { key: 'qos', name: 'QoS', of: (p) => p.qos || '', text: (p) => p.qos || '' },
  { key: 'priority', name: 'Priority', number: true, of: (p) => p.priority, text: (p) => (p.priority === undefined ? 'unknown' : number(p.priority)) },
  { key: 'decidedBy', name: 'Decided by', narrowOff: true, of: (p) => p.decidedBy || '', text: (p) => p.decidedBy || (p.rank === 1 ? 'victim' : '') },
];

export class Pods {
  constructor(table, sentence, choice, protectedPods) {
    Object.assign(this, { sentence, choice, protectedPods, sort: 'releases', down: true, outlook: null });
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

  show(outlook) {
    this.outlook = outlook;
    const names = ((outlook && outlook.thresholds) || []).map((t) => t.threshold);
    if (JSON.stringify(names) !== this.names) {
      const chosen = this.choice.value;
      this.names = JSON.stringify(names);
      this.choice.replaceChildren(...names.map((n) => make('option', { value: n }, n)));
      if (names.includes(chosen)) this.choice.value = chosen;
    }
    this.paint();
  }

  paint() {
    const all = (this.outlook && this.outlook.thresholds) || [];
    const t = all.find((x) => x.threshold === this.choice.value) || all[0];
    for (const [i, c] of columns.entries()) {
      if (c.key === this.sort) this.heads[i].setAttribute('aria-sort', this.down ? 'descending' : 'ascending');
      else this.heads[i].removeAttribute('aria-sort');
    }
    if (!t) {
      setText(this.sentence, this.outlook === null ? 'The agent does not provide a ranking.' : 'No ranking yet.');
      this.body.replaceChildren();
      this.protectedPods.replaceChildren();
      return;
    }
    setText(this.sentence, this.describe(t));
    const rows = (t.ranking || []).map((p, i) => ({ ...p, rank: i + 1 }));
    const most = Math.max(1, ...rows.map((p) => p.releases || 0));
    this.body.replaceChildren(...this.sorted(rows).map((p) => row(p, most)));
    this.showProtected(t.protected || []);
  }

  describe(t) {
    const first = t.ranking && t.ranking[0];
    const parts = [t.withheld ? `No pod would be evicted now: ${t.withheld}.` : first ? `${first.pod} would be evicted if ${t.threshold} were met now.` : 'There is no candidate.'];
    if (t.more) parts.push(`${t.more} more candidates are not listed.`);
    if (this.outlook.dryRun) parts.push('Dry run: no pod is evicted.');
    parts.push(`As of ${clock(this.outlook.time)}.`);
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
      return make('p', { class: 'dim' }, `Protected (${n}): ${g.reason}: ${g.pods.join(', ')}${g.more ? ` and ${g.more} more` : ''}`);
    }));
  }
}

const classes = (c) => [c.number && 'number', c.style, c.narrowOff && 'narrow-off'].filter((x) => x).join(' ') || undefined;

function row(p, most) {
  const cells = columns.map((c) => {
    const cell = make('td', { class: classes(c) }, c.text(p));
    if (c.key === 'releases' && p.releases !== undefined) {
      const share = make('span', { class: 'share', 'aria-hidden': 'true' });
      share.style.width = `${(p.releases / most) * 100}%`;
      cell.append(share);
    }
    if (c.key === 'pod' && p.keys) cell.title = p.keys;
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
    return [clock(e.time, true), e.message, plain(f.pod ?? f.victim ?? ''), plain(f.reason ?? ''), plain(f.message ?? f.error ?? '')];
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

export function allEvents(element, events) {
  const lines = [...events].reverse().slice(0, 60).map((e) => {
    const rest = Object.entries(fields(e)).filter(([k]) => k !== 'ranking').map(([k, v]) => `${k}=${plain(v).slice(0, 160)}`).join('  ');
    return make('li', {}, make('span', { class: 'dim' }, `${clock(e.time, true)}  ${e.kind}  `),
      make('span', { class: e.level === 'warn' || e.level === 'error' ? e.level : undefined }, e.message), make('span', { class: 'dim' }, `  ${rest}`));
  });
  element.replaceChildren(...lines);
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
