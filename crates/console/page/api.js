// Requests of the page: every one carries the session key in a header. Reads go to the cluster below /k, questions to /c.

const KEY = 'celplane-session';
let key = sessionStorage.getItem(KEY) || '';
const listeners = new Set();
/** 'ok', 'offline' (the console does not answer) or 'ended' (there is no session). */
export let state = 'ok';

export class ApiError extends Error {
  constructor(status, reason, message) { super(message); this.status = status; this.reason = reason; }
}

export function onState(listener) { listeners.add(listener); return () => listeners.delete(listener); }
function setState(next) { if (next !== state) { state = next; listeners.forEach((listener) => listener(next)); } }

export const hasSession = () => key !== '';

/** Exchanges the one-time code of the link for a session. */
export async function exchange(code) {
  const response = await fetch('/c/session', { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ code }) });
  if (!response.ok) throw await failure(response);
  key = (await response.json()).key;
  sessionStorage.setItem(KEY, key);
  setState('ok');
}

export async function endSession() {
  try { await request('/c/end', { method: 'POST', body: '{}' }); } catch { /* It is over in any case. */ }
  key = '';
  sessionStorage.removeItem(KEY);
  setState('ended');
}

async function failure(response) {
  let error = {};
  try { error = (await response.json()).error || {}; } catch { /* Not from the console: the code says enough. */ }
  return new ApiError(response.status, error.reason || '', error.message || `the server answered with code ${response.status}`);
}

async function request(path, options = {}) {
  const headers = { 'x-celplane-session': key, ...(options.headers || {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: 'no-store' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    setState('offline');
    throw new ApiError(0, 'Offline', 'The console does not answer.');
  }
  if (response.status === 401) {
    key = '';
    sessionStorage.removeItem(KEY);
    setState('ended');
    throw new ApiError(401, 'NoSession', 'The session has ended.');
  }
  if (state === 'offline') setState('ok');
  if (!response.ok) throw await failure(response);
  return response;
}

const query = (params) => {
  const parts = Object.entries(params || {}).filter(([, value]) => value !== undefined && value !== '' && value !== null);
  return parts.length ? '?' + parts.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join('&') : '';
};

/** Reads a document of the cluster. */
export async function read(path, params, signal) {
  return (await request('/k' + path + query(params), { signal })).json();
}
export async function readTable(path, params, signal) {
  const headers = { accept: 'application/json;as=Table;v=v1;g=meta.k8s.io' };
  return (await request('/k' + path + query(params), { signal, headers })).json();
}
export async function readDiscovery(path, signal) {
  const headers = { accept: 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList' };
  return (await request('/k' + path, { signal, headers })).json();
}
export async function readText(path, params, signal) {
  return (await request('/k' + path + query(params), { signal })).text();
}
/** Reads one of the console's own documents. */
export async function info() { return (await request('/c/info')).json(); }
/** Asks a question. */
export async function ask(topic, question, signal) {
  return (await request('/c/' + topic, { method: 'POST', body: JSON.stringify(question), headers: { 'content-type': 'application/json' }, signal })).json();
}

/** Reads a stream of JSON lines until it ends. */
export async function lines(path, params, onLine, signal, headers) {
  const response = await request(path + query(params), { signal, headers });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    let chunk;
    try { chunk = await reader.read(); } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new ApiError(0, 'Offline', 'The connection was lost.');
    }
    const { done, value } = chunk;
    if (done) return;
    rest += value;
    let end;
    let start = 0;
    while ((end = rest.indexOf('\n', start)) >= 0) {
      if (end > start) onLine(JSON.parse(rest.slice(start, end)));
      start = end + 1;
    }
    rest = rest.slice(start);
  }
}

export const pause = (ms, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, ms);
  if (signal) signal.addEventListener('abort', () => { clearTimeout(timer); reject(new DOMException('aborted', 'AbortError')); }, { once: true });
});

/**
 * Follows a collection: lists it, then watches it, and starts over when the watch is lost. `table` follows rows instead of objects.
 * Calls `onChange(items, {columns, more})` after changes, and `onError(error | null)`.
 */
export async function follow({ path, params, table, limit, onChange, onError, signal }) {
  const headers = table ? { accept: 'application/json;as=Table;v=v1;g=meta.k8s.io' } : undefined;
  let wait = 500;
  let timer = 0;
  while (!signal.aborted) {
    try {
      const list = await (table ? readTable : read)(path, { ...params, limit }, signal);
      const items = new Map();
      let columns = list.columnDefinitions;
      const metaOf = (item) => (table ? item.object.metadata : item.metadata);
      const put = (item) => items.set(metaOf(item).uid || `${metaOf(item).namespace}/${metaOf(item).name}`, item);
      (table ? list.rows || [] : list.items || []).forEach(put);
      const more = list.metadata && list.metadata.continue ? (list.metadata.remainingItemCount || true) : 0;
      const tell = () => { timer = 0; if (!signal.aborted) onChange([...items.values()], { columns, more }); };
      onError(null);
      tell();
      wait = 500;
      let version = list.metadata && list.metadata.resourceVersion;
      const started = Date.now();
      // A page of a longer list does not follow changes: it would grow without bound. The server rejects watches of Secrets.
      const isWatched = version && !more && !path.endsWith('/secrets');
      while (!signal.aborted && isWatched) {
        let isLost = false;
        await lines('/k' + path, { ...params, watch: 'true', resourceVersion: version, allowWatchBookmarks: 'true', timeoutSeconds: 240 }, (event) => {
          const object = event.object || {};
          if (event.type === 'ERROR') { isLost = true; return; }
          const rows = table && object.kind === 'Table' ? object.rows || [] : [object];
          if (table && object.columnDefinitions && object.columnDefinitions.length) columns = object.columnDefinitions;
          for (const item of rows) {
            const meta = table ? item.object && item.object.metadata : item.metadata;
            if (!meta) continue;
            if (meta.resourceVersion) version = meta.resourceVersion;
            if (event.type === 'BOOKMARK') continue;
            if (event.type === 'DELETED') items.delete(meta.uid || `${meta.namespace}/${meta.name}`);
            else put(item);
          }
          if (event.type !== 'BOOKMARK' && !timer) timer = setTimeout(tell, 60);
        }, signal, headers);
        if (isLost) break;
        if (Date.now() - started < 1000) await pause(1000, signal);
      }
      if (!isWatched) await pause(15000, signal);
    } catch (error) {
      if (error.name === 'AbortError' || signal.aborted) return;
      if (error.status === 401) return;
      onError(error);
      try { await pause(wait, signal); } catch { return; }
      wait = Math.min(wait * 2, 10000);
    }
  }
}
