// Why pending: pods that wait, and for each of them every node with the verdict of every plugin.

import { h, render, badge, empty, problem, age, debounce } from './dom.js';
import * as api from './api.js';
import { drawDevices } from './devices.js';

const REFRESH_MS = 10000;
const NODES_SHOWN = 60;
const PODS_BY_NODE_MAX = 12;

export function whyPage(root, parts, { link, info }) {
  const stop = new AbortController();
  let pods = null;
  let listError = null;
  let namespace = null; // Set where the user may not list all namespaces.
  let selected = null; // { namespace, name } or { node }
  let report = null;
  let reportError = null;
  let isBusy = false;
  let openNode = null;
  let filter = '';
  let shown = NODES_SHOWN;
  let slices = null;
  let nodeNames = [];
  let byNode = null; // { node, rows, done, total }
  let request = null;
  let podFilter = '';

  const paint = () => { if (!stop.signal.aborted) render(root, view()); };
  const reask = debounce(250, () => ask());

  function start() {
    const path = namespace ? `/api/v1/namespaces/${namespace}/pods` : '/api/v1/pods';
    const listStop = new AbortController();
    stop.signal.addEventListener('abort', () => listStop.abort());
    api.follow({
      path, params: { fieldSelector: 'status.phase=Pending' }, signal: listStop.signal, limit: 500,
      onChange: (items) => {
        const before = versionOf(selected);
        pods = items.filter((pod) => !pod.spec.nodeName).sort((a, b) => keyOf(a).localeCompare(keyOf(b)));
        if (selected && selected.name && before !== versionOf(selected)) reask();
        if (!selected && pods.length && !parts.length && innerWidth > 800) choose({ namespace: pods[0].metadata.namespace, name: pods[0].metadata.name });
        paint();
      },
      onError: (error) => {
        if (error && error.status === 403 && !namespace && info()) { listStop.abort(); namespace = info().namespace; start(); return; }
        listError = error && error.reason === 'Offline' && pods ? null : error;
        paint();
      },
    });
  }
  const keyOf = (pod) => `${pod.metadata.namespace}/${pod.metadata.name}`;
  const versionOf = (it) => { const pod = it && it.name && pods && pods.find((pod) => keyOf(pod) === `${it.namespace}/${it.name}`); return pod ? pod.metadata.resourceVersion : ''; };

  function choose(next) {
    selected = next;
    report = null; reportError = null; openNode = null; shown = NODES_SHOWN; filter = ''; byNode = null;
    if (next && next.name) ask();
    else if (next && next.node) askNode();
    paint();
  }

  async function ask() {
    if (!selected || !selected.name) return;
    if (request) request.abort();
    const mine = request = new AbortController();
    const of = selected;
    isBusy = true; paint();
    try {
      const answer = await api.ask('why', of, mine.signal);
      if (selected !== of) return;
      report = answer; reportError = null;
      if (openNode === null && answer.nodes.length) openNode = answer.nodes[0].name;
      if (answer.nodes.some((node) => node.devices && node.devices.explained)) loadSlices();
    } catch (error) {
      if (error.name === 'AbortError' || selected !== of) return;
      // What was known stays on the page; the header shows that it reconnects.
      if (error.reason !== 'Offline' || !report) reportError = error;
    }
    isBusy = false;
    paint();
  }

  async function loadSlices() {
    try { slices = (await api.read('/apis/resource.k8s.io/v1/resourceslices', { limit: 500 }, stop.signal)).items; paint(); } catch { /* Devices are then listed without their places. */ }
  }

  async function askNode() {
    const node = selected.node;
    const of = selected;
    const all = (pods || []).slice(0, PODS_BY_NODE_MAX);
    byNode = { node, rows: [], total: all.length, left: Math.max(0, (pods || []).length - all.length) };
    for (const pod of all) {
      let row;
      try {
        const answer = await api.ask('why', { namespace: pod.metadata.namespace, name: pod.metadata.name }, stop.signal);
        row = { pod, verdict: answer.nodes.find((it) => it.name === node) };
      } catch (error) {
        if (error.name === 'AbortError') return;
        row = { pod, error };
      }
      if (selected !== of) return;
      byNode.rows.push(row);
      paint();
    }
  }

  async function loadNodes() {
    try {
      const table = await api.readTable('/api/v1/nodes', { limit: 500 }, stop.signal);
      nodeNames = table.rows.map((row) => row.object.metadata.name);
      paint();
    } catch { /* The choice of a node is then not offered. */ }
  }

  function view() {
    const isDetail = selected !== null;
    return h('div', { class: `split ${isDetail ? 'has-detail' : ''}` },
      h('section', { class: 'side', 'aria-label': 'Pending pods' }, sideView()),
      h('section', { class: 'detail', 'aria-label': 'Explanation', 'aria-busy': isBusy ? 'true' : 'false' }, selected ? (selected.node ? nodeView() : podView()) : nothingView()));
  }

  function sideView() {
    const all = pods || [];
    const found = podFilter ? all.filter((pod) => keyOf(pod).includes(podFilter)) : all;
    return [
      h('h1', null, 'Why pending', pods ? h('span', { class: 'count' }, all.length) : null),
      namespace ? h('p', { class: 'note' }, `Namespace ${namespace}: you may not list pods of all namespaces.`) : null,
      all.length > 8 ? h('input', { type: 'search', placeholder: 'Filter pods', 'aria-label': 'Filter pods', value: podFilter, oninput: (event) => { podFilter = event.target.value; paint(); } }) : null,
      listError ? problem(listError) : null,
      !pods && !listError ? h('p', { class: 'dim' }, 'Reading pods…') : null,
      pods && !all.length ? empty('No pod is pending', 'Every pod has a node. Pods appear here the moment the scheduler cannot place them.') : null,
      h('ul', { class: 'cards' }, found.slice(0, 300).map(podCard)),
      found.length > 300 ? h('p', { class: 'dim' }, `${found.length - 300} more: use the filter.`) : null,
      nodeNames.length ? h('label', { class: 'field' }, h('span', null, 'Or choose a node: which pods does it keep away?'),
        h('select', { value: (selected && selected.node) || '', onchange: (event) => { if (event.target.value) location.hash = link('why', 'node', event.target.value); } },
          h('option', { value: '' }, 'Choose a node'), nodeNames.map((name) => h('option', { value: name }, name)))) : null,
    ];
  }

  function podCard(pod) {
    const condition = (pod.status.conditions || []).find((it) => it.type === 'PodScheduled' && it.status === 'False');
    const isCurrent = selected && selected.name === pod.metadata.name && selected.namespace === pod.metadata.namespace;
    const gates = (pod.spec.schedulingGates || []).length;
    return h('li', { key: pod.metadata.uid },
      h('a', { class: 'card', href: link('why', pod.metadata.namespace, pod.metadata.name), 'aria-current': isCurrent ? 'true' : undefined },
        h('span', { class: 'card-title' }, pod.metadata.name, h('span', { class: 'dim' }, age(pod.metadata.creationTimestamp))),
        h('span', { class: 'dim small' }, pod.metadata.namespace),
        h('span', { class: 'small clamp' }, gates ? 'Held by a scheduling gate' : condition ? condition.message || condition.reason : 'Not tried yet')));
  }

  const nothingView = () => (pods && !pods.length ? empty('Nothing to explain', 'When a pod stays pending, this page shows each node with the verdict of each plugin, and the change that would help.') : empty('Choose a pod', 'Every node, every plugin, and the single change that would let the pod run.'));

  const back = () => h('a', { class: 'back', href: link('why') }, '← All pending pods');

  function podView() {
    const title = [back(), h('header', { class: 'title' },
      h('div', null, h('p', { class: 'dim small' }, `Pod in ${selected.namespace}`), h(innerWidth > 800 ? 'h2' : 'h1', null, selected.name)),
      h('div', { class: 'actions' },
        h('a', { class: 'button quiet', href: link('resources', 'v1', 'pods', selected.namespace, selected.name) }, 'Open pod'),
        h('button', { class: 'button quiet', onclick: ask, disabled: isBusy }, isBusy ? 'Checking…' : 'Check again')))];
    if (reportError) return [title, problem(reportError, ask)];
    if (!report) return [title, h('div', { class: 'skeleton', 'aria-hidden': 'true' }, h('div'), h('div'), h('div')), h('p', { class: 'dim', role: 'status' }, 'Asking every plugin about every node…')];
    const fits = report.fittingCount > 0;
    return [title,
      h('div', { class: `verdict ${fits ? 'good' : 'bad'}` },
        h('p', { class: 'verdict-big' }, report.runsOn ? `Runs on ${report.runsOn}` : fits ? `${report.fittingCount} of ${report.nodeCount} nodes fit` : `No node fits`, fits ? '' : h('span', { class: 'dim' }, ` 0 of ${report.nodeCount}`)),
        report.gate ? h('p', null, report.gate.reasons.join(', ')) : null,
        report.refused ? h('p', null, report.refused.reasons.join(', ')) : null,
        report.message ? h('p', { class: 'small' }, report.message) : null),
      report.remedies && report.remedies.length ? h('div', { class: 'panel remedy' },
        h('h3', null, report.remedies.length > 1 ? 'Any one of these changes would help' : 'One change would help'),
        h('ul', null, report.remedies.slice(0, 8).map((it) => h('li', null, it))),
        report.remedies.length > 8 ? h('p', { class: 'dim small' }, `and ${report.remedies.length - 8} more`) : null) : null,
      report.preemption ? h('div', { class: 'panel' }, h('h3', null, 'Preemption'),
        h('p', null, `The scheduler would make room on ${report.preemption.node} by ending `, report.preemption.victims.map((it, index) => [index ? ', ' : '', h('code', null, it)]), '.')) : null,
      (report.failures || []).length ? h('div', { class: 'panel warn' }, h('h3', null, 'Expressions that failed'), h('ul', null, report.failures.map((it) => h('li', null, it)))) : null,
      h('div', { class: 'nodes-head' }, h('h3', null, 'Nodes'),
        report.nodeCount > 8 ? h('input', { type: 'search', placeholder: 'Filter by name or reason', 'aria-label': 'Filter nodes', value: filter, oninput: (event) => { filter = event.target.value; shown = NODES_SHOWN; paint(); } }) : null,
        h('p', { class: 'legend small dim' }, h('i', { class: 'dot pass' }), 'passes ', h('i', { class: 'dot fail' }), 'keeps the pod away')),
      nodesView()];
  }

  const reasonsOf = (node) => node.plugins.filter((it) => !it.passes).map((it) => `${it.plugin}: ${(it.reasons || []).join(', ')}`).join('; ');

  function nodesView() {
    const nodes = filter ? report.nodes.filter((node) => node.name.includes(filter) || reasonsOf(node).toLowerCase().includes(filter.toLowerCase())) : report.nodes;
    if (!report.nodes.length) return empty('There are no nodes', 'A pod needs a node. Add one, or check that you may list nodes.');
    return [
      h('ul', { class: 'rows' }, nodes.slice(0, shown).map(nodeRow)),
      nodes.length > shown ? h('button', { class: 'button quiet', onclick: () => { shown += 200; paint(); } }, `Show more of ${nodes.length} nodes`) : null,
      filter && !nodes.length ? empty('No node matches the filter') : null];
  }

  function nodeRow(node) {
    const isOpen = openNode === node.name;
    const failing = node.plugins.filter((it) => !it.passes);
    return h('li', { key: node.name, class: `row ${isOpen ? 'open' : ''}` },
      h('button', { class: 'row-head', 'aria-expanded': String(isOpen), onclick: () => { openNode = isOpen ? '' : node.name; paint(); } },
        h('span', { class: `mark ${node.fits ? 'pass' : 'fail'}`, 'aria-hidden': 'true' }, node.fits ? '✓' : '✕'),
        h('span', { class: 'row-name' }, node.name, h('span', { class: 'sr' }, node.fits ? ', fits' : ', does not fit')),
        h('span', { class: 'row-why small' }, node.fits ? (node.score !== null && node.score !== undefined ? `Score ${node.score}` : 'Fits') : failing.map((it) => h('span', { class: 'why-part' }, h('b', null, it.plugin), ' ', (it.reasons || []).join(', ')))),
        h('span', { class: 'dots', 'aria-hidden': 'true' }, node.isShort ? null : node.plugins.map((it) => h('i', { class: `dot ${it.passes ? 'pass' : 'fail'}`, title: it.plugin })))),
      isOpen ? h('div', { class: 'row-body' }, nodeDetail(node)) : null);
  }

  function nodeDetail(node) {
    if (node.isShort) return h('p', { class: 'dim' }, 'Details are shown for the 200 nodes that come closest. For this node: ', h('code', null, `celplane why ${selected.name} -n ${selected.namespace} --node ${node.name}`));
    const parts = [];
    parts.push(h('div', { class: 'plugins' }, node.plugins.map((it) => h('div', { class: `plugin ${it.passes ? 'pass' : 'fail'}` },
      h('span', null, it.passes ? '✓' : '✕'), h('span', null, it.plugin), it.passes ? null : h('span', { class: 'small' }, (it.reasons || []).join(', '))))));
    if (node.unschedulable) parts.push(h('p', { class: 'fact' }, badge('bad', 'cordoned'), ' The node is marked unschedulable.'));
    if ((node.taints || []).length) parts.push(section('Taints', node.taints.map(taintView)));
    if ((node.nodeSelector || []).length) parts.push(section('Node selector', node.nodeSelector.map((it) => reasonView(it))));
    if (node.nodeAffinity && node.nodeAffinity.terms.length) parts.push(section('Node affinity (one term must match)', node.nodeAffinity.terms.map(termView)));
    if (node.preferred && node.preferred.terms.length) parts.push(section('Preferred terms', node.preferred.terms.map(termView)));
    if ((node.volumes || []).length) parts.push(section('Volumes', node.volumes.map((it) => h('div', { class: 'reason' }, mark(it.holds), h('div', null, h('code', null, it.claim), it.volume ? ` → ${it.volume}` : '', it.detail ? h('p', { class: 'dim small' }, it.detail) : null, it.terms.map(termView))))));
    if (node.devices && (node.devices.problem || node.devices.explained)) parts.push(section('Devices', drawDevices(node.name, node.devices, slices)));
    if (node.fits && node.scores.length) parts.push(section('Scores', scoresView(node)));
    parts.push(h('p', { class: 'small' }, h('a', { href: link('why', 'node', node.name) }, `Which pods does ${node.name} keep away?`), ' · ', h('a', { href: link('resources', 'v1', 'nodes', '-', node.name) }, 'Open node')));
    return parts;
  }

  const section = (title, body) => h('section', { class: 'part' }, h('h4', null, title), body);
  const mark = (holds) => h('span', { class: `mark ${holds ? 'pass' : 'fail'}` }, h('span', { class: 'sr' }, holds ? 'holds' : 'does not hold'), h('span', { 'aria-hidden': 'true' }, holds ? '✓' : '✕'));

  function taintView(taint) {
    const text = `${taint.key}${taint.value ? `=${taint.value}` : ''}:${taint.effect}`;
    const by = taint.toleratedBy;
    const isSoft = taint.effect === 'PreferNoSchedule';
    return h('div', { class: 'reason' }, mark(!taint.rejects), h('div', { class: 'grow' },
      h('p', null, h('code', { class: taint.rejects ? 'bad' : '' }, text), ' ',
        by !== null && by !== undefined ? h('span', { class: 'dim small' }, `tolerated by toleration ${by}`) : isSoft ? h('span', { class: 'dim small' }, 'only lowers the score') : h('span', { class: 'dim small' }, taint.tolerations.length ? 'no toleration matches' : 'the pod has no tolerations')),
      taint.tolerations.map((it, index) => (by === null || by === undefined || by === index ? reasonView(it, `${index}`) : null))));
  }

  function termView(term) {
    return h('div', { class: 'reason' }, mark(term.matches), h('div', { class: 'grow' },
      h('p', { class: 'dim small' }, `Term ${term.index}`, term.weight !== null && term.weight !== undefined ? `, weight ${term.weight}` : ''), term.parts.map((it) => reasonView(it))));
  }

  function reasonView(reason, index) {
    return h('div', { class: 'reason inner' }, mark(reason.holds), h('div', { class: 'grow' },
      h('p', null, index !== undefined ? h('span', { class: 'dim small' }, `${index} `) : null, h('code', null, reason.what)),
      reason.detail ? h('p', { class: 'small dim' }, reason.detail) : null,
      reason.evaluation ? stepsView(reason.evaluation) : null));
  }

  function stepsView(evaluation) {
    return h('table', { class: 'steps' }, h('caption', { class: 'sr' }, 'Values of sub-expressions'),
      h('thead', null, h('tr', null, h('th', { scope: 'col' }, 'Sub-expression'), h('th', { scope: 'col' }, 'Value'), h('th', { scope: 'col', class: 'number' }, 'Cost'))),
      h('tbody', null, evaluation.steps.map((step) => h('tr', null, h('td', null, h('code', null, step.text)),
        h('td', null, step.error !== undefined ? h('span', { class: 'bad-text' }, step.error) : h('code', { class: `v-${step.value}` }, String(step.value))), h('td', { class: 'number' }, step.cost))),
        evaluation.omittedSteps ? h('tr', null, h('td', { colspan: '3', class: 'dim' }, `${evaluation.omittedSteps} more steps`)) : null));
  }

  function scoresView(node) {
    const best = Math.max(1, ...node.scores.map((it) => it.normalized * it.weight));
    return h('div', { class: 'bars' }, node.scores.map((it) => h('div', { class: 'bar-row' }, h('span', null, it.plugin),
      h('span', { class: 'bar', 'aria-hidden': 'true' }, h('i', { style: { width: `${Math.round((100 * it.normalized * it.weight) / best)}%` } })),
      h('span', { class: 'number small' }, `${it.normalized} × ${it.weight}`))));
  }

  function nodeView() {
    const head = [back(), h('header', { class: 'title' }, h('div', null, h('p', { class: 'dim small' }, 'Node'), h(innerWidth > 800 ? 'h2' : 'h1', null, selected.node)),
      h('div', { class: 'actions' }, h('a', { class: 'button quiet', href: link('resources', 'v1', 'nodes', '-', selected.node) }, 'Open node')))];
    if (!byNode) return head;
    if (!byNode.total) return [head, empty('No pod is pending', 'This node keeps nobody away.')];
    return [head, h('p', { class: 'dim', role: 'status' }, byNode.rows.length < byNode.total ? `Checked ${byNode.rows.length} of ${byNode.total} pending pods…` : `${byNode.rows.filter((it) => it.verdict && !it.verdict.fits).length} of ${byNode.total} pending pods are kept away by this node.`, byNode.left ? ` ${byNode.left} more pods are not checked.` : ''),
      h('ul', { class: 'rows' }, byNode.rows.map((row) => {
        const failing = row.verdict ? row.verdict.plugins.filter((it) => !it.passes) : [];
        return h('li', { class: 'row' }, h('a', { class: 'row-head', href: link('why', row.pod.metadata.namespace, row.pod.metadata.name) },
          h('span', { class: `mark ${row.verdict && row.verdict.fits ? 'pass' : 'fail'}` }, row.verdict && row.verdict.fits ? '✓' : '✕'),
          h('span', { class: 'row-name' }, keyOf(row.pod)),
          h('span', { class: 'row-why small' }, row.error ? row.error.message : !row.verdict ? 'the node is gone' : row.verdict.fits ? 'Fits' : failing.map((it) => h('span', { class: 'why-part' }, h('b', null, it.plugin), ' ', (it.reasons || []).join(', '))))));
      }))];
  }

  const update = (next) => {
    parts = next;
    if (next[0] === 'node' && next[1]) { if (!selected || selected.node !== next[1]) choose({ node: next[1] }); }
    else if (next.length >= 2) { if (!selected || selected.name !== next[1] || selected.namespace !== next[0]) choose({ namespace: next[0], name: next[1] }); }
    else if (selected) choose(null);
    else paint();
  };
  const timer = setInterval(() => { if (!document.hidden && selected && selected.name && !isBusy) ask(); }, REFRESH_MS);
  update(parts);
  start();
  loadNodes();
  return { update, dispose: () => { clearInterval(timer); reask.cancel(); stop.abort(); if (request) request.abort(); } };
}
