// Playground: an expression at one of the places that accept one, evaluated by the server while it is typed.

import { h, render, problem, debounce } from './dom.js';
import * as api from './api.js';
import { toYaml } from './yaml.js';
import { PLACES, EXAMPLES, manifest } from './examples.js';

const OBJECTS_MAX = 100;
const PREVIEW_MAX = 10;

const encode = (state) => btoa(String.fromCharCode(...new TextEncoder().encode(JSON.stringify(state)))).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
const decode = (text) => JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (it) => it.charCodeAt(0))));

export function playgroundPage(root, parts, { link }) {
  const stop = new AbortController();
  let state = { ...EXAMPLES[1] };
  let answer = null;
  let error = null;
  let active = -1; // The part under the pointer or focus.
  let offers = null; // { items, at, word, chosen }
  let live = null; // { label, items } | { error }
  let shown = ''; // The manifest.
  let note = '';
  let preview = null;
  let request = null;
  let asked = null;
  let area = null;
  let overlay = null;

  const paint = () => { if (!stop.signal.aborted) render(root, view()); };
  const place = () => PLACES.find((it) => it.id === state.place);

  function load(next) {
    if (!next[0]) return;
    try {
      const read = decode(next[0]);
      if (PLACES.some((it) => it.id === read.place)) state = { place: read.place, expression: String(read.expression || ''), input: String(read.input || ''), schema: String(read.schema || '') };
      else note = 'The link is for a place that this console does not know.';
    } catch { note = 'The link could not be read; an example is shown instead.'; }
  }

  const question = () => ({ place: state.place, expression: state.expression, input: state.input, schema: place().schema ? state.schema : undefined });
  const save = debounce(300, () => history.replaceState(null, '', link('playground', encode(question()))));
  const evaluate = debounce(140, async () => {
    if (request) request.abort();
    request = new AbortController();
    try { answer = shorten(await api.ask('evaluate', question(), request.signal)); error = null; } catch (problem) { if (problem.name === 'AbortError') return; error = problem; }
    active = -1;
    paint();
  });
  /** Variables by themselves are not evaluated, only what is read of them: they would say nothing. */
  const shorten = (it) => (it.parts ? { ...it, parts: it.parts.filter((part) => part.value !== undefined || part.error !== undefined || !/^\w+$/.test(state.expression.slice(part.start, part.end))) } : it);
  function changed(fields) {
    Object.assign(state, fields);
    note = ''; shown = ''; preview = null;
    save(); evaluate(); paint();
  }

  // Completion.
  const complete = debounce(120, async () => {
    if (!area || document.activeElement !== area) return;
    const at = area.selectionStart;
    const before = state.expression.slice(0, at);
    const word = /[A-Za-z_][A-Za-z0-9_]*$/.exec(before)?.[0] || '';
    const head = before.slice(0, at - word.length);
    const isMember = head.endsWith('.');
    if (inQuotes(before) || (!word && !isMember)) { offers = null; paint(); return; }
    if (asked) asked.abort();
    asked = new AbortController();
    try {
      const found = await api.ask('complete', { ...question(), expression: undefined, before: isMember ? operand(head.slice(0, -1)) : '' }, asked.signal);
      const lower = word.toLowerCase();
      const items = found.items.filter((it) => it.name.toLowerCase().startsWith(lower) && it.name !== word).slice(0, 40);
      offers = items.length ? { items, start: at - word.length, end: at, isMember, chosen: 0 } : null;
    } catch (problem) { if (problem.name === 'AbortError') return; offers = null; }
    paint();
  });

  function accept(item) {
    const isName = /^[A-Za-z_][A-Za-z0-9_]*$/.test(item.name);
    let { start } = offers;
    let text = item.name;
    if (item.kind === 'key' && !isName) { start -= 1; text = `['${item.name}']`; }
    if (item.kind === 'function' || item.kind === 'macro') text += '(';
    const expression = state.expression.slice(0, start) + text + state.expression.slice(offers.end);
    offers = null;
    changed({ expression });
    area.focus();
    area.setSelectionRange(start + text.length, start + text.length);
  }

  function keys(event) {
    if (offers) {
      const count = offers.items.length;
      if (event.key === 'ArrowDown') { offers.chosen = (offers.chosen + 1) % count; }
      else if (event.key === 'ArrowUp') { offers.chosen = (offers.chosen + count - 1) % count; }
      else if (event.key === 'Enter' || event.key === 'Tab') { event.preventDefault(); accept(offers.items[offers.chosen]); return; }
      else if (event.key === 'Escape') { offers = null; paint(); return; }
      else return;
      event.preventDefault();
      paint();
      document.querySelector('.offers [aria-selected="true"]')?.scrollIntoView({ block: 'nearest' });
    } else if (event.key === ' ' && event.ctrlKey) { event.preventDefault(); complete(); }
  }

  // Live objects.
  async function loadLive() {
    live = { items: null };
    paint();
    try {
      live = { items: (await candidates()).slice(0, OBJECTS_MAX) };
      if (!live.items.length) note = 'The cluster has no object that fits this place.';
    } catch (problem) { live = null; error = problem; }
    paint();
  }

  async function candidates() {
    const list = async (path) => (await api.read(path, { limit: OBJECTS_MAX }, stop.signal)).items;
    const strip = (object) => { const copy = structuredClone(object); delete copy.metadata?.managedFields; return copy; };
    if (state.place === 'toleration') return (await list('/api/v1/nodes')).flatMap((node) => (node.spec.taints || []).map((taint) => ({ label: `${node.metadata.name}: ${taint.key}${taint.value ? '=' + taint.value : ''}`, input: toYaml(taint) })));
    if (state.place === 'affinity') return (await list('/api/v1/nodes')).map((node) => ({ label: node.metadata.name, input: toYaml({ metadata: { name: node.metadata.name, labels: node.metadata.labels } }) }));
    if (state.place === 'device' || state.place === 'devices') {
      const slices = await list('/apis/resource.k8s.io/v1/resourceslices');
      const shape = (slice, device) => ({ driver: slice.spec.driver, attributes: device.attributes, capacity: device.capacity });
      if (state.place === 'devices') return slices.filter((it) => (it.spec.devices || []).length).map((slice) => ({ label: `${slice.metadata.name} (first ${Math.min(4, slice.spec.devices.length)})`, input: toYaml(slice.spec.devices.slice(0, 4).map((it) => shape(slice, it))) }));
      return slices.flatMap((slice) => (slice.spec.devices || []).map((device) => ({ label: `${slice.spec.pool.name}/${device.name}`, input: toYaml(shape(slice, device)) })));
    }
    if (state.place === 'admission') {
      const found = [];
      for (const [path, kind] of [['/apis/apps/v1/deployments', 'Deployment'], ['/api/v1/pods', 'Pod'], ['/api/v1/services', 'Service']]) {
        try { for (const it of await list(path)) found.push({ label: `${kind} ${it.metadata.namespace}/${it.metadata.name}`, input: toYaml({ object: strip({ apiVersion: path.includes('apps') ? 'apps/v1' : 'v1', kind, ...it }), request: { operation: 'CREATE', userInfo: { username: 'alice' } } }) }); } catch (problem) { if (problem.status !== 403) throw problem; }
      }
      return found;
    }
    const found = [];
    for (const crd of await list('/apis/apiextensions.k8s.io/v1/customresourcedefinitions')) {
      const version = crd.spec.versions.find((it) => it.storage) || crd.spec.versions[0];
      const schema = toYaml(version.schema?.openAPIV3Schema || {});
      const path = `/apis/${crd.spec.group}/${version.name}/${crd.spec.names.plural}`;
      let objects = [];
      try { objects = await list(path); } catch { /* The schema alone is still useful. */ }
      if (!objects.length) found.push({ label: `${crd.spec.names.kind} (schema only)`, schema, path });
      for (const it of objects.slice(0, 20)) found.push({ label: `${crd.spec.names.kind} ${it.metadata.namespace ? it.metadata.namespace + '/' : ''}${it.metadata.name}`, schema, path, input: toYaml(strip(it)) });
    }
    return found;
  }

  function take(index) {
    const item = live.items[index];
    if (!item) return;
    const fields = { input: item.input || '' };
    if (item.schema) fields.schema = item.schema;
    state.path = item.path;
    changed(fields);
  }

  async function loadPreview() {
    preview = { rows: [] };
    paint();
    try {
      const list = await api.read(state.path, { limit: PREVIEW_MAX }, stop.signal);
      for (const object of list.items) {
        const found = await api.ask('evaluate', { ...question(), input: JSON.stringify(object) }, stop.signal);
        preview.rows.push({ name: `${object.metadata.namespace ? object.metadata.namespace + '/' : ''}${object.metadata.name}`, value: found.value, error: found.error || (found.errors ? found.errors[0].message : '') });
        paint();
      }
      preview.isDone = true;
    } catch (problem) { preview = null; error = problem; }
    paint();
  }

  async function copy(text, what) {
    try { await navigator.clipboard.writeText(text); note = `${what} copied.`; } catch { note = `${what} could not be copied; select and copy it by hand.`; }
    paint();
  }

  function view() {
    return h('div', { class: 'play pad' },
      h('header', { class: 'title' }, h('div', null, h('h1', null, 'Playground'), h('p', { class: 'dim small' }, place().field, ' · sees ', h('code', null, place().sees))),
        h('div', { class: 'actions' },
          h('label', { class: 'field inline' }, h('span', { class: 'sr' }, 'Example'), h('select', { 'aria-label': 'Example', value: '', onchange: (event) => { const it = EXAMPLES[Number(event.target.value)]; event.target.value = ''; if (it) { live = null; state = { schema: '', ...it }; changed({}); } } },
            h('option', { value: '' }, 'Examples…'), PLACES.map((spot) => h('optgroup', { label: spot.title }, EXAMPLES.map((it, at) => (it.place === spot.id ? h('option', { value: String(at) }, it.title) : null)))))),
          h('button', { class: 'button quiet', onclick: () => copy(location.href.replace(/#.*/, '') + link('playground', encode(question())), 'Link') }, 'Copy link'),
          h('button', { class: 'button quiet', onclick: () => { shown = shown ? '' : manifest(state.place, state.expression); paint(); }, 'aria-expanded': String(!!shown) }, 'Make a manifest'))),
      h('div', { class: 'chips', role: 'group', 'aria-label': 'Place' }, PLACES.map((it) => h('button', { class: 'chip', 'aria-pressed': String(it.id === state.place), onclick: () => {
        const example = EXAMPLES.find((other) => other.place === it.id);
        live = null;
        state = { schema: '', ...example };
        changed({});
      } }, it.title))),
      note ? h('p', { class: 'note', role: 'status' }, note) : null,
      shown ? h('div', { class: 'panel' }, h('div', { class: 'title' }, h('h2', null, 'Manifest'), h('button', { class: 'button quiet', onclick: () => copy(shown, 'Manifest') }, 'Copy')), h('pre', { class: 'yaml', tabindex: '0', 'aria-label': 'Manifest' }, shown)) : null,
      h('div', { class: 'play-grid', key: 'grid' },
        h('section', { class: 'play-main', 'aria-label': 'Expression' }, editor(), result()),
        h('section', { class: 'play-side', 'aria-label': 'Input' }, inputs())));
  }

  function editor() {
    const errors = (answer && answer.errors) || [];
    return [h('label', { class: 'editor-label', for: 'expression' }, 'Expression'),
      h('div', { class: 'editor' },
        h('pre', { class: 'overlay', 'aria-hidden': 'true', onmount: (node) => { overlay = node; } }, drawn(errors), '\n'),
        h('textarea', {
          id: 'expression', spellcheck: 'false', autocomplete: 'off', autocapitalize: 'off', rows: '1', value: state.expression, role: 'combobox', 'aria-expanded': String(!!offers), 'aria-controls': 'offers', 'aria-autocomplete': 'list', 'aria-activedescendant': offers ? `offer-${offers.chosen}` : undefined, 'aria-invalid': String(errors.length > 0), 'aria-describedby': 'errors',
          onmount: (node) => { area = node; }, oninput: (event) => { changed({ expression: event.target.value }); complete(); }, onkeydown: keys, onblur: () => setTimeout(() => { if (offers) { offers = null; paint(); } }, 150), onscroll: (event) => { if (overlay) overlay.scrollTop = event.target.scrollTop; },
        }),
        offers ? offersView() : null),
      h('div', { id: 'errors', 'aria-live': 'polite' }, errors.length ? h('div', { class: 'errors' }, errors.slice(0, 5).map(errorView)) : null, error ? problem(error) : null)];
  }

  /** The expression with errors and the active part marked; what is marked lies behind the text of the editor. */
  function drawn(errors) {
    const text = state.expression;
    const marks = [];
    for (const it of errors) { const at = offsetOf(text, it.line, it.column); if (at >= 0) marks.push({ start: at, end: Math.max(at + 1, at + (/^[A-Za-z0-9_]+/.exec(text.slice(at))?.[0].length || 1)), tone: 'err' }); }
    const part = answer && answer.parts && answer.parts[active];
    if (part && !errors.length) marks.push({ start: part.start, end: part.end, tone: 'on' });
    if (offers) marks.push({ start: offers.start, end: offers.start, tone: 'caret' });
    marks.sort((a, b) => a.start - b.start);
    const out = [];
    let at = 0;
    for (const mark of marks) {
      if (mark.start < at) continue;
      out.push(text.slice(at, mark.start), h('span', { class: `m-${mark.tone}` }, text.slice(mark.start, mark.end)));
      at = mark.end;
    }
    out.push(text.slice(at));
    return out;
  }

  function offersView() {
    const caret = overlay && overlay.querySelector('.m-caret');
    const style = caret ? { left: `${Math.min(caret.offsetLeft, Math.max(0, overlay.clientWidth - 340))}px`, top: `${caret.offsetTop + 26}px` } : {};
    return h('ul', { class: 'offers', id: 'offers', role: 'listbox', 'aria-label': 'Completions', style }, offers.items.map((it, at) => h('li', { id: `offer-${at}`, role: 'option', 'aria-selected': String(at === offers.chosen), onmousedown: (event) => { event.preventDefault(); accept(it); } },
      h('span', { class: `kind k-${it.kind}`, 'aria-hidden': 'true' }, it.kind[0]), h('span', { class: 'mono' }, it.name), h('span', { class: 'dim small mono offer-detail' }, it.detail))));
  }

  function errorView(it) {
    const line = it.line > 0 ? state.expression.split('\n')[it.line - 1] : null;
    return h('div', { class: 'error' }, line !== null && line !== undefined ? h('pre', { 'aria-hidden': 'true' }, line, '\n', ' '.repeat(Math.max(0, [...line].slice(0, it.column).join('').length)), h('b', null, '^')) : null,
      h('p', null, it.line > 0 ? h('span', { class: 'dim' }, `Line ${it.line}, column ${it.column + 1}: `) : null, it.message));
  }

  function result() {
    if (!answer || (answer.errors && !answer.parts)) return null;
    const has = answer.value !== undefined;
    const percent = answer.limit && answer.estimated ? Math.min(100, (100 * answer.estimated.max) / answer.limit) : 0;
    return h('div', { class: 'result' },
      answer.inputError ? h('p', { class: 'note' }, `Input: ${answer.inputError}`) : null,
      h('dl', { class: 'facts' },
        h('div', null, h('dt', null, 'Value'), h('dd', { 'aria-live': 'polite' }, has ? h('code', { class: `big v-${answer.value}` }, answer.value) : answer.error ? h('span', { class: 'bad-text' }, answer.error) : h('span', { class: 'dim' }, 'no input'))),
        h('div', null, h('dt', null, 'Type'), h('dd', null, h('code', null, answer.type))),
        answer.estimated ? h('div', null, h('dt', null, 'Estimated cost'), h('dd', null, range(answer.estimated), answer.limit ? h('span', { class: 'dim small' }, ` of ${short(answer.limit)}`) : null, answer.limit ? h('span', { class: 'bar', 'aria-hidden': 'true' }, h('i', { class: percent >= 100 ? 'short' : '', style: { width: `${Math.max(1, percent)}%` } })) : null)) : null,
        answer.cost !== undefined ? h('div', null, h('dt', null, 'Actual cost'), h('dd', null, String(answer.cost))) : null),
      (answer.parts || []).length ? partsView() : null,
      state.place === 'column' && state.path ? h('div', null, preview ? previewView() : h('button', { class: 'button quiet', onclick: loadPreview }, 'Preview the column over live objects')) : null);
  }

  function previewView() {
    return h('table', { class: 'steps' }, h('caption', { class: 'sr' }, 'Column over live objects'), h('thead', null, h('tr', null, h('th', { scope: 'col' }, 'Name'), h('th', { scope: 'col' }, 'Cell'))),
      h('tbody', null, preview.rows.map((row) => h('tr', null, h('td', null, row.name), h('td', null, row.error ? h('span', { class: 'bad-text' }, row.error) : h('code', null, row.value)))), preview.isDone && !preview.rows.length ? h('tr', null, h('td', { colspan: '2', class: 'dim' }, 'There are no objects.')) : null));
  }

  function partsView() {
    const costs = answer.parts.map((it) => it.cost || 0);
    const most = Math.max(1, ...costs.slice(1), 1);
    const depth = depths(answer.parts);
    return h('table', { class: 'steps parts' }, h('caption', null, 'Every part of the expression'),
      h('thead', null, h('tr', null, ['Part', 'Value', 'Type', 'Estimate', 'Cost'].map((it, at) => h('th', { scope: 'col', class: at > 2 ? 'number' : '' }, it)))),
      h('tbody', { onmouseleave: () => { active = -1; paint(); } }, answer.parts.map((it, at) => h('tr', { class: at === active ? 'on' : '', tabindex: '0', onmouseenter: () => { active = at; paint(); }, onfocus: () => { active = at; paint(); } },
        h('td', null, h('code', { style: { 'padding-left': `${depth[at] * 14}px` } }, state.expression.slice(it.start, it.end).replaceAll(/\s+/g, ' '))),
        h('td', null, it.error !== undefined ? h('span', { class: 'bad-text' }, it.error) : it.value !== undefined ? h('code', { class: `v-${it.value}` }, it.value) : h('span', { class: 'dim' }, it.value === undefined && answer.cost !== undefined ? 'not reached' : '')),
        h('td', { class: 'dim mono' }, it.type || ''),
        h('td', { class: 'number dim' }, it.estimated ? range(it.estimated) : ''),
        h('td', { class: 'number' }, it.cost !== undefined ? [h('span', { class: 'heat', 'aria-hidden': 'true', style: { width: `${Math.round((36 * it.cost) / Math.max(most, it.cost))}px` } }), String(it.cost), it.times > 1 ? h('span', { class: 'dim' }, ` (${it.times}×)`) : ''] : '')))));
  }

  function inputs() {
    return [
      h('div', { class: 'title' }, h('label', { for: 'input', class: 'editor-label' }, `Input: ${place().sees}`),
        live && live.items ? h('select', { 'aria-label': 'Live objects', value: '', onchange: (event) => { if (event.target.value !== '') take(Number(event.target.value)); } }, h('option', { value: '' }, `Choose of ${live.items.length}…`), live.items.map((it, at) => h('option', { value: String(at) }, it.label)))
          : h('button', { class: 'button quiet', onclick: loadLive, disabled: !!live }, live ? 'Reading…' : 'From the cluster')),
      h('textarea', { id: 'input', class: 'code', spellcheck: 'false', rows: place().schema ? '9' : '16', value: state.input, oninput: (event) => changed({ input: event.target.value }) }),
      place().schema ? [h('label', { for: 'schema', class: 'editor-label' }, 'Schema or CustomResourceDefinition'), h('textarea', { id: 'schema', class: 'code', spellcheck: 'false', rows: '14', value: state.schema, oninput: (event) => changed({ schema: event.target.value }) })] : null];
  }

  load(parts);
  paint();
  evaluate();
  return { update: (next) => { if (next[0] && next[0] !== encode(question())) { load(next); paint(); evaluate(); } }, dispose: () => { save.cancel(); evaluate.cancel(); complete.cancel(); stop.abort(); if (request) request.abort(); } };
}

const short = (number) => (number >= 1e15 ? 'unbounded' : number >= 1e6 ? `${Math.round(number / 1e5) / 10}M` : number >= 1e4 ? `${Math.round(number / 100) / 10}k` : String(number));
const range = ({ min, max }) => (min === max ? short(max) : `${short(min)} – ${short(max)}`);

/** The offset of a line and a column in code points. */
function offsetOf(text, line, column) {
  if (line < 1) return -1;
  const all = text.split('\n');
  const before = all.slice(0, line - 1).reduce((sum, it) => sum + it.length + 1, 0);
  return before + [...(all[line - 1] || '')].slice(0, Math.max(0, column)).join('').length;
}

function inQuotes(text) {
  let quote = '';
  for (let at = 0; at < text.length; at += 1) {
    const c = text[at];
    if (quote) { if (c === '\\') at += 1; else if (c === quote) quote = ''; } else if (c === '"' || c === "'") quote = c;
  }
  return quote !== '';
}

/** The operand that ends where the text does: names, dots, indices and calls. */
function operand(text) {
  let at = text.length;
  const skip = (open, close) => { let depth = 0; while (at > 0) { at -= 1; if (text[at] === close) depth += 1; else if (text[at] === open) { depth -= 1; if (!depth) return; } } };
  while (at > 0) {
    const c = text[at - 1];
    if (/[A-Za-z0-9_.]/.test(c)) at -= 1;
    else if (c === ']') skip('[', ']');
    else if (c === ')') skip('(', ')');
    else if ((c === '"' || c === "'") && at === text.length) { const start = text.lastIndexOf(c, at - 2); if (start < 0) break; at = start; }
    else break;
  }
  return text.slice(at);
}

/** How deep each part lies within those before it. */
function depths(parts) {
  const open = [];
  return parts.map((it) => {
    while (open.length && !(it.start >= open.at(-1).start && it.end <= open.at(-1).end)) open.pop();
    open.push(it);
    return open.length - 1;
  });
}
