// Resources: every resource that the server offers, with the server's own columns, live.

import { h, render, empty, problem, debounce } from './dom.js';
import * as api from './api.js';
import { objectPage } from './object.js';

const ROWS_MAX = 500;
const FIRST = ['pods', 'nodes', 'deployments', 'services', 'resourceclaims', 'resourceslices', 'events'];

let discovered = null;

/** The resources of the server, read once. */
async function discover(signal) {
  if (discovered) return discovered;
  const found = [];
  for (const path of ['/api', '/apis']) {
    const list = await api.readDiscovery(path, signal);
    for (const group of list.items || []) {
      const version = (group.versions || [])[0];
      for (const resource of (version && version.resources) || []) {
        if (!resource.verbs.includes('list') || !resource.responseKind) continue;
        const name = (group.metadata && group.metadata.name) || '';
        found.push({ group: name, version: version.version, plural: resource.resource, kind: resource.responseKind.kind, namespaced: resource.scope === 'Namespaced', shortNames: resource.shortNames || [] });
      }
    }
  }
  discovered = found;
  return found;
}

export const groupVersion = (it) => (it.group ? `${it.group}/${it.version}` : it.version);
export const basePath = (it) => (it.group ? `/apis/${it.group}/${it.version}` : `/api/${it.version}`);
export const collectionPath = (it, namespace) => `${basePath(it)}${it.namespaced && namespace ? `/namespaces/${namespace}` : ''}/${it.plural}`;

export function resourcesPage(root, parts, context) {
  const { link, info } = context;
  const stop = new AbortController();
  let all = null;
  let error = null;
  let resource = null;
  let namespace = '';
  let namespaces = [];
  let text = '';
  let labels = '';
  let rows = null;
  let columns = [];
  let more = 0;
  let tableError = null;
  let isWide = false;
  let sort = null;
  let following = null;
  let inner = null;
  let menuFilter = '';

  const paint = () => { if (!inner && !stop.signal.aborted) render(root, view()); };

  async function load() {
    try {
      all = await discover(stop.signal);
      error = null;
      update(parts);
      api.readTable('/api/v1/namespaces', { limit: 500 }, stop.signal).then((table) => { namespaces = table.rows.map((row) => row.object.metadata.name); paint(); }, () => {});
    } catch (problem) {
      if (problem.name === 'AbortError') return;
      error = problem;
      paint();
    }
  }

  function follow() {
    if (following) following.abort();
    following = new AbortController();
    const mine = following;
    stop.signal.addEventListener('abort', () => mine.abort());
    rows = null; tableError = null; more = 0;
    api.follow({
      path: collectionPath(resource, namespace), table: true, limit: ROWS_MAX, params: { labelSelector: labels }, signal: mine.signal,
      onChange: (items, about) => { rows = items; columns = about.columns || columns; more = about.more; paint(); },
      onError: (problem) => {
        if (problem && problem.status === 403 && resource.namespaced && !namespace && info()) { namespace = info().namespace; follow(); paint(); return; }
        tableError = problem && problem.reason === 'Offline' && rows ? null : problem; paint();
      },
    });
  }
  const refollow = debounce(300, follow);

  function update(next) {
    parts = next;
    if (!all) { paint(); return; }
    const [version, plural, space, name] = next;
    const wanted = all.find((it) => groupVersion(it) === version && it.plural === plural) || all.find((it) => it.plural === 'pods');
    if (wanted !== resource) {
      resource = wanted; text = ''; labels = ''; sort = null; columns = []; namespace = '';
      if (!name) follow();
    }
    if (inner) { inner.dispose(); inner = null; render(root); }
    if (name) {
      if (following) { following.abort(); following = null; }
      inner = objectPage(root, { resource, namespace: space === '-' ? '' : space, name, all }, context);
    } else if (!following || following.signal.aborted) follow();
    paint();
  }

  function view() {
    if (error) return h('div', { class: 'pad' }, problem(error, load));
    if (!all) return h('p', { class: 'dim pad', role: 'status' }, 'Reading the list of resources…');
    return h('div', { class: 'split resources' }, h('section', { class: 'side', 'aria-label': 'Kinds' }, menu()), h('section', { class: 'detail', 'aria-label': resource.kind }, table()));
  }

  function menu() {
    const match = (it) => !menuFilter || it.plural.includes(menuFilter.toLowerCase()) || it.kind.toLowerCase().includes(menuFilter.toLowerCase()) || it.shortNames.includes(menuFilter.toLowerCase());
    const first = FIRST.map((plural) => all.find((it) => it.plural === plural)).filter(Boolean);
    const rest = all.filter((it) => !first.includes(it)).sort((a, b) => a.plural.localeCompare(b.plural));
    const item = (it) => h('li', { key: groupVersion(it) + it.plural }, h('a', { href: link('resources', groupVersion(it), it.plural), 'aria-current': it === resource ? 'true' : undefined }, it.plural, it.group && all.filter((other) => other.plural === it.plural).length > 1 ? h('span', { class: 'dim small' }, ` ${it.group}`) : null));
    return [
      h('label', { class: 'only-narrow field' }, h('span', null, 'Kind'), h('select', { value: `${groupVersion(resource)} ${resource.plural}`, onchange: (event) => { const [version, plural] = event.target.value.split(' '); location.hash = link('resources', version, plural); } },
        [...first, ...rest].map((it) => h('option', { value: `${groupVersion(it)} ${it.plural}` }, it.plural)))),
      h('div', { class: 'only-wide' },
        h('input', { type: 'search', placeholder: 'Filter kinds', 'aria-label': 'Filter kinds', value: menuFilter, oninput: (event) => { menuFilter = event.target.value; paint(); } }),
        h('ul', { class: 'menu' }, first.filter(match).map(item)), h('hr'), h('ul', { class: 'menu' }, rest.filter(match).map(item)))];
  }

  function table() {
    const shownColumns = columns.map((it, at) => ({ ...it, at })).filter((it) => isWide || it.priority === 0);
    const withNamespace = resource.namespaced && !namespace;
    let found = rows || [];
    if (text) found = found.filter((row) => `${row.object.metadata.namespace || ''}/${row.object.metadata.name}`.includes(text));
    if (sort !== null) {
      const value = (row) => (sort.at < 0 ? row.object.metadata.namespace : row.cells[sort.at]);
      found = [...found].sort((a, b) => sort.direction * compare(value(a), value(b)));
    } else found = [...found].sort((a, b) => compare(a.object.metadata.namespace, b.object.metadata.namespace) || compare(a.object.metadata.name, b.object.metadata.name));
    const isNumber = (at) => found.length > 0 && found.every((row) => typeof row.cells[at] === 'number');
    const heading = (title, at, description) => h('th', { scope: 'col', class: isNumber(at) ? 'number' : '', title: description, 'aria-sort': sort && sort.at === at ? (sort.direction > 0 ? 'ascending' : 'descending') : undefined },
      h('button', { onclick: () => { sort = sort && sort.at === at ? (sort.direction > 0 ? { at, direction: -1 } : null) : { at, direction: 1 }; paint(); } }, title, sort && sort.at === at ? (sort.direction > 0 ? ' ↑' : ' ↓') : ''));
    return [
      h('header', { class: 'title' }, h('div', null, h('p', { class: 'dim small' }, groupVersion(resource)), h('h1', null, resource.kind, rows ? h('span', { class: 'count' }, more ? `${rows.length}+` : found.length) : null))),
      h('div', { class: 'filters' },
        resource.namespaced ? h('label', { class: 'field inline' }, h('span', null, 'Namespace'), h('select', { value: namespace, onchange: (event) => { namespace = event.target.value; follow(); paint(); } },
          h('option', { value: '' }, 'All'), (namespaces.length ? namespaces : namespace ? [namespace] : []).map((it) => h('option', { value: it }, it)))) : null,
        h('label', { class: 'field inline' }, h('span', null, 'Name'), h('input', { type: 'search', value: text, oninput: (event) => { text = event.target.value; paint(); } })),
        h('label', { class: 'field inline' }, h('span', null, 'Labels'), h('input', { type: 'search', value: labels, placeholder: 'app=web', oninput: (event) => { labels = event.target.value; refollow(); paint(); } })),
        h('label', { class: 'check' }, h('input', { type: 'checkbox', checked: isWide, onchange: (event) => { isWide = event.target.checked; paint(); } }), 'All columns')),
      tableError ? problem(tableError, follow) : null,
      !rows && !tableError ? h('p', { class: 'dim', role: 'status' }, 'Reading…') : null,
      rows && !found.length ? empty(`No ${resource.plural}`, text || labels ? 'Nothing matches the filters.' : namespace ? `There are none in ${namespace}.` : 'There are none in this cluster, or none that you may see.') : null,
      found.length ? h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': `Table of ${resource.plural}` }, h('table', { class: 'grid' },
        h('thead', null, h('tr', null, withNamespace ? heading('Namespace', -1) : null, shownColumns.map((it) => heading(it.name, it.at, it.description)))),
        h('tbody', null, found.map((row) => {
          const meta = row.object.metadata;
          return h('tr', { key: meta.uid || `${meta.namespace}/${meta.name}` }, withNamespace ? h('td', { class: 'dim' }, meta.namespace) : null,
            shownColumns.map((it, index) => h('td', { class: typeof row.cells[it.at] === 'number' ? 'number' : '' }, index === 0 ? h('a', { href: link('resources', groupVersion(resource), resource.plural, meta.namespace || '-', meta.name) }, cell(row.cells[it.at])) : statusCell(it, row.cells[it.at]))));
        })))) : null,
      more ? h('p', { class: 'dim small' }, `The first ${rows.length} are shown${typeof more === 'number' ? ` of ${rows.length + more}` : ''}. Narrow the list by namespace or labels; longer lists are read again every 15 seconds.`) : null];
  }

  load();
  return { update, dispose: () => { refollow.cancel(); stop.abort(); if (inner) inner.dispose(); } };
}

const cell = (value) => (value === null || value === undefined ? '' : typeof value === 'object' ? JSON.stringify(value) : String(value));
const compare = (a, b) => (typeof a === 'number' && typeof b === 'number' ? a - b : String(a ?? '').localeCompare(String(b ?? ''), undefined, { numeric: true }));

const GOOD = /^(Running|Ready|Active|Bound|Complete|Available|True|Succeeded|Completed)$/;
const BAD = /^(Failed|Error|CrashLoopBackOff|NotReady.*|Evicted|ImagePullBackOff|ErrImagePull|Unknown|.*BackOff)$/;
const WAIT = /^(Pending|Terminating|ContainerCreating|.*SchedulingDisabled|SchedulingGated|Progressing)$/;
function statusCell(column, value) {
  const text = cell(value);
  if (!/^(status|phase|ready|state)$/i.test(column.name)) return text;
  const tone = GOOD.test(text) ? 'good' : BAD.test(text) ? 'bad' : WAIT.test(text) ? 'wait' : '';
  return tone ? h('span', { class: `badge ${tone}` }, text) : text;
}
