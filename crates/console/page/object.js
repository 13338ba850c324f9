// One object: YAML, events, related objects, logs.

import { h, render, empty, problem, age, badge } from './dom.js';
import * as api from './api.js';
import { drawYaml } from './yaml.js';
import { groupVersion, collectionPath } from './resources.js';

const LOG_LINES = 400;
const LOG_PODS_MAX = 20;
const RELATED_MAX = 100;
const WORKLOADS = new Set(['Deployment', 'ReplicaSet', 'StatefulSet', 'DaemonSet', 'Job', 'ReplicationController', 'Service']);

export function objectPage(root, { resource, namespace, name, all }, { link }) {
  const stop = new AbortController();
  let object = null;
  let error = null;
  let tab = 'yaml';
  let events = null;
  let related = null;
  let logs = null;
  let copied = false;
  const path = `${collectionPath(resource, namespace)}/${name}`;
  const paint = () => { if (!stop.signal.aborted) render(root, view()); };
  const signal = stop.signal;

  async function load() {
    try { object = await api.read(path, {}, signal); error = null; } catch (problem) { if (problem.name === 'AbortError') return; error = problem; }
    paint();
    if (object) loadTab();
  }

  function loadTab() {
    if (tab === 'events') loadEvents();
    if (tab === 'related') loadRelated();
    if (tab === 'logs') loadLogs();
  }

  async function loadEvents() {
    const space = namespace || 'default';
    try {
      const list = await api.read(`/api/v1/namespaces/${space}/events`, { fieldSelector: `involvedObject.name=${name},involvedObject.kind=${resource.kind}`, limit: 200 }, signal);
      events = list.items.sort((a, b) => String(timeOf(b)).localeCompare(String(timeOf(a))));
    } catch (problem) { events = problem; }
    paint();
  }

  const find = (apiVersion, kind) => all.find((it) => groupVersion(it) === apiVersion && it.kind === kind) || all.find((it) => it.kind === kind && it.group === (apiVersion.includes('/') ? apiVersion.split('/')[0] : ''));
  const known = (plural, group = '') => all.find((it) => it.plural === plural && it.group === group);

  async function loadRelated() {
    const groups = [];
    const add = (title, items) => { if (items.length) groups.push({ title, items }); related = { groups }; paint(); };
    const attempt = async (work) => { try { await work(); } catch (problem) { if (problem.name !== 'AbortError' && problem.status !== 404) add('Not readable', [{ text: problem.message }]); } };
    const one = (it, space, objectName, note) => ({ resource: it, namespace: it.namespaced ? space : '', name: objectName, note });
    await attempt(async () => {
      const chain = [];
      let at = object;
      for (let depth = 0; depth < 6; depth += 1) {
        const owners = at.metadata.ownerReferences || [];
        const owner = owners.find((it) => it.controller) || owners[0];
        const kind = owner && find(owner.apiVersion, owner.kind);
        if (!owner || !kind) break;
        chain.push(one(kind, namespace, owner.name));
        at = await api.read(`${collectionPath(kind, namespace)}/${owner.name}`, {}, signal);
      }
      add('Owners', chain);
    });
    const pods = known('pods');
    const spec = object.spec || {};
    if (resource.kind === 'Pod') {
      const uses = [];
      if (spec.nodeName) uses.push(one(known('nodes'), '', spec.nodeName, 'runs on'));
      if (spec.serviceAccountName) uses.push(one(known('serviceaccounts'), namespace, spec.serviceAccountName, 'acts as'));
      for (const volume of spec.volumes || []) {
        if (volume.persistentVolumeClaim) uses.push(one(known('persistentvolumeclaims'), namespace, volume.persistentVolumeClaim.claimName, `volume ${volume.name}`));
        if (volume.configMap && volume.configMap.name) uses.push(one(known('configmaps'), namespace, volume.configMap.name, `volume ${volume.name}`));
        if (volume.secret && volume.secret.secretName) uses.push(one(known('secrets'), namespace, volume.secret.secretName, `volume ${volume.name}`));
      }
      const claims = known('resourceclaims', 'resource.k8s.io');
      for (const status of (object.status && object.status.resourceClaimStatuses) || []) if (claims && status.resourceClaimName) uses.push(one(claims, namespace, status.resourceClaimName, `claim ${status.name}`));
      for (const claim of spec.resourceClaims || []) if (claims && claim.resourceClaimName) uses.push(one(claims, namespace, claim.resourceClaimName, `claim ${claim.name}`));
      add('Uses', uses.filter((it) => it.resource));
      await attempt(async () => {
        const services = await api.read(`/api/v1/namespaces/${namespace}/services`, { limit: 500 }, signal);
        const own = object.metadata.labels || {};
        const hits = services.items.filter((it) => it.spec.selector && Object.entries(it.spec.selector).every(([label, value]) => own[label] === value));
        add('Services', hits.map((it) => one(known('services'), namespace, it.metadata.name)));
      });
    }
    if (resource.kind === 'Service') {
      await attempt(async () => {
        const slices = known('endpointslices', 'discovery.k8s.io');
        if (!slices) return;
        const list = await api.read(collectionPath(slices, namespace), { labelSelector: `kubernetes.io/service-name=${name}` }, signal);
        add('EndpointSlices', list.items.map((it) => one(slices, namespace, it.metadata.name, `${(it.endpoints || []).length} endpoints`)));
        const targets = list.items.flatMap((it) => (it.endpoints || []).map((endpoint) => ({ endpoint, ref: endpoint.targetRef }))).filter((it) => it.ref && it.ref.kind === 'Pod');
        add('Pods', targets.slice(0, RELATED_MAX).map((it) => one(pods, namespace, it.ref.name, `${(it.endpoint.addresses || []).join(', ')}${it.endpoint.conditions && it.endpoint.conditions.ready === false ? ', not ready' : ''}`)));
      });
    } else if (resource.kind === 'Node') {
      await attempt(async () => {
        const list = await api.readTable('/api/v1/pods', { fieldSelector: `spec.nodeName=${name}`, limit: RELATED_MAX }, signal);
        add('Pods', list.rows.map((row) => one(pods, row.object.metadata.namespace, row.object.metadata.name, row.object.metadata.namespace)));
      });
    } else if (WORKLOADS.has(resource.kind)) {
      await attempt(async () => add('Pods', (await podsOf()).map((pod) => one(pods, namespace, pod.metadata.name, pod.status.phase))));
    }
    const children = { Deployment: 'replicasets', CronJob: 'jobs' }[resource.kind];
    if (children) {
      await attempt(async () => {
        const kind = all.find((it) => it.plural === children);
        const list = await api.read(collectionPath(kind, namespace), { limit: 500 }, signal);
        add(kind.kind + 's', list.items.filter((it) => (it.metadata.ownerReferences || []).some((owner) => owner.uid === object.metadata.uid)).slice(0, RELATED_MAX).map((it) => one(kind, namespace, it.metadata.name, it.spec.replicas !== undefined ? `${it.spec.replicas} replicas` : '')));
      });
    }
    if (!related) related = { groups };
    related.isDone = true;
    paint();
  }

  /** The pods of a workload, by its selector. */
  async function podsOf() {
    if (resource.kind === 'Pod') return [object];
    const selector = object.spec.selector || {};
    const labels = selector.matchLabels || (selector.matchExpressions ? {} : selector);
    const terms = Object.entries(labels).map(([label, value]) => `${label}=${value}`);
    for (const it of selector.matchExpressions || []) {
      if (it.operator === 'In') terms.push(`${it.key} in (${it.values.join(',')})`);
      else if (it.operator === 'NotIn') terms.push(`${it.key} notin (${it.values.join(',')})`);
      else terms.push(it.operator === 'Exists' ? it.key : `!${it.key}`);
    }
    if (!terms.length) return [];
    return (await api.read(`/api/v1/namespaces/${namespace}/pods`, { labelSelector: terms.join(','), limit: RELATED_MAX }, signal)).items;
  }

  async function loadLogs() {
    const before = logs || {};
    logs = { ...before, follow: before.follow ?? true, container: before.container || '', lines: before.lines || null, error: null };
    try {
      const pods = (await podsOf()).slice(0, LOG_PODS_MAX);
      const containers = [...new Set(pods.flatMap((pod) => [...pod.spec.containers, ...(pod.spec.initContainers || [])].map((it) => it.name)))];
      const found = [];
      const errors = [];
      for (const pod of pods) {
        const container = logs.container && pod.spec.containers.some((it) => it.name === logs.container) ? logs.container : pod.spec.containers[0].name;
        try {
          const text = await api.readText(`/api/v1/namespaces/${namespace}/pods/${pod.metadata.name}/log`, { container: logs.container || container, tailLines: LOG_LINES, timestamps: 'true', limitBytes: 262144 }, signal);
          for (const line of text.split('\n')) {
            if (!line) continue;
            const at = line.indexOf(' ');
            found.push({ time: line.slice(0, at), text: line.slice(at + 1), pod: pod.metadata.name });
          }
        } catch (problem) { if (problem.name === 'AbortError') return; errors.push(`${pod.metadata.name}: ${problem.message}`); }
      }
      found.sort((a, b) => (a.time < b.time ? -1 : a.time > b.time ? 1 : 0));
      logs = { ...logs, pods: pods.map((pod) => pod.metadata.name), containers, lines: found.slice(-2000), errors };
    } catch (problem) { if (problem.name === 'AbortError') return; logs = { ...logs, error: problem }; }
    paint();
  }
  const timer = setInterval(() => {
    if (document.hidden || !object) return;
    if (tab === 'logs' && logs && logs.follow) loadLogs();
    if (tab === 'events') loadEvents();
  }, 3000);

  function view() {
    const hasLogs = resource.kind === 'Pod' || (WORKLOADS.has(resource.kind));
    const tabs = [['yaml', 'YAML'], ['events', 'Events'], ['related', 'Related'], ...(hasLogs ? [['logs', 'Logs']] : [])];
    const isPending = object && resource.kind === 'Pod' && object.status && object.status.phase === 'Pending' && !object.spec.nodeName;
    return h('div', { class: 'object pad' },
      h('a', { class: 'back shown', href: link('resources', groupVersion(resource), resource.plural) }, `← ${resource.plural}`),
      h('header', { class: 'title' }, h('div', null, h('p', { class: 'dim small' }, `${resource.kind}${namespace ? ` in ${namespace}` : ''}`), h('h1', null, name)),
        h('div', { class: 'actions' }, isPending ? h('a', { class: 'button', href: link('why', namespace, name) }, 'Why is it pending?') : null,
          resource.kind === 'Node' ? h('a', { class: 'button quiet', href: link('why', 'node', name) }, 'Pods it keeps away') : null,
          object ? h('span', { class: 'dim small' }, `created ${age(object.metadata.creationTimestamp)} ago`) : null)),
      error ? problem(error, load) : null,
      !object && !error ? h('p', { class: 'dim', role: 'status' }, 'Reading…') : null,
      object ? [h('div', { class: 'tabs', role: 'tablist', 'aria-label': 'Views', onkeydown: tabKeys }, tabs.map(([id, title]) => h('button', { role: 'tab', id: `tab-${id}`, 'aria-selected': String(tab === id), 'aria-controls': 'panel', tabindex: tab === id ? '0' : '-1', onclick: () => { tab = id; paint(); loadTab(); } }, title))),
        h('div', { role: 'tabpanel', id: 'panel', 'aria-labelledby': `tab-${tab}`, key: tab, class: 'tabpanel' }, panel())] : null);
  }

  function tabKeys(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const buttons = [...event.currentTarget.children];
    const next = buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length];
    next.focus();
    next.click();
  }

  function panel() {
    if (tab === 'yaml') {
      return [resource.kind === 'Secret' ? h('p', { class: 'note' }, 'Values of Secrets are never sent to this page.') : null,
        h('button', { class: 'button quiet copy', onclick: async () => { try { await navigator.clipboard.writeText(document.querySelector('.yaml').textContent); copied = true; } catch { copied = false; } paint(); setTimeout(() => { copied = false; paint(); }, 1500); } }, copied ? 'Copied' : 'Copy'), drawYaml(object)];
    }
    if (tab === 'events') {
      if (!events) return h('p', { class: 'dim', role: 'status' }, 'Reading events…');
      if (events instanceof Error) return problem(events, loadEvents);
      if (!events.length) return empty('No events', 'Events are kept for an hour.');
      return h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Events' }, h('table', { class: 'grid' }, h('thead', null, h('tr', null, ['Age', 'Type', 'Reason', 'Message', 'From'].map((it) => h('th', { scope: 'col' }, it)))),
        h('tbody', null, events.map((it) => h('tr', { key: it.metadata.uid }, h('td', null, age(timeOf(it)), (it.count || (it.series && it.series.count) || 1) > 1 ? h('span', { class: 'dim' }, ` ×${it.count || it.series.count}`) : null), h('td', null, it.type === 'Warning' ? badge('wait', 'Warning') : it.type), h('td', null, it.reason), h('td', { class: 'wrap' }, it.message), h('td', { class: 'dim' }, it.reportingComponent || (it.source && it.source.component) || ''))))));
    }
    if (tab === 'related') {
      if (!related) return h('p', { class: 'dim', role: 'status' }, 'Reading related objects…');
      if (!related.groups.length) return related.isDone ? empty('No related objects') : h('p', { class: 'dim' }, 'Reading related objects…');
      return related.groups.map((group) => h('section', { class: 'part' }, h('h2', null, group.title), h('ul', { class: 'chain' }, group.items.map((it, index) => h('li', null, group.title === 'Owners' && index ? h('span', { class: 'dim' }, '↑ ') : null,
        it.resource ? [h('span', { class: 'dim small' }, `${it.resource.kind} `), h('a', { href: link('resources', groupVersion(it.resource), it.resource.plural, it.namespace || '-', it.name) }, it.name)] : it.text, it.note ? h('span', { class: 'dim small' }, `  ${it.note}`) : null)))));
    }
    if (!logs || (!logs.lines && !logs.error)) return h('p', { class: 'dim', role: 'status' }, 'Reading logs…');
    if (logs.error) return problem(logs.error, loadLogs);
    const many = (logs.pods || []).length > 1;
    return [h('div', { class: 'filters' },
      (logs.containers || []).length > 1 ? h('label', { class: 'field inline' }, h('span', null, 'Container'), h('select', { value: logs.container, onchange: (event) => { logs.container = event.target.value; loadLogs(); } }, h('option', { value: '' }, 'First of each pod'), logs.containers.map((it) => h('option', { value: it }, it)))) : null,
      h('label', { class: 'check' }, h('input', { type: 'checkbox', checked: logs.follow, onchange: (event) => { logs.follow = event.target.checked; paint(); } }), 'Follow'),
      many ? h('span', { class: 'dim small' }, `${logs.pods.length} pods`) : null),
    (logs.errors || []).map((it) => h('p', { class: 'note' }, it)),
    logs.lines.length ? h('pre', { class: 'log', tabindex: '0', 'aria-label': 'Log' }, logs.lines.map((line) => [h('span', { class: 'dim' }, many ? `${line.pod}  ` : `${line.time.slice(11, 19)}  `), line.text, '\n'])) : empty('No log lines', 'The containers have not written anything yet.')];
  }

  paint();
  load();
  return { dispose: () => { clearInterval(timer); stop.abort(); } };
}

const timeOf = (event) => event.lastTimestamp || (event.series && event.series.lastObservedTime) || event.eventTime || event.metadata.creationTimestamp;
