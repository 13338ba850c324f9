// Simulate: the cluster as it is and with a change, placed side by side by the scheduler's core. Nothing is written.

import { h, render, empty, problem } from './dom.js';
import * as api from './api.js';
import { toYaml } from './yaml.js';

const GATES = ['TaintTolerationCEL', 'TaintTolerationNodeAffinityCEL', 'TaintTolerationNodeAffinitySemverComparisonOperators', 'DRACELDeviceConstraint', 'CRDAdditionalPrinterColumnCEL'].slice(0, 4);
const SHOWN = 200;
const profile = (strategy) => toYaml({ apiVersion: 'kubescheduler.config.k8s.io/v1', kind: 'KubeSchedulerConfiguration', profiles: [{ schedulerName: 'default-scheduler', pluginConfig: [{ name: 'NodeResourcesFit', args: { apiVersion: 'kubescheduler.config.k8s.io/v1', kind: 'NodeResourcesFitArgs', scoringStrategy: { type: strategy, resources: [{ name: 'cpu', weight: 1 }, { name: 'memory', weight: 1 }] } } }] }] });
const PROFILES = [['', 'As the cluster'], ['MostAllocated', 'Pack nodes (MostAllocated)'], ['LeastAllocated', 'Spread over nodes (LeastAllocated)'], ['own', 'Own configuration']];

export function simulatePage(root, parts, { link }) {
  const stop = new AbortController();
  let nodes = [];
  let form = { replicas: 10, cpu: '500m', memory: '256Mi', extra: '', addNodes: 0, like: '', taintNodes: '', taintKey: '', taintValue: '', taintEffect: 'NoSchedule', removed: '', gates: {}, profile: '', configuration: profile('MostAllocated'), again: false };
  let answer = null;
  let error = null;
  let isBusy = false;
  let request = null;
  const paint = () => { if (!stop.signal.aborted) render(root, view()); };

  async function loadNodes() {
    try { nodes = (await api.readTable('/api/v1/nodes', { limit: 500 }, stop.signal)).rows.map((row) => row.object.metadata.name); form.like ||= nodes[0] || ''; } catch (problem) { if (problem.name !== 'AbortError') error = problem; }
    paint();
  }

  function question() {
    const documents = [];
    if (form.replicas > 0) documents.push(toYaml({ apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'what-if', namespace: 'default' }, spec: { replicas: Number(form.replicas), selector: { matchLabels: { app: 'what-if' } }, template: { metadata: { labels: { app: 'what-if' } }, spec: { containers: [{ name: 'app', image: 'what-if', resources: { requests: { cpu: form.cpu, memory: form.memory } } }] } } } }));
    if (form.extra.trim()) documents.push(form.extra);
    return {
      add: documents.join('---\n'), nodes: { count: Number(form.addNodes) || 0, like: form.like },
      taints: form.taintNodes.trim() && form.taintKey.trim() ? [{ nodes: form.taintNodes.trim(), taint: { key: form.taintKey.trim(), ...(form.taintValue ? { value: form.taintValue } : {}), effect: form.taintEffect } }] : [],
      removed: form.removed ? [form.removed] : [], gates: Object.entries(form.gates).filter(([, off]) => off).map(([name]) => `${name}=false`).join(','),
      configuration: form.profile === 'own' ? form.configuration : form.profile ? profile(form.profile) : '', again: form.again,
    };
  }

  async function run(event) {
    if (event) event.preventDefault();
    if (request) request.abort();
    request = new AbortController();
    isBusy = true; error = null; paint();
    try { answer = await api.ask('simulate', question(), request.signal); } catch (problem) { if (problem.name === 'AbortError') return; error = problem; }
    isBusy = false; paint();
  }

  const set = (name) => (event) => { form[name] = event.target.type === 'checkbox' ? event.target.checked : event.target.value; paint(); };
  const input = (title, name, props = {}) => h('label', { class: 'field' }, h('span', null, title), h('input', { value: String(form[name]), oninput: set(name), autocomplete: 'off', spellcheck: 'false', ...props }));
  const choice = (title, name, options) => h('label', { class: 'field' }, h('span', null, title), h('select', { value: form[name], onchange: set(name) }, options.map(([id, text]) => h('option', { value: id }, text))));

  function view() {
    return h('div', { class: 'split simulate' },
      h('section', { class: 'side', 'aria-label': 'Change' }, h('h1', null, 'Simulate'), h('p', { class: 'dim small' }, 'What would the scheduler do? Nothing is written to the cluster.'),
        h('form', { class: 'form', onsubmit: run },
          h('fieldset', null, h('legend', null, 'More replicas'), h('div', { class: 'three' }, input('Pods', 'replicas', { type: 'number', min: '0', max: '100000' }), input('CPU', 'cpu'), input('Memory', 'memory'))),
          h('fieldset', null, h('legend', null, 'Nodes'), h('div', { class: 'two' }, input('Add', 'addNodes', { type: 'number', min: '0', max: '1000' }), choice('like', 'like', nodes.map((it) => [it, it]))), choice('Remove', 'removed', [['', 'none'], ...nodes.map((it) => [it, it])])),
          h('fieldset', null, h('legend', null, 'Taint'), input('Nodes: a name, label=value, or *', 'taintNodes', { placeholder: 'pool=gpu' }), h('div', { class: 'two' }, input('Key', 'taintKey'), input('Value', 'taintValue')), choice('Effect', 'taintEffect', ['NoSchedule', 'PreferNoSchedule', 'NoExecute'].map((it) => [it, it]))),
          h('fieldset', null, h('legend', null, 'Scheduler'), choice('Profile', 'profile', PROFILES), form.profile === 'own' ? h('textarea', { class: 'code', rows: '10', spellcheck: 'false', 'aria-label': 'KubeSchedulerConfiguration', value: form.configuration, oninput: set('configuration') }) : null,
            h('p', { class: 'dim small' }, 'Turn gates off'), GATES.map((it) => h('label', { class: 'check' }, h('input', { type: 'checkbox', checked: !!form.gates[it], onchange: (event) => { form.gates[it] = event.target.checked; paint(); } }), h('span', { class: 'wrap' }, it)))),
          h('details', null, h('summary', null, 'More objects as YAML'), h('textarea', { class: 'code', rows: '8', spellcheck: 'false', 'aria-label': 'More objects', value: form.extra, oninput: set('extra') })),
          h('label', { class: 'check' }, h('input', { type: 'checkbox', checked: form.again, onchange: set('again') }), 'Place running pods again'),
          h('button', { class: 'button', type: 'submit', disabled: isBusy }, isBusy ? 'Simulating…' : 'Simulate'))),
      h('section', { class: 'detail', 'aria-label': 'Result', 'aria-busy': String(isBusy) }, error ? problem(error, () => run()) : null, answer ? result() : error ? null : isBusy ? h('p', { class: 'dim', role: 'status' }, 'Placing all pods twice…') : empty('Before and after, side by side', 'Describe a change and simulate it: you see what is placed, what moves, and what stays pending and why.')));
  }

  function result() {
    const { before, after } = answer;
    const place = (played) => new Map(played.placed.map((it) => [it.pod, it.node]));
    const [first, other] = [place(before), place(after)];
    const moves = [];
    for (const pod of new Set([...first.keys(), ...other.keys()])) {
      const [from, to] = [first.get(pod), other.get(pod)];
      if (from !== to && (from !== undefined || !isAdded(pod))) moves.push({ pod, from: from || 'pending', to: to || 'pending' });
    }
    const added = [...other.keys()].filter((pod) => !first.has(pod) && isAdded(pod));
    return [
      h('div', { class: 'two-cards' }, card('Before', before), card('After', after, before)),
      h('section', { class: 'panel flat' }, h('h2', null, 'Nodes'), nodeTable(before, after)),
      h('section', { class: 'panel flat' }, h('h2', null, 'What moves', h('span', { class: 'count' }, moves.length)), moves.length ? table(['Pod', 'Before', 'After'], moves.slice(0, SHOWN).map((it) => [it.pod, it.from, it.to])) : h('p', { class: 'dim' }, 'No pod of the cluster changes its place.'), moves.length > SHOWN ? h('p', { class: 'dim small' }, `and ${moves.length - SHOWN} more`) : null, added.length ? h('p', { class: 'dim small' }, `${added.length} added pods are placed.`) : null),
      h('section', { class: 'panel flat' }, h('h2', null, 'Pending after the change', h('span', { class: 'count' }, after.pending.length)), pending(after)),
      after.preempted.length ? h('section', { class: 'panel flat' }, h('h2', null, 'Preempted', h('span', { class: 'count' }, after.preempted.length)), table(['Pod', 'Node', 'Makes room for'], after.preempted.slice(0, SHOWN).map((it) => [it.pod, it.node, it.by]))) : null];
  }
  const isAdded = (pod) => pod.startsWith('default/what-if');

  function card(title, played, other) {
    const change = (now, then) => (other && now !== then ? h('span', { class: `delta ${now > then ? 'up' : 'down'}` }, `${now > then ? '+' : '−'}${Math.abs(now - then)}`) : null);
    return h('div', { class: 'panel' }, h('h2', null, title), h('dl', { class: 'facts' },
      h('div', null, h('dt', null, 'Placed'), h('dd', null, played.placed.length, change(played.placed.length, other?.placed.length))),
      h('div', null, h('dt', null, 'Pending'), h('dd', { class: played.pending.length ? 'bad-text' : '' }, played.pending.length, change(played.pending.length, other?.pending.length))),
      h('div', null, h('dt', null, 'Preempted'), h('dd', null, played.preempted.length)),
      h('div', null, h('dt', null, 'Nodes'), h('dd', null, played.nodes.length, change(played.nodes.length, other?.nodes.length)))));
  }

  function nodeTable(before, after) {
    const old = new Map(before.nodes.map((it) => [it.name, it]));
    const gone = before.nodes.filter((it) => !after.nodes.some((other) => other.name === it.name));
    const part = (it) => (it && it.allocatable ? it.used / it.allocatable : 0);
    const pair = (a, b) => h('td', null, h('span', { class: 'pair', 'aria-hidden': 'true' }, h('i', { class: 'was', style: { width: `${Math.round(100 * part(a))}%` } }), h('i', { class: 'is', style: { width: `${Math.round(100 * part(b))}%` } })), h('span', { class: 'small number' }, a ? `${Math.round(100 * part(a))} → ` : '', b ? `${Math.round(100 * part(b))} %` : 'gone'));
    return h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Nodes before and after' }, h('table', { class: 'grid' }, h('thead', null, h('tr', null, ['Node', 'CPU', 'Memory', 'Pods'].map((it) => h('th', { scope: 'col' }, it)))),
      h('tbody', null, [...after.nodes, ...gone.map((it) => ({ name: it.name, isGone: true }))].slice(0, SHOWN).map((it) => { const was = old.get(it.name); return h('tr', { key: it.name }, h('td', null, it.name, was ? null : h('span', { class: 'badge good' }, 'new'), it.isGone ? h('span', { class: 'badge bad' }, 'removed') : null), pair(was?.milliCPU, it.milliCPU), pair(was?.memoryBytes, it.memoryBytes), pair(was?.pods, it.pods)); }))));
  }

  function pending(played) {
    if (!played.pending.length) return h('p', { class: 'dim' }, 'Every pod has a node.');
    const reasons = new Map();
    for (const it of played.pending) reasons.set(it.message, [...(reasons.get(it.message) || []), it.pod]);
    return h('ul', { class: 'reasons' }, [...reasons].map(([message, all]) => h('li', null, h('p', null, h('b', null, `${all.length} ${all.length === 1 ? 'pod' : 'pods'}: `), all.slice(0, 6).join(', '), all.length > 6 ? ` and ${all.length - 6} more` : ''), h('p', { class: 'dim small' }, message), all.length === 1 && !isAdded(all[0]) ? h('p', { class: 'small' }, h('a', { href: link('why', ...all[0].split('/')) }, 'Why?')) : null)));
  }
  const table = (heads, rows) => h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': heads.join(', ') }, h('table', { class: 'grid' }, h('thead', null, h('tr', null, heads.map((it) => h('th', { scope: 'col' }, it)))), h('tbody', null, rows.map((row) => h('tr', null, row.map((it) => h('td', null, it)))))));

  paint();
  loadNodes();
  return { update: () => paint(), dispose: () => { stop.abort(); if (request) request.abort(); } };
}
