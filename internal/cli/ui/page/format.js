// Formats values and times, and creates elements. Text from the node is only ever inserted as text.

// make creates an element with attributes and children; a child that is not a node becomes text.
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  return fill(element, attributes, children);
}

// draw creates an SVG element.
export function draw(name, attributes = {}, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.filter((c) => c !== undefined && c !== null));
  return element;
}

// setText sets an element's text if it differs, so that screen readers announce it once.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const units = ['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei'];

export function bytes(v) {
  let unit = 0;
  let n = Math.abs(v);
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit++; }
  const text = n < 99.95 && unit > 0 ? n.toFixed(1).replace(/\.0$/, '') : n.toFixed(0);
  return `${v < 0 ? '−' : ''}${text}${units[unit]}`;
}

export const isPressure = (signal) => signal.includes('.pressure.');
export const isCount = (signal) => signal === 'pid.available' || signal.endsWith('inodesFree');

// amount formats a value of a signal in the signal's unit.
export function amount(signal, v) {
  if (v === undefined || v === null) return 'unknown';
  if (isPressure(signal)) return `${(v / 1e4).toFixed(1)} %`;
  if (isCount(signal)) return `${number(v)} ${signal === 'pid.available' ? 'tasks' : 'inodes'}`;
  return bytes(v);
}

export const number = (v) => Math.round(v).toLocaleString('en-US').replaceAll(',', '\u202f');

// clock formats a time in UTC, like the agent's log and records.
export function clock(at, date = false) {
  const t = new Date(at);
  if (Number.isNaN(t.getTime())) return 'unknown';
  const text = t.toISOString();
  return date ? `${text.slice(0, 10)} ${text.slice(11, 19)} UTC` : `${text.slice(11, 19)} UTC`;
}

// span formats a duration in its two largest units.
export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

// milliseconds formats a short duration, given in nanoseconds.
export function milliseconds(ns) {
  const ms = ns / 1e6;
  if (Math.abs(ms) >= 10000) return `${(ms / 1000).toFixed(1)} s`;
  return `${ms.toFixed(1)} ms`;
}

// plain formats any value of an event as text.
export const plain = (v) => (typeof v === 'object' && v !== null ? JSON.stringify(v) : String(v));

// podName formats the name of a pod as the agent reports it; uid:UID stands for a pod that the runtime has not named yet.
export const podName = (text) => (String(text).startsWith('uid:') ? `a pod without a name yet (UID ${String(text).slice(4)})` : String(text));

export const title = (pod) => (pod.name ? `${pod.namespace}/${pod.name}` : podName(`uid:${pod.uid}`));
