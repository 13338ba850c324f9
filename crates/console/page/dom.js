// A small virtual DOM: pages describe what they show, `render` changes what differs. Texts only ever become text nodes.

const SVG = 'http://www.w3.org/2000/svg';
const PROPERTIES = new Set(['value', 'checked', 'disabled', 'selected', 'open', 'indeterminate', 'tabIndex']);

/** Describes an element. Children may be nested lists; null, false and undefined are left out. */
export function h(tag, props, ...children) {
  const flat = [];
  const add = (child) => {
    if (Array.isArray(child)) child.forEach(add);
    else if (child !== null && child !== undefined && child !== false && child !== true) flat.push(typeof child === 'object' ? child : String(child));
  };
  add(children);
  return { tag, props: props || {}, children: flat, key: props && props.key };
}

/** Makes the children of an element what is described. */
export function render(root, ...children) {
  reconcile(root, h('div', null, children).children);
}

function reconcile(parent, wanted) {
  const keyed = new Map();
  const rest = [];
  for (const node of parent.childNodes) {
    const key = node._v && node._v.key;
    if (key !== undefined && key !== null) keyed.set(key, node);
    else rest.push(node);
  }
  let at = 0;
  let cursor = parent.firstChild;
  for (const vnode of wanted) {
    let old = null;
    if (typeof vnode === 'object' && vnode.key !== undefined && vnode.key !== null) {
      old = keyed.get(vnode.key) || null;
      if (old) keyed.delete(vnode.key);
    } else if (at < rest.length) {
      old = rest[at++];
    }
    const node = patch(old, vnode, parent);
    if (node !== old && old) { if (cursor === old) cursor = old.nextSibling; old.remove(); }
    if (node === cursor) cursor = cursor.nextSibling;
    else parent.insertBefore(node, cursor);
  }
  while (at < rest.length) { const node = rest[at++]; if (node.parentNode === parent) { if (cursor === node) cursor = node.nextSibling; drop(node); } }
  for (const node of keyed.values()) drop(node);
}

function drop(node) {
  const walk = (it) => { if (it._v && it._v.props && it._v.props.onremove) it._v.props.onremove(it); it.childNodes.forEach(walk); };
  walk(node);
  node.remove();
}

function patch(old, vnode, parent) {
  if (typeof vnode === 'string') {
    if (old && old.nodeType === 3) { if (old.data !== vnode) old.data = vnode; return old; }
    return document.createTextNode(vnode);
  }
  let node = old;
  if (!node || !node._v || node._v.tag !== vnode.tag) {
    const isSvg = vnode.tag === 'svg' || (parent.namespaceURI === SVG && parent.localName !== 'foreignObject');
    node = isSvg ? document.createElementNS(SVG, vnode.tag) : document.createElement(vnode.tag);
    node._v = { props: {} };
    setProps(node, {}, vnode.props, true);
  } else {
    setProps(node, node._v.props, vnode.props, false);
  }
  const isNew = node !== old;
  node._v = vnode;
  if (!vnode.props.opaque) reconcile(node, vnode.children);
  // A select takes its value once its options are there.
  if (vnode.tag === 'select' && vnode.props.value !== undefined && (node.value !== vnode.props.value || node.selectedIndex < 0)) node.value = vnode.props.value;
  if (isNew && vnode.props.onmount) queueMicrotask(() => vnode.props.onmount(node));
  return node;
}

function setProps(node, before, after, isNew) {
  for (const name of Object.keys(before)) if (!(name in after)) set(node, name, undefined, isNew);
  for (const [name, value] of Object.entries(after)) {
    if (before[name] !== value || name === 'value' || name === 'checked') set(node, name, value, isNew);
  }
}

function set(node, name, value, isNew) {
  if (name === 'key' || name === 'onmount' || name === 'onremove' || name === 'opaque') return;
  if (name.startsWith('on')) { node[name] = value || null; return; }
  if (name === 'style') {
    if (!isNew) node.removeAttribute('style');
    for (const [key, text] of Object.entries(value || {})) node.style.setProperty(key, text);
    return;
  }
  // Without the attribute, the value of an option is its text.
  if (PROPERTIES.has(name) && !(name === 'value' && node.localName === 'option')) {
    if (name === 'open' && !isNew) return; // The user decides after the first time.
    if (name === 'value' && (node.localName === 'select' || node.value === value)) return;
    node[name] = value === undefined ? (name === 'value' ? '' : false) : value;
    return;
  }
  if (value === undefined || value === null || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? '' : String(value));
}

/** Calls a function once after a pause in calls. */
export function debounce(ms, work) {
  let timer = 0;
  const call = (...args) => { clearTimeout(timer); timer = setTimeout(() => work(...args), ms); };
  call.cancel = () => clearTimeout(timer);
  return call;
}

/** How long ago a timestamp is, as kubectl prints it. */
export function age(timestamp) {
  const seconds = Math.max(0, Math.floor((Date.now() - Date.parse(timestamp)) / 1000));
  if (!Number.isFinite(seconds)) return '';
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

/** A badge with a word; the tone decides its color, the word its meaning. */
export const badge = (tone, ...text) => h('span', { class: `badge ${tone}` }, text);

/** What stands where there is nothing to show. */
export const empty = (title, ...text) => h('div', { class: 'empty' }, h('p', { class: 'empty-title' }, title), text.length ? h('p', null, text) : null);

/** What went wrong, and what to do. */
export function problem(error, retry) {
  const hint = hintFor(error);
  return h('div', { class: 'problem', role: 'alert' },
    h('p', { class: 'problem-title' }, isForbidden(error) ? 'You lack a permission' : error.reason === 'Offline' ? 'No connection' : 'This did not work'),
    h('p', null, error.message),
    hint ? h('p', { class: 'dim' }, hint) : null,
    retry ? h('button', { class: 'button', onclick: retry }, 'Try again') : null);
}

const isForbidden = (error) => error.status === 403 || / is forbidden: /.test(error.message);

function hintFor(error) {
  if (error.status === 422 && isForbidden(error)) return 'Explanations and simulations need to list everything that the scheduler looks at: nodes, and pods, volumes and claims of all namespaces.';
  if (error.reason === 'ClusterUnreachable') return 'The console runs, but the API server does not answer. Check that the cluster is up; this page reconnects by itself.';
  if (error.reason === 'ClusterUnauthorized') return 'The credentials of the kubeconfig are not accepted. Renew them and start the console again.';
  if (error.reason === 'Offline') return 'The console itself does not answer. Start it again with celplane console; the page then needs a new link.';
  if (error.status === 403 && error.reason === 'Forbidden') return 'The console shows what your own account may read. Ask for the role, or choose a namespace that you may read.';
  if (error.reason === 'Deadline') return 'The cluster may be too large for an answer in the page. The commands celplane why and celplane simulate have no such limit.';
  return '';
}
