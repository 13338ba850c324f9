// Cluster map: every node as a tile on a canvas, filled by what its pods request, live by one stream; a list beside it says the same.

import { h, render, empty, problem, debounce } from './dom.js';
import * as api from './api.js';

const ZONE = 'topology.kubernetes.io/zone';
const LIST_MAX = 150;
const PODS_SHOWN = 60;
const METRICS = [['cpu', 'CPU requested'], ['memory', 'Memory requested'], ['pods', 'Pods'], ['devices', 'Devices allocated']];
const USED = [['cpuUsed', 'CPU used'], ['memoryUsed', 'Memory used']];

export function mapPage(root, parts, { link }) {
  const stop = new AbortController();
  const nodes = new Map();
  const pods = new Map();
  let isSynced = false;
  let error = null;
  let metric = 'cpu';
  let groupBy = null;
  let search = '';
  let labelFilter = '';
  let namespace = '';
  let cel = '';
  let celPlace = 'affinity';
  let matches = null; // A set of names, or null.
  let celError = '';
  let selected = null;
  let hasUsage = false;
  let canvas = null;
  let context = null;
  let holder = null;
  let groups = [];
  let needsLayout = true;
  let isScheduled = false;
  const dirty = new Set();
  const colors = {};
  const started = performance.now();
  let unplaced = 0;

  // What a paint needs of all objects is kept up to date, not computed: paints follow changes.
  const spaces = new Map();
  let sorted = null;
  let keys = null;
  const sortedNodes = () => (sorted ||= [...nodes.values()].sort(byName));
  const labelKeys = () => {
    if (keys) return keys;
    const found = new Set();
    for (const node of nodes.values()) for (const key of Object.keys(node.labels)) found.add(key);
    found.delete('kubernetes.io/hostname');
    keys = [...found].sort();
    return keys;
  };
  const namespaces = () => [...spaces.keys()].sort();

  function putNode([name, cpu, memory, podsMax, isReady, isCordoned, labels, taints]) {
    const old = nodes.get(name);
    const node = old || { name, pods: new Map(), used: { cpu: 0, memory: 0 } };
    if (!old || Object.keys(old.labels).length !== Object.keys(labels).length) keys = null;
    if (!old) {
      nodes.set(name, node);
      sorted = null;
      needsLayout = true;
      for (const [key, pod] of pods) if (pod.node === name) addTo(node, key, pod);
    } else if (groupBy && (old.labels[groupBy] || '') !== (labels[groupBy] || '')) needsLayout = true;
    Object.assign(node, { cpu, memory, podsMax, isReady, isCordoned, labels, taints });
    dirty.add(node);
  }
  const counts = (pod) => pod.phase !== 'Succeeded' && pod.phase !== 'Failed';
  function addTo(node, key, pod) { node.pods.set(key, pod); if (counts(pod)) { node.used.cpu += pod.cpu; node.used.memory += pod.memory; } dirty.add(node); }
  function takeFrom(node, key, pod) { if (node.pods.delete(key) && counts(pod)) { node.used.cpu -= pod.cpu; node.used.memory -= pod.memory; } dirty.add(node); }
  function putPod([space, name, node, cpu, memory, phase]) {
    const key = `${space}/${name}`;
    dropPod(key);
    const pod = { namespace: space, name, node, cpu, memory, phase };
    pods.set(key, pod);
    spaces.set(space, (spaces.get(space) || 0) + 1);
    if (!node) unplaced += 1;
    const at = nodes.get(node);
    if (at) addTo(at, key, pod);
  }
  function dropPod(key) {
    const pod = pods.get(key);
    if (!pod) return;
    pods.delete(key);
    if (spaces.get(pod.namespace) > 1) spaces.set(pod.namespace, spaces.get(pod.namespace) - 1); else spaces.delete(pod.namespace);
    if (!pod.node) unplaced -= 1;
    const at = nodes.get(pod.node);
    if (at) takeFrom(at, key, pod);
  }

  async function run() {
    let wait = 500;
    while (!stop.signal.aborted) {
      try {
        let isFresh = true;
        await api.lines('/c/map', {}, (line) => {
          if (isFresh) { isFresh = false; nodes.clear(); pods.clear(); spaces.clear(); sorted = null; keys = null; unplaced = 0; isSynced = false; needsLayout = true; }
          (line.nodes || []).forEach(putNode);
          (line.pods || []).forEach(putPod);
          if (line.gone) {
            for (const name of line.gone.nodes || []) { if (nodes.delete(name)) { needsLayout = true; sorted = null; } }
            (line.gone.pods || []).forEach(dropPod);
          }
          if (line.synced) {
            isSynced = true; error = null; wait = 500;
            if (groupBy === null) groupBy = [...nodes.values()].some((it) => it.labels[ZONE]) ? ZONE : '';
            paint();
            if (holder && !holder.dataset.firstPicture) requestAnimationFrame(() => { holder.dataset.firstPicture = String(Math.round(performance.now() - started)); });
          } else paintSoon();
          schedule();
        }, stop.signal);
      } catch (problem) {
        if (problem.name === 'AbortError' || problem.status === 401) return;
        error = problem.reason === 'Offline' && isSynced ? null : problem;
        paint();
      }
      try { await api.pause(wait, stop.signal); } catch { return; }
      wait = Math.min(wait * 2, 10000);
    }
  }

  async function loadUsage() {
    try {
      const groups = (await api.read('/apis', {}, stop.signal)).groups || [];
      if (!groups.some((it) => it.name === 'metrics.k8s.io')) return;
      const list = await api.read('/apis/metrics.k8s.io/v1beta1/nodes', {}, stop.signal);
      for (const it of list.items) { const node = nodes.get(it.metadata.name); if (node) { node.usage = { cpu: milli(it.usage.cpu), memory: bytes(it.usage.memory) }; dirty.add(node); } }
      hasUsage = list.items.length > 0;
      paint(); schedule();
    } catch { hasUsage = false; }
  }
  async function loadDevices() {
    try {
      const slices = (await api.read('/apis/resource.k8s.io/v1/resourceslices', { limit: 10000 }, stop.signal)).items;
      const claims = (await api.read('/apis/resource.k8s.io/v1/resourceclaims', { limit: 10000 }, stop.signal)).items;
      const owner = new Map();
      for (const node of nodes.values()) node.devices = { total: 0, used: 0 };
      for (const slice of slices) { const node = nodes.get(slice.spec.nodeName); if (node) { node.devices.total += (slice.spec.devices || []).length; owner.set(`${slice.spec.driver}/${slice.spec.pool.name}`, node); } }
      for (const claim of claims) for (const it of claim.status?.allocation?.devices?.results || []) { const node = owner.get(`${it.driver}/${it.pool}`); if (node) node.devices.used += 1; }
      needsLayout = true; paint(); schedule();
    } catch (problem) { if (problem.name !== 'AbortError') { celError = `Devices: ${problem.message}`; paint(); } }
  }

  const highlight = debounce(150, async () => {
    if (!cel.trim()) { matches = null; celError = ''; redraw(); paint(); return; }
    try {
      const answer = await api.ask('match', { expression: cel, place: celPlace }, stop.signal);
      if (answer.errors) { celError = answer.errors[0].message; } else { matches = new Set(answer.names); celError = answer.failure ? `On some nodes: ${answer.failure}` : ''; }
    } catch (problem) { if (problem.name === 'AbortError') return; celError = problem.message; }
    redraw(); paint();
  });

  function isShown(node) {
    if (search && !node.name.includes(search)) return false;
    if (labelFilter) { const [key, value] = labelFilter.split('='); if (!(key in node.labels) || (value !== undefined && node.labels[key] !== value)) return false; }
    if (namespace && ![...node.pods.values()].some((it) => it.namespace === namespace)) return false;
    return true;
  }
  const isMatch = (node) => isShown(node) && (!matches || matches.has(node.name));
  const isFiltered = () => !!(search || labelFilter || namespace || matches);

  function share(node) {
    if (metric === 'cpu') return node.cpu ? node.used.cpu / node.cpu : 0;
    if (metric === 'memory') return node.memory ? node.used.memory / node.memory : 0;
    if (metric === 'pods') return node.podsMax ? node.pods.size / node.podsMax : 0;
    if (metric === 'devices') return node.devices && node.devices.total ? node.devices.used / node.devices.total : 0;
    if (metric === 'cpuUsed') return node.usage && node.cpu ? node.usage.cpu / node.cpu : 0;
    return node.usage && node.memory ? node.usage.memory / node.memory : 0;
  }

  // Drawing.
  function readColors() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ['panel', 'line', 'line-strong', 'text', 'dim', 'accent', 'good', 'bad', 'wait', 'code', 'bg']) colors[name] = style.getPropertyValue(`--${name}`).trim();
  }
  function sizes() {
    const count = nodes.size;
    if (count <= 24) return { w: 150, h: 96, gap: 10 };
    if (count <= 120) return { w: 92, h: 64, gap: 7 };
    if (count <= 800) return { w: 44, h: 34, gap: 4 };
    return { w: 17, h: 15, gap: 2 };
  }
  function layout() {
    needsLayout = false;
    const byGroup = new Map();
    for (const node of sortedNodes()) { const key = groupBy ? node.labels[groupBy] ?? '(none)' : ''; if (!byGroup.has(key)) byGroup.set(key, []); byGroup.get(key).push(node); }
    const { w: least, h: height, gap } = sizes();
    const width = Math.max(220, holder.clientWidth);
    const columns = Math.max(1, Math.floor((width + gap) / (least + gap)));
    // Tiles share what is left of a row.
    const w = Math.floor((width - gap * (columns - 1)) / columns);
    let y = 0;
    groups = [];
    for (const key of [...byGroup.keys()].sort()) {
      const all = byGroup.get(key);
      const top = groupBy ? y + 24 : y;
      all.forEach((node, at) => { node.x = (at % columns) * (w + gap); node.y = top + Math.floor(at / columns) * (height + gap); node.w = w; node.h = height; });
      groups.push({ key, y, count: all.length });
      y = top + Math.ceil(all.length / columns) * (height + gap) + 12;
    }
    const ratio = Math.min(2, devicePixelRatio || 1);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(Math.max(40, y) * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${Math.max(40, y)}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = colors.bg;
    context.fillRect(0, 0, width, y);
    context.font = '600 13px system-ui, sans-serif';
    context.textBaseline = 'top';
    for (const group of groups) if (groupBy) { context.fillStyle = colors.text; context.fillText(String(group.key), 0, group.y + 3); context.fillStyle = colors.dim; context.fillText(`${group.count}`, context.measureText(String(group.key)).width + 10, group.y + 3); }
    for (const node of nodes.values()) drawNode(node);
    dirty.clear();
  }
  function drawNode(node) {
    const { x, y, w, h: height } = node;
    if (x === undefined) return;
    const c = context;
    const isOn = isMatch(node);
    c.fillStyle = colors.bg;
    c.fillRect(x - 1, y - 1, w + 2, height + 2);
    c.globalAlpha = isOn ? 1 : 0.28;
    c.fillStyle = colors.panel;
    c.fillRect(x, y, w, height);
    const part = Math.max(0, Math.min(1, share(node)));
    const filled = Math.round((height - 2) * part);
    c.fillStyle = part >= 0.9 ? colors.bad : part >= 0.7 ? colors.wait : colors.accent;
    c.globalAlpha *= 0.32;
    c.fillRect(x + 1, y + height - 1 - filled, w - 2, filled);
    c.globalAlpha = isOn ? 1 : 0.28;
    if (w >= 44) drawPods(node, c);
    if (node.taints.length) { c.fillStyle = colors.wait; const size = w > 40 ? 11 : 6; c.beginPath(); c.moveTo(x + w, y); c.lineTo(x + w - size, y); c.lineTo(x + w, y + size); c.fill(); }
    c.lineWidth = 1;
    c.strokeStyle = node.isReady ? colors['line-strong'] : colors.bad;
    if (node.isCordoned) c.setLineDash([3, 2]);
    c.strokeRect(x + 0.5, y + 0.5, w - 1, height - 1);
    c.setLineDash([]);
    if (w >= 92) {
      c.fillStyle = colors.text;
      c.font = '600 12px system-ui, sans-serif';
      c.fillText(clip(c, node.name, w - 24), x + 7, y + 6);
      if (w >= 150) { c.fillStyle = colors.dim; c.font = '11px system-ui, sans-serif'; c.fillText(`${Math.round(part * 100)} %  ${node.pods.size} pods`, x + 7, y + 22); }
    }
    if (isOn && isFiltered() || node.name === selected) { c.lineWidth = 2; c.strokeStyle = colors.accent; c.strokeRect(x, y, w, height); }
    c.globalAlpha = 1;
  }
  function drawPods(node, c) {
    const size = node.w >= 92 ? 7 : 4;
    const step = size + 2;
    const left = node.x + (node.w >= 92 ? 7 : 4);
    const columns = Math.max(1, Math.floor((node.w - (node.w >= 92 ? 14 : 8)) / step));
    const rows = Math.max(1, Math.floor((node.h - (node.w >= 150 ? 44 : node.w >= 92 ? 28 : 8)) / step));
    let at = 0;
    for (const pod of node.pods.values()) {
      if (at >= columns * rows) break;
      const isOther = namespace && pod.namespace !== namespace;
      c.fillStyle = isOther ? colors['line-strong'] : pod.phase === 'Running' ? colors.good : pod.phase === 'Failed' ? colors.bad : pod.phase === 'Succeeded' ? colors.dim : colors.wait;
      c.fillRect(left + (at % columns) * step, node.y + node.h - 5 - size - Math.floor(at / columns) * step, size, size);
      at += 1;
    }
  }
  function clip(c, text, width) { if (c.measureText(text).width <= width) return text; let end = text.length; while (end > 1 && c.measureText(text.slice(0, end) + '…').width > width) end -= 1; return text.slice(0, end) + '…'; }

  function schedule() { if (!isScheduled && !stop.signal.aborted) { isScheduled = true; requestAnimationFrame(frame); } }
  function redraw() { for (const node of nodes.values()) dirty.add(node); schedule(); }
  function frame() {
    isScheduled = false;
    if (!canvas || !holder) return;
    const before = performance.now();
    if (needsLayout) layout(); else for (const node of dirty) drawNode(node);
    dirty.clear();
    const took = performance.now() - before;
    // Read by the measurement of docs/console.md.
    holder.dataset.frames = String(Number(holder.dataset.frames || 0) + 1);
    holder.dataset.frameMax = String(Math.max(Number(holder.dataset.frameMax || 0), Math.round(took * 10) / 10));
  }

  function hit(event) {
    const box = canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    for (const node of nodes.values()) if (x >= node.x && x < node.x + node.w && y >= node.y && y < node.y + node.h) return node;
    return null;
  }
  function choose(name) { const old = nodes.get(selected); selected = name; if (old) dirty.add(old); const next = nodes.get(name); if (next) dirty.add(next); schedule(); paint(); }
  function canvasKeys(event) {
    const at = nodes.get(selected);
    const all = [...nodes.values()];
    if (event.key === 'Enter' && at) { location.hash = link('resources', 'v1', 'nodes', '-', at.name); return; }
    if (!event.key.startsWith('Arrow') || !all.length) return;
    event.preventDefault();
    if (!at) { choose(all.sort((a, b) => a.y - b.y || a.x - b.x)[0].name); return; }
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    let best = null;
    for (const node of all) {
      const x = node.x - at.x;
      const y = node.y - at.y;
      if (node === at || (dx ? Math.sign(x) !== dx || Math.abs(y) > 2 : Math.sign(y) !== dy)) continue;
      const distance = Math.abs(x) * (dx ? 1 : 3) + Math.abs(y) * (dy ? 1 : 3);
      if (!best || distance < best.distance) best = { node, distance };
    }
    if (best) choose(best.node.name);
  }

  const paint = () => { if (!stop.signal.aborted) { render(root, view()); schedule(); } };
  let soon = 0;
  const paintSoon = () => { if (!soon) soon = setTimeout(() => { soon = 0; paint(); }, 500); };

  function view() {
    const all = sortedNodes();
    const found = isFiltered() ? all.filter(isMatch) : all;
    const percent = (node) => `${Math.round(share(node) * 100)} %`;
    return h('div', { class: 'map pad' },
      h('header', { class: 'title' }, h('div', null, h('h1', null, 'Cluster map'), h('p', { class: 'dim small', role: 'status' }, isSynced ? `${all.length.toLocaleString('en')} nodes, ${pods.size.toLocaleString('en')} pods${unplaced ? `, ${unplaced.toLocaleString('en')} without a node` : ''}${isFiltered() ? `; ${found.length.toLocaleString('en')} nodes match` : ''}` : `Reading nodes and pods: ${all.length.toLocaleString('en')} and ${pods.size.toLocaleString('en')} so far…`))),
      h('div', { class: 'filters' },
        choice('Fill', metric, [...METRICS, ...(hasUsage ? USED : [])], (value) => { metric = value; if (value === 'devices') loadDevices(); redraw(); paint(); }),
        choice('Group', groupBy || '', [['', 'None'], ...labelKeys().map((it) => [it, it])], (value) => { groupBy = value; needsLayout = true; paint(); }),
        choice('Namespace', namespace, [['', 'All'], ...namespaces().map((it) => [it, it])], (value) => { namespace = value; redraw(); paint(); }),
        field('Name', search, 'node-1', (value) => { search = value; redraw(); paint(); }),
        field('Label', labelFilter, 'pool=gpu', (value) => { labelFilter = value.trim(); redraw(); paint(); })),
      h('div', { class: 'filters' },
        choice('CEL over', celPlace, [['affinity', 'labels'], ['toleration', 'taints']], (value) => { celPlace = value; matches = null; highlight(); paint(); }),
        h('label', { class: 'field inline wide' }, h('span', { class: 'sr' }, 'Expression'), h('input', { class: 'mono', spellcheck: 'false', autocomplete: 'off', value: cel, 'aria-label': 'Expression', 'aria-invalid': String(!!celError), placeholder: celPlace === 'affinity' ? "node.labels['pool'] == 'gpu'" : "taint.key.startsWith('gpu')", oninput: (event) => { cel = event.target.value; highlight(); } })),
        celError ? h('span', { class: 'bad-text small', role: 'status' }, celError) : null),
      error ? problem(error) : null,
      isSynced && !all.length ? empty('There are no nodes', 'Nodes appear here when they join the cluster.') : null,
      h('div', { class: 'map-grid', key: 'grid' },
        h('div', { class: 'map-holder', key: 'holder', opaque: true, onmount: mount }),
        h('aside', { class: 'map-side', 'aria-label': 'Nodes' }, selected && nodes.get(selected) ? nodeCard(nodes.get(selected)) : null,
          h('h2', null, 'Nodes', h('span', { class: 'count' }, found.length)),
          h('ul', { class: 'map-list' }, found.slice(0, LIST_MAX).map((node) => h('li', { key: node.name }, h('button', { 'aria-pressed': String(node.name === selected), onclick: () => choose(node.name) }, h('span', null, node.name), node.taints.length ? h('span', { class: 'badge wait', title: node.taints.map((it) => it.key).join(', ') }, 'tainted') : null, node.isReady ? null : h('span', { class: 'badge bad' }, 'not ready'), h('span', { class: 'dim small number' }, percent(node)))))),
          found.length > LIST_MAX ? h('p', { class: 'dim small' }, `${found.length - LIST_MAX} more: use the filters.`) : null)));
  }
  const choice = (title, value, options, change) => h('label', { class: 'field inline' }, h('span', null, title), h('select', { value, onchange: (event) => change(event.target.value) }, options.map(([id, text]) => h('option', { value: id }, text))));
  const field = (title, value, placeholder, change) => h('label', { class: 'field inline' }, h('span', null, title), h('input', { type: 'search', value, placeholder, oninput: (event) => change(event.target.value) }));

  function nodeCard(node) {
    const line = (title, used, total, text) => h('div', { class: 'bar-row tight' }, h('span', null, title), h('span', { class: 'bar', 'aria-hidden': 'true' }, h('i', { class: total && used / total >= 0.9 ? 'short' : '', style: { width: `${total ? Math.min(100, Math.round((100 * used) / total)) : 0}%` } })), h('span', { class: 'number small' }, text));
    return h('div', { class: 'panel node-card' },
      h('h2', null, node.name), node.isReady ? null : h('span', { class: 'badge bad' }, 'not ready'), node.isCordoned ? h('span', { class: 'badge wait' }, 'cordoned') : null,
      line('CPU', node.used.cpu, node.cpu, `${cores(node.used.cpu)} of ${cores(node.cpu)}`),
      line('Memory', node.used.memory, node.memory, `${size(node.used.memory)} of ${size(node.memory)}`),
      line('Pods', node.pods.size, node.podsMax, `${node.pods.size} of ${node.podsMax}`),
      node.devices && node.devices.total ? line('Devices', node.devices.used, node.devices.total, `${node.devices.used} of ${node.devices.total}`) : null,
      node.taints.length ? h('p', { class: 'small' }, 'Taints: ', node.taints.map((it) => [h('code', null, `${it.key}${it.value ? '=' + it.value : ''}:${it.effect}`), ' '])) : null,
      h('ul', { class: 'pod-list' }, [...node.pods.values()].slice(0, PODS_SHOWN).map((pod) => h('li', null, h('a', { href: link('resources', 'v1', 'pods', pod.namespace, pod.name) }, `${pod.namespace}/${pod.name}`), pod.phase === 'Running' ? null : h('span', { class: 'badge wait' }, pod.phase)))),
      node.pods.size > PODS_SHOWN ? h('p', { class: 'dim small' }, `and ${node.pods.size - PODS_SHOWN} more pods`) : null,
      h('div', { class: 'actions' }, h('a', { class: 'button quiet', href: link('resources', 'v1', 'nodes', '-', node.name) }, 'Open node'), h('a', { class: 'button quiet', href: link('why', 'node', node.name) }, 'Pods it keeps away')));
  }

  function mount(node) {
    holder = node;
    canvas = document.createElement('canvas');
    canvas.tabIndex = 0;
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', 'Map of nodes. Arrow keys choose a node, Enter opens it. The list beside it has the same nodes.');
    canvas.onclick = (event) => { const it = hit(event); if (it) choose(it.name); };
    canvas.onmousemove = (event) => { const it = hit(event); canvas.title = it ? `${it.name}: ${Math.round(share(it) * 100)} %, ${it.pods.size} pods` : ''; };
    canvas.onkeydown = canvasKeys;
    holder.append(canvas);
    context = canvas.getContext('2d');
    readColors();
    needsLayout = true;
    new ResizeObserver(() => { if (holder && Math.abs(canvas.clientWidth - holder.clientWidth) > 1) { needsLayout = true; schedule(); } }).observe(holder);
    schedule();
  }
  const recolor = () => { readColors(); needsLayout = true; schedule(); };
  window.addEventListener('themechange', recolor, { signal: stop.signal });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', recolor, { signal: stop.signal });
  const timer = setInterval(() => { if (!document.hidden) { if (hasUsage) loadUsage(); if (metric === 'devices') loadDevices(); } }, 15000);
  paint();
  run();
  setTimeout(loadUsage, 1500);
  return { update: () => paint(), dispose: () => { clearInterval(timer); clearTimeout(soon); highlight.cancel(); stop.abort(); holder = null; canvas = null; } };
}

const collator = new Intl.Collator(undefined, { numeric: true });
const byName = (a, b) => collator.compare(a.name, b.name);
const cores = (milli) => (milli % 1000 ? `${milli}m` : `${milli / 1000}`);
const size = (number) => (number >= 2 ** 30 ? `${Math.round((number / 2 ** 30) * 10) / 10} Gi` : `${Math.round(number / 2 ** 20)} Mi`);
function milli(text) { const match = /^([0-9.]+)([num]?)$/.exec(text) || []; return Number(match[1] || 0) * ({ n: 1e-6, u: 1e-3, m: 1 }[match[2]] || 1000); }
function bytes(text) { const match = /^([0-9.]+)(Ki|Mi|Gi|Ti)?$/.exec(text) || []; return Number(match[1] || 0) * ({ Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40 }[match[2]] || 1); }
