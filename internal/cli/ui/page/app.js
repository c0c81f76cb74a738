// The page: it receives changes from jettison ui and shows each part.

import { Chart } from './chart.js';
import { Evictions, marks } from './evictions.js';
import { Events } from './events.js';
import { amount, clock, isPressure, make, setText, span, title } from './format.js';
import { Pods, garbageEvents, gateCounts, gateEvents } from './tables.js';

const $ = (id) => document.getElementById(id);

const data = { agent: null, state: null, records: [], most: 3600, signals: [], samples: [], sampledAt: 0, outlook: null };
const charts = new Map();
const evictions = new Evictions($('eviction-list'), $('no-evictions'), $('news'));
const events = new Events($('event-list'), $('events-text'), $('event-filter'));
const pods = new Pods($('pod-table'), $('pods-text'), $('threshold'), $('protected'));

const handlers = {
  agent(v) { data.agent = v; },
  state(v) { data.state = v; showState(); },
  evictions(v) { data.records = v.records || []; evictions.show(data.records); },
  outlook(v) { data.outlook = v; pods.show(v); },
  events(v) { showEvents(v); },
  history(v) { Object.assign(data, { most: v.most, signals: v.signals || [], samples: v.samples || [], sampledAt: Date.now() }); },
  samples(v) {
    data.sampledAt = Date.now();
    data.signals = v.signals || [];
    data.samples.push(...v.samples);
    data.samples.splice(0, data.samples.length - data.most);
  },
};

let source = null;
let connectedAt = 0;
let disconnectedAt = null; // since when jettison ui does not answer

const attention = 600000; // milliseconds after the connection from which on jettison ui queries the ranking every 10 s

// listen connects, and ends an earlier connection. For a hidden page jettison ui queries no ranking: the agent reads all pods for it.
function listen() {
  source?.close();
  connectedAt = Date.now();
  const key = new URLSearchParams(location.search).get('key') || '';
  const address = `/stream?key=${encodeURIComponent(key)}${document.hidden ? '&hidden=1' : ''}`;
  source = new EventSource(address);
  const own = source;
  for (const [name, handle] of Object.entries(handlers)) {
    source.addEventListener(name, (e) => {
      disconnectedAt = null;
      handle(JSON.parse(e.data));
      schedulePaint();
    });
  }
  source.addEventListener('error', () => {
    if (source !== own) return;
    disconnectedAt ??= new Date();
    if (source.readyState === EventSource.CLOSED) reconnect(address);
    schedulePaint();
  });
}

// reconnect reads the reason of a closed stream, which EventSource does not report, and connects again unless the key is wrong.
async function reconnect(address) {
  try {
    const response = await fetch(address, { method: 'GET', cache: 'no-store' });
    if (response.status === 403) {
      $('alert').hidden = false;
      setText($('alert'), await response.text());
      disconnectedAt = null;
      data.wrongKey = true;
      schedulePaint();
      return;
    }
    await response.body?.cancel();
  } catch { /* jettison ui does not answer: retry */ }
  setTimeout(listen, 2000);
}

let painting = false;

// schedulePaint paints the parts that depend on time or on several messages, once for a burst of messages.
function schedulePaint() {
  if (painting) return;
  painting = true;
  setTimeout(() => { painting = false; paint(); }, 30);
}

function paint() {
  showAgent();
  showProblems();
  showCharts();
  const age = Date.now() - connectedAt;
  pods.pause = age < 5000 ? 'a new one is requested' : age > attention ? 'without input this page gets a new one every 10 s' : '';
  pods.showAge(now());
  showNow();
}

// now returns the time by the agent's clock: its last sample plus the time since it arrived.
function now() {
  const last = data.samples.length ? data.samples[data.samples.length - 1][0] : Date.now();
  return last + Math.max(0, Date.now() - (data.sampledAt || Date.now()));
}

function showAgent() {
  const a = data.agent;
  const live = $('live');
  if (data.wrongKey) { badge(live, 'wrong key', 'bad'); return; }
  if (disconnectedAt) {
    $('alert').hidden = false;
    setText($('alert'), `jettison ui has not answered since ${clock(disconnectedAt, true)}: this page is stale. Start jettison ui again and open the address that it prints.`);
    badge(live, 'page stale', 'bad');
    return;
  }
  if (!a) return;
  setText($('node'), a.node || 'jettison');
  document.title = `${data.problems ? `(${data.problems}) ` : ''}${a.node || 'node'}: jettison`;
  $('alert').hidden = a.answers || !a.since;
  if (a.answers) badge(live, `live since ${clock(a.since)}`, 'good');
  else if (a.since) {
    badge(live, `agent unreachable since ${clock(a.since)}`, 'bad');
    setText($('alert'), `The agent has been unreachable since ${clock(a.since, true)}. It may not be evicting pods. The data below is older. ${a.error}`);
  }
  setText($('foot'), `Read-only. All data comes from the agent at ${a.socket}. Times are UTC. jettison ui ${a.ui}.`);
}

function badge(element, text, style) {
  setText(element, text);
  element.className = `badge ${style}`;
}

function showState() {
  const { state: s } = data.state;
  const modes = [`jettison ${s.version}`, s.kubelet ? 'alongside a kubelet' : 'no kubelet', `disk ${s.disk}`, `${s.pods.runtime} pods`];
  if (s.dryRun) modes.push('dry run');
  setText($('about'), modes.join(', '));
  const items = (s.conditions || []).map((c) => make('li', { class: `badge ${c.status ? 'bad' : ''}` },
    `${c.type}: ${c.status ? 'yes' : 'no'}${c.lastTransitionTime ? ` since ${clock(c.lastTransitionTime, true)}` : ''}`));
  replaceIfNew($('conditions'), items);
  gateCounts($('gate-counts'), $('gate-text'), s.gate);
}

// replaceIfNew replaces the children of an element if their text differs.
function replaceIfNew(element, items) {
  if (element.textContent !== items.map((i) => i.textContent).join('')) element.replaceChildren(...items);
}

function showProblems() {
  const list = (data.state && data.state.problems) || [];
  const underway = (data.state && data.state.state.underway) || [];
  data.problems = list.filter((p) => !p.advice).length;
  const items = list.map((p) => make('li', { class: p.advice ? 'note' : '' }, make('strong', {}, p.what), p.do ? make('div', { class: 'dim' }, `Do: ${p.do}`) : null));
  for (const u of underway) {
    const pod = title({ name: u.pod.Name, namespace: u.pod.Namespace, uid: u.pod.UID });
    items.push(make('li', {}, make('strong', {}, `${pod} is being evicted for ${u.signal}`), make('div', { class: 'dim' }, u.message || '')));
  }
  replaceIfNew($('problem-list'), items);
}

// showNow shows what is short, and which pod is evicted for it.
function showNow() {
  const short = [...charts.values()].filter((c) => c.state === 'short');
  const blind = [...charts.values()].filter((c) => c.state === 'unknown').length;
  const doubts = [count(data.problems, 'problem'), count(blind, 'signal', ' not observed')].filter((x) => x).map((x) => ` ${x}.`).join('');
  if (!data.state) headline('No data yet', '');
  else if (unreachable()) headline('The agent does not answer', 'bad');
  else if (short.length === 1) headline(shortage(short[0]), 'bad');
  else if (short.length) headline(`${short.length} signals are short: ${short.map((c) => c.signal).join(', ')}`, 'bad');
  else headline(`Nothing is short.${doubts}`, doubts ? 'warn' : 'good');
  setText($('next'), data.state && !unreachable() ? pods.nextVictim() : '');
}

const count = (n, thing, rest = '') => (n ? `${n} ${thing}${n === 1 ? '' : 's'}${rest}` : '');

function headline(text, style) {
  setText($('headline'), text);
  $('headline').className = `headline ${style}`;
}

// shortage describes a signal that is short.
function shortage(chart) {
  const met = (data.state.state.thresholdsMet || []).find((m) => m.signal === chart.signal);
  const since = met ? ` for ${span((now() - Date.parse(met.since)) / 1000)}` : '';
  const value = amount(chart.signal, chart.now.available);
  return isPressure(chart.signal) ? `${chart.signal} is high${since}: ${value} of the time` : `${chart.signal} is short${since}: ${value} left`;
}

const unreachable = () => !data.agent || !data.agent.answers;

const holdFor = 60000; // milliseconds for which a signal stays among the watched ones after it was near a threshold

// place puts each chart where it belongs: what is short first, then what is near a threshold or not observed. The others are in one row.
function place() {
  const groups = { short: [], watched: [], healthy: [] };
  for (const c of charts.values()) {
    if (!unreachable() || !c.group) {
      if (c.state !== 'healthy') c.watchedAt = Date.now();
      c.group = c.state === 'short' ? 'short' : Date.now() - (c.watchedAt ?? -Infinity) < holdFor ? 'watched' : 'healthy';
    }
    groups[c.group].push(c);
  }
  for (const [group, id] of [['short', 'short'], ['watched', 'watched'], ['healthy', 'healthy-charts']]) {
    const elements = groups[group].map((c) => c.element);
    if (elements.length !== $(id).children.length || elements.some((e, i) => $(id).children[i] !== e)) $(id).replaceChildren(...elements);
  }
  const n = groups.healthy.length;
  $('healthy').hidden = n === 0;
  const row = [make('span', { class: 'good' }, count(n, 'healthy signal')),
    ...groups.healthy.map((c) => make('span', { class: 'one' }, `${c.signal} ${c.now && c.now.observed ? amount(c.signal, c.now.available) : 'not observed'}`))];
  replaceIfNew($('healthy-row'), row);
}

function showCharts() {
  const list = data.state ? data.state.state.signals || [] : [];
  const byName = new Map(list.map((s) => [s.signal, s]));
  const names = [...new Set([...byName.keys(), ...data.signals])];
  $('no-signals').hidden = names.length > 0;
  for (const name of names) {
    if (!charts.has(name)) {
      charts.set(name, new Chart(name));
    }
  }
  const right = now();
  const first = data.samples.length ? data.samples[0][0] : right;
  const seconds = Math.min(Number($('span').value), Math.max(60, (right - first) / 1000)); // no data from before the start of jettison ui
  const from = right - seconds * 1000 - 5000;
  const visible = data.samples.filter(([at]) => at >= from);
  const kills = marks(data.records);
  for (const [name, chart] of charts) {
    const column = data.signals.indexOf(name) + 1;
    const points = visible.map((s) => [s[0], column > 0 ? s[column] ?? null : null]);
    const signal = byName.get(name);
    chart.show(unreachable() && signal ? { ...signal, observed: false, reason: 'the agent is unreachable' } : signal, points, right, seconds, kills);
  }
  place();
}

function showEvents(v) {
  const [gate, garbage, all] = [v.gate || [], v.garbage || [], v.all || []];
  gateEvents($('gate-table'), gate);
  garbageEvents($('garbage-table'), garbage);
  const freed = garbage.reduce((sum, e) => sum + ((e.fields && e.fields.freed) || 0), 0);
  setText($('garbage-text'), garbage.length ? `Last ${garbage.length === 1 ? 'event' : `${garbage.length} events`}; these passes freed ${amount('nodefs.available', freed)}.` : 'No passes yet.');
  events.show(all);
}

$('span').addEventListener('change', paint);
$('healthy').addEventListener('toggle', paint);
addEventListener('resize', schedulePaint);
document.addEventListener('visibilitychange', listen);
for (const input of ['pointermove', 'pointerdown', 'keydown', 'wheel']) {
  addEventListener(input, () => { if (Date.now() - connectedAt > attention / 2) listen(); }, { passive: true });
}
setInterval(schedulePaint, 1000);
listen();
