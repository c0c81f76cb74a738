// The page: it takes what jettison ui sends as it changes, and shows each part in its place.

import { Chart } from './chart.js';
import { Evictions, marks } from './evictions.js';
import { amount, clock, make, say } from './format.js';
import { Pods, allEvents, garbageEvents, gateCounts, gateEvents } from './tables.js';

const $ = (id) => document.getElementById(id);

const known = { agent: null, state: null, records: [], most: 3600, signals: [], samples: [], heard: 0 };
const charts = new Map();
const evictions = new Evictions($('eviction-list'), $('no-evictions'), $('news'));
const pods = new Pods($('pod-table'), $('pods-say'), $('threshold'), $('protected'));

const takes = {
  agent(v) { known.agent = v; },
  state(v) { known.state = v; showState(); },
  evictions(v) { known.records = v.records || []; evictions.show(known.records); },
  outlook(v) { pods.show(v); },
  events(v) { showEvents(v); },
  history(v) { Object.assign(known, { most: v.most, signals: v.signals || [], samples: v.samples || [] }); },
  samples(v) {
    known.signals = v.signals || [];
    known.samples.push(...v.samples);
    known.samples.splice(0, known.samples.length - known.most);
  },
};

let source = null;
let lost = null; // since when jettison ui does not answer

function listen() {
  const key = new URLSearchParams(location.search).get('key') || '';
  const address = `/stream?key=${encodeURIComponent(key)}`;
  source = new EventSource(address);
  for (const [name, take] of Object.entries(takes)) {
    source.addEventListener(name, (e) => {
      lost = null;
      known.heard = Date.now();
      take(JSON.parse(e.data));
      soon();
    });
  }
  source.addEventListener('error', () => {
    lost ??= new Date();
    if (source.readyState === EventSource.CLOSED) refused(address);
    soon();
  });
}

// refused finds out why the stream is no stream: a browser does not tell.
async function refused(address) {
  try {
    const answer = await fetch(address, { method: 'GET', cache: 'no-store' });
    if (answer.status === 403) {
      $('away').hidden = false;
      say($('away'), await answer.text());
      lost = null;
      known.wrong = true;
      soon();
      return;
    }
    await answer.body?.cancel();
  } catch { /* it does not answer: later */ }
  setTimeout(listen, 2000);
}

let painting = false;

// soon paints what depends on time or on several parts, once for all that came together.
function soon() {
  if (painting) return;
  painting = true;
  setTimeout(() => { painting = false; paint(); }, 30);
}

function paint() {
  showAgent();
  showProblems();
  showCharts();
}

// now is the time by the agent's clock: that of its last word, and what has passed since.
function now() {
  const last = known.samples.length ? known.samples[known.samples.length - 1][0] : Date.now();
  return last + Math.max(0, Date.now() - (known.heard || Date.now()));
}

function showAgent() {
  const a = known.agent;
  const live = $('live');
  if (known.wrong) { badge(live, 'no key', 'bad'); return; }
  if (lost) {
    $('away').hidden = false;
    say($('away'), `jettison ui does not answer since ${clock(lost, true)}: this page stands still. Start it again, and open the address that it prints.`);
    badge(live, 'page stands still', 'bad');
    return;
  }
  if (!a) return;
  say($('node'), a.node || 'jettison');
  document.title = `${known.problems ? `(${known.problems}) ` : ''}${a.node || 'node'}: jettison`;
  $('away').hidden = a.answers || !a.since;
  if (a.answers) badge(live, `live since ${clock(a.since)}`, 'good');
  else if (a.since) {
    badge(live, `agent away since ${clock(a.since)}`, 'bad');
    say($('away'), `The agent is away since ${clock(a.since, true)}: nobody is evicted on this node by it. What is below was known before. ${a.error}`);
  }
  say($('foot'), `Read-only. All that is shown comes from the agent's socket ${a.socket}. Times are UTC. jettison ui ${a.ui}.`);
}

function badge(element, text, style) {
  say(element, text);
  element.className = `badge ${style}`;
}

function showState() {
  const { state: s } = known.state;
  const modes = [`jettison ${s.version}`, s.kubelet ? 'beside a kubelet' : 'no kubelet', `disk ${s.disk}`, `${s.pods.runtime} pods`];
  if (s.dryRun) modes.push('dry run');
  say($('about'), modes.join(', '));
  const items = (s.conditions || []).map((c) => make('li', { class: `badge ${c.status ? 'bad' : ''}` },
    `${c.type}: ${c.status ? 'yes' : 'no'}${c.lastTransitionTime ? ` since ${clock(c.lastTransitionTime, true)}` : ''}`));
  replaceIfNew($('conditions'), items);
  gateCounts($('gate-counts'), $('gate-say'), s.gate);
}

// replaceIfNew leaves an element alone that has the same text already.
function replaceIfNew(element, items) {
  if (element.textContent !== items.map((i) => i.textContent).join('')) element.replaceChildren(...items);
}

function showProblems() {
  const list = (known.state && known.state.problems) || [];
  const underway = (known.state && known.state.state.underway) || [];
  known.problems = list.filter((p) => !p.advice).length;
  const items = list.map((p) => make('li', { class: p.advice ? 'note' : '' }, make('strong', {}, p.what), p.do ? make('div', { class: 'dim' }, `Do: ${p.do}`) : null));
  for (const u of underway) {
    items.push(make('li', {}, make('strong', {}, `${u.pod.Name ? `${u.pod.Namespace}/${u.pod.Name}` : `uid:${u.pod.UID}`} is being evicted for ${u.signal}`), make('div', { class: 'dim' }, u.message || '')));
  }
  if (known.agent && known.agent.since && !known.agent.answers) items.unshift(make('li', {}, make('strong', {}, 'the agent does not answer')));
  if (!items.length) items.push(make('li', { class: 'fine' }, known.state ? 'None.' : 'Nothing is known yet.'));
  replaceIfNew($('problem-list'), items);
}

function showCharts() {
  const list = known.state ? known.state.state.signals || [] : [];
  const byName = new Map(list.map((s) => [s.signal, s]));
  const names = [...new Set([...byName.keys(), ...known.signals])];
  $('no-signals').hidden = names.length > 0;
  for (const name of names) {
    if (!charts.has(name)) {
      charts.set(name, new Chart(name));
      $('charts').append(charts.get(name).element);
    }
  }
  const right = now();
  const first = known.samples.length ? known.samples[0][0] : right;
  const seconds = Math.min(Number($('span').value), Math.max(60, (right - first) / 1000)); // what was before the page is not known
  const from = right - seconds * 1000 - 5000;
  const seen = known.samples.filter(([at]) => at >= from);
  const kills = marks(known.records);
  const away = !known.agent || !known.agent.answers;
  for (const [name, chart] of charts) {
    const column = known.signals.indexOf(name) + 1;
    const points = seen.map((s) => [s[0], column > 0 ? s[column] ?? null : null]);
    const signal = byName.get(name);
    chart.show(away && signal ? { ...signal, observed: false, reason: 'the agent is away' } : signal, points, right, seconds, kills);
  }
}

function showEvents(v) {
  const [gate, garbage, all] = [v.gate || [], v.garbage || [], v.all || []];
  gateEvents($('gate-table'), gate);
  garbageEvents($('garbage-table'), garbage);
  const freed = garbage.reduce((sum, e) => sum + ((e.fields && e.fields.freed) || 0), 0);
  say($('garbage-say'), garbage.length ? `The last ${garbage.length === 1 ? 'line' : `${garbage.length} lines`}; these passes freed ${amount('nodefs.available', freed)}.` : 'No pass is known.');
  allEvents($('event-list'), all);
  $('events-say').hidden = all.length > 0;
}

$('span').addEventListener('change', paint);
addEventListener('resize', soon);
setInterval(soon, 1000);
listen();
