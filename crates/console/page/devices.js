// Devices of a node: how each selector and constraint narrows the candidates, and the devices drawn as their attributes say.

import { h } from './dom.js';

const number = (attribute) => (attribute && attribute.int !== undefined ? Number(attribute.int) : null);
const short = (name) => name.split('/').pop();

/** Draws what is known about the devices of a node. */
export function drawDevices(nodeName, report, slices) {
  const explained = report.explained;
  const parts = [];
  if (report.problem) parts.push(h('p', { class: 'fact' }, h('span', { class: 'badge bad' }, 'not allocated'), ' ', report.problem));
  if (!explained) return parts;
  const chosen = new Set((explained.devices || []).map((text) => /([^/\s]+\/[^/\s]+\/[^/\s:,]+)/.exec(text)?.[1] || text));
  for (const request of explained.requests || []) {
    const start = Math.max(1, ...request.stages.map((it) => it.left));
    parts.push(h('div', { class: 'funnel' },
      h('p', null, 'Claim ', h('code', null, request.claim), ', request ', h('code', null, request.request), ' needs ', h('b', null, request.wanted === null ? 'all' : request.wanted)),
      request.stages.map((stage) => h('div', { class: 'bar-row' },
        h('span', { class: 'wrap' }, stage.what, stage.failed ? h('span', { class: 'bad-text small' }, ` ${stage.failed}`) : null),
        h('span', { class: 'bar', 'aria-hidden': 'true' }, h('i', { class: stage.left < (request.wanted || 1) ? 'short' : '', style: { width: `${Math.round((100 * stage.left) / start)}%` } })),
        h('span', { class: 'number small' }, `${stage.left} left`)))));
  }
  for (const constraint of explained.constraints || []) {
    parts.push(h('div', { class: 'reason inner' }, h('div', { class: 'grow' }, h('p', null, `Constraint ${constraint.index} of `, h('code', null, constraint.claim), ': ', h('code', null, constraint.constraint)),
      (constraint.findings || []).map((it) => h('p', { class: 'small dim' }, it)))));
  }
  const search = explained.search;
  if (search) {
    const share = 1 - search.evaluated / Math.max(1, Number(search.possible));
    parts.push(h('p', { class: 'small dim' }, `The search evaluated ${search.evaluated} of ${search.possible} possible sets and cut ${search.cut} branches: `,
      h('b', null, `${(Math.floor(1000 * Math.max(0, share)) / 10).toString()} % pruned`), `, at a cost of ${search.cost}.`));
  }
  const devices = [];
  for (const slice of slices || []) {
    if (slice.spec.nodeName !== nodeName && !slice.spec.allNodes) continue;
    for (const device of slice.spec.devices || []) {
      const attributes = {};
      for (const [name, value] of Object.entries((device.basic || device).attributes || {})) attributes[short(name)] = value;
      devices.push({ id: `${slice.spec.driver}/${slice.spec.pool.name}/${device.name}`, name: device.name, attributes, pool: slice.spec.pool.name });
    }
  }
  if (devices.length) parts.push(picture(devices, chosen));
  if (chosen.size) parts.push(h('p', { class: 'small' }, 'Chosen: ', [...chosen].map((it, index) => [index ? ', ' : '', h('code', null, it.split('/').pop())])));
  return parts;
}

/** The layout that the attributes describe: grid, torus, ring or groups. */
function picture(devices, chosen) {
  const has = (name) => devices.every((it) => it.attributes[name] !== undefined);
  const isChosen = (it) => chosen.has(it.id);
  let places; // [x, y] in cells
  let lines = [];
  let kind;
  if (devices.length > 256) return h('p', { class: 'dim small' }, `${devices.length} devices`);
  if (has('row') && has('col')) {
    kind = 'grid';
    places = devices.map((it) => [number(it.attributes.col), number(it.attributes.row)]);
  } else if (has('x') && has('y')) {
    kind = 'torus';
    const width = Math.max(...devices.map((it) => number(it.attributes.x))) + 1;
    places = devices.map((it) => [number(it.attributes.x) + (number(it.attributes.z) || 0) * (width + 0.6), number(it.attributes.y)]);
  } else if (has('numa') || has('pcieRoot')) {
    kind = 'tree';
    const group = (it) => String(it.attributes.numa ? it.attributes.numa.int : it.attributes.pcieRoot.string);
    const groups = [...new Set(devices.map(group))];
    const seen = new Map();
    places = devices.map((it) => { const at = groups.indexOf(group(it)); const count = seen.get(at) || 0; seen.set(at, count + 1); return [count + 0.4, at]; });
    lines = groups.map((name, at) => ({ label: has('numa') ? `NUMA ${name}` : name, at, count: seen.get(at) }));
  } else if (has('deviceid') || has('index')) {
    kind = 'ring';
    const order = devices.map((it) => number(it.attributes.deviceid || it.attributes.index));
    const radius = Math.max(1.2, devices.length / 5.2);
    places = order.map((at) => { const angle = (2 * Math.PI * at) / devices.length - Math.PI / 2; return [radius + radius * Math.cos(angle), radius + radius * Math.sin(angle)]; });
    lines = [{ circle: radius }];
  } else {
    kind = 'list';
    const columns = Math.ceil(Math.sqrt(devices.length * 2));
    places = devices.map((_, at) => [at % columns, Math.floor(at / columns)]);
  }
  const cell = 46;
  const left = kind === 'tree' ? 96 : 8;
  const width = Math.max(...places.map((it) => it[0])) * cell + cell + left + 8;
  const height = Math.max(...places.map((it) => it[1])) * cell + cell + 8;
  const label = `${devices.length} devices drawn as ${kind}; chosen: ${devices.filter(isChosen).map((it) => it.name).join(', ') || 'none'}`;
  return h('div', { class: 'picture' }, h('svg', { viewBox: `0 0 ${width} ${height}`, width: String(width), height: String(height), role: 'img', 'aria-label': label },
    lines.map((it) => (it.circle ? h('circle', { cx: left + it.circle * cell + 19, cy: it.circle * cell + 23, r: it.circle * cell, class: 'd-line' })
      : [h('text', { x: 6, y: it.at * cell + 28, class: 'd-group' }, it.label), h('line', { x1: left - 4, y1: it.at * cell + 23, x2: left + it.count * cell + 8, y2: it.at * cell + 23, class: 'd-line' })])),
    devices.map((it, at) => {
      const x = left + places[at][0] * cell;
      const y = 4 + places[at][1] * cell;
      return h('g', null, h('title', null, it.id), h('rect', { x, y, width: 38, height: 38, rx: 9, class: `d-box ${isChosen(it) ? 'chosen' : ''}` }),
        h('text', { x: x + 19, y: y + 23, class: `d-text ${isChosen(it) ? 'chosen' : ''}` }, it.name.replace(/^.*-/, '')));
    })));
}
