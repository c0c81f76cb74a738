// Events as sentences, with their figures behind a click, and a filter.

import { amount, bytes, clock, make, plain, podName, setText } from './format.js';

const because = (text) => (text === undefined || text === '' ? '' : `: ${plain(text)}`);
const name = (pod) => podName(plain(pod ?? 'a pod'));
const left = (f) => (f.observed === undefined ? '' : ` with ${amount(f.signal, f.observed)}${String(f.signal).includes('.pressure.') ? ' of the time stalled' : ' left'}`);

// sentences has the texts of frequent events by their message. Other events read: message, pod, reason.
const sentences = {
  evicted: (f) => `${name(f.victim)} was evicted for ${f.signal}${left(f)}`,
  evicting: (f) => `${name(f.victim)} is being evicted for ${f.signal}${left(f)}`,
  'would evict': (f) => `Dry run: ${name(f.victim)} would be evicted for ${f.signal}${left(f)}`,
  'eviction cancelled': (f) => `${name(f.pod)} was not evicted: ${f.signal} recovered in time`,
  'victim did not die, set aside': (f) => `${name(f.victim)} did not die and was set aside${because(f.error)}`,
  'threshold met without eviction': (f) => `No pod was evicted for ${f.signal}${left(f)}${because(f.reason)}`,
  'condition changed': (f) => `${plain(f.condition)} is now ${plain(f.status)}${because(f.reason)}`,
  'pod rejected': (f) => `${name(f.pod)} was rejected${because(f.reason)}`,
  'evicted pod rejected': (f) => `${name(f.pod)} was held off after its eviction`,
  'garbage collected': (f) => `Garbage collection removed ${plain(f.removed ?? 0)} ${plain(f.what ?? 'objects')}${f.freed === undefined ? '' : ` and freed ${bytes(f.freed)}`}`,
  'garbage collection before eviction': (f) => `Garbage is collected before an eviction for ${f.signal}${left(f)}`,
  'reclaimed memory': (f) => `${f.freed === undefined ? 'Memory' : bytes(f.freed)} of ${plain(f.kind ?? 'cold memory')} was reclaimed from pods`,
  'signal lost': (f) => `${plain(f.signal)} is not observed any more${because(f.reason)}`,
  'signal observed again': (f) => `${plain(f.signal)} is observed again`,
  started: (f) => `The agent ${plain(f.version ?? '')} started`,
  stopped: () => 'The agent stopped',
};

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function sentence(e) {
  const f = e.fields || {};
  const write = sentences[e.message];
  if (write) return `${write(f)}.`; // a name at the beginning keeps its case
  const pod = f.victim ?? f.pod;
  return `${capital(e.message)}${pod === undefined ? '' : `: ${name(pod)}`}${because(f.reason ?? f.error ?? f.warning)}.`;
}

const sizes = new Set(['freed', 'predicted', 'bytes', 'reclaimFreed', 'reclaimRequested', 'reclaimRefaulted', 'requested', 'refaulted', 'limit']);
const ofSignal = new Set(['observed', 'threshold', 'available']);

// figure formats a field of an event.
function figure(f, key, v) {
  if (typeof v === 'number' && ofSignal.has(key) && f.signal) return amount(f.signal, v);
  if (typeof v === 'number' && sizes.has(key)) return bytes(v);
  return plain(v);
}

// Events shows the last events that the filter selects, newest first.
export class Events {
  constructor(list, none, filter) {
    Object.assign(this, { list, none, kind: filter.querySelector('select'), words: filter.querySelector('[type=search]'), warnings: filter.querySelector('[type=checkbox]'), events: [], items: new Map() });
    filter.addEventListener('input', () => this.paint());
    filter.addEventListener('submit', (e) => e.preventDefault());
  }

  show(events) {
    this.events = [...events].reverse();
    const known = new Set(events.map((e) => e.seq));
    for (const seq of this.items.keys()) if (!known.has(seq)) this.items.delete(seq);
    this.paint();
  }

  paint() {
    const words = this.words.value.toLowerCase().split(' ').filter((w) => w);
    const chosen = this.events.map((e) => this.item(e)).filter(({ event: e, text }) => (!this.kind.value || e.kind === this.kind.value)
      && (!this.warnings.checked || e.level === 'warn' || e.level === 'error') && words.every((w) => text.includes(w)));
    const elements = chosen.map((i) => i.element);
    if (elements.length !== this.list.children.length || elements.some((e, i) => this.list.children[i] !== e)) this.list.replaceChildren(...elements);
    setText(this.none, this.events.length ? `${chosen.length} of the last ${this.events.length} events.` : 'No events yet.');
  }

  // item returns an event's element, which keeps its state while the list changes.
  item(e) {
    const old = this.items.get(e.seq);
    if (old) return old;
    const f = e.fields || {};
    const rows = Object.entries(f).filter(([k]) => k !== 'ranking').flatMap(([k, v]) => [make('dt', {}, k), make('dd', {}, figure(f, k, v))]);
    const element = make('li', {}, make('details', {},
      make('summary', {}, make('span', { class: 'dim' }, `${clock(e.time, true)} `),
        make('span', { class: e.level === 'warn' || e.level === 'error' ? e.level : undefined }, sentence(e))),
      make('dl', { class: 'facts' }, make('dt', {}, 'log message'), make('dd', {}, e.message), make('dt', {}, 'kind'), make('dd', {}, e.kind), ...rows)));
    const item = { event: e, element, text: `${element.textContent} ${e.level}`.toLowerCase() };
    this.items.set(e.seq, item);
    return item;
  }
}
